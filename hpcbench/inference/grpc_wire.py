"""gRPC over a Unix socket: the part that one client of the wrapper needs, with time stamps at the socket.

It is HTTP/2 (RFC 9113) with gRPC's messages in it
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). The library of gRPC reads in threads of its
own and hands a message over through two queues, so its time stamps are later and each text costs a multiple;
a page is copied there, and here it goes from its buffer to the kernel.

It asks the server to keep no table of headers (RFC 7541), and of the fields it needs the values of `:status`
and of those with a name in plain text. gRPC's servers compress only binary values, which are skipped.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Final, cast
from urllib.parse import unquote

from hpcbench.inference.http_client import Broken

OK: Final = 0
"""gRPC's status of a call that ended well."""

_UNKNOWN = 2
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PUSH, _PING, _GO_AWAY, _WINDOW, _CONTINUATION = (
    0, 1, 3, 4, 5, 6, 7, 8, 9,
)  # fmt: skip
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 0x20  # flags
_TABLE_SIZE, _NO_PUSH, _FIRST_WINDOW, _FRAME_SIZE = 1, 2, 4, 5  # settings
_CANCEL = 8  # an error's code
_FRAME = struct.Struct(">BHBBI")
_SETTING = struct.Struct(">HI")
_DEFAULT_WINDOW = 2**16 - 1
_DEFAULT_FRAME = 2**14
_31_BITS = 2**31 - 1  # also the largest window: answers are small, and the server never waits
_REFILL_BYTES = 2**30
_LAST_NUMBER = 2**31 - 3
_WRITE_BYTES = 2**20  # of one call before others have their turn, and in one frame
_JOINED_BYTES = 2**12  # copied behind their head, which costs less than to write twice
_READ_BYTES = 2**18
_MESSAGES = 64  # that wait for their reader: waking it for each costs more than the message itself
_PREFIX = 5  # bytes before a message: whether it is compressed, and its length
_STATUS_FIELDS = {8: "200", 9: "204", 10: "206", 11: "304", 12: "400", 13: "404", 14: "500"}
_STATIC_FIELDS = 61


def header_block(path: str, fields: Mapping[str, str]) -> bytes:
    """The encoded headers of a call.

    Args:
        path: of the method.
        fields: further headers; a proxy must not keep them in a table, as they may be secret.

    Raises:
        ValueError: a field has characters that are not printable.
    """
    if any(not f"{name}{value}".isprintable() for name, value in fields.items()):
        raise ValueError("a header must not contain control characters")
    plain = {":path": path, ":authority": "wrapper", "te": "trailers"}
    plain["content-type"] = "application/grpc"
    block = b"\x83\x86"  # :method POST, :scheme http
    block += b"".join(b"\x00" + _literal(name) + _literal(plain[name]) for name in plain)
    return block + b"".join(b"\x10" + _literal(name) + _literal(fields[name]) for name in fields)


