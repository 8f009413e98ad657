"""Pages without scripts, for text browsers on the login node: experiments and their progress."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hpcbench.number_format import many
from hpcbench.portal.context import Here
from hpcbench.portal.faults import PortalFault, bad_request, missing
from hpcbench.portal.guard import PLAIN
from hpcbench.portal.index import BadCursor, ExperimentQuery, RunTaskQuery
from hpcbench.portal.models.experiments import Score
from hpcbench.portal.routes.session import access_of, exchange, give_cookie, who_of
from hpcbench.visible import finalize

ROWS = 100
"""Most rows of a page."""

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


@router.get(f"{PLAIN}/login")
async def ask_code() -> Response:
    """The form for the code: without a script, the page cannot read the code from the link's fragment."""
    return _page("login.html", title="hpcbench portal", fault="")


@router.post(f"{PLAIN}/login")
async def sign_in(request: Request, portal: Here) -> Response:
    """Exchange the code for a session that only opens these pages."""
    body = (await request.body()).decode("utf-8", "replace")
    given = parse_qs(body, max_num_fields=4).get("code", [""])[0]
    try:
        keys = exchange(request, given.rpartition("#t=")[2].strip(), plain=True)
    except PortalFault as fault:
        return _page("login.html", fault.status, title="hpcbench portal", fault=fault.error)
    response = Response(status_code=303, headers={"Location": "../plain"})
    name = access_of(request).desk.plain_cookie
    give_cookie(request, response, name, str(keys.access), portal.options.root_path + PLAIN)
    return response


@router.post(f"{PLAIN}/logout")
async def sign_out(request: Request, portal: Here) -> Response:
    """End the session."""
    desk = access_of(request).desk
    desk.sessions.leave(who_of(request).id)
    response = Response(status_code=303, headers={"Location": "login"})
    response.delete_cookie(desk.plain_cookie, path=portal.options.root_path + PLAIN)
    return response


@router.get(PLAIN)
def experiments(portal: Here, after: str | None = None) -> Response:
    """Experiments, the newest first."""
    try:
        page = portal.index.experiments(ExperimentQuery(after=after, limit=ROWS))
    except BadCursor:
        raise bad_request("the list has no such page") from None
    return _page(
        "experiments.html", title="Experiments", base="",
        rows=page.items, total=_counted(page.total, page.counted_to), after=page.next,
    )  # fmt: skip


@router.get(f"{PLAIN}/{{experiment}}")
def experiment(experiment: str, portal: Here, after: str | None = None) -> Response:
    """One experiment with its run tasks."""
    row = portal.index.experiment(experiment)
    if row is None:
        raise missing("there is no such experiment")
    try:
        query = RunTaskQuery(experiment=experiment, after=after, limit=ROWS)
        page = portal.index.run_tasks(query)
    except BadCursor:
        raise bad_request("the list has no such page") from None
    return _page(
        "experiment.html", title=row.id, base="../",
        row=row, tasks=page.items, after=page.next,
    )  # fmt: skip


@cache
def _pages() -> Environment:
    pages = Environment(
        loader=FileSystemLoader(Path(__file__).parent.parent / "pages"),
        autoescape=True,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.globals.update(bar=_bar, score=_score, moment=_moment, many=many)
    return pages


def _page(name: str, status: int = 200, **given: Any) -> Response:
    return HTMLResponse(_pages().get_template(name).render(**given), status)


def _bar(done: int, of: int) -> str:
    """A bar of characters, for text browsers."""
    share = done / of if of else 0.0
    full = int(20 * share)
    return f"[{'#' * full}{'.' * (20 - full)}] {100 * share:3.0f} %"


def _score(score: Score | None) -> str:
    if score is None or score.value is None:
        return "-"
    within = ""
    if score.low is not None and score.high is not None:
        within = f" [{score.low:.3f}, {score.high:.3f}]"
    return f"{score.metric} {score.value:.3f}{within} n={score.n}"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))


def _counted(total: int, to: int) -> str:
    return f"{total} or more" if total >= to else str(total)
