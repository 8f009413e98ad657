"""Fixtures of the portal's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.portal import worker_series
from hpcbench.portal.index import open_index
from hpcbench.portal.index.sql_index import Index
from tests.unit.portal import postgres


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Address of a real PostgreSQL."""
    yield from postgres.served()


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)],
)
def database(request: pytest.FixtureRequest) -> str | None:
    """Argument that opens an index: once nothing, which is SQLite, and once the address of a PostgreSQL."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgresql"))


@pytest.fixture
def index(database: str | None, tmp_path: Path) -> Iterator[Index]:
    """An empty index."""
    found = open_index(database, tmp_path)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _whole_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at workers reads all that is new, also where the machine is too busy to do so in its time."""
    monkeypatch.setattr(worker_series, "LOOK_SECONDS", 60.0)


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written into the real cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _umask_of_the_user() -> Iterator[None]:
    """A portal that a test starts in this process lets no other user read its files: later tests do."""
    before = os.umask(0o022)
    yield
    os.umask(before)
