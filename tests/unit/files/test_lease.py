"""One process makes it, the others wait; a death, sleep or failure in between costs time and nothing else."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpcbench.files import lease
from hpcbench.files.lease import leftovers, make_once
from tests.campaign import first


def lock_of(target: Path, pid: int, host: str | None = None, **more: object) -> Path:
    lock = target.with_name(f"{target.name}.lock")
    lock.write_text(json.dumps({"host": host or socket.gethostname(), "pid": pid, **more}) + "\n")
    return lock


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize("resume", [False, True])
def test_of_many_that_want_it_one_makes_it(tmp_path: Path, resume: bool) -> None:
    target, builds = tmp_path / "target", []

    def build(place: Path) -> None:
        builds.append(place)
        place.mkdir(exist_ok=True)
        time.sleep(0.2)
        (place / "x").write_text("whole")

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: make_once(target, build, 0.01, resume=resume), range(8)))
    assert sorted(made) == [False] * 7 + [True]
    assert len(builds) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_builder_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def build(place: Path) -> None:
        place.write_text("half")
        raise ValueError("no space left")

    with pytest.raises(ValueError, match="no space"):
        make_once(tmp_path / "image.sif", build)
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_makes_nothing_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_once(tmp_path / "image.sif", lambda place: None)


def test_a_process_that_waits_names_the_holder_and_the_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target, looks = tmp_path / "image.sif", itertools.count(1)
    lock = lock_of(target, os.getpid(), time=time.time() - 600)
    monkeypatch.setattr(time, "sleep", lambda seconds: target.touch() if next(looks) == 3 else None)
    assert not make_once(target, lambda place: None)
    assert caplog.messages == [
        f"waiting for image.sif: process {os.getpid()} on {socket.gethostname()} has been creating it "
        f"for 10 min (if that process no longer runs, remove {lock})"
    ]


@pytest.mark.long
def test_a_lock_that_shows_beats_is_respected_however_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "STALE_SECONDS", 2)
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.1)
    started = threading.Event()

    def slow(place: Path) -> None:
        started.set()
        time.sleep(3)
        place.touch()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(make_once, tmp_path / "target", slow, 0.05)
        assert started.wait(20)
        assert not make_once(tmp_path / "target", lambda place: pytest.fail("twice"), 0.05)
        assert first.result()


def test_a_dead_processes_lock_is_taken_at_once(tmp_path: Path) -> None:
    lock_of(tmp_path / "target", ended_pid())
    assert make_once(tmp_path / "target", lambda place: place.write_text("x") and None)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.long
def test_a_lock_of_another_host_is_taken_when_it_shows_no_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "STALE_SECONDS", 1.5)
    lock = lock_of(tmp_path / "target", 1, "elsewhere")
    beating = threading.Event()

    def beat() -> None:
        for _ in range(20):
            os.utime(lock)
            time.sleep(0.1)
        beating.set()

    threading.Thread(target=beat).start()
    make_once(tmp_path / "target", lambda place: place.write_text("x") and None, 0.01)
    assert beating.is_set(), "it was taken while it beat"


def test_two_that_find_one_dead_lock_do_not_take_each_others(tmp_path: Path) -> None:
    lock = lock_of(tmp_path / "target", ended_pid())
    dead = {"token": None}
    lease._take_away(lock, dead)
    with lease._taken(lock) as token:
        assert token is not None
        lease._take_away(lock, dead)  # the second, which decided before the first had acted
        assert lease._holder(lock)["token"] == token
    assert not list(tmp_path.iterdir())


def test_while_one_removes_a_dead_lock_others_leave_it_alone(tmp_path: Path) -> None:
    lock = lock_of(tmp_path / "target", ended_pid(), token="dead")
    right = tmp_path / f"tmp-dead-{lock.name}"
    right.write_text(json.dumps(lease.this_process()) + "\n")
    started = time.monotonic()
    with lease.alone(lock, patience=0.3) as mine:
        assert not mine
    assert time.monotonic() - started >= 0.3
    lock_of(right.with_suffix(""), ended_pid())  # it was killed at it
    with lease.alone(lock) as mine:
        assert mine
    assert not list(tmp_path.iterdir())


def test_what_a_failed_build_left_is_given_to_the_next_one(tmp_path: Path) -> None:
    target = tmp_path / "target"

    def fails(place: Path) -> None:
        (place / "half").write_text("1")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        make_once(target, fails, resume=True)
    assert not target.exists()
    assert len(leftovers(tmp_path)) == 1

    def goes_on(place: Path) -> None:
        assert (place / "half").read_text() == "1"

    make_once(target, goes_on, resume=True)
    assert (target / "half").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_host_whose_name_has_dots_leaves_broken_builds_like_any_other(tmp_path: Path) -> None:
    left = tmp_path / "target.0a.1-boot-1.node1.cluster.example.partial"
    left.mkdir()
    (left / "half").write_text("1")
    assert make_once(tmp_path / "target", lambda place: None, resume=True)
    assert (tmp_path / "target" / "half").read_text() == "1"


@pytest.fixture
def sleeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks go stale soon and show no beats: a process that is suspended, as others see it.

    Not too soon: a process at work on a busy machine shows none either.
    """
    monkeypatch.setattr(lease, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(lease, "BEAT_SECONDS", 1000.0)


Wakes = Callable[[Path], None]


def append(place: Path) -> None:
    with (place / "log").open("a") as log:
        log.write("from the dead")


def replaced(place: Path) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "manifest").write_text("from the dead")


