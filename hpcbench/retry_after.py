"""When a server wants to be asked again: the header `Retry-After` (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from datetime import timezone
from typing import Final

LONGEST: Final = 1e9
"""Longer waits are cut to this, seconds."""

_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


def seconds(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks to wait; None: it says nothing readable.

    A date counts from the answer's own `Date`, so the server's clock may show anything; without one it counts
    from our clock.

    Args:
        headers: of the answer; names in lower case.
    """
    said = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(said):
        return min(float(said), LONGEST)
    until = _moment(said)
    if until is None:
        return None
    now = _moment(headers.get("date", ""))
    return min(max(0.0, until - (time.time() if now is None else now)), LONGEST)


def _moment(said: str) -> float | None:
    """Seconds since 1970 of one of HTTP's dates, all of which are in UTC; None: it is none."""
    try:
        date = email.utils.parsedate_to_datetime(said)
        return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
