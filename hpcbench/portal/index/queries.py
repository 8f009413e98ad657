"""Database queries of lists, facets and trends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, FromClause, Table, and_, func, select, true

from hpcbench.portal.index import COUNTED_TO, MOST, ExperimentQuery, RunTaskQuery, ScoreKey
from hpcbench.portal.index.paging import Place, cursor, pages, place_of
from hpcbench.portal.index.schema import EXPERIMENTS, MEMBERS, RUN_TASKS, SCORES
from hpcbench.portal.index.text_keys import asked, clean
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.experiments import (
    DatasetScore,
    ExperimentRow,
    Facet,
    RunTaskRow,
    ScoreColumn,
)

QueryT = TypeVar("QueryT", ExperimentQuery, RunTaskQuery)
RowT = TypeVar("RowT", ExperimentRow, RunTaskRow)

TREND = 10
"""Most experiments in a row's trend."""

FACET = 50
"""Most values of a facet."""


def _experiment_filters(query: ExperimentQuery) -> dict[str, ColumnElement[bool]]:
    own = EXPERIMENTS.c
    found: dict[str, ColumnElement[bool]] = {}
    if query.states:
        found["state"] = own.state.in_(_cleaned(query.states))
    if query.plans:
        found["plan"] = own.plan.in_(_cleaned(query.plans))
    if query.models:
        found["model"] = own.id.in_(_members("model", query.models))
    if query.datasets:
        found["dataset"] = own.id.in_(_members("dataset", query.datasets))
    if query.text.strip():
        found["text"] = _has_words(EXPERIMENTS, query.text)
    return found


def _run_task_filters(query: RunTaskQuery) -> dict[str, ColumnElement[bool]]:
    own = RUN_TASKS.c
    found: dict[str, ColumnElement[bool]] = {}
    if query.experiment is not None:
        found["experiment"] = own.experiment == clean(query.experiment)
    if query.states:
        found["state"] = own.state.in_(_cleaned(query.states))
    if query.models:
        found["model"] = own.model.in_(_cleaned(query.models))
    if query.datasets:
        found["dataset"] = own.dataset.in_(_cleaned(query.datasets))
    if query.text.strip():
        found["text"] = _has_words(RUN_TASKS, query.text)
    return found


