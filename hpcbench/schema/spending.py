"""Amounts of requests, tokens and money, and the budget that limits them; without pydantic, for `status`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

EPSILON = 1e-9
"""Money below this is a rounding error."""


class Amount(NamedTuple):
    """An amount of each kind."""

    requests: float = 0.0
    """Requests that were sent, retries included, and refusals by rate limits left out."""
    tokens: float = 0.0
    """Tokens of prompts and answers, as the engine counts them."""
    cost: float = 0.0
    """Money, in the currency of the models' prices."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Amount:
        """The amount in a record.

        Raises:
            KeyError, TypeError, ValueError: the record is damaged.
        """
        return cls(*(float(record[name]) for name in cls._fields))

    def plus(self, other: Amount) -> Amount:
        """The sum."""
        requests, tokens, cost = other
        return Amount(self.requests + requests, self.tokens + tokens, self.cost + cost)

    def minus(self, other: Amount) -> Amount:
        """The difference."""
        requests, tokens, cost = other
        return Amount(self.requests - requests, self.tokens - tokens, self.cost - cost)

    def times(self, factor: float) -> Amount:
        """A multiple."""
        return Amount(*(factor * one for one in self))

    def least(self, other: Amount) -> Amount:
        """The smaller amount of each kind."""
        return Amount(*map(min, self, other))

    def most(self, other: Amount) -> Amount:
        """The greater amount of each kind."""
        return Amount(*map(max, self, other))

    def whole(self) -> Amount:
        """The same in whole requests and tokens, rounded down: their sums are exact."""
        requests, tokens = (one if math.isinf(one) else float(math.floor(one)) for one in self[:2])
        return Amount(requests, tokens, self.cost)

    def covers(self, other: Amount) -> bool:
        """Whether it is at least as much of each kind."""
        return all(one >= two - EPSILON for one, two in zip(self, other, strict=True))


class BudgetCaps(NamedTuple):
    """The budget of an experiment as a plan or a user states it."""

    max_requests: float | None = None
    """Requests. None: no limit."""
    max_tokens: float | None = None
    """Tokens of prompts and answers. None: no limit."""
    max_cost: float | None = None
    """Money, in the currency of the prices. None: no limit."""

    def changed(self, given: Mapping[str, float]) -> BudgetCaps:
        """The budget with these limits instead, by name; unknown names do not count."""
        return BudgetCaps(**{**self._asdict(), **{n: given[n] for n in self._fields if n in given}})

    @property
    def most(self) -> Amount:
        """The budget as an amount; kinds without a limit are infinite."""
        return Amount(*(math.inf if most is None else most for most in self))

    def only(self, amount: Amount) -> Amount:
        """An amount of the kinds that the budget limits; 0 of all others."""
        return Amount(
            *(0.0 if most is None else one for most, one in zip(self, amount, strict=True))
        )


def in_words(spent: Amount, caps: BudgetCaps, currency: str) -> str:
    """The spent amount and its limits, for people: `1,204 of 5,000 requests, 2.31 of 5 USD`.

    Args:
        spent: the amount.
        caps: its limits.
        currency: currency of its money; empty: it costs none.
    """
    units = ("requests", "tokens", *([currency] if currency else []))
    return ", ".join(
        f"{plain(one)} {unit}" if most is None else f"{plain(one)} of {plain(most)} {unit}"
        for one, most, unit in zip(spent, caps, units, strict=False)
    )


def limits_in_words(caps: BudgetCaps, currency: str) -> str:
    """The limits of a budget, for people: `5,000 requests, 5 USD`."""
    units = ("requests", "tokens", currency)
    limits = zip(caps, units, strict=True)
    return ", ".join(f"{plain(most)} {unit}" for most, unit in limits if most is not None)


def plain(number: float) -> str:
    """`1,204`, `0.00006`: six decimals at most."""
    return f"{number:,.6f}".rstrip("0").rstrip(".")
