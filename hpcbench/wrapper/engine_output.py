"""An engine's output: through a pipe, masked, into a file; keeps its last lines.

A thread reads the pipe, so that the engine never waits for our event loop, nor our event loop for a disk.
An incomplete line is held back until its end: any write may cut a secret in two.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import select
import threading
import time
from collections import deque
from pathlib import Path

from hpcbench.wrapper.masking import Mask

LIFE_BYTES = 64 * 2**20
"""Most bytes of one engine in the file: an engine that repeats itself must not fill a shared disk."""
_PATIENCE = 2.0
"""Longest wait for the reader to empty the pipe, seconds; only a flood of output takes longer."""
_PIPE_BYTES = 2**20
_BLOCK = 2**16
_LONGEST_LINE = 2**18
"""Bytes of a line above which its start is written before its end arrives."""
_KEPT_LINES = 2000
_KEPT_WIDTH = 1000
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Log:
    """One engine's part of an append-only log file."""

    def __init__(self, path: Path, mask: Mask) -> None:
        self.path, self.mask = path, mask
        self.progress: str | None = None
        """The last line of output."""
        self._lines: deque[tuple[float, str]] = deque(maxlen=_KEPT_LINES)
        self._room = LIFE_BYTES
        self._full_since: float | None = None
        """Time since which output is only kept in memory."""
        self._rest = b""
        self._asked: list[threading.Event] = []
        self._closing = self._over = False
        self._thread: threading.Thread | None = None

    def open(self, headline: str) -> int:
        """Start with a line of ours; returns the end of a pipe for the engine to write to.

        Raises:
            OSError: the file cannot be written.
        """
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._write(self.mask(f"-- hpcbench {headline}\n").encode("utf-8", "surrogateescape"))
        self._pipe, engines = os.pipe()
        self._ears, self._mouth = os.pipe()
        os.set_blocking(self._pipe, False)
        with contextlib.suppress(OSError):  # above this user's limit
            fcntl.fcntl(engines, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._thread = threading.Thread(target=self._read, name="engine-log", daemon=True)
        self._thread.start()
        return engines

    def tail(self, since: float = 0.0) -> list[str]:
        """Its last lines, masked; only lines at `since` of the monotonic clock or later."""
        return [line for came, line in list(self._lines) if came >= since]

    async def settle(self) -> None:
        """Wait until the engine's output so far is in the file and in `tail`."""
        if self._thread is None or self._over:
            return
        done = threading.Event()
        self._asked.append(done)
        with contextlib.suppress(OSError):  # the reader has already ended
            os.write(self._mouth, b"?")
        if not self._over:
            await asyncio.to_thread(done.wait, _PATIENCE)

    async def close(self) -> None:
        """Settle, and stop reading: later output of any process that holds the pipe is lost."""
        if self._thread is None:
            return
        await self.settle()
        self._closing = True
        with contextlib.suppress(OSError):
            os.write(self._mouth, b"!")
        await asyncio.to_thread(self._thread.join, _PATIENCE)
        os.close(self._mouth)
        self._thread = None

    def _read(self) -> None:
        """The thread: runs until all writers are gone, or `close` stops it."""
        poll = select.poll()
        for descriptor in (self._pipe, self._ears):
            poll.register(descriptor, select.POLLIN)
        try:
            while not self._closing:
                ready = dict(poll.poll())
                if self._pipe in ready:
                    block = os.read(self._pipe, _BLOCK)
                    if not block:
                        break
                    self._take(block)
                else:  # only once the pipe is empty
                    os.read(self._ears, 64)
                    self._answer()
        finally:
            self._keep(self._rest)
            if self._full_since is not None:
                last = "".join(f"{line}\n" for line in self.tail(self._full_since))
                self._write(last.encode(errors="replace"))
            self._over = True
            self._answer()
            for descriptor in (self._pipe, self._ears, self._file):
                os.close(descriptor)

    def _answer(self) -> None:
        while self._asked:
            self._asked.pop().set()

    def _take(self, block: bytes) -> None:
        self._rest += block
        # progress bars end their lines with a carriage return
        cut = max(self._rest.rfind(b"\n"), self._rest.rfind(b"\r")) + 1
        if not cut and len(self._rest) > _LONGEST_LINE:
            cut = self.mask.whole(self._rest)
        complete, self._rest = self._rest[:cut], self._rest[cut:]
        self._keep(complete)

    def _keep(self, data: bytes) -> None:
        """Mask, write, keep the last lines."""
        masked = self.mask.clean(data)
        if self._full_since is None:
            self._write(masked[: self._room])
            self._room -= len(masked)
            if self._room < 0:
                self._write(b"\n-- hpcbench leaves out what follows, but for the last lines\n")
                self._full_since = time.monotonic()
        *lines, rest = masked.decode(errors="replace").split("\n")
        for line in lines:
            self._remember(line)
        if rest.endswith("\r"):  # one of many states of a progress bar: only its last is a line
            self.progress = _shown(rest) or self.progress
        else:
            self._remember(rest)

    def _remember(self, line: str) -> None:
        if shown := _shown(line):
            self._lines.append((time.monotonic(), shown))
            self.progress = shown.strip()

    def _write(self, data: bytes) -> None:
        """Write as much as the disk takes: an engine must not end because its log cannot be written."""
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._file, data) :]


def _shown(line: str) -> str:
    """The final appearance of a line in a terminal."""
    return _ESCAPES.sub("", line).rstrip().rpartition("\r")[2][:_KEPT_WIDTH]
