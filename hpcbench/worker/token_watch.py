"""Tokens of a model elsewhere, in the worker's log: what the relay did, and why requests wait for a token."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hpcbench.oauth.token_metrics import added, of_log, read
from hpcbench.schema.model import Model
from hpcbench.worker.event_log import WorkerEvents

LOOK_SECONDS = 5.0
"""Interval of looks at a relay's figures."""

_CHANGES = ("granted", "failed", "fallbacks", "rejected")
"""Figures whose change is logged."""


class TokenWatch:
    """Follows one relay after the other.

    Args:
        events: the worker's log.
    """

    def __init__(self, events: WorkerEvents) -> None:
        self._events = events
        self._before: dict[str, dict[str, Any]] = {}
        """Model → figures of its earlier relays."""
        self._last: dict[str, dict[str, Any]] = {}
        """Model → figures with those of its present relay."""
        self._why: dict[str, str] = {}
        self._model: str | None = None
        self._read: Callable[[], str]
        self._task: asyncio.Task[None] | None = None

    def follow(self, model: Model, metrics: Callable[[], str]) -> None:
        """Follow the relay of a model from now on, also while it loads, if it asks for tokens.

        Args:
            model: its definition.
            metrics: requests the relay's figures; blocks.
        """
        self._stop()
        auth = model.engine_options.get("auth")
        if not isinstance(auth, Mapping) or auth.get("type", "jwt") != "jwt":
            return
        self._model, self._read = model.name, metrics
        self._before[model.name] = self._last.get(model.name, {})
        self._task = asyncio.ensure_future(self._follow())

    async def end(self, log: Iterable[str] = ()) -> None:
        """Look once more, and follow no relay any more.

        Args:
            log: the output of a relay that is gone, whose last line may have its figures.
        """
        self._stop()
        if self._model is not None:
            found = of_log(log)
            if found is not None:
                self._take(found, final=True)
            else:
                await self._look(final=True)
            self._model = None

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _follow(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, *, final: bool = False) -> None:
        # An engine that is gone is reported elsewhere.
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            found = read(await asyncio.to_thread(self._read))
            if found is not None:
                self._take(found, final=final)

    def _take(self, found: dict[str, Any], *, final: bool) -> None:
        """Log the figures if they changed; at the end also those of the token's age."""
        model = self._model
        assert model is not None
        with contextlib.suppress(OSError):  # a full disk is handled where answers are written
            why = found.pop("why", None)
            if why is not None and why != self._why.get(model):
                waiting = found.get("waiting", 0)
                self._events.write("token_failed", model=model, message=why, waiting=waiting)
            self._why[model] = why or ""
            last = self._last.get(model, {})
            found["oldest"] = max(last.get("oldest", 0.0), found.get("age", 0.0))
            whole = added(self._before[model], found)
            self._last[model] = whole
            if (final and whole != last) or any(
                whole.get(name) != last.get(name) for name in _CHANGES
            ):
                self._events.write("token", model=model, **whole)
