"""Database queries of lists, facets and trends."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

from pydantic_core import from_json
from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Table,
    and_,
    bindparam,
    case,
    func,
    select,
    true,
)

from hpcbench.portal.index import COUNTED_TO, MOST, ExperimentQuery, RunTaskQuery, ScoreKey
from hpcbench.portal.index.paging import RowPosition, cursor, pages, position_of
from hpcbench.portal.index.schema import EXPERIMENTS, MEMBERS, RUN_TASKS, SCORES
from hpcbench.portal.index.text_keys import asked, clean
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.experiments import (
    ExperimentRow,
    Facet,
    RunTaskRow,
    ScoreColumn,
)

QueryT = TypeVar("QueryT", ExperimentQuery, RunTaskQuery)
RowT = TypeVar("RowT", ExperimentRow, RunTaskRow)

Body = dict[str, Any]
"""A row as it is stored, before it becomes a model."""

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


class IndexList(Generic[QueryT, RowT]):
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

    def page(
        self,
        connection: Connection,
        home: str,
        query: QueryT,
        total: int,
        complete: Callable[[Sequence[Body]], None] = lambda rows: None,
    ) -> Page[RowT]:
        """A page of the list.

        Args:
            connection: the database.
            home: the home.
            query: filters, order and place of the page.
            total: rows of the whole list.
            complete: adds to the rows what their own bodies do not have; a model made once costs less than
                two that are copied.

        Raises:
            BadCursor: `after` does not belong to this list.
        """
        source, column = self._sorted(query)
        keys = [self._table.c[key] for key in self._keys]
        aside = {("after", query.after), ("limit", query.limit)}
        of = repr(sorted((asdict(query) | {"columns": ()}).items() - aside))
        kind = str if column.type.python_type is str else float
        after = position_of(query.after, of, len(keys), kind) if query.after else None
        limit = max(1, min(query.limit, MOST))
        statement = select(self._table.c.body, column, *keys).select_from(source)
        statement = statement.where(self._where(home, query))
        rows: list[Any] = []
        for part in pages(statement, column, keys, query.order, after):
            if len(rows) <= limit:
                rows += connection.execute(part.limit(limit + 1 - len(rows)))
        more = len(rows) > limit
        shown = rows[:limit]
        bodies = [from_json(row[0]) for row in shown]
        complete(bodies)
        return self._page(
            items=tuple(map(self._row.model_validate, bodies)),
            next=cursor(RowPosition(shown[-1][1], tuple(shown[-1][2:])), of) if more else None,
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


EXPERIMENT_LIST: IndexList[ExperimentQuery, ExperimentRow] = IndexList(
    EXPERIMENTS, ("id",), ExperimentRow, Page[ExperimentRow], _experiment_filters
)
RUN_TASK_LIST: IndexList[RunTaskQuery, RunTaskRow] = IndexList(
    RUN_TASKS, ("experiment", "name"), RunTaskRow, Page[RunTaskRow], _run_task_filters
)


def add_trends(connection: Connection, home: str, rows: Sequence[Body]) -> None:
    """Give each experiment with a score the values of its plan's last experiments, up to its own."""
    scored = [row for row in rows if row["score"] is not None]
    if not scored:
        return
    known = _trends(connection, home, {row["plan"] for row in scored})
    for row in scored:
        places, values = known.get((row["plan"], row["score"]["metric"]), ([], []))
        end = bisect_right(places, (row["created"], row["id"]))
        row["trend"] = values[max(0, end - TREND) : end]


_own = EXPERIMENTS.c

_TRENDS = (
    select(_own.plan, _own.metric, _own.created, _own.id, _own.score)
    .where(
        _own.home == bindparam("home"),
        _own.plan.in_(bindparam("plans", expanding=True)),
        _own.score.is_not(None),
    )
    .order_by(_own.plan, _own.metric, _own.created, _own.id)
)
"""Statements of each page are made once: to make one takes longer than SQLite takes to answer it."""


def _trends(
    connection: Connection, home: str, plans: Iterable[str]
) -> Mapping[tuple[str, str], tuple[list[tuple[float, str]], list[float]]]:
    """Plan and metric → time and id of the plan's experiments, oldest first, and their values."""
    rows = connection.execute(_TRENDS, {"home": home, "plans": sorted(plans)})
    found: dict[tuple[str, str], tuple[list[tuple[float, str]], list[float]]] = {}
    for plan, metric, created, identity, value in rows:
        places, values = found.setdefault((plan, metric), ([], []))
        places.append((created, identity))
        values.append(value)
    return found


# --- values by dataset and metric -----------------------------------------------------------------------


def score_columns(
    connection: Connection, home: str, query: ExperimentQuery
) -> tuple[ScoreColumn, ...]:
    """See `Index.score_columns`."""
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


def add_scores(
    connection: Connection, home: str, rows: Sequence[Body], columns: Sequence[ScoreKey]
) -> None:
    """Give each experiment its values of the columns, their trends and their changes to a baseline."""
    if not columns or not rows:
        return
    for row in rows:
        row["scores"] = []
    for column in columns:
        known = _values_of_plans(connection, home, column, rows)
        for row in rows:
            plan = known.get(row["plan"])
            at = plan.places.get(row["id"]) if plan is not None else None
            if plan is None or at is None or row["id"] not in plan.bodies:
                continue  # removed meanwhile, or without a value
            values, baseline = plan.values, plan.baseline
            score = from_json(plan.bodies[row["id"]])
            score["trend"] = values[max(0, at + 1 - TREND) : at + 1]
            score["change"] = None if baseline in (None, at) else values[at] - values[baseline]
            row["scores"].append(score)


@dataclass(slots=True)
class _Plan:
    """A plan's experiments with a value in a column."""

    values: list[float] = field(default_factory=list)
    """Their values, oldest first."""
    places: dict[str, int] = field(default_factory=dict)
    """Experiment → its place in `values`."""
    bodies: dict[str, str] = field(default_factory=dict)
    """Experiment → its value as stored; only those of the page."""
    baseline: int | None = None
    """Place of the newest baseline."""


_OF_PLANS = (
    select(
        _own.plan,
        _own.id,
        SCORES.c.value,
        _own.baselines > 0,
        case((_own.id.in_(bindparam("shown", expanding=True)), SCORES.c.body)),
    )
    .select_from(
        SCORES.join(EXPERIMENTS, and_(_own.home == SCORES.c.home, _own.id == SCORES.c.experiment))
    )
    .where(
        SCORES.c.home == bindparam("home"),
        SCORES.c.dataset == bindparam("dataset"),
        SCORES.c.metric == bindparam("metric"),
        _own.plan.in_(bindparam("plans", expanding=True)),
    )
    .order_by(_own.plan, _own.created, _own.id)
)


def _values_of_plans(
    connection: Connection, home: str, column: ScoreKey, rows: Sequence[Body]
) -> Mapping[str, _Plan]:
    """The rows' plans, each with its values in a column."""
    dataset, metric = map(clean, column)
    wanted = {
        "home": home, "dataset": dataset, "metric": metric,
        "plans": sorted({row["plan"] for row in rows}), "shown": [row["id"] for row in rows],
    }  # fmt: skip
    found: dict[str, _Plan] = {}
    for plan, identity, value, is_baseline, body in connection.execute(_OF_PLANS, wanted):
        one = found.setdefault(plan, _Plan())
        at = one.places[identity] = len(one.values)
        one.values.append(value)
        if is_baseline:
            one.baseline = at
        if body is not None:
            one.bodies[identity] = body
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
