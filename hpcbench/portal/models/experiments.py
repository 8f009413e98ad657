"""Lists of experiments and run tasks, and all of one experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hpcbench.portal.models.base import Model
from hpcbench.status.experiment_status import (
    ExperimentStatus,
    Failure,
    RunTaskState,
    State,
    Wait,
)


class Score(Model):
    """A metric's value."""

    metric: str
    """Name of the metric."""
    value: float | None
    """None: no sample is scored."""
    low: float | None = None
    """Lower end of the 95 % interval."""
    high: float | None = None
    """Upper end of the 95 % interval."""
    n: int = 0
    """Samples scored."""
    documents: int = 0
    """Documents of these samples."""
    higher_is_better: bool = True
    """Whether a higher value is better."""
    unit: str = ""
    """Unit of a resource metric; empty: a metric of answers."""
    standing: str = ""
    """State of a judge's value: `uncalibrated` or `naive`; empty: another metric's value."""


class DatasetScore(Score):
    """A metric's value of an experiment on one dataset: the mean of its run tasks if there are several."""

    dataset: str
    """Name of the dataset; if there is a split, `DATASET/SPLIT`."""
    run_tasks: int = 1
    """Number of these run tasks that have a value."""
    change: float | None = None
    """Difference to the newest baseline of the same plan; None: there is none, or it is this experiment."""
    trend: tuple[float, ...] = ()
    """Values in the last ten experiments of the same plan, oldest first."""


class ScoreColumn(Model):
    """A dataset and a metric that experiments have values of: a possible column of their list."""

    dataset: str
    """Name of the dataset; if there is a split, `DATASET/SPLIT`."""
    metric: str
    """Name of the metric."""
    experiments: int
    """Number of experiments with a value."""
    higher_is_better: bool
    """Whether a higher value is better."""


class SampleCounts(Model):
    """Counts of samples, see docs/measuring.md."""

    asked: int
    """Samples to send to the model: responded + failed."""
    responded: int
    """Samples with an answer: ok + unreadable."""
    ok: int
    """Samples with an answer that could be read."""
    unreadable: int
    """Samples with an answer that could not be read."""
    failed: int
    """Samples without an answer."""
    skipped: int
    """Bad rows of the dataset; `asked` does not include them."""
    coverage: float
    """ok ÷ (asked + skipped)."""


class ExperimentRow(Model):
    """An experiment in the list."""

    id: str
    """Id of the experiment."""
    plan: str
    """Name of its plan."""
    state: State | Literal["unreadable"]
    """State, as in `hpcbench status`."""
    created: float
    """Time of submission, seconds since the epoch."""
    updated: float
    """Time of the last change, seconds since the epoch."""
    owner: str
    """Account that submitted it."""
    models: tuple[str, ...]
    """Names of its models."""
    datasets: tuple[str, ...]
    """Names of its datasets."""
    run_tasks: int
    """Number of its run tasks."""
    tasks_by_state: Mapping[str, int]
    """State → number of run tasks."""
    samples: int
    """Number of samples to send to the models."""
    answered: int
    """Number of samples whose request has ended, with any outcome."""
    counts: SampleCounts | None = None
    """Counts over all its run tasks; None: not all are evaluated."""
    scored: int = 0
    """Number of run tasks whose first metric has a value."""
    rate: float | None = None
    """Answers per second over the last minutes."""
    eta: str | None = None
    """Estimated time of the last answer, as text."""
    score: Score | None = None
    """Mean of the first metric over its run tasks where they have the same first metric, or the value of its
    only run task."""
    gpu_hours: float | None = None
    """GPU-hours allocated; None: not counted yet."""
    failures: int = 0
    """Number of causes of failures."""
    verdict: str | None = None
    """Verdict of a gate: GO, NO-GO, INCONCLUSIVE."""
    baselines: tuple[str, ...] = ()
    """Names under which it is a baseline."""
    trend: tuple[float, ...] = ()
    """Value of the first metric in the last ten experiments of the same plan, oldest first."""
    scores: tuple[DatasetScore, ...] = ()
    """Values of the requested columns (`column`), in their order; without columns that it has no value of."""


