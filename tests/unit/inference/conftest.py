"""Fixtures of the client's tests."""

from __future__ import annotations

import pytest

from hpcbench.inference import client


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PAUSE", 0.001)
