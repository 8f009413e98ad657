"""A metric over the experiments of a database, the newest first, in pages that go on after the last row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, case, func, literal, or_, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from hpcbench.database.tables import EXPERIMENTS, METRICS, RUN_TASKS

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

    Args:
        connection: the database.
        metric: name of the metric.
        words: each occurs in the plan, owner, model, dataset or id, in any case.
        without: home whose experiments are left out.
        after: the last row of the page before; None: the first page.
        limit: most rows.
    """
    own, of, at = METRICS.c, RUN_TASKS.c, EXPERIMENTS.c
    statement: Select[Any] = (
        select(at.created_at, at.id, of.name, at.name, at.owner, of.model, of.dataset, own.value,
               own.low, own.high, own.n, own.higher_is_better, own.signature)
        .join_from(METRICS, RUN_TASKS, and_(of.experiment == own.experiment, of.name == own.run_task))
        .join(EXPERIMENTS, at.id == own.experiment)
        .where(
            own.metric == metric, own.kind == "score", own.statistic == "value",
            own.grouped_by.is_(None), own.value.is_not(None),
            at.status == "done", at.home != without, at.created_at.is_not(None),
        )
        .order_by(at.created_at.desc(), at.id.desc(), of.name.desc())
        .limit(limit)
    )  # fmt: skip
    shown = func.lower(
        func.coalesce(at.name, "") + literal(" ") + func.coalesce(at.owner, "") + literal(" ") + at.id
        + literal(" ") + func.coalesce(of.model, "") + literal(" ") + func.coalesce(of.dataset, "")
    )  # fmt: skip
    if words:
        # As one condition: several would look so rare to PostgreSQL that it read all rows at first.
        holds = and_(*(shown.contains(word.lower(), autoescape=True) for word in words))
        statement = statement.where(case((holds, 1), else_=0) == 1)
    if after is not None:
        then = datetime.fromtimestamp(after.created, timezone.utc)
        later = or_(
            at.id < after.experiment,
            and_(at.id == after.experiment, of.name < after.run_task),
        )
        # The first condition alone follows the index.
        statement = statement.where(
            at.created_at <= then, or_(at.created_at < then, and_(at.created_at == then, later))
        )
    return [_value(*row) for row in await connection.execute(statement)]


def _value(created: datetime, experiment: str, run_task: str, *rest: Any) -> Value:
    plan, owner, model, dataset, value, low, high, n, up, signature = rest
    aware = created if created.tzinfo is not None else created.replace(tzinfo=timezone.utc)
    return Value(
        Key(aware.timestamp(), experiment, run_task), plan or "", owner or "", model or "", dataset or "",
        float(value), low, high, n, up is not False, signature or "",
    )  # fmt: skip


async def metric_names(connection: AsyncConnection) -> list[str]:
    """Metrics of all experiments, at most `MOST_NAMES`."""
    return [name for (name,) in await connection.execute(_NAMES)]


async def whole(connection: AsyncConnection, experiments: Iterable[str]) -> set[str]:
    """Those of some experiments whose rows are all there."""
    own = EXPERIMENTS.c
    wanted = own.id.in_(list(experiments))
    found = await connection.execute(select(own.id).where(wanted, own.synced_at.is_not(None)))
    return {identity for (identity,) in found}
