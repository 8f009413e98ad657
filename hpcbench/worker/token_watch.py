"""Tokens of a model elsewhere, in the worker's log: what the relay did, and why requests wait for a token."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from hpcbench.oauth.token_metrics import of_log, read
from hpcbench.schema.model import Model
from hpcbench.schema.token_figures import TokenFigures
from hpcbench.worker.event_log import WorkerEvents

LOOK_SECONDS = 5.0
"""Interval of looks at a relay's figures."""


class TokenWatch:
    """Follows one relay after the other.

    Args:
        events: the worker's log.
    """

    def __init__(self, events: WorkerEvents) -> None:
        self._events = events
        self._before: dict[str, TokenFigures] = {}
        """Model → figures of its earlier relays."""
        self._last: dict[str, TokenFigures] = {}
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
        self._before[model.name] = self._last.get(model.name, TokenFigures())
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

    def _take(self, found: TokenFigures, *, final: bool) -> None:
        """Log the figures if they changed; at the end also those of the token's age."""
        model = self._model
        assert model is not None
        with contextlib.suppress(OSError):  # a full disk is handled where answers are written
            if found.why is not None and found.why != self._why.get(model):
                self._events.write(
                    "token_failed", model=model, message=found.why, waiting=found.waiting
                )
            self._why[model] = found.why or ""
            last = self._last.get(model, TokenFigures())
            oldest = max(last.oldest, found.age or 0.0)
            whole = self._before[model].then(replace(found, oldest=oldest, why=None))
            self._last[model] = whole
            if (final and whole != last) or _counts(whole) != _counts(last):
                self._events.write("token", model=model, **whole.to_json())


def _counts(figures: TokenFigures) -> tuple[object, ...]:
    """The figures whose change is logged."""
    return figures.granted, figures.failed, figures.fallbacks, figures.rejected
