"""A metric over the experiments of a database, the newest first, in pages that go on after the last row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, func, literal, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from hpcbench.database.tables import EXPERIMENTS, METRICS, RUN_TASKS

FEWEST, MOST_AT_ONCE = 4, 1_000
"""Experiments whose values are read at a time: few at first, since one may fill a page, then ever more."""

MOST_NAMES = 1_000
"""Most metrics that are named."""

_NAMES = text(f"""
WITH RECURSIVE names(name) AS (
    SELECT MIN(metric) FROM metrics
    UNION ALL
    SELECT (SELECT MIN(metric) FROM metrics WHERE metric > names.name) FROM names WHERE names.name IS NOT NULL
)
SELECT name FROM names
WHERE name IS NOT NULL AND (
    SELECT kind FROM metrics WHERE metric = names.name ORDER BY metric, experiment LIMIT 1
) = 'score'
LIMIT {MOST_NAMES}
""")
"""Goes from name to name in the index: a DISTINCT would read every row."""


class Key(NamedTuple):
    """Place of a row in the list; a page goes on after it."""

    created: float
    """When the experiment was submitted, seconds since the epoch."""
    experiment: str
    """Its id."""
    run_task: str
    """The run task."""


@dataclass(frozen=True, slots=True)
class Value:
    """A metric of one run task."""

    key: Key
    """Its place in the list."""
    plan: str
    """Name of the plan."""
    owner: str
    """Account of the experiment."""
    model: str
    """Model."""
    dataset: str
    """Dataset."""
    value: float
    """The value."""
    low: float | None
    """Lower end of its interval; None: there is none."""
    high: float | None
    """Upper end."""
    n: int | None
    """Samples behind it."""
    higher_is_better: bool
    """Whether higher values are better."""
    signature: str
    """The metric with all its options: only equal signatures are comparable."""


async def values(
    connection: AsyncConnection,
    metric: str,
    words: Sequence[str],
    without: str,
    after: Key | None,
    limit: int,
) -> list[Value]:
    """A page of a metric's values in ended experiments.

    Goes from experiment to experiment, the newest first, and reads the values of a few at a time. As one
    statement it would depend on how rare PostgreSQL believes the words to be: where it believes them rare, it
    reads all rows of all experiments.

    Args:
        connection: the database.
        metric: name of the metric.
        words: each occurs in the plan, owner, model, dataset or id, in any case.
        without: home whose experiments are left out.
        after: the last row of the page before; None: the first page.
        limit: most rows.
    """
    wanted = list(dict.fromkeys(word.lower() for word in words))
    found: list[Value] = []
    at, block = after, FEWEST
    while True:
        some = await _experiments(connection, wanted, without, at, block)
        if some:
            rows = _rows(
                metric, wanted, [one.experiment for one in some], after, limit - len(found)
            )
            found += [_value(*row) for row in await connection.execute(rows)]
        if len(found) >= limit or len(some) < block:
            return found
        at, block = some[-1], min(MOST_AT_ONCE, 4 * block)


async def _experiments(
    connection: AsyncConnection, words: Sequence[str], without: str, after: Key | None, limit: int
) -> list[Key]:
    """The next experiments, the newest first, that have all words among theirs and their run tasks'.

    The experiment of `after` is among them unless its run task is empty: it may have more values.
    """
    at = EXPERIMENTS.c
    statement = (
        select(at.created_at, at.id)
        .where(
            at.status == "done", at.home != without, at.created_at.is_not(None),
            *(at.words.contains(word, autoescape=True) for word in words),
        )
        .order_by(at.created_at.desc(), at.id.desc())
        .limit(limit)
    )  # fmt: skip
    if after is not None:
        then = datetime.fromtimestamp(after.created, timezone.utc)
        same = at.id <= after.experiment if after.run_task else at.id < after.experiment
        # The first condition alone follows the index.
        statement = statement.where(
            at.created_at <= then, or_(at.created_at < then, and_(at.created_at == then, same))
        )
    return [
        Key(seconds(created), identity, "")
        for created, identity in await connection.execute(statement)
    ]


def _rows(
    metric: str, words: Sequence[str], experiments: Sequence[str], after: Key | None, limit: int
) -> Select[Any]:
    """The values of some experiments, in the order of the list."""
    own, of, at = METRICS.c, RUN_TASKS.c, EXPERIMENTS.c
    shown = func.lower(
        func.coalesce(at.name, "") + literal(" ") + func.coalesce(at.owner, "") + literal(" ") + at.id
        + literal(" ") + func.coalesce(of.model, "") + literal(" ") + func.coalesce(of.dataset, "")
    )  # fmt: skip
    statement: Select[Any] = (
        select(at.created_at, at.id, of.name, at.name, at.owner, of.model, of.dataset, own.value,
               own.low, own.high, own.n, own.higher_is_better, own.signature)
        .join_from(METRICS, RUN_TASKS, and_(of.experiment == own.experiment, of.name == own.run_task))
        .join(EXPERIMENTS, at.id == own.experiment)
        .where(
            own.metric == metric, own.kind == "score", own.statistic == "value",
            own.grouped_by.is_(None), own.value.is_not(None),
            # In each table: else PostgreSQL may read all of one.
            own.experiment.in_(experiments), of.experiment.in_(experiments), at.id.in_(experiments),
            *(shown.contains(word, autoescape=True) for word in words),
        )
        .order_by(at.created_at.desc(), at.id.desc(), of.name.desc())
        .limit(limit)
    )  # fmt: skip
    if after is not None:
        statement = statement.where(or_(at.id != after.experiment, of.name < after.run_task))
    return statement


def _value(created: datetime, experiment: str, run_task: str, *rest: Any) -> Value:
    plan, owner, model, dataset, value, low, high, n, up, signature = rest
    return Value(
        Key(seconds(created), experiment, run_task), plan or "", owner or "", model or "", dataset or "",
        float(value), low, high, n, up is not False, signature or "",
    )  # fmt: skip


def seconds(time: datetime) -> float:
    """Seconds since the epoch; SQLite's times have no zone, and are in UTC."""
    return (time if time.tzinfo is not None else time.replace(tzinfo=timezone.utc)).timestamp()


def words_of(experiment: Mapping[str, Any], run_tasks: Iterable[Mapping[str, Any]]) -> str:
    """The texts of an experiment and its run tasks in which a page looks for words, each once.

    Args:
        experiment: its row.
        run_tasks: rows of its run tasks.
    """
    own = [experiment["name"], experiment["owner"], experiment["id"]]
    named = [one[column] for column in ("model", "dataset") for one in run_tasks]
    return " ".join(dict.fromkeys(text or "" for text in [*own, *named])).lower()


async def metric_names(connection: AsyncConnection) -> list[str]:
    """Metrics of all experiments, at most `MOST_NAMES`."""
    return [name for (name,) in await connection.execute(_NAMES)]


async def whole(connection: AsyncConnection, experiments: Iterable[str]) -> set[str]:
    """Those of some experiments whose rows are all there."""
    own = EXPERIMENTS.c
    wanted = own.id.in_(list(experiments))
    found = await connection.execute(select(own.id).where(wanted, own.synced_at.is_not(None)))
    return {identity for (identity,) in found}
