"""The volume, and a folder on it for each test."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.sharedfs.actors import Actor
from tests.sharedfs.volume import Volume, volume


@pytest.fixture(scope="module")
def shared() -> Iterator[Volume]:
    """The volume on its two mounts."""
    with contextlib.ExitStack() as stack:
        try:
            up = stack.enter_context(volume())
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the reason
            unavailable(f"no GlusterFS on this machine: {error}")
        yield up


@pytest.fixture
def folder(shared: Volume, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder on the volume, as node A names it; its processes end and it is removed with the test."""
    made = shared.a / re.sub(r"\W", "-", request.node.name)
    made.mkdir()
    yield made
    Actor.end_all()
    shutil.rmtree(made)
