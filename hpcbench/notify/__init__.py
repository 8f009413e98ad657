"""Notifiers: a program, a webhook, an e-mail; each runs in its own process.

A light module, because `sending` starts a Python process for every message. `notify/dispatch.py` decides on
the messages and records deliveries.
"""

from __future__ import annotations

TIMEOUT = 10.0
"""Longest wait for any response of a server, seconds."""


class Busy(OSError):
    """The receiver cannot accept messages now; another try may succeed.

    Args:
        said: the receiver's message.
        after: seconds that the receiver asked to wait; None: not given.
    """

    def __init__(self, said: str, after: float | None = None) -> None:
        super().__init__(said)
        self.after = after


class Refused(RuntimeError):
    """The receiver refuses the message, and would refuse it again."""
