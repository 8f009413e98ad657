"""Checks of texts that come at the same time: each gets its turn, and none waits for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpcbench.portal import plan_checks
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.plan_checks import Checker


def asked_together(folder: Path, count: int) -> list[int]:
    """Status of each answer: 200, or what was refused with."""
    checker = Checker(folder)

    def ask(number: int) -> int:
        path = str(folder / f"{number}.yaml")
        request = {"kind": "plan", "path": path, "text": "name: x\n", "only_read": True}
        try:
            assert checker.ask(request) == {"problems": []}
        except PortalFault as fault:
            return fault.status
        return 200

    try:
        with ThreadPoolExecutor(count) as pool:
            return sorted(pool.map(ask, range(count)))
    finally:
        checker.close()


@pytest.mark.long
def test_a_text_waits_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_checks, "AT_ONCE", 1)
    assert asked_together(tmp_path, 4) == [200] * 4


@pytest.mark.long
def test_it_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_checks, "AT_ONCE", 1)
    monkeypatch.setattr(plan_checks, "TURN_SECONDS", 0)
    assert asked_together(tmp_path, 2) == [200, 503]
