"""The Hugging Face engine's HTTP server: OpenAI's chat completions in front of the model's threads.

Each token reaches its client in its own event, as soon as it is drawn. Work for a client that left ends at
the next token.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from hpcbench.engines.chat import ApiError, CompletionBuilder, StreamOptions, Usage, event, parse
from hpcbench.engines.hf_batch import Event, Job, Piece
from hpcbench.engines.hf_worker import Model, Worker

_BODY_BYTES = 1 << 30
"""Longest request; a page is a few MB."""
_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Upper bounds of the histogram of batch sizes."""
_OURS = "hpcbench_engine_"


def application(model: Model, name: str, max_batch: int, wait_seconds: float) -> web.Application:
    """The server; `/health` answers as soon as it runs, because the model is loaded before."""
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
        """Requests by outcome: stop, length, cancelled, or an error's code."""

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def models(self, request: web.Request) -> web.Response:
        model = {"id": self._name, "object": "model", "owned_by": "hpcbench"}
        return web.json_response({"object": "list", "data": [model]})

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self), content_type="text/plain")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Raises CancelledError when the client leaves."""
        outcome, job = "cancelled", None
        try:
            ask = parse(await request.read(), self._name)
            events: asyncio.Queue[Event] = asyncio.Queue()
            job = Job(ask, events.put_nowait)
            self.worker.submit(job)
            first = await _next(events)  # up to here an error has a status of its own
            give = _stream if ask.stream else _whole
            response, outcome = await give(
                request, job, events, first, CompletionBuilder(self._name)
            )
            return response
        except ApiError as error:
            outcome = error.code
            return web.json_response(error.to_json(), status=error.status)
        finally:
            self._outcomes[outcome] += 1
            if job is not None:
                job.cancelled = True  # no effect on a finished job

    def collect(self) -> Iterator[Metric]:
        """The engine's current figures, in `prometheus_client`'s form."""
        worker = self.worker
        gauges = {
            "requests_running": worker.line.running,
            "requests_waiting": worker.line.waiting,
            "max_batch": worker.line.max_batch,
            "host_peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            **worker.model.figures(),
        }
        for name, value in gauges.items():
            yield GaugeMetricFamily(f"{_OURS}{name}", "", value)
        tokens = CounterMetricFamily(f"{_OURS}tokens_total", "", labels=["of"])
        tokens.add_metric(["prompt"], worker.prompt_tokens)
        tokens.add_metric(["completion"], worker.completion_tokens)
        yield tokens
        requests = CounterMetricFamily(f"{_OURS}requests_total", "", labels=["outcome"])
        for outcome, count in sorted(self._outcomes.items()):
            requests.add_metric([outcome], count)
        yield requests
        sizes = Counter(worker.batches)
        buckets = [
            (str(bound), sum(n for size, n in sizes.items() if size <= bound)) for bound in _SIZES
        ]
        yield HistogramMetricFamily(
            f"{_OURS}batch_size",
            "",
            [*buckets, ("+Inf", sizes.total())],
            sum(size * n for size, n in sizes.items()),
        )


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
    request: web.Request,
    job: Job,
    events: asyncio.Queue[Event],
    piece: Piece,
    answer: CompletionBuilder,
) -> tuple[web.StreamResponse, str]:
    """The whole answer, and the reason of its end."""
    texts = [piece.text]
    while not piece.reason:
        piece = await _next(events)
        texts.append(piece.text)
    usage = Usage(job.prompt_tokens, piece.tokens)
    return web.json_response(answer.whole("".join(texts), piece.reason, usage)), piece.reason


async def _stream(
    request: web.Request,
    job: Job,
    events: asyncio.Queue[Event],
    piece: Piece,
    answer: CompletionBuilder,
) -> tuple[web.StreamResponse, str]:
    """The answer as a stream, and the reason of its end."""
    options = job.ask.stream_options or StreamOptions()
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    )
    try:
        await response.prepare(request)
        await response.write(answer.delta({"role": "assistant", "content": ""}))
        while True:
            usage = Usage(job.prompt_tokens, piece.tokens)
            chunk_usage = usage if options.continuous_usage_stats else None
            if piece.text or (chunk_usage and not piece.reason):
                await response.write(answer.delta({"content": piece.text}, usage=chunk_usage))
            if piece.reason:
                break
            piece = await _next(events)
        await response.write(answer.delta({}, piece.reason, chunk_usage))
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
        handler_cancellation=True,  # when the client leaves
        keepalive_timeout=600,
        shutdown_timeout=2,
    )
