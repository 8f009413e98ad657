"""Numbers with what they count, as answers write them: "$1,000", "1 000,50 ₽", "12.5 kg", "5 %".

Digits are `typed.read_number`'s; where a single mark is before exactly three digits and could be either,
charts and English answers are what is read: "1,000" is a thousand, "1.000" is one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcbench.metrics.typed import read_number

_LONGEST = 100
"""Characters of a numeral with its unit, at most; what is longer is a text."""
_CURRENCY = "$¢£¤¥฿₠-⃏"
_NUMERAL = re.compile(
    rf"(?P<sign>[-+−]?)\s*(?P<before>[{_CURRENCY}]?)\s*(?P<inner>[-+−]?)"
    r"(?P<digits>\d(?:[\d.,\s'’]*\d)?)\.?\s*(?P<after>\D*)"
)
_SCIENTIFIC = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d{1,3}")


@dataclass(frozen=True, slots=True)
class Numeral:
    """A number with what it counts."""

    value: float
    unit: str = ""
    """Currency sign or unit, in lower case; empty: none is named. A percent sign is in the value."""

    def fits(self, other: Numeral) -> bool:
        """Do both count the same: one of them names no unit, or both the same one."""
        return not self.unit or not other.unit or self.unit == other.unit


def read_numeral(text: str) -> Numeral | None:
    """The number that a text starts with, where the rest is a currency or unit without digits; else None.

    "$1,000", "1 000 ₽", "−12,5 kg", "5 %" (0.05), "1e3". No number is looked for inside prose.
    """
    text = text.strip()
    if len(text) > _LONGEST:
        return None
    if _SCIENTIFIC.fullmatch(text):
        return Numeral(float(text))
    found = _NUMERAL.fullmatch(text)
    if found is None or (found["sign"] and found["inner"]):
        return None
    number = read_number(found["digits"], "point")
    if number is None:
        return None
    value = float(number)
    if (found["sign"] or found["inner"]) in {"-", "−"}:
        value = -value
    before, after = found["before"], found["after"].strip().lower()
    if after.startswith("%"):
        value, after = value / 100, after[1:].strip()
    if before and after and before != after:
        return None
    return Numeral(value, before or after)
