"""A keeper's figures as lines of Prometheus' text form, or as one line of a log, written and read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from hpcbench.errors import OTHER_FORM
from hpcbench.schema.token_figures import TokenFigures

_PREFIX = "hpcbench_token_"
_IN_A_LOG = "figures of tokens: "
_NAMES = {
    "longest_seconds": "longest", "fallbacks_total": "fallbacks", "rejected_total": "rejected",
    "waits_total": "waits", "wait_seconds_total": "wait_seconds", "waiting": "waiting",
    "age_seconds": "age", "left_seconds": "left",
}  # fmt: skip
"""Metric → figure, of those without labels."""


def text(figures: TokenFigures) -> str:
    """Its lines: counters since the relay's start, and its token's state now."""
    return "".join(f"{_PREFIX}{name} {value:g}\n" for name, value in _lines(figures))


def _lines(figures: TokenFigures) -> Iterator[tuple[str, float]]:
    for kind in sorted({*figures.granted, *figures.failed}):
        for outcome, counts in (("granted", figures.granted), ("failed", figures.failed)):
            yield f'requests_total{{kind="{kind}",outcome="{outcome}"}}', counts[kind]
        yield f'seconds_total{{kind="{kind}"}}', figures.seconds.get(kind, 0.0)
    for name, figure in _NAMES.items():
        if (value := getattr(figures, figure)) is not None:
            yield name, value
    for state in ("none", "fresh", "stale", "expired"):
        yield f'state{{state="{state}"}}', figures.state == state
    if figures.why is not None:
        yield f'failure_info{{why="{_escaped(figures.why)}"}}', 1


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def read(metrics: str) -> TokenFigures | None:
    """The figures in a relay's lines; None: it keeps no token."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in metrics.splitlines() if line.startswith(_PREFIX)]
    found: dict[str, Any] = {"granted": {}, "failed": {}, "seconds": {}}
    for family in text_string_to_metric_families("\n".join(lines)):
        for one in family.samples:
            name = one.name.removeprefix(_PREFIX)
            if name == "requests_total" and one.value:
                found[one.labels["outcome"]][one.labels["kind"]] = one.value
            elif name == "seconds_total":
                found["seconds"][one.labels["kind"]] = one.value
            elif name == "state" and one.value:
                found["state"] = one.labels["state"]
            elif name == "failure_info":
                found["why"] = one.labels["why"]
            elif name in _NAMES:
                found[_NAMES[name]] = one.value
    return TokenFigures.of(found) if lines else None


def line(figures: TokenFigures) -> str:
    """The same as one line of a log."""
    return _IN_A_LOG + json.dumps(figures.to_json())


def of_log(lines: Iterable[str]) -> TokenFigures | None:
    """The figures in the last such line; None: there is none."""
    found = None
    for one in lines:
        if one.startswith(_IN_A_LOG):
            with contextlib.suppress(*OTHER_FORM):
                found = TokenFigures.of(json.loads(one.removeprefix(_IN_A_LOG)))
    return found
