"""The Hugging Face engine's HTTP face: OpenAI's chat completions in front of the model's threads.

Each token reaches its client in an event of its own, as it is drawn. Work for a client that has gone away
ends at the next token.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from aiohttp import web

from hpcbench.engines.chat import Answer, ApiError, StreamOptions, Usage, event, parse
from hpcbench.engines.hf_batch import Event, Job, Piece
from hpcbench.engines.hf_worker import Model, Worker

_BODY_BYTES = 1 << 30
"""Longest request; a page is a few MB."""
_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Upper bounds of the histogram of batch sizes."""


def application(model: Model, name: str, max_batch: int, wait_seconds: float) -> web.Application:
    """The server; `/health` answers as soon as it runs, since the model is loaded before."""
    app = web.Application(client_max_size=_BODY_BYTES)
    server = _Server(name)

    async def threads(app: web.Application) -> AsyncIterator[None]:
        server.worker = Worker(model, max_batch, wait_seconds)
        yield
        await asyncio.get_running_loop().run_in_executor(None, server.worker.close)

    app.cleanup_ctx.append(threads)
    app.router.add_get("/health", server.health)
    app.router.add_get("/metrics", server.metrics)
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/chat/completions", server.chat)
    return app


class _Server:
    worker: Worker

    def __init__(self, name: str) -> None:
        self._name = name
        self._outcomes: Counter[str] = Counter()
        """Requests by how they ended: stop, length, cancelled, or an error's code."""

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def models(self, request: web.Request) -> web.Response:
        model = {"id": self._name, "object": "model", "owned_by": "hpcbench"}
        return web.json_response({"object": "list", "data": [model]})

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(self._figures()), content_type="text/plain")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Ended by CancelledError when the client goes away."""
        outcome, job = "cancelled", None
        try:
            ask = parse(await request.read(), self._name)
            events: asyncio.Queue[Event] = asyncio.Queue()
            job = Job(ask, events.put_nowait)
            self.worker.submit(job)
            first = await _next(events)  # until here an error has a status of its own
            give = _stream if ask.stream else _whole
            response, outcome = await give(request, job, events, first, Answer(self._name))
            return response
        except ApiError as error:
            outcome = error.code
            return web.json_response(error.to_json(), status=error.status)
        finally:
            self._outcomes[outcome] += 1
            if job is not None:
                job.cancelled = True  # does nothing to one that has ended

    def _figures(self) -> Iterator[str]:
        """In Prometheus' text form."""
        worker = self.worker
        gauges = {
            "requests_running": worker.line.running,
            "requests_waiting": worker.line.waiting,
            "max_batch": worker.line.max_batch,
            "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            **worker.model.figures(),
        }
        for name, value in gauges.items():
            yield f"# TYPE hpcbench_engine_{name} gauge\nhpcbench_engine_{name} {value}\n"
        yield "# TYPE hpcbench_engine_tokens_total counter\n"
        yield f'hpcbench_engine_tokens_total{{of="prompt"}} {worker.prompt_tokens}\n'
        yield f'hpcbench_engine_tokens_total{{of="completion"}} {worker.completion_tokens}\n'
        yield "# TYPE hpcbench_engine_requests_total counter\n"
        for outcome, count in sorted(self._outcomes.items()):
            yield f'hpcbench_engine_requests_total{{outcome="{outcome}"}} {count}\n'
        sizes = dict(worker.batches)
        name = "hpcbench_engine_batch_size"
        yield f"# TYPE {name} histogram\n"
        for bound in _SIZES:
            below = sum(count for size, count in sizes.items() if size <= bound)
            yield f'{name}_bucket{{le="{bound}"}} {below}\n'
        yield f'{name}_bucket{{le="+Inf"}} {sum(sizes.values())}\n'
        yield f"{name}_sum {sum(size * count for size, count in sizes.items())}\n"
        yield f"{name}_count {sum(sizes.values())}\n"


async def _next(events: asyncio.Queue[Event]) -> Piece:
    """The next piece of an answer.

    Raises:
        ApiError: generation failed.
    """
    event = await events.get()
    if isinstance(event, ApiError):
        raise event
    return event


async def _whole(
    request: web.Request, job: Job, events: asyncio.Queue[Event], piece: Piece, answer: Answer
) -> tuple[web.StreamResponse, str]:
    """The answer in one piece, and why it ended."""
    texts = [piece.text]
    while not piece.reason:
        piece = await _next(events)
        texts.append(piece.text)
    usage = Usage(job.prompt_tokens, piece.tokens)
    return web.json_response(answer.whole("".join(texts), piece.reason, usage)), piece.reason


async def _stream(
    request: web.Request, job: Job, events: asyncio.Queue[Event], piece: Piece, answer: Answer
) -> tuple[web.StreamResponse, str]:
    """The answer as it comes, and why it ended."""
    options = job.ask.stream_options or StreamOptions()
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    )
    try:
        await response.prepare(request)
        await response.write(answer.delta({"role": "assistant", "content": ""}))
        while True:
            usage = Usage(job.prompt_tokens, piece.tokens)
            told = usage if options.continuous_usage_stats else None
            if piece.text or (told and not piece.reason):
                await response.write(answer.delta({"content": piece.text}, usage=told))
            if piece.reason:
                break
            piece = await _next(events)
        await response.write(answer.delta({}, piece.reason, told))
        if options.include_usage:
            await response.write(answer.usage(usage))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
    except ApiError as error:
        await response.write(event(error.to_json()))
        return response, error.code
    except ConnectionError:
        return response, "cancelled"
    return response, piece.reason


def run(app: web.Application, socket: str) -> None:
    """Serve on a Unix socket until SIGTERM."""
    web.run_app(
        app,
        path=socket,
        print=None,
        access_log=None,
        backlog=2048,
        handler_cancellation=True,  # the client has gone away
        keepalive_timeout=600,
        shutdown_timeout=2,
    )
