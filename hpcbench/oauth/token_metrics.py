"""A keeper's counts as lines of Prometheus' text form, or as one line of a log, written and read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # who adds figures up needs no keeper
    from hpcbench.oauth.keeper import Keeper

_PREFIX = "hpcbench_token_"
_IN_A_LOG = "figures of tokens: "
_SUMMED = ("fallbacks", "rejected", "waits", "wait_seconds")
_BY_KIND = ("granted", "failed", "seconds")
_COUNTS = frozenset({"fallbacks", "rejected", "waits", "waiting"})


def text(keeper: Keeper) -> str:
    """The lines of a keeper: counters since its start, and its token's state now."""
    return "".join(f"{name} {value:g}\n" for name, value in _lines(keeper))


def _lines(keeper: Keeper) -> Iterator[tuple[str, float]]:
    done, now = keeper.figures, keeper.status()
    for kind in sorted({*done.granted, *done.failed}):
        for outcome, counts in (("granted", done.granted), ("failed", done.failed)):
            yield (
                f'hpcbench_token_requests_total{{kind="{kind}",outcome="{outcome}"}}',
                counts[kind],
            )
        yield f'hpcbench_token_seconds_total{{kind="{kind}"}}', done.seconds.get(kind, 0.0)
    yield "hpcbench_token_longest_seconds", done.longest
    yield "hpcbench_token_fallbacks_total", done.fallbacks
    yield "hpcbench_token_rejected_total", done.rejected
    yield "hpcbench_token_waits_total", done.waited
    yield "hpcbench_token_wait_seconds_total", done.wait_seconds
    yield "hpcbench_token_waiting", now["waiting"]
    for state in ("none", "fresh", "stale", "expired"):
        yield f'hpcbench_token_state{{state="{state}"}}', now["state"] == state
    if now["age"] is not None:
        yield "hpcbench_token_age_seconds", now["age"]
        yield "hpcbench_token_left_seconds", now["left"]
    if now["why"] is not None:
        yield f'hpcbench_token_failure_info{{why="{_escaped(now["why"])}"}}', 1


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def read(metrics: str) -> dict[str, Any] | None:
    """The figures in a relay's lines; None: it keeps no token.

    Returns:
        `granted`, `failed`, `seconds` by kind; `longest`, `fallbacks`, `rejected`, `waits`, `wait_seconds`,
        `waiting`, `state`, `age`, `left`, `why`; what has no line is left out.
    """
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in metrics.splitlines() if line.startswith(_PREFIX)]
    found: dict[str, Any] = {"granted": {}, "failed": {}, "seconds": {}}
    for family in text_string_to_metric_families("\n".join(lines)):
        for one in family.samples:
            name = one.name.removeprefix(_PREFIX).removesuffix("_total")
            if name == "requests" and one.value:
                found[one.labels["outcome"]][one.labels["kind"]] = int(one.value)
            elif name == "seconds":
                found["seconds"][one.labels["kind"]] = round(one.value, 3)
            elif name == "state":
                found |= {"state": one.labels["state"]} if one.value else {}
            elif name == "failure_info":
                found["why"] = one.labels["why"]
            elif name in _COUNTS:
                found[name] = int(one.value)
            elif name != "requests":
                found[name.removesuffix("_seconds") if name != "wait_seconds" else name] = round(
                    one.value, 3
                )
    return found if lines else None


def line(keeper: Keeper) -> str:
    """The figures of a keeper as one line of a log."""
    return _IN_A_LOG + json.dumps(read(text(keeper)))


def of_log(lines: Iterable[str]) -> dict[str, Any] | None:
    """The figures in the last such line, as `read` returns them; None: there is none."""
    found = None
    for one in lines:
        if one.startswith(_IN_A_LOG):
            with contextlib.suppress(ValueError):
                found = json.loads(one.removeprefix(_IN_A_LOG))
    return found if isinstance(found, dict) else None


def added(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of two relays, or of two workers, together: counts are summed, longest and oldest stay."""
    whole = dict(now)
    for name in _BY_KIND:
        one, two = before.get(name, {}), now.get(name, {})
        whole[name] = {
            kind: round(one.get(kind, 0) + two.get(kind, 0), 3) for kind in sorted({*one, *two})
        }
    for name in _SUMMED:
        whole[name] = round(before.get(name, 0) + now.get(name, 0), 3)
    for name in ("longest", "oldest"):
        whole[name] = max(before.get(name, 0), now.get(name, 0))
    return whole
