"""Routes of lists, of an experiment's page and of the palette: all from the index."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Query, Request, Response
from pydantic import StringConstraints

import hpcbench
from hpcbench.portal.context import Here, Portal, experiment_of, once
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.follower import follower_of
from hpcbench.portal.index import (
    MOST,
    Account,
    DerivedFacts,
    ExperimentQuery,
    ExperimentSort,
    Order,
    RunTaskQuery,
    RunTaskSort,
    ScoreKey,
)
from hpcbench.portal.lru import LruCache, stamp_of
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.experiments import (
    ExperimentDetail,
    ExperimentRow,
    Facet,
    Hit,
    RunTaskRow,
    ScoreColumn,
)
from hpcbench.portal.models.run_tasks import DatasetObject
from hpcbench.portal.packed import packed, packed_answer
from hpcbench.portal.results_cache import results_of
from hpcbench.portal.routes import json_of, new_router
from hpcbench.portal.routes.run_tasks import opened
from hpcbench.portal.shard_page import objects
from hpcbench.portal.state_sentence import sentence
from hpcbench.portal.status_cache import figures_of, known_of

router = new_router("experiments")

ANSWERS_BYTES = 2 << 20
"""Bytes of answers that are kept, compressed: a list of a hundred experiments takes 7 kB."""

OBJECTS = 2_000
"""Most dataset objects of a page: rows are small, and the page shows all rows at once."""

Values = Annotated[
    list[str],
    Query(max_length=100, description="May be repeated; at least one value has to match."),
]
Text = Annotated[str, Query(max_length=200, description="Words; each has to occur.")]
After = Annotated[str | None, Query(max_length=4_000, description="`next` of the previous page.")]
Limit = Annotated[int, Query(ge=1, le=MOST)]
ScoreText = Annotated[str, StringConstraints(pattern=r"^[^:]+:[^:]+$", max_length=400)]
"""`DATASET:METRIC`."""
Identity = Annotated[str, Path(max_length=200)]


async def filtered(
    state: Values = [], text: Text = "", model: Values = [], dataset: Values = [],  # noqa: B006
    plan: Values = [],  # noqa: B006
) -> ExperimentQuery:  # fmt: skip
    """A request's filter of experiments."""
    return ExperimentQuery(tuple(state), text, tuple(model), tuple(dataset), tuple(plan))


Filtered = Annotated[ExperimentQuery, Depends(filtered)]


async def queried(
    query: Filtered, sort: ExperimentSort | ScoreText = "created", order: Order = "desc",
    column: Annotated[
        list[ScoreText], Query(max_length=30, description="`DATASET:METRIC`: rows get its values.")
    ] = [],  # noqa: B006
) -> ExperimentQuery:  # fmt: skip
    """A request's filter, order and columns of experiments."""
    by = score_key(sort) if ":" in sort else cast(ExperimentSort, sort)
    return replace(query, sort=by, order=order, columns=tuple(map(score_key, column)))


def score_key(text: str) -> ScoreKey:
    """The dataset and the metric of `DATASET:METRIC`."""
    dataset, _, metric = text.rpartition(":")
    return dataset, metric


Queried = Annotated[ExperimentQuery, Depends(queried)]


@router.get("/experiments", operation_id="experiments", response_model=Page[ExperimentRow])
def list_experiments(
    here: Here, request: Request, query: Queried, after: After = None, limit: Limit = 50
) -> Response:
    """Experiments, the newest first by default; rows without a value come last."""
    query = replace(query, after=after, limit=limit)
    return _answer(here, request, lambda: here.index.experiments(query))


@router.get(
    "/experiments/facets", operation_id="experimentFacets", response_model=tuple[Facet, ...]
)
def experiment_facets(here: Here, request: Request, query: Filtered) -> Response:
    """States, models, datasets and plans, each with its number of experiments."""
    return _answer(here, request, lambda: here.index.experiment_facets(query))


@router.get(
    "/experiments/score-columns",
    operation_id="scoreColumns",
    response_model=tuple[ScoreColumn, ...],
)
def list_score_columns(here: Here, request: Request, query: Filtered) -> Response:
    """Datasets and metrics that experiments have values of: frequent ones first, then leading metrics."""
    return _answer(here, request, lambda: here.index.score_columns(query))


@router.get("/experiments/{experiment}", operation_id="experiment", response_model=ExperimentDetail)
def show_experiment(here: Here, request: Request, experiment: Identity) -> Response:
    """The content of the page of an experiment."""
    row = _row(here, experiment)
    known = _known(here, row)
    looked = (known.status.time, len(known.figures)) if known else ()
    # The index does not know the report's files.
    parts = (
        here.index.version(experiment),
        looked,
        stamp_of(experiment_of(here, experiment).report_dir),
    )
    version = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return _answer(here, request, lambda: _detail(here, row, known), version)


@router.get(
    "/experiments/{experiment}/run-tasks",
    operation_id="experimentRunTasks",
    response_model=Page[RunTaskRow],
)
def list_run_tasks_of(
    here: Here, request: Request, experiment: Identity, state: Values = [], text: Text = "",  # noqa: B006
    model: Values = [], dataset: Values = [], sort: RunTaskSort = "name", order: Order = "asc",  # noqa: B006
    after: After = None, limit: Limit = 50,
) -> Response:  # fmt: skip
    """Run tasks of an experiment."""
    version = here.index.version(experiment)
    if not version:
        _row(here, experiment)  # raises a fault with the reason
    query = RunTaskQuery(
        experiment, tuple(state), text, tuple(model), tuple(dataset), sort, order, after, limit
    )
    return _answer(here, request, lambda: here.index.run_tasks(query), str(version))


