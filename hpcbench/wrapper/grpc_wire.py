"""gRPC on a Unix socket for the worker's own client: the same messages without gRPC's library.

One method, ModelStreamInfer, with one request a call, as `inference/grpc_wire.py` calls it. The bytes of an
image go from the kernel to the message that the engine's file is written from; the library copies them twice
more, in threads that wake each other.

Other clients use what gRPC's servers must have and this one lacks: tables of headers, compression, other
methods. They are served by `grpc_server`.

Imported only when it is asked for: it needs protobuf, of the extra `grpc`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from urllib.parse import quote

from hpcbench.open_inference import http2, http2_fields
from hpcbench.open_inference.protobuf_classes import STREAM
from hpcbench.wrapper.grpc_chats import GRACE_SECONDS, Chats, Pieces
from hpcbench.wrapper.proxy import WRONG_KEY, Admits, too_large
from hpcbench.wrapper.supervisor import Supervisor

_FRAME_BYTES = 2**20
_READ_BYTES = 2**14  # of frames; the data of large ones are read into their message
_OK, _INVALID, _EXHAUSTED, _UNIMPLEMENTED, _INTERNAL, _UNAUTHENTICATED = 0, 3, 8, 12, 13, 16
_HEAD = http2_fields.OK + http2_fields.written({"content-type": "application/grpc"})
_NOT_PASSED_ON = frozenset({":path", ":authority", "te", "content-type"})

log = logging.getLogger("hpcbench.wrapper")


@contextlib.asynccontextmanager
async def serving(
    admits: Admits, supervisor: Supervisor, listener: socket.socket, message_limit: int
) -> AsyncIterator[None]:
    """Serve inside the block; afterwards open streams have `GRACE_SECONDS` to end.

    Args:
        admits: whether a request with these headers has the key.
        supervisor: holds the engine.
        listener: the socket, listening.
        message_limit: largest request, bytes.
    """
    chats = Chats(supervisor, message_limit)
    served: set[Connection] = set()
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: Connection(admits, chats, message_limit, served), sock=listener, backlog=2048
    )
    try:
        yield
    finally:
        server.close()
        ending = [task for one in served for task in one.go_away()]
        if ending:
            await asyncio.wait(ending, timeout=GRACE_SECONDS)
        for one in list(served):
            one.end()


class _Call(http2.Stream):
    """One request and its answer."""

    def __init__(self, number: int, window: int, headers: list[tuple[bytes, bytes]]) -> None:
        super().__init__(number, window)
        self.headers = headers
        self.prefix = b""
        self.message = bytearray()
        """The request, of which the first `size` bytes are there."""
        self.size = 0
        self.started = False
        """Whether the head of the answer was written."""
        self.task: asyncio.Task[None] | None = None

    def room(self) -> memoryview:
        """Where the next bytes of the message belong."""
        return memoryview(self.message)[self.size :]


class Connection(http2.Connection[_Call]):
    """One connection of a client.

    Args:
        admits: whether headers have the key.
        chats: answers requests.
        message_limit: largest request, bytes.
        served: all connections that are open.
    """

    def __init__(
        self, admits: Admits, chats: Chats, message_limit: int, served: set[Connection]
    ) -> None:
        ours = {
            http2.TABLE_SIZE: 0,
            http2.FIRST_WINDOW: http2.MOST,
            http2.FRAME_SIZE: _FRAME_BYTES,
        }
        super().__init__(ours, memoryview(bytearray(_READ_BYTES)))
        self._admits, self._chats, self._limit = admits, chats, message_limit
        self._served = served
        self._expected = http2.PREFACE
        self._last = 0  # number of the newest call
        self._leaves = False
        self._into = memoryview(b"")  # where data of a frame go whose beginning was read
        self._filling: tuple[_Call, int] | None = None  # its call and flags

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._served.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._into or self._buffer

    def buffer_updated(self, size: int) -> None:
        if self._filling is None:
            super().buffer_updated(size)
            return self._begin_to_fill()
        call, flags = self._filling
        call.size += size
        self._into = self._into[size:]
        if not self._into:
            self._filling = None
            self._look_at(call, flags)
        return None

    def lost(self, why: str) -> None:
        """Close it now."""
        self._served.discard(self)
        self.close()
        self.end()

    # frames

    def _begin_to_fill(self) -> None:
        """Let the rest of a frame of data be read into its message, if the message has a size."""
        rest = self._rest
        if (
            self._block is not None
            or len(rest) < http2.FRAME.size
            or rest[3] != http2.DATA
            or rest[4] & http2.PADDED
        ):
            return
        high, low, _, flags, number = http2.FRAME.unpack_from(rest)
        call, left = self._calls.get(number), high << 16 | low
        data = rest[http2.FRAME.size :]
        if call is None or call.size + left > len(call.message):
            return
        self._count(left)
        self._add(call, data)
        self._into, self._filling = call.room()[: left - len(data)], (call, flags)
        self._rest = b""

    def _take_headers(self, number: int, fields: dict[str, str], ends: bool) -> None:
        if number in self._calls or self._leaves:
            return
        if number <= self._last or not number % 2:
            raise ValueError("the client opens a stream with a number that it must not have")
        self._last = number
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in fields.items()
            if name not in _NOT_PASSED_ON
        ]
        if not self._admits(headers):
            return self._end(number, _UNAUTHENTICATED, WRONG_KEY)
        if fields.get(":path") != STREAM:
            return self._end(number, _UNIMPLEMENTED, "there is no such method here")
        if ends:
            return self._end(number, _INVALID, "the call has no request")
        self._calls[number] = _Call(number, self._first_window, headers)
        return None

    def _take_data(self, now: int, flags: int, number: int, data: bytes) -> None:
        call = self._calls.get(number)
        if call is None:  # it was refused, or has ended
            return
        if len(call.prefix) < http2.PREFIX:
            missing = http2.PREFIX - len(call.prefix)
            call.prefix, data = call.prefix + data[:missing], data[missing:]
            if len(call.prefix) == http2.PREFIX:
                size = int.from_bytes(call.prefix[1:], "big")
                if call.prefix[0]:
                    return self._end(number, _UNIMPLEMENTED, "a request must not be compressed")
                if size > self._limit:
                    return self._end(number, _EXHAUSTED, too_large(self._limit))
                call.message = bytearray(size)
        if call.size + len(data) > len(call.message):
            return self._end(number, _UNIMPLEMENTED, "a call has one request")
        self._add(call, data)
        return self._look_at(call, flags)

    def _add(self, call: _Call, data: bytes) -> None:
        end = call.size + len(data)
        call.message[call.size : end] = data
        call.size = end

    def _look_at(self, call: _Call, flags: int) -> None:
        """Answer a request that is complete."""
        whole = len(call.prefix) == http2.PREFIX and call.size == len(call.message)
        if whole and call.task is None:
            call.task = asyncio.ensure_future(self._answer(call))
        elif flags & http2.END_STREAM and not whole:
            self._end(call.number, _INVALID, "the request ended within its message")

    def _reset(self, number: int, code: int) -> None:
        if (call := self._calls.get(number)) is not None:
            self._leave(call)

    def _leave(self, call: _Call) -> None:
        """The client left: the engine's work ends."""
        self._calls.pop(call.number, None)
        call.ended = True
        if call.task is not None:
            call.task.cancel()

    # answers

    async def _answer(self, call: _Call) -> None:
        async def write(data: bytes) -> None:
            if not call.started:
                call.started = True
                self.put(http2.frame(http2.HEADERS, _HEAD, http2.END_HEADERS, call.number))
            await self._send(call, (data,), last=False)

        status, text = _OK, ""
        try:
            await self._chats.pass_on(Pieces(write), call.message, call.headers)
        except Exception as error:
            log.exception("a bug in the wrapper")
            status, text = _INTERNAL, f"a bug in the wrapper: {type(error).__name__}"
        if not call.ended:
            self._end(call.number, status, text)

    def _end(self, number: int, status: int, text: str) -> None:
        """Write the end of a call."""
        call = self._calls.pop(number, None)
        fields = {"grpc-status": str(status)}
        if text:
            fields["grpc-message"] = quote(text, safe=" ")
        started = call is not None and call.started
        block = (b"" if started else _HEAD) + http2_fields.written(fields)
        flags = http2.END_HEADERS | http2.END_STREAM
        self.put(http2.frame(http2.HEADERS, block, flags, number))

    def go_away(self) -> list[asyncio.Task[None]]:
        """Take no further calls; gives those that are being answered."""
        self._leaves = True
        self.put(http2.frame(http2.GO_AWAY, self._last.to_bytes(4, "big") + bytes(4)))
        return [call.task for call in self._calls.values() if call.task is not None]

    def end(self) -> None:
        """Close it when all is written; the engine's work on its calls ends."""
        self._transport.close()
        for call in list(self._calls.values()):
            self._leave(call)
