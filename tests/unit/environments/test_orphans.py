"""Remains of a container that was killed: a program of a helper's name; real ones: tests/apptainer."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.environments.orphans import LOCK, end_session, held_folder, reap, reap_folders
from tests.unit.wrapper.running import gone


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
    assert not gone([helper], 0)
    assert end_session(process.pid) == ["squashfuse_ll"]
    assert gone([helper], 5)


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
        assert gone([orphan], 5)
        assert not gone([kept], 0)
    finally:
        living.kill()
        living.wait()
        end_session(living.pid)


# --- folders of workers ------------------------------------------------------------------------------------

HOLDS = """\
import sys, time
from pathlib import Path
from hpcbench.environments.orphans import held_folder
with held_folder(sys.argv[1]) as folder:
    (folder / "weights").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


def held(near: Path) -> tuple[subprocess.Popen[str], Path]:
    """Another process's folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(near)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as said:
        return process, Path(said.readline().strip())


def test_a_folder_goes_with_its_owner(tmp_path: Path) -> None:
    with held_folder(str(tmp_path)) as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "s").touch()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_the_folder_of_a_killed_worker_is_removed_and_that_of_a_living_one_stays(
    tmp_path: Path,
) -> None:
    living, kept = held(tmp_path)
    dead, left = held(tmp_path)
    try:
        assert reap_folders(str(tmp_path)) == []
        dead.kill()
        dead.wait()
        assert reap_folders(str(tmp_path)) == [str(left)]
        assert list(tmp_path.iterdir()) == [kept]
        assert (kept / "weights").exists()
    finally:
        for process in (living, dead):
            process.kill()
            process.wait()


def test_only_folders_that_workers_made_on_this_node_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def abandoned(name: str, host: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / LOCK).write_text(host)
        return folder

    here = socket.gethostname()
    precious = abandoned("precious", here)
    (tmp_path / "hpcbench-linkedto").symlink_to(precious)
    (tmp_path / "hpcbench-abcd1234").symlink_to(precious)
    abandoned("hpcbench-not-ours", here)
    abandoned("hpcbench-elsewher", "another-node")
    (tmp_path / "hpcbench-nolock00").mkdir()
    (tmp_path / "hpcbench-afile000").touch()
    linked = tmp_path / "hpcbench-linklock"
    linked.mkdir()
    (linked / LOCK).symlink_to(precious / LOCK)
    before = sorted(tmp_path.rglob("*"))
    assert reap_folders(str(tmp_path)) == []
    assert reap_folders(str(tmp_path / "not there")) == []
    ours = abandoned("hpcbench-ours_123", here)
    (ours / "link").symlink_to(precious)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 4711)
        assert reap_folders(str(tmp_path)) == []
    assert reap_folders(str(tmp_path)) == [str(ours)]
    assert sorted(tmp_path.rglob("*")) == before
