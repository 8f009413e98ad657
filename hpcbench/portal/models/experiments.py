"""Lists of experiments and run tasks, and all of one experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hpcbench.portal.models.base import Model
from hpcbench.status.models import (
    ExperimentStatus,
    Failure,
    RunTaskState,
    State,
    Wait,
)


class Score(Model):
    """A metric's value."""

    metric: str
    """Its name."""
    value: float | None
    """None: no sample is scored."""
    low: float | None = None
    """Lower end of the 95 % interval."""
    high: float | None = None
    """Upper end."""
    n: int = 0
    """Samples scored."""
    documents: int = 0
    """Documents they belong to."""
    higher_is_better: bool = True
    """Whether more of it is better."""


class SampleCounts(Model):
    """Counts of samples, see docs/measuring.md."""

    asked: int
    """Samples that are asked about: responded + failed."""
    responded: int
    """Those with an answer: ok + unreadable."""
    ok: int
    """Those whose answer was read."""
    unreadable: int
    """Those whose answer could not be read."""
    failed: int
    """Those without an answer."""
    skipped: int
    """Bad rows of the dataset beside them."""
    coverage: float
    """ok ÷ (asked + skipped)."""


class ExperimentRow(Model):
    """An experiment in the list."""

    id: str
    """The experiment."""
    plan: str
    """Name of its plan."""
    state: State | Literal["unreadable"]
    """See `hpcbench status`."""
    created: float
    """When it was submitted."""
    updated: float
    """When something of it last changed."""
    owner: str
    """Account that submitted it."""
    models: tuple[str, ...]
    """Its models."""
    datasets: tuple[str, ...]
    """Its datasets."""
    run_tasks: int
    """How many run tasks it has."""
    tasks_by_state: Mapping[str, int]
    """State of a run task → how many."""
    samples: int
    """Samples to ask about."""
    answered: int
    """Samples that are done, however their requests ended."""
    counts: SampleCounts | None = None
    """Of its run tasks together; None: not all are evaluated."""
    scored: int = 0
    """Run tasks whose first metric has a value."""
    rate: float | None = None
    """Answers a second over the last minutes."""
    eta: str | None = None
    """When the last answer will be there, in words."""
    score: Score | None = None
    """Mean of the first metric over its run tasks where they share one, or that of its only run task."""
    gpu_hours: float | None = None
    """GPU-hours allocated; None: not counted yet."""
    failures: int = 0
    """Causes of failures."""
    verdict: str | None = None
    """What a gate said: GO, NO-GO, INCONCLUSIVE."""
    baselines: tuple[str, ...] = ()
    """Names of baselines it is."""
    trend: tuple[float, ...] = ()
    """First metric of the last ten experiments of the same plan, oldest first."""


class RunTaskRow(Model):
    """A run task in a list."""

    experiment: str
    """Its experiment."""
    name: str
    """Its name."""
    ml_task: str
    """Kind of work."""
    model: str
    """Its model."""
    dataset: str
    """Its dataset, with its split after a slash where it has one."""
    prompt: str
    """Its prompt."""
    state: RunTaskState
    """Its state."""
    reason: str | None = None
    """Why it is stopped, paused or cancelled."""
    samples: int
    """Samples to ask about."""
    answered: int
    """Samples that are done, however their requests ended."""
    counts: SampleCounts | None = None
    """Once it is evaluated."""
    rate: float | None = None
    """Answers a second."""
    coverage: float | None = None
    """As in `counts`."""
    invalid: int = 0
    """The same as `counts.unreadable`."""
    scores: tuple[Score, ...] = ()
    """Its metrics, the first one leading."""
    latency_p50: float | None = None
    """Seconds."""
    latency_p95: float | None = None
    """Seconds."""
    tokens_per_second: float | None = None
    """Output tokens a second."""
    speed_valid: bool = True
    """Whether latencies and rates are the engine's: False where the client was too slow."""
    peak_memory_gb: float | None = None
    """GPU memory at its peak, GiB."""


class Hit(Model):
    """Something that the palette may jump to."""

    kind: Literal["experiment", "plan", "model", "dataset", "run_task"]
    """What it is; a plan, model or dataset leads to the list of experiments with it."""
    name: str
    """Its name."""
    experiment: str | None = None
    """The experiment; of a run task, the one that this entry leads to."""
    detail: str = ""
    """What tells it from others, for people."""
    count: int = 1
    """Experiments that have it."""


class Facet(Model):
    """How many samples have each value of something."""

    field: str
    """`outcome`, `reason`, `score`, or a column of the dataset's metadata."""
    counts: tuple[tuple[str, int], ...]
    """Value → samples, most frequent first, at most 50; scores lowest first, as `LOW..HIGH`: the least and
    the greatest value of a bin, which as `low` and `high` choose its samples and no others."""


class MatrixCell(Model):
    """One run task where a model's row crosses a dataset's column."""

    run_task: str
    """The run task."""
    state: RunTaskState
    """Its state."""
    reason: str | None = None
    """Why it is in it; null: there is nothing to say."""
    answered: int
    """Samples that are done, however their requests ended."""
    samples: int
    """Samples to ask about."""
    coverage: float | None = None
    """ok ÷ (asked + skipped), once evaluated."""
    score: Score | None = None
    """Of the matrix's metric."""
    leads: bool = False
    """Whether nobody in its column has a better value; says nothing of chance."""


class MatrixRow(Model):
    """A model."""

    model: str
    """The model."""
    variant: str = ""
    """What tells it from other rows of the model: a prompt, or the run task's name."""
    cells: tuple[MatrixCell | None, ...]
    """A cell a column."""


class Matrix(Model):
    """Models down, datasets across, for one ML task."""

    ml_task: str
    """The ML task."""
    metric: str | None
    """The metric shown; None: its run tasks have none."""
    higher_is_better: bool = True
    """Of the metric."""
    columns: tuple[str, ...]
    """Datasets, with splits after a slash."""
    rows: tuple[MatrixRow, ...]
    """Models."""


class Usage(Model):
    """What an experiment took."""

    gpu_hours: float | None = None
    """Allocated."""
    gpu_hours_used: float | None = None
    """With a model at work."""
    gpu_hours_wasted: float | None = None
    """Lost to failures and idling."""
    queue_wait: float | None = None
    """Longest wait of a job for Slurm, seconds."""


class FigureName(Model):
    """A figure that can be asked for."""

    name: str
    """Its name in requests."""
    title: str
    """For people."""
    group: str
    """quality, speed, resources, failures."""


class ExperimentDetail(Model):
    """All that the page of an experiment shows at once; run tasks come by page."""

    row: ExperimentRow
    """As in the list."""
    status: ExperimentStatus | None
    """What `hpcbench status --json` prints; None: it cannot be read."""
    sentence: str
    """How it stands, in a sentence."""
    matrices: tuple[Matrix, ...]
    """One an ML task."""
    failures: tuple[Failure, ...]
    """What went wrong, by cause."""
    waits: tuple[Wait, ...]
    """Jobs that wait, and for what."""
    usage: Usage
    """What it took."""
    summary: tuple[str, ...]
    """What came out, once reported: blocks of the report's own Markdown."""
    verdict: Mapping[str, Any] | None = None
    """`report/verdict.json`: what a gate said."""
    figures: tuple[FigureName, ...] = ()
    """Figures there are."""
    reports: tuple[str, ...] = ()
    """Ids of files of the report that may be fetched."""
