"""gRPC as it arrives: what the servers of its own library send, and frames that are cut anywhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcbench.inference.grpc_wire import Call, Connection, header_block
from hpcbench.inference.http_client import Broken, connected
from hpcbench.open_inference.without_forks import grpc
from hpcbench.wrapper.grpc_server import FRAME_BYTES, WINDOW_BYTES

KEY = "k" * 300
SIZES = (0, 1, 4_091, 4_092, 16_379, 16_380, 65_535, 2**20, 9_000_000)
OPTIONS = {
    "as gRPC has it": [],
    "as the wrapper has it": [
        ("grpc.http2.max_frame_size", FRAME_BYTES),
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
    ],
    "with narrow windows": [("grpc.http2.lookahead_bytes", 0), ("grpc.http2.bdp_probe", 0)],
}


class Methods:
    """Methods of a real server."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()

    async def echo(self, message: bytes, context: Any) -> None:
        metadata = dict(context.invocation_metadata())
        assert metadata["x-api-key"] == KEY
        await context.write(message)
        await context.write(message[::-1])

    async def count(self, message: bytes, context: Any) -> None:
        for number in range(int(message)):
            await context.write(b"%d" % number)

    async def refuse(self, message: bytes, context: Any) -> None:
        context.set_trailing_metadata((("more-bin", bytes(range(256))), ("more", "text")))
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "zu groß: 100 %\n")

    async def slow(self, message: bytes, context: Any) -> None:
        try:
            await context.write(b"started")  # the client may leave before this returns
            self.started.set()
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        await context.write(b"ended")


