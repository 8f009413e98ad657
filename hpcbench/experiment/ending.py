"""How a run task and its experiment ended: one rule, from counts of samples alone.

The counts of `counts.py` decide; samples that `on_failed` or `on_invalid` score as zero raise no count. A run
task without a scored sample is `failed`: it has no value and takes part in no comparison. A run task whose
coverage is below `min_coverage`, or that has work left, is `incomplete`. All other run tasks are `done`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from hpcbench.experiment.view.metrics_json import Scores

RunTaskEnd = Literal["done", "incomplete", "failed"]
ExperimentEnd = Literal["done", "incomplete", "failed", "cancelled"]

NAMED = 2
"""Run tasks whose reason an experiment's reason repeats; further run tasks are only counted."""

LONGEST = 160
"""Characters of a cause that a reason quotes."""

_ENDS = {
    "failed": "requests failed",
    "invalid": "requests were invalid",
    "refused": "requests were refused",
    "missing": "samples were not asked",
}
"""Outcome → the phrase for its samples."""


def why_nothing(table: Scores) -> str:
    """Why a run task has no value: `nothing was scored: 60 of 60 requests were invalid, most often …`."""
    asked = table.asked
    counts = [
        f"{count:,} of {asked:,} {_ENDS[outcome]}"
        for outcome, count in sorted(table.outcomes.items(), key=lambda pair: -pair[1])
        if count and outcome in _ENDS
    ]
    if table.unreadable:
        counts.append(f"{table.unreadable:,} of {asked:,} answers were unreadable")
    if not counts and table.faults:
        first = table.faults[0]
        counts.append(f"{first.metric} could not score {first.count:,} of {asked:,} answers")
    why = ", ".join(counts) or ("no sample was asked" if not asked else "no metric had a value")
    cause = next(_causes(table), "")
    return f"nothing was scored: {why}{f', most often: {cause}' if cause else ''}"


def remarks(tables: Mapping[str, Scores]) -> list[str]:
    """Lines below a table of scores: reasons of dashes, and values that leave out samples."""
    return [
        *(f"– {name}: {why}" for name, table in tables.items() for why in _dashes(table)),
        *(f"! {name}: {why}" for name, table in tables.items() for why in _left_out(table)),
    ]


def _left_out(table: Scores) -> Iterator[str]:
    """Metrics with a value that failed on some samples: the value is of the others only."""
    for name, entry in table.values.items():
        if entry.faults and table.is_scored:
            cause = next((one.message for one in table.faults if one.metric == name), "")
            why = f", most often: {quoted(cause)}" if cause else ""
            yield f"{name} could not score {entry.faults:,} samples, its value leaves them out{why}"

    for name, measured in table.measured.items():
        if measured.without and not measured.why:
            yield f"{name} leaves out {measured.without:,} answers, most often: {measured.reason}"


def _dashes(table: Scores) -> Iterator[str]:
    if not table.is_scored:
        yield why_nothing(table)
        return
    lacking = [name for name, entry in table.metrics.items() if entry is None]
    for name in lacking:
        if name in table.measured:
            yield f"{name} has no value: {table.measured[name].why}"
            continue
        faults = [one for one in table.faults if one.metric == name]
        why = f": {quoted(faults[0].message)}" if faults else ""
        yield f"{name} scored no sample{why}"


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a run task."""

    state: RunTaskEnd
    """`failed`: nothing was scored; `incomplete`: work is left, or too few samples are ok."""
    reason: str
    """Why the run task is not done, for people; empty if it is done."""
    coverage: float
    """ok ÷ (asked + skipped)."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def ending_of(table: Scores, least: float, left: int = 0) -> Ending:
    """How a run task ended.

    Args:
        table: its scores in `metrics.json`; without an evaluation, its counts alone.
        least: the smallest coverage of a done run task.
        left: its unfinished shards.
    """
    counts = table.counts
    ok, whole, share = counts.ok, counts.whole, counts.coverage
    if not table.is_scored:
        return Ending("failed", why_nothing(table), share)
    if share < least:
        cause = next(_causes(table), "")
        why = (
            f"{ok:,} of {whole:,} samples are ok ({_percent(share, least)}), min_coverage requires "
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
            else f"{left} shards are not finished"
        )
        return Ending("incomplete", why, share)
    return Ending("done", "", share)


def experiment_end(
    endings: Mapping[str, Ending], *, cancelled: bool = False
) -> tuple[ExperimentEnd, str]:
    """How an experiment ended, and why it is not done.

    Args:
        endings: run task → how it ended.
        cancelled: a user cancelled the experiment.
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
    reasons = [f"{name} is {one.state}: {one.reason}" for name, one in worst[:NAMED]]
    if len(worst) > NAMED:
        reasons.append(f"and {len(worst) - NAMED} more run tasks")
    return state, "; ".join(reasons)


def _causes(table: Scores) -> Iterator[str]:
    """Error messages of samples that are not ok, the most frequent first."""
    found = [(one.count, one.message) for one in table.errors]
    found += [(one.count, one.reason) for one in table.invalid_reasons]
    if not found:
        found = [(one.count, one.message) for one in table.faults]
    for _, message in sorted(found, key=lambda pair: -pair[0]):
        yield quoted(message)


def quoted(message: str) -> str:
    """A cause as quoted in a reason: one line, cut to `LONGEST`, without its final full stop."""
    line = " ".join(message.split()).rstrip(".")
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 2].rstrip()} …"


def _percent(share: float, least: float) -> str:
    """`70 %`, rounded down near the limit: a share below 90 % must not look like 90 %."""
    shown = round(share * 100, 1)
    return f"{shown if shown < least * 100 else int(share * 1000) / 10:g} %"
