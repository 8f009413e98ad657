"""The worker's side of `inference.proto`, over gRPC on a Unix socket.

It has the shape of `http_client`, so that the client sends, times and judges requests in one way. A request
is one call of ModelStreamInfer; the clock is read when a message leaves the kernel, before it is parsed.

Imported only when a run task asks for gRPC: it needs protobuf, of the extra `grpc`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from hpcbench.inference import grpc_wire
from hpcbench.inference.http_client import Broken, connected
from hpcbench.open_inference.chat import ERROR, FINAL, HTTP_STATUS, elements_of
from hpcbench.open_inference.protobuf_classes import STREAM, ModelStreamInferResponse

_STATUS = {
    3: (400, "bad_request"),  # INVALID_ARGUMENT
    8: (413, "too_large"),  # RESOURCE_EXHAUSTED
    12: (501, "unimplemented"),  # UNIMPLEMENTED
    16: (401, "wrong_key"),  # UNAUTHENTICATED
}
"""Status of a call that the wrapper refused as a whole → HTTP's number, and the code of the error."""


class GrpcAnswer:
    """An answer whose head has arrived.

    Args:
        call: with its first message, or its end.

    Raises:
        Broken: it ended without a message, and not by a refusal.
    """

    def __init__(self, call: grpc_wire.Call, now: int) -> None:
        self._call = call
        self.status = 0
        self.headers: dict[str, str] = {}
        self.head_at = now
        self.ended_at: int | None = None
        """Time of its end; None before."""
        self._body = b""
        if call.messages:
            self._read_head()
        else:
            self._read_refusal()

    def _read_head(self) -> None:
        self.head_at, data = self._call.messages.pop(0)
        message = _decoded(data)
        for name, value in message.infer_response.parameters.items():
            if name == HTTP_STATUS:
                self.status = value.int64_param
            elif name == ERROR:
                self._body = value.string_param.encode()
            elif name != FINAL:
                self.headers[name] = value.string_param
        if message.error_message:
            self.ended_at = self.head_at

    def _read_refusal(self) -> None:
        code, text = self._call.status
        if code not in _STATUS:
            raise Broken(text or "the connection was closed")
        self.status, kind = _STATUS[code]
        self._body = json.dumps({"error": {"message": text, "code": kind}}).encode()
        self.ended_at = self.head_at

    async def blocks(self) -> AsyncIterator[list[tuple[int, bytes]]]:
        """The body in blocks with their arrival, some at a time; raises Broken or asyncio.TimeoutError."""
        while self.ended_at is None:
            messages = await self._call.more()
            if not messages:
                raise Broken(self._call.status[1] or "the connection was closed")
            blocks = []
            for now, data in messages:
                message = _decoded(data)
                if message.error_message:
                    raise Broken(message.error_message)
                response = message.infer_response
                if FINAL in response.parameters:
                    self.ended_at = now
                for raw in response.raw_output_contents:
                    blocks += [(now, bytes(element)) for element in elements_of(raw)]
            yield blocks
        await self._call.end()  # a call that is left before counts as cancelled

    async def read(self) -> bytes:
        """The whole body; for an error, it is OpenAI's JSON."""
        return self._body or b"".join(
            [data async for blocks in self.blocks() for _, data in blocks]
        )


class Connections:
    """The connection to one Unix socket.

    Args:
        path: the socket.
        key: the wrapper's key.
    """

    def __init__(self, path: str, key: str) -> None:
        self._path = path
        self._headers = grpc_wire.header_block(STREAM, {"x-api-key": key})
        self._connecting = asyncio.Lock()
        self._open: list[grpc_wire.Connection] = []
        """The last one takes calls; those before it end theirs."""

    @contextlib.asynccontextmanager
    async def ask(self, message: Sequence[bytes], seconds: float) -> AsyncIterator[GrpcAnswer]:
        """Send an encoded request, in parts; yields the answer when its head has arrived.

        If the block ends before the answer does, the call is cancelled: the engine's work ends.

        Raises:
            NotConnected: no process listens.
            Broken: the answer broke off, here or during reading.
            asyncio.TimeoutError: `seconds` passed, here or during reading.
        """
        connection = await self._connected()
        call = connection.open(self._headers)
        late = asyncio.TimeoutError()
        timer = asyncio.get_running_loop().call_later(seconds, call.fail, late)
        try:
            await connection.send(call, message)
            await call.begin()
            yield GrpcAnswer(call, time.monotonic_ns())
        finally:
            timer.cancel()
            connection.release(call)

    async def close(self) -> None:
        """Close the connection."""
        for connection in self._open:
            connection.close()

    async def _connected(self) -> grpc_wire.Connection:
        async with self._connecting:
            if not (self._open and self._open[-1].usable):
                self._open = [one for one in self._open if not one.closed]
                self._open.append(await connected(self._path, grpc_wire.Connection))
            return self._open[-1]


def _decoded(data: bytes) -> Any:
    try:
        return ModelStreamInferResponse.FromString(data)
    except DecodeError:
        raise Broken("a message of the answer is no ModelStreamInferResponse") from None
