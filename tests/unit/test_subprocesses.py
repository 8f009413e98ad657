"""Programs that run with a deadline, in a session of their own."""

from __future__ import annotations

import os
import sys
import time

import pytest

from hpcbench.subprocesses import printed, run

ECHO = [sys.executable, "-c", "import sys; sys.stdout.write(sys.stdin.read())"]


def test_a_program_gets_its_input_and_gives_its_output() -> None:
    # More than a pipe holds, both ways.
    given = b"line\n" * 100_000
    ended = run(ECHO, 60, given=given)
    assert (ended.out, ended.late) == (given, False)
    assert ended.why.startswith("ended with 0")


def test_a_program_that_fails_gives_its_code_and_last_message() -> None:
    ended = run(["sh", "-c", "echo half; echo no route >&2; exit 3"], 60)
    assert (ended.out, ended.late) == (b"half\n", False)
    assert ended.why == "ended with 3: no route"


def test_a_late_program_is_killed_with_its_children_and_what_it_printed_is_kept() -> None:
    began = time.monotonic()
    ended = run(["sh", "-c", "sleep 600 & echo $!; wait"], 0.5, alone=True)
    assert ended.late
    assert time.monotonic() - began < 30
    child = int(ended.out)
    until = time.monotonic() + 10
    while time.monotonic() < until and not _gone(child):
        time.sleep(0.01)
    assert _gone(child)


def test_a_child_that_keeps_the_pipes_open_is_not_waited_for() -> None:
    began = time.monotonic()
    assert printed(["sh", "-c", "echo half; sleep 60; true"], 0.5) is None
    assert time.monotonic() - began < 30


def test_a_program_that_is_not_there_raises() -> None:
    with pytest.raises(FileNotFoundError):
        run(["/no/such/program"], 1)


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123 - a zombie that init has not reaped yet
        return file.read().rpartition(")")[2].split()[0] == "Z"
