"""A connection to a host: one login of `ssh`, a ControlMaster, for many commands."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Self

from hpcbench.errors import EnvironmentFault
from hpcbench.ssh.login import Host, Login, spawn
from hpcbench.ssh.remote_command import Running, command_line
from hpcbench.subprocesses import run

SHARED = ("-F", "none", "-o", "LogLevel=QUIET", "-o", "ProxyCommand=false")
"""Options of commands over a connection: they read no configuration, and never log in themselves."""

IDLE_SECONDS = 60
"""A connection without a command ends after this time: after a kill -9, only this ends it."""

CONTROL_SECONDS = 10.0
"""Limit for a command to the connection's own process."""

LONGEST_FOLDER = 60
"""Most bytes of a folder's path that keep the path of `ssh`'s socket valid, with the suffix of `ssh`."""


class Connection:
    """A host, logged in to at the first need and again after a broken connection; a context manager."""

    def __init__(
        self, host: Host, *, terminal: bool | None = None, within: Path | None = None
    ) -> None:
        """
        Args:
            host: the host.
            terminal: whether `ssh` may ask questions; none: whether this process has a terminal.
            within: parent of the socket's private folder; none, or too long a path: the usual one.
        """
        self.host = host
        self._ask = sys.stdin.isatty() and sys.stderr.isatty() if terminal is None else terminal
        if within is not None and len(os.fsencode(within)) > LONGEST_FOLDER:
            within = None
        if within is None and len(os.fsencode(tempfile.gettempdir())) > LONGEST_FOLDER:
            within = Path("/tmp")  # noqa: S108 - the folder below it is private
        self._within = within
        self._folder: Path | None = None
        self._socket: Path | None = None

    def connect(self, seconds: float | None = None) -> None:
        """Log in, unless a connection lives.

        Args:
            seconds: limit for the login; none: a user may need time for an answer.

        Raises:
            Unreachable: the host cannot be reached.
            Refused: the host refuses the login, or its key is not accepted.
            UserError: ~/.ssh/config is not valid.
        """
        if self._socket is not None and self._socket.exists():
            return
        self.close()
        self._folder = Path(tempfile.mkdtemp(prefix="hpcbench-", dir=self._within))
        login = Login.prepare(self._folder, self.host, ask=self._ask)
        for theirs in map(Path, login.settings.get("controlpath", ())):
            if theirs.exists() and self._answers(theirs):  # the user has logged in already
                self._socket = theirs
                return
        socket = self._folder / "c"
        process = spawn(
            [
                *login.argv,
                "-M",
                "-S",
                str(socket),
                "-o",
                f"ControlPersist={IDLE_SECONDS}",
                "-f",
                "-N",
            ]
            + ["--", self.host.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=not self._ask,  # for questions it needs our terminal
        )
        # After the login, `ssh` continues in the background, and this process of it ends.
        output = _watched(process, seconds, echo=self._ask)
        if process.returncode:
            raise login.fault(output)
        self._socket = socket

    def lives(self) -> bool:
        """Whether the connection answers."""
        return self._socket is not None and self._answers(self._socket)

    def words(self) -> list[str]:
        """A command line, to be followed by a host and a command; `rsync -e` accepts it, too."""
        return ["ssh", *SHARED, "-S", str(self._socket)]

    def forward(self, here: str, there: str) -> None:
        """Forward a Unix socket of the host to this machine.

        Raises:
            EnvironmentFault: the host does not allow it.
        """
        words = ["-O", "forward", "-L", f"{here}:{there}"]
        argv = ["ssh", "-F", "none", "-S", str(self._socket), *words, "--", self.host.name]
        ended = run(argv, CONTROL_SECONDS)
        if ended.failed:
            why = "the connection does not answer" if ended.late else ended.messages.strip()
            raise EnvironmentFault(f"ssh cannot forward {there}: {why}")

    def start(
        self, argv: Sequence[str], *, terminal: bool = False, remedy: str | None = None
    ) -> Running:
        """Start a command: a list of words, which no shell interprets; a login shell's PATH finds it.

        Args:
            argv: the command.
            terminal: whether it gets a terminal, with the size of ours; then errors come with the output.
            remedy: the remedy where the host does not have the command.

        Raises:
            HpcbenchError: as `connect`.
        """
        self.connect()
        return Running(
            [*self.words(), "-tt" if terminal else "-T", "--", self.host.name, command_line(argv)],
            self.host.name,
            self.lives,
            terminal=terminal,
            missing=(argv[0], remedy),
        )

    def close(self) -> None:
        """End the connection, unless it is the user's own."""
        if self._folder is not None:
            socket = self._folder / "c"
            if socket.exists():
                with contextlib.suppress(OSError):
                    self._control(socket, "exit")
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answers(self, socket: Path) -> bool:
        return self._control(socket, "check")

    def _control(self, socket: Path, word: str) -> bool:
        """Send a word to the connection's process; returns whether it answered."""
        argv = ["ssh", *SHARED, "-S", str(socket), "-O", word, "--", self.host.name]
        return not run(argv, CONTROL_SECONDS).failed


def _watched(process: subprocess.Popen[bytes], seconds: float | None, *, echo: bool) -> str:
    """Output of a login until it ends or is killed; shown at once where a user may have to read it."""
    assert process.stderr is not None
    deadline = time.monotonic() + (math.inf if seconds is None else seconds)
    output = bytearray()
    with process.stderr as stderr:
        os.set_blocking(stderr.fileno(), False)
        try:
            while True:
                ended = process.poll() is not None
                while piece := stderr.read(1 << 16):
                    output += piece
                    if echo:
                        sys.stderr.write(piece.decode("utf-8", "replace"))
                        sys.stderr.flush()
                if (
                    ended
                ):  # not the end of the pipe: older versions of ssh keep it open in the background
                    break
                if time.monotonic() > deadline:
                    process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.02)
        except BaseException:
            process.kill()
            process.wait()
            raise
    return output.decode("utf-8", "replace")