@contextlib.asynccontextmanager
async def serving(
    socket: Path, options: Sequence[tuple[str, int]] = (), grace: float | None = None
) -> AsyncIterator[Methods]:
    """A server of gRPC's own library."""
    methods = Methods()
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), *options,
        ]
    )  # fmt: skip
    handlers = {
        name: grpc.unary_stream_rpc_method_handler(getattr(methods, name))
        for name in ("echo", "count", "refuse", "slow")
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", handlers),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield methods
    finally:
        await server.stop(grace)


@contextlib.asynccontextmanager
async def connection(socket: Path) -> AsyncIterator[Connection]:
    found = await connected(str(socket), Connection)
    try:
        yield found
    finally:
        found.close()
        await asyncio.sleep(0)


@contextlib.contextmanager
def folder() -> Any:
    with tempfile.TemporaryDirectory(prefix="hb") as name:
        yield Path(name) / "g"


async def ask(one: Connection, method: str, *parts: bytes) -> tuple[Call, list[bytes]]:
    """A whole call."""
    call = one.open(header_block(f"/t/{method}", {"x-api-key": KEY}))
    try:
        await one.send(call, parts)
        found: list[tuple[int, bytes]] = []
        while batch := await call.more():
            found += batch
        times = [now for now, _ in found]
        assert times == sorted(times) and all(now <= time.monotonic_ns() for now in times)
        return call, [data for _, data in found]
    finally:
        one.release(call)


@pytest.mark.long
@pytest.mark.parametrize("options", OPTIONS)
async def test_messages_of_any_size_pass_both_ways(options: str) -> None:
    with folder() as socket:
        async with serving(socket, OPTIONS[options]), connection(socket) as one:
            for size in SIZES:
                data = os.urandom(size)
                cut = size // 3
                call, found = await ask(one, "echo", data[:cut], b"", data[cut:])
                assert found == [data, data[::-1]]
                assert call.status == (0, "")


@pytest.mark.long
async def test_many_calls_of_one_connection_do_not_mix() -> None:
    with folder() as socket:
        async with serving(socket, OPTIONS["with narrow windows"]), connection(socket) as one:
            pages = [os.urandom(200_000) for _ in range(40)]
            asked = [ask(one, "echo", page) for page in pages]
            counted = [ask(one, "count", b"%d" % number) for number in range(300)]
            answers = await asyncio.gather(*asked, *counted)
            for page, (_, found) in zip(pages, answers, strict=False):
                assert found == [page, page[::-1]]
            for number, (_, found) in enumerate(answers[len(pages) :]):
                assert found == [b"%d" % n for n in range(number)]


async def test_a_refusal_has_its_status_and_its_words() -> None:
    with folder() as socket:
        async with serving(socket), connection(socket) as one:
            call, found = await ask(one, "refuse", b"")
            assert found == [] and call.status == (8, "zu groß: 100 %\n")
            call, _ = await ask(one, "nothing", os.urandom(3_000_000))
            assert call.status[0] == 12
            assert (await ask(one, "count", b"1"))[1] == [b"0"]


async def test_the_server_hears_of_a_call_that_is_left() -> None:
    with folder() as socket:
        async with serving(socket) as methods, connection(socket) as one:
            call = one.open(header_block("/t/slow", {"x-api-key": KEY}))
            await one.send(call, [b""])
            await call.begin()
            one.release(call)
            while not methods.cancelled:
                await asyncio.sleep(0.005)
            assert (await ask(one, "count", b"2"))[1] == [b"0", b"1"]


async def test_a_server_that_ends_in_order_ends_its_calls_and_takes_no_others() -> None:
    with folder() as socket:
        async with serving(socket, grace=30) as methods:
            one = await connected(str(socket), Connection)
            asked = asyncio.ensure_future(ask(one, "slow", b""))
            await methods.started.wait()

            async def later() -> None:
                while one.usable:
                    await asyncio.sleep(0.005)
                methods.go_on.set()

            waiting = asyncio.ensure_future(later())
        await waiting
        assert (await asked)[1] == [b"started", b"ended"]
        one.close()


async def test_a_server_that_asks_whether_the_client_lives_is_answered() -> None:
    often = [("grpc.keepalive_time_ms", 50), ("grpc.http2.ping_timeout_ms", 400)]
    with folder() as socket:
        async with serving(socket, often) as methods, connection(socket) as one:
            asyncio.get_running_loop().call_later(1.5, methods.go_on.set)
            assert (await ask(one, "slow", b""))[1] == [b"started", b"ended"]


# frames that no server here sends


def frame(kind: int, flags: int, data: bytes, number: int = 1) -> bytes:
    """RFC 9113, section 4.1."""
    return len(data).to_bytes(3, "big") + bytes([kind, flags]) + number.to_bytes(4, "big") + data


def message(text: bytes, compressed: int = 0) -> bytes:
    return bytes([compressed]) + len(text).to_bytes(4, "big") + text


STATUS = b"\x00\x0bgrpc-status\x010"
SETTINGS = frame(4, 0, b"", 0)
HEAD = frame(1, 4, b"\x20\x88" + b"\x5f\x10application/grpc")
END = frame(1, 5, STATUS)
WHOLE = SETTINGS + HEAD + frame(0, 0, message(b"hello")) + END
ODD = (
    SETTINGS
    + frame(6, 0, b"12345678", 0)
    + frame(0x20, 0xFF, b"of an extension")
    + frame(1, 0x28, b"\x02" + bytes(5) + b"\x88" + b"\x40" + b"\x00\x00")  # padded, weighted
    + frame(9, 0, b"\x03x-a")
    + frame(9, 4, b"\x01b")
    + frame(2, 0, bytes(5))
    + frame(0, 8, b"\x02" + message(b"hello")[:3] + b"\x00\x00")
    + frame(8, 0, bytes(3) + b"\x01")
    + frame(0, 0, message(b"hello")[3:])
    + frame(1, 5, b"\x00\x03m-b\x00" + STATUS)
)


@contextlib.asynccontextmanager
async def raw(data: bytes, size: int = 2**20) -> AsyncIterator[Connection]:
    """A connection to a server that answers the first call with given bytes, `size` at a time."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"application/grpc")
        for begin in range(0, len(data), size):
            writer.write(data[begin : begin + size])
            await writer.drain()
            await asyncio.sleep(0)
        if not data.endswith(b"..."):
            while await reader.read(2**16):
                pass
        writer.close()

    with folder() as socket:
        server = await asyncio.start_unix_server(serve, str(socket))
        async with connection(socket) as one:
            yield one
        server.close()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("data", [WHOLE, ODD])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_an_answer_may_come_in_any_pieces(data: bytes, size: int) -> None:
    async with raw(data, size) as one:
        call, found = await ask(one, "m", b"x" * 10)
        assert found == [b"hello"] and call.status == (0, "")
        assert call.fields[":status"] == "200"


async def refused(one: Connection) -> None:
    """Ask until there is no answer."""
    while (await ask(one, "m", b""))[1]:
        pass


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "not speak HTTP/2"),
        (SETTINGS + frame(5, 4, b"\x00\x00\x00\x02\x88"), "pushes"),
        (HEAD + frame(0, 0, message(b"x", 1)), "compressed a message"),
        (frame(1, 4, b"\xbe"), "a table of headers"),
        (frame(1, 4, b"\x00\x81\xff\x01a"), "compresses the text"),
        (frame(1, 4, b"\x00\x01a\x81\xff"), "compresses the text"),
        (frame(1, 4, b"\x00\x0bgrpc"), "cut a frame short"),
        (frame(1, 4, b"\x00\x7f\xff\xff\xff\xff\xff"), "too large"),
        (frame(1, 0, b"\x88") + frame(0, 0, b""), "another frame between"),
        (frame(9, 4, b"\x88"), "did not begin"),
        (frame(0, 8, b"\x09abc"), "more padding than data"),
        (frame(4, 0, b"\x00\x04\x00", 0), "cut a frame short"),
        (HEAD + frame(3, 0, b"\x00\x00\x00\x07"), "code 7 of HTTP/2"),
        (frame(7, 0, bytes(8), 0), "the wrapper ends"),
        (HEAD + frame(0, 1, message(b"hello")[:-1]), "within a message"),
        (HEAD + frame(0, 0, message(b"hello") + b"..."), "connection was closed"),
    ],
)
async def test_what_is_no_answer_is_never_taken_for_one(data: bytes, said: str) -> None:
    async with raw(data) as one:
        with pytest.raises(Broken, match=said):
            await refused(one)


async def test_an_answer_without_a_status_of_grpc_has_that_of_http() -> None:
    async with raw(frame(1, 5, b"\x8d")) as one:
        call, found = await ask(one, "m", b"")
        assert found == [] and call.status == (2, "the server answered HTTP 404")


async def test_what_was_read_before_an_error_is_given_before_it() -> None:
    async with raw(HEAD + frame(0, 0, message(b"hello")) + frame(3, 0, bytes(4))) as one:
        call = one.open(header_block("/t/m", {}))
        await one.send(call, [b""])
        assert [data for _, data in await call.more()] == [b"hello"]
        with pytest.raises(Broken, match="reset"):
            await call.more()


async def test_no_more_is_sent_than_the_server_allows_all_calls_together() -> None:
    sizes: list[int] = []
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(4, 0, b"\x00\x04" + (2**20).to_bytes(4, "big"), 0))
        await reader.readexactly(24)
        while sum(sizes) < 2**16 + 99:
            head = await reader.readexactly(9)
            data = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == 0:
                sizes.append(len(data))
            if sum(sizes) == 2**16 - 1:
                writer.write(frame(8, 0, (100).to_bytes(4, "big"), 0))
        done.set()
        while await reader.read(2**16):
            pass
        writer.close()

    with folder() as socket:
        server = await asyncio.start_unix_server(serve, str(socket))
        async with connection(socket) as one:
            asked = [asyncio.ensure_future(ask(one, "m", bytes(50_000))) for _ in range(2)]
            await done.wait()
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        server.close()
        await asyncio.sleep(0.01)
    assert sum(sizes) == 2**16 + 99


def test_a_header_cannot_have_control_characters() -> None:
    with pytest.raises(ValueError, match="control characters"):
        header_block("/t/m", {"x-api-key": "a\nb"})
