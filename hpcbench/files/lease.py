"""Locks among processes and hosts, taken over from dead holders, and targets built once under a lock."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hpcbench.files.atomic import age, create_exclusive, read_lines, sync_folder

BEAT_SECONDS = 15.0
"""Seconds between a holder's beats. A beat sets the lock file's mtime and shows that the holder is alive."""

STALE_SECONDS = 120.0
"""After this time without a beat, by the watcher's own clock, the holder of a lock counts as dead."""

ABANDONED_SECONDS = 3600.0
"""After this time without a beat a lock may be removed."""

CLEARING_SECONDS = 600.0
"""A process that takes this long to remove a dead holder's lock is dead too: the removal takes a moment."""

FIRST_SPACE = "4026531836"
"""Linux's number of a machine's own PID namespace; PID namespaces of containers have other numbers."""

PARTIAL, ENDED = ".partial", "ended"

_log = logging.getLogger(__name__)


def make_once(
    target: Path, build: Callable[[Path], None], poll: float = 0.2, *, resume: bool = False
) -> bool:
    """Build `target` in exactly one of the processes that need it; the others wait.

    The lock only saves work. Correctness has two other reasons: `target` appears whole, by one rename, and no
    two builders ever write to one file. So a lock that was declared stale too early only costs time: a
    suspended process that wakes finds its build folder gone, and waits like the others.

    Args:
        target: file or folder.
        build: builds the target at the given path, which is in the target's folder.
        poll: seconds between looks at another process's lock.
        resume: the target is a folder, and the next build gets the files of a broken one.

    Returns:
        Whether this call built the target.
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
                    # Another process took the lock from us, and our build folder with it.
        holder, beat = _holder(lock), _beat(lock)
        if beat is None:  # the holder released the lock between our two looks
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
    """Files that dead builders left in a folder, as far as this host can see."""
    if not folder.is_dir():
        return []

    def of(path: Path) -> str | None:
        """Name of the target of an unfinished build or an interrupted removal at this path."""
        if path.name.startswith("tmp-"):
            return path.name.partition("-")[2].partition("-")[2]
        return path.name.partition(".")[0] if path.suffix == PARTIAL else None

    found = [(path, name) for path in folder.iterdir() if (name := of(path)) is not None]
    return sorted(path for path, name in found if abandoned(folder / f"{name}.lock"))


def abandoned(
    lock: Path, silence: float = ABANDONED_SECONDS, *, spare_suspended: bool = False
) -> bool:
    """Whether the holder of a lock is dead, as far as one look can see; True where there is no lock.

    Args:
        lock: its first line is `this_process` of its holder, which keeps it under `beating`.
        silence: a holder without a beat for this many seconds counts as dead, too.
        spare_suspended: a holder whose process exists, suspended or not, counts as alive despite `silence`.
    """
    beat = _beat(lock)
    if beat is None:
        return True
    dead = is_dead(_holder(lock), beat)
    if dead is None or (not dead and not spare_suspended):
        return _silent(lock, beat, silence)
    return dead


def _silent(lock: Path, beat: int, silence: float) -> bool:
    """Whether a lock's last beat is longer ago than `silence`.

    Beats have times of the file server, so an age that this machine's clock makes long, or negative, is asked
    of that server. Readers who cannot write there know their own clock only.
    """
    seconds = time.time() - beat / 1e9
    if not 0 <= seconds <= silence:
        with contextlib.suppress(OSError):
            seconds = age(lock)
    return seconds > silence


def this_process() -> dict[str, object]:
    """A lock's record of its holder: `host`, `pid`, and the PID namespace (`space`) of that `pid`."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "space": _space()}


