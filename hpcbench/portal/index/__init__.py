"""What is known of experiments without opening them: a disposable index of a home.

The experiments' directories are the truth; `following` reads them into the index, and everything else of the
portal asks it. It may be deleted, damaged or of another version at any time: it is then made again, and
nothing is lost. SQLite on a local disk holds it, or PostgreSQL where a group shares one; both answer alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.experiments import (
    ExperimentRow,
    Facet,
    FigureName,
    Hit,
    Matrix,
    RunTaskRow,
    Usage,
)
from hpcbench.status.models import ExperimentStatus

Order = Literal["asc", "desc"]
"""Which end comes first; what has no value is last in both."""

ExperimentSort = Literal[
    "id", "plan", "state", "created", "updated", "owner", "run_tasks", "samples", "answered", "progress",
    "rate", "score", "gpu_hours", "failures", "verdict",
]  # fmt: skip
"""Columns that experiments can be sorted by."""

RunTaskSort = Literal[
    "experiment", "name", "ml_task", "model", "dataset", "prompt", "state", "samples", "answered", "progress",
    "rate", "coverage", "invalid", "score", "latency_p50", "latency_p95", "tokens_per_second",
    "peak_memory_gb",
]  # fmt: skip
"""Columns that run tasks can be sorted by; `score` is the first metric."""

COUNTED_TO = 10_000
"""No list is counted further."""

MOST = 200
"""Rows of a page at most."""


@dataclass(frozen=True, slots=True)
class ExperimentQuery:
    """Which experiments, in which order. Of several values of a filter one has to fit."""

    states: tuple[str, ...] = ()
    """States."""
    text: str = ""
    """Words, each of which stands in the id, plan, owner, a model, dataset or baseline's name."""
    models: tuple[str, ...] = ()
    """Models."""
    datasets: tuple[str, ...] = ()
    """Datasets."""
    plans: tuple[str, ...] = ()
    """Names of plans."""
    sort: ExperimentSort = "created"
    """Column to sort by."""
    order: Order = "desc"
    """Which end comes first."""
    after: str | None = None
    """`Page.next` of the page before; it holds with the same filters and order only."""
    limit: int = 50
    """Rows, at most 200."""


@dataclass(frozen=True, slots=True)
class RunTaskQuery:
    """Which run tasks, in which order. Of several values of a filter one has to fit."""

    experiment: str | None = None
    """Of one experiment; None: of all."""
    states: tuple[str, ...] = ()
    """States."""
    text: str = ""
    """Words, each of which stands in the name, experiment, model, dataset, prompt or ML task."""
    models: tuple[str, ...] = ()
    """Models."""
    datasets: tuple[str, ...] = ()
    """Datasets, with splits."""
    sort: RunTaskSort = "name"
    """Column to sort by."""
    order: Order = "asc"
    """Which end comes first."""
    after: str | None = None
    """As in `ExperimentQuery`."""
    limit: int = 50
    """Rows, at most 200."""


@dataclass(frozen=True, slots=True)
class Account:
    """What was written about an experiment once it had ended, as far as its page shows it."""

    usage: Usage = field(default_factory=Usage)
    """What it took."""
    summary: tuple[str, ...] = ()
    """What came out: blocks of the report's own Markdown."""
    verdict: Mapping[str, Any] | None = None
    """What a gate said."""


@dataclass(frozen=True, slots=True)
class Known:
    """What takes many files to find out of an experiment, and is therefore kept."""

    status: ExperimentStatus
    """How it is."""
    figures: tuple[FigureName, ...] = ()
    """Figures there are."""


@dataclass(frozen=True, slots=True)
class Entry:
    """All that the index holds of an experiment."""

    row: ExperimentRow
    """Its row; `trend` is not kept but found."""
    run_tasks: tuple[RunTaskRow, ...]
    """Its run tasks, in the order of the plan."""
    account: Account
    """What was written about it."""
    stamp: str
    """What the entry was made of; while it is the same there is nothing to read again. Empty: it runs."""


class Index(Protocol):
    """An index of one home. Every method may be called from any thread.

    All raise `IndexFault` where the database does not answer.
    """

    # --- what routes ask --------------------------------------------------------------------------------

    def version(self, experiment: str | None = None) -> int:
        """Another one whenever something of the index, or of one experiment, changed; 0: it is not there."""
        ...

    def experiments(self, query: ExperimentQuery) -> Page[ExperimentRow]:
        """A page of experiments.

        Raises:
            BadCursor: `after` is none of this list.
        """
        ...

    def experiment(self, identity: str) -> ExperimentRow | None:
        """An experiment's row; None: it is not known."""
        ...

    def account(self, identity: str) -> Account | None:
        """What was written about it; None: it is not known."""
        ...

    def run_tasks(self, query: RunTaskQuery) -> Page[RunTaskRow]:
        """A page of run tasks.

        Raises:
            BadCursor: `after` is none of this list.
        """
        ...

    def run_task(self, experiment: str, name: str) -> RunTaskRow | None:
        """A run task's row; None: it is not known."""
        ...

    def matrix(self, experiment: str) -> tuple[Matrix, ...]:
        """Models × datasets of an experiment, one an ML task: states while it runs, then scores."""
        ...

    def experiment_facets(self, query: ExperimentQuery) -> tuple[Facet, ...]:
        """How many experiments have each state, model, dataset and plan; a facet ignores its own filter."""
        ...

    def run_task_facets(self, query: RunTaskQuery) -> tuple[Facet, ...]:
        """How many run tasks have each state, model and dataset; a facet ignores its own filter."""
        ...

    def search(self, text: str, limit: int = 20) -> tuple[Hit, ...]:
        """What begins with a text, or has words that begin with its words; the best hits first."""
        ...

    def known(self, experiment: str) -> Known | None:
        """What was kept of an experiment by `keep`, for as long as its entry has the same stamp."""
        ...

    # --- what the follower writes -------------------------------------------------------------------------

    def stamps(self) -> dict[str, str]:
        """Experiment → stamp of its entry."""
        ...

    def unknown(self) -> list[str]:
        """Experiments with a stamp of which `keep` has kept nothing that still holds, the newest first."""
        ...

    def put(self, entries: Sequence[Entry]) -> None:
        """Write entries, in place of older ones; what is the same already is left alone."""
        ...

    def keep(self, experiment: str, stamp: str, known: Known) -> None:
        """Keep what was found out of an experiment that does not change by itself."""
        ...

    def remove(self, experiments: Iterable[str]) -> None:
        """Forget experiments that are gone."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...


class IndexFault(PortalFault):
    """The index's database does not answer; its message has no secrets."""

    def __init__(self, error: str, remedy: str = "") -> None:
        super().__init__(503, "busy", error, remedy)


class BadCursor(PortalFault):
    """Where a page is to go on is said by something that no page of this list said."""

    def __init__(self, error: str = "`after` is no place in this list") -> None:
        super().__init__(400, "bad_request", error, "begin at the first page")


def open_index(url: str | None, home: Path) -> Index:
    """The index of a home; an empty one where there is none yet, or what there is cannot be read.

    Args:
        url: `postgresql://…`, `sqlite:///PATH`, or None: SQLite on a local disk.
        home: folder of experiments and caches.

    Raises:
        IndexFault: the database cannot be used at all.
    """
    from hpcbench.portal.index.database import DatabaseIndex

    return DatabaseIndex.open(url, home)
