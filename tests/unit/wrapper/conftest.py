"""Fixtures of the wrapper's tests: wrappers as processes, with a scripted engine to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.wrapper.running import Wrapper, install_scripted


@pytest.fixture(scope="session")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed distribution whose entry point is the scripted engine."""
    return install_scripted(tmp_path_factory.mktemp("plugins"))


@pytest.fixture
def start(plugins: Path) -> Iterator[Callable[[], Wrapper]]:
    """Starts wrappers; all are ended after the test."""
    running: list[Wrapper] = []

    def one() -> Wrapper:
        running.append(Wrapper(plugins))
        return running[-1]

    yield one
    for wrapper in running:
        wrapper.close()