def boot_id() -> str:
    """Linux's ID of this boot of this machine.

    Raises:
        OSError: this system has no such ID.
    """
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def is_dead(holder: Mapping[str, object], beat: int) -> bool | None:
    """Whether the holder's process is dead; None: this process cannot see it, only its beats can show it.

    None is for holders on other machines, and in containers with PID namespaces of their own, even under the
    same host name. No process outlives a boot of its machine. Locks of earlier versions have no `space`: they
    count as being of our namespace.

    Args:
        holder: its `this_process`, from the lock.
        beat: time of its last beat, nanoseconds since the epoch.
    """
    here = this_process()
    if holder.get("host") != here["host"]:
        return None
    if holder.get("space", here["space"]) != here["space"]:
        restarted = _restarted(str(holder["space"]), str(here["space"]))
        started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        # A holder with a later beat is on another machine of the same name.
        return True if restarted and beat / 1e9 < started else None
    try:
        os.kill(int(str(holder["pid"])), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # the process is alive and belongs to another user
    return False


def _restarted(before: str, now: str) -> bool:
    """Whether both namespaces are of machines, not of containers, and of two different boots."""
    (boot, _, first), (boot_now, _, first_now) = before.rpartition("-"), now.rpartition("-")
    return first == first_now == FIRST_SPACE and boot != boot_now


@contextlib.contextmanager
def beating(lock: Path) -> Iterator[None]:
    """Show by beats, while inside, that a lock's holder is alive; see `BEAT_SECONDS`."""
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
    """Yield whether this process is the only one inside, after waiting at most `patience` seconds for others.

    It takes over the lock of a dead holder, by `silence` and `spare_suspended` of `abandoned`.

    Raises:
        OSError: we cannot create files in the lock's folder.
    """
    deadline = time.monotonic() + patience
    while True:
        with _taken(lock) as token:
            if token is not None:
                yield True
                return
        # Read after the attempt: the attempt made this node ask the server for the current lock.
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
    """Hold the lock and show beats while inside; yield its token, or None if another process has it."""
    token = os.urandom(4).hex()
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
    """Remove a dead holder's lock; False: another process is removing it.

    Only one process at a time may remove it, and only while the lock is still that holder's: another waiter
    may have removed it and created its own by now.
    """
    right = lock.with_name(f"tmp-{holder.get('token')}-{lock.name}")
    if not create_exclusive(right, this_process()) and not abandoned(right, CLEARING_SECONDS):
        return False
    if _holder(lock).get("token") == holder.get("token"):
        lock.unlink(missing_ok=True)
    right.unlink(missing_ok=True)
    return True


def _build(target: Path, build: Callable[[Path], None]) -> bool:
    # The suffix stays: Apptainer distinguishes an image from a folder by it.
    temporary = target.with_name(f"tmp-{os.urandom(4).hex()}-{target.name}")
    try:
        build(temporary)
        return _finish(temporary, target)
    finally:
        remove(temporary)


def _build_on(target: Path, build: Callable[[Path], None], token: str) -> bool:
    """Build, or continue a broken build, in our own folder: `TARGET.TOKEN.PID-SPACE.HOST.partial`."""
    me = f"{token}.{os.getpid()}-{_space()}.{socket.gethostname()}"
    mine = target.with_name(f"{target.name}.{me}{PARTIAL}")
    for left in _partials(target):
        with contextlib.suppress(OSError):  # another process claims it, too
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
        with contextlib.suppress(OSError):  # the next build uses the finished part
            mine.rename(target.with_name(f"{target.name}.{ENDED}{PARTIAL}"))
        raise
    for left in _partials(target):
        remove(left)
    return made


def _finish(temporary: Path, target: Path) -> bool:
    """Give a build the target's name, unless another process was first: an existing target never changes."""
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
    """Files and folders that broken builds of a target left."""
    return sorted(target.parent.glob(f"{target.name}.*{PARTIAL}"))


def _gone(owner: str, folder: Path) -> bool:
    """Whether no process can have files of a broken build open: its builder is dead or marked it as ended."""
    if owner == ENDED:
        return True
    _, number, host = owner.split(".", 2)
    pid, dash, space = number.partition("-")
    written = max(_beat(path) or time.time_ns() for path in (folder, *folder.iterdir()))
    holder = {"pid": pid, "host": host, **({"space": space} if dash else {})}
    return bool(is_dead(holder, written))


def _unshare(folder: Path) -> None:
    """Give every file a new inode: a suspended builder that wakes then writes to the old inode."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.stat().st_nlink == 1:  # a file with two names is whole
            copy = path.with_name(f".{path.name}.copy")
            shutil.copy2(path, copy)
            copy.replace(path)


def remove(path: Path) -> None:
    """Remove a file or a folder with all its contents, as far as possible."""
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
    """ID of this boot and of our PID namespace; empty where the system has none."""
    try:
        return f"{boot_id()}-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _waiting(target: Path, lock: Path, holder: dict[str, object]) -> str:
    minutes = (time.time() - float(str(holder.get("time", time.time())))) / 60
    return (
        f"waiting for {target.name}: process {holder.get('pid')} on {holder.get('host')} has been creating "
        f"it for {minutes:.0f} min (if that process no longer runs, remove {lock})"
    )
