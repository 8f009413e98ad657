"""Routes of exports: lists as files, with the filter and the order of the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Path, Query, Response

from hpcbench.interchange.result_tables import Table
from hpcbench.portal import exporting
from hpcbench.portal.comparison import (
    ComparisonRequest,
    comparisons_of,
    read_runs,
)
from hpcbench.portal.context import Here, experiment_of
from hpcbench.portal.exporting import Form, sent
from hpcbench.portal.faults import PortalFault, bad_request
from hpcbench.portal.flip_pages import flip_places
from hpcbench.portal.index import (
    MOST,
    BadCursor,
    Order,
    RunTaskQuery,
    RunTaskSort,
)
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.experiments import ExperimentRow, RunTaskRow
from hpcbench.portal.routes import new_router
from hpcbench.portal.routes.compare import Common, FlipChoice, Name, Runs, pair
from hpcbench.portal.routes.experiments import Queried
from hpcbench.portal.routes.samples import BELOW, Choice, Id, Ordering
from hpcbench.portal.sample_table import sample_table_of
from hpcbench.portal.slow_work import patiently

router = new_router("export")

Asking = Annotated[Form, Query(alias="format", description="How.")]
Several = Annotated[list[str] | None, Query(max_length=50)]
Text = Annotated[str, Query(max_length=500)]

PageT = TypeVar("PageT")

_FILE: dict[str, Any] = {
    "response_class": Response,
    "responses": {200: {"content": {"text/csv": {}, "application/json": {}}}},
}


@router.get(f"{BELOW}/export", operation_id="exportSamples", **_FILE)
async def samples(
    portal: Here,
    experiment: Id,
    run_task: Id,
    chosen: Choice,
    ordered: Ordering,
    form: Asking = "csv",
) -> Response:
    """The chosen samples of a run task, in the order of the page."""

    def work() -> Response:
        table = sample_table_of(portal, experiment, run_task)
        rows = exporting.samples(table, chosen, ordered)
        return sent(rows, form, f"{table.experiment.id}-{table.name}-samples")

    return await patiently(work)


@router.get("/experiments/export", operation_id="exportExperiments", **_FILE)
def experiments(portal: Here, query: Queried, form: Asking = "csv") -> Response:
    """The list of experiments."""

    def ask(after: str | None) -> Page[ExperimentRow]:
        return portal.index.experiments(replace(query, after=after, limit=MOST))

    def flat(row: ExperimentRow) -> dict[str, Any]:
        return exporting.experiment_cells(row, query.columns)

    return sent(_listed(ask, flat), form, "experiments")


@router.get("/experiments/{experiment}/run-tasks/export", operation_id="exportRunTasks", **_FILE)
def run_tasks(
    portal: Here, experiment: Annotated[str, Path(max_length=200)], state: Several = None,
    text: Text = "", model: Several = None, dataset: Several = None, sort: RunTaskSort = "name",
    order: Order = "asc", form: Asking = "csv",
) -> Response:  # fmt: skip
    """The list of an experiment's run tasks."""
    here = experiment_of(portal, experiment)

    def ask(after: str | None) -> Page[RunTaskRow]:
        return portal.index.run_tasks(
            RunTaskQuery(
                experiment=here.id, states=tuple(state or ()), text=text, models=tuple(model or ()),
                datasets=tuple(dataset or ()), sort=sort, order=order, after=after, limit=MOST,
            )
        )  # fmt: skip

    return sent(_listed(ask, exporting.run_task_cells), form, f"{here.id}-run-tasks")


@router.get("/compare/export", operation_id="exportComparison", **_FILE)
async def comparison(
    portal: Here, runs: Runs, chosen: FlipChoice, what: Literal["metrics", "flips"] = "metrics",
    run_task: Name = "", other: Name = "", metric: Name = "", common: Common = False,
    form: Asking = "csv",
) -> Response:  # fmt: skip
    """Metrics of a comparison; or samples of the first two runs: lost, won or tied."""

    def work() -> Response:
        found = comparisons_of(portal)
        if what == "flips":
            asked = pair(portal, runs[0], runs[1], run_task, other, metric, common)
            changes = found.changes(asked)
            places = flip_places(portal, asked, changes, chosen)
            return sent(exporting.flips(changes, places), form, f"flips-{runs[1]}")
        asked = ComparisonRequest(read_runs(portal, runs), run_task, other, metric, common)
        return sent(exporting.comparison(found.whole(asked).comparison), form, f"compare-{runs[0]}")

    if len(runs) < 2:
        raise bad_request("the request names fewer than two runs", "name two runs at least")
    return await patiently(work)


def _listed(ask: Callable[[str | None], Page[PageT]], flat: Callable[[PageT], Any]) -> Table:
    try:
        return exporting.listed(ask, flat)
    except BadCursor as error:  # the list has changed, and no page continues it
        raise PortalFault(409, "conflict", str(error)) from error
