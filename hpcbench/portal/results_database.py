"""The database of results, where the site profile names one: reads for pages, which go on without it.

A connection is kept. Where the database does not answer in time, or refuses, the caller gets the reason and
goes on from files. For some seconds no page asks again, so that none waits for a server that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from hpcbench.database import need
from hpcbench.errors import EnvironmentFault, HpcbenchError
from hpcbench.portal.context import once
from hpcbench.registry.database_address import address_of
from hpcbench.schema.outputs import Database

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

AnswerT = TypeVar("AnswerT")

SECONDS = 5.0
"""Longest wait for an answer."""

REST_SECONDS = 15.0
"""Seconds without a further try after a fault."""


class ResultsDatabase:
    """Reads a database of results; all calls are from one event loop.

    Args:
        definition: the address, its secrets by reference.
    """

    def __init__(self, definition: Database) -> None:
        self._definition = definition
        self._open = contextlib.AsyncExitStack()
        self._engine: AsyncEngine | None = None
        self._lock = asyncio.Lock()
        self._fault, self._until = "", 0.0

    async def ask(self, question: Callable[[AsyncConnection], Awaitable[AnswerT]]) -> AnswerT | str:
        """The answer to a question; a text: why there is none, without secrets."""
        if time.monotonic() < self._until:
            return self._fault
        async with self._lock:
            if time.monotonic() < self._until:
                return self._fault
            try:
                return await asyncio.wait_for(self._asked(question), SECONDS)
            except asyncio.TimeoutError:
                fault = f"it gave no answer in {SECONDS:g} s"
            except HpcbenchError as error:
                fault = error.message if isinstance(error, EnvironmentFault) else str(error)
            await self.close()
            self._fault, self._until = fault, time.monotonic() + REST_SECONDS
            return fault

    async def _asked(self, question: Callable[[AsyncConnection], Awaitable[AnswerT]]) -> AnswerT:
        need()
        from hpcbench.database import place

        address = address_of(self._definition)
        if self._engine is None:
            engine = await self._open.enter_async_context(place.opened(address))
            with place.faults(address):
                await place.check(address, engine)
            self._engine = engine
        with place.faults(address):
            async with self._engine.connect() as connection:
                return await question(connection)

    async def close(self) -> None:
        """Close the connection; the next question opens another one."""
        opened, self._open, self._engine = self._open, contextlib.AsyncExitStack(), None
        with contextlib.suppress(Exception):  # its server may be gone
            await asyncio.wait_for(opened.aclose(), SECONDS)


database_of = once(lambda portal: ResultsDatabase(portal.database) if portal.database else None)
"""The portal's database; None: the site profile names none."""
