"""Routes of figures of experiments and run tasks, for Plotly and as tables."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query

from hpcbench.portal import figures
from hpcbench.portal.context import Here
from hpcbench.portal.faults import missing
from hpcbench.portal.models.experiments import FigureName
from hpcbench.portal.models.run_tasks import Figure
from hpcbench.portal.results_cache import results_of
from hpcbench.portal.routes import new_router
from hpcbench.portal.routes.run_tasks import opened

router = new_router("figures")

Theme = Annotated[
    Literal["light", "dark"], Query(description="Theme of the page: the figure uses its colours.")
]


@router.get("/experiments/{experiment}/figures", operation_id="figures")
def list_figures(here: Here, experiment: str) -> tuple[FigureName, ...]:
    """Available figures of an experiment."""
    found = opened(here, experiment)
    known = here.index.known(experiment)  # of an ended experiment; `figures.names` takes 50 ms
    return known.figures if known is not None else figures.names(found, results_of(here))


@router.get("/experiments/{experiment}/figures/{figure}", operation_id="figure")
def figure_of_experiment(
    here: Here, experiment: str, figure: str, theme: Theme = "light"
) -> Figure:
    """A figure of an experiment."""
    found = figures.figure(opened(here, experiment), figure, results_of(here), theme)
    return _there(found, figure)


@router.get(
    "/experiments/{experiment}/run-tasks/{run_task}/figures/{figure}", operation_id="runTaskFigure"
)
def figure_of_run_task(
    here: Here, experiment: str, run_task: str, figure: str, theme: Theme = "light"
) -> Figure:
    """A figure of a run task."""
    found = figures.figure(
        opened(here, experiment, run_task), figure, results_of(here), theme, run_task
    )
    return _there(found, figure)


def _there(found: Figure | None, name: str) -> Figure:
    if found is None:
        raise missing(f"no figure '{name[:200]}'")
    return found