@pytest.mark.usefixtures("sleeper")
@pytest.mark.parametrize(
    "then", first(2, [append, replaced, lambda place: None]), ids=["append", "replaced", "end"]
)
@pytest.mark.parametrize("done", [False, True], ids=["while-the-other-builds", "after-it"])
def test_a_builder_that_sleeps_past_its_lock_and_wakes_spoils_nothing(
    tmp_path: Path, then: Wakes, done: bool
) -> None:
    target, asleep, awake = tmp_path / "target", threading.Event(), threading.Event()
    woken = threading.Event()

    def sleeps(place: Path) -> None:
        with (place / "pack").open("wb", buffering=0) as pack:
            pack.write(b"half")
            asleep.set()
            awake.wait(20)
            try:
                pack.write(b"from the dead")
                then(place)
            finally:
                woken.set()

    def goes_on(place: Path) -> None:
        assert (place / "pack").read_bytes() == b"half"
        if not done:
            awake.set()
            woken.wait(20)
            time.sleep(0.1)
        with (place / "pack").open("ab") as pack:
            pack.write(b" and whole")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(make_once, target, sleeps, 0.01, resume=True)
        asleep.wait(20)
        second = pool.submit(make_once, target, goes_on, 0.01, resume=True)
        if done:
            assert second.result(20) is True
            awake.set()
        assert first.result(20) is False, "it waits like the others, and fails not"
        assert second.result(20) is True
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        "pack": b"half and whole"
    }
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".lock"]


@pytest.mark.usefixtures("sleeper")
def test_a_file_that_has_its_name_is_not_replaced_by_a_late_process(tmp_path: Path) -> None:
    """Two builds of one image differ in their bytes, and its hash is on record."""
    target, asleep, awake = tmp_path / "image.sif", threading.Event(), threading.Event()

    def sleeps(place: Path) -> None:
        asleep.set()
        awake.wait(20)
        place.write_text("late")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(make_once, target, sleeps, 0.01)
        asleep.wait(20)
        assert make_once(target, lambda place: place.write_text("first") and None, 0.01) is True
        awake.set()
        assert first.result(20) is False
    assert target.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["image.sif"]


def test_what_is_left_is_distinguished_from_what_a_process_works_on(tmp_path: Path) -> None:
    for name in ("dead", "live", "away", "gone", "nobody"):
        (tmp_path / f"{name}.0a.1.host.partial").mkdir()
    lock_of(tmp_path / "dead", ended_pid())
    lock_of(tmp_path / "live", os.getpid())
    lock_of(tmp_path / "away", 1, "elsewhere")
    long_ago = time.time() - 2 * lease.ABANDONED_SECONDS
    os.utime(lock_of(tmp_path / "gone", 1, "elsewhere"), (long_ago, long_ago))
    for name in ("tmp-1", "tmp-0a-dead", "tmp-0b-live", "tmp-0c-removed"):
        (tmp_path / name).mkdir()
    found = [path.name.partition(".")[0] for path in leftovers(tmp_path)]
    assert found == ["dead", "gone", "nobody", "tmp-0a-dead", "tmp-0c-removed", "tmp-1"]
    assert leftovers(tmp_path / "nothing") == []


@pytest.mark.parametrize("resume", [False, True])
def test_what_is_being_built_is_not_left_over(tmp_path: Path, resume: bool) -> None:
    found: list[Path] = []

    def build(place: Path) -> None:
        place.mkdir(exist_ok=True)
        found.extend(leftovers(tmp_path))

    assert make_once(tmp_path / "0a-1b", build, resume=resume)
    assert found == []


def test_a_lock_that_is_cleared_away_while_it_is_read_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = lock_of(tmp_path / "target", os.getpid(), token="of-another")
    holder = lease._holder

    def cleared(path: Path) -> dict[str, object]:
        found = holder(path)
        path.unlink()
        return found

    monkeypatch.setattr(lease, "_holder", cleared)
    lease._take_away(lock, {"token": "dead"})
    assert not list(tmp_path.iterdir())


# --- whose process it is -------------------------------------------------------------------------------


