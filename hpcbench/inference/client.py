"""The client: sends requests to the wrapper, records times, and gives each request an outcome.

All times are `time.monotonic_ns()` of this process. Raw arrival times are kept: every published definition of
TTFT, TPOT or ITL can be computed from them later (`compat.py` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from hpcbench import retry_after
from hpcbench.errors import RunFailed
from hpcbench.event_stream import as_object
from hpcbench.inference.direct import MASKED, PATH, Direct, Rules
from hpcbench.inference.http_client import Connections, HttpAnswer, NotConnected
from hpcbench.inference.rate_limits import RateLimits, now, refuses
from hpcbench.inference.request_body import (
    Prepared,
    answer_key,
    prepare,
    prepare_message,
    unreadable,
)
from hpcbench.inference.stream import Stream
from hpcbench.monitor.engine_metrics import engine_state
from hpcbench.schema.load import Route
from hpcbench.schema.model import Model
from hpcbench.schema.records import Outcome, Request, Response, Times

if TYPE_CHECKING:
    from hpcbench.inference import grpc_client

TRIES = 3
"""Most attempts for one sample."""

PREPARERS = 2
"""Threads that read and encode images: more threads would only wait for Python's lock."""

_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds; full jitter between 0 and these
_FIRST_POLL, _LONGEST_POLL = 0.03, 0.5  # seconds between checks of an engine that loads
_GROWTH = 1.15  # factor between pauses: the delay is at most 15 % of the load

_LASTING = ("out_of_memory", "insufficient_quota")
"""Codes of errors that come again, although their status would pass; the second one is OpenAI's."""
_BROKE_OFF = ("endpoint_broke_off", "engine_unreachable", "broken_off")
"""Codes of a relay and of a wrapper for a request without an answer, which a model may have worked on."""

CHAT = "/v1/chat/completions"
"""Path of requests over HTTP."""

T = TypeVar("T")

Protocol = Literal["http", "grpc"]
"""Protocol of the requests between client and wrapper."""


def load_body(model: Model, env: Mapping[str, str], **of_the_job: Any) -> dict[str, Any]:
    """The body of `POST /v1/model/load` for a model.

    Args:
        model: its definition; its source is a folder on the engine's machine.
        env: its environment, secrets revealed.
        of_the_job: further fields: `media_root`, `cpus`, `images`, `reuse`.
    """
    return {
        "engine": model.engine,
        "model_path": model.source,
        "model_name": model.name,
        "dtype": model.dtype,
        "context_length": model.context_length,
        "gpus": model.gpus,
        "chat_template": model.chat_template,
        "options": dict(model.engine_options),
        "env": dict(env),
        "timeout": model.load_timeout,
        "stall_timeout": model.stall_timeout,
        # Only where a definition has it: a wrapper of an earlier version may be in the image.
        **({"parallel": model.parallel.model_dump()} if model.parallel else {}),
        **({"gpu_memory_share": share} if (share := model.gpu_memory_share) else {}),
        **of_the_job,
    }


class LoadFailed(RunFailed):
    """The engine did not become ready."""

    def __init__(
        self,
        kind: str,
        message: str,
        log: str = "",
        tail: tuple[str, ...] = (),
        *,
        cause: str | None = None,
        remedy: str | None = None,
        signal: str | None = None,
        node: str | None = None,
    ) -> None:
        super().__init__(message)
        self.signal, self.node = signal, node
        self.kind, self.message, self.log, self.tail = kind, message, log, tail
        self.cause, self.remedy = cause, remedy


class EngineGone(RunFailed):
    """There is no engine: it ended, or the wrapper did. Perhaps no request is to blame.

    `in_flight` names the samples in flight at that time, as suspects. `model` names the model of an engine
    that an agent has beside the worker's own; empty: it was the worker's own.
    """

    in_flight: tuple[str, ...] = ()
    model: str = ""


class Tries(NamedTuple):
    """Tries of one request so far; refusals by rate limits are none."""

    sent: int = 0
    """Tries in all."""
    lost: int = 0
    """See `Response.lost`."""


_NONE_YET = Tries()


class Limited(Exception):
    """The gateway refuses the request for now, by its rate limits: it is to be sent again.

    Args:
        message: the gateway's words.
        tries: tries so far.
    """

    def __init__(self, message: str, tries: Tries) -> None:
        super().__init__(message)
        self.tries = tries


