"""Formats of numbers for readers, in one place, and the order of names with numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

DASH = "–"
"""Printed for an unknown value."""


def value(number: float | None) -> str:
    """A metric's value: `0.912`, `34.21`; three digits after the point, two from 10 on."""
    if number is None or not math.isfinite(number):
        return DASH
    return f"{number:.{_digits(number)}f}"


def interval(low: float | None, high: float | None, *, sign: bool = False) -> str:
    """A metric's interval: `[0.874, 0.950]`, both ends with as many digits; a dash where an end is unknown.

    Args:
        low, high: its ends.
        sign: print signs, for a difference: `[-0.012, +0.034]`.
    """
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return DASH
    digits, plus = _digits(max(abs(low), abs(high))), "+" if sign else ""
    return f"[{low:{plus}.{digits}f}, {high:{plus}.{digits}f}]"


def value_with_interval(number: float | None, low: float | None, high: float | None) -> str:
    """`0.912 [0.874, 0.950]`; without the interval where its ends are unknown."""
    ends = interval(low, high)
    return value(number) if number is None or ends == DASH else f"{value(number)} {ends}"


def difference(number: float | None) -> str:
    """A difference of two values of a metric, `+0.012`."""
    if number is None or not math.isfinite(number):
        return DASH
    return f"{number:+.{_digits(number)}f}"


def share(number: float | None) -> str:
    """A share of a whole: `97.5 %`; a value just below 100 % or above 0 % is never `100.0 %` or `0.0 %`."""
    if number is None or not math.isfinite(number):
        return DASH
    text = f"{number * 100:.1f}"
    if text == "100.0" and number < 1:
        text = "> 99.9"
    elif text == "0.0" and number > 0:
        text = "< 0.1"
    return f"{text} %"


def percent(part: float, digits: int = 0, *, sign: bool = False) -> str:
    """A stated or assumed share, or a relative change: `30 %`, `+31.0 %`; `share` is for measured ones.

    Args:
        part: 0.3 is 30 %.
        digits: digits after the point.
        sign: print the sign.
    """
    return f"{part * 100:{'+' if sign else ''}.{digits}f} %"


def p_value(number: float | None) -> str:
    """`< 0.001`, `0.042`."""
    if number is None:
        return DASH
    return "< 0.001" if number < 0.001 else f"{number:.3f}"


def why_inconclusive(comparison: Mapping[str, Any], level: str) -> str | None:
    """Why a comparison decides nothing: its p-value beside the level to reach.

    Args:
        comparison: a `statistics.Comparison` as plain data.
        level: name of the level: `the level of this look`.

    Returns:
        The reason; None where the comparison is conclusive.
    """
    if comparison["verdict"] != "inconclusive":
        return None
    interval, margin = comparison["interval"], comparison["margin"]
    if interval["low"] is None or interval["high"] is None:
        return f"there is no interval: {interval['method']}"
    adjusted = comparison["p_adjusted"]
    p = comparison["p_value"] if adjusted is None else adjusted
    why = f"p = {p:.4g} is above {1 - interval['level']:.4g}, {level}"
    if excludes_zero(interval):
        why += "; the interval excludes 0, but `better` and `worse` also need the p-value"
    if margin is not None:
        why += f"; the interval is not within ± {margin:g}"
    return why


def excludes_zero(interval: Mapping[str, Any]) -> bool:
    """Whether an interval of a difference excludes 0."""
    low, high = interval["low"], interval["high"]
    return low is not None and high is not None and not low <= 0 <= high


def figure(number: float | None) -> str:
    """A measured figure: three significant digits, or all digits before the point: `0.0123`, `12,345`."""
    if number is None or not math.isfinite(number):
        return DASH
    if not number:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:,.{digits}f}"


def four_digits(number: float, *, sign: bool = False) -> str:
    """Four significant digits, never with an exponent: `547.1`, `24,370`, `0.0001234`."""
    from decimal import Decimal  # few callers need it

    return f"{Decimal(f'{number:.4g}'):{'+' if sign else ''},f}"


def figure_with_interval(number: float | None, low: float | None, high: float | None) -> str:
    """`12.1 [11.8, 12.6]`; without the interval where its ends are unknown."""
    if number is None or (low is None and high is None):
        return figure(number)
    return f"{figure(number)} [{figure(low)}, {figure(high)}]"


def count(number: int | None) -> str:
    """`12,345`."""
    return DASH if number is None else f"{number:,}"


def gib(size: float | None) -> str:
    """Bytes as GiB, `39.42`."""
    return DASH if size is None else f"{size / 2**30:.2f}"


def hours(number: float | None) -> str:
    """Hours: three digits after the point, one for large figures; a dash for None."""
    if not number:
        return DASH
    return f"{number:.1f}" if number >= 100 else f"{number:.3f}"


def seconds(number: float | None) -> str:
    """A duration for readers: `38 s`, `4 min 10 s`, `2 h 05 min`."""
    if number is None:
        return DASH
    whole = round(number)
    if whole < 120:
        return f"{whole} s"
    if whole < 2 * 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def duration(number: float) -> str:
    """A duration in one unit: `40 s`, `12 min`, `3.5 h`, `2.5 days`."""
    if number < 90:
        return f"{max(0.0, number):.0f} s"
    if number < 7200:
        return f"{number / 60:.0f} min"
    return f"{number / 3600:.1f} h" if number < 48 * 3600 else f"{number / 86400:.1f} days"


def arrow(*, higher_is_better: bool) -> str:
    """The direction in which a metric is better."""
    return "↑" if higher_is_better else "↓"


def metric(name: str, unit: str, *, higher_is_better: bool) -> str:
    """A metric with its unit, if it has one, and its better direction: `anls ↑`, `ttft_p50, ms ↓`."""
    shown = f"{name}, {unit}" if unit else name
    return f"{shown} {arrow(higher_is_better=higher_is_better)}"


def _digits(number: float) -> int:
    return 3 if abs(number) < 10 else 2


def many(number: int, what: str) -> str:
    """A number with its noun: `1 sample`, `2 samples`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def few(names: Sequence[str], most: int) -> str:
    """The first of many names: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def in_order(name: str) -> list[tuple[int, str]]:
    """A sort key for names with numbers: page 2 before page 10."""
    parts = re.split("([0-9]+)", name)
    return [
        (len(one.lstrip("0")) if place % 2 else 0, one.lstrip("0") if place % 2 else one)
        for place, one in enumerate(parts)
    ]
