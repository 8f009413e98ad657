"""Runs held against each other, and what they did differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hpcbench.portal.models.base import Model


class CompareSide(Model):
    """One of the runs compared."""

    run: str
    """As requests name it: `EXPERIMENT` or `EXPERIMENT:RUN_TASK`."""
    experiment: str
    """Its experiment's id."""
    run_task: str | None = None
    """Only this run task of it; None: all."""
    plan: str
    """Its plan."""
    models: tuple[str, ...]
    """Its models."""
    created: float
    """When it was submitted."""


class MetricCompared(Model):
    """One metric of a pair of run tasks."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str
    """Its name."""
    signature: str
    """With its options."""
    higher_is_better: bool
    """Of the metric."""
    values: tuple[float | None, float | None]
    """Baseline's and candidate's."""
    difference: float | None
    """Candidate minus baseline over the pairs."""
    low: float | None
    """Lower end of its interval."""
    high: float | None
    """Upper end."""
    p: float | None
    """After Holm over all."""
    verdict: str
    """better, worse, equivalent, inconclusive."""
    n: int
    """Pairs."""
    documents: int
    """Documents they belong to."""
    won: int
    """Samples that the candidate did better."""
    lost: int
    """Samples that it did worse."""
    tied: int
    """Samples that they did alike."""
    both_right: int
    """Of the tied, those with the best value."""
    both_wrong: int
    """Of the tied, those without."""
    only: tuple[int, int] = (0, 0)
    """Samples that only the baseline has scored, and only the candidate; they take no part."""
    detectable: float | None = None
    """Where it is inconclusive: a true difference that would be found in 80 % of cases."""
    if_worst: str | None = None
    """The verdict if what only one of them has scored counted as the worst; None: nothing was left out so."""
    differs: tuple[str, ...]
    """What else is not the same in both."""


class Candidate(Model):
    """A run held against the baseline."""

    side: CompareSide
    """Which."""
    metrics: tuple[MetricCompared, ...]
    """Every metric that both have."""
    refused: tuple[Mapping[str, Any], ...]
    """What cannot be compared: `baseline`, `candidate`, `metric`, `why`, `remedy`."""
    careful: tuple[str, ...]
    """What to know before believing it."""
    speed: tuple[Mapping[str, Any], ...]
    """Figures of speed and memory as `compare --json` has them."""
    speed_careful: tuple[str, ...]
    """Why figures of some run tasks are not comparable, with the run tasks."""
    speed_notes: tuple[str, ...]
    """What to know of them."""
    differences: tuple[Mapping[str, Any], ...]
    """Configuration: `path`, `one`, `other`."""


class Comparison(Model):
    """Two to eight runs, the first one the baseline."""

    baseline: CompareSide
    """What the others are held against."""
    candidates: tuple[Candidate, ...]
    """The others."""


class FlipRow(Model):
    """A sample that two runs did differently (or alike, if asked)."""

    sample: str
    """Its id."""
    document: str
    """The document it belongs to."""
    change: Literal["won", "lost", "both_right", "both_wrong"]
    """What the candidate did."""
    scores: tuple[float | None, float | None]
    """Baseline's and candidate's."""
    answers: tuple[str | None, str | None]
    """Theirs, shortened; None: there is none."""
    notes: tuple[str, str]
    """How the request ended where there is no answer, why it cannot be read where it cannot; else empty."""
    references: tuple[str, ...]
    """Acceptable answers, shortened."""
    places: tuple[int, int]
    """Where to find it in either run task."""


class FlipPage(Model):
    """Flips, the greatest change first."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str
    """The metric they are flips by."""
    items: tuple[FlipRow, ...]
    """In order."""
    next: str | None = None
    """Give it as `after`."""
    total: int
    """How many there are of the change asked for."""
    counts: Mapping[str, int]
    """Change → samples."""
