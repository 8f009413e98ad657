"""Work that would hold a request's thread for too long: done a little at a time, beside the requests.

A request's work asks `Slow.of` for what takes long. Where it is there, it gets it; else `NotYet` ends the
work, and `patiently` waits without a thread until it is made, and does the work again.
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
from hpcbench.portal.lru import Kept

ValueT = TypeVar("ValueT")

PATIENCE = 20.0
"""Seconds that a request waits before it is told to come back."""

MOST = 16
"""Things that may wait to be made; whoever wants another one is told to come back."""


LARGE_SECONDS = 1.0
"""What took longer to make took much memory, too, most of which nobody needs any more."""


@dataclass
class Progress:
    """How far something is that is being made."""

    share: float | None = None
    """Share of it that is done; None: nobody knows."""


class NotYet(Exception):  # noqa: N818 - no error: a request waits for it
    """What is wanted is being made."""

    def __init__(self, future: Future[Any], progress: Progress) -> None:
        super().__init__("being made")
        self.future, self.progress = future, progress


class Slow:
    """A worker for what takes long; of several requests that want the same one begins it.

    Args:
        workers: how much is done at once.
        most: how much may wait.
    """

    def __init__(self, workers: int = 1, most: int = MOST) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="slow")
        self._most = most
        self._begun: dict[Hashable, tuple[Future[Any], Progress]] = {}
        self._lock = threading.RLock()  # what is over at once calls back from within

    def of(
        self,
        kept: Kept[ValueT],
        key: Hashable,
        stamp: Hashable,
        make: Callable[[], ValueT],
        progress: Progress | None = None,
    ) -> ValueT:
        """What is kept under a key, if it is.

        Args:
            kept: where it is kept.
            key: under which key.
            stamp: what it is made of.
            make: makes it.
            progress: where `make` says how far it is.

        Raises:
            NotYet: it is not; it is being made, or waits its turn.
            PortalFault: too much waits already.
        """
        found = kept.held(key, stamp)
        if found is not None:
            return found[0]
        name = (id(kept), key, stamp)
        with self._lock:
            begun = self._begun.get(name)
            if begun is None:
                if len(self._begun) >= self._most:
                    raise _busy(Progress())
                future = self._pool.submit(_made, kept, key, stamp, make)
                begun = self._begun[name] = future, progress or Progress()
                future.add_done_callback(lambda _: self._over(name))
        raise NotYet(*begun)

    def _over(self, name: Hashable) -> None:
        with self._lock:
            self._begun.pop(name, None)


def _made(kept: Kept[ValueT], key: Hashable, stamp: Hashable, make: Callable[[], ValueT]) -> ValueT:
    begun = time.monotonic()
    try:
        return kept.of(key, stamp, make)
    finally:
        if time.monotonic() - begun > LARGE_SECONDS:
            own_memory.trim()


async def patiently(
    work: Callable[[], ValueT], patience: float = PATIENCE, later: int = 503
) -> ValueT:
    """Do a request's work in a thread; what takes long is waited for without one.

    Args:
        work: may raise `NotYet`, and is then done again from the beginning.
        patience: seconds to wait.
        later: status of the answer if it takes longer.

    Raises:
        PortalFault: it takes longer; what was begun goes on, for those who come back.
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
    told = "this is still being computed", "ask again in a few seconds"
    return PortalFault(status, "busy", *told, progress.share)
