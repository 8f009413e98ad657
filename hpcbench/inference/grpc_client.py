"""gRPC over a Unix socket: the worker's side of `inference.proto`.

It has the shape of `http_client`, so that the client sends, times and judges requests in one way. A request
is one call of ModelStreamInfer; the clock is read when a message leaves gRPC, before any of it is parsed.

Imported only when a run task asks for gRPC: it needs the extra `grpc`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

from hpcbench.inference.http_client import Broken, NotConnected
from hpcbench.open_inference.chat import ERROR, FINAL, HTTP_STATUS, elements_of
from hpcbench.open_inference.messages import STREAM, ModelStreamInferResponse
from hpcbench.open_inference.without_forks import grpc

_STATUS = {
    grpc.StatusCode.UNAUTHENTICATED: (401, "wrong_key"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (413, "too_large"),
    grpc.StatusCode.INVALID_ARGUMENT: (400, "bad_request"),
    grpc.StatusCode.UNIMPLEMENTED: (501, "unimplemented"),
}
"""Code of a call that the wrapper refused as a whole → HTTP's number, and the code of the error."""


class Answer:
    """An answer whose head has arrived."""

    in_chunks = True
    """Each block is one chunk of JSON."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_at = 0
        self.ended_at: int | None = None
        """Time of its end; None before."""
        self._body = b""

    async def begin(self) -> None:
        """Wait for the head.

        Raises:
            Broken: the call ended before.
        """
        now, message = await self._next()
        if message is None:
            raise Broken("the connection was closed")
        self.head_at = now
        self._read_head(message)
        if message.error_message:
            self._body, self.ended_at = self._error(message), now

    async def blocks(self) -> AsyncIterator[list[tuple[int, bytes]]]:
        """Chunks of JSON with their arrival, a message at a time; raises Broken or asyncio.TimeoutError."""
        while self.ended_at is None:
            now, message = await self._next()
            if message is None:
                raise Broken("the connection was closed")
            if message.error_message:
                raise Broken(message.error_message)
            response = message.infer_response
            if FINAL in response.parameters:
                self.ended_at = now
            yield [
                (now, bytes(element))
                for raw in response.raw_output_contents
                for element in elements_of(raw)
            ]
        await self._next()  # gRPC's own end: a call that is left before it counts as cancelled

    async def read(self) -> bytes:
        """The whole body; for an error, it is OpenAI's JSON."""
        return self._body or b"".join(
            [data async for blocks in self.blocks() for _, data in blocks]
        )

    async def _next(self) -> tuple[int, Any]:
        """The next message, None at the end, and when it came."""
        data = await self._call.read()
        now = time.monotonic_ns()
        if data is grpc.aio.EOF:
            return now, None
        return now, ModelStreamInferResponse.FromString(data)

    def _read_head(self, message: Any) -> None:
        for name, value in message.infer_response.parameters.items():
            if name == HTTP_STATUS:
                self.status = value.int64_param
            elif name not in (ERROR, FINAL):
                self.headers[name] = value.string_param

    def _error(self, message: Any) -> bytes:
        text: str = message.infer_response.parameters[ERROR].string_param
        return text.encode()


class Refused(Answer):
    """The answer of a wrapper that refuses a call as a whole."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(None)
        self.status, self._body = status, body
        self.head_at = time.monotonic_ns()
        self.ended_at = self.head_at


class Connections:
    """The channel to one Unix socket.

    Args:
        path: the socket.
        key: the wrapper's key.
    """

    def __init__(self, path: str, key: str) -> None:
        self._path, self._key = path, key
        self._channel = grpc.aio.insecure_channel(
            f"unix:{path}",
            options=[
                ("grpc.max_send_message_length", -1),
                ("grpc.max_receive_message_length", -1),
                ("grpc.http2.lookahead_bytes", 2**20),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        # One message each way is enough of a call: the wire is the same as of a stream of requests.
        self._ask = self._channel.unary_stream(STREAM)

    @contextlib.asynccontextmanager
    async def ask(self, body: bytes, seconds: float) -> AsyncIterator[Answer]:
        """Send an encoded request; yields the answer when its head has arrived.

        If the block ends before the answer does, the call is cancelled: the engine's work ends.

        Raises:
            NotConnected: no process listens.
            Broken: the answer broke off, here or during reading.
            asyncio.TimeoutError: `seconds` passed, here or during reading.
        """
        call = self._ask(body, timeout=seconds, metadata=(("x-api-key", self._key),))
        try:
            answer = Answer(call)
            try:
                await answer.begin()
            except grpc.aio.AioRpcError as error:
                answer = self._refused(error)
            yield answer
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise asyncio.TimeoutError from None
            raise Broken(error.details() or str(error.code())) from None
        finally:
            call.cancel()

    def _refused(self, error: grpc.aio.AioRpcError) -> Answer:
        """The answer that an error is.

        Raises:
            NotConnected: it is none, and no process listens.
            grpc.aio.AioRpcError: it is none.
        """
        known = _STATUS.get(error.code())
        if known is not None:
            return Refused(known[0], _openai(error.details() or "", known[1]))
        if error.code() is grpc.StatusCode.UNAVAILABLE and not _listens(self._path):
            raise NotConnected(error.details() or "no process listens") from None
        raise error

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


def _listens(path: str) -> bool:
    """Whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.settimeout(1)
            probe.connect(path)
        except OSError:
            return False
    return True


def _openai(message: str, code: str) -> bytes:
    return json.dumps({"error": {"message": message, "code": code}}).encode()
