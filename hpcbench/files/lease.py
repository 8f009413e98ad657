"""Locks among processes and hosts, taken over from holders that died, and things made once under them."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hpcbench.files.atomic import create_exclusive, read_lines, sync_folder

BEAT_SECONDS = 15.0
"""How often a holder shows that it lives, by the lock file's time of change."""

STALE_SECONDS = 120.0
"""A lock that showed no beat for so long, on the watcher's own clock, is from a process that died."""

ABANDONED_SECONDS = 3600.0
"""A lock without a beat for so long may be cleared away: clocks of hosts differ, but not so much."""

CLEARING_SECONDS = 600.0
"""A process that removes a dead holder's lock for so long has died itself: it is the work of a moment."""

FIRST_SPACE = "4026531836"
"""Linux's number of a machine's own PID namespace; containers with processes of their own have others."""

PARTIAL, ENDED = ".partial", "ended"

_log = logging.getLogger(__name__)


def make_once(
    target: Path, build: Callable[[Path], None], poll: float = 0.2, *, resume: bool = False
) -> bool:
    """Have `target` made by one of all those who want it; the others wait.

    The lock saves work; what makes it right is that `target` appears by one rename, when it is whole, and
    that no two builders ever write to one file. So a lock that was taken for stale too early costs time, no
    more: a process that was suspended and wakes finds its place gone, and waits like the others.

    Args:
        target: file or folder.
        build: makes it at the path it is given, in the target's folder.
        poll: seconds between looks at another's lock.
        resume: the target is a folder, and what a broken build left of it is given to the next one.

    Returns:
        Whether this call made it.
    """
    lock = target.with_name(f"{target.name}.lock")
    watched: tuple[object, float] | None = None
    spoken = 0.0
    while not target.exists():
        with _taken(lock) as token:
            if token is not None and not target.exists():
                try:
                    return _build_on(target, build, token) if resume else _build(target, build)
                except Exception:
                    if _holder(lock).get("token") == token:
                        raise
                    # It was taken from us, and with it the place we built at.
        holder, beat = _holder(lock), _beat(lock)
        if beat is None:  # it was given up between our two looks
            continue
        now = time.monotonic()
        if watched is None or watched[0] != (holder, beat):
            watched = ((holder, beat), now)
        if is_dead(holder, beat) or now - watched[1] > STALE_SECONDS:
            _take_away(lock, holder)
            continue
        if now - spoken > 30:
            spoken = now
            _log.warning(_waiting(target, lock, holder))
        time.sleep(poll)
    return False


def leftovers(folder: Path) -> list[Path]:
    """What builders that are gone left in a folder, as far as can be told from here."""
    if not folder.is_dir():
        return []

    def of(path: Path) -> str | None:
        """The target that a builder was making there; of a removal that broke off: what it removed."""
        if path.name.startswith("tmp-"):
            return path.name.partition("-")[2].partition("-")[2]
        return path.name.partition(".")[0] if path.suffix == PARTIAL else None

    found = [(path, name) for path in folder.iterdir() if (name := of(path)) is not None]
    return sorted(path for path, name in found if abandoned(folder / f"{name}.lock"))


def abandoned(
    lock: Path, silence: float = ABANDONED_SECONDS, *, spare_suspended: bool = False
) -> bool:
    """Whether the holder of a lock is gone, as far as one look can tell; True where there is no lock.

    Args:
        lock: its first line is `this_process` of its holder, who keeps it under `beating`.
        silence: a holder that showed no beat for so many seconds is gone, too.
        spare_suspended: but not one whose process is seen to be there, suspended or not.
    """
    beat = _beat(lock)
    if beat is None:
        return True
    dead = is_dead(_holder(lock), beat)
    if dead is None or (not dead and not spare_suspended):
        return time.time() - beat / 1e9 > silence
    return dead


def this_process() -> dict[str, object]:
    """What a lock says of its holder: `host`, `pid`, and the `space` in which that number stands for it."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "space": _space()}


def boot_id() -> str:
    """What Linux calls this start of this machine.

    Raises:
        OSError: there is no such thing here.
    """
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def is_dead(holder: Mapping[str, object], beat: int) -> bool | None:
    """Whether the holder's process is gone; None: that cannot be seen from here, only its beats tell.

    So it is on other machines, and in containers with processes of their own, whatever their host name.
    Nobody outlives a start of the machine. Locks of earlier versions have no `space`: it is taken for ours.

    Args:
        holder: what it wrote of itself.
        beat: when it last showed that it lives, nanoseconds since the epoch.
    """
    here = this_process()
    if holder.get("host") != here["host"]:
        return None
    if holder.get("space", here["space"]) != here["space"]:
        began_anew = _started_anew(str(holder["space"]), str(here["space"]))
        started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        # Who showed life later is on another machine of the same name.
        return True if began_anew and beat / 1e9 < started else None
    try:
        os.kill(int(str(holder["pid"])), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it lives, as another user
    return False


def _started_anew(before: str, now: str) -> bool:
    """Whether both are spaces of machines, not of containers, and of two boots."""
    (boot, _, first), (boot_now, _, first_now) = before.rpartition("-"), now.rpartition("-")
    return first == first_now == FIRST_SPACE and boot != boot_now


@contextlib.contextmanager
def beating(lock: Path) -> Iterator[None]:
    """Show all the time, by a lock's time of change, that its holder lives."""
    done = threading.Event()

    def show() -> None:
        while not done.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(lock)

    thread = threading.Thread(target=show, name="lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def alone(
    lock: Path,
    patience: float = 0.0,
    silence: float = ABANDONED_SECONDS,
    *,
    spare_suspended: bool = False,
) -> Iterator[bool]:
    """Whether this process is the only one inside, after waiting at most `patience` seconds for others.

    It takes over the lock of a holder that is gone, by `silence` and `spare_suspended` of `abandoned`.

    Raises:
        OSError: the lock's folder takes no files from us.
    """
    deadline = time.monotonic() + patience
    while True:
        with _taken(lock) as token:
            if token is not None:
                yield True
                return
        # Read after it was tried: that made this node ask who holds the lock now.
        holder = _holder(lock)
        gone = abandoned(lock, silence, spare_suspended=spare_suspended)
        if gone and _take_away(lock, holder):
            continue
        if time.monotonic() >= deadline:
            yield False
            return
        time.sleep(0.1)


