"""HTTP/1.1 over a Unix socket: the part that one client of one server needs, with time stamps at the socket.

Each block of an answer gets its time stamp in the callback that reads it from the kernel, before any other
work. A general HTTP library first passes it to a task, and the task reads the clock: if 64 streams arrive
in step, as those of one engine do, the last then gets its time stamp after all others were processed
(`benchmarks/timing_truth.py` shows both).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar, cast

_WRITE_BYTES = 2**18  # written at once, so that a large body does not block the loop
_READ_BYTES = 2**18
_SEND_BYTES = 2**20  # that the kernel takes before the server has read them; it may take less
_LONGEST_HEAD = 2**16
_QUEUE_PAUSE = 0.005  # seconds between tries to get into a server's full queue
_BLOCKS = 64  # that wait for their reader: waking it for each costs more than the block itself

P = TypeVar("P", bound=asyncio.BaseProtocol)


class NotConnected(ConnectionError):
    """No process listens on the socket."""


class Broken(ConnectionError):
    """The connection ended, or received invalid HTTP, before the answer was complete."""


async def connected(path: str, protocol: Callable[[], P], seconds: float = 60) -> P:
    """A new connection to a Unix socket.

    Raises:
        NotConnected: no process listens.
        Broken: it failed otherwise.
        asyncio.TimeoutError: the server's queue of connections was full for `seconds`.
    """
    try:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            await _connect(one, path, seconds)
            # the kernel takes a page in fewer pieces, for each of which both sides would wake
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_unix_connection(protocol, sock=one)
        except BaseException:
            one.close()
            raise
    except (FileNotFoundError, ConnectionRefusedError, PermissionError) as error:
        raise NotConnected(str(error)) from error
    except asyncio.TimeoutError:
        raise
    except OSError as error:
        raise Broken(str(error)) from error
    return connection


async def _connect(one: socket.socket, path: str, seconds: float) -> None:
    """Connect; asyncio's own function takes a server's full queue for a connection in the making."""
    until = time.monotonic() + seconds
    one.setblocking(False)
    while True:
        try:
            return one.connect(path)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise asyncio.TimeoutError from None
        await asyncio.sleep(_QUEUE_PAUSE)


class Incoming:
    """Parses one answer from blocks of bytes with any boundaries: RFC 9112, sections 4, 6 and 7.1."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case."""
        self.head_at: int | None = None
        """`time.monotonic_ns()` at the last byte of the head."""
        self.ended_at: int | None = None
        """`time.monotonic_ns()` at the last byte of the body."""
        self.blocks: list[tuple[int, bytes]] = []
        """(arrival, bytes) of the body, as read from the socket; a reader removes the blocks."""
        self.size = 0
        """Bytes of the body so far."""
        self.first_at: int | None = None
        """`time.monotonic_ns()` at the first byte of the body."""
        self.keep = False
        """Whether the connection may serve another request."""
        self._rest = b""
        self._left: int | None = None  # bytes of body or chunk to come; None: until the end
        self._chunked = self._after_chunk = self._trailers = False
        self._between = False  # whether the next byte begins a chunk

    def feed(self, now: int, data: bytes) -> None:
        """Parse data that arrived at `now`; raises ValueError if it is no HTTP."""
        if self._between and self.size:
            # Mostly one whole chunk, as engines write an event.
            end, size = data.find(b"\r\n", 0, 9), len(data)
            if end > 0 and data[-2:] == b"\r\n" and data[:end].isalnum():
                length = int(data[:end], 16)
                if length == size - end - 4 > 0:
                    self.size += length
                    self.blocks.append((now, data[end + 2 : -2]))
                    return
        if self.head_at is None:
            data = self._rest + data
            self._rest = b""
            while self.head_at is None:
                head, found, rest = data.partition(b"\r\n\r\n")
                if not found:
                    if len(data) > _LONGEST_HEAD:
                        raise ValueError(
                            f"the headers of the answer are longer than {_LONGEST_HEAD} bytes"
                        )
                    self._rest = data
                    return
                self._read_head(now, head)
                data = rest
        body = self._unchunk(data) if self._chunked else self._measure(data)
        if body:
            if not self.size:
                self.first_at = now
            self.size += len(body)
            self.blocks.append((now, body))
        if self._left == 0 and not self._chunked:
            self.ended_at = now
        inside = self._left or self._rest or self._after_chunk or self._trailers
        self._between = self._chunked and not inside

    def end(self, now: int) -> None:
        """Record the end of the connection, which ends an answer without a length."""
        if self.head_at is not None and self._left is None and not self._chunked:
            self.ended_at = now

    def _read_head(self, now: int, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
            raise ValueError(f"the answer is not HTTP: {first[:80]!r}")
        if rest[0] == "1":  # 100 Continue and the like: the answer follows
            return
        self.status, self.head_at = int(rest[:3]), now
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        if "content-length" in self.headers:
            self._left = int(self.headers["content-length"])
        elif self.status in (204, 304):
            self._left = 0
        closes = "close" in self.headers.get("connection", "").lower() or version != "HTTP/1.1"
        self.keep = not closes and (self._chunked or self._left is not None)
        if self._chunked:
            self._left = None

    def _measure(self, data: bytes) -> bytes:
        if self._left is not None:
            if len(data) > self._left:
                raise ValueError("the answer is longer than its Content-Length")
            self._left -= len(data)
        return data

    def _unchunk(self, data: bytes) -> bytes:
        """The bytes of all (parts of) chunks in `data`."""
        data = self._rest + data
        self._rest = b""
        parts, at = [], 0
        while at < len(data):
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                self._after_chunk = True
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                self._rest = data[at:]
                break
            self._line(data[at:end])
            at = end + 2
            if not self._chunked:
                if at < len(data):
                    raise ValueError("the server sent data after the end of the answer")
                break
        return b"".join(parts)

    def _line(self, line: bytes) -> None:
        """Parse the end of a chunk, the size of the next, or a trailer."""
        if self._after_chunk:
            if line:
                raise ValueError("a chunk of the answer is longer than its declared size")
            self._after_chunk = False
        elif self._trailers:
            self._chunked = bool(line)  # the empty line ends the body
            self._left = 0 if not line else None
        else:
            self._left = int(line.partition(b";")[0], 16)
            if self._left < 0:
                raise ValueError("a chunk of the answer has a negative size")
            self._trailers = self._left == 0


class Connection(asyncio.BufferedProtocol):
    """One connection: handles one request at a time.

    Args:
        buffer: for reading; connections of one event loop may share it. A buffer of each read's own, of the
            size that asyncio takes, would cost more than the read.
    """

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self.closed = False
        self.heard_at = 0
        """`time.monotonic_ns()` at the server's last byte."""
        self.idle_since = 0.0
        """`time.monotonic()` at the end of its last exchange."""
        self._transport: asyncio.Transport
        self._answer: Incoming | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        now = self.heard_at = time.monotonic_ns()
        data = self._buffer[:size].tobytes()
        answer = self._answer
        if answer is None:  # no request is open
            return self.abort()
        try:
            answer.feed(now, data)
        except ValueError as error:
            return self.fail(Broken(str(error)))
        if answer.head_at == now or answer.ended_at is not None or len(answer.blocks) >= _BLOCKS:
            self._wake()
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        if self._answer is not None:
            self._answer.end(time.monotonic_ns())
        self._wake()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake()

    # called by requesters

    async def send(self, head: bytes, body: bytes) -> Incoming:
        """Write a request; returns when the head of the answer has arrived."""
        self._answer, self._error = Incoming(), None
        answer = self._answer
        self._transport.write(head + body if len(body) < 4096 else head)
        if len(body) >= 4096:
            view = memoryview(body)
            for begin in range(0, len(body), _WRITE_BYTES):
                while self._paused and not self.closed:
                    await self._wait()
                if self.closed:
                    break  # the server may have answered before it ended the connection
                self._transport.write(view[begin : begin + _WRITE_BYTES])
        while answer.head_at is None:
            await self._more()
        return answer

    async def more(self, answer: Incoming) -> list[tuple[int, bytes]]:
        """Unread blocks of the body, several if it has not ended; empty at its end."""
        while answer.ended_at is None and len(answer.blocks) < _BLOCKS:
            try:
                await self._more()
            except (OSError, asyncio.TimeoutError):  # raised again when all blocks are read
                if not answer.blocks:
                    raise
                break
        blocks, answer.blocks = answer.blocks, []
        return blocks

    def release(self) -> bool:
        """End the exchange; returns whether the connection can be used again."""
        answer, self._answer = self._answer, None
        if answer is None or answer.ended_at is None or not answer.keep or self.closed:
            self.abort()
        return not self.closed

    def fail(self, error: Exception) -> None:
        """Abort the exchange with an error for its reader. A complete answer stays complete."""
        if self._answer is None or self._answer.ended_at is None:
            self._error = error
        self.abort()
        self._wake()

    def abort(self) -> None:
        """Close the connection now; the server notices and stops its work."""
        self.closed = True
        self._transport.abort()

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        if self.closed:
            raise Broken("the connection was closed")
        await self._wait()
        if self._error is not None:
            raise self._error

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class HttpAnswer:
    """An answer whose head has arrived."""

    def __init__(self, connection: Connection, incoming: Incoming) -> None:
        self._connection, self._incoming = connection, incoming
        self.status, self.headers = incoming.status, incoming.headers
        self.head_at = cast(int, incoming.head_at)

    @property
    def ended_at(self) -> int | None:
        """Time of its last byte; None before."""
        return self._incoming.ended_at

    @property
    def heard_at(self) -> int:
        """Time of the server's last byte."""
        return self._connection.heard_at

    @property
    def first_at(self) -> int | None:
        """Time of the body's first byte; None before."""
        return self._incoming.first_at

    @property
    def size(self) -> int:
        """Bytes of the body so far."""
        return self._incoming.size

    async def blocks(self) -> AsyncIterator[list[tuple[int, bytes]]]:
        """The body with the arrival of each block, some at a time; raises Broken or asyncio.TimeoutError."""
        while blocks := await self._connection.more(self._incoming):
            yield blocks

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([data async for blocks in self.blocks() for _, data in blocks])


class WholeAnswer(HttpAnswer):
    """An answer that was read, with another body in place of its own."""

    def __init__(self, answer: HttpAnswer, body: bytes) -> None:
        super().__init__(answer._connection, answer._incoming)
        self._body = body

    async def blocks(self) -> AsyncIterator[list[tuple[int, bytes]]]:
        """The body in one block."""
        yield [(self.ended_at or self.head_at, self._body)]


class Connections:
    """Connections to one Unix socket, kept open between requests.

    Args:
        path: the socket.
        headers: sent with every request.
        idle_seconds: longest idle time after which a connection is used again; None: any.
    """

    def __init__(
        self, path: str, headers: Mapping[str, str], idle_seconds: float | None = None
    ) -> None:
        self._path, self._idle_seconds = path, idle_seconds
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self.busy: set[Connection] = set()
        """Connections with an exchange."""
        lines = [f"{name}: {value}" for name, value in {"Host": "wrapper", **headers}.items()]
        if any(not line.isprintable() for line in lines):
            raise ValueError("a header must not contain control characters")
        self._head = "\r\n".join(lines)
        self._idle: list[Connection] = []

    @contextlib.asynccontextmanager
    async def ask(
        self, method: str, target: str, body: bytes | None, seconds: float
    ) -> AsyncIterator[HttpAnswer]:
        """Send a request; yields the answer when its head has arrived.

        If the block ends before the answer does, by an error, a cancellation or the deadline, the connection
        is closed: the server sees that its client has left.

        Raises:
            NotConnected: no process listens.
            Broken: the answer broke off, here or during reading.
            asyncio.TimeoutError: `seconds` passed, here or during reading.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        connection = await self._connect(seconds)
        self.busy.add(connection)
        timer = loop.call_at(until, connection.fail, asyncio.TimeoutError())
        try:
            yield HttpAnswer(
                connection, await connection.send(self._request(method, target, body), body or b"")
            )
        finally:
            timer.cancel()
            self.busy.discard(connection)
            if connection.release():
                connection.idle_since = time.monotonic()
                self._idle.append(connection)

    def close(self) -> None:
        """Close all idle connections."""
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def _connect(self, seconds: float) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            idle = time.monotonic() - connection.idle_since
            if self._idle_seconds is not None and idle > self._idle_seconds:
                connection.abort()
            if not connection.closed:
                return connection
        return await connected(self._path, lambda: Connection(self._buffer), seconds)

    def _request(self, method: str, target: str, body: bytes | None) -> bytes:
        length = ""
        if body is not None:
            length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return f"{method} {target} HTTP/1.1\r\n{self._head}\r\n{length}\r\n".encode("latin-1")
