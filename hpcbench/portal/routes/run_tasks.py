"""Routes of a run task's page, and of the parts of an experiment's pages other than lists."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import StreamingResponse

from hpcbench.portal import logs
from hpcbench.portal.context import Here, Portal
from hpcbench.portal.faults import missing, refused
from hpcbench.portal.models.run_tasks import (
    ConfigurationDiff,
    LogChunk,
    LogSource,
    Origin,
    Resources,
    RunTaskDetail,
    WholeConfiguration,
)
from hpcbench.portal.origins import configuration, origin, report_file, whole_configuration
from hpcbench.portal.packed import packed_answer
from hpcbench.portal.resource_series import packed_resources, resources
from hpcbench.portal.results_cache import PageExperiment, results_of
from hpcbench.portal.routes import new_router
from hpcbench.portal.run_task_page import describe
from hpcbench.portal.worker_series import groups_of, workers_of

router = new_router("run tasks")

SANDBOX = (
    "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Security policy of a report's page: display only. Its origin is not the portal's, so it gets no cookie."""

PIECE = 1 << 18
"""Bytes of a file sent at once."""

RunTask = Annotated[str | None, Query(max_length=200, description="Only data of this run task.")]


def opened(portal: Portal, identity: str, run_task: str | None = None) -> PageExperiment:
    """The experiment of a request; checks that its plan has the run task, if one is given.

    Raises:
        PortalFault: the experiment or run task does not exist, or the experiment cannot be read.
    """
    experiment = results_of(portal).experiment(portal, identity)
    names = experiment.run_tasks
    if run_task is not None and run_task not in names:
        raise missing(f"no run task '{run_task[:200]}' in {identity}")
    return experiment


@router.get("/experiments/{experiment}/run-tasks/{run_task}", operation_id="runTask")
def run_task(here: Here, experiment: str, run_task: str) -> RunTaskDetail:
    """The content of the page of a run task."""
    found = opened(here, experiment, run_task)
    row = here.index.run_task(experiment, run_task)
    if row is None:
        raise missing(f"the portal has not read run task '{run_task}' yet", "try again in a moment")
    return describe(found, row, results_of(here), workers_of(here, found))


@router.get(
    "/experiments/{experiment}/resources", operation_id="resources", response_model=Resources
)
def get_resources(
    here: Here,
    request: Request,
    experiment: str,
    run_task: RunTask = None,
    since: Annotated[
        float | None, Query(description="`Resources.until` of an earlier answer.")
    ] = None,
) -> Any:
    """GPUs, memory, CPU and the rate of answers over time."""
    found = opened(here, experiment, run_task)
    if since is not None:
        return resources(found, workers_of(here, found), run_task, since)
    return packed_answer(
        request, packed_resources(found, lambda: workers_of(here, found), run_task)
    )


@router.get("/experiments/{experiment}/logs", operation_id="logs")
def list_logs(here: Here, experiment: str, run_task: RunTask = None) -> tuple[LogSource, ...]:
    """Logs that can be read, those of workers first, the newest jobs first."""
    found = opened(here, experiment, run_task)
    if run_task is None:
        return logs.sources(found)
    own, _ = workers_of(here, found).look(groups_of(found, run_task))
    took = [one.run.stem for one in own if one.worked_on(run_task)]
    return logs.sources(found, took)


@router.get("/experiments/{experiment}/logs/{log}", operation_id="log")
def read_log(
    here: Here,
    experiment: str,
    log: str,
    after: Annotated[int | None, Query(ge=0, description="Lines from this offset, bytes.")] = None,
    before: Annotated[
        int | None, Query(ge=0, description="Lines before this offset, bytes.")
    ] = None,
    grep: Annotated[
        str, Query(max_length=200, description="Only lines that contain this text.")
    ] = "",
    lines: Annotated[int, Query(ge=1, le=logs.MOST_LINES)] = logs.LINES,
) -> LogChunk:
    """A part of a log; by default its end."""
    found = opened(here, experiment)
    try:
        with logs.opened(found, log) as source:
            return logs.chunk(source, after=after, before=before, grep=grep, lines=lines)
    except FileNotFoundError:
        raise missing(f"no log '{log[:200]}'") from None
    except OSError:
        raise refused(f"log '{log[:200]}' cannot be read") from None


@router.get("/experiments/{experiment}/provenance", operation_id="provenance")
def get_provenance(here: Here, experiment: str) -> Origin:
    """The inputs that determine the figures, and a command that runs the same again."""
    return origin(opened(here, experiment))


@router.get("/experiments/{experiment}/configuration", operation_id="configuration")
def get_configuration(
    here: Here,
    experiment: str,
    baseline: Annotated[
        str | None, Query(max_length=200, description="An experiment or a baseline's name.")
    ] = None,
) -> ConfigurationDiff:
    """How the configuration differs from a baseline's: the plan's, by default."""
    return configuration(here, opened(here, experiment), baseline)


@router.get("/experiments/{experiment}/configuration/whole", operation_id="wholeConfiguration")
def get_whole_configuration(here: Here, experiment: str) -> WholeConfiguration:
    """The resolved configuration: plan, site, and the definitions of run tasks."""
    return whole_configuration(opened(here, experiment))


@router.get(
    "/experiments/{experiment}/report/{file}",
    operation_id="reportFile",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/html": {}, "application/octet-stream": {}}}},
)
def get_report_file(here: Here, experiment: str, file: str) -> StreamingResponse:
    """A file of the report: pages in a sandbox of their own, everything else to be saved."""
    descriptor, size, media_type = report_file(opened(here, experiment), file)
    headers = {"Content-Length": str(size), "X-Content-Type-Options": "nosniff"}
    if media_type == "text/html":
        headers["Content-Security-Policy"] = SANDBOX
        media_type = "text/html; charset=utf-8"
    else:
        # A browser may open a picture as a page: SVG may contain scripts.
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(file, safe='')}"
        headers["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return StreamingResponse(_pieces(descriptor, size), media_type=media_type, headers=headers)


def _pieces(descriptor: int, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file; closes the file."""
    try:
        at = 0
        while at < size and (block := os.pread(descriptor, min(PIECE, size - at), at)):
            at += len(block)
            yield block
    finally:
        os.close(descriptor)
