"""The fake of SkyPilot's program, and runners as a worker starts them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.environments.skypilot import SkyPilot
from tests.rented import IMAGE, cache, gone, packages, programs
from tests.rented import Rig as AnyRig
from tests.skypilot.fake_sky import FakeSky

__all__ = ["IMAGE", "cache", "gone", "packages", "programs"]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSky]:
    folder, home = tmp_path / "fake", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))  # of SkyPilot's files
    made = FakeSky(folder, home)
    yield made
    made.close()


class Rig(AnyRig):
    """Runners of SkyPilot's machines."""

    kind = "skypilot"
    manager = SkyPilot
    fake: FakeSky

    def left(self) -> list[str]:
        return list(self.fake.clusters)

    def given(self) -> dict[str, Any]:
        given = {"program": str(self.fake.program), "max_cost": 5, "max_hours": 10}
        return {**given, "start_minutes": 1.5}


@pytest.fixture
def rig(fake: FakeSky, cache: Path, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(fake, cache, tmp_path, [])
    yield made
    made.end()
    # A guard still checks that its machine is gone; without an answer it would try for half an hour.
    until = time.monotonic() + 30
    while any(_guards(fake.home)):
        assert time.monotonic() < until
        time.sleep(0.1)


def _guards(home: Path) -> Iterator[str]:
    """Process ids of guards with that home."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            mine = f"HOME={home}".encode() in (place / "environ").read_bytes().split(b"\0")
            if mine and b"rented_guard" in (place / "cmdline").read_bytes():
                yield place.name
