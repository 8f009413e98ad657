"""Confines a process of tools: no network, no writing, no other processes, limits of memory.

Linux allows this to every user by namespaces, unless a site forbids them. Then `Confinement` says what does
not hold, and why. `python -m hpcbench.agents.confine OPTIONS -- COMMAND` starts a program so; it is for
programs that cannot do it themselves, such as servers of tools.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import os
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hpcbench.files.mounts import MOUNTS, mounted

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_PR_SET_PDEATHSIG, _PR_SET_SECUREBITS, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 28, 36, 38
_SECURE_NOROOT = 0b11  # root in a namespace gets no capabilities from a program, and this stays so
_CAPABILITY_VERSION = 0x20080522
_MOUNT_SETATTR = 442  # the same number on all machines
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_MOUNT_FLAGS = {
    "nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21,
}  # fmt: skip
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100

SCRATCH_MIB, SCRATCH_FILES = 512, 20_000
"""Space for the files of a call, MiB, and their number, where it is in memory."""

MORE_PROCESSES = 1000
"""Processes and threads that tools may start beside those of the machine."""

KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "PYTHONHOME", "SSL_CERT_FILE")
"""The only variables of the caller's environment that tools see."""

_libc = ctypes.CDLL(None, use_errno=True)


class Confinement(NamedTuple):
    """The parts of the confinement that hold for a process of tools."""

    network: bool
    """Whether it has no network."""
    files: bool
    """Whether it can write nowhere but into its own folder."""
    processes: bool
    """Whether it sees no other processes of this machine, and leaves none behind."""
    why: str = ""
    """Why something does not hold."""

    @property
    def missing(self) -> str:
        """One line that says what does not hold; empty: all holds."""
        parts = {
            "use the network": self.network,
            "write files": self.files,
            "reach other processes": self.processes,
        }
        absent = [what for what, holds in parts.items() if not holds]
        return f"tools can {', '.join(absent)} here: {self.why}" if absent else ""


def clean_environment(folder: Path) -> dict[str, str]:
    """The environment of tools: of the caller's only `KEPT`; home and temporary files in a folder."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    own = {"HOME": str(folder), "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return {"PATH": os.defpath, **kept, **own, "OMP_NUM_THREADS": "1"}


def die_with(parent: int | None) -> None:
    """Let the kernel kill this process when its parent ends; `parent`: its number, None: unknown."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def separate(*, network: bool) -> Confinement:
    """Move this process, which must have one thread, into namespaces of its own.

    The calling process becomes a waiting parent; its child goes on, in which this function returns. Where
    namespaces are not permitted, nothing changes.

    Args:
        network: whether the network stays.
    """
    wanted = _NEWUSER | _NEWNS | _NEWPID | _NEWIPC | (0 if network else _NEWNET)
    if (number := _refused(wanted)) != 0:
        why = f"this machine permits no namespaces ({os.strerror(number)})"
        return Confinement(network, False, False, why)
    _enter(wanted)
    if (child := os.fork()) != 0:
        _wait(child)
    die_with(None)
    return Confinement(True, True, True)


def _refused(wanted: int) -> int:
    """The error by which the kernel refuses namespaces, tried in a child; 0: it permits them."""
    if (child := os.fork()) == 0:
        number = 1
        try:
            _enter(wanted)
            number = 0
        except OSError as error:
            number = error.errno or 1
        finally:
            os._exit(number)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _enter(wanted: int) -> None:
    """Enter new namespaces; the user is the same inside and outside.

    Raises:
        OSError: the kernel refuses; then this process is of no further use.
    """
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(wanted) != 0:
        raise OSError(ctypes.get_errno(), "no namespaces")
    for name, text in (
        ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"),
    ):  # fmt: skip
        try:
            Path(f"/proc/self/{name}").write_text(text)
        except OSError:
            if name != "setgroups":  # absent in old kernels
                raise


def _wait(child: int) -> None:
    """Wait for the child, and end as it does."""
    for number in (0, 1):
        os.close(number)  # the other side must see when the child closes its end
    while True:
        try:
            _, status = os.waitpid(child, 0)
        except InterruptedError:
            continue
        except OSError:
            os._exit(1)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def read_only(scratch: Path) -> str:
    """Make all files read-only for this namespace, but for a new, empty file system at `scratch`.

    Returns: why this did not work; empty: it did.
    """
    if _mount(None, "/", None, _MS_REC | _MS_PRIVATE) != 0:
        return f"mounts cannot be made private: {_error()}"
    if why := _all_read_only():
        return why
    return _empty_at(scratch)


