"""Work that would block a request's thread for too long: done outside of requests, a little at a time.

A request calls `SlowWork.of` for a slow value. If the value is ready, it gets the value; else `NotYet` ends
the request's work, and `patiently` waits without a thread until the value is ready, and repeats the work.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from hpcbench.portal import own_memory
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.lru import LruCache

ValueT = TypeVar("ValueT")

PATIENCE = 20.0
"""Seconds that a request waits before its client has to come back."""

MOST = 16
"""Most values that wait to be computed; a request for another one has to come back."""


LARGE_SECONDS = 1.0
"""A computation above this time used much memory, too, of which most is free now."""


@dataclass
class Progress:
    """Progress of a computation."""

    share: float | None = None
    """Share that is done; None: unknown."""


class NotYet(Exception):  # noqa: N818 - no error: a request waits for it
    """The value is being computed."""

    def __init__(self, future: Future[Any], progress: Progress) -> None:
        super().__init__("being made")
        self.future, self.progress = future, progress


class SlowWork:
    """A worker for slow computations; the first of several requests for the same value starts it.

    Args:
        most: most computations that wait or run.
    """

    def __init__(self, most: int = MOST) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="slow")
        self._most = most
        self._pending: dict[Hashable, tuple[Future[Any], Progress]] = {}
        self._lock = threading.RLock()  # a computation that ends at once calls back from within

    def of(
        self,
        kept: LruCache[ValueT],
        key: Hashable,
        stamp: Hashable,
        make: Callable[[], ValueT],
        progress: Progress | None = None,
    ) -> ValueT:
        """The value of a key, if it is kept.

        Args:
            kept: the store of the value.
            key: key of the value.
            stamp: stamp of its source.
            make: computes it.
            progress: receives the progress of `make`.

        Raises:
            NotYet: it is not kept; it is being computed, or waits its turn.
            PortalFault: too many computations wait already.
        """
        found = kept.held(key, stamp)
        if found is not None:
            return found[0]
        name = (id(kept), key, stamp)
        with self._lock:
            pending = self._pending.get(name)
            if pending is None:
                if len(self._pending) >= self._most:
                    raise _busy(Progress())
                future = self._pool.submit(_made, kept, key, stamp, make)
                pending = self._pending[name] = future, progress or Progress()
                future.add_done_callback(lambda _: self._over(name))
        raise NotYet(*pending)

    def _over(self, name: Hashable) -> None:
        with self._lock:
            self._pending.pop(name, None)


def _made(
    kept: LruCache[ValueT], key: Hashable, stamp: Hashable, make: Callable[[], ValueT]
) -> ValueT:
    started = time.monotonic()
    try:
        return kept.of(key, stamp, make)
    finally:
        if time.monotonic() - started > LARGE_SECONDS:
            own_memory.trim()


async def patiently(
    work: Callable[[], ValueT], patience: float = PATIENCE, later: int = 503
) -> ValueT:
    """Do a request's work in a thread; wait for slow values without a thread.

    Args:
        work: may raise `NotYet`, and is then repeated from the beginning.
        patience: seconds to wait.
        later: status of the answer if it takes longer.

    Raises:
        PortalFault: it takes longer; the computation continues for later requests.
    """
    until = time.monotonic() + patience
    while True:
        try:
            return await run_in_threadpool(work)
        except NotYet as waiting:
            future, progress = waiting.future, waiting.progress
        left = until - time.monotonic()
        if left <= 0:
            raise _busy(progress, later)
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), left)
        except asyncio.TimeoutError:
            raise _busy(progress, later) from None


def _busy(progress: Progress, status: int = 503) -> PortalFault:
    texts = "the portal is still computing this", "repeat the request in a few seconds"
    return PortalFault(status, "busy", *texts, progress.share)