class Listed(Generic[QueryT, RowT]):
    """The list of experiments or of run tasks.

    Args:
        table: its table.
        keys: columns that identify a row.
        row: the model of a row.
        page: the model of a page.
        filters: returns a query's conditions by the name of the filter.
    """

    def __init__(
        self,
        table: Table,
        keys: Sequence[str],
        row: type[RowT],
        page: type[Page[RowT]],
        filters: Callable[[QueryT], dict[str, ColumnElement[bool]]],
    ) -> None:
        self._table, self._keys = table, keys
        self._row: type[RowT] = row
        self._page: type[Page[RowT]] = page
        self._filters: Callable[[QueryT], dict[str, ColumnElement[bool]]] = filters

    def page(self, connection: Connection, home: str, query: QueryT, total: int) -> Page[RowT]:
        """A page of the list.

        Raises:
            BadCursor: `after` does not belong to this list.
        """
        source, column = self._sorted(query)
        keys = [self._table.c[key] for key in self._keys]
        aside = {("after", query.after), ("limit", query.limit)}
        of = repr(sorted((asdict(query) | {"columns": ()}).items() - aside))
        kind = str if column.type.python_type is str else float
        after = place_of(query.after, of, len(keys), kind) if query.after else None
        limit = max(1, min(query.limit, MOST))
        statement = select(self._table.c.body, column, *keys).select_from(source)
        statement = statement.where(self._where(home, query))
        rows: list[Any] = []
        for part in pages(statement, column, keys, query.order, after):
            if len(rows) <= limit:
                rows += connection.execute(part.limit(limit + 1 - len(rows)))
        more = len(rows) > limit
        shown = rows[:limit]
        return self._page(
            items=tuple(self._row.model_validate_json(row[0]) for row in shown),
            next=cursor(Place(shown[-1][1], tuple(shown[-1][2:])), of) if more else None,
            total=total,
            counted_to=COUNTED_TO,
        )

    def _sorted(self, query: QueryT) -> tuple[FromClause, ColumnElement[Any]]:
        """The rows, and the column to sort by."""
        if isinstance(query.sort, str):
            return self._table, self._table.c[query.sort]
        dataset, metric = query.sort
        own, scores = EXPERIMENTS.c, SCORES.c
        same = and_(
            scores.home == own.home, scores.experiment == own.id,
            scores.dataset == clean(dataset), scores.metric == clean(metric),
        )  # fmt: skip
        return EXPERIMENTS.outerjoin(SCORES, same), scores.value

    def total(self, connection: Connection, home: str, query: QueryT) -> int:
        """Number of rows, counted up to COUNTED_TO."""
        some = select(true()).select_from(self._table).where(self._where(home, query))
        counted = select(func.count()).select_from(some.limit(COUNTED_TO).subquery())
        return int(connection.execute(counted).scalar_one())

    def facet(self, connection: Connection, home: str, query: QueryT, name: str) -> Facet:
        """Values of a column with their numbers of rows; the column's own filter is ignored."""
        where = self._where(home, query, without=name)
        if name in self._table.c:
            value = self._table.c[name]
            counted = select(value, func.count().label("rows")).where(where)
        else:
            value = MEMBERS.c.value
            source = select(self._table.c[self._keys[-1]]).where(where)
            counted = select(value, func.count().label("rows")).where(
                MEMBERS.c.home == home, MEMBERS.c.kind == name, MEMBERS.c.experiment.in_(source)
            )
        ordered = counted.group_by(value).order_by(func.count().desc(), value).limit(FACET)
        return Facet(
            field=name, counts=tuple((row[0], row[1]) for row in connection.execute(ordered))
        )

    def _where(self, home: str, query: QueryT, without: str = "") -> ColumnElement[bool]:
        wanted = self._filters(query)
        wanted.pop(without, None)
        return and_(self._table.c.home == home, *wanted.values())


EXPERIMENT_LIST: Listed[ExperimentQuery, ExperimentRow] = Listed(
    EXPERIMENTS, ("id",), ExperimentRow, Page[ExperimentRow], _experiment_filters
)
RUN_TASK_LIST: Listed[RunTaskQuery, RunTaskRow] = Listed(
    RUN_TASKS, ("experiment", "name"), RunTaskRow, Page[RunTaskRow], _run_task_filters
)


def with_trends(
    connection: Connection, home: str, rows: Sequence[ExperimentRow]
) -> tuple[ExperimentRow, ...]:
    """The rows, each with the values of its plan's last experiments up to its own experiment."""
    scored = [row for row in rows if row.score is not None]
    known = _trends(connection, home, {row.plan for row in scored})
    return tuple(
        row.model_copy(update={"trend": _trend(known, row)}) if row.score is not None else row
        for row in rows
    )


def _trends(
    connection: Connection, home: str, plans: Iterable[str]
) -> Mapping[tuple[str, str], list[tuple[float, str, float]]]:
    """Plan and metric → time, id and value of the plan's experiments, oldest first."""
    own = EXPERIMENTS.c
    asked_for = (
        select(own.plan, own.metric, own.created, own.id, own.score)
        .where(own.home == home, own.plan.in_(sorted(plans)), own.score.is_not(None))
        .order_by(own.plan, own.metric, own.created, own.id)
    )
    rows = connection.execute(asked_for)
    return {
        (plan, metric): [(created, identity, value) for *_, created, identity, value in some]
        for (plan, metric), some in groupby(rows, key=itemgetter(0, 1))
    }


def _trend(
    known: Mapping[tuple[str, str], list[tuple[float, str, float]]], row: ExperimentRow
) -> tuple[float, ...]:
    metric = row.score.metric if row.score is not None else ""
    here = (row.created, row.id)
    values = [
        value
        for created, identity, value in known.get((row.plan, metric), ())
        if (created, identity) <= here
    ]
    return tuple(values[-TREND:])


# --- values by dataset and metric -----------------------------------------------------------------------


