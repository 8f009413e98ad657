"""How somebody is told something: by a program, a webhook, an e-mail; each in a process of its own.

Light, for `sending` starts a Python for every message. What there is to tell, and who was told, is
`notify/dispatch.py`'s.
"""

from __future__ import annotations

TIMEOUT = 10.0
"""Longest wait for a server to say anything, seconds."""


class Busy(OSError):
    """Whoever is told cannot listen now; it is worth trying again.

    Args:
        said: what was said.
        after: seconds that it asked to wait; None: it did not say.
    """

    def __init__(self, said: str, after: float | None = None) -> None:
        super().__init__(said)
        self.after = after


class Refused(RuntimeError):
    """Whoever is told does not take it; the same again would be refused again."""
