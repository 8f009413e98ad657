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
    Entry,
    ExperimentQuery,
    Known,
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
from hpcbench.portal.lru import Kept
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

_KNOWN: TypeAdapter[Known] = TypeAdapter(Known)

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


class DatabaseIndex:
    """See `Index`.

    Args:
        store: the database.
        home: folder of experiments and caches.
    """

    def __init__(self, store: Store, home: Path) -> None:
        self._store, self._home = store, home_key(home)
        self._kept: Kept[Any] = Kept(KEPT)

    @classmethod
    def open(cls, url: str | None, home: Path) -> DatabaseIndex:
        """See `open_index`."""
        return cls(Store(url, home), home)

    # --- reads of the routes ----------------------------------------------------------------------------

    def version(self, experiment: str | None = None) -> int:
        """See `Index`."""
        if experiment is None:
            return self._one(_VERSION) or 0
        return self._one(_VERSION_OF, experiment=experiment) or 0

    def _one(self, statement: Select[Any], **given: str) -> Any:
        """The first value that a statement finds; None: it finds none."""
        values = {name: clean(value) for name, value in given.items()} | {"home": self._home}
        return self._store.read(lambda connection: connection.execute(statement, values).scalar())

    def experiments(self, query: ExperimentQuery) -> Page[ExperimentRow]:
        """See `Index`."""

        def ask(connection: Connection) -> Page[ExperimentRow]:
            total = self._total(connection, query, EXPERIMENT_LIST.total)

            def complete(rows: Sequence[Body]) -> None:
                add_trends(connection, self._home, rows)
                add_scores(connection, self._home, rows, query.columns)

            return EXPERIMENT_LIST.page(connection, self._home, query, total, complete)

        return self._store.read(ask)

    def experiment(self, identity: str) -> ExperimentRow | None:
        """See `Index`."""
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
        """See `Index`."""
        body = self._one(_ACCOUNT, experiment=identity)
        return None if body is None else updates.ACCOUNT.validate_json(body)

    def run_tasks(self, query: RunTaskQuery) -> Page[RunTaskRow]:
        """See `Index`."""

        def ask(connection: Connection) -> Page[RunTaskRow]:
            total = self._total(connection, query, RUN_TASK_LIST.total)
            return RUN_TASK_LIST.page(connection, self._home, query, total)

        return self._store.read(ask)

    def run_task(self, experiment: str, name: str) -> RunTaskRow | None:
        """See `Index`."""
        body = self._one(_RUN_TASK, experiment=experiment, name=name)
        return None if body is None else RunTaskRow.model_validate_json(body)

    def matrix(self, experiment: str) -> tuple[Matrix, ...]:
        """See `Index`."""
        given = {"home": self._home, "experiment": clean(experiment)}
        bodies = self._store.read(
            lambda connection: connection.execute(_MATRIX, given).scalars().all()
        )
        return matrices([RunTaskRow.model_validate_json(body) for body in bodies])

    def experiment_facets(self, query: ExperimentQuery) -> tuple[Facet, ...]:
        """See `Index`."""
        names = ("state", "model", "dataset", "plan")
        return self._store.read(
            lambda connection: self._remembered(
                connection,
                ("facets", _filters(query)),
                lambda: tuple(
                    EXPERIMENT_LIST.facet(connection, self._home, query, name) for name in names
                ),
            )
        )

    def score_columns(self, query: ExperimentQuery) -> tuple[ScoreColumn, ...]:
        """See `Index`."""
        return self._store.read(
            lambda connection: self._remembered(
                connection,
                ("columns", _filters(query)),
                lambda: score_columns(connection, self._home, query),
            )
        )

    def run_task_facets(self, query: RunTaskQuery) -> tuple[Facet, ...]:
        """See `Index`."""
        names = ("state", "model", "dataset")
        return self._store.read(
            lambda connection: self._remembered(
                connection,
                ("facets", _filters(query)),
                lambda: tuple(
                    RUN_TASK_LIST.facet(connection, self._home, query, name) for name in names
                ),
            )
        )

    def search(self, text: str, limit: int = 20) -> tuple[Hit, ...]:
        """See `Index`."""
        return self._store.read(
            lambda connection: palette.search(connection, self._home, text, limit)
        )

    def places(self, experiment: str, file: str) -> Places | None:
        """See `Index`."""
        body = self._one(_PLACES, experiment=experiment, name=file)
        return None if body is None else Places.of_json(body)

    def known(self, experiment: str) -> Known | None:
        """See `Index`."""
        body = self._one(_KNOWN_OF, experiment=experiment)
        try:
            return None if body is None else _KNOWN.validate_json(body)
        except ValidationError:  # written by another version of hpcbench
            return None

    # --- calls of the follower ----------------------------------------------------------------------------

    def stamps(self) -> dict[str, str]:
        """See `Index`."""
        self._store.check()
        own = EXPERIMENTS.c
        statement = select(own.id, own.stamp).where(own.home == self._home)
        return self._store.read(
            lambda connection: {name: stamp for name, stamp in connection.execute(statement)}
        )

    def unknown(self) -> list[str]:
        """See `Index`."""
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
        """See `Index`."""
        for begin in range(0, len(entries), ENTRIES_AT_ONCE):
            some = entries[begin : begin + ENTRIES_AT_ONCE]
            self._write(partial(updates.put, home=self._home, entries=some))

    def keep(self, experiment: str, stamp: str, known: Known) -> None:
        """See `Index`."""
        body = _KNOWN.dump_json(known).decode()
        self._write(
            partial(updates.keep, home=self._home, experiment=experiment, stamp=stamp, body=body)
        )

    def remove(self, experiments: Iterable[str]) -> None:
        """See `Index`."""
        gone = sorted(experiments)
        if gone:
            self._write(partial(updates.remove, home=self._home, experiments=gone))

    def close(self) -> None:
        """See `Index`."""
        self._store.close()

    def _write(self, work: Callable[[Connection, int], bool]) -> None:
        self._store.write(self._home, work)

    def _total(
        self,
        connection: Connection,
        query: Any,
        count: Callable[[Connection, str, Any], int],
    ) -> int:
        return self._remembered(
            connection, ("total", _filters(query)), lambda: count(connection, self._home, query)
        )

    def _remembered(
        self, connection: Connection, key: Hashable, make: Callable[[], ResultT]
    ) -> ResultT:
        """A result that is computed once per version of the index."""
        version = (
            connection.execute(select(HOMES.c.version).where(HOMES.c.home == self._home)).scalar()
            or 0
        )
        result: ResultT = self._kept.of(key, version, make)
        return result


def _filters(query: ExperimentQuery | RunTaskQuery) -> Hashable:
    """A query's filters, without order and place."""
    default = type(query)()
    if isinstance(query, ExperimentQuery):
        query = replace(query, columns=())
    return replace(query, sort=default.sort, order=default.order, after=None, limit=default.limit)  # type: ignore[arg-type]
