"""When a server wants to be asked again: `Retry-After` (RFC 9110, section 10.2.3), resets of rate limits."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Final

LONGEST: Final = 1e9
"""Longer waits are cut to this, seconds."""

_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
_DURATION = re.compile(r"(?:([0-9]+(?:\.[0-9]+)?)(ms|h|m|s))")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_EPOCH = 1e9  # a reset this large is a moment
_RFC_3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]")


def seconds(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks to wait; None: it says nothing readable.

    Args:
        headers: of the answer; names in lower case.
    """
    return reset(headers.get("retry-after", ""), headers)


def reset(value: str, headers: Mapping[str, str]) -> float | None:
    """Seconds until a rate limit's reset; None: the value has no known form.

    A moment counts from the answer's own `Date`, so the server's clock may show anything; without one it
    counts from our clock.

    Args:
        value: `6m0s`, `20ms`, seconds, seconds or milliseconds since 1970, or a date (RFC 3339, or HTTP's).
        headers: of the answer, for its `Date`; names in lower case.
    """
    text = value.strip()
    if _SECONDS.fullmatch(text):
        number = float(text)
        if number <= _EPOCH:
            return number
        return _left(number / (1000 if number > 1000 * _EPOCH else 1), headers)
    parts = _DURATION.findall(text.lower())
    if parts and "".join(f"{amount}{unit}" for amount, unit in parts) == text.lower():
        return float(sum(float(amount) * _UNITS[unit] for amount, unit in parts))
    until = _moment(text)
    return None if until is None else _left(until, headers)


def is_moment(value: str) -> bool:
    """Whether a reset is a moment of the server's clock, not a duration."""
    text = value.strip()
    return float(text) > _EPOCH if _SECONDS.fullmatch(text) else _moment(text) is not None


def clock(headers: Mapping[str, str]) -> float | None:
    """The server's clock at its answer, seconds since 1970; None: it does not say."""
    return _moment(headers.get("date", ""))


def _left(until: float, headers: Mapping[str, str]) -> float:
    """Seconds to a moment, by the clock of the server that said it."""
    now = clock(headers)
    return min(max(0.0, until - (time.time() if now is None else now)), LONGEST)


def _moment(said: str) -> float | None:
    """Seconds since 1970 of a date of HTTP or RFC 3339, in UTC unless it has a zone; None: it is none."""
    try:
        if _RFC_3339.match(said):
            date = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", said))
        else:
            date = email.utils.parsedate_to_datetime(said)
        return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
