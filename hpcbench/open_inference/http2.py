"""HTTP/2 (RFC 9113) with gRPC's messages in it, as far as the worker's client and its wrapper need it.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md. Both ends ask each other to keep no table of
headers (RFC 7541). They need the values of `:status` and of fields with a name in plain text. gRPC's servers
compress only binary values, which are skipped.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, Generic, TypeVar, cast

from hpcbench.open_inference import http2_fields

DATA, HEADERS, RESET, SETTINGS, PUSH, PING, GO_AWAY, WINDOW, CONTINUATION = (
    0, 1, 3, 4, 5, 6, 7, 8, 9,
)  # fmt: skip
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 0x20
"""Flags."""
TABLE_SIZE, NO_PUSH, FIRST_WINDOW, FRAME_SIZE = 1, 2, 4, 5
"""Settings."""
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""First bytes of a client."""
PREFIX: Final = 5
"""Bytes before a message: whether it is compressed, and its length."""
MOST: Final = 2**31 - 1
"""Largest number of 31 bits: also the largest window."""
FRAME = struct.Struct(">BHBBI")
"""Length in two parts, kind, flags and stream of a frame."""

_SETTING = struct.Struct(">HI")
_DEFAULT_WINDOW = 2**16 - 1
_DEFAULT_FRAME = 2**14
_REFILL_BYTES = 2**30
_WRITE_BYTES = 2**20  # of one call before others have their turn, and in one frame
_JOINED_BYTES = 2**12  # copied behind their head, which costs less than to write twice


class Stream:
    """One call, as both ends see it.

    Args:
        number: of its stream.
        window: bytes that the other end takes at first.
    """

    def __init__(self, number: int, window: int) -> None:
        self.number, self.window = number, window
        self.ended = False
        """Whether the other end takes and sends no more."""
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until something happens to it; raises what `fail` got."""
        if self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._error is not None:
            raise self._error

    def wake(self) -> None:
        """Let its reader, or its writer, look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """End it with an error for its reader or writer. A complete answer stays complete."""
        if not self.ended and self._error is None:
            self._error = error
        self.wake()


S = TypeVar("S", bound=Stream)


