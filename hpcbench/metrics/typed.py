"""Dates, numbers and amounts of money as documents write them, read without guessing.

A text with more than one meaning is not read at all, unless an option decides; a text that is not read is
compared as text. So "1,000" is neither a thousand nor one without `decimal_mark`, and "01/02/2024" no day
without `date_order`; "1,000.50" and "31/01/2024" need no option.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

Kind = Literal["text", "number", "currency", "date", "auto"]
"""Type of a field's values; `auto`: dates and amounts of money where both sides can be read as such."""

DecimalMark = Literal["", "point", "comma"]
DateOrder = Literal["", "dmy", "mdy"]

_LONGEST = 64
"""Characters; no number or date is longer."""

_GROUPED = re.compile(r"[1-9]\d{0,2}(?:(?P<mark>[.,' ])\d{3})(?:(?P=mark)\d{3})*")
_PLAIN = re.compile(r"0|[1-9]\d*")

_SIGNS = {
    "$": "USD CAD AUD NZD MXN SGD HKD",
    "€": "EUR", "£": "GBP", "¥": "JPY CNY", "₽": "RUB", "₴": "UAH", "₸": "KZT", "₹": "INR", "₩": "KRW",
    "元": "CNY", "円": "JPY", "zł": "PLN", "kč": "CZK", "kr": "SEK NOK DKK",
    "руб.": "RUB", "руб": "RUB", "р.": "RUB", "р": "RUB", "рублей": "RUB", "rub.": "RUB", "euro": "EUR",
}  # fmt: skip
"""Currencies a sign can stand for: two amounts agree if theirs have one in common."""

_MONTHS = (
    "jan january янв январь января", "feb february фев февр февраль февраля",
    "mar march мар март марта", "apr april апр апрель апреля", "may май мая",
    "jun june июн июнь июня", "jul july июл июль июля", "aug august авг август августа",
    "sep sept september сен сент сентябрь сентября", "oct october окт октябрь октября",
    "nov november ноя нояб ноябрь ноября", "dec december дек декабрь декабря",
)  # fmt: skip
_MONTH = {name: number for number, names in enumerate(_MONTHS, 1) for name in names.split()}

_ISO = re.compile(r"(\d{4})[-./](\d{1,2})[-./](\d{1,2})(?:[t ][\d:.]+(?:z|[+-][\d:]+)?)?")
_NUMERIC = re.compile(r"(\d{1,2})([-./])(\d{1,2})\2(\d{4}|\d{2})(?: ?г\.?)?")
_DAY_FIRST = re.compile(
    r"(\d{1,2})(?:st|nd|rd|th)?[\s.-]+([^\W\d_]+)\.?,?[\s-]+(\d{4})(?: ?(?:г\.?|года))?"
)
_MONTH_FIRST = re.compile(r"([^\W\d_]+)\.? (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})")


@dataclass(frozen=True, slots=True)
class Money:
    """An amount and what it may be an amount of."""

    amount: Decimal
    currencies: frozenset[str] = frozenset()
    """Codes of ISO 4217; empty: none is named."""

    def agrees(self, other: Money) -> bool:
        """Whether the amounts are equal and the currencies do not differ; no currency fits any."""
        both_named = self.currencies and other.currencies
        return self.amount == other.amount and (
            not both_named or not self.currencies.isdisjoint(other.currencies)
        )


def read_number(text: str, decimal_mark: DecimalMark = "") -> Decimal | None:
    """A number, exact: "1,000.50", "1 000,50", "1'000.5", "−3", "(12.50)" (less than nothing).

    Two kinds of marks: the last is the decimal one. A mark that comes twice parts thousands. A single point
    or comma before exactly three digits can be either, and is what `decimal_mark` says. Numbers that begin
    with a needless 0 are not read: they are codes.
    """
    if len(text) > _LONGEST:
        return None
    text = re.sub(r"\s", " ", unicodedata.normalize("NFKC", text)).strip().replace("’", "'")
    text = text.replace("\N{MINUS SIGN}", "-")
    text, negative = _unsigned(text)
    whole, mark, fraction = _split(text, decimal_mark)
    if mark is None or not text.isascii() or not (fraction or "0").isdigit():
        return None
    grouped = _GROUPED.fullmatch(whole)
    if grouped is not None and grouped["mark"] != mark:
        whole = re.sub(r"\D", "", whole)
    elif not _PLAIN.fullmatch(whole):
        return None
    number = Decimal(f"{whole}.{fraction or 0}")
    return -number if negative else number


