"""The way into a rented machine: one ssh connection, through which everything goes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from hpcbench.environments.inside import PACKAGES, Bind
from hpcbench.environments.packages import Probe, last_words, probe
from hpcbench.environments.rented import Spec
from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import replacing
from hpcbench.ssh.connection import Connection
from hpcbench.ssh.login import Host
from hpcbench.subprocesses import run

FAILED = 255
"""Exit code if something other than the command failed; the last line then begins with FATAL."""

LOGIN_SECONDS = 60.0
"""Limit for one login; a host that drops packets would take all of the time."""

ANSWER_SECONDS = 60.0
"""Limit for one short command in the machine."""

ASK_SECONDS = 10.0
"""Interval in which a machine's provider is asked for it while it cannot be reached."""

PID = "/run/hpcbench.pid"
"""File with the command's process id, in the machine."""

LAUNCH = f"""
import json, os, sys
line = b""
while not line.endswith(b"\\n"):
    line += os.read(0, 1) or sys.exit("no command came")
asked = json.loads(line)
os.environ.update(asked["env"])
paths = ["{PACKAGES}", *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(paths)
with open("{PID}", "w") as file:
    file.write(str(os.getpid()))
os.chdir(asked["cwd"])
try:
    os.execvp(asked["argv"][0], asked["argv"])
except OSError as error:
    print(asked["argv"][0] + ":", error.strerror, file=sys.stderr)
    sys.exit(127)
"""
"""Becomes the command in the machine. The first line of standard input has its environment: every user can
read arguments, there as here."""


class Machine:
    """A rented machine; a context manager that ends the connection.

    Args:
        folder: private folder of this run.
        host: how to log in.
        image_environment: shell commands that give a session the image's variables.
    """

    def __init__(self, folder: Path, host: Host, image_environment: str) -> None:
        self.folder = folder
        self.forwarded: set[str] = set()
        self._image = image_environment
        self._connection = Connection(host, terminal=False, within=folder)

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for path in self.forwarded:
            Path(path).unlink(missing_ok=True)
        self._connection.close()

    @property
    def ssh(self) -> Sequence[str]:
        """Words before a command line for the machine."""
        return (*self._connection.words(), "rented")

    def connect(self, until: float, lives: Callable[[], bool]) -> None:
        """Log in, as soon as its sshd is up.

        Args:
            until: Unix time at which it gives up.
            lives: asks its provider whether it still runs.

        Raises:
            EnvironmentFault: not in time, or it no longer runs.
        """
        asked = time.monotonic()
        while True:
            try:
                seconds = max(1.0, min(LOGIN_SECONDS, until - time.time()))
                return self._connection.connect(seconds=seconds)
            except EnvironmentFault as fault:
                gone = False
                if time.monotonic() - asked > ASK_SECONDS:
                    asked, gone = time.monotonic(), not lives()
                if gone or time.time() > until:
                    raise EnvironmentFault(
                        f"cannot reach the rented machine over ssh: {fault.message}",
                        remedy="its image must run as root and have sshd, or apt to install it; this "
                        "machine must be allowed to connect to any port",
                    ) from fault
            time.sleep(1)

    def lost(self) -> bool:
        """Whether the connection is gone."""
        return not self._connection.lives()

    def lay_out(self, mounts: Sequence[Bind], end: str) -> None:
        """Create folders and empty files, and start the commands by which the machine deletes itself.

        These cover a failure of this whole computer.
        """
        folders, files = [PACKAGES], [PID]  # empty: nothing runs yet
        for mount in mounts:
            if Path(mount.source).is_dir():
                folders.append(mount.target)
            else:
                folders.append(str(Path(mount.target).parent))
                files.append(mount.target)
        later = f"(setsid sh -c {shlex.quote(end)} </dev/null >/dev/null 2>&1 &)" if end else "true"
        self._do(
            f"{self._image}{shlex.join(['mkdir', '-p', '--', *folders])} && "
            f"{shlex.join(['touch', '--', *files])} && {later}"
        )

    def probe(self, image: str) -> Probe:
        """Ask the image's Python about itself."""
        python = shlex.join([*self.ssh, _shell(f"{self._image}exec python3 -")])
        # The caller passes -c and the code; the code goes through standard input, which needs no quoting.
        return probe(["sh", "-c", f'printf %s "$2" | {python}', "sh"], image)

    def send(self, mount: Bind) -> None:
        """Copy a file or folder into the machine; a link to the outside becomes a copy of its target."""
        source = f"{mount.source}/" if Path(mount.source).is_dir() else mount.source
        self._rsync("-rlpt", "--copy-unsafe-links", source, f"rented:{mount.target}")

    def fetch(self, mount: Bind, place: Path) -> None:
        """Copy a file or folder from the machine; no links, which could lead anywhere."""
        slash = "/" if Path(mount.source).is_dir() else ""
        self._rsync("-rt", f"rented:{mount.target}{slash}", f"{place}{slash}")

    def start(self, spec: Spec, cwd: str) -> subprocess.Popen[bytes]:
        """Start the command; our standard input becomes its input."""
        process = subprocess.Popen(
            [*self.ssh, _shell(f"{self._image}python3 -c {shlex.quote(LAUNCH)}; exit $?")],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches us, and we forward it
        )
        env = {"PYTHONDONTWRITEBYTECODE": "1", **spec.env}
        first = json.dumps({"argv": spec.argv, "env": env, "cwd": cwd})
        assert process.stdin is not None
        threading.Thread(
            target=_pass_on, args=(first.encode() + b"\n", process.stdin), daemon=True
        ).start()
        return process

    def signal(self, number: int) -> None:
        """Send a signal to the command."""
        name = signal.Signals(number).name.removeprefix("SIG")
        until_there = f"for n in 1 2 3 4 5; do test -s {PID} && break; sleep 1; done"
        run([*self.ssh, _shell(f"{until_there}; kill -s {name} $(cat {PID})")], ANSWER_SECONDS)

    def forward(self, own: Bind) -> bool:
        """Forward the sockets of the command's private folder to here; returns whether there is one."""
        find = shlex.join(["find", own.target, "-maxdepth", "1", "-type", "s"])
        for there in run([*self.ssh, find], ANSWER_SECONDS).text.splitlines():
            name = there.rpartition("/")[2]
            here = f"{own.source}/{name}"
            if here not in self.forwarded and re.fullmatch(r"[\w.-]+", name):
                self.forwarded.add(here)
                self._connection.forward(here, there)
        return bool(self.forwarded)

    def _do(self, script: str) -> None:
        ended = run([*self.ssh, _shell(script)], ANSWER_SECONDS)
        if ended.failed:
            why = "no answer" if ended.late else last_words(ended.messages)
            raise EnvironmentFault(f"cannot prepare the rented machine's folders: {why}")

    def _rsync(self, *words: str) -> None:
        ssh = shlex.join(self._connection.words())
        ended = run(["rsync", "-s", "--timeout=300", "-e", ssh, *words], None)
        if ended.code not in (0, 24):  # 24: files disappeared meanwhile
            first = (ended.messages.strip() or "it printed no message").splitlines()[0]
            raise EnvironmentFault(f"rsync with the rented machine failed: {first}")