class Call:
    """One request and the messages of its answer.

    Args:
        number: of its stream.
        window: bytes that the server takes at first.
    """

    def __init__(self, number: int, window: int) -> None:
        self.number, self.window = number, window
        self.sent = False
        """Whether all of the request was written."""
        self.ended = False
        """Whether the server ended its answer."""
        self.messages: list[tuple[int, bytes]] = []
        """(`time.monotonic_ns()` of its last byte, message); a reader removes them."""
        self.started = False
        """Whether a message has come."""
        self.fields: dict[str, str] = {}
        """Headers and trailers of the answer."""
        self._rest = b""
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def status(self) -> tuple[int, str]:
        """gRPC's status and its words, once the answer ended."""
        code = self.fields.get("grpc-status", "")
        if not code.isdecimal():
            return _UNKNOWN, f"the server answered HTTP {self.fields.get(':status', 'nothing')}"
        return int(code), unquote(self.fields.get("grpc-message", ""))

    # called by its reader

    async def begin(self) -> None:
        """Wait for the first message, or for the end; raises what `fail` got."""
        while not (self.messages or self.ended):
            await self.wait()

    async def more(self) -> list[tuple[int, bytes]]:
        """Unread messages, several if the answer has not ended; none at its end."""
        while not self.ended and len(self.messages) < _MESSAGES:
            try:
                await self.wait()
            except (OSError, asyncio.TimeoutError):  # raised again when all messages are read
                if not self.messages:
                    raise
                break
        messages, self.messages = self.messages, []
        return messages

    async def end(self) -> None:
        """Wait for the end."""
        while not self.ended:
            await self.wait()

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

    # called by its connection, and at its deadline

    def wake(self) -> None:
        """Let its reader, or its writer, look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """End it with an error for its reader. A complete answer stays complete."""
        if not self.ended and self._error is None:
            self._error = error
        self.wake()

    def take(self, now: int, data: bytes) -> None:
        """Data that arrived at `now`; raises ValueError if they are no messages of gRPC."""
        data = self._rest + data if self._rest else data
        at = 0
        while len(data) - at >= _PREFIX:
            if data[at]:
                raise ValueError("the server compressed a message, which was not asked for")
            begin = at + _PREFIX
            end = begin + int.from_bytes(data[at + 1 : begin], "big")
            if end > len(data):
                break
            self.messages.append((now, data[begin:end]))
            at = end
        self._rest = data[at:]
        if self.messages and (not self.started or len(self.messages) >= _MESSAGES):
            self.started = True
            self.wake()

    def finish(self) -> None:
        """The server ended the answer."""
        if self._rest:
            self.fail(Broken("the answer ended within a message"))
        self.ended = True
        self.wake()


class Connection(asyncio.BufferedProtocol):
    """One connection, for any number of calls side by side."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self.usable = True
        """Whether it takes further calls."""
        self._transport: asyncio.Transport
        self._calls: dict[int, Call] = {}
        self._writing: set[Call] = set()
        self._next = 1
        self._rest = b""
        self._block: tuple[int, int, bytes] | None = None  # headers that are to be continued
        self._window, self._first_window = _DEFAULT_WINDOW, _DEFAULT_WINDOW
        self._frame_bytes = _DEFAULT_FRAME
        self._unacknowledged = 0  # bytes that the server does not know to be read
        self._paused = False

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        ours = {_TABLE_SIZE: 0, _NO_PUSH: 0, _FIRST_WINDOW: _31_BITS}
        settings = b"".join(_SETTING.pack(*one) for one in ours.items())
        more = (_31_BITS - _DEFAULT_WINDOW).to_bytes(4, "big")
        self._transport.write(_PREFACE + _frame(_SETTINGS, settings) + _frame(_WINDOW, more))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        now = time.monotonic_ns()
        data = self._rest + self._buffer[:size]
        at = 0
        try:
            while len(data) - at >= _FRAME.size:
                high, low, kind, flags, number = _FRAME.unpack_from(data, at)
                length = high << 16 | low
                if length > _DEFAULT_FRAME:
                    raise ValueError("the server does not speak HTTP/2")
                begin = at + _FRAME.size
                if begin + length > len(data):
                    break
                at = begin + length
                self._take(now, kind, flags, number & _31_BITS, data[begin:at])
        except ValueError as error:
            return self._fail(Broken(str(error)))
        except (IndexError, struct.error):
            return self._fail(Broken("the server cut a frame short"))
        self._rest = data[at:]
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(Broken("the connection was closed"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake_writers()

    # called by requesters

    def open(self, headers: bytes) -> Call:
        """Begin a call, with encoded headers."""
        call = Call(self._next, self._first_window)
        self._next += 2
        self.usable = self.usable and self._next < _LAST_NUMBER
        self._calls[call.number] = call
        self._transport.write(_frame(_HEADERS, headers, _END_HEADERS, call.number))
        return call

    async def send(self, call: Call, message: Sequence[bytes]) -> None:
        """Write the one message of a request, given in parts; returns early if the server ends the answer.

        Raises:
            Exception: what `call.fail` got.
        """
        self._writing.add(call)
        try:
            left = _PREFIX + sum(map(len, message))
            prefix = b"\x00" + (left - _PREFIX).to_bytes(_PREFIX - 1, "big")
            for part in (prefix, *message):
                view = memoryview(part)
                while view:
                    most = min(self._frame_bytes, _WRITE_BYTES, self._window, call.window)
                    if call.ended:
                        return
                    if self._paused or most <= 0 or self.closed:
                        await call.wait()
                        continue
                    piece, view = view[:most], view[most:]
                    left -= len(piece)
                    self._write(call, piece, last=left == 0)
        finally:
            self._writing.discard(call)

    def _write(self, call: Call, piece: memoryview, *, last: bool) -> None:
        """Write data of a request, as one frame."""
        call.sent = last
        self._window -= len(piece)
        call.window -= len(piece)
        head = _head(len(piece), _DATA, _END_STREAM if last else 0, call.number)
        if len(piece) <= _JOINED_BYTES:
            self._transport.write(head + piece)
        else:
            self._transport.write(head)
            self._transport.write(piece)

    def release(self, call: Call) -> None:
        """Forget a call; the server hears of one that is not complete, and ends its work."""
        known = self._calls.pop(call.number, None) is not None
        if known and not (call.sent and call.ended) and not self.closed:
            code = _CANCEL.to_bytes(4, "big")
            self._transport.write(_frame(_RESET, code, 0, call.number))

    @property
    def closed(self) -> bool:
        """Whether it is no longer there, for calls in flight either."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close it now."""
        self.usable = False
        self._transport.abort()

    # frames

    def _take(self, now: int, kind: int, flags: int, number: int, data: bytes) -> None:
        """One frame; raises ValueError, IndexError or struct.error if it is none of HTTP/2."""
        if self._block is not None and kind != _CONTINUATION:
            raise ValueError("the server sent another frame between those of its headers")
        if kind == _DATA:
            self._take_data(now, flags, number, data)
        elif kind in (_HEADERS, _CONTINUATION):
            self._take_headers(kind, flags, number, data)
        elif kind == _RESET:
            self._reset(number, int.from_bytes(data, "big"))
        elif kind == _SETTINGS and not flags & _ACK:
            self._set(data)
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, data, _ACK))
        elif kind == _GO_AWAY:
            self.usable = False
            last = int.from_bytes(data[:4], "big") & _31_BITS
            for late in [one for one in self._calls.values() if one.number > last]:
                late.fail(Broken("the wrapper ends"))
        elif kind == _WINDOW:
            self._widen(number, int.from_bytes(data, "big") & _31_BITS)
        elif kind == _PUSH:
            raise ValueError("the server pushes, which it must not")

    def _take_data(self, now: int, flags: int, number: int, data: bytes) -> None:
        self._unacknowledged += len(data)
        if self._unacknowledged >= _REFILL_BYTES:
            self._transport.write(_frame(_WINDOW, self._unacknowledged.to_bytes(4, "big")))
            self._unacknowledged = 0
        call = self._calls.get(number)
        if call is None:  # it was left
            return
        call.take(now, _unpadded(flags, data) if flags & _PADDED else data)
        if flags & _END_STREAM:
            call.finish()

    def _take_headers(self, kind: int, flags: int, number: int, data: bytes) -> None:
        if kind == _HEADERS:
            data = _unpadded(flags, data) if flags & _PADDED else data
            data = data[5:] if flags & _PRIORITY else data
            ends = flags & _END_STREAM
        elif self._block is None or self._block[0] != number:
            raise ValueError("the server continues headers that it did not begin")
        else:
            _, ends, before = self._block
            data = before + data
        self._block = None if flags & _END_HEADERS else (number, ends, data)
        if self._block is not None:
            return
        fields, call = _fields(data), self._calls.get(number)
        if call is None:
            return
        call.fields.update(fields)
        if ends:
            call.finish()

    def _reset(self, number: int, code: int) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            call.fail(Broken(f"the wrapper reset the request, with code {code} of HTTP/2"))

    def _set(self, data: bytes) -> None:
        for name, value in _SETTING.iter_unpack(data):
            if name == _FIRST_WINDOW:
                for call in self._calls.values():
                    call.window += value - self._first_window
                self._first_window = value
            elif name == _FRAME_SIZE:
                self._frame_bytes = value
        self._transport.write(_frame(_SETTINGS, b"", _ACK))
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

    def _fail(self, error: Exception) -> None:
        """Close it, with an error for all calls."""
        self.close()
        for call in self._calls.values():
            call.fail(error)


