"""Figures of several runs: what became of the samples of one in another, and values over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcbench.reporting.charts.names import stem
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
    """What became of the samples of one run in another; None without any.

    Args:
        counts: (outcome in the baseline, outcome in the candidate) → samples.
        baseline: what the left side is called.
        candidate: what the right side is called.
        what: flows, in a word: `outcomes`, the name of a run task.
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
        notes=(f"{moved} of {whole} samples ended otherwise.",),
    )  # fmt: skip


_WORDS = {"no answer": "failed"}
"""End of a sample in `compare --json` → its word in figures."""


def _rank(end: str) -> tuple[int, str]:
    return outcome_rank(_WORDS.get(end, end))


def history(
    what: str, runs: Mapping[str, Sequence[Moment]], unit: str = "", notes: Sequence[str] = ()
) -> Figure | None:
    """A metric or figure over experiments, a line for each of `runs`; changes of level are ringed.

    Args:
        what: is shown, `anls ↑`.
        runs: name, as a rule of the run task → its values, in any order.
        unit: of the values.
        notes: what else must be known.
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
        Axis(what, unit), tuple(series), notes=tuple(notes), marked="the level changed",
    )  # fmt: skip