def score_columns(
    connection: Connection, home: str, query: ExperimentQuery
) -> tuple[ScoreColumn, ...]:
    """See `Index`."""
    own, scores = EXPERIMENTS.c, SCORES.c
    count = func.count()
    statement = (
        select(scores.dataset, scores.metric, count, func.max(scores.higher_is_better))
        .select_from(
            SCORES.join(EXPERIMENTS, and_(own.home == scores.home, own.id == scores.experiment))
        )
        .where(scores.home == home, *_experiment_filters(query).values())
        .group_by(scores.dataset, scores.metric)
        .order_by(count.desc(), func.min(scores.place), scores.dataset, scores.metric)
        .limit(MOST)
    )
    return tuple(
        ScoreColumn(
            dataset=dataset, metric=metric, experiments=experiments, higher_is_better=bool(up)
        )
        for dataset, metric, experiments, up in connection.execute(statement)
    )


def with_scores(
    connection: Connection,
    home: str,
    rows: Sequence[ExperimentRow],
    columns: Sequence[ScoreKey],
) -> tuple[ExperimentRow, ...]:
    """The rows, each with its values of the columns, their trends and their changes to a baseline."""
    if not columns or not rows:
        return tuple(rows)
    found: dict[str, list[DatasetScore]] = {}
    for column in columns:
        for score, row in _scores(connection, home, rows, column):
            found.setdefault(row.id, []).append(score)
    return tuple(row.model_copy(update={"scores": tuple(found.get(row.id, ()))}) for row in rows)


def _scores(
    connection: Connection, home: str, rows: Sequence[ExperimentRow], column: ScoreKey
) -> Iterator[tuple[DatasetScore, ExperimentRow]]:
    """Values of rows in a column."""
    scores, (dataset, metric) = SCORES.c, map(clean, column)
    here = and_(scores.home == home, scores.dataset == dataset, scores.metric == metric)
    mine = here & scores.experiment.in_([row.id for row in rows])
    stored = connection.execute(select(scores.experiment, scores.body).where(mine))
    bodies: dict[str, str] = {experiment: body for experiment, body in stored}
    known = _values_of_plans(connection, home, here, {row.plan for row in rows})
    for row in rows:
        values, places, baseline = known.get(row.plan, ([], {}, None))
        at = places.get(row.id)
        if at is None or row.id not in bodies:  # removed meanwhile, or without a value
            continue
        score = DatasetScore.model_validate_json(bodies[row.id])
        trend = tuple(values[max(0, at + 1 - TREND) : at + 1])
        change = None if baseline in (None, at) else values[at] - values[baseline]
        yield score.model_copy(update={"change": change, "trend": trend}), row


def _values_of_plans(
    connection: Connection, home: str, here: ColumnElement[bool], plans: Iterable[str]
) -> Mapping[str, tuple[list[float], dict[str, int], int | None]]:
    """Plan → values of its experiments, oldest first; their places by id; place of the newest baseline."""
    own, scores = EXPERIMENTS.c, SCORES.c
    joined = SCORES.join(EXPERIMENTS, and_(own.home == scores.home, own.id == scores.experiment))
    statement = (
        select(own.plan, own.id, scores.value, own.baselines > 0)
        .select_from(joined)
        .where(here, own.plan.in_(sorted(plans)))
        .order_by(own.plan, own.created, own.id)
    )
    found: dict[str, tuple[list[float], dict[str, int], int | None]] = {}
    for plan, identity, value, is_baseline in connection.execute(statement):
        values, places, baseline = found.get(plan, ([], {}, None))
        places[identity] = len(values)
        found[plan] = (values, places, len(values) if is_baseline else baseline)
        values.append(value)
    return found


def _members(kind: str, values: Sequence[str]) -> Any:
    own = MEMBERS.c
    return select(own.experiment).where(
        own.home == EXPERIMENTS.c.home, own.kind == kind, own.value.in_(_cleaned(values))
    )


def _has_words(table: Table, text: str) -> ColumnElement[bool]:
    return and_(true(), *(table.c.words.contains(word, autoescape=True) for word in asked(text)))


def _cleaned(values: Sequence[str]) -> list[str]:
    return [clean(value) for value in values]
