"""A disposable index of a home's experiments, so that the portal need not open them.

The experiments' directories are the truth; the follower reads them into the index, and the rest of the portal
queries the index. If the index is deleted, damaged or of another version, it is built again, and nothing is
lost. The database is SQLite on a local disk, or PostgreSQL for a group; both give the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpcbench.files.json_places import Places
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.experiments import (
    ExperimentRow,
    FigureName,
    RunTaskRow,
    Usage,
)
from hpcbench.status.experiment_status import ExperimentStatus

if TYPE_CHECKING:
    from hpcbench.portal.index.sql_index import Index

Order = Literal["asc", "desc"]
"""Sort order; rows without a value are last in both."""

ExperimentSort = Literal[
    "id", "plan", "state", "created", "updated", "owner", "run_tasks", "samples", "answered", "progress",
    "rate", "score", "gpu_hours", "failures", "verdict",
]  # fmt: skip
"""Sort columns of experiments."""

RunTaskSort = Literal[
    "experiment", "name", "ml_task", "model", "dataset", "prompt", "state", "samples", "answered", "progress",
    "rate", "coverage", "invalid", "score", "latency_p50", "latency_p95", "tokens_per_second",
    "peak_memory_gb",
]  # fmt: skip
"""Sort columns of run tasks; `score` is the first metric."""

ScoreKey = tuple[str, str]
"""A dataset and a metric."""

COUNTED_TO = 10_000
"""Most rows of a list that are counted."""

MOST = 200
"""Most rows of a page."""


@dataclass(frozen=True, slots=True)
class ExperimentQuery:
    """Filters and order of experiments. An experiment has to match one of a filter's values."""

    states: tuple[str, ...] = ()
    """States."""
    text: str = ""
    """Words; each has to occur in the id, plan, owner, or a model's, dataset's or baseline's name."""
    models: tuple[str, ...] = ()
    """Models."""
    datasets: tuple[str, ...] = ()
    """Datasets."""
    plans: tuple[str, ...] = ()
    """Names of plans."""
    sort: ExperimentSort | ScoreKey = "created"
    """Column to sort by: one of the row's, or a dataset and a metric."""
    order: Order = "desc"
    """Sort order."""
    after: str | None = None
    """`Page.next` of the previous page; valid only with the same filters and order."""
    limit: int = 50
    """Rows of the page, at most 200."""
    columns: tuple[ScoreKey, ...] = ()
    """Datasets and metrics whose values the rows get."""


@dataclass(frozen=True, slots=True)
class RunTaskQuery:
    """Filters and order of run tasks. A run task has to match one of a filter's values."""

    experiment: str | None = None
    """Only run tasks of this experiment; None: of all experiments."""
    states: tuple[str, ...] = ()
    """States."""
    text: str = ""
    """Words; each has to occur in the name, experiment, model, dataset, prompt or ML task."""
    models: tuple[str, ...] = ()
    """Models."""
    datasets: tuple[str, ...] = ()
    """Datasets, with splits."""
    sort: RunTaskSort = "name"
    """Column to sort by."""
    order: Order = "asc"
    """Sort order."""
    after: str | None = None
    """As in `ExperimentQuery`."""
    limit: int = 50
    """Rows of the page, at most 200."""


@dataclass(frozen=True, slots=True)
class Account:
    """Facts written after an experiment's end, as far as its page shows them."""

    usage: Usage = field(default_factory=Usage)
    """Its use of resources."""
    summary: tuple[str, ...] = ()
    """Its results: blocks of the report's own Markdown."""
    verdict: Mapping[str, Any] | None = None
    """A gate's verdict."""


@dataclass(frozen=True, slots=True)
class DerivedFacts:
    """Facts of an experiment that come from many files, and are therefore kept."""

    status: ExperimentStatus
    """Its status."""
    figures: tuple[FigureName, ...] = ()
    """Its available figures."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An experiment's entry in the index."""

    row: ExperimentRow
    """Its row; `trend` is not stored but computed for each answer."""
    run_tasks: tuple[RunTaskRow, ...]
    """Its run tasks, in the order of the plan."""
    account: Account
    """Facts written after its end."""
    stamp: str
    """Stamp of its files; while the stamp is the same, the entry is valid. Empty: the experiment runs."""
    files: Mapping[str, Places] = field(default_factory=dict)
    """Name of a large file → where the run tasks are in it."""


class IndexFault(PortalFault):
    """The index's database does not answer; its message has no secrets."""

    def __init__(self, error: str, remedy: str = "") -> None:
        super().__init__(503, "busy", error, remedy)


class BadCursor(PortalFault):
    """The cursor of a request does not come from a page of this list."""

    def __init__(self, error: str = "`after` is no cursor of this list") -> None:
        super().__init__(400, "bad_request", error, "start from the first page: leave `after` out")


def open_index(url: str | None, home: Path) -> Index:
    """The index of a home; an empty one if there is none yet, or if it cannot be read.

    Args:
        url: `postgresql://…`, `sqlite:///PATH`, or None: SQLite on a local disk.
        home: folder of experiments and caches.

    Raises:
        IndexFault: the database cannot be used at all.
    """
    from hpcbench.portal.index.sql_index import Index

    return Index(url, home)