class RunTaskRow(Model):
    """A run task in a list."""

    experiment: str
    """Id of its experiment."""
    name: str
    """Name of the run task."""
    ml_task: str
    """Name of its ML task."""
    model: str
    """Name of its model."""
    dataset: str
    """Name of its dataset; if there is a split, `DATASET/SPLIT`."""
    prompt: str
    """Name of its prompt."""
    state: RunTaskState
    """Its state."""
    reason: str | None = None
    """Reason of the states stopped, paused and cancelled."""
    samples: int
    """Number of samples to send to the model."""
    answered: int
    """Number of samples whose request has ended, with any outcome."""
    counts: SampleCounts | None = None
    """Counts of samples; None: not evaluated yet."""
    rate: float | None = None
    """Answers per second."""
    coverage: float | None = None
    """The same as `counts.coverage`."""
    invalid: int = 0
    """The same as `counts.unreadable`."""
    scores: tuple[Score, ...] = ()
    """Values of its metrics; the first metric is the leading one."""
    latency_p50: float | None = None
    """Median E2E latency, seconds."""
    latency_p95: float | None = None
    """95th percentile of the E2E latency, seconds."""
    tokens_per_second: float | None = None
    """Output tokens per second."""
    speed_valid: bool = True
    """Whether latencies and rates measure the engine; False: the client was too slow."""
    peak_memory_gb: float | None = None
    """Peak of the GPU memory, GiB."""


class Hit(Model):
    """A target of the command palette."""

    kind: Literal["experiment", "plan", "model", "dataset", "run_task"]
    """Kind of the target; a plan, model or dataset leads to the list of its experiments."""
    name: str
    """Its name."""
    experiment: str | None = None
    """Id of the experiment; for a run task, the experiment that the palette opens."""
    detail: str = ""
    """Text that distinguishes it from other targets of the same name."""
    count: int = 1
    """Number of experiments with this name."""


class Facet(Model):
    """Number of samples for each value of a field."""

    field: str
    """`outcome`, `reason`, `mistake`, `score`, or a column of the dataset's metadata."""
    counts: tuple[tuple[str, int], ...]
    """Value → number of samples; at most 50 values, the most frequent first. For scores: bins `LOW..HIGH`,
    the lowest first; LOW and HIGH are the least and the greatest value of the bin, and as `low` and `high`
    they select exactly its samples."""


class MatrixCell(Model):
    """The run task of one model (row) on one dataset (column)."""

    run_task: str
    """Name of the run task."""
    state: RunTaskState
    """Its state."""
    reason: str | None = None
    """Reason of the state; None: no reason is recorded."""
    answered: int
    """Number of samples whose request has ended, with any outcome."""
    samples: int
    """Number of samples to send to the model."""
    coverage: float | None = None
    """ok ÷ (asked + skipped); None: not evaluated yet."""
    score: Score | None = None
    """Value of the matrix's metric."""
    leads: bool = False
    """Whether no model of the column has a better value; the lead may be chance."""


class MatrixRow(Model):
    """A row of the matrix: one model."""

    model: str
    """Name of the model."""
    variant: str = ""
    """Text that distinguishes rows of the same model: a prompt, or the name of the run task."""
    cells: tuple[MatrixCell | None, ...]
    """One cell for each column; None: no run task."""


class Matrix(Model):
    """Models in rows, datasets in columns, for one ML task."""

    ml_task: str
    """Name of the ML task."""
    metric: str | None
    """Name of the metric; None: the run tasks have no metric."""
    higher_is_better: bool = True
    """Whether a higher value of the metric is better."""
    columns: tuple[str, ...]
    """Datasets; if there is a split, `DATASET/SPLIT`."""
    rows: tuple[MatrixRow, ...]
    """Rows, one or more for each model."""


class Usage(Model):
    """Resources that an experiment used."""

    gpu_hours: float | None = None
    """GPU-hours allocated."""
    gpu_hours_used: float | None = None
    """GPU-hours with requests in flight whose answers count."""
    gpu_hours_wasted: float | None = None
    """All other GPU-hours: starting, loading, idling, lost work."""
    queue_wait: float | None = None
    """Longest wait of a job in Slurm's queue, seconds."""


class FigureName(Model):
    """A figure that a client can request."""

    name: str
    """Its name in requests."""
    title: str
    """Title of the figure."""
    group: str
    """Group of the figure: quality, speed, resources, failures."""


class ExperimentDetail(Model):
    """The content of the page of an experiment; its run tasks have a list of their own."""

    row: ExperimentRow
    """The row of the list of experiments."""
    status: ExperimentStatus | None
    """The output of `hpcbench status --json`; None: the status cannot be read."""
    sentence: str
    """Status in one sentence."""
    matrices: tuple[Matrix, ...]
    """One matrix for each ML task."""
    failures: tuple[Failure, ...]
    """Failures, by cause."""
    waits: tuple[Wait, ...]
    """Waiting jobs, with the reason."""
    usage: Usage
    """Resources that it used."""
    summary: tuple[str, ...]
    """Results as blocks of Markdown, as in the report; empty: no report yet."""
    verdict: Mapping[str, Any] | None = None
    """Content of `report/verdict.json`: the verdict of a gate."""
    figures: tuple[FigureName, ...] = ()
    """Available figures."""
    reports: tuple[str, ...] = ()
    """Ids of the files of the report that a client can request."""
