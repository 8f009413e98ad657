"""Fixtures of all unit tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench import secret
from tests.unit.command import Cli

NOWHERE = Path("/nonexistent")
"""The home of a test that writes no files."""


@pytest.fixture(autouse=True)
def _own_settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments, caches, site profiles, registry and tokens are in the folder of the test, or none."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else NOWHERE
    monkeypatch.setenv("HPCBENCH_HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets that a test reveals are not masked in the texts of the tests after it."""
    monkeypatch.setattr(secret, "_revealed", set(secret._revealed))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """`hpcbench`, and what it prints."""
    return Cli(capsys)


@pytest.fixture(scope="session", autouse=True)
def _tracebacks_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Files with tracebacks that commands write in tests lie in pytest's folder, not in /tmp for ever."""
    folder, mkstemp = tmp_path_factory.mktemp("tracebacks"), tempfile.mkstemp

    def apart(*args: Any, **how: Any) -> tuple[int, str]:
        if str(how.get("prefix")).startswith("hpcbench-bug-"):
            how.setdefault("dir", str(folder))
        return mkstemp(*args, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", apart)
        yield