class Connection(asyncio.BufferedProtocol, Generic[S]):
    """One connection, for any number of calls side by side.

    Args:
        settings: what this end tells of itself.
        buffer: for reading.
    """

    _begins: ClassVar[bytes] = b""
    """First bytes of this end."""

    def __init__(self, settings: Mapping[int, int], buffer: memoryview) -> None:
        self._settings, self._buffer = settings, buffer
        self._transport: asyncio.Transport
        self._calls: dict[int, S] = {}
        self._writing: set[S] = set()
        self._expected = b""  # what the other end must begin with
        self._rest = b""
        self._block: tuple[int, int, bytes] | None = None  # headers that are to be continued
        self._window, self._first_window = _DEFAULT_WINDOW, _DEFAULT_WINDOW
        self._frame_bytes = _DEFAULT_FRAME
        self._largest = settings.get(FRAME_SIZE, _DEFAULT_FRAME)
        self._unacknowledged = 0  # bytes that the other end does not know to be read
        self._paused = False

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        settings = b"".join(_SETTING.pack(*one) for one in self._settings.items())
        more = (MOST - _DEFAULT_WINDOW).to_bytes(4, "big")
        self._transport.write(self._begins + frame(SETTINGS, settings) + frame(WINDOW, more))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        now = time.monotonic_ns()
        data = self._rest + self._buffer[:size]
        at = len(self._expected)
        if at and not (data + self._expected[len(data) :]).startswith(self._expected):
            return self.lost("the other end does not speak HTTP/2")
        try:
            while len(data) - at >= FRAME.size:
                high, low, kind, flags, number = FRAME.unpack_from(data, at)
                length = high << 16 | low
                if length > self._largest:
                    raise ValueError("the other end does not speak HTTP/2")
                begin = at + FRAME.size
                if begin + length > len(data):
                    break
                at = begin + length
                self._take(now, kind, flags, number & MOST, data[begin:at])
        except ValueError as error:
            return self.lost(str(error))
        except (IndexError, struct.error):
            return self.lost("the other end cut a frame short")
        if len(data) >= at:
            self._rest, self._expected = data[at:], b""
        else:
            self._rest = data
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self.lost("the connection was closed")

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake_writers()

    # to write

    async def _send(self, call: S, parts: Sequence[bytes], *, last: bool) -> None:
        """Write a message, in parts; returns early if the other end wants no more of it.

        Args:
            call: whose message it is.
            parts: the message.
            last: whether this end writes no more on the call.

        Raises:
            Exception: what `call.fail` got.
        """
        left = sum(map(len, parts))
        prefix = b"\x00" + left.to_bytes(PREFIX - 1, "big")
        left += PREFIX
        first, *others = parts
        if len(first) <= _JOINED_BYTES:
            prefix, first = prefix + first, b""
            if left == len(prefix) <= self._most(call):  # the usual text: one write
                return self._write(call, prefix, last=last)
        self._writing.add(call)
        try:
            for part in (prefix, first, *others):
                view = memoryview(part)
                while view:
                    most = self._most(call)
                    if call.ended:
                        return None
                    if most <= 0:
                        await call.wait()
                        continue
                    piece, view = view[:most], view[most:]
                    left -= len(piece)
                    self._write(call, piece, last=last and left == 0)
        finally:
            self._writing.discard(call)
        return None

    def _most(self, call: S) -> int:
        """Bytes that can be written for a call now."""
        if self._paused or self.closed or call.ended:
            return 0
        return min(self._frame_bytes, _WRITE_BYTES, self._window, call.window)

    def _write(self, call: S, piece: bytes | memoryview, *, last: bool) -> None:
        """Write data of a call, as one frame."""
        self._window -= len(piece)
        call.window -= len(piece)
        begin = head(len(piece), DATA, END_STREAM if last else 0, call.number)
        if len(piece) <= _JOINED_BYTES:
            self.put(begin + piece)
        else:
            self.put(begin)
            self.put(piece)

    def put(self, data: bytes | memoryview) -> None:
        """Write frames."""
        self._transport.write(data)

    @property
    def closed(self) -> bool:
        """Whether it is no longer there, for calls in flight either."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close it now."""
        self._transport.abort()

    def lost(self, why: str) -> None:
        """It cannot be used any more."""
        raise NotImplementedError

    # frames

    def _take(self, now: int, kind: int, flags: int, number: int, data: bytes) -> None:
        """One frame; raises ValueError, IndexError or struct.error if it is none of HTTP/2."""
        if self._block is not None and kind != CONTINUATION:
            raise ValueError("the other end sent another frame between those of its headers")
        if kind == DATA:
            self._count(len(data))
            self._take_data(now, flags, number, unpadded(flags, data) if flags & PADDED else data)
        elif kind in (HEADERS, CONTINUATION):
            self._take_block(kind, flags, number, data)
        elif kind == RESET:
            self._reset(number, int.from_bytes(data, "big"))
        elif kind == SETTINGS and not flags & ACK:
            self._set(data)
        elif kind == PING and not flags & ACK:
            self.put(frame(PING, data, ACK))
        elif kind == GO_AWAY:
            self._refused_after(int.from_bytes(data[:4], "big") & MOST)
        elif kind == WINDOW:
            self._widen(number, int.from_bytes(data, "big") & MOST)
        elif kind == PUSH:
            raise ValueError("the other end pushes, which it must not")

    def _count(self, size: int) -> None:
        """Data were read: the other end may send as much again."""
        self._unacknowledged += size
        if self._unacknowledged >= _REFILL_BYTES:
            self.put(frame(WINDOW, self._unacknowledged.to_bytes(4, "big")))
            self._unacknowledged = 0

    def _take_block(self, kind: int, flags: int, number: int, data: bytes) -> None:
        """Headers, or a part of them."""
        if kind == HEADERS:
            data = unpadded(flags, data) if flags & PADDED else data
            data = data[5:] if flags & PRIORITY else data
            ends = flags & END_STREAM
        elif self._block is None or self._block[0] != number:
            raise ValueError("the other end continues headers that it did not begin")
        else:
            _, ends, before = self._block
            data = before + data
        self._block = None if flags & END_HEADERS else (number, ends, data)
        if self._block is None:
            self._take_headers(number, http2_fields.read(data), bool(ends))

    def _take_data(self, now: int, flags: int, number: int, data: bytes) -> None:
        raise NotImplementedError

    def _take_headers(self, number: int, fields: dict[str, str], ends: bool) -> None:
        raise NotImplementedError

    def _reset(self, number: int, code: int) -> None:
        raise NotImplementedError

    def _refused_after(self, last: int) -> None:
        """The other end takes no calls after the last one."""

    def _set(self, data: bytes) -> None:
        for name, value in _SETTING.iter_unpack(data):
            if name == FIRST_WINDOW:
                for call in self._calls.values():
                    call.window += value - self._first_window
                self._first_window = value
            elif name == FRAME_SIZE:
                self._frame_bytes = value
        self.put(frame(SETTINGS, b"", ACK))
        self._wake_writers()

    def _widen(self, number: int, size: int) -> None:
        if number == 0:
            self._window += size
            self._wake_writers()
        elif (call := self._calls.get(number)) is not None:
            call.window += size
            if call in self._writing:
                call.wake()

    def _wake_writers(self) -> None:
        for call in self._writing:
            call.wake()


def head(size: int, kind: int, flags: int, number: int) -> bytes:
    """The head of a frame."""
    return FRAME.pack(size >> 16, size & 0xFFFF, kind, flags, number)


def frame(kind: int, data: bytes, flags: int = 0, number: int = 0) -> bytes:
    """A frame."""
    return head(len(data), kind, flags, number) + data


def unpadded(flags: int, data: bytes) -> bytes:
    """The data of a frame with padding."""
    end = len(data) - data[0]
    if end < 1:
        raise ValueError("a frame of the other end has more padding than data")
    return data[1:end]
