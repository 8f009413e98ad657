"""Equality of two amounts of money, whatever their form: `1 234,50 €` is `EUR 1,234.50`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

_NUMBER = re.compile(r"[-−]?\d[\d\s.,'’]*")
_CURRENCIES = {
    "€": "EUR",
    "$": "USD",
    "£": "GBP",
    "¥": "JPY",
    "₽": "RUB",
    "руб": "RUB",
    "rub": "RUB",
}


def amount(text: str) -> Decimal | None:
    """The first amount in a text; None if there is none.

    The last of `.` and `,` parts the cents if one or two digits follow it, else the thousands.
    """
    found = _NUMBER.search(text.replace("\u00a0", " ").replace("\u202f", " "))
    if found is None:
        return None
    digits = re.sub(r"[\s'’]", "", found.group().replace("−", "-")).rstrip(".,")
    whole, mark, cents = digits, "", ""
    if match := re.fullmatch(r"(.*)([.,])(\d{1,2})", digits):
        whole, mark, cents = match.groups()
    return Decimal(re.sub(r"[.,]", "", whole) + (f".{cents}" if mark else ""))


def currency(text: str) -> str | None:
    """The currency named in a text by its sign or code; None if none is."""
    code = re.search(r"\b[A-Z]{3}\b", text)
    named = (name for sign, name in _CURRENCIES.items() if sign in text.lower() or sign in text)
    return code.group() if code else next(named, None)


@dataclass(frozen=True)
class Parts:
    """Values of one sample for the metric."""

    numerator: float
    denominator: float


@dataclass(frozen=True)
class AmountMatch:
    """1 for an equal amount, else 0; the mean over samples."""

    api: ClassVar[int] = 1
    name: ClassVar[str] = "amount_match"
    higher_is_better: ClassVar[bool] = True
    aggregation: ClassVar[str] = "mean"
    bounds: ClassVar[tuple[float, float | None]] = (0.0, 1.0)
    accepts: ClassVar[tuple[str, ...]] = ("text", "label")

    currency: bool = False
    """Whether the currency must be equal too, where the reference names one."""

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Compare with each reference; one that is no amount is compared as text."""
        right = any(self._equal(prediction, str(reference)) for reference in references)
        return Parts(float(right), 1.0)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        return sum(part.numerator for part in parts) / len(parts)

    @property
    def signature(self) -> str:
        return f"amount_match|currency:{'compared' if self.currency else 'ignored'}|v1"

    def _equal(self, prediction: object, reference: str) -> bool:
        if not isinstance(prediction, str):
            return False
        wanted = amount(reference)
        if wanted is None:
            return prediction.strip() == reference.strip()
        if self.currency and currency(reference) not in (None, currency(prediction)):
            return False
        return amount(prediction) == wanted
