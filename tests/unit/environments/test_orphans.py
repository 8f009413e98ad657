"""What is left of a container that was killed: a program of a helper's name; real ones: tests/apptainer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from hpcbench.environments.orphans import end_session, reap


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def started_by(leader: str, tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    """A session whose leader has a child in a process group of its own, called like a FUSE helper."""
    helper = tmp_path / "squashfuse_ll"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", helper)
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([{str(helper)!r}, '60'], process_group=0)\n"
        if sys.version_info >= (3, 11)
        else "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([{str(helper)!r}, '60'], preexec_fn=os.setpgrp)\n"
    )
    code += "print(child.pid, flush=True)\n" + leader
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as said:
        return process, int(said.readline())


def test_what_is_left_of_a_session_is_ended_with_it(tmp_path: Path) -> None:
    process, helper = started_by("time.sleep(60)", tmp_path)
    os.killpg(process.pid, 9)
    process.wait()
    assert is_running(helper)
    assert end_session(process.pid) == ["squashfuse_ll"]
    assert gone(helper)


def test_helpers_of_containers_that_are_gone_are_ended_and_those_of_the_living_stay(
    tmp_path: Path,
) -> None:
    (tmp_path / "other").mkdir()
    living, kept = started_by("time.sleep(60)", tmp_path / "other")
    dead, orphan = started_by("time.sleep(60)", tmp_path)
    try:
        dead.kill()
        dead.wait()
        assert "squashfuse_ll" in reap()
        assert gone(orphan)
        assert is_running(kept)
    finally:
        living.kill()
        living.wait()
        end_session(living.pid)
