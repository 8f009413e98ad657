"""Routes of comparisons: metrics with verdicts, lost and won samples, figures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request, Response

from hpcbench.comparison.flips import Change
from hpcbench.portal import comparison
from hpcbench.portal.comparison import (
    ComparisonRequest,
    comparisons_of,
    read_runs,
)
from hpcbench.portal.context import Here, Portal
from hpcbench.portal.faults import missing
from hpcbench.portal.figures import sent
from hpcbench.portal.flip_pages import FlipFilter, flip_page
from hpcbench.portal.models import comparisons, experiments, run_tasks
from hpcbench.portal.packed import packed, packed_answer
from hpcbench.portal.routes import new_router
from hpcbench.portal.routes.samples import Where
from hpcbench.portal.slow_work import PATIENCE, patiently

router = new_router("compare")

RunName = Annotated[str, Query(max_length=300)]
Name = Annotated[str, Query(max_length=200)]
Runs = Annotated[
    list[str],
    Query(
        max_length=comparison.MOST_RUNS,
        description="2 to 8 runs, the baseline first: `EXPERIMENT` or `EXPERIMENT:RUN_TASK`.",
    ),
]
Wait = Annotated[
    float,
    Query(
        ge=0,
        le=PATIENCE,
        description="Seconds to wait; then 202 with a `Fault` gives the progress: repeat the request.",
    ),
]
Common = Annotated[
    bool, Query(description="Compare the common samples where the runs have different samples.")
]


@router.get("/compare", response_model=comparisons.Comparison, operation_id="compare")
async def compare(
    portal: Here, request: Request, runs: Runs, run_task: Name = "", other: Name = "", metric: Name = "",
    common: Common = False,
    wait: Wait = PATIENCE,
) -> Any:  # fmt: skip
    """Each run compared with the first one, sample by sample."""

    def work() -> Response:
        asked = ComparisonRequest(read_runs(portal, runs), run_task, other, metric, common)
        return packed_answer(request, comparisons_of(portal).whole(asked).packed)

    # 202: a browser would report a fault. Only here: an unfinished download must not look complete.
    return await patiently(work, wait, later=202)


async def flips_by(
    where: Where,
    change: Change | None = None,
    mistake: Annotated[
        str, Query(max_length=40, description="Kind of mistake in the worse of both answers.")
    ] = "",
) -> FlipFilter:
    """A request's filter of a comparison's samples."""
    return FlipFilter(change, mistake, where)


FlipChoice = Annotated[FlipFilter, Depends(flips_by)]


@router.get("/compare/flips", response_model=comparisons.FlipPage, operation_id="compareFlips")
async def flips(
    portal: Here, request: Request, baseline: RunName, candidate: RunName, chosen: FlipChoice,
    run_task: Name = "", other: Name = "", metric: Name = "", common: Common = False,
    after: Annotated[int, Query(ge=0, le=10**9)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Any:  # fmt: skip
    """Samples whose scores differ between two runs, or are equal, if requested; the greatest change first."""

    def work() -> Response:
        asked = pair(portal, baseline, candidate, run_task, other, metric, common)
        known = comparisons_of(portal)

        def make() -> bytes:
            page = flip_page(portal, asked, known.changes(asked), chosen, after, limit)
            return packed(page.model_dump_json())

        key = asked.key, chosen, after, limit
        return packed_answer(request, known.flips.of(key, asked.stamp, make))

    return await patiently(work)


def pair(
    portal: Portal,
    baseline: str,
    candidate: str,
    run_task: str,
    other: str,
    metric: str,
    common: bool,
) -> ComparisonRequest:
    """The two run tasks of a request.

    Raises:
        PortalFault: a run does not exist.
    """
    runs = read_runs(portal, [baseline, candidate])
    return ComparisonRequest(runs, run_task, other or run_task, metric, common)


@router.get(
    "/compare/figures",
    response_model=tuple[experiments.FigureName, ...],
    operation_id="compareFigures",
)
async def figures(
    portal: Here, runs: Runs, run_task: Name = "", other: Name = "", metric: Name = "",
    common: Common = False,
) -> Any:  # fmt: skip
    """Available figures of a comparison."""

    def work() -> tuple[experiments.FigureName, ...]:
        asked = ComparisonRequest(read_runs(portal, runs), run_task, other, metric, common)
        return tuple(
            experiments.FigureName(name=name, title=title, group=group)
            for name, (title, group, _) in _figures(portal, asked).items()
        )

    return await patiently(work)


@router.get(
    "/compare/figures/{name}", response_model=run_tasks.Figure, operation_id="compareFigure"
)
async def figure(
    portal: Here, name: Annotated[str, Path(max_length=100)], runs: Runs, run_task: Name = "",
    other: Name = "", metric: Name = "", common: Common = False,
    theme: Literal["light", "dark"] = "light",
) -> Any:  # fmt: skip
    """A figure of a comparison."""

    def work() -> run_tasks.Figure:
        asked = ComparisonRequest(read_runs(portal, runs), run_task, other, metric, common)
        entry = _figures(portal, asked).get(name)
        if entry is None:
            raise missing(f"no figure '{name}'")
        made = comparisons_of(portal).figure(asked, name, entry[2])
        if made is None:
            raise missing(f"there is nothing to show in '{name}'")
        return sent(made, theme).model_copy(update={"name": name})

    return await patiently(work)


def _figures(portal: Portal, asked: ComparisonRequest) -> Any:
    return comparison.figures_of(comparisons_of(portal).whole(asked), asked, portal)