def _unsigned(text: str) -> tuple[str, bool]:
    """The text without its sign, and whether it is less than nothing."""
    if text[:1] == "(" and text[-1:] == ")":
        return text[1:-1].strip(), True
    if text[:1] in {"-", "+"}:
        return text[1:].lstrip(), text[0] == "-"
    return text, False


def _split(text: str, decimal_mark: DecimalMark) -> tuple[str, str | None, str]:
    """Whole part with its groups, decimal mark (empty: there is none; None: it is ambiguous), fraction."""
    last = max(text.rfind("."), text.rfind(","))
    if last < 0:
        return text, "", ""
    mark, whole, fraction = text[last], text[:last], text[last + 1 :]
    if mark in whole:  # it comes twice
        return text, "", ""
    other = "," if mark == "." else "."
    either = other not in whole and _GROUPED.fullmatch(text) is not None and whole.isdigit()
    if not either:
        return whole, mark, fraction
    if not decimal_mark:
        return text, None, ""
    if (decimal_mark == "point") == (mark == "."):
        return whole, mark, fraction
    return text, "", ""


def read_money(text: str, decimal_mark: DecimalMark = "") -> Money | None:
    """An amount with or without a currency before or after it: "€ 12.00", "12.00 EUR", "1 000,50 руб."."""
    if len(text) > _LONGEST:
        return None
    text = unicodedata.normalize("NFKC", text).strip().replace("\N{MINUS SIGN}", "-")
    text, negative = _unsigned(text)
    found = re.fullmatch(
        r"(?P<before>[^\d(+-]*)(?P<number>.*[\d)])(?P<after>[^\d)]*)", text, re.DOTALL
    )
    if found is None:
        return None
    before, after = found["before"].strip().lower(), found["after"].strip().lower()
    if before and after:
        return None
    sign = before or after
    currencies = _currencies(sign)
    amount = read_number(found["number"], decimal_mark)
    if amount is None or (sign and not currencies) or (negative and amount < 0):
        return None
    return Money(-amount if negative else amount, currencies)


def _currencies(sign: str) -> frozenset[str]:
    if sign in _SIGNS:
        return frozenset(_SIGNS[sign].split())
    return frozenset({sign.upper()}) if re.fullmatch(r"[a-z]{3}", sign) else frozenset()


def read_date(text: str, order: DateOrder = "") -> date | None:
    """A day: "2024-03-01", "01.03.2024", "1 March 2024", "March 1, 2024", "1 марта 2024 г.".

    Four digits in front: year, month, day (a time of day is left out). With points the day is first, as
    everywhere where dates are written so. With slashes or hyphens the order shows where one of the two is
    greater than 12; where it does not, `order` decides. Years of two digits: 69 to 99 are of the 20th
    century (POSIX).
    """
    if len(text) > _LONGEST:
        return None
    text = " ".join(unicodedata.normalize("NFKC", text).lower().split())
    if found := _ISO.fullmatch(text):
        return _day(*map(int, found.groups()[:3]))
    if found := _NUMERIC.fullmatch(text):
        first, second, year = int(found[1]), int(found[3]), int(found[4])
        if len(found[4]) == 2:
            year += 1900 if year >= 69 else 2000
        order = "dmy" if found[2] == "." or first > 12 else "mdy" if second > 12 else order
        if first == second:  # whichever is the day
            order = "dmy"
        if order == "dmy":
            return _day(year, second, first)
        return _day(year, first, second) if order == "mdy" else None
    if found := _DAY_FIRST.fullmatch(text):
        return _day(int(found[3]), _MONTH.get(found[2], 0), int(found[1]))
    if found := _MONTH_FIRST.fullmatch(text):
        return _day(int(found[3]), _MONTH.get(found[1], 0), int(found[2]))
    return None


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
