"""The token of one credential: when it is fresh, stale or expired, and when the next request for one is due.

Everything that changes the state is in `Lifecycle`; it does no input or output and reads no clock.

    none ──── granted ───► fresh ─── time ───► stale ─── time ───► expired
     ▲                       ▲                   │                    │
     └────── rejected        └───── granted ─────┴──── granted ───────┘

- fresh: requests use it.
- stale: requests still use it; a request for its successor is due.
- none, expired: requests wait.

Moments are seconds of one clock that never steps. A token's time begins when the request for it was sent,
so by the server's count it never ends earlier.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal

State = Literal["none", "fresh", "stale", "expired"]

MARGIN_SECONDS = 300.0
"""A token is stale this long before its end, or for a share of its lifetime if that is shorter."""
MARGIN_SHARE = 0.25

LEEWAY_SECONDS = 5.0
"""A token counts as expired this long before its end, or a share of its lifetime: requests take time."""
LEEWAY_SHARE = 0.1

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Pauses after the first failure in a row, and the longest one, seconds."""


@dataclass(frozen=True, slots=True)
class Token:
    """An access token."""

    access: str
    since: float
    """The moment before the request for it was sent."""
    lifetime: float
    """Seconds from `since` to its end; positive and finite."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lifetime) and self.lifetime > 0):
            raise ValueError(f"a lifetime of {self.lifetime} s")

    @property
    def expires(self) -> float:
        """From this moment on no request uses it."""
        return self.since + self.lifetime - min(LEEWAY_SECONDS, LEEWAY_SHARE * self.lifetime)

    def stale(self, jitter: float = 0.0) -> float:
        """From this moment on its successor is due; `jitter` (0 to 1) moves it by up to half a margin."""
        margin = min(MARGIN_SECONDS, MARGIN_SHARE * self.lifetime)
        return self.since + self.lifetime - margin * (1 + jitter / 2)

    def state(self, now: float, jitter: float = 0.0) -> State:
        """Its state at a moment."""
        if now >= self.expires:
            return "expired"
        return "stale" if now >= self.stale(jitter) else "fresh"


class Lifecycle:
    """The state of one credential.

    Args:
        jitter: 0 to 1, another number on each node: nodes then renew at different moments.
    """

    def __init__(self, jitter: float = 0.0) -> None:
        if not 0 <= jitter <= 1:
            raise ValueError(f"jitter {jitter}")
        self._jitter = jitter
        self.token: Token | None = None
        self.replaced: str | None = None
        """The access token that the server rejected, until another one is granted."""
        self.failures = 0
        """Failed requests for a token since the last granted one."""
        self._not_before = -math.inf
        self._expires = -math.inf
        self._rejections = 0
        """Tokens rejected in a row, without an accepted request between them."""
        self._kept_until = -math.inf
        """Until then a rejection does not drop the token: its predecessor was just rejected, too."""

    def usable(self, now: float) -> str | None:
        """The access token for a request at this moment; None: the request has to wait."""
        # Every request comes through here.
        return self.token.access if now < self._expires and self.token is not None else None

    def state(self, now: float) -> State:
        """The state at this moment."""
        return "none" if self.token is None else self.token.state(now, self._jitter)

    def due(self) -> float:
        """The moment from which the next request for a token may be sent."""
        stale = -math.inf if self.token is None else self.token.stale(self._jitter)
        return max(stale, self._not_before)

    def granted(self, token: Token, now: float) -> bool:
        """There is another token; returns whether it can be used: a slow answer may bring an expired one."""
        if now >= token.expires:
            self.failed(now)
            return False
        self.token, self._expires = token, token.expires
        self.replaced, self.failures = None, 0
        # A token that is stale on arrival does not make requests for tokens follow each other at once.
        self._not_before = now + MARGIN_SHARE * min(token.lifetime, MARGIN_SECONDS) / 2
        if self._rejections:
            self._kept_until = now + min(
                LONGEST_PAUSE, FIRST_PAUSE * (1 << min(self._rejections, 10))
            )
        return True

    def failed(self, now: float, wait: float | None = None) -> float:
        """A request for a token failed; returns the pause until the next one, seconds.

        Args:
            now: this moment.
            wait: what the server asks for (`Retry-After`), at least; None: nothing.
        """
        self.failures += 1
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * (1 << min(self.failures - 1, 10)))
        pause *= 1 - self._jitter / 2
        pause = max(pause, min(wait or 0.0, LONGEST_PAUSE))
        self._not_before = now + pause
        return pause

    def rejected(self, access: str, now: float) -> bool:
        """The endpoint answered 401 to a request with this token; returns whether that drops the token.

        A token that has a successor is not dropped: that request was on its way when the successor came. Nor
        is a new one soon after its predecessor was rejected: an endpoint that rejects every token costs a
        request for a token only now and then.
        """
        if self.token is None or self.token.access != access or now < self._kept_until:
            return False
        self.token, self._expires, self.replaced = None, -math.inf, access
        self._not_before = min(self._not_before, now) if not self.failures else self._not_before
        self._rejections += 1
        return True

    def accepted(self, access: str) -> None:
        """The endpoint answered something else than 401 to a request with this token."""
        if self._rejections and self.token is not None and self.token.access == access:
            self._rejections, self._kept_until = 0, -math.inf


def any_jitter() -> float:
    """A jitter for this process."""
    return random.uniform(0, 1)  # noqa: S311 - spreads requests, protects nothing
