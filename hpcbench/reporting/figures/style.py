"""The style of figures in every form: colours, markers, dashes, and harmless names."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal

from hpcbench.reporting.figures.figure_data import Figure, Series

Theme = Literal["light", "dark"]
"""Theme of the page around the figure."""

INK = "#767e8a"
"""A grey with a contrast above 4 : 1 on white and on the dark page: for drawings on an unknown background."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b87f00", "#2f97d1", "#8a8a00")
"""Okabe and Ito's colours (Color Universal Design, 2008), distinguishable for colour-blind people.

Orange, sky blue and yellow are darker than theirs: each has 3 : 1 (WCAG 2.2, 1.4.11) on white and on the
dark page, so that one drawing serves both.
"""

OUTCOMES = {
    "right": "#009e73",
    "answered": "#009e73",
    "partly right": "#2f97d1",
    "wrong": "#d55e00",
    "unreadable": "#b87f00",
    "answered, cut": "#8a8a00",
    "refused": "#0072b2",
    "bad request": "#2f97d1",
    "failed": "#cc79a7",
    "not asked": "#767e8a",
}
"""Outcomes of samples, from top to bottom of a flow or a legend → its colour, the same in every figure.

Green is right and orange wrong, as on the portal's pages.
"""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""matplotlib's letters."""

SYMBOLS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x")
"""The same markers, in Plotly's words."""

DASHES = ((), (6.0, 2.0), (2.0, 1.6), (7.0, 1.8, 1.6, 1.8))
"""On and off, in multiples of the line width; 4 of them and 7 colours make 28 pairs."""

WORDS = ("solid", "dash", "dot", "dashdot")
"""The same dashes, in Plotly's words."""

SHADES = ("#e8f1f8", "#00507d")
"""Lowest and highest shade of a heatmap: one hue, readable without colour vision, opaque on any page."""

NAMED = 12
"""Series with a colour and a place in the legend; further series are grey."""

ROWS = 60
"""Most categories that a drawing shows."""


@dataclass(frozen=True, slots=True)
class Page:
    """Colours of a page."""

    paper: str
    """The background."""
    ink: str
    """Text and axes."""
    soft: str
    """Grid, and elements without their own colour."""


PAGES: dict[Theme, Page] = {
    "light": Page("#ffffff", "#1c2128", "#767e8a"),
    "dark": Page("#14181d", "#e6e9ed", "#8b94a1"),
}
"""The report's colours."""


def colour(place: int) -> str:
    """Colour of a series, by its place in the figure."""
    return COLOURS[place % len(COLOURS)]


def outcome_rank(name: str) -> tuple[int, str]:
    """Sort key: an outcome's place in a flow or a legend; unknown outcomes come last."""
    known = list(OUTCOMES)
    return (known.index(name) if name in OUTCOMES else len(known), name)


def outcome_colour(name: str) -> str:
    """Colour of an outcome in every figure."""
    return OUTCOMES.get(name, INK)


def blend(one: str, other: str, part: float) -> str:
    """A colour between two; 0: the first."""
    pairs = [(int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)


def luminance(shade: str) -> float:
    """Luminance of a colour, from 0 (black) to 1 (white), as WCAG 2.2 defines it."""
    parts = [int(shade[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast of two colours, from 1 to 21, as WCAG 2.2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def readable_on(paper: str) -> str:
    """Black or white, whichever has more contrast; never below 4.5 : 1."""
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, paper))


def look(place: int) -> tuple[int, int]:
    """Numbers of a series' marker and dash: no two of the first 28 series share all three with the colour."""
    return (place + place // len(MARKERS)) % len(MARKERS), place % len(DASHES)


def clean(text: str) -> str:
    """A name on one line, without characters that a text file cannot hold or that reorder the text around it.

    Control characters, half surrogate pairs and marks of writing direction become one `·`.
    """
    kept = "".join(
        " " if letter in "\n\r\t" else letter if _harmless(letter) else "·" for letter in text
    )
    return re.sub(r" +", " ", re.sub(r"·+", "·", kept)).strip()


def short(text: str, room: int = 44) -> str:
    """A name in at most so many letters: the middle is left out, since names mostly differ at their ends."""
    whole = clean(text)
    if len(whole) <= room:
        return whole
    tail = (room - 1) // 2
    return f"{whole[: room - 1 - tail]}…{whole[-tail:]}"


def shortened(names: Sequence[str], room: int = 44) -> list[str]:
    """Names in at most so many letters; names that differ stay different."""
    found = [short(name, room) for name in names]
    for place, name in enumerate(found):
        if found.count(name) > 1:
            found[place] = f"{short(names[place], room - 5)} #{place + 1}"
    return found


def finite(value: object) -> float | None:
    """A number that can be drawn; None for any other value."""
    if isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < 1e100:
        return float(value)
    return None


def number(value: float | None) -> str:
    """Three significant digits, or all before the point; a dash for none."""
    if value is None:
        return "–"
    if not value:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if not -4 <= size < 9:
        return f"{value:.2e}"
    return f"{value:,.{max(0, 2 - size)}f}"


def moment(seconds: float) -> str:
    """Seconds since 1970 as `2026-11-22 09:09:52`, in UTC; a dash for a time outside the calendar."""
    try:
        return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "–"


def categories(series: Sequence[Series]) -> list[str]:
    """All names on an axis of categories, in order of appearance."""
    return list(dict.fromkeys(str(place) for one in series for place in one.x))


def described(figure: Figure) -> str:
    """Alternative text: the given one, else the kind and amount of data; the notes follow."""
    text = figure.described or _counted(figure)
    return " ".join(clean(part) for part in (text, *figure.notes) if part)


def _counted(figure: Figure) -> str:
    if figure.kind == "sankey":
        return f"{sum(flow.count for flow in figure.flows)} samples, in {len(figure.flows)} flows."
    if figure.matrix is not None:
        return f"{len(figure.matrix.rows)} rows by {len(figure.matrix.columns)} columns of {figure.y.titled}."
    known = [finite(value) for one in figure.series for value in one.y]
    values = [value for value in known if value is not None]
    if not values:
        return "Nothing to show."
    names = ", ".join(short(one.name) for one in figure.series[:NAMED])
    return (
        f"{figure.y.titled} by {figure.x.titled}: {len(values)} values from {number(min(values))} "
        f"to {number(max(values))}, of {names}."
    )


def _harmless(letter: str) -> bool:
    # Cc: controls, Cs: half of a pair, Cf: direction; two of these, the joiners, belong to many scripts.
    return unicodedata.category(letter) not in ("Cc", "Cs", "Cf") or letter in "\u200c\u200d"
