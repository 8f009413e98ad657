"""Parts of the machine that every part of the lab needs: commands, daemons, processes, time."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

MARK = "HPCBENCH_DAEMON"  # in the environment of every daemon of the lab
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LabError(Exception):
    """The lab could not be had; the message says in one line what is missing."""


def run(
    argv: Sequence[object],
    *,
    what: str,
    timeout: float = 600,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
) -> str:
    """Run a command to its end and return its standard output.

    Args:
        argv: the words; paths among them are welcome.
        what: what the command was to bring, for the error line ("cannot …").
        log: where both outputs go instead (long builds); nothing is returned then.
    """
    words = [str(word) for word in argv]
    try:
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(log.open("a")) if log else subprocess.PIPE
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT if log else subprocess.PIPE,
                text=True,
                timeout=timeout,
                env=env,
                cwd=cwd,
                check=False,
            )
    except FileNotFoundError:
        raise LabError(f"cannot {what}: no program {words[0]}; run `install` first") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"cannot {what}: {words[0]} took more than {timeout:.0f} s") from None
    if done.returncode:
        said = (
            log.read_text(errors="replace") if log else f"{done.stdout or ''}\n{done.stderr or ''}"
        )
        where = f" (see {log})" if log else ""
        last = next((line for line in reversed(said.splitlines()) if line.strip()), "no message")
        raise LabError(f"cannot {what}: {words[0]} ended with {done.returncode}: {last}{where}")
    return done.stdout or ""


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long a part took."""
    begin = time.monotonic()
    yield
    print(f"  {what:<42}{time.monotonic() - begin:7.1f} s", flush=True)


def wait_until(test: Callable[[], object], timeout: float, what: str, every: float = 0.1) -> None:
    """Ask until the answer is true; LabError after three times the seconds a quiet machine may take."""
    end = time.monotonic() + 3 * timeout
    while not test():
        if time.monotonic() > end:
            raise LabError(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(every)


def answers(at: int | Path) -> bool:
    """Whether a process serves this loopback port or Unix socket (a stale one refuses)."""
    family = socket.AF_INET if isinstance(at, int) else socket.AF_UNIX
    with socket.socket(family) as probe, contextlib.suppress(OSError):
        probe.settimeout(2)
        probe.connect(("127.0.0.1", at) if isinstance(at, int) else str(at))
        return True
    return False


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def environ(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty when it is gone."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition("=") for item in raw.decode(errors="replace").split("\0") if item)
    return {key: value for key, _, value in pairs}


def open_files(pid: int) -> list[Path]:
    found = []
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(link.readlink())
    return found


def program_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def with_descendants(pids: Iterable[int]) -> list[int]:
    """These processes and all below them, parents first."""
    children: dict[int, list[int]] = {}
    for pid in processes():
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text()
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(pid)
    found = list(dict.fromkeys(pids))
    for pid in found:  # grows while it is walked
        found.extend(child for child in children.get(pid, []) if child not in found)
    return found


def kill(pids: Iterable[int], number: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        if pid > 1 and pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Daemon:
    """A background process known by its program and by a mark in its environment.

    The pid file is a hint only: after a crash its number may belong to another process, or it may be
    gone while the process still runs.

    Args:
        at: where it serves: a loopback port or a Unix socket; None for a daemon that no caller waits for.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[object],
        home: Path,
        at: int | Path | None = None,
        user: str = "root",
    ) -> None:
        self.name = name
        self.at = at
        self.argv = [str(word) for word in argv]
        self.user = user
        self.pid_file = home / "run" / f"{name}.pid"
        self.log = home / "log" / f"{name}.out"
        self.mark = f"{home}:{name}"

    def pid(self) -> int | None:
        """Its process, or None when it does not run."""
        recorded = self._recorded()
        candidates = ([recorded] if recorded else []) + processes()
        return next((pid for pid in candidates if self._is(pid)), None)

    def start(self, env: Mapping[str, str] | None = None) -> bool:
        """Start it unless it runs; whether it was started now."""
        if self.pid() is not None:
            return False
        program = shutil.which(self.argv[0], path=SYSTEM_PATH)
        if program is None:
            raise LabError(f"cannot start {self.name}: no {self.argv[0]}; run `install` first")
        if isinstance(self.at, int) and answers(self.at):
            raise LabError(f"cannot start {self.name}: port {self.at} is taken by somebody else")
        for old in (self.pid_file, self.log):
            old.unlink(missing_ok=True)
        # start-stop-daemon leaves no child behind in the process that called (a test session).
        run(
            ["start-stop-daemon", "--start", "--background", "--make-pidfile"]
            + ["--pidfile", str(self.pid_file), "--chuid", self.user, "--output", str(self.log)]
            + ["--startas", program, "--", *self.argv[1:]],
            what=f"start {self.name}",
            env={"PATH": SYSTEM_PATH, MARK: self.mark, "LANG": "C.UTF-8"} | dict(env or {}),
        )
        wait_until(self._settled, 60, f"{self.name} to start", every=0.01)
        return True

    def wait_ready(self, timeout: float) -> None:
        """Wait until it serves; LabError with its last words when it ended instead."""
        at = self.at
        if at is not None:
            wait_until(lambda: answers(at) or self.pid() is None, timeout, self.name, every=0.05)
        if self.pid() is None:
            lines = self.log.read_text(errors="replace").split("\n") if self.log.exists() else []
            last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
            raise LabError(f"cannot start {self.name}, it ended: {last} (see {self.log})")

    def stop(self, timeout: float = 10) -> None:
        """End it: first politely, then not."""
        pid = self.pid()
        if pid is not None:
            kill([pid], signal.SIGTERM)
            with contextlib.suppress(LabError):
                wait_until(lambda: not alive(pid), timeout, self.name, every=0.05)
            kill([pid])
        self.pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """End it as a crash would: it has no time to say or save anything."""
        pid = self.pid()
        kill([pid] if pid else [])
        self.pid_file.unlink(missing_ok=True)

    def _is(self, pid: int) -> bool:
        return (
            alive(pid)
            and program_name(pid) == Path(self.argv[0]).name
            and environ(pid).get(MARK) == self.mark
        )

    def _recorded(self) -> int | None:
        try:
            return int(self.pid_file.read_text())
        except (OSError, ValueError):
            return None

    def _settled(self) -> bool:
        """Whether start-stop-daemon's child has become the program, or has ended."""
        pid = self._recorded()
        return pid is not None and (self._is(pid) or not alive(pid))