class Client:
    """Talks to one wrapper; an async context manager.

    Args:
        socket: The wrapper's Unix socket.
        api_key: The wrapper's key.
        model_name: Model name of the requests.
        files_under: Image files below this folder are sent as `file://` URIs: the engine can read them
            there. Other images, or all without this folder, are sent as data URIs.
        recount: Counts the tokens of an answer's text by the model's own tokenizer (`tokens.counter`).
        limits: Known rate limits of the gateway behind it.
        rules: Makes the rules for bodies of requests from the wrapper's word on the engine; needed for the
            direct route (`take`). None: the engine's socket is not on this node.
        grpc_socket: The wrapper's Unix socket for gRPC, if it has one.
    """

    def __init__(
        self,
        socket: str,
        api_key: str,
        model_name: str,
        *,
        files_under: Path | None = None,
        recount: Callable[[str], int] | None = None,
        limits: RateLimits | None = None,
        rules: Callable[[Mapping[str, Any]], Rules] | None = None,
        grpc_socket: str | None = None,
    ) -> None:
        self.protocol: Protocol = "http"
        """How requests are sent; the control plane is HTTP."""
        self._grpc_socket = grpc_socket
        self._grpc: grpc_client.Connections | None = None
        self._socket, self._key, self._model = socket, api_key, model_name
        self._files_under = files_under.resolve() if files_under else None
        self._recount, self._rules = recount, rules
        self._direct: Direct | None = None
        self.limits = limits or RateLimits()
        """Rate limits of the gateway behind it, from its answers."""
        self._heard = asyncio.Event()
        self._open: Connections | None = None
        self._threads: ThreadPoolExecutor

    async def __aenter__(self) -> Client:
        self._open = Connections(self._socket, {"X-API-Key": self._key})
        self._threads = ThreadPoolExecutor(PREPARERS, "inference")
        return self

    async def __aexit__(self, *error: object) -> None:
        if error[0] is None:
            await self._leave_direct()
        elif self._direct is not None:  # perhaps the wrapper does not answer
            self._direct.close()
        if self._grpc is not None:
            await self._grpc.close()
        if self._open is not None:
            self._open.close()
            self._threads.shutdown(wait=False, cancel_futures=True)

    # the control plane

    async def load(
        self,
        body: Mapping[str, Any],
        timeout: float,
        *,
        on_progress: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Start an engine through the wrapper; returns when it is ready, after `timeout` s at the latest.

        `on_progress` receives each new line of progress in the engine's log.

        Raises:
            LoadFailed: it did not become ready; has the reason. No process of it is left.
            EngineGone: the wrapper does not answer.
        """
        await self._leave_direct()  # it leads to the engine before this one
        until = time.monotonic() + timeout
        await self.begin({"timeout": timeout, **body})
        pause, reported = _FIRST_POLL, None
        while time.monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(_GROWTH * pause, _LONGEST_POLL)
            now = await self.status()
            line = now.get("progress")
            if line and line != reported and on_progress is not None:
                on_progress(line)
                reported = line
            if now["state"] == "ready":
                known = {name: now.get(name) for name in ("state", "engine", "pid", "versions")}
                return {**known, "seconds": now.get("load_seconds")}
            if now["state"] == "failed":
                raise _load_failed(now.get("error"), now.get("reason"))
            if now["state"] == "empty":
                raise LoadFailed(
                    "stopped", "a client of the wrapper unloaded the model before it was ready"
                )
        await self.unload()
        raise LoadFailed("timeout", f"engine was not ready after {timeout:g} s")

    async def begin(self, body: Mapping[str, Any]) -> None:
        """Start an engine through the wrapper, without waiting for it.

        Raises:
            LoadFailed: the wrapper refuses.
            EngineGone: the wrapper does not answer.
        """
        status, answer = await self._control("POST", "/v1/model/load", body, 60)
        if status != 202:
            raise _load_failed(answer.get("error"), f"the wrapper answered HTTP {status}")

    async def fail(self, kind: str, message: str, cause: str) -> None:
        """End the engine with this reason, which requests get: its other nodes failed."""
        if self._direct is not None:
            await self._direct.shut()
        body = {"kind": kind, "message": message, "cause": cause}
        status, answer = await self._control("POST", "/v1/model/fail", body, 90)
        if status != 200:
            raise RunFailed(f"the wrapper cannot end the engine: {_complaint(answer) or status}")

    async def unload(self, drain_seconds: float = 0) -> None:
        """End the engine; returns when all of it is gone. Requests in flight have `drain_seconds` to end."""
        if self._direct is not None:
            await self._direct.shut()
        body = {"drain_seconds": drain_seconds}
        status, answer = await self._control("POST", "/v1/model/unload", body, drain_seconds + 90)
        if status != 200:
            raise RunFailed(f"the wrapper cannot end the engine: {_complaint(answer) or status}")

    async def take(self, route: Route) -> Route:
        """Send requests to the loaded engine by this route from now on; those in flight are not affected.

        Returns:
            The route that they take: `direct` only where the engine's socket can be reached from here.

        Raises:
            EngineGone: the wrapper has no engine, or does not answer.
        """
        if self._direct is not None and not (route == "direct" and self._direct.open):
            await self._leave_direct()
        if self._direct is None and route == "direct" and self._rules is not None:
            status, offer = await self._control("POST", PATH, {"client": "new"}, 10)
            if status == 503:
                raise EngineGone(_complaint(offer))
            if status == 200:
                direct = Direct(self._connections, offer, self._rules)
                self._direct = direct if await direct.reachable() else None
        return "proxied" if self._direct is None else "direct"

    async def _leave_direct(self) -> None:
        left, self._direct = self._direct, None
        if left is not None:
            await left.leave()

    async def status(self) -> dict[str, Any]:
        """The wrapper's state; raises EngineGone while it does not answer (it may be starting)."""
        status, answer = await self._control("GET", "/status", None, 10)
        if status != 200:
            raise RunFailed(f"the wrapper answered HTTP {status}: {_complaint(answer)}")
        return answer

    async def waiting(self) -> float | None:
        """Requests that wait inside the engine; None if it does not report them."""
        _, text = await self._talk("GET", "/metrics", None, 10)
        return engine_state(text.decode(errors="replace")).waiting

    async def _control(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float
    ) -> tuple[int, dict[str, Any]]:
        status, answer = await self._talk(method, path, body, timeout)
        return status, as_object(answer)

    async def _talk(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float
    ) -> tuple[int, bytes]:
        data = None if body is None else json.dumps(body).encode()
        try:
            async with self._connections.ask(method, path, data, timeout) as answer:
                return answer.status, await answer.read()
        except (OSError, asyncio.TimeoutError) as error:
            text = str(error) or f"no answer within {timeout:g} s"
            raise EngineGone(f"the wrapper does not answer on {self._socket}: {text}") from error

    # requests

    async def ask(self, request: Request) -> Response:
        """Send one request; every result has an outcome.

        Raises:
            EngineGone: there is no engine (any more).
            RunFailed: the wrapper refuses our key.
        """
        prepared = await self.prepare(request)
        return await self.recounted(await self.send(prepared, prepared.taken))

    async def prepare(self, request: Request) -> Prepared:
        """Read the images and build the body, off the event loop."""
        taken = time.monotonic_ns()
        try:
            return await self.in_thread(self._prepared, request, taken)
        except OSError as error:
            return Prepared(request, taken, error=unreadable(error))

    def _prepared(self, request: Request, taken: int) -> Prepared:
        body: bytes | tuple[bytes, ...]
        encode = prepare if self.protocol == "http" else prepare_message
        body, hashes = encode(self._model, request, self._files_under)
        return Prepared(request, taken, body, hashes, answer_key(self._model, request, hashes))

    async def send(
        self,
        prepared: Prepared,
        start: int,
        scheduled: int | None = None,
        *,
        heeds_limits: bool = False,
        tries: Tries = _NONE_YET,
    ) -> Response:
        """Send until there is an answer, the tries are used up, or the deadline has passed.

        `start` is when the request could be sent: its timeout runs from then on. `tries` were before that.

        Raises:
            Limited: `heeds_limits` is set, and the gateway refuses it by its rate limits.
        """
        request = prepared.request
        deadline = start + int(request.timeout * 1e9)
        sent, lost = tries
        attempt, pause = Attempt(), 0.0
        if prepared.error:
            attempt.fail(prepared.error, transient=False, outcome="invalid")
            attempt.send = attempt.done = time.monotonic_ns()
        while not prepared.error and sent < TRIES:
            left = (deadline - time.monotonic_ns()) / 1e9
            if left <= pause:
                attempt.error = attempt.error or "the deadline passed before the request was sent"
                break
            await asyncio.sleep(pause)
            sent += 1
            attempt = await self._attempt(prepared.body, left - pause)
            if attempt.limited and heeds_limits:
                raise Limited(attempt.error or "", Tries(sent - 1, lost))
            lost += attempt.lost
            if not attempt.transient:
                break
            pause = random.uniform(0, min(_LONGEST_PAUSE, _PAUSE * 2**sent))
            pause = max(pause, attempt.retry_after)
        answered = attempt.outcome in ("ok", "truncated", "refused")
        if answered and attempt.stream.usage:
            self.limits.used(sum(_counted(attempt.stream.usage)))
        return Response(
            sample_id=request.sample_id,
            outcome=attempt.outcome,
            text=attempt.stream.text if answered else None,
            finish_reason=attempt.stream.finish_reason,
            usage=attempt.stream.usage if answered else None,
            times=attempt.times(start, scheduled),
            tries=sent,
            image_sha256=prepared.image_sha256,
            error=attempt.error,
            prompt=request.prompt,
            reasoning=attempt.stream.reasoning if answered else None,
            answer_key=prepared.answer_key,
            calls=attempt.stream.calls if answered else (),
            lost=lost,
        )

    async def recounted(self, response: Response) -> Response:
        """The same response with tokens counted by the model's own tokenizer, off the event loop.

        Skipped if the engine separated reasoning: its count includes the marks around it, which no text has.
        """
        if self._recount is None or response.text is None or response.reasoning is not None:
            return response
        try:
            count = await self.in_thread(self._recount, response.text)
        except Exception:  # noqa: BLE001 (foreign code; a failed recount must not cost the answer)
            return response
        return replace(response, recount=count)

    async def admitted(self) -> int | None:
        """Wait until the gateway's rate limits let a request out.

        Returns:
            `time.monotonic_ns()` at the end of the wait; None: there was none.
        """
        limits, loop = self.limits, asyncio.get_running_loop()
        if (pause := limits.pause(now())) == 0:
            return None
        begin = now()
        limits.figures.waits += 1
        try:
            while pause != 0:
                self._heard.clear()
                timer = None if pause is None else loop.call_later(pause, self._heard.set)
                try:
                    await self._heard.wait()
                finally:
                    if timer is not None:
                        timer.cancel()
                pause = limits.pause(now())
        finally:
            limits.figures.wait_seconds += now() - begin
        return time.monotonic_ns()

    async def in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a function in one of our few threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)

    async def _attempt(self, body: bytes | tuple[bytes, ...], seconds: float) -> Attempt:
        attempt = Attempt()
        exchange = await self._exchange(body, seconds)
        attempt.send = time.monotonic_ns()
        sent = self.limits.sent(now())
        try:
            async with exchange as answer:
                attempt.headers = answer.head_at
                self.limits.heard(sent, answer.status, answer.headers, now())
                self._heard.set()
                if answer.status == 200:
                    await attempt.follow(answer, self._masked)
                else:
                    attempt.judge(answer.status, await answer.read(), answer.headers)
                attempt.done = answer.ended_at or 0
        except asyncio.TimeoutError:  # noqa: UP041 (another class in Python 3.10)
            attempt.fail("no answer before the deadline", transient=False)
        except NotConnected as error:
            raise EngineGone(f"the wrapper does not answer on {self._socket}: {error}") from error
        except (OSError, ValueError) as error:
            attempt.fail(f"the answer is incomplete: {str(error) or type(error).__name__}")
            if attempt.headers is None:
                # A wrapper that was killed still takes connections, and closes them, until it has ended.
                await self._talk("GET", "/status", None, 10)
        finally:
            if attempt.headers is None:
                self.limits.lost()
                self._heard.set()
        if attempt.limited:
            self.limits.figures.why = attempt.error or ""
        attempt.done = attempt.done or time.monotonic_ns()
        return attempt

    async def _masked(self, error: Mapping[str, Any]) -> Mapping[str, Any]:
        """An error of the engine, as the wrapper shows it: without secrets."""
        status, masked = await self._control("POST", MASKED, {"error": error}, 10)
        found = masked.get("error") if status == 200 else None  # not of earlier versions
        return found if isinstance(found, Mapping) else error

    async def _exchange(
        self, body: bytes | tuple[bytes, ...], seconds: float
    ) -> contextlib.AbstractAsyncContextManager[HttpAnswer | grpc_client.GrpcAnswer]:
        """Sends an encoded request when it is entered, by the protocol that it is encoded for."""
        if not isinstance(body, bytes):
            return self._over_grpc.ask(body, seconds)
        direct = self._direct
        if direct is not None:
            own = (
                await self.in_thread(direct.prepared, body)
                if direct.parses
                else direct.prepared(body)
            )
            if own is not None:
                return direct.ask("POST", CHAT, own, seconds)
        return self._connections.ask("POST", CHAT, body, seconds)

    @property
    def _over_grpc(self) -> grpc_client.Connections:
        if self._grpc is None:
            if self._grpc_socket is None:
                raise RuntimeError("the wrapper serves no gRPC")
            from hpcbench.inference import grpc_client

            self._grpc = grpc_client.Connections(self._grpc_socket, self._key)
        return self._grpc

    @property
    def _connections(self) -> Connections:
        if self._open is None:
            raise RuntimeError("a Client must be entered before it is used")
        return self._open


