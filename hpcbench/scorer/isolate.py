"""A fault of one sample affects no other: an exception or a timeout of a metric or parser becomes a text.

The time limit is a timer of the process (SIGALRM), so it works only in the main thread and between two steps
of Python: a library that computes for minutes in one call is detected only when it returns.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

LONGEST = 300
"""Characters of a fault that are kept."""

LOOKS = 4
"""Checks of the clock within the limit: a call is ended up to a quarter of the limit late."""


class TookTooLong(BaseException):
    """A call was over its limit. Not an `Exception`: foreign code that catches all must not catch it."""


class Guard:
    """Calls foreign code, each call for `seconds` at most; a context manager around many calls."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.over = f"took longer than {seconds:g} s"
        """The fault of a call that was over its limit."""
        self._since: float | None = None
        self._before: tuple[Any, float, float, float] | None = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
        """The result of a function, or why there is none: (result, None) or (None, fault)."""
        try:
            self._since = time.monotonic()
            try:
                return function(*arguments), None
            finally:
                self._since = None
        except TookTooLong:
            return None, self.over
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is a fault of this sample
            return None, error_line(error)

    def __enter__(self) -> Guard:
        if threading.current_thread() is threading.main_thread():
            handler = signal.signal(signal.SIGALRM, self._look)
            pause = min(1.0, self.seconds / LOOKS)
            left, every = signal.setitimer(signal.ITIMER_REAL, pause, pause)
            self._before = (handler, left, every, time.monotonic())
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            return
        handler, left, every, started = self._before
        self._before = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
        if left:  # another caller's timer: restore its remaining time, and at least a moment
            left = max(left - (time.monotonic() - started), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left, every)

    def _look(self, number: int, frame: FrameType | None) -> None:
        if self._since is not None and time.monotonic() - self._since >= self.seconds:
            # The call may be over before it says so: the next check must not end the code that follows.
            self._since = None
            raise TookTooLong


def error_line(error: BaseException) -> str:
    """Type and message of an exception, in one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
