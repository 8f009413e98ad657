"""The client: sends requests to the wrapper, keeps the time, and says of each request how it ended.

All times are `time.monotonic_ns()` of this process. Images are read and bodies built before the clock of the
request proper starts, off the event loop, so that the encoding of one page does not delay the time stamps
of another's answer. Raw arrival times are kept: every published definition of TTFT, TPOT or ITL can be
computed from them later.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import io
import json
import random
import re
import time
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp

from hpcbench.errors import HpcbenchError, RunFailed
from hpcbench.schema.records import Image, Outcome, Request, Response, Times

TRIES = 3
"""Most requests sent for one sample."""

_PAUSE, _LONGEST_PAUSE = 0.5, 8.0  # seconds; full jitter between 0 and these
_COPY_BYTES = 2**20  # above this size aiohttp asks for a file instead of bytes
_OUTCOMES: Mapping[str | None, Outcome] = {
    "stop": "ok",
    "length": "truncated",
    "content_filter": "refused",
}
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"BM", "image/bmp"),
)


class LoadFailed(RunFailed):
    """The engine did not become ready."""

    def __init__(self, kind: str, message: str, log: str = "", tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kind, self.message, self.log, self.tail = kind, message, log, tail


class EngineGone(RunFailed):
    """There is no engine to ask: it ended, or the wrapper did. Nobody's request is to blame, perhaps.

    `in_flight` names the samples that were being asked then, for whoever suspects one of them.
    """

    in_flight: tuple[str, ...] = ()


class Client:
    """Talks to one wrapper; an async context manager."""

    def __init__(self, socket: str, api_key: str, model_name: str) -> None:
        self._socket, self._key, self._model = socket, api_key, model_name
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        self._http = aiohttp.ClientSession(
            # the wrapper keeps idle connections for 600 s: none goes stale under us
            connector=aiohttp.UnixConnector(path=self._socket, limit=0, keepalive_timeout=60),
            headers={"X-API-Key": self._key},
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=2**20,
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def load(self, body: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Have the wrapper start an engine; returns when it is ready, after `timeout` s at the latest.

        Raises:
            LoadFailed: it did not become ready; says why.
            EngineGone: the wrapper does not answer.
        """
        body = {"timeout": timeout, **body}
        status, answer = await self._control("POST", "/v1/model/load", body, timeout + 60)
        if status == 200:
            return answer
        error = answer.get("error", {})
        message = str(error.get("message") or f"the wrapper answered HTTP {status}")
        tail = tuple(error.get("tail") or ())
        raise LoadFailed(str(error.get("kind")), message, str(error.get("log") or ""), tail)

    async def unload(self) -> None:
        """End the engine; returns when all of it is gone."""
        status, answer = await self._control("POST", "/v1/model/unload", None, 90)
        if status != 200:
            raise RunFailed(f"the engine cannot be ended: {_complaint(answer) or status}")

    async def status(self) -> dict[str, Any]:
        """The wrapper's state; raises EngineGone while it does not answer (it may be starting)."""
        status, answer = await self._control("GET", "/status", None, 10)
        if status != 200:
            raise RunFailed(f"the wrapper answered HTTP {status}: {_complaint(answer)}")
        return answer

    async def ask(self, request: Request) -> Response:
        """Ask one question; whatever becomes of it, the outcome says so.

        Raises:
            EngineGone: there is no engine (any more).
            RunFailed: the wrapper refuses our key.
        """
        begin = time.monotonic_ns()
        try:
            body, hashes = await asyncio.to_thread(prepare, self._model, request)
        except OSError as error:
            now = time.monotonic_ns()
            path = f" {error.filename}" if error.filename else ""
            text = f"image{path} cannot be read: {error.strerror or error}"
            times = Times(start=begin, send=now, headers=None, chunks=(), done=now)
            return Response(
                request.sample_id, "invalid", None, None, None, times, 0, (), text, request.prompt
            )
        return await self._persist(request, body, hashes, begin)

    async def _persist(
        self, request: Request, body: bytes, hashes: tuple[str, ...], begin: int
    ) -> Response:
        """Try until there is an answer, the tries are used up, or the deadline has come."""
        deadline = begin + int(request.timeout * 1e9)
        attempt = Attempt()
        tries = 0
        pause = 0.0
        while tries < TRIES and (left := (deadline - time.monotonic_ns()) / 1e9) > pause:
            await asyncio.sleep(pause)
            tries += 1
            attempt = await self._attempt(body, left - pause)
            if not attempt.transient:
                break
            pause = random.uniform(0, min(_LONGEST_PAUSE, _PAUSE * 2**tries))
        answered = attempt.outcome in ("ok", "truncated", "refused")
        return Response(
            sample_id=request.sample_id,
            outcome=attempt.outcome,
            text=attempt.text if answered else None,
            finish_reason=attempt.finish_reason,
            usage=attempt.usage if answered else None,
            times=attempt.times(begin),
            tries=tries,
            image_sha256=hashes,
            error=attempt.error or (None if answered else "no time was left to ask"),
            prompt=request.prompt,
        )

    async def _attempt(self, body: bytes, seconds: float) -> Attempt:
        attempt = Attempt()
        attempt.send = time.monotonic_ns()
        try:
            async with self._session.post(
                "http://wrapper/v1/chat/completions",
                data=body if len(body) <= _COPY_BYTES else io.BytesIO(body),
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as answer:
                attempt.headers = time.monotonic_ns()
                if answer.status != 200:
                    _judge(attempt, answer.status, await answer.read())
                else:
                    await _follow(attempt, answer.content.iter_any())
        except asyncio.TimeoutError:  # noqa: UP041 (another class in Python 3.10)
            attempt.fail("no answer before the deadline", transient=False)
        except (aiohttp.ClientConnectorError, FileNotFoundError) as error:
            raise EngineGone(f"the wrapper does not answer on {self._socket}: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            attempt.fail(f"the answer broke off: {str(error) or type(error).__name__}")
        attempt.done = time.monotonic_ns()
        return attempt

    async def _control(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float
    ) -> tuple[int, dict[str, Any]]:
        try:
            async with self._session.request(
                method,
                f"http://wrapper{path}",
                json=body,
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as answer:
                return answer.status, _object(await answer.read())
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:  # noqa: UP041
            text = str(error) or type(error).__name__
            raise EngineGone(f"the wrapper does not answer on {self._socket}: {text}") from error

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError("a Client must be entered before it is used")
        return self._http


async def drive(
    client: Client,
    requests: Iterable[Request] | AsyncIterable[Request],
    concurrency: int,
    stop: asyncio.Event,
) -> AsyncGenerator[Response, None]:
    """Ask all requests, at most `concurrency` at a time; yields answers as they complete.

    A request is taken only when there is room for it, so neither images nor requests pile up; of answers
    at most twice `concurrency` wait to be yielded. Once `stop` is set no more are taken.

    Raises:
        EngineGone: after what had been answered was yielded.
    """
    source = _Source(requests, stop)
    answers: asyncio.Queue[Response | None] = asyncio.Queue()
    room = asyncio.Semaphore(concurrency)
    asked: dict[int, str] = {}

    async def slot(number: int) -> None:
        while (request := await source.take()) is not None:
            asked[number] = request.sample_id
            response = await client.ask(request)
            del asked[number]
            answers.put_nowait(response)
            await room.acquire()

    async def all_slots() -> None:
        slots = [asyncio.ensure_future(slot(number)) for number in range(concurrency)]
        try:
            await asyncio.gather(*slots)
        except EngineGone as gone:
            gone.in_flight = tuple(asked.values())
            raise
        finally:
            await _cancel(*slots)

    working = asyncio.ensure_future(all_slots())
    working.add_done_callback(lambda _: answers.put_nowait(None))
    try:
        while (response := await answers.get()) is not None:
            room.release()
            yield response
        await working
    finally:
        await _cancel(working)
        await source.close()


class _Source:
    """Requests one at a time, from either kind of iterable, until `stop`."""

    def __init__(
        self, requests: Iterable[Request] | AsyncIterable[Request], stop: asyncio.Event
    ) -> None:
        self._stop, self._ended, self._lock = stop, False, asyncio.Lock()
        self._sync: Iterator[Request] | None = None
        self._async: AsyncIterator[Request] | None = None
        if isinstance(requests, AsyncIterable):
            self._async = aiter(requests)
            self._stopping = asyncio.ensure_future(stop.wait())
        else:
            self._sync = iter(requests)

    async def take(self) -> Request | None:
        if self._ended or self._stop.is_set():
            return None
        if self._sync is not None:
            request = next(self._sync, None)
        else:
            async with self._lock:  # an async generator cannot be asked twice at once
                request = await self._take_async()
        self._ended = request is None
        return request

    async def _take_async(self) -> Request | None:
        assert self._async is not None
        if self._ended or self._stop.is_set():
            return None
        taking = asyncio.ensure_future(cast(Any, anext(self._async, None)))
        try:
            await asyncio.wait({taking, self._stopping}, return_when=asyncio.FIRST_COMPLETED)
            return cast("Request | None", taking.result()) if taking.done() else None
        finally:
            await _cancel(taking)

    async def close(self) -> None:
        """Stop waiting for `stop`."""
        if self._async is not None:
            await _cancel(self._stopping)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def prepare(model: str, request: Request) -> tuple[bytes, tuple[str, ...]]:
    """The body to post, images as data URIs of their very bytes, and the SHA-256 of each image.

    Raises:
        OSError: an image cannot be read, or is empty.
    """
    # the JSON encoder never sees the images: it would look at each of their characters
    mark = uuid.uuid4().hex
    uris: list[tuple[str, bytes]] = []
    hashes = []
    messages: list[dict[str, Any]] = []
    for message in request.messages:
        for image in message.images:
            data = _read(image)
            hashes.append(hashlib.sha256(data).hexdigest())
            uris.append((_mime(data), base64.b64encode(data)))
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": mark}} for _ in message.images
        ]
        text = {"type": "text", "text": message.text}
        content = [*parts, text] if parts else message.text
        messages.append({"role": message.role, "content": content})
    body = {
        **{name: value for name, value in request.generation.items() if value is not None},
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    pieces = iter(json.dumps(body).encode().split(mark.encode()))
    out = [next(pieces)]
    for (mime, encoded), piece in zip(uris, pieces, strict=True):
        out += [b"data:", mime.encode(), b";base64,", encoded, piece]
    return b"".join(out), tuple(hashes)


def _read(image: Image) -> bytes:
    name = None
    if isinstance(image, bytes):
        data = image
    elif isinstance(image, Path):
        name, data = str(image), image.read_bytes()
    else:
        name = image.name
        try:
            data = image.read()
        except HpcbenchError as error:
            raise OSError(0, str(error), name) from error
    if not data:
        raise OSError(0, "the image is empty", name)
    return data


def _mime(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    found = (mime for magic, mime in _MAGIC if data.startswith(magic))
    return next(found, "application/octet-stream")


@dataclass(slots=True)
class Attempt:
    """What one try has brought so far."""

    outcome: Outcome = "failed"
    transient: bool = False
    error: str | None = None
    text: str = ""
    finish_reason: str | None = None
    usage: Mapping[str, int] | None = None
    send: int = 0
    headers: int | None = None
    chunks: list[int] = field(default_factory=list)
    done: int = 0

    def fail(self, error: str, *, transient: bool = True, outcome: Outcome = "failed") -> None:
        """It brought no answer."""
        self.outcome, self.error, self.transient = outcome, " ".join(error.split()), transient

    def times(self, begin: int) -> Times:
        """As they are recorded; of a request never sent, all are its start."""
        return Times(
            begin, self.send or begin, self.headers, tuple(self.chunks), self.done or begin
        )


def _judge(attempt: Attempt, status: int, body: bytes) -> None:
    """Decide what an HTTP error means.

    Raises:
        EngineGone: the wrapper says that there is no engine.
        RunFailed: the key is refused.
    """
    answer = _object(body)
    error = answer.get("error")
    text = _complaint(answer) or body[:200].decode(errors="replace")
    if status == 503 and isinstance(error, Mapping) and error.get("code") == "no_model":
        raise EngineGone(text)
    if status in (401, 403):
        raise RunFailed(f"the wrapper refuses our key: {text}")
    if status in (400, 413, 422):
        attempt.fail(text, transient=False, outcome="invalid")
    else:
        attempt.fail(f"HTTP {status}: {text}", transient=status in (408, 429) or status >= 500)


async def _follow(attempt: Attempt, blocks: AsyncIterator[bytes]) -> None:
    """Read a stream to its end, keeping the time of everything that carries text."""
    events = EventParser()
    texts: list[str] = []
    async for block in blocks:
        now = time.monotonic_ns()
        for event in events.feed(block):
            if event == "[DONE]":
                continue
            chunk = _object(event)
            if not chunk:
                raise ValueError(f"what came is no JSON object: {event[:100]}")
            if chunk.get("error"):
                _judge(attempt, _status(chunk["error"]), event.encode())
                return
            _take_chunk(attempt, chunk, now, texts)
    attempt.text = "".join(texts)
    reason = attempt.finish_reason
    if reason in _OUTCOMES:
        attempt.outcome = _OUTCOMES[reason]
    else:
        attempt.fail(f"the answer broke off with finish_reason {reason}")


def _take_chunk(attempt: Attempt, chunk: Mapping[str, Any], now: int, texts: list[str]) -> None:
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        text = delta.get("content")
        if text:
            texts.append(text)
        if text or delta.get("reasoning_content") or delta.get("reasoning"):
            attempt.chunks.append(now)
        attempt.finish_reason = choice.get("finish_reason") or attempt.finish_reason
    usage = chunk.get("usage")
    if usage:
        names = ("prompt_tokens", "completion_tokens")
        attempt.usage = {name: usage[name] for name in names if isinstance(usage.get(name), int)}


class EventParser:
    """Server-sent events out of blocks of bytes that may be cut anywhere.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """

    _LINE_END = re.compile(rb"\r\n|\n|\r")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, block: bytes) -> Iterator[str]:
        """The data of each event that this block completes."""
        text = self._rest + block
        held = b""
        if text.endswith(b"\r"):  # half of a \r\n, perhaps
            text, held = text[:-1], b"\r"
        *lines, rest = self._LINE_END.split(text)
        self._rest = rest + held
        for line in lines:
            if line.startswith(b"data:"):
                value = line[5:]
                self._data.append(value[1:] if value.startswith(b" ") else value)
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                yield data.decode(errors="replace")


def _status(error: Any) -> int:
    """HTTP status of an error that came inside a stream."""
    with contextlib.suppress(AttributeError, TypeError, ValueError):
        return int(error.get("code"))
    return 500


def _object(body: bytes | str) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _complaint(answer: Mapping[str, Any]) -> str:
    error = answer.get("error", answer.get("detail", ""))
    return str(error.get("message", "")) if isinstance(error, Mapping) else str(error or "")
