"""A metric over all experiments."""

from __future__ import annotations

from hpcbench.portal.models.base import Model


class MetricValue(Model):
    """A metric of one run task of an experiment."""

    experiment: str
    """Id of the experiment."""
    run_task: str
    """Name of the run task."""
    created: float
    """When the experiment was submitted, seconds since the epoch."""
    plan: str
    """Name of the plan."""
    owner: str
    """Account of the experiment; empty: the experiment is of this home."""
    model: str
    """Name of the model."""
    dataset: str
    """Name of the dataset."""
    value: float
    """The value."""
    low: float | None = None
    """Lower end of its interval."""
    high: float | None = None
    """Upper end of its interval."""
    n: int | None = None
    """Number of samples behind it."""
    higher_is_better: bool = True
    """Whether higher values are better."""
    signature: str = ""
    """The metric with all its options: only equal signatures are comparable."""
    unit: str = ""
    """Unit of a resource metric; empty: a metric of answers."""
    here: bool = False
    """Whether the experiment is in this home, and has a page."""
    only_files: bool = False
    """Whether the value is not in the database, which is configured and answers."""


class MetricValues(Model):
    """A page of a metric's values."""

    items: tuple[MetricValue, ...]
    """Values, of the newest experiments first."""
    next: str | None = None
    """Give it as `after` to get the next page; None: this page is the last."""
    database: bool
    """Whether the site profile names a database."""
    fault: str | None = None
    """Reason why the database gives no answer: then the values are those of this home, from files."""


class MetricNames(Model):
    """Known metrics."""

    names: tuple[str, ...]
    """Names of metrics, in alphabetical order."""
