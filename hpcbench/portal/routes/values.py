"""Routes of a metric over all experiments, of this home and of the others in the database of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from anyio.to_thread import run_sync
from fastapi import Query

from hpcbench.metrics.resources import unit_of
from hpcbench.portal.context import Here
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.json_safe import sound
from hpcbench.portal.metric_values import marked, own_values, page_of, read_cursor
from hpcbench.portal.models.values import MetricNames, MetricValue, MetricValues
from hpcbench.portal.results_database import database_of
from hpcbench.portal.routes import new_router
from hpcbench.portal.routes.regressions import history_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from hpcbench.database.values import Value

router = new_router("values")


@router.get("/values", operation_id="metricValues")
async def values(
    portal: Here,
    metric: Annotated[str, Query(max_length=200, description="Name of the metric.")],
    text: Annotated[
        str, Query(max_length=200, description="Words in plan, owner, model, dataset or id.")
    ] = "",
    after: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> MetricValues:
    """A metric's values in ended experiments, the newest first.

    Those of this home come from its files. Those of other homes come from the database of results; where it
    gives no answer, `fault` says why.
    """
    words, cursor = text.split(), read_cursor(after)
    place = None if cursor is None else cursor.place
    own = await run_sync(own_values, portal, history_of(portal), metric, words, place, limit + 1)
    database = database_of(portal)
    if database is None or (cursor is not None and not cursor.with_others):
        items, more = page_of(own, None, limit)
        return MetricValues(items=items, next=more, database=database is not None)

    async def ask(connection: AsyncConnection) -> tuple[list[MetricValue], set[str]]:
        from hpcbench.database import values as stored

        key = None if place is None else stored.Key(*place)
        found = await stored.values(connection, metric, words, str(portal.home), key, limit + 1)
        known = await stored.whole(connection, {one.experiment for one in own})
        return [_other(one) for one in found], known

    answer = await database.ask(ask)
    if isinstance(answer, str):
        if cursor is not None:  # the list would go on without half of its rows
            what = f"the database of results gives no answer any more: {sound(answer)}"
            raise PortalFault(503, "busy", what, "fetch the list again: it goes on from files")
        items, more = page_of(own, None, limit)
        return MetricValues(items=items, next=more, database=True, fault=sound(answer))
    others, known = answer
    items, more = page_of(own, others, limit)
    return MetricValues(items=marked(items, known), next=more, database=True)


def _other(one: Value) -> MetricValue:
    return MetricValue(
        experiment=one.key.experiment, run_task=one.key.run_task, created=one.key.created,
        plan=sound(one.plan), owner=sound(one.owner) or "?", model=sound(one.model),
        dataset=sound(one.dataset), value=one.value, low=one.low, high=one.high, n=one.n,
        higher_is_better=one.higher_is_better, signature=sound(one.signature),
        unit=sound(unit_of(one.signature)),
    )  # fmt: skip


@router.get("/values/metrics", operation_id="metricNames")
async def metrics(portal: Here) -> MetricNames:
    """Metrics of this home's history, and of the newest experiments in the database."""
    table = await run_sync(history_of(portal).table)
    names = set[str]()
    if table is not None:
        names |= set(table.filter(table["kind"] == "quality")["name"].unique().to_list())
    if (database := database_of(portal)) is not None:

        async def ask(connection: AsyncConnection) -> list[str]:
            from hpcbench.database.values import metric_names

            return await metric_names(connection)

        answer = await database.ask(ask)
        names |= set() if isinstance(answer, str) else set(answer)
    return MetricNames(names=tuple(sorted(map(sound, names))))
