"""Questions to models that the user serves: an answer streams through the portal, and nothing is kept."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench import secret
from hpcbench.portal.faults import PortalFault, missing
from hpcbench.portal.models.playground import Question, ServedRow
from hpcbench.submit import serve_job
from hpcbench.wrapper.served_models import ServedModel, key_of, served_models

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 10
"""Seconds for the connection to an engine."""

SILENT_SECONDS = 600
"""Longest silence of an answer: a large page takes a small engine minutes."""

MOST_OF_REFUSAL = 65_536
"""Most bytes of a refusal that are read."""

PREFIX = "data:image/"
"""Beginning of an image in a question."""


def rows(home: Path) -> tuple[ServedRow, ...]:
    """Models that the user serves, the newest first; then those that a job is about to serve."""
    served, jobs = served_models(home), serve_job.serve_jobs(home)
    of_jobs = {one.id for one in jobs}
    ready = [
        ServedRow(
            id=one.id, model=one.model, engine=one.engine, host=one.host, started=one.started,
            reachable=bool(one.is_here or one.address), is_job=one.id in of_jobs, ends=one.ends,
        )
        for one in served
    ]  # fmt: skip
    others = [one for one in jobs if one.id not in {each.id for each in served}]
    return (*ready, *(_row(home, one, *state) for one, state in _with_states(home, others)))


def _with_states(
    home: Path, jobs: Sequence[serve_job.ServeJob]
) -> Iterator[tuple[serve_job.ServeJob, tuple[serve_job.State, str]]]:
    known = serve_job.states(home, jobs)
    return ((one, known[one.id]) for one in jobs)


def _row(home: Path, job: serve_job.ServeJob, state: serve_job.State, why: str) -> ServedRow:
    return ServedRow(
        id=job.id, model=job.model, engine=job.engine, started=job.submitted, state=state, is_job=True,
        why=secret.mask(why)[:1000],
        log=tuple(secret.mask(line)[:500] for line in serve_job.tail(home, job.id)),
    )  # fmt: skip


def find(home: Path, identity: str) -> tuple[ServedModel, str]:
    """A served model, and its key.

    Raises:
        PortalFault: it has ended, or cannot be reached from here.
    """
    for one in served_models(home):
        if one.id == identity:
            if not (one.is_here or one.address):
                raise PortalFault(
                    422, "bad_request", f"{one.model} is served on {one.host} without a port",
                    f"start it again with `--port PORT --host {one.host}`",
                )  # fmt: skip
            with contextlib.suppress(OSError):
                return one, key_of(home, one)
    raise missing("this model is not served any more", "start it again")


async def opened(
    served: ServedModel, key: str, question: Question
) -> tuple[aiohttp.ClientSession, aiohttp.ClientResponse]:
    """Send a question; returns the session to close and the answer, a stream of events.

    Raises:
        PortalFault: an image is none, the model has ended, or it refuses the question.
    """
    import aiohttp

    for image in question.images:
        if not image.startswith(PREFIX):
            raise PortalFault(422, "bad_request", "an image is not a data URI of an image")
    connector = aiohttp.UnixConnector(served.socket) if served.is_here else None
    limits = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS)
    session = aiohttp.ClientSession(connector=connector, timeout=limits, auto_decompress=False)
    where = "http://localhost" if served.is_here else served.address
    try:
        response = await session.post(
            f"{where}/v1/chat/completions",
            json=_body(served.model, question),
            headers={"Authorization": f"Bearer {key}"},
        )
        if response.status == 200:
            return session, response
        said = _complaint(await _beginning(response), key)
    except (OSError, aiohttp.ClientError, asyncio.TimeoutError):  # noqa: UP041 (another class in 3.10)
        await session.close()
        what = f"{served.model} on {served.host} does not answer"
        raise PortalFault(503, "busy", what, "look at the terminal of `hpcbench serve`") from None
    except BaseException:
        await session.close()
        raise
    await session.close()
    raise PortalFault(422, "refused", f"{served.model} refuses the question: {said}")


async def lines(
    session: aiohttp.ClientSession, response: aiohttp.ClientResponse, key: str
) -> AsyncIterator[bytes]:
    """The answer's events as they come; a break becomes an event too."""
    import aiohttp

    try:
        async for piece in response.content.iter_any():
            yield piece
    except (OSError, aiohttp.ClientError, asyncio.TimeoutError) as error:  # noqa: UP041
        said = secret.mask(f"{error}".replace(key, "…"))[:300] or type(error).__name__
        yield f"\n\ndata: {json.dumps({'error': {'message': said}})}\n\n".encode()
    finally:
        await session.close()


def _body(model: str, question: Question) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": one}} for one in question.images
    ]
    parts.append({"type": "text", "text": question.prompt})
    system = [{"role": "system", "content": question.system}] if question.system else []
    return {
        "model": model,
        "messages": [*system, {"role": "user", "content": parts}],
        "max_tokens": question.max_tokens,
        "temperature": question.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """A refusal, as far as it is read; it may arrive in pieces."""
    try:
        return await response.content.readexactly(MOST_OF_REFUSAL)
    except asyncio.IncompleteReadError as error:
        return error.partial


def _complaint(body: bytes, key: str) -> str:
    """The engine's message about a question that it refuses."""
    text = body.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text)["error"]["message"])
    return secret.mask(text.replace(key, "…"))[:500]
