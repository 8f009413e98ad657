"""The Hugging Face engine's HTTP face: OpenAI's chat completions around one generating thread.

Requests wait in line for that thread; each piece of text is handed to the event loop as it is drawn. Work
for a client that has gone away is ended at the next token.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
import traceback
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from hpcbench.engines.chat import Answer, ApiError, ChatRequest, Usage, event, parse
from hpcbench.engines.hf_model import HfModel

T = TypeVar("T")

Event = int | str | tuple[str, Usage] | ApiError
"""What the thread says: prompt tokens (it has begun), a text, the end, or an error."""


@dataclass(eq=False)
class Job:
    """One request on its way through the generating thread."""

    ask: ChatRequest
    cancelled: threading.Event = field(default_factory=threading.Event)
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    reason: str = ""
    """Why the answer ended, once it has."""
    usage: Usage = field(default_factory=lambda: Usage(0, 0))
    """Its tokens, once it has ended."""

    def say(self, event: Event) -> None:
        """From the thread to the event loop."""
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)

    async def pieces(self) -> AsyncIterator[str]:
        """The answer as it comes.

        Raises:
            ApiError: generation failed.
        """
        while not isinstance(event := await self.events.get(), tuple):
            if isinstance(event, ApiError):
                raise event
            yield str(event)
        self.reason, self.usage = event


class Worker:
    """The thread that owns the model."""

    def __init__(self, model: HfModel) -> None:
        self.model = model
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="generate")
        self._jobs: set[Job] = set()
        self.requests = self.prompt_tokens = self.completion_tokens = 0

    async def begin(self, ask: ChatRequest) -> Job:
        """Put a request in line; returns once the model works on it.

        Raises:
            ApiError: the request is bad.
        """
        job = Job(ask)
        self._jobs.add(job)
        self._pool.submit(self._run, job)
        try:
            first = await job.events.get()
        except asyncio.CancelledError:
            job.cancelled.set()
            raise
        if isinstance(first, ApiError):
            raise first
        return job

    def close(self) -> None:
        """End what is running."""
        for job in list(self._jobs):
            job.cancelled.set()
        self._pool.shutdown(wait=False)

    def _run(self, job: Job) -> None:
        try:
            if job.cancelled.is_set():
                return
            prompt = self.model.prepare(job.ask)
            job.say(prompt.tokens)
            reason, usage = self.model.answer(job.ask, prompt, job.say, job.cancelled)
            self.requests += 1
            self.prompt_tokens += usage.prompt_tokens
            self.completion_tokens += usage.completion_tokens
            job.say((reason, usage))
        except ApiError as error:
            job.say(error)
        except Exception as error:  # noqa: BLE001 (one request must not end the engine)
            traceback.print_exc()
            job.say(ApiError(500, f"{type(error).__name__}: {error}", "generation_failed"))
        finally:
            self._jobs.discard(job)


def application(model: HfModel, name: str) -> FastAPI:
    """The server; `/health` answers as soon as it runs, since the model is loaded before."""
    worker = Worker(model)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        worker.close()

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "hpcbench"}]}

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(_metrics(worker))

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        try:
            ask = parse(await request.body(), name)
            job = await _while_connected(request, worker.begin(ask))
            answer = Answer(name)
            if ask.stream:
                return StreamingResponse(_stream(job, answer), media_type="text/event-stream")
            return JSONResponse(await _while_connected(request, _whole(job, answer)))
        except ApiError as error:
            return JSONResponse(error.to_json(), error.status)

    return app


async def _stream(job: Job, answer: Answer) -> AsyncIterator[bytes]:
    try:
        yield answer.delta({"role": "assistant", "content": ""})
        async for text in job.pieces():
            yield answer.delta({"content": text})
        yield answer.delta({}, job.reason)
        if job.ask.stream_options.include_usage:
            yield answer.usage(job.usage)
        yield b"data: [DONE]\n\n"
    except ApiError as error:
        yield event(error.to_json())
    finally:
        job.cancelled.set()  # does nothing to a job that has ended


async def _whole(job: Job, answer: Answer) -> dict[str, Any]:
    try:
        text = "".join([piece async for piece in job.pieces()])
        return answer.whole(text, job.reason, job.usage)
    finally:
        job.cancelled.set()


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client goes away.

    Raises:
        ApiError: it did.
    """
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.1)
            if not task.done() and await request.is_disconnected():
                raise ApiError(499, "the client has gone away", "cancelled")
        return task.result()
    finally:
        task.cancel()


def _metrics(worker: Worker) -> str:
    """Counts in Prometheus' text form."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    values = {
        "requests_total": worker.requests,
        "prompt_tokens_total": worker.prompt_tokens,
        "completion_tokens_total": worker.completion_tokens,
        "torch_threads": worker.model.threads,
        "peak_memory_bytes": peak,
        "peak_gpu_memory_bytes": worker.model.peak_gpu_bytes,
    }
    return "".join(f"hpcbench_{name} {value}\n" for name, value in values.items())


def run(app: FastAPI, socket: str) -> None:
    """Serve on a Unix socket until SIGTERM."""
    uvicorn.run(
        app,
        uds=socket,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=600,
        timeout_graceful_shutdown=2,
    )
