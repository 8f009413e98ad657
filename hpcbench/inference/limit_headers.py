"""The limits in the headers of a gateway's answer, in the spellings that are in use.

    x-ratelimit-remaining-requests, -tokens          OpenAI, Azure
    anthropic-ratelimit-requests-remaining           Anthropic
    x-ratelimit-remaining, ratelimit-remaining       Envoy, Kong, drafts 3 to 6 of the IETF: requests
    ratelimit: "default";r=5;t=30                    newer drafts (draft-ietf-httpapi-ratelimit-headers)

`-limit` and `-reset` are spelt alike. A limit may be followed by its policy (Envoy: `10, 10;w=1`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hpcbench import retry_after

KINDS = ("requests", "tokens")
"""Kinds of limits."""

_SPELLINGS = {
    "requests": (
        "x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}", "x-ratelimit-{}", "ratelimit-{}",
    ),
    "tokens": ("x-ratelimit-{}-tokens", "anthropic-ratelimit-tokens-{}"),
}  # fmt: skip
_UNIT = re.compile(r';\s*qu\s*=\s*"?([\w-]+)')
"""The unit of a policy: requests, `content-bytes`, `concurrent-requests`."""
_PARAMETER = re.compile(r"(\w+)\s*=\s*\"?([\d.]+)")


class RateLimit(NamedTuple):
    """One limit, by an answer."""

    kind: str
    """`requests` or `tokens`."""
    remaining: float
    """The rest."""
    limit: float | None
    """The most; None: it is not said."""
    reset: float
    """Seconds until all of it is back."""


def read(headers: Mapping[str, str]) -> Iterator[RateLimit]:
    """The limits in an answer's headers, at most one of each kind; names are in lower case.

    A limit of 0 means that there is no limit: some gateways write it so.
    """
    for kind in KINDS:
        found = next(filter(None, (_spelt(headers, kind, one) for one in _SPELLINGS[kind])), None)
        if found is None and kind == "requests":
            found = _draft(headers)
        if found is not None and found.limit != 0:
            yield found


def _spelt(headers: Mapping[str, str], kind: str, name: str) -> RateLimit | None:
    said = headers.get(name.format("remaining"))
    if said is None:
        return None
    remaining = number(said)
    reset = retry_after.reset(headers.get(name.format("reset"), ""), headers)
    if remaining is None or reset is None:
        return None
    limit = number(re.split("[,;]", headers.get(name.format("limit"), ""))[0])
    return RateLimit(kind, remaining, limit, reset)


def _draft(headers: Mapping[str, str]) -> RateLimit | None:
    """`"name";r=5;t=30`, or `remaining=5, reset=30`.

    The policy with the smallest rest counts; if two have as little, that with the later reset.
    """
    said = headers.get("ratelimit", "")
    policies = {_name(one): one for one in headers.get("ratelimit-policy", "").split(",")}
    found = []
    for one in [said] if "remaining" in said else said.split(","):
        stated = policies.get(_name(one), "")
        if (unit := _UNIT.search(f"{one};{stated}")) and unit[1] not in ("request", "requests"):
            continue
        values, policy = _values(one), _values(stated)
        remaining = values.get("remaining", values.get("r"))
        reset = values.get("reset", values.get("t", policy.get("w")))
        if remaining is not None and reset is not None:
            limit = values.get("limit", policy.get("q"))
            found.append(RateLimit("requests", remaining, limit, reset))
    return min(found, key=lambda one: (one.remaining, -one.reset), default=None)


def _name(item: str) -> str:
    return item.split(";")[0].strip().strip('"')


def _values(item: str) -> dict[str, float]:
    found = ((name, number(value)) for name, value in _PARAMETER.findall(item.lower()))
    return {name: value for name, value in found if value is not None}


def number(value: str) -> float | None:
    """A number that is not negative; None: it is none."""
    try:
        found = float(value)
    except ValueError:
        return None
    return found if 0 <= found < math.inf else None
