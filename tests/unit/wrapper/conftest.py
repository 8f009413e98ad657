"""Fixtures of the wrapper's tests: wrappers as processes, with scripted engines to start."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.wrapper.running import Wrapper, install_scripted


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed distribution whose entry points are the scripted engines."""
    return install_scripted(tmp_path_factory.mktemp("plugins"))


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """Short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        yield Path(folder) / "s"


@pytest.fixture
def start(plugins: Path) -> Iterator[Callable[..., Wrapper]]:
    """Starts wrappers; all are ended after the test."""
    running: list[Wrapper] = []

    def one(*arguments: str) -> Wrapper:
        running.append(Wrapper(plugins, *arguments))
        return running[-1]

    yield one
    for wrapper in running:
        wrapper.close()


@pytest.fixture(scope="session")
def shared(plugins: Path) -> Iterator[Wrapper]:
    """One for all tests that leave it alive."""
    one = Wrapper(plugins)
    yield one
    one.close()


@pytest.fixture
def wrapper(shared: Wrapper) -> Iterator[Wrapper]:
    """A wrapper without a model."""
    yield shared

    async def unload() -> None:
        async with shared.control() as control:
            assert await control.unload() == (200, {"state": "empty"})

    asyncio.run(unload())
