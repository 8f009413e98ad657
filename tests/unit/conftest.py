"""Fixtures of all unit tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from hpcbench import secret


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets that a test reveals are not masked in the texts of the tests after it."""
    monkeypatch.setattr(secret, "_revealed", set(secret._revealed))


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
