"""Routes of the playground: models that the user serves, questions to them, pages of a document."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from hpcbench.errors import HpcbenchError
from hpcbench.portal import playground
from hpcbench.portal.context import Here
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.plans import Submitted
from hpcbench.portal.models.playground import Question, ServeAsked, ServedRow
from hpcbench.portal.routes import new_router
from hpcbench.portal.routes.plans import DONE, AtDesk, list_choices, refuse_commands

PAGE_DPI = 150
"""Resolution of a page of a PDF; the default of datasets."""

router = new_router("playground")


@router.get("/playground/served", operation_id="listServed")
def list_served(portal: Here) -> tuple[ServedRow, ...]:
    """Models that `hpcbench serve` serves for the user, the newest first, and jobs that are about to."""
    return playground.rows(portal.home)


@router.post("/playground/served", status_code=202, operation_id="startServing")
def start_serving(asked: ServeAsked, desk: AtDesk, portal: Here, request: Request) -> Submitted:
    """Serve a model in a job of its own; `/submissions/{id}` has the output of the command."""
    refuse_commands(portal)
    known = {one.name for one in list_choices(desk) if one.kind == "models" and not one.fault}
    if asked.model not in known:
        raise PortalFault(422, "bad_request", f"there is no valid model '{asked.model}'")
    identity = desk.commands.serve(asked.model, asked.minutes)
    request.scope[DONE] = f"serve {asked.model} for {asked.minutes} min ({identity})"
    return desk.commands.look(identity)


@router.delete("/playground/served/{id}", status_code=202, operation_id="stopServing")
def stop_serving(id: str, desk: AtDesk, portal: Here, request: Request) -> Submitted:
    """End a job that serves a model; `/submissions/{id}` has the output of the command."""
    refuse_commands(portal)
    identity = desk.commands.end_serving(id)
    request.scope[DONE] = f"end serving {id} ({identity})"
    return desk.commands.look(identity)


@router.post("/playground/questions", operation_id="askServed", response_class=StreamingResponse)
async def ask_served(question: Question, portal: Here, request: Request) -> StreamingResponse:
    """Ask a served model; the answer is the stream of events of its chat completion."""
    served, key = await run_in_threadpool(playground.find, portal.home, question.served)
    request.scope[DONE] = f"ask {served.model}"
    session, response = await playground.opened(served, key, question)
    return StreamingResponse(
        playground.lines(session, response, key),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


@router.post(
    "/playground/pages",
    operation_id="renderPage",
    response_class=Response,
    responses={
        200: {"content": {"image/png": {}}, "description": "The page; `X-Pages`: how many."}
    },
)
async def render_page(
    request: Request,
    page: Annotated[int, Query(ge=1, description="Number of the page, from 1.")] = 1,
    name: Annotated[
        str, Query(max_length=200, description="Name of the document.")
    ] = "document.pdf",
) -> Response:
    """A page of a PDF or TIFF document in the body, as PNG."""
    from hpcbench.data.pages import has_pages, rendered

    if not has_pages(name):
        raise PortalFault(422, "bad_request", f"'{name}' is no PDF or TIFF document")
    data = await request.body()
    try:
        png, count = await run_in_threadpool(rendered, name, data, page, PAGE_DPI)
    except HpcbenchError as error:
        raise PortalFault(422, "bad_request", str(error)) from error
    return Response(png, media_type="image/png", headers={"X-Pages": str(count)})
