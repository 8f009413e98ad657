"""Runs compared with each other, and what they did differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hpcbench.portal.models.base import Model
from hpcbench.portal.models.experiments import Facet


class CompareSide(Model):
    """One of the runs compared."""

    run: str
    """The run as requests name it: `EXPERIMENT` or `EXPERIMENT:RUN_TASK`."""
    experiment: str
    """Id of its experiment."""
    run_task: str | None = None
    """Name of the only run task that is compared; None: all run tasks."""
    plan: str
    """Name of its plan."""
    models: tuple[str, ...]
    """Names of its models."""
    created: float
    """Time of submission, seconds since the epoch."""


class MetricCompared(Model):
    """One metric of a pair of run tasks."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str
    """Name of the metric."""
    signature: str
    """Signature: the metric with all its options."""
    unit: str = ""
    """Unit of a resource metric; empty: a metric of answers."""
    higher_is_better: bool
    """Whether a higher value is better."""
    values: tuple[float | None, float | None]
    """Value of the baseline, value of the candidate."""
    difference: float | None
    """Candidate minus baseline, over the pairs of samples."""
    low: float | None
    """Lower end of the 95 % interval of the difference."""
    high: float | None
    """Upper end of the 95 % interval of the difference."""
    p: float | None
    """P-value with Holm's correction over all comparisons of the request."""
    verdict: str
    """better, worse, equivalent, inconclusive."""
    n: int
    """Number of pairs of samples."""
    documents: int
    """Number of documents of these samples."""
    won: int
    """Samples with a better score for the candidate."""
    lost: int
    """Samples with a worse score for the candidate."""
    tied: int
    """Samples with equal scores."""
    both_right: int
    """Tied samples with the best score."""
    both_partly: int
    """Tied samples with a score between the best and the worst."""
    both_wrong: int
    """Tied samples with the worst score."""
    only: tuple[int, int] = (0, 0)
    """Number of samples that only the baseline has scored, and only the candidate; the comparison leaves them
    out."""
    detectable: float | None = None
    """For the verdict inconclusive: the true difference that the test detects with 80 % power."""
    if_worst: str | None = None
    """The verdict if a missing score of one run counted as the worst; None: no score is missing."""
    differs: tuple[str, ...]
    """Other differences between the two run tasks."""


class Candidate(Model):
    """A run compared with the baseline."""

    side: CompareSide
    """The run."""
    metrics: tuple[MetricCompared, ...]
    """Comparison of each metric that both runs have."""
    refused: tuple[Mapping[str, Any], ...]
    """Comparisons that are not possible: `baseline`, `candidate`, `metric`, `why`, `remedy`."""
    careful: tuple[str, ...]
    """Warnings on the comparison."""
    speed: tuple[Mapping[str, Any], ...]
    """Figures of speed and memory, as in `hpcbench compare --json`."""
    speed_careful: tuple[str, ...]
    """Reasons why figures of speed are not comparable, with their run tasks."""
    speed_notes: tuple[str, ...]
    """Notes on the figures of speed."""
    differences: tuple[Mapping[str, Any], ...]
    """Differences of the configuration: `path`, `one`, `other`."""


class Comparison(Model):
    """Two to eight runs, the first one the baseline."""

    baseline: CompareSide
    """The baseline."""
    candidates: tuple[Candidate, ...]
    """Each candidate, compared with the baseline."""


class FlipRow(Model):
    """A sample whose scores differ between two runs (or are equal, if requested)."""

    sample: str
    """Id of the sample."""
    document: str
    """Id of its document."""
    change: Literal["won", "lost", "both_right", "both_partly", "both_wrong"]
    """Change from the baseline to the candidate."""
    scores: tuple[float | None, float | None]
    """Score of the baseline, score of the candidate."""
    answers: tuple[str | None, str | None]
    """Answer of the baseline, answer of the candidate, shortened; None: no answer."""
    notes: tuple[str, str]
    """For each run: the outcome where there is no answer, the reason where the answer is unreadable; else
    empty."""
    references: tuple[str, ...]
    """Acceptable answers, shortened."""
    places: tuple[int, int]
    """Place of the sample in the run task of the baseline, and of the candidate."""


class FlipPage(Model):
    """Flips, the greatest change first."""

    baseline: str
    """Run task of the baseline."""
    candidate: str
    """Run task of the candidate."""
    metric: str
    """Name of the metric that decides the change."""
    items: tuple[FlipRow, ...]
    """Samples, the greatest change first."""
    next: str | None = None
    """Give it as `after` to get the next page; None: this page is the last."""
    total: int
    """Number of samples with the requested change."""
    counts: Mapping[str, int]
    """Change → number of samples, without the filters of mistakes and metadata."""
    facets: tuple[Facet, ...] = ()
    """On the first page: how many of the chosen samples have each kind of mistake and value of metadata."""
