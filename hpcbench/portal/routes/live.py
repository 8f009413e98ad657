"""Routes of live messages: a stream for browsers, a WebSocket for programs, and polls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

from hpcbench.portal.access_tokens import Requester
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Here
from hpcbench.portal.guard import Access
from hpcbench.portal.models.live import Polled
from hpcbench.portal.routes import new_router
from hpcbench.portal.routes.session import access_of, who_of

BEAT_SECONDS = 15.0
"""Longest silence of a stream: proxies cut silent connections."""

LONGEST_POLL = 25.0
"""Longest wait of a poll for a message, seconds."""

router = new_router("live")

After = Annotated[
    int | None, Query(ge=0, description="Number of the last message that the client has.")
]


@router.get("/events", operation_id="events", response_class=StreamingResponse)
async def events(
    request: Request,
    portal: Here,
    after: After = None,
    last_event_id: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """Server-sent events, each of them a `News`; resumes after `Last-Event-ID`."""
    place = int(last_event_id) if last_event_id.isdigit() and len(last_event_id) < 17 else after
    lines = _lines(portal.hub, place, access_of(request), who_of(request))
    return StreamingResponse(
        lines, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def _lines(
    hub: Hub, after: int | None, access: Access, who: Requester
) -> AsyncIterator[bytes]:
    place = hub.seq if after is None else after
    with hub.reading():
        # An id without data is no message, but the browser knows where to resume.
        yield f"retry: 2000\nid: {place}\n\n".encode()
        while not hub.closed and access.desk.still(who):
            found = await hub.wait(place, BEAT_SECONDS)
            place = found.seq
            if not found.news:
                yield b": still here\n\n"
            for message in found.news:
                yield f"id: {message.seq}\ndata: {message.model_dump_json()}\n\n".encode()


@router.get("/events/poll", operation_id="pollEvents")
async def poll(
    portal: Here,
    after: After = None,
    wait: Annotated[float, Query(ge=0, le=LONGEST_POLL, description="Seconds to wait.")] = 0,
) -> Polled:
    """Messages after a message; without `after`, only the number from which to continue."""
    portal.hub.polled()
    if after is None:
        return Polled(news=(), seq=portal.hub.seq)
    return await portal.hub.wait(after, wait) if wait else portal.hub.since(after)


@router.websocket("/ws")
async def web_socket(socket: WebSocket, after: After = None) -> None:
    """The messages of the stream, each as text, for programs; messages from programs are not read."""
    access, who = access_of(socket), who_of(socket)
    hub: Hub = socket.app.state.portal.hub
    await socket.accept()
    place = hub.seq if after is None else after
    try:
        with hub.reading():
            while not hub.closed and access.desk.still(who):
                found = await hub.wait(place, BEAT_SECONDS)
                place = found.seq
                for message in found.news:
                    await socket.send_text(message.model_dump_json())
        await socket.close(1001)
    except (WebSocketDisconnect, RuntimeError):
        return  # the client has disconnected
