"""An experiment of another home, as the database of results has it."""

from __future__ import annotations

from typing import Any

from hpcbench.portal.models.base import Model


class StoredScore(Model):
    """A metric of a run task over all of its samples."""

    metric: str
    """Name of the metric."""
    value: float | None = None
    """The value; None: too few data for it."""
    low: float | None = None
    """Lower end of its 95 % interval."""
    high: float | None = None
    """Upper end of its 95 % interval."""
    n: int = 0
    """Number of samples behind it."""
    documents: int = 0
    """Documents of these samples."""
    method: str = ""
    """Method of the interval, or why there is no value."""
    signature: str = ""
    """The metric with all its options: only equal signatures are comparable."""
    unit: str = ""
    """Unit of a resource metric; empty: a metric of answers."""
    higher_is_better: bool = True
    """Whether higher values are better."""


class StoredRunTask(Model):
    """A run task."""

    name: str
    """Its name."""
    ml_task: str = ""
    """ML task."""
    model: str = ""
    """Model."""
    dataset: str = ""
    """Dataset."""
    split: str = ""
    """Split of the dataset; empty: the whole dataset."""
    prompt: str = ""
    """Prompt."""
    engine: str = ""
    """Engine."""
    status: str = ""
    """How it ended; empty: it has not ended."""
    reason: str = ""
    """Reason for that end."""
    asked: int | None = None
    """Samples that it asks about; None: not evaluated."""
    answered: int | None = None
    """Asked samples with an answer."""
    coverage: float | None = None
    """Share of asked samples with an answer that counts."""
    scores: tuple[StoredScore, ...] = ()
    """Its metrics, in the plan's order."""


class StoredExperiment(Model):
    """An experiment."""

    id: str
    """Its id."""
    name: str = ""
    """Name of the plan."""
    description: str = ""
    """Description of the plan."""
    owner: str = ""
    """Account that owns its folder."""
    home: str = ""
    """Folder of experiments and caches that it is in."""
    created: float | None = None
    """When it was submitted, seconds since the epoch."""
    status: str = ""
    """Its state when its rows were sent."""
    reason: str = ""
    """Why it is not done; empty: no known reason."""
    hpcbench: str = ""
    """Version of hpcbench that submitted it."""
    synced: float | None = None
    """When all of its rows were in the database; None: not all are."""
    run_tasks: tuple[StoredRunTask, ...] = ()
    """Its run tasks, in the plan's order."""


class StoredSample(Model):
    """A sample of an evaluated run task."""

    sample: str
    """Its id."""
    place: int
    """Its place in the run task, from 0."""
    document: str = ""
    """Its document."""
    outcome: str = ""
    """How its request ended."""
    reference_answers: Any = None
    """Acceptable answers."""
    prediction: str | None = None
    """The parser's reading of the answer, at most 2,000 characters; None: unreadable."""
    reason: str = ""
    """Why there is no prediction."""
    mistake: str = ""
    """Kind of the mistake; empty: right, or no rule names it."""
    answer: str | None = None
    """The model's answer, at most 2,000 characters; None: no answer."""
    error: str = ""
    """Why there is no answer."""
    scores: dict[str, float | None] = {}
    """Metric → value."""


class StoredSamples(Model):
    """A page of samples."""

    items: tuple[StoredSample, ...]
    """Samples in the dataset's order."""
    next: str | None = None
    """Give it as `after` to get the next page; None: this page is the last."""