class MirroredFiles:
    """The command's files, copied here repeatedly.

    Folders and files start empty in the machine. To a file that exists here already, new text is
    appended: it is a log to which we, or the worker, write as well.
    """

    def __init__(self, mounts: Sequence[Bind], machine: Machine) -> None:
        self.mounts, self._machine = mounts, machine
        self._appended: dict[Path, int] = {}
        self._copied: dict[Path, tuple[int, int]] = {}

    def fetch(self, last: bool = False) -> None:
        """Copy new content."""
        for number, mount in enumerate(self.mounts):
            staged = self._machine.folder / f"back-{number}"
            self._machine.fetch(mount, staged)
            for file in [staged] if staged.is_file() else sorted(staged.rglob("*")):
                here = Path(mount.source, file.relative_to(staged))
                if file.is_dir():
                    here.mkdir(exist_ok=True)
                elif here in self._appended or (here not in self._copied and here.exists()):
                    self._append(file, here, last)
                else:
                    self._copy(file, here)

    def _append(self, file: Path, here: Path, last: bool) -> None:
        begin = self._appended.setdefault(here, 0)
        with file.open("rb") as opened:
            opened.seek(begin)
            new = opened.read()
        if not last:
            new = new[: new.rfind(b"\n") + 1]  # other processes write lines to it, too
        with here.open("ab") as log:
            log.write(new)
        self._appended[here] = begin + len(new)

    def _copy(self, file: Path, here: Path) -> None:
        facts = file.stat()
        if self._copied.get(here) != (facts.st_size, facts.st_mtime_ns):
            with replacing(here) as temporary:
                shutil.copy2(file, temporary)
            self._copied[here] = (facts.st_size, facts.st_mtime_ns)


def _shell(script: str) -> str:
    """A script as one command line, for any login shell of root."""
    return shlex.join(["sh", "-c", script])


def _pass_on(first: bytes, pipe: IO[bytes]) -> None:
    """Forward our standard input, and its end, to the command's."""
    data = first
    with contextlib.suppress(OSError):
        while data:
            pipe.write(data)
            pipe.flush()
            data = os.read(0, 65536)
    with contextlib.suppress(OSError):
        pipe.close()
