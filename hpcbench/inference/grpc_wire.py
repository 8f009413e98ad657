"""gRPC over a Unix socket: the client's part, with time stamps at the socket.

The library of gRPC reads in threads of its own and hands a message over through two queues, so its time
stamps are later and each text costs a multiple; a page is copied there, and here it goes from its buffer to
the kernel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from hpcbench.inference.http_client import Broken
from hpcbench.open_inference import http2, http2_fields

_UNKNOWN = 2
_CANCEL = 8  # an error's code
_LAST_NUMBER = 2**31 - 3
_READ_BYTES = 2**18
_MESSAGES = 64  # that wait for their reader: waking it for each costs more than the message itself


def header_block(path: str, fields: Mapping[str, str]) -> bytes:
    """The encoded headers of a call.

    Args:
        path: of the method.
        fields: further headers; a proxy must not keep them in a table, as they may be secret.

    Raises:
        ValueError: a field has characters that are not printable.
    """
    plain = {":path": path, ":authority": "wrapper", "te": "trailers"}
    plain["content-type"] = "application/grpc"
    return (
        http2_fields.POST + http2_fields.written(plain) + http2_fields.written(fields, secret=True)
    )


class Call(http2.Stream):
    """One request and the messages of its answer."""

    def __init__(self, number: int, window: int) -> None:
        super().__init__(number, window)
        self.sent = False
        """Whether all of the request was written."""
        self.messages: list[tuple[int, bytes]] = []
        """(`time.monotonic_ns()` of its last byte, message); a reader removes them."""
        self.started = False
        """Whether a message has come."""
        self.fields: dict[str, str] = {}
        """Headers and trailers of the answer."""
        self._rest = b""

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

    # called by its connection

    def take(self, now: int, data: bytes) -> None:
        """Data that arrived at `now`; raises ValueError if they are no messages of gRPC."""
        data = self._rest + data if self._rest else data
        at = 0
        while len(data) - at >= http2.PREFIX:
            if data[at]:
                raise ValueError("the server compressed a message, which was not asked for")
            begin = at + http2.PREFIX
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


class Connection(http2.Connection[Call]):
    """One connection, for any number of calls side by side."""

    _begins = http2.PREFACE

    def __init__(self) -> None:
        ours = {http2.TABLE_SIZE: 0, http2.NO_PUSH: 0, http2.FIRST_WINDOW: http2.MOST}
        super().__init__(ours, memoryview(bytearray(_READ_BYTES)))
        self.usable = True
        """Whether it takes further calls."""
        self._next = 1

    def open(self, headers: bytes) -> Call:
        """Begin a call, with encoded headers."""
        call = Call(self._next, self._first_window)
        self._next += 2
        self.usable = self.usable and self._next < _LAST_NUMBER
        self._calls[call.number] = call
        self.put(http2.frame(http2.HEADERS, headers, http2.END_HEADERS, call.number))
        return call

    async def send(self, call: Call, message: Sequence[bytes]) -> None:
        """Write the one message of a request, given in parts; returns early if the server ends the answer.

        Raises:
            Exception: what `call.fail` got.
        """
        await self._send(call, message, last=True)
        call.sent = not call.ended

    def release(self, call: Call) -> None:
        """Forget a call; the server hears of one that is not complete, and ends its work."""
        known = self._calls.pop(call.number, None) is not None
        if known and not (call.sent and call.ended) and not self.closed:
            code = _CANCEL.to_bytes(4, "big")
            self.put(http2.frame(http2.RESET, code, 0, call.number))

    def close(self) -> None:
        """Close it now."""
        self.usable = False
        super().close()

    def lost(self, why: str) -> None:
        """Close it, with an error for all calls."""
        self.close()
        for call in self._calls.values():
            call.fail(Broken(why))

    def _take_data(self, now: int, flags: int, number: int, data: bytes) -> None:
        call = self._calls.get(number)
        if call is None:  # it was left
            return
        call.take(now, data)
        if flags & http2.END_STREAM:
            call.finish()

    def _take_headers(self, number: int, fields: dict[str, str], ends: bool) -> None:
        call = self._calls.get(number)
        if call is None:
            return
        call.fields.update(fields)
        if ends:
            call.finish()

    def _reset(self, number: int, code: int) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            call.fail(Broken(f"the wrapper reset the request, with code {code} of HTTP/2"))

    def _refused_after(self, last: int) -> None:
        self.usable = False
        for late in [one for one in self._calls.values() if one.number > last]:
            late.fail(Broken("the wrapper ends"))
