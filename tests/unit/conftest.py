"""Fixtures of all unit tests."""

from __future__ import annotations

import pytest

from hpcbench import secret


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets that a test reveals are not masked in the texts of the tests after it."""
    monkeypatch.setattr(secret, "_revealed", set(secret._revealed))
