"""The demo, run once for all tests of a session: its answers are those that later commands take over."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.demo.reader import hpcbench
from tests.help_examples import example


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's home and what the run printed. A test that changes something copies the home first."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    home, printed = folder / "demo", folder / "demo.txt"
    with (folder / "demo.lock").open("w") as lock:  # the first of xdist's workers runs it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            words = example("submit PLAN --wait", {"PLAN": "examples/demo/plan.yaml"})
            printed.write_text(hpcbench(home, *words))
    return home, printed.read_text()
