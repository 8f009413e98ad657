"""A command on a host: its input, output, errors, terminal and exit code."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import shlex
import shutil
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Sequence

from hpcbench.errors import EnvironmentFault
from hpcbench.ssh.login import spawn
from hpcbench.subprocesses import last_line

MARK = b"\x1ehpcbench\x1e"
"""Marker before the output of a command: profiles of shells may print before it."""

# A login shell's profile sets the PATH; `~/` is the home on the host.
_RUN = (
    'c=$1; shift; case "$c" in "~/"*) c="$HOME/${c#"~/"}";; esac; '
    'printf \'\\036hpcbench\\036\'; exec "$c" "$@"'
)


class Dropped(EnvironmentFault):
    """The connection broke; the command may continue on the host."""


class NoCommand(EnvironmentFault):
    """The host does not have the command, or does not allow it."""


def command_line(argv: Sequence[str]) -> str:
    """The line for the host's shell that runs a command: every word is quoted, the shell interprets none."""
    return " ".join(["exec", "bash", "-lc", shlex.quote(_RUN), "hpcbench", *map(shlex.quote, argv)])


class Running:
    """A command on a host; a context manager."""

    def __init__(
        self,
        argv: Sequence[str],
        host: str,
        connection_lives: Callable[[], bool],
        *,
        terminal: bool,
        missing: tuple[str, str | None],
    ) -> None:
        """Start the command.

        Args:
            argv: `ssh`, its options, the host and the `command_line`.
            host: the host's name in messages.
            connection_lives: called when `ssh` ends with 255, which may be the command's own code.
            terminal: whether the command gets a terminal.
            missing: name of the command, and the remedy where the host does not have it.
        """
        self._host, self._connection_lives, self._missing = host, connection_lives, missing
        self._ahead, self._output, self._errors = b"", b"", b""
        self._started = False
        self._size = _terminal_size() if terminal else None
        near, far = os.openpty() if terminal else (-1, -1)
        if terminal:
            _resize(near, _terminal_size())
        ends = far if terminal else subprocess.PIPE
        try:
            self._process = spawn(
                argv,
                stdin=ends,
                stdout=ends,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, "TERM": "xterm-256color"},
                start_new_session=True,  # we handle Ctrl-C
            )
        except BaseException:
            if terminal:
                os.close(near)
            raise
        finally:
            if terminal:
                os.close(far)
        process, self._terminal = self._process, near
        assert process.stderr is not None
        self._in = near if process.stdin is None else process.stdin.fileno()
        self._out = near if process.stdout is None else process.stdout.fileno()
        self._err = process.stderr.fileno()
        os.set_blocking(self._err, False)
        self._poll = select.poll()
        for readable in (self._out, self._err):
            self._poll.register(readable, select.POLLIN)

    def write(self, data: bytes) -> None:
        """Send bytes to its standard input.

        Raises:
            Dropped: the connection broke, or the command ended.
        """
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._in, rest) :]
        except OSError as error:
            raise Dropped(f"{self._host}: the connection broke, or the command ended") from error

    def end_input(self) -> None:
        """End its standard input."""
        if self._process.stdin is None:
            self.write(b"\x04")
        else:
            self._process.stdin.close()

    def read(self, size: int = 1 << 16) -> bytes:
        """Up to `size` bytes of its output, at least one; empty: the output has ended.

        Raises:
            Dropped: the connection broke.
        """
        self._begin()
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        data = self._receive(size)
        if not data:
            self._ended()
        return data

    def readline(self) -> bytes:
        """One line of its output, or the rest of it; raises as `read`."""
        pieces: list[bytes] = []
        while piece := self.read():
            line, newline, rest = piece.partition(b"\n")
            pieces += [line, newline]
            if newline:
                self._ahead = rest + self._ahead
                break
        return b"".join(pieces)

    def errors(self) -> bytes:
        """Bytes from its standard error since the last call; does not wait."""
        self._collect_errors()
        errors, self._errors = self._errors, b""
        return errors

    def ready(self, seconds: float) -> bool:
        """Whether `read` has bytes or the end; waits at most `seconds`, but ends at once for new `errors`."""
        return bool(self._ahead) or self._out in self._wait(seconds)

    def resize(self) -> None:
        """Set the terminal of the command to the size of ours."""
        if self._size and self._size != (now := _terminal_size()):
            self._size = now
            _resize(self._out, now)
            self._process.send_signal(signal.SIGWINCH)

    def verdict(self) -> int | None:
        """Its exit code if it ended by itself, also with an error; None: it runs, or the connection broke."""
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            return None
        return None if self._broke() else self.code()

    def code(self) -> int:
        """Its exit code after its end; 255 if a signal ended it.

        Raises:
            Dropped: the connection broke before.
            NoCommand: the host does not have the command.
        """
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
                break
            self._collect_errors()  # a full pipe of errors would block the command
        if self._broke():
            raise Dropped(f"{self._host}: the connection broke")
        code = self._process.returncode
        if code in (126, 127):
            said = (self._output + self.errors()).decode("utf-8", "replace")
            why = last_line(said.strip() or "the program does not exist")
            name, remedy = self._missing
            raise NoCommand(f"{self._host} cannot run {name}: {why}", remedy=remedy)
        return code

    def close(self) -> None:
        """Leave the command; where it has a terminal, it gets a hang-up."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _broke(self) -> bool:
        """Whether the connection ended, not the command: 255 may also be the command's own code."""
        return self._process.returncode in (255, -signal.SIGKILL) and not self._connection_lives()

    def _ended(self) -> None:
        """Check whether the command or the connection ended the output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
            if self._broke():
                raise Dropped(f"{self._host}: the connection broke")

    def _begin(self) -> None:
        """Skip the output of profiles before the command starts."""
        if self._started:
            return
        seen = b""
        while MARK not in seen:
            piece = self._receive(1 << 16)
            if not piece:
                self._ended()
                self._output = seen  # the command did not start: `code` gives the reason
                self._started = True
                return
            seen = (seen + piece)[-(1 << 20) :]
        self._ahead = seen.partition(MARK)[2]
        self._started = True

    def _receive(self, size: int) -> bytes:
        """Bytes of its output; errors are read meanwhile, so that a full pipe does not block it."""
        while self._out not in self._wait(None):
            pass
        try:
            return os.read(self._out, size)
        except OSError as error:
            if error.errno == errno.EIO:  # the end of a terminal
                return b""
            raise

    def _wait(self, seconds: float | None) -> set[int]:
        """Which of output and errors have bytes, or have ended; reads the errors."""
        found = {end for end, _ in self._poll.poll(None if seconds is None else 1000 * seconds)}
        if self._err in found:
            self._collect_errors()
        return found

    def _collect_errors(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._err, 1 << 16):
                self._errors += piece
            with contextlib.suppress(KeyError):  # the pipe has ended
                self._poll.unregister(self._err)


def _terminal_size() -> os.terminal_size:
    return shutil.get_terminal_size()


def _resize(end: int, size: os.terminal_size) -> None:
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines, size.columns, 0, 0))
