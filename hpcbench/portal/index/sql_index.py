"""The index in a database."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from sqlalchemy import Connection, Select, and_, bindparam, select

from hpcbench.files.json_places import Places
from hpcbench.portal.index import (
    Account,
    DerivedFacts,
    Entry,
    ExperimentQuery,
    RunTaskQuery,
    palette,
    updates,
)
from hpcbench.portal.index.disk import home_key
from hpcbench.portal.index.matrix import MOST as MATRIX_MOST
from hpcbench.portal.index.matrix import matrices
from hpcbench.portal.index.queries import (
    EXPERIMENT_LIST,
    RUN_TASK_LIST,
    Body,
    IndexList,
    QueryT,
    RowT,
    add_scores,
    add_trends,
    score_columns,
)
from hpcbench.portal.index.schema import (
    EXPERIMENTS,
    FILES,
    HOMES,
    KNOWN,
    RUN_TASKS,
)
from hpcbench.portal.index.store import Store
from hpcbench.portal.index.text_keys import clean
from hpcbench.portal.lru import LruCache
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.experiments import (
    ExperimentRow,
    Facet,
    Hit,
    Matrix,
    RunTaskRow,
    ScoreColumn,
)

ResultT = TypeVar("ResultT")

KEPT = 256
"""Most totals and facets in memory; they are valid until the index changes."""

_KNOWN: TypeAdapter[DerivedFacts] = TypeAdapter(DerivedFacts)

ENTRIES_AT_ONCE = 20
"""Entries in one transaction; other writers of the home wait for its end."""


_own, _task, _kept, _file = EXPERIMENTS.c, RUN_TASKS.c, KNOWN.c, FILES.c
_of_home = EXPERIMENTS.c.home == bindparam("home"), EXPERIMENTS.c.id == bindparam("experiment")
_of_task = RUN_TASKS.c.home == bindparam("home"), RUN_TASKS.c.experiment == bindparam("experiment")

_VERSION = select(HOMES.c.version).where(HOMES.c.home == bindparam("home"))
_VERSION_OF = select(_own.version).where(*_of_home)
_EXPERIMENT = select(_own.body).where(*_of_home)
_ACCOUNT = select(_own.account).where(*_of_home)
_RUN_TASK = select(_task.body).where(*_of_task, _task.name == bindparam("name"))
_MATRIX = select(_task.body).where(*_of_task).order_by(_task.place).limit(MATRIX_MOST)
_PLACES = select(_file.body).where(
    _file.home == bindparam("home"), _file.experiment == bindparam("experiment"),
    _file.name == bindparam("name"),
)  # fmt: skip
_KNOWN_OF = select(_kept.body).where(
    *_of_home,
    _own.home == _kept.home, _own.id == _kept.experiment, _own.stamp == _kept.stamp,
)  # fmt: skip
"""Statements of a page, made once, as in `queries`."""


class Index:
    """An index of one home. Every method may be called from any thread.

    All methods raise `IndexFault` if the database does not answer.

    Args:
        url: as in `open_index`.
        home: folder of experiments and caches.
    """

    def __init__(self, url: str | None, home: Path) -> None:
        self._store, self._home = Store(url, home), home_key(home)
        self._kept: LruCache[Any] = LruCache(KEPT)

    # --- reads of the routes ----------------------------------------------------------------------------

    def version(self, experiment: str | None = None) -> int:
        """A number that changes with the index, or with one experiment; 0: not in the index."""
        if experiment is None:
            return self._one(_VERSION) or 0
        return self._one(_VERSION_OF, experiment=experiment) or 0

    def _one(self, statement: Select[Any], **given: str) -> Any:
        """The first value that a statement finds; None: it finds none."""
        values = {name: clean(value) for name, value in given.items()} | {"home": self._home}
        return self._store.read(lambda connection: connection.execute(statement, values).scalar())

    def experiments(self, query: ExperimentQuery) -> Page[ExperimentRow]:
        """A page of experiments.

        Raises:
            BadCursor: `after` does not belong to this list.
        """

        def ask(connection: Connection) -> Page[ExperimentRow]:
            def complete(rows: Sequence[Body]) -> None:
                add_trends(connection, self._home, rows)
                add_scores(connection, self._home, rows, query.columns)

            return self._page(connection, EXPERIMENT_LIST, query, complete)

        return self._store.read(ask)

    def experiment(self, identity: str) -> ExperimentRow | None:
        """An experiment's row; None: the experiment is unknown."""
        given = {"home": self._home, "experiment": clean(identity)}

        def ask(connection: Connection) -> ExperimentRow | None:
            body = connection.execute(_EXPERIMENT, given).scalar()
            if body is None:
                return None
            row: Body = from_json(body)
            add_trends(connection, self._home, [row])
            return ExperimentRow.model_validate(row)

        return self._store.read(ask)

    def account(self, identity: str) -> Account | None:
        """Facts written after an experiment's end; None: the experiment is unknown."""
        body = self._one(_ACCOUNT, experiment=identity)
        return None if body is None else updates.ACCOUNT.validate_json(body)

    def run_tasks(self, query: RunTaskQuery) -> Page[RunTaskRow]:
        """A page of run tasks.

        Raises:
            BadCursor: `after` does not belong to this list.
        """
        return self._store.read(lambda connection: self._page(connection, RUN_TASK_LIST, query))

    def run_task(self, experiment: str, name: str) -> RunTaskRow | None:
        """A run task's row; None: the run task is unknown."""
        body = self._one(_RUN_TASK, experiment=experiment, name=name)
        return None if body is None else RunTaskRow.model_validate_json(body)

    def matrix(self, experiment: str) -> tuple[Matrix, ...]:
        """Matrices of models × datasets, one per ML task: states while the experiment runs, then scores."""
        given = {"home": self._home, "experiment": clean(experiment)}
        bodies = self._store.read(
            lambda connection: connection.execute(_MATRIX, given).scalars().all()
        )
        return matrices([RunTaskRow.model_validate_json(body) for body in bodies])

    def experiment_facets(self, query: ExperimentQuery) -> tuple[Facet, ...]:
        """How many experiments have each state, model, dataset and plan; a facet ignores its own filter."""
        return self._facets(EXPERIMENT_LIST, query, "state", "model", "dataset", "plan")

    def score_columns(self, query: ExperimentQuery) -> tuple[ScoreColumn, ...]:
        """Datasets and metrics of the filtered experiments: frequent ones first, then leading metrics."""
        ask = partial(score_columns, home=self._home, query=query)
        return self._store.read(partial(self._remembered, "columns", query, ask))

    def run_task_facets(self, query: RunTaskQuery) -> tuple[Facet, ...]:
        """How many run tasks have each state, model and dataset; a facet ignores its own filter."""
        return self._facets(RUN_TASK_LIST, query, "state", "model", "dataset")

    def _facets(
        self, rows: IndexList[QueryT, RowT], query: QueryT, *names: str
    ) -> tuple[Facet, ...]:
        def ask(connection: Connection) -> tuple[Facet, ...]:
            return tuple(rows.facet(connection, self._home, query, name) for name in names)

        return self._store.read(partial(self._remembered, "facets", query, ask))

    def search(self, text: str, limit: int = 20) -> tuple[Hit, ...]:
        """Names that begin with a text, or have words that begin with its words; the best hits first."""
        return self._store.read(
            lambda connection: palette.search(connection, self._home, text, limit)
        )

    def places(self, experiment: str, file: str) -> Places | None:
        """Where run tasks are in a file of an experiment, as of its entry; None: not in the index."""
        body = self._one(_PLACES, experiment=experiment, name=file)
        return None if body is None else Places.of_json(body)

    def known(self, experiment: str) -> DerivedFacts | None:
        """Facts of an experiment from `keep`, while its entry has the same stamp."""
        body = self._one(_KNOWN_OF, experiment=experiment)
        try:
            return None if body is None else _KNOWN.validate_json(body)
        except ValidationError:  # written by another version of hpcbench
            return None

    # --- calls of the follower ----------------------------------------------------------------------------

    def stamps(self) -> dict[str, str]:
        """Experiment → stamp of its entry."""
        self._store.check()
        own = EXPERIMENTS.c
        statement = select(own.id, own.stamp).where(own.home == self._home)
        return self._store.read(
            lambda connection: {name: stamp for name, stamp in connection.execute(statement)}
        )

    def unknown(self) -> list[str]:
        """Experiments with a stamp and without valid facts from `keep`, the newest first."""
        own, kept = EXPERIMENTS.c, KNOWN.c
        held = and_(kept.home == own.home, kept.experiment == own.id, kept.stamp == own.stamp)
        statement = (
            select(own.id)
            .where(own.home == self._home, own.stamp != "", own.state != "unreadable")
            .where(~select(kept.home).where(held).exists())
            .order_by(own.created.desc(), own.id.desc())
        )
        return list(
            self._store.read(lambda connection: connection.execute(statement).scalars().all())
        )

    def put(self, entries: Sequence[Entry]) -> None:
        """Write entries, in place of older ones; equal entries are not written again."""
        for begin in range(0, len(entries), ENTRIES_AT_ONCE):
            some = entries[begin : begin + ENTRIES_AT_ONCE]
            self._write(partial(updates.put, home=self._home, entries=some))

    def keep(self, experiment: str, stamp: str, known: DerivedFacts) -> None:
        """Keep the facts of an experiment that does not change by itself."""
        body = _KNOWN.dump_json(known).decode()
        self._write(
            partial(updates.keep, home=self._home, experiment=experiment, stamp=stamp, body=body)
        )

    def remove(self, experiments: Iterable[str]) -> None:
        """Remove experiments that no longer exist."""
        gone = sorted(experiments)
        if gone:
            self._write(partial(updates.remove, home=self._home, experiments=gone))

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def _write(self, work: Callable[[Connection, int], bool]) -> None:
        self._store.write(self._home, work)

    def _page(
        self,
        connection: Connection,
        rows: IndexList[QueryT, RowT],
        query: QueryT,
        complete: Callable[[Sequence[Body]], None] = lambda rows: None,
    ) -> Page[RowT]:
        count = partial(rows.total, home=self._home, query=query)
        total = self._remembered("total", query, count, connection)
        return rows.page(connection, self._home, query, total, complete)

    def _remembered(
        self,
        what: str,
        query: QueryT,
        make: Callable[[Connection], ResultT],
        connection: Connection,
    ) -> ResultT:
        """A result that is computed once per version of the index."""
        version = connection.execute(_VERSION, {"home": self._home}).scalar() or 0
        result: ResultT = self._kept.of((what, _filters(query)), version, lambda: make(connection))
        return result


def _filters(query: ExperimentQuery | RunTaskQuery) -> Hashable:
    """A query's filters, without order and place."""
    default = type(query)()
    if isinstance(query, ExperimentQuery):
        query = replace(query, columns=())
    return replace(query, sort=default.sort, order=default.order, after=None, limit=default.limit)  # type: ignore[arg-type]
