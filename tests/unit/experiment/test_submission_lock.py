"""One process submits an experiment at a time, whichever dies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hpcbench.errors import RunFailed
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission_lock import LOCK_SECONDS, alone, submitting, wait_for_others
from hpcbench.files.atomic import create_exclusive
from tests.unit.past import past


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    return past(tmp_path, "20261120-1432-plan-aaaa", ended=False)


def lock(here: Experiment, host: str, pid: int, age: float = 0.0, **more: str) -> Path:
    """A lock of a process that is gone."""
    path = here.path / "submission.lock"
    create_exclusive(path, {"host": host, "pid": pid, "token": "abcd", "time": 0.0, **more})
    then = path.stat().st_mtime - age
    os.utime(path, (then, then))
    return path


def dead() -> int:
    """A process number that no process has any more."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_while_one_submits_others_get_a_message(here: Experiment) -> None:
    with alone(here):
        assert submitting(here)
        with pytest.raises(RunFailed, match="another hpcbench is submitting"), alone(here):
            raise AssertionError("two at once")
    assert not submitting(here)


def test_the_lock_of_a_process_that_died_here_blocks_no_other(here: Experiment) -> None:
    lock(here, socket.gethostname(), dead())
    assert not submitting(here)
    with alone(here):
        assert submitting(here)


@pytest.mark.parametrize("host", ["elsewhere", socket.gethostname()], ids=["host", "container"])
def test_the_lock_of_another_host_or_container_holds_until_it_shows_no_sign_of_life(
    here: Experiment, host: str
) -> None:
    path = lock(here, host, dead(), age=LOCK_SECONDS / 2, space="another")
    with pytest.raises(RunFailed), alone(here):
        raise AssertionError("taken from the living")
    then = path.stat().st_mtime - LOCK_SECONDS
    os.utime(path, (then, then))
    with alone(here):
        assert submitting(here)


def test_a_process_that_is_suspended_for_hours_keeps_its_lock(here: Experiment) -> None:
    lock(here, socket.gethostname(), os.getpid(), age=100 * LOCK_SECONDS)
    assert submitting(here)
    with pytest.raises(RunFailed), alone(here):
        raise AssertionError("taken from the living")


def test_of_many_who_find_a_dead_one_s_lock_one_at_a_time_gets_it(here: Experiment) -> None:
    lock(here, socket.gethostname(), dead())
    inside, most, done = 0, 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most, done
        with alone(here, patience=60):
            with guard:
                inside += 1
                most = max(most, inside)
            with guard:
                inside -= 1
                done += 1

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (1, 12)
    assert not (here.path / "submission.lock").exists()


def test_a_caller_that_waits_for_the_end_goes_on_once_all_reports_are_sent(
    here: Experiment,
) -> None:
    reported = threading.Event()
    began = threading.Event()

    def conclude() -> None:
        with alone(here):
            began.set()
            reported.wait(60)

    who = threading.Thread(target=conclude)
    who.start()
    began.wait(60)
    threading.Timer(0.3, reported.set).start()
    wait_for_others(here, 60)
    assert reported.is_set()
    who.join()


def test_a_caller_that_waits_for_the_end_gives_up_when_its_patience_ends(here: Experiment) -> None:
    with alone(here):
        started = time.monotonic()
        wait_for_others(here, 0.3)
        assert 0.3 <= time.monotonic() - started < 30


def test_no_caller_waits_for_one_that_died_while_reporting(here: Experiment) -> None:
    lock(here, socket.gethostname(), dead())
    wait_for_others(here, 60)
    assert (here.path / "submission.lock").exists()
