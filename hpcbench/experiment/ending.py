"""How a run task ended, and the experiment with it: one rule, from counts of samples alone.

The counts of `counts.py` decide; what `on_failed` or `on_invalid` count as zero raises none of them. A run
task of which no sample was scored is `failed`: it has no value, and no part in any comparison. One whose
coverage is below `min_coverage`, or that has work left, is `incomplete`. All others are `done`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hpcbench.experiment.counts import counts_of

RunTaskEnd = Literal["done", "incomplete", "failed"]
ExperimentEnd = Literal["done", "incomplete", "failed", "cancelled"]

NAMED = 2
"""Run tasks whose reason an experiment's reason repeats; of more it says how many."""

LONGEST = 160
"""Characters of a cause that a reason quotes."""

_ENDS = {
    "failed": "requests failed",
    "invalid": "requests were invalid",
    "refused": "requests were refused",
    "missing": "samples were not asked",
}
"""Outcome → what is said of samples that have it."""


def is_scored(table: Mapping[str, Any]) -> bool:
    """Whether any sample of a run task was scored; without metrics: whether any is ok."""
    entries = table.get("metrics") or {}
    return counts_of(table).ok > 0 and (
        not entries or any(one is not None for one in entries.values())
    )


def as_one_rule(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table by this version's rule. Older ones counted unreadable answers in, and valued nothing as 0."""
    told = {**table, **counts_of(table).to_json()}
    return told if is_scored(told) else without_values(told)


def if_whole(table: Any) -> Any:
    """`as_one_rule` for readers of files that may be damaged: what is no table stays as it is."""
    try:
        return as_one_rule(table)
    except (KeyError, TypeError, ValueError, AttributeError):
        return table


def without_values(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of a run task of which nothing was scored: no metric and no group has a value."""
    none = {"value": None, "low": None, "high": None, "n": 0, "value_if": None}
    return {
        **table,
        "metrics": dict.fromkeys(table.get("metrics") or ()),
        "groups": [
            {**level, "rows": [{**row, **none} for row in level["rows"]]}
            for level in table.get("groups") or ()
        ],
    }


def why_nothing(table: Mapping[str, Any]) -> str:
    """Why a run task has no value: `nothing was scored: 60 of 60 requests were invalid, most often …`."""
    asked = int(table["asked"])
    counts = [
        f"{count:,} of {asked:,} {_ENDS[outcome]}"
        for outcome, count in sorted(table["outcomes"].items(), key=lambda pair: -pair[1])
        if count and outcome in _ENDS
    ]
    if unread := int(table.get("invalid") or 0):
        counts.append(f"{unread:,} of {asked:,} answers were unreadable")
    faults = table.get("faults") or ()
    if not counts and faults:
        first = faults[0]
        counts.append(f"{first['metric']} could not score {first['count']:,} of {asked:,} answers")
    why = ", ".join(counts) or ("no sample was asked" if not asked else "no metric had a value")
    cause = next(_causes(table), "")
    return f"nothing was scored: {why}{f', most often: {cause}' if cause else ''}"


def why_dashes(tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the dashes among scores mean, a line for each run task that has one."""
    return [
        f"– {name}: {why}"
        for name, table in tables.items()
        for why in _dashes(table)
    ]  # fmt: skip


def _dashes(table: Mapping[str, Any]) -> Iterator[str]:
    if not is_scored(table):
        yield why_nothing(table)
        return
    lacking = [name for name, entry in table["metrics"].items() if entry is None]
    for name in lacking:
        faults = [one for one in table.get("faults") or () if one["metric"] == name]
        why = f": {quoted(faults[0]['message'])}" if faults else ""
        yield f"{name} scored no sample{why}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run task ended."""

    state: RunTaskEnd
    """`failed`: nothing was scored; `incomplete`: work is left, or too few samples are ok."""
    reason: str
    """Why it is not done, for people; empty if it is."""
    coverage: float
    """ok ÷ (asked + skipped)."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def ending_of(table: Mapping[str, Any], least: float, left: int = 0) -> Ending:
    """How a run task ended.

    Args:
        table: what `metrics.json` says of it; of one that is not evaluated the counts alone.
        least: the smallest coverage with which it is done.
        left: shards of it that did not come to their end.
    """
    counts = counts_of(table)
    ok, whole, share = counts.ok, counts.whole, counts.coverage
    if not is_scored(table):
        return Ending("failed", why_nothing(table), share)
    if share < least:
        cause = next(_causes(table), "")
        why = (
            f"{ok:,} of {whole:,} samples are ok ({_percent(share, least)}), min_coverage asks for "
        )
        return Ending(
            "incomplete",
            f"{why}{least * 100:g} %{f'; most often: {cause}' if cause else ''}",
            share,
        )
    if left:
        why = (
            f"{counts.unasked:,} of {whole:,} samples were not asked"
            if counts.unasked
            else f"{left} shards did not end"
        )
        return Ending("incomplete", why, share)
    return Ending("done", "", share)


def experiment_end(
    endings: Mapping[str, Ending], *, cancelled: bool = False
) -> tuple[ExperimentEnd, str]:
    """How an experiment ended, and why it is not done.

    Args:
        endings: its run tasks.
        cancelled: somebody cancelled it.
    """
    bad = {name: one for name, one in endings.items() if one.state != "done"}
    if cancelled or not bad:
        return "cancelled" if cancelled else "done", ""
    state: ExperimentEnd = "incomplete"
    if all(one.state == "failed" for one in endings.values()):
        state = "failed"
    if len(endings) == 1:
        return state, next(iter(bad.values())).reason
    worst = sorted(bad.items(), key=lambda item: item[1].state != "failed")
    told = [f"{name} is {one.state}: {one.reason}" for name, one in worst[:NAMED]]
    if len(worst) > NAMED:
        told.append(f"and {len(worst) - NAMED} more run tasks")
    return state, "; ".join(told)


def _causes(table: Mapping[str, Any]) -> Iterator[str]:
    """Messages behind what is not ok, the most frequent first."""
    found = [(one["count"], one["message"]) for one in table.get("errors") or ()]
    found += [(one["count"], one["reason"]) for one in table.get("invalid_reasons") or ()]
    if not found:
        found = [(one["count"], one["message"]) for one in table.get("faults") or ()]
    for _, message in sorted(found, key=lambda pair: -pair[0]):
        yield quoted(str(message))


def quoted(message: str) -> str:
    """A cause as a reason quotes it: one line, cut, without the full stop at its end."""
    line = " ".join(message.split()).rstrip(".")
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 2].rstrip()} …"


def _percent(share: float, least: float) -> str:
    """`70 %`, and never 90 % where it is less: what is short of a limit must not look like it."""
    shown = round(share * 100, 1)
    return f"{shown if shown < least * 100 else int(share * 1000) / 10:g} %"
