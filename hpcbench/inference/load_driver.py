"""Many requests through one client: at a fixed concurrency, at a given rate, or at the best concurrency.

    requests ─► prepared, a few ahead ─► sent when the limit allows (and their time has come) ─► answers

Bodies are built ahead of their turn, off the event loop: encoding a page delays neither its own request nor
the time stamps of another's answer.

A request that a gateway refuses by its rate limits goes back and is sent before all others, when the limits
allow it; such a refusal is no try. Nothing else is sent meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from hpcbench.errors import HpcbenchError
from hpcbench.inference.adaptive import Adaptive
from hpcbench.inference.client import Client, EngineGone, Limited, Tries
from hpcbench.inference.client_health import Health, watched
from hpcbench.inference.request_body import Prepared
from hpcbench.schema.records import Request, Response

AHEAD = 3
"""Requests that are prepared, or being prepared, after the next one."""

MOST_REFUSALS = 60
"""A request that a gateway refuses by its rate limits so often has failed."""

_QUEUE_SECONDS = 1.0  # between looks at the engine's own queue
_INSTANT = 1_000_000  # nanoseconds; what the budget takes longer is a wait


class Budget(Protocol):
    """Amount that requests may take together."""

    async def reserve(self, request: Request) -> bool:
        """Reserve what a request may take; False: the budget is used up, so nothing more is sent."""

    def release(self, request: Request) -> None:
        """A request is not sent after all."""

    def spend(self, request: Request, response: Response | None) -> None:
        """Count what a request took; None: it was sent, and its answer is lost."""


async def drive(
    client: Client,
    requests: Iterable[Request] | AsyncIterable[Request],
    concurrency: int | Adaptive,
    stop: asyncio.Event,
    *,
    arrivals: Iterable[float] | None = None,
    health: Health | None = None,
    budget: Budget | None = None,
) -> AsyncGenerator[Response, None]:
    """Send all requests; yields answers as they complete.

    At most `concurrency` are in flight: a number, or an `Adaptive` that searches for the best one (and
    may be kept for the next run against the same engine). Requests are taken only a few ahead, so neither
    images nor requests pile up; when about `concurrency` answers wait to be yielded, no request is sent.
    After `stop` is set no request is sent, and those in flight are answered.

    With `arrivals`, offsets in seconds from when the first request is ready (`constant`, `poisson`), each
    request is sent at its time, however many are outstanding; it is late only when `concurrency` are
    outstanding or preparation does not keep up, and `times.scheduled` shows by how much. The run ends with
    the shorter of the two.

    `health` receives measurements of how well the client itself kept up. When the `budget` is used up, no
    request is sent, and those in flight are answered.

    Raises:
        EngineGone: raised after all earlier answers were yielded.
    """
    source = _Source(client, requests)
    run = _Run(client, source, concurrency, arrivals, budget)
    working = asyncio.ensure_future(run.work(stop))
    working.add_done_callback(lambda _: run.answers.put_nowait(None))
    try:
        with watched(health or Health()):
            while (response := await run.answers.get()) is not None:
                run.in_flight_limit.read()
                yield response
        await working
    finally:
        await _cancel(working)
        await source.close()


async def warm_up(
    client: Client,
    requests: Iterable[Request],
    concurrency: int,
    budget: Budget | None = None,
    stop: asyncio.Event | None = None,
) -> int:
    """Send these before any timing, until `stop` is set; returns the number of answers.

    They must be other items than the timed ones, or `as_new` of those: an engine caches images and prompts,
    and would answer repeated ones faster than it can.

    Raises:
        EngineGone: the engine died.
    """
    answers = drive(client, requests, concurrency, stop or asyncio.Event(), budget=budget)
    async with contextlib.aclosing(answers) as responses:
        return sum([response.text is not None async for response in responses])


@dataclass(slots=True)
class _Turn:
    """A prepared request and when it is due."""

    prepared: Prepared
    scheduled: int | None = None
    """See `Times.scheduled`."""
    refusals: int = 0
    """How often a gateway refused it by its rate limits."""
    tries: Tries = Tries()
    """Tries before the last refusal."""


class _Run:
    """One run: its requests in flight, and its answers."""

    def __init__(
        self,
        client: Client,
        source: _Source,
        concurrency: int | Adaptive,
        arrivals: Iterable[float] | None,
        budget: Budget | None,
    ) -> None:
        self.client, self.source, self.budget = client, source, budget
        self.reserved: dict[int, Request] = {}
        """Requests that the budget is reserved for, by their identity."""
        self.out: set[int] = set()
        """Those of them that were sent and not refused."""
        self.arrivals = None if arrivals is None else iter(arrivals)
        self.adaptive = concurrency if isinstance(concurrency, Adaptive) else None
        self.in_flight_limit = _InFlightLimit(concurrency)
        self.begin: int | None = None
        """`time.monotonic_ns()` when the first request was ready."""
        self.answers: asyncio.Queue[Response | None] = asyncio.Queue()
        self.preparing: set[asyncio.Future[Prepared]] = set()
        self.ready: asyncio.Queue[asyncio.Future[Prepared] | None] = asyncio.Queue(AHEAD)
        self.in_flight: dict[asyncio.Future[None], str] = {}
        """Requests in the engine, each with its sample."""
        self.answered: set[asyncio.Future[None]] = set()
        """Answered requests whose tokens are being counted."""
        self.refused: deque[_Turn] = deque()
        """Requests that a gateway refused by its rate limits; they are sent before all others."""
        self.sent_all = False
        """Whether every other request was sent."""
        self.held_until = 0
        """End of the last wait for the gateway or for the budget, `time.monotonic_ns()`: no request could be
        sent before, however long ago it was prepared."""
        self.landed = asyncio.Event()
        """Set when a request has come back, answered or refused."""
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work(self, stop: asyncio.Event) -> None:
        """Run until all are answered, or `stop` is set and all sent ones are answered, or a failure."""
        sending = [asyncio.ensure_future(self._feed()), asyncio.ensure_future(self._send_all())]
        if self.adaptive is not None:
            sending.append(asyncio.ensure_future(self._watch_queue(self.adaptive)))
        stopping = asyncio.ensure_future(stop.wait())
        ends: set[asyncio.Future[Any]] = {sending[1], stopping, self.failed}
        for task in sending:
            task.add_done_callback(self._note)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await _cancel(*sending[:2])
            if self.adaptive is not None and not self.failed.done():
                self.adaptive.exhausted()
            while self.in_flight and not self.failed.done():
                await asyncio.wait(
                    {*self.in_flight, self.failed}, return_when=asyncio.FIRST_COMPLETED
                )
            if self.answered:
                await asyncio.wait(self.answered)
            if self.failed.done():
                self.failed.result()
        finally:
            await _cancel(stopping, self.failed, *sending)
            await _cancel(*self.preparing, *self.in_flight, *self.answered)
            self._settle()

    def _settle(self) -> None:
        """Report requests without an answer to the budget."""
        if self.budget is None:
            return
        for key, request in self.reserved.items():
            if key in self.out:
                self.budget.spend(request, None)
            else:
                self.budget.release(request)
        self.reserved.clear()

    async def _feed(self) -> None:
        """Prepare requests in order, a few ahead of their turn."""
        while (request := await self.source.take()) is not None:
            preparing = asyncio.ensure_future(self.client.prepare(request))
            self.preparing.add(preparing)
            preparing.add_done_callback(self.preparing.discard)
            await self.ready.put(preparing)
        await self.ready.put(None)

    async def _send_all(self) -> None:
        while (turn := await self._next()) is not None:
            free = await self.in_flight_limit.enter()
            self.held_until = await self.client.admitted() or self.held_until
            if turn.scheduled is None or turn.refusals:
                start = max(free, turn.prepared.taken, self.held_until)
            else:
                start = time.monotonic_ns()
            asking = asyncio.ensure_future(self._ask(turn, start))
            self.in_flight[asking] = turn.prepared.request.sample_id
            asking.add_done_callback(self._note)

    async def _next(self) -> _Turn | None:
        """The next request, when its time has come; None: all are answered, or have no time."""
        while not self.refused:
            if not self.sent_all:
                turn = await self._next_new()
                if turn is not None:
                    return turn
                self.sent_all = True
                if self.adaptive is not None:
                    self.adaptive.exhausted()
            elif self.in_flight:  # one of them may be refused
                self.landed.clear()
                await self.landed.wait()
            else:
                return None
        turn = self.refused.popleft()
        return turn if await self._paid(turn.prepared.request) else None

    async def _next_new(self) -> _Turn | None:
        preparing = await self.ready.get()
        if preparing is None:
            return None
        prepared = await preparing
        if not await self._paid(prepared.request):
            return None
        if self.begin is None:
            self.begin = time.monotonic_ns()
            if self.adaptive is not None:
                self.adaptive.resume(self.begin / 1e9)
        if self.arrivals is None:
            return _Turn(prepared)
        offset = next(self.arrivals, None)
        if offset is None:
            return None
        scheduled = self.begin + int(offset * 1e9)
        await asyncio.sleep((scheduled - time.monotonic_ns()) / 1e9)
        return _Turn(prepared, scheduled)

    async def _paid(self, request: Request) -> bool:
        """Reserve the budget for a request; False: it is used up."""
        if self.budget is not None:
            begin = time.monotonic_ns()
            if not await self.budget.reserve(request):
                return False
            self.reserved[id(request)] = request
            if (now := time.monotonic_ns()) - begin > _INSTANT:
                self.held_until = now
        return True

    async def _ask(self, turn: _Turn, start: int) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        heeds = turn.refusals < MOST_REFUSALS
        request = turn.prepared.request
        self.out.add(id(request))
        try:
            response = await self.client.send(
                turn.prepared, start, turn.scheduled, heeds_limits=heeds, tries=turn.tries
            )
        except Limited as limited:
            turn.refusals, turn.tries = turn.refusals + 1, limited.tries
            self.refused.append(turn)
            self.out.discard(id(request))
            if self.budget is not None:  # a new request may wait for what this one would take
                del self.reserved[id(request)]
                self.budget.release(request)
            del self.in_flight[task]
            if self.adaptive is not None:
                self.adaptive.limited()
            self.in_flight_limit.leave(answered=False)
            self.landed.set()
            return
        self.answered.add(task)
        del self.in_flight[task]
        if self.budget is not None:
            del self.reserved[id(request)]
            self.budget.spend(request, response)
        if self.adaptive is not None:
            self.adaptive.completed(response.times.done / 1e9)
        self.in_flight_limit.leave()
        self.landed.set()
        self.answers.put_nowait(await self.client.recounted(response))

    def _note(self, task: asyncio.Future[None]) -> None:
        """Record a task's end; its failure ends the run."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            if isinstance(error, EngineGone):
                error.in_flight = tuple(self.in_flight.values())
            self.failed.set_exception(error)
        self.in_flight.pop(task, None)
        self.answered.discard(task)

    async def _watch_queue(self, adaptive: Adaptive) -> None:
        while True:
            await asyncio.sleep(_QUEUE_SECONDS)
            with contextlib.suppress(HpcbenchError):  # the requests will report the same
                waiting = await self.client.waiting()
                if waiting is not None:
                    adaptive.queued(waiting, len(self.in_flight))
                    self.in_flight_limit.changed()