@contextlib.contextmanager
def _taken(lock: Path) -> Iterator[str | None]:
    """The lock while inside, if nobody else has it; a thread shows meanwhile that we live."""
    token = secrets.token_hex(4)
    if not create_exclusive(lock, {**this_process(), "token": token, "time": time.time()}):
        yield None
        return
    try:
        with beating(lock):
            yield token
    finally:
        if _holder(lock).get("token") == token:
            lock.unlink(missing_ok=True)


def _take_away(lock: Path, holder: dict[str, object]) -> bool:
    """Remove a dead holder's lock; False: another process is about to.

    Only one process at a time may, and only while the lock is still that holder's: another waiter may have
    cleared it and put its own there by now.
    """
    right = lock.with_name(f"tmp-{holder.get('token')}-{lock.name}")
    if not create_exclusive(right, this_process()) and not abandoned(right, CLEARING_SECONDS):
        return False
    if _holder(lock).get("token") == holder.get("token"):
        lock.unlink(missing_ok=True)
    right.unlink(missing_ok=True)
    return True


def _build(target: Path, build: Callable[[Path], None]) -> bool:
    # The ending stays: Apptainer tells an image from a folder by it.
    temporary = target.with_name(f"tmp-{secrets.token_hex(4)}-{target.name}")
    try:
        build(temporary)
        return _finish(temporary, target)
    finally:
        remove(temporary)


def _build_on(target: Path, build: Callable[[Path], None], token: str) -> bool:
    """Build where a broken build stopped, in a folder of our own: `TARGET.TOKEN.PID-SPACE.HOST.partial`."""
    me = f"{token}.{os.getpid()}-{_space()}.{socket.gethostname()}"
    mine = target.with_name(f"{target.name}.{me}{PARTIAL}")
    for left in _partials(target):
        with contextlib.suppress(OSError):  # another claims it, too
            left.rename(mine)
            if not _gone(left.name[len(target.name) + 1 : -len(PARTIAL)], mine):
                _unshare(mine)
            break
    mine.mkdir(exist_ok=True)
    folder = mine.stat()
    try:
        build(mine)
        if not os.path.samestat(mine.stat(), folder):
            raise FileNotFoundError(f"{mine} was taken over")
        made = _finish(mine, target)
    except BaseException:
        with contextlib.suppress(OSError):  # what is there of it serves the next one
            mine.rename(target.with_name(f"{target.name}.{ENDED}{PARTIAL}"))
        raise
    for left in _partials(target):
        remove(left)
    return made


def _finish(temporary: Path, target: Path) -> bool:
    """Give what was built its name, unless somebody else was first: what has its name never changes."""
    try:
        if temporary.is_dir():
            temporary.rename(target)
        else:
            os.link(temporary, target)
            temporary.unlink()
    except OSError:
        if not target.exists():
            raise
        return False
    sync_folder(target.parent)
    return True


def _partials(target: Path) -> list[Path]:
    """What broken builds of a target left."""
    return sorted(target.parent.glob(f"{target.name}.*{PARTIAL}"))


def _gone(owner: str, folder: Path) -> bool:
    """Whether nobody can have files of a broken build open: its process ended, or says that it is done."""
    if owner == ENDED:
        return True
    _, number, host = owner.split(".", 2)
    pid, dash, space = number.partition("-")
    written = max(_beat(path) or time.time_ns() for path in (folder, *folder.iterdir()))
    holder = {"pid": pid, "host": host, **({"space": space} if dash else {})}
    return bool(is_dead(holder, written))


def _unshare(folder: Path) -> None:
    """Give every file a new inode: whoever wakes and goes on writing writes to the old one."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.stat().st_nlink == 1:  # what has two names is whole
            copy = path.with_name(f".{path.name}.copy")
            shutil.copy2(path, copy)
            copy.replace(path)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, as far as that can be done."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _holder(lock: Path) -> dict[str, object]:
    return next(read_lines(lock), {})


def _beat(lock: Path) -> int | None:
    try:
        return lock.stat().st_mtime_ns
    except OSError:
        return None


def _space() -> str:
    """This boot of this machine, and the PID namespace we are in; empty where there is no such thing."""
    try:
        return f"{boot_id()}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _waiting(target: Path, lock: Path, holder: dict[str, object]) -> str:
    minutes = (time.time() - float(str(holder.get("time", time.time())))) / 60
    return (
        f"waiting for {target.name}: process {holder.get('pid')} on {holder.get('host')} has been making it "
        f"for {minutes:.0f} min (if it is gone, remove {lock})"
    )
