"""Figures of the tokens of a model elsewhere: relays count them, workers log them, all others read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hpcbench.number_format import many


@dataclass(kw_only=True)
class TokenFigures:
    """Work for the tokens of a model by one relay, or by several, and the state of the last relay's token."""

    granted: Counter[str] = field(default_factory=Counter)
    """Kind (`full_auth`, `refresh_token`, `cache`) → tokens got."""
    failed: Counter[str] = field(default_factory=Counter)
    """Kind → failed requests for a token."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Kind → seconds that the requests for tokens took, failed ones included."""
    longest: float = 0.0
    """Seconds of the longest request for a token."""
    fallbacks: int = 0
    """Refresh tokens that no longer worked, with a full authentication in their place."""
    rejected: int = 0
    """Tokens that the endpoint answered with 401."""
    waits: int = 0
    """Requests that had to wait for a token."""
    wait_seconds: float = 0.0
    """Seconds that they waited, summed."""
    oldest: float = 0.0
    """Greatest age of a token, seconds, by the worker's looks."""
    waiting: int = 0
    """Requests that wait now."""
    state: str = "none"
    """State of the token, see `oauth.lifecycle`."""
    age: float | None = None
    """Its age, seconds."""
    left: float | None = None
    """Seconds to its end."""
    why: str | None = None
    """Reason why the last request for a token failed."""
    time: float | None = None
    """Time of the event, seconds since the epoch by the worker's clock."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> TokenFigures:
        """The figures in an event, or in a line of a log; missing ones are as at the start.

        Raises:
            AttributeError, TypeError, ValueError: the record is damaged.
        """
        found = cls(state=str(record.get("state", "none")))
        for name in ("granted", "failed", "seconds"):
            kind = float if name == "seconds" else int
            getattr(found, name).update(
                {str(key): kind(one) for key, one in record.get(name, {}).items()}
            )
        for name in ("fallbacks", "rejected", "waits", "waiting"):
            setattr(found, name, int(record.get(name, 0)))
        for name in ("longest", "wait_seconds", "oldest"):
            setattr(found, name, float(record.get(name, 0.0)))
        found.why = record.get("why")
        for name in ("age", "left", "time"):
            setattr(found, name, None if (one := record.get(name)) is None else float(one))
        return found

    def to_json(self) -> dict[str, Any]:
        """As an event has them: without what is not known, seconds to the millisecond."""
        known = ((one.name, getattr(self, one.name)) for one in fields(self))
        whole = {name: one for name, one in known if one is not None}
        return {name: _rounded(one) for name, one in whole.items()}

    def then(self, later: TokenFigures) -> TokenFigures:
        """The figures of this relay and of a later one, or another worker's, together."""
        kinds = {**self.seconds, **later.seconds}
        return TokenFigures(
            granted=self.granted + later.granted,
            failed=self.failed + later.failed,
            seconds={
                kind: self.seconds.get(kind, 0.0) + later.seconds.get(kind, 0.0) for kind in kinds
            },
            longest=max(self.longest, later.longest),
            fallbacks=self.fallbacks + later.fallbacks,
            rejected=self.rejected + later.rejected,
            waits=self.waits + later.waits,
            wait_seconds=self.wait_seconds + later.wait_seconds,
            oldest=max(self.oldest, later.oldest),
            waiting=later.waiting,
            state=later.state,
            age=later.age,
            left=later.left,
            why=later.why,
        )

    def in_words(self) -> str:
        """`fresh; got 3 by full_auth, 1 by cache; 2 requests failed, 1 fallback`."""
        got = ", ".join(f"{count} by {kind}" for kind, count in self.granted.items())
        failed = self.failed.total()
        more = [f"{many(failed, 'request')} failed"] if failed else []
        more += [many(self.fallbacks, "fallback")] if self.fallbacks else []
        more += [f"{self.rejected} rejected"] if self.rejected else []
        more += [f"oldest {self.oldest:,.0f} s"] if self.oldest else []
        return "; ".join(filter(None, (self.state, f"got {got}" if got else "", ", ".join(more))))


def _rounded(one: Any) -> Any:
    if isinstance(one, Mapping):
        return {key: _rounded(value) for key, value in sorted(one.items())}
    return round(one, 3) if isinstance(one, float) else one