@router.get("/experiments/{experiment}/objects/{run_task}", operation_id="datasetObjects")
def list_objects(
    here: Here, experiment: Identity, run_task: Identity, after: After = None,
    limit: Annotated[int, Query(ge=1, le=OBJECTS)] = 200,
) -> Page[DatasetObject]:  # fmt: skip
    """Shards of a run task, each with its progress."""
    return objects(here, opened(here, experiment, run_task), run_task, after, limit)


@router.get("/run-tasks", operation_id="runTasks", response_model=Page[RunTaskRow])
def list_run_tasks(
    here: Here, request: Request, state: Values = [], text: Text = "", model: Values = [],  # noqa: B006
    dataset: Values = [], sort: RunTaskSort = "experiment", order: Order = "desc",  # noqa: B006
    after: After = None, limit: Limit = 50,
) -> Response:  # fmt: skip
    """Run tasks of all experiments."""
    query = RunTaskQuery(
        None, tuple(state), text, tuple(model), tuple(dataset), sort, order, after, limit
    )
    return _answer(here, request, lambda: here.index.run_tasks(query))


@router.get("/run-task-facets", operation_id="runTaskFacets", response_model=tuple[Facet, ...])
def run_task_facets(
    here: Here, request: Request, experiment: str | None = None, state: Values = [], text: Text = "",  # noqa: B006
    model: Values = [], dataset: Values = [],  # noqa: B006
) -> Response:  # fmt: skip
    """States, models and datasets, each with its number of run tasks; of one experiment or of all."""
    query = RunTaskQuery(experiment, tuple(state), text, tuple(model), tuple(dataset))
    return _answer(here, request, lambda: here.index.run_task_facets(query))


@router.get("/search", operation_id="search", response_model=tuple[Hit, ...])
def search(here: Here, request: Request, text: Text, limit: Limit = 20) -> Response:
    """Experiments, plans, models, datasets and run tasks with a word that begins so; for the palette."""
    return _answer(here, request, lambda: here.index.search(text, limit))


# --- the page of an experiment ----------------------------------------------------------------------------


def _row(portal: Portal, identity: str) -> ExperimentRow:
    """The row of an experiment.

    Raises:
        PortalFault: the experiment does not exist, or has not been read yet.
    """
    row = portal.index.experiment(identity)
    if row is None:
        experiment_of(portal, identity)
        raise PortalFault(
            503, "busy", f"the portal is still reading {identity}", "try again in a moment"
        )
    return row


def _detail(portal: Portal, row: ExperimentRow, known: DerivedFacts | None) -> ExperimentDetail:
    account = portal.index.account(row.id) or Account()
    status = known.status if known else None
    return ExperimentDetail(
        row=row,
        status=status,
        sentence=sentence(row, status),
        matrices=portal.index.matrix(row.id),
        failures=status.failures if status else (),
        waits=status.waits if status else (),
        usage=account.usage,
        summary=account.summary,
        verdict=account.verdict,
        figures=known.figures if known else (),
        reports=tuple(_reports(portal, row.id)),
    )


def _known(portal: Portal, row: ExperimentRow) -> DerivedFacts | None:
    """Status and figures of an experiment: from the follower, the index, or a scan, one scan at a time."""
    if row.state == "unreadable":
        return None
    follower = follower_of(portal)
    status = follower.status(row.id) if follower else None
    if status is not None:
        results = results_of(portal)
        return DerivedFacts(status, figures_of(results.experiment(portal, row.id), results))
    try:
        return portal.index.known(row.id) or known_of(portal, experiment_of(portal, row.id))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _reports(portal: Portal, identity: str) -> Iterable[str]:
    """Files of the report, without pictures, which its pages show."""
    folder = experiment_of(portal, identity).report_dir
    try:
        with os.scandir(folder) as found:
            names = sorted(one.name for one in found if one.is_file(follow_symlinks=False))
    except OSError:
        return ()
    return [name for name in names if name[0] != "." and not name.endswith((".svg", ".png"))][:200]


# --- answers ----------------------------------------------------------------------------------------------


def _answer(
    portal: Portal, request: Request, make: Callable[[], Any], version: str | None = None
) -> Response:
    """An answer that clients and the portal keep until the index changes; 304 if the client already has it.

    Browsers that show the same list all ask for it when it changes: the first one has it made.

    Args:
        portal: the portal.
        request: the request.
        make: returns the answer.
        version: version of the answer's data; None: version of the whole index.
    """
    # Read the version first: an answer with later changes then has the older number, and clients ask again.
    number = version or str(portal.index.version())
    etag = f'W/"{hpcbench.__version__}-{number}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    known = {one.strip() for one in request.headers.get("if-none-match", "").split(",")}
    if etag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    key = request.url.path, request.url.query
    made = _answers(portal).of(key, number, lambda: packed(json_of(make())))
    return packed_answer(request, made, headers)


_answers = once(lambda _: LruCache[bytes](ANSWERS_BYTES, len))
