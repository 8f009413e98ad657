"""Rate limits of a model elsewhere, in the worker's log: that its gateway limits, and what that took."""

from __future__ import annotations

import asyncio

from hpcbench.inference.rate_limits import RateLimits, now
from hpcbench.worker.event_log import WorkerEvents

LOOK_SECONDS = 5.0
"""Interval of looks at the limits."""

SAY_SECONDS = 60.0
"""Shortest interval between two events of one model."""


class LimitWatch:
    """Follows the limits of one model after the other.

    Args:
        events: the worker's log.
    """

    def __init__(self, events: WorkerEvents) -> None:
        self._events = events
        self._last: dict[str, tuple[int, int]] = {}
        """Model → refusals and waits in its last event."""
        self._said = float("-inf")
        self._model, self._limits = "", RateLimits()
        self._task: asyncio.Task[None] | None = None

    def follow(self, model: str, limits: RateLimits) -> None:
        """Follow the limits of a model from now on."""
        self.end()
        self._model, self._limits, self._said = model, limits, float("-inf")
        self._task = asyncio.ensure_future(self._follow())

    def end(self) -> None:
        """Look once more, and follow no limits any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._look()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if now() - self._said >= SAY_SECONDS:
                self._look()

    def _look(self) -> None:
        """Log the figures if they changed."""
        figures = self._limits.figures
        seen = (figures.refused, figures.waits)
        if seen == self._last.get(self._model, (0, 0)):
            return
        self._last[self._model], self._said = seen, now()
        self._events.write(
            "limited", model=self._model, message=self._words(), **self._limits.to_json()
        )

    def _words(self) -> str:
        figures = self._limits.figures
        held = self._limits.held_by(now()) or figures.why or "requests waited for what remains"
        return (
            f"the gateway of {self._model} limits the rate ({figures.refused} requests refused, "
            f"{figures.wait_seconds:.0f} s waited): {held}"
        )
