"""The fake of RunPod's API, and runners as a worker starts them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.environments.runpod import RunPod
from tests.rented import IMAGE, cache, gone, packages, programs
from tests.rented import Rig as AnyRig
from tests.runpod.fake_api import KEY, FakeRunPod

__all__ = ["IMAGE", "cache", "gone", "packages", "programs"]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRunPod]:
    monkeypatch.setenv("RUNPOD_API_KEY", KEY)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "fake"
    folder.mkdir()
    made = FakeRunPod(folder)
    yield made
    made.close()


class Rig(AnyRig):
    """Runners of pods."""

    kind = "runpod"
    manager = RunPod
    fake: FakeRunPod

    def left(self) -> list[str]:
        return list(self.fake.pods)

    def given(self) -> dict[str, Any]:
        return {"endpoint": self.fake.url, "max_cost": 5, "start_minutes": 1.5}


@pytest.fixture
def rig(fake: FakeRunPod, cache: Path, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(fake, cache, tmp_path, [])
    yield made
    made.end()