class _InFlightLimit:
    """Limits the requests in flight; as many answers may wait to be read."""

    def __init__(self, concurrency: int | Adaptive) -> None:
        self._concurrency = concurrency
        self._in_flight = self._unread = 0
        self._was_open = True
        self._free_since = time.monotonic_ns()
        self._waiter: asyncio.Future[None] | None = None

    @property
    def _open(self) -> bool:
        at_most = self._concurrency
        limit = at_most.limit if isinstance(at_most, Adaptive) else at_most
        return self._in_flight < limit and self._in_flight + self._unread < 2 * limit

    async def enter(self) -> int:
        """Wait for a free place and take it; returns the time since which one was free."""
        while not self._open:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._in_flight += 1
        self.changed()
        return self._free_since

    def leave(self, *, answered: bool = True) -> None:
        """Record an answer, or a refusal, which is not yielded."""
        self._in_flight -= 1
        self._unread += answered
        self.changed()

    def read(self) -> None:
        """Record that an answer was read."""
        self._unread -= 1
        self.changed()

    def changed(self) -> None:
        """Handle a change of the limit or of the requests in flight: a place may be free now."""
        was_open, self._was_open = self._was_open, self._open
        if self._was_open and not was_open:
            self._free_since = time.monotonic_ns()
        if self._was_open and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Source:
    """Requests one at a time, from either kind of iterable; a plain one runs in a thread."""

    def __init__(
        self, client: Client, requests: Iterable[Request] | AsyncIterable[Request]
    ) -> None:
        self._client, self._ended = client, False
        self._asking = asyncio.Lock()  # a generator cannot be advanced twice at once
        self._in_use = threading.Lock()  # its thread continues when we are cancelled
        self._sync: Iterator[Request] | None = None
        self._async: AsyncIterator[Request] | None = None
        if isinstance(requests, AsyncIterable):
            self._async = aiter(requests)
        else:
            self._sync = iter(requests)

    async def take(self) -> Request | None:
        """The next request; None at the end."""
        async with self._asking:
            if self._ended:
                return None
            if self._async is not None:
                request = await cast(Any, anext(self._async, None))
            else:
                request = await self._client.in_thread(self._next)
            self._ended = request is None
            return cast("Request | None", request)

    def _next(self) -> Request | None:
        assert self._sync is not None
        with self._in_use:
            return next(self._sync, None)

    async def close(self) -> None:
        """Wait until no thread is in the iterator."""
        if not self._in_use.acquire(blocking=False):
            await asyncio.to_thread(self._in_use.acquire)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