def own_folder(at: Path) -> None:
    """Put a new, empty file system at a folder, for this process and its children alone; it ends with them.

    Raises:
        OSError: the kernel refuses.
    """
    if _libc.unshare(_NEWNS) != 0 or _empty_at(at):
        raise OSError(ctypes.get_errno(), "no folder of its own")
    os.chdir(at)


def _empty_at(place: Path) -> str:
    options = f"size={SCRATCH_MIB}m,nr_inodes={SCRATCH_FILES},mode=700"
    if _mount("tools", str(place), "tmpfs", 6, options) != 0:
        return f"no file system in memory: {_error()}"
    return ""


def _all_read_only() -> str:
    attributes = struct.pack("QQQQ", 1, 0, 0, 0)  # MOUNT_ATTR_RDONLY is to be set
    done = _libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, len(attributes)
    )
    if done == 0:
        return ""
    if ctypes.get_errno() != errno.ENOSYS:
        return f"mounts cannot be made read-only: {_error()}"
    return _each_read_only(MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"))


def _each_read_only(mounts: str) -> str:
    """The same for kernels before 5.12, which change one mount at a time."""
    for one in mounted(mounts):
        kept = sum(_MOUNT_FLAGS.get(option, 0) for option in one.options)
        flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept
        if _mount(None, one.place, None, flags) != 0 and ctypes.get_errno() not in (
            errno.ENOENT, errno.EACCES, errno.EINVAL,
        ):  # fmt: skip
            return f"{one.place} cannot be made read-only: {_error()}"
    return ""


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> int:
    words = [None if one is None else os.fsencode(one) for one in (source, target, kind, options)]
    done: int = _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3])
    return done


def _error() -> str:
    return os.strerror(ctypes.get_errno())


class Forks:
    """Forks children; each is the first process of a namespace, which ends with it."""

    def __init__(self, *, separated: bool) -> None:
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if separated else None

    def fork(self) -> int:
        """As `os.fork`."""
        if self._own is None:
            return os.fork()
        if _libc.unshare(_NEWPID) != 0:
            raise OSError(ctypes.get_errno(), "no namespace for a process")
        try:
            child = os.fork()
        except OSError:
            _libc.setns(self._own, _NEWPID)
            raise
        if child != 0 and _libc.setns(self._own, _NEWPID) != 0:
            raise OSError(ctypes.get_errno(), "no way back from a namespace")
        return child


def give_up_rights() -> None:
    """Drop all capabilities of this process in its namespace, for good."""
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_SECUREBITS, _SECURE_NOROOT, 0, 0, 0)
    _libc.capset(struct.pack("II", _CAPABILITY_VERSION, 0), bytes(24))


class MemoryUse(NamedTuple):
    """Memory of this process, bytes."""

    addresses: int
    data: int

    @classmethod
    def now(cls) -> MemoryUse:
        """Its memory at this moment."""
        size, _, _, _, _, data, _ = map(int, Path("/proc/self/statm").read_text().split())
        return cls(size * resource.getpagesize(), data * resource.getpagesize())


def limit_processes(more: int = MORE_PROCESSES) -> None:
    """Let this process and its children start at most so many more: a call cannot take all of the machine's.

    The kernel counts those of the user, since Linux 5.14 only those in these namespaces; root has no limit.
    """
    there = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = there + more if hard == resource.RLIM_INFINITY else min(there + more, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def limit_addresses(most: int) -> None:
    """Limit the address space of this process and of each of its children; a crash writes no file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def limit_data(most: int) -> None:
    """The same for data alone: programs that reserve far more addresses than they use run only so."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main(argv: Sequence[str] | None = None) -> None:
    """Confine this process, then become the command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, help="end with this process")
    parser.add_argument("--memory", type=int, help="bytes")
    parser.add_argument("--network", action="store_true", help="keep the network")
    parser.add_argument("--separate", action="store_true", help="in namespaces of its own")
    parser.add_argument("--scratch", type=Path, help="where it may write")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(argv)
    die_with(given.parent)
    holds = separate(network=given.network) if given.separate else Confinement(True, True, True)
    if given.separate and holds.processes:
        why = read_only(given.scratch)
        holds = Confinement(True, not why, True, why)
        os.chdir(given.scratch)
        give_up_rights()
    if holds.missing:
        sys.stderr.write(f"hpcbench: {holds.missing}\n")
    limit_processes()
    if given.memory is not None:
        limit_data(MemoryUse.now().data + given.memory)
    try:
        os.execvp(given.command[0], given.command)  # noqa: S606 - the command is the server's
    except OSError as error:
        sys.exit(f"{given.command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main()