@dataclass(slots=True)
class Attempt:
    """Results of one attempt so far."""

    outcome: Outcome = "failed"
    transient: bool = False
    limited: bool = False
    """Whether a gateway refused it by its rate limits: it passes."""
    refused: bool = False
    """Whether a server refused it: an error came that is not about an answer that broke off or is late."""
    error: str | None = None
    retry_after: float = 0.0
    stream: Stream = field(default_factory=Stream)
    send: int = 0
    headers: int | None = None
    done: int = 0

    @property
    def lost(self) -> bool:
        """Whether a model may have written an answer of which nothing is left."""
        return self.outcome == "failed" and (bool(self.stream.chunks) or not self.refused)

    def fail(self, error: str, *, transient: bool = True, outcome: Outcome = "failed") -> None:
        """Record a failure."""
        self.outcome, self.error, self.transient = outcome, " ".join(error.split()), transient

    async def follow(
        self,
        answer: HttpAnswer | grpc_client.GrpcAnswer,
        masked: Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]],
    ) -> None:
        """Read an answer to its end; raises ValueError if it is invalid.

        Args:
            answer: its head has arrived.
            masked: gives an error within it without secrets.
        """
        stream = self.stream
        if answer.headers.get("content-type", "").startswith("application/json"):
            body = await answer.read()
            stream.take_chunk(answer.ended_at or 0, body)  # a server that does not stream
        else:
            async for blocks in answer.blocks():
                for arrived, block in blocks:
                    stream.take(arrived, block)
        if stream.error is not None:
            error = await masked(stream.error)
            self.judge(_status(error), json.dumps({"error": error}).encode(), {})
        elif stream.outcome is not None:
            self.outcome = stream.outcome
        else:
            reason = stream.finish_reason
            again = reason in (None, "abort", "error")  # other reasons are the model's
            self.fail(f"the answer is incomplete, with finish_reason {reason}", transient=again)

    def judge(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Classify an HTTP error.

        Raises:
            EngineGone: the wrapper reports that there is no engine.
            RunFailed: the key is refused.
        """
        answer = as_object(body)
        error = answer.get("error")
        text = _complaint(answer) or body[:200].decode(errors="replace")
        code = error.get("code") if isinstance(error, Mapping) else None
        self.refused = status != 504 and code not in _BROKE_OFF
        if status == 503 and code == "no_model":
            raise EngineGone(text)
        if status == 401 and code == "wrong_key":  # an endpoint behind the engine has its own 401
            raise RunFailed(f"the wrapper refused the key: {text}")
        if status in (400, 413, 422):
            self.fail(text, transient=False, outcome="invalid")
        else:
            # The request was alone in its batch when memory ran out, and would be alone again.
            passing = status in (408, 429) or (status >= 500 and status != 501)
            passing = passing and code not in _LASTING
            self.fail(f"HTTP {status}: {text}", transient=passing)
            self.limited = passing and refuses(status, headers)
        if status in (429, 503):
            self.retry_after = retry_after.seconds(headers) or 0.0

    def times(self, start: int, scheduled: int | None) -> Times:
        """The times for the record; for a request that was never sent, all are its start."""
        return Times(
            start=start,
            send=self.send or start,
            headers=self.headers,
            chunks=tuple(self.stream.chunks),
            done=self.done or start,
            scheduled=scheduled,
            empty=tuple(self.stream.empty),
            tokens=self.stream.tokens,
        )


def _load_failed(error: object, otherwise: str | None) -> LoadFailed:
    known = error if isinstance(error, Mapping) else {}
    return LoadFailed(
        str(known.get("kind") or known.get("code") or "unknown"),
        str(known.get("message") or otherwise or "the engine did not become ready"),
        str(known.get("log") or ""),
        tuple(known.get("tail") or ()),
        cause=known.get("cause"),
        remedy=known.get("remedy"),
        signal=known.get("signal"),
    )


def _counted(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens of a prompt and of its answer, as the engine counted them; 0: it did not."""
    return int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0)


def _status(error: Mapping[str, Any]) -> int:
    """HTTP status of an error inside a stream."""
    try:
        return int(error.get("code") or 500)
    except (TypeError, ValueError):
        return 500


def _complaint(answer: Mapping[str, Any]) -> str:
    error = answer.get("error", answer.get("detail", answer.get("message", "")))
    return str(error.get("message", "")) if isinstance(error, Mapping) else str(error or "")