def _head(size: int, kind: int, flags: int, number: int) -> bytes:
    return _FRAME.pack(size >> 16, size & 0xFFFF, kind, flags, number)


def _frame(kind: int, data: bytes, flags: int = 0, number: int = 0) -> bytes:
    return _head(len(data), kind, flags, number) + data


def _unpadded(flags: int, data: bytes) -> bytes:
    end = len(data) - data[0]
    if end < 1:
        raise ValueError("a frame of the server has more padding than data")
    return data[1:end]


def _literal(text: str) -> bytes:
    """A string of RFC 7541, section 5.2, in plain text."""
    data = text.encode("latin-1")
    left = len(data) - 127
    if left < 0:
        return bytes([len(data)]) + data
    size = bytearray([127])
    while left > 127:
        size.append(left & 127 | 128)
        left >>= 7
    return bytes([*size, left]) + data


def _fields(block: bytes) -> dict[str, str]:
    """The fields of a header block, without those whose name a static table has, `:status` excepted.

    Raises:
        ValueError: it refers to a table that we did not allow, or has compressed text.
        IndexError: it is cut short.
    """
    found: dict[str, str] = {}
    at = 0
    while at < len(block):
        first = block[at]
        bits = 7 if first & 0x80 else 6 if first & 0x40 else 5 if first & 0x20 else 4
        index, at = _number(block, at, bits)
        if bits == 5:  # the size of its table
            continue
        if index > _STATIC_FIELDS:
            raise ValueError("the server uses a table of headers, which it was asked not to keep")
        known = ":status" if index in _STATUS_FIELDS else ""
        if bits == 7:
            if known:
                found[known] = _STATUS_FIELDS[index]
            continue
        name: str | None = known
        if index == 0:
            name, at = _text(block, at)
        value, at = _text(block, at)
        if name is None or (value is None and name and not name.endswith("-bin")):
            raise ValueError("the server compresses the text of its headers")
        if name and value is not None:
            found[name] = value
    return found


def _number(block: bytes, at: int, bits: int) -> tuple[int, int]:
    """A number of RFC 7541, section 5.1, and where the next byte is."""
    most = (1 << bits) - 1
    value = block[at] & most
    at += 1
    if value < most:
        return value, at
    for shift in range(0, 28, 7):
        byte = block[at]
        at += 1
        value += (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number in the server's headers is too large")


def _text(block: bytes, at: int) -> tuple[str | None, int]:
    """A string, None if it is compressed, and where the next byte is."""
    compressed = block[at] & 0x80
    size, at = _number(block, at, 7)
    end = at + size
    if end > len(block):
        raise IndexError
    return None if compressed else block[at:end].decode("latin-1"), end
