"""Files that an engine leaves on a node: its temporary files and its shared memory go when it goes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.plugins import Command
from hpcbench.wrapper import process_tree
from hpcbench.wrapper.engine_output import Log
from hpcbench.wrapper.engine_process import Child
from hpcbench.wrapper.masking import Mask
from hpcbench.wrapper.shared_memory import FOLDER, SharedMemory
from hpcbench.wrapper.supervisor import temporary

pytestmark = pytest.mark.long

ENGINE = """\
import mmap, os, signal, sys, time
from multiprocessing.shared_memory import SharedMemory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tracked = SharedMemory(create=True, size=4096)
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR, 0o600)
os.ftruncate(fd, 4096)
mapped = mmap.mmap(fd, 4096)
stays = os.open(sys.argv[2], os.O_RDWR)
other = mmap.mmap(stays, 4096)
print(tracked.name, flush=True)
time.sleep(60)
"""
"""Holds shared memory that Python tracks, a file that no process tracks, and one that was there before."""


@pytest.fixture
def before() -> Iterator[Path]:
    """A file of /dev/shm that is there before the engine."""
    path = FOLDER / f"hpcbench-test-before-{os.getpid()}"
    path.write_bytes(bytes(4096))
    yield path
    path.unlink()


@pytest.fixture
def unknown() -> Iterator[Path]:
    """One that the engine makes."""
    path = FOLDER / f"hpcbench-test-engines-{os.getpid()}"
    yield path
    path.unlink(missing_ok=True)


def test_temporary_files_are_made_where_they_go_with_the_engine() -> None:
    short = Path("/tmp/hpcbench-abcdefgh/eabcdefgh")
    assert temporary(short) == {"TMPDIR": str(short), "VLLM_RPC_BASE_PATH": str(short)}
    assert temporary(Path("/" + "x" * 69))
    assert temporary(Path("/" + "x" * 70)) == {}  # vLLM's sockets would not fit


async def test_what_an_engine_keeps_in_shared_memory_goes_with_it(
    tmp_path: Path, before: Path, unknown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.wrapper.engine_process.GRACE", 0.2)
    log = Log(tmp_path / "log", Mask())
    command = Command([sys.executable, "-c", ENGINE, str(unknown), str(before)])
    child = await Child.start(command, {}, log)
    while len(lines := log.tail()) < 1:
        await asyncio.sleep(0.02)
    assert (FOLDER / lines[0]).exists()
    assert unknown.exists()
    await child.stop()
    await log.close()
    tracked = lines[0]
    assert not (FOLDER / tracked).exists()
    assert not unknown.exists()
    assert before.exists()


async def test_what_was_seen_once_goes_also_if_no_process_is_left_to_be_asked(
    tmp_path: Path, before: Path, unknown: Path
) -> None:
    log = Log(tmp_path / "log", Mask())
    command = Command([sys.executable, "-c", ENGINE, str(unknown), str(before)])
    child = await Child.start(command, {}, log)
    while len(log.tail()) < 1:
        await asyncio.sleep(0.02)
    child.see_shared_memory()
    for pid in process_tree.members(child.pid, child.mark):
        os.kill(pid, signal.SIGKILL)
    await child.ended
    await child.stop()
    await log.close()
    assert not unknown.exists()
    assert before.exists()


def test_a_semaphore_goes_whose_maker_knows_another_name_of_it(tmp_path: Path) -> None:
    # Its tracker is killed, too, as by a cluster that ends all processes of a step.
    code = """\
import multiprocessing, time
lock = multiprocessing.get_context("spawn").Lock()
print(lock._semlock.name, flush=True)
time.sleep(60)
"""

    async def journey() -> Path:
        log = Log(tmp_path / "log", Mask())
        child = await Child.start(Command([sys.executable, "-c", code]), {}, log)
        while len(lines := log.tail()) < 1:
            await asyncio.sleep(0.02)
        semaphore = FOLDER / f"sem.{lines[0].removeprefix('/')}"
        assert semaphore.exists()
        child.see_shared_memory()
        members = process_tree.members(child.pid, child.mark)
        # Stopped first: else the tracker may tidy up between two kills.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in members:
                os.kill(pid, number)
        await child.ended
        assert semaphore.exists()
        await child.stop()
        await log.close()
        return semaphore

    assert not asyncio.run(asyncio.wait_for(journey(), 30)).exists()


def test_another_file_of_the_same_name_is_left_alone(unknown: Path) -> None:
    seen = SharedMemory()
    unknown.write_bytes(b"theirs")
    seen.note({1})  # another inode
    seen.remove()
    assert unknown.exists()
    seen.note({unknown.stat().st_ino})
    seen.remove()
    assert not unknown.exists()


def test_trackers_are_spared_as_long_as_they_need_and_no_longer() -> None:
    name = "from multiprocessing.resource_tracker import main"
    code = f"import time; time.sleep(60) # {name}"
    tracker = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    try:
        while b"resource_tracker" not in Path(f"/proc/{tracker.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        assert process_tree.kill(tracker.pid, "no mark", time.monotonic()) == {tracker.pid}
        time.sleep(0.1)
        assert tracker.poll() is None
        process_tree.kill(tracker.pid, "no mark", time.monotonic() - process_tree.TRACKER_SECONDS)
        assert tracker.wait(5) == -signal.SIGKILL
    finally:
        tracker.kill()
        tracker.wait()
