"""Routes of an experiment of another home, out of the database of results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Query

from hpcbench.metrics.resources import unit_of
from hpcbench.portal.context import Here, Portal
from hpcbench.portal.faults import PortalFault, missing
from hpcbench.portal.json_safe import sound
from hpcbench.portal.models.stored import (
    StoredExperiment,
    StoredRunTask,
    StoredSample,
    StoredSamples,
    StoredScore,
)
from hpcbench.portal.results_database import database_of
from hpcbench.portal.routes import new_router

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

AnswerT = TypeVar("AnswerT")

router = new_router("stored")


@router.get("/stored/{experiment}", operation_id="storedExperiment")
async def stored_experiment(portal: Here, experiment: str) -> StoredExperiment:
    """An experiment with its run tasks and their scores."""

    async def ask(connection: AsyncConnection) -> StoredExperiment | None:
        from hpcbench.database import stored, values

        head = await stored.head(connection, experiment)
        if head is None:
            return None
        scores: dict[str, list[StoredScore]] = {}
        for one in await stored.scores(connection, experiment):
            fields = _known(one)
            run_task = fields.pop("run_task")
            fields["unit"] = sound(unit_of(one["signature"] or ""))
            scores.setdefault(run_task, []).append(StoredScore(**fields))
        run_tasks = [
            StoredRunTask(**_known(one), scores=tuple(scores.get(sound(one["name"]), ())))
            for one in await stored.run_tasks(connection, experiment)
        ]

        created, synced = head.pop("created_at"), head.pop("synced_at")
        return StoredExperiment(
            **_known(head),
            created=created and values.seconds(created),
            synced=synced and values.seconds(synced),
            run_tasks=tuple(run_tasks),
        )

    found = await _answer(portal, ask)
    if found is None:
        what = f"the database of results has no experiment '{sound(experiment[:200])}'"
        raise missing(what, "its owner sends it by `hpcbench database sync`")
    return found


@router.get("/stored/{experiment}/samples", operation_id="storedSamples")
async def stored_samples(
    portal: Here,
    experiment: str,
    run_task: Annotated[str, Query(max_length=500, description="Name of the run task.")],
    after: Annotated[int, Query(ge=-1, lt=1 << 62, description="Place of the last sample.")] = -1,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> StoredSamples:
    """Samples of an evaluated run task with answers and scores, in the dataset's order."""

    async def ask(connection: AsyncConnection) -> list[StoredSample]:
        from hpcbench.database import stored

        found = await stored.samples(connection, experiment, run_task, after, limit + 1)
        return [StoredSample(**_known(one)) for one in found]

    found = await _answer(portal, ask)
    more = str(found[limit - 1].place) if len(found) > limit else None
    return StoredSamples(items=tuple(found[:limit]), next=more)


async def _answer(
    portal: Portal, question: Callable[[AsyncConnection], Awaitable[AnswerT]]
) -> AnswerT:
    """The database's answer.

    Raises:
        PortalFault: there is no database, or it gives no answer.
    """
    database = database_of(portal)
    if database is None:
        what = "the site profile names no database of results"
        raise missing(what, "write `database:` into it: docs/database.md")
    answer = await database.ask(question)
    if isinstance(answer, str):
        what = f"the database of results gives no answer: {sound(answer)}"
        raise PortalFault(
            503, "busy", what, "try again later: experiments of other homes are there alone"
        )
    return answer


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row that have a value."""
    return {name: sound(value) for name, value in row.items() if value is not None}
