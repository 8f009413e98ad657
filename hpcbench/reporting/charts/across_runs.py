"""Figures of several runs: how samples changed from one run to another, and values over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcbench.reporting.charts.figure_names import stem
from hpcbench.reporting.figures import Axis, Figure, Flow, Series
from hpcbench.reporting.figures.style import outcome_rank


@dataclass(frozen=True, slots=True)
class Moment:
    """A value of one experiment, for a time series."""

    time: float
    """Seconds since 1970."""
    experiment: str
    """Its id."""
    value: float | None
    low: float | None = None
    """Lower end of the interval."""
    high: float | None = None
    """Upper end of the interval."""
    changed: bool = False
    """Whether the level changed here."""


def flow(
    counts: Mapping[tuple[str, str], int], baseline: str, candidate: str, what: str = "outcomes"
) -> Figure | None:
    """How samples changed from one run to another; None without samples.

    Args:
        counts: (outcome in the baseline, outcome in the candidate) → samples.
        baseline: label of the left side.
        candidate: label of the right side.
        what: subject of the flows: `outcomes`, the name of a run task.
    """
    pairs = sorted(counts, key=lambda pair: (_rank(pair[0]), _rank(pair[1])))
    flows = tuple(
        Flow(_WORDS.get(one, one), _WORDS.get(other, other), counts[one, other])
        for one, other in pairs
        if counts[one, other]
    )
    if not flows:
        return None
    moved = sum(one.count for one in flows if one.source != one.target)
    whole = sum(one.count for one in flows)
    return Figure(
        stem("flow", candidate, what), f"From {baseline} to {candidate}: {what}", "sankey",
        Axis(baseline), Axis(candidate), flows=flows, outcomes=True,
        notes=(f"{moved} of {whole} samples changed their outcome.",),
    )  # fmt: skip


_WORDS = {"no answer": "failed"}
"""End of a sample in `compare --json` → its word in figures."""


def _rank(end: str) -> tuple[int, str]:
    return outcome_rank(_WORDS.get(end, end))


def history(
    what: str, runs: Mapping[str, Sequence[Moment]], notes: Sequence[str] = ()
) -> Figure | None:
    """A metric or figure over experiments, one line for each of `runs`; changes of level are ringed.

    Args:
        what: the figure's label, `anls ↑`.
        runs: name, usually the run task's → its values, in any order.
        notes: further notes for the reader.
    """
    series = []
    for name, moments in runs.items():
        ordered = sorted(moments, key=lambda one: (one.time, one.experiment))
        if any(one.value is not None for one in ordered):
            series.append(
                Series(
                    name,
                    tuple(one.time for one in ordered),
                    tuple(one.value for one in ordered),
                    tuple(one.low for one in ordered),
                    tuple(one.high for one in ordered),
                    tuple(one.experiment for one in ordered),
                    "line",
                    tuple(one.changed for one in ordered),
                )
            )
    if not series:
        return None
    return Figure(
        stem("history", what), f"{what} over experiments", "line", Axis("time, UTC", scale="time"),
        Axis(what), tuple(series), notes=tuple(notes), marked="the level changed",
    )  # fmt: skip