def test_a_process_in_a_container_of_the_same_host_name_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number means nothing here: only its beats tell."""
    lock = lock_of(tmp_path / "target", ended_pid(), space="another-boot-4026532999")
    assert not lease.abandoned(lock)
    monkeypatch.setattr(lease, "STALE_SECONDS", 1.0)
    started = time.monotonic()
    assert make_once(tmp_path / "target", lambda place: place.write_text("x") and None, 0.05)
    assert time.monotonic() - started >= 1.0


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_lock_that_shows_no_beat_for_long_is_abandoned_wherever_it_was_made(
    tmp_path: Path, elsewhere: bool
) -> None:
    """A process of ours that is seen to exist may be spared."""
    space = {"space": "another-boot-4026532999"} if elsewhere else {}
    lock = lock_of(tmp_path / "target", os.getpid(), **space)
    assert not lease.abandoned(lock)
    long_ago = time.time() - 2 * lease.ABANDONED_SECONDS
    os.utime(lock, (long_ago, long_ago))
    assert lease.abandoned(lock)
    assert lease.abandoned(lock, spare_suspended=True) is elsewhere


@pytest.mark.parametrize("wrong_by", [-3600, 3600])
@pytest.mark.parametrize("writable", [True, False])
def test_a_host_whose_clock_is_wrong_by_an_hour_takes_no_live_lock_and_any_dead_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_by: int, writable: bool
) -> None:
    lock = lock_of(tmp_path / "image.sif", pid=1, host="elsewhere")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + wrong_by)
    if not writable:  # a reader of another user's lock knows no other clock than its own
        monkeypatch.setattr(lease, "age", refused)
    assert lease.abandoned(lock, 60) is (not writable and wrong_by > 0)
    os.utime(lock, (real() - 90,) * 2)  # the clock of the file server
    assert lease.abandoned(lock, 60) is (writable or wrong_by > 0)
    assert [path.name for path in tmp_path.iterdir()] == [lock.name]


def refused(path: Path) -> float:
    raise PermissionError(13, "Permission denied", str(path))


def test_a_lock_says_in_which_space_its_process_is_one(tmp_path: Path) -> None:
    with lease._taken(tmp_path / "x.lock"):
        holder = lease._holder(tmp_path / "x.lock")
    now = time.time_ns()
    assert lease.is_dead(holder, now) is False
    assert lease.is_dead({**holder, "pid": ended_pid()}, now) is True
    assert lease.is_dead({**holder, "pid": ended_pid(), "space": "another"}, now) is None
    for host in ("!", "~"):  # before ours and after it in order
        assert lease.is_dead({**holder, "pid": ended_pid(), "host": host}, now) is None


def left_by(folder: Path, pid: int, space: str) -> Path:
    """Files that a broken build of `target` left on a machine of our name."""
    left = folder / f"target.0a.{pid}-{space}.{socket.gethostname()}.partial"
    left.mkdir()
    (left / "pack").write_text("half")
    return left


def test_no_process_outlives_a_start_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a process that was at it before are no other's, and need not be copied."""
    monkeypatch.setattr(lease, "_space", lambda: f"this-boot-{lease.FIRST_SPACE}")
    before = f"boot-before-{lease.FIRST_SPACE}"
    lock = lock_of(tmp_path / "target", os.getpid(), space=before, time=1.0)
    os.utime(lock, (1.0, 1.0))
    assert lease.abandoned(lock)
    left = left_by(tmp_path, os.getpid(), before)
    for path in (left / "pack", left):
        os.utime(path, (1.0, 1.0))
    inode = (left / "pack").stat().st_ino
    started = time.monotonic()
    assert make_once(tmp_path / "target", lambda place: None, resume=True)
    assert time.monotonic() - started < lease.STALE_SECONDS
    assert (tmp_path / "target/pack").stat().st_ino == inode


def test_another_machine_of_the_same_name_is_no_earlier_start_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started before, and lives: its lock beats, and it writes to what it makes."""
    monkeypatch.setattr(lease, "_space", lambda: f"this-boot-{lease.FIRST_SPACE}")
    space = f"another-boot-{lease.FIRST_SPACE}"
    lock = lock_of(tmp_path / "target", os.getpid(), space=space, time=1.0)
    assert not lease.abandoned(lock)
    container = {"host": socket.gethostname(), "space": f"boot-before-{int(lease.FIRST_SPACE) + 1}"}
    assert lease.is_dead(container, 1.0) is None, "a container's boot is not ours to tell"
    lock.unlink()
    left = left_by(tmp_path, os.getpid(), space)
    inode = (left / "pack").stat().st_ino
    assert make_once(tmp_path / "target", lambda place: None, resume=True)
    assert (tmp_path / "target/pack").stat().st_ino != inode


def test_files_of_a_build_in_another_container_are_not_written_on(tmp_path: Path) -> None:
    """The process that made them may live, and have them open."""
    left = left_by(tmp_path, ended_pid(), "another-1")
    before = (left / "pack").stat().st_ino
    with (left / "pack").open():
        make_once(tmp_path / "target", lambda place: None, resume=True)
        assert (tmp_path / "target/pack").stat().st_ino != before
