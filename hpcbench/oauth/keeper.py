"""Keeps the token of one credential for all requests of a process, and renews it in the background.

While a usable token exists, a request takes it without waiting, also while its successor is being asked for.
`Source` says where tokens come from; `Lifecycle` decides when.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from hpcbench.oauth.lifecycle import Lifecycle, Token, any_jitter
from hpcbench.schema.token_figures import TokenFigures

Kind = Literal["full_auth", "refresh_token", "cache"]
"""How a token was got; `cache`: another process had asked for it."""

SAY_SECONDS = 30.0
"""Interval of the lines that say why requests wait."""

GRACE_SECONDS = 2.5
"""Longest wait at the end for the answer to a request for a token; the relay is killed 5 s after SIGTERM."""

_LOG = logging.getLogger("hpcbench.oauth")


class TokenFailed(Exception):
    """There is no token; the message says why, in the server's own words.

    Args:
        message: why.
        wait: seconds that the server asks to wait; None: it says nothing.
        kind: what was asked.
    """

    def __init__(
        self, message: str, *, wait: float | None = None, kind: Kind = "full_auth"
    ) -> None:
        super().__init__(message)
        self.wait, self.kind = wait, kind


class TokenRefused(TokenFailed):
    """The server refuses the credential; waiting does not help."""


@dataclass(frozen=True, slots=True)
class GrantedToken:
    """A token and how it was got."""

    token: Token
    kind: Kind
    fallback: bool = False
    """Whether a full authentication took the place of a refresh token that no longer works."""


class Source(Protocol):
    """Where tokens come from."""

    async def obtain(self, old: str | None, *, full: bool) -> GrantedToken:
        """A token.

        Args:
            old: the access token that needs a successor, which is not to be returned.
            full: the endpoint rejected the old token, so a refresh token is not used.

        Raises:
            TokenFailed: there is none now.
            TokenRefused: there will be none.
        """


class Keeper:
    """One credential's token.

    Args:
        source: where tokens come from.
        jitter: see `Lifecycle`.
        clock: seconds of a clock that never steps and goes on while the machine sleeps.
    """

    def __init__(
        self,
        source: Source,
        jitter: float | None = None,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self.figures = TokenFigures()
        self._source, self._clock = source, clock
        self._life = Lifecycle(any_jitter() if jitter is None else jitter)
        self._failure: TokenFailed | None = None
        """Why the last request for a token failed; None: it did not."""
        self._wake = asyncio.Event()
        self._changed: asyncio.Future[None]
        """Set after the next request for a token, also after a failed one."""
        self._asking = False
        """Whether a request for a token is out."""
        self._waiting = 0
        self._said = float("-inf")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Keeper]:
        """Renew in the background while inside."""
        self._changed = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self._run())
        try:
            yield self
        finally:
            if self._asking:  # without its answer a refresh token would be lost
                await asyncio.wait({self._changed}, timeout=GRACE_SECONDS)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def ready(self) -> str | None:
        """The access token for a request now; None: call `wait`."""
        return self._life.usable(self._clock())

    async def wait(self, patience: float) -> str:
        """The access token, as soon as there is one.

        Args:
            patience: longest wait, seconds.

        Raises:
            TokenRefused: the server refuses the credential.
            TokenFailed: there was no token for so long; says why.
        """
        begin = self._clock()
        self.figures.waits += 1
        self._waiting += 1
        try:
            while True:
                now = self._clock()
                access = self._life.usable(now)
                if access is not None:
                    return access
                if isinstance(self._failure, TokenRefused):
                    raise self._failure
                left = begin + patience - now
                if left <= 0:
                    raise self._failure or TokenFailed(
                        f"the token server has not answered for {patience:g} s"
                    )
                self._wake.set()
                await asyncio.wait({self._changed}, timeout=left)
        finally:
            self._waiting -= 1
            self.figures.wait_seconds += self._clock() - begin

    def reject(self, access: str) -> None:
        """The endpoint answered 401 to a request with this token; if it is the current one, it is dropped."""
        if self._life.rejected(access, self._clock()):
            self.figures.rejected += 1
            self._failure = None
            self._wake.set()

    def accept(self, access: str) -> None:
        """The endpoint answered something else than 401 to a request with this token."""
        self._life.accepted(access)

    def look(self) -> TokenFigures:
        """The counts so far, and the state now."""
        now, token = self._clock(), self._life.token
        return replace(
            self.figures,
            state=self._life.state(now),
            age=None if token is None else now - token.since,
            left=None if token is None else token.expires - now,
            why=None if self._failure is None else str(self._failure),
            waiting=self._waiting,
        )

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            pause = self._life.due() - self._clock()
            if pause <= 0:
                await self._renew()
                continue
            # Not `wait_for`: before Python 3.12 it can swallow our cancellation.
            timer = asyncio.get_running_loop().call_later(pause, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    async def _renew(self) -> None:
        begin, rejected = self._clock(), self._life.replaced
        token = self._life.token
        kind: Kind
        self._asking = True
        try:
            granted = await self._source.obtain(
                rejected or (token.access if token else None), full=rejected is not None
            )
        except TokenFailed as error:
            kind = error.kind
            self._failed(error)
        except Exception as error:  # noqa: BLE001 - the background task must live
            kind = "full_auth"
            self._failed(TokenFailed(f"{type(error).__name__}: {error}"))
        else:
            kind = granted.kind
            self.figures.granted[kind] += 1
            self.figures.fallbacks += granted.fallback
            self._failure = None
            if not self._life.granted(granted.token, self._clock()):
                self._failure = TokenFailed("the token had expired when it came", kind=kind)
        took = self._clock() - begin
        self.figures.seconds[kind] = self.figures.seconds.get(kind, 0.0) + took
        self.figures.longest = max(self.figures.longest, took)
        self._asking = False
        self._changed.set_result(None)
        self._changed = asyncio.get_running_loop().create_future()

    def _failed(self, error: TokenFailed) -> None:
        self._failure = error
        self.figures.failed[error.kind] += 1
        now = self._clock()
        pause = self._life.failed(now, error.wait)
        if now - self._said >= SAY_SECONDS or self._life.failures == 1:
            self._said = now
            held = "requests go on with the present token"
            if self._life.usable(now) is None:
                held = f"requests wait for a token ({self._waiting} of them)"
            _LOG.warning("no new token: %s; %s; next try in %.1f s", error, held, pause)
