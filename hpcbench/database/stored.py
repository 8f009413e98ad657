"""One experiment as a database has it: its run tasks with their scores, and its samples in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from hpcbench.database.tables import ANSWERS, EXPERIMENTS, METRICS, RUN_TASKS, SAMPLES, SCORES

MOST_CHARACTERS = 2_000
"""Most characters of an answer in a page: some models write a whole book."""

Row = dict[str, Any]


async def head(connection: AsyncConnection, experiment: str) -> Row | None:
    """The experiment; None: the database does not have it."""
    own = EXPERIMENTS.c
    found = await _rows(
        connection,
        select(own.id, own.name, own.description, own.owner, own.home, own.created_at, own.status,
               own.reason, own.hpcbench, own.synced_at).where(own.id == experiment),
    )  # fmt: skip
    return found[0] if found else None


async def run_tasks(connection: AsyncConnection, experiment: str) -> Sequence[Row]:
    """Its run tasks, in the plan's order."""
    own = RUN_TASKS.c
    return await _rows(
        connection,
        select(own.name, own.ml_task, own.model, own.dataset, own.split, own.prompt, own.engine,
               own.status, own.reason, own.asked, own.answered, own.coverage)
        .where(own.experiment == experiment)
        .order_by(own.place),
    )  # fmt: skip


async def scores(connection: AsyncConnection, experiment: str) -> Sequence[Row]:
    """The metrics of its run tasks over all samples, in the order of `metrics.json`."""
    own = METRICS.c
    return await _rows(
        connection,
        select(own.run_task, own.metric, own.value, own.low, own.high, own.n, own.documents, own.method,
               own.signature, own.higher_is_better)
        .where(own.experiment == experiment, own.kind == "score", own.statistic == "value",
               own.grouped_by.is_(None))
        .order_by(own.number),
    )  # fmt: skip


async def samples(
    connection: AsyncConnection, experiment: str, run_task: str, after: int, limit: int
) -> Sequence[Row]:
    """Samples of a run task in the dataset's order, each with its answer and `scores`: metric → value.

    Args:
        connection: the database.
        experiment: id of the experiment.
        run_task: the run task.
        after: place of the last sample of the page before; -1: the first page.
        limit: most samples.
    """
    own, answer, score = SAMPLES.c, ANSWERS.c, SCORES.c
    mine = and_(own.experiment == experiment, own.run_task == run_task, own.place > after)
    found = await _rows(
        connection,
        select(own.sample, own.place, own.document, own.outcome, own.reference_answers,
               func.substr(own.prediction, 1, MOST_CHARACTERS).label("prediction"), own.reason, own.mistake,
               func.substr(answer.answer, 1, MOST_CHARACTERS).label("answer"), answer.error)
        .join_from(SAMPLES, ANSWERS, and_(
            answer.experiment == own.experiment, answer.run_task == own.run_task,
            answer.sample == own.sample,
        ), isouter=True)
        .where(mine)
        .order_by(own.place)
        .limit(limit),
    )  # fmt: skip
    values: dict[str, dict[str, float | None]] = {}
    for one in await _rows(
        connection,
        select(score.sample, score.metric, score.value).where(
            score.experiment == experiment, score.run_task == run_task,
            score.sample.in_([one["sample"] for one in found]),
        ),
    ):  # fmt: skip
        values.setdefault(one["sample"], {})[one["metric"]] = one["value"]
    return [{**one, "scores": values.get(one["sample"], {})} for one in found]


async def _rows(connection: AsyncConnection, statement: Select[Any]) -> Sequence[Row]:
    return [dict(one) for one in (await connection.execute(statement)).mappings()]
