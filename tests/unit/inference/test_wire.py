"""HTTP as it arrives: cut anywhere, of a known length or not, and never taken for more than it is."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hpcbench.event_stream import as_object
from hpcbench.inference.http_client import (
    Broken,
    Connections,
    Incoming,
    NotConnected,
)
from tests.sockets import full_queue
from tests.unit.inference.talking import run

HEAD = b"HTTP/1.1 200 OK\r\nX-A:  b \r\n"
LENGTH = HEAD + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = (
    HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;note=x\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n"
)
NOTHING = b"HTTP/1.1 204 No Content\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH


def fed(data: bytes, size: int) -> Incoming:
    """An answer that came `size` bytes at a time, at the times 0, 1, 2 …"""
    answer = Incoming()
    for now, begin in enumerate(range(0, len(data), size)):
        answer.feed(now, data[begin : begin + size])
    return answer


@pytest.mark.parametrize("data", [LENGTH, CHUNKED, CONTINUED])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_an_answer_may_come_in_any_blocks(data: bytes, size: int) -> None:
    answer = fed(data, size)
    assert (answer.status, answer.headers["x-a"]) == (200, "b")
    assert b"".join(block for _, block in answer.blocks) == b"hello"
    times = [answer.head_at or 0, *(now for now, _ in answer.blocks), answer.ended_at or 0]
    assert times == sorted(times)
    assert answer.ended_at == (len(data) - 1) // size
    assert answer.keep


def test_each_block_has_the_time_at_which_it_came() -> None:
    answer = Incoming()
    answer.feed(10, HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    answer.feed(20, b"1\r\nb\r\n1\r\nc\r\n")
    answer.feed(30, b"0\r\n\r\n")
    assert answer.blocks == [(10, b"a"), (20, b"bc")]
    assert (answer.head_at, answer.ended_at) == (10, 30)


def test_a_block_of_one_whole_chunk_is_read_as_any_other() -> None:
    answer = Incoming()
    for now, data in enumerate(
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"A\r\n0\r\n\r\n0\r\n\r\n\r\n")
    ):
        answer.feed(now, data)
    assert (answer.blocks, answer.ended_at) == ([(1, b"0\r\n\r\n0\r\n\r\n")], None)
    answer.feed(2, b"0\r\n\r\n")
    assert (answer.ended_at, answer.size, answer.first_at) == (2, 10, 1)
    for wrong in (b"3\r\nhello\r\n", b"zz\r\nhello\r\n", b"-1\r\nhello\r\n"):
        answer = Incoming()
        answer.feed(0, HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(ValueError):  # noqa: PT011
            answer.feed(1, wrong)


def test_what_came_before_a_cut_is_read_before_the_cut_is_reported() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for number in range(20):
            writer.write(b"1\r\n%c\r\n" % (97 + number))
            await asyncio.sleep(0.001)
        writer.close()

    async def journey() -> None:
        with tempfile.TemporaryDirectory(prefix="hb") as folder:
            server = await asyncio.start_unix_server(cut, f"{folder}/s")
            connections = Connections(f"{folder}/s", {})
            got = b""
            with pytest.raises(Broken):  # noqa: PT012
                async with connections.ask("GET", "/", None, 30) as answer:
                    async for blocks in answer.blocks():
                        got += b"".join(block for _, block in blocks)
            assert got == b"abcdefghijklmnopqrst"
            assert connections.busy == set()
            server.close()

    run(journey())


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    answer = fed(HEAD + b"\r\nhello", 4)
    assert (answer.ended_at, answer.keep) == (None, False)
    answer.end(99)
    assert answer.ended_at == 99
    for cut in (LENGTH[:-1], CHUNKED[:-2], HEAD):
        answer = fed(cut, 1000)
        answer.end(99)
        assert answer.ended_at is None


def test_an_answer_may_be_empty_or_the_last() -> None:
    assert fed(NOTHING, 5).ended_at is not None
    last = fed(LENGTH.replace(b"X-A:", b"Connection: close\r\nX-A:"), 1000)
    assert (last.ended_at, last.keep) == (0, False)
    assert not fed(LENGTH.replace(b"HTTP/1.1", b"HTTP/1.0"), 1000).keep


@pytest.mark.parametrize(
    "data",
    [
        b"220 mail.example.org ESMTP\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        HEAD + b"Content-Length: x\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
        LENGTH + b"HTTP/1.1 200 OK",
        CHUNKED + b"more",
        b"x" * 2**17,
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        fed(data, len(data))


class Plain:
    """A server that writes given bytes, and counts the connections it was given."""

    def __init__(self, *answers: list[bytes]) -> None:
        self.answers = iter(answers)
        self.connections = self.ended = 0
        self.bodies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                _, _, length = head.lower().partition(b"content-length: ")
                size = int(length.split(b"\r\n")[0]) if length else 0
                self.bodies.append(await reader.readexactly(size))
                for block in next(self.answers):
                    if block == b"cut":
                        return
                    writer.write(block)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.ended += 1
        finally:
            writer.close()


@asynccontextmanager
async def plain(*answers: list[bytes]) -> AsyncIterator[tuple[Connections, Plain]]:
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        server = Plain(*answers)
        listening = await asyncio.start_unix_server(server.serve, f"{folder}/s", limit=2**24)
        connections = Connections(f"{folder}/s", {"X-API-Key": "key"})
        try:
            yield connections, server
        finally:
            connections.close()
            listening.close()
            await asyncio.sleep(0.01)


async def get(connections: Connections, body: bytes | None = None) -> bytes:
    async with connections.ask("POST", "/", body, 10) as answer:
        return await answer.read()


def test_a_connection_is_used_again_after_a_whole_answer_only() -> None:
    closing = LENGTH.replace(b"X-A:", b"Connection: close\r\nX-A:")
    unread = [HEAD + b"Content-Length: 9\r\n\r\n"]

    async def journey() -> None:
        answers = ([LENGTH], [CHUNKED], [closing], [LENGTH], unread, [LENGTH])
        async with plain(*answers) as (connections, server):
            for count in (1, 1, 1, 2):
                assert await get(connections) == b"hello"
                assert server.connections == count
            async with connections.ask("GET", "/", None, 10) as answer:
                assert (answer.status, answer.ended_at) == (200, None)
            assert (
                await get(connections) == b"hello"
            )  # it is unknown what would still have come there
            assert server.connections == 3

    run(journey())


def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000

    async def journey() -> None:
        async with plain([LENGTH]) as (connections, server):
            assert await get(connections, body) == b"hello"
            assert server.bodies == [body]

    run(journey())


def test_many_blocks_are_read_in_order() -> None:
    count = 200
    blocks = [b"%x\r\n%d,\r\n" % (len(b"%d," % n), n) for n in range(count)]
    whole = [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *blocks, b"0\r\n\r\n"]

    async def journey() -> None:
        async with plain(whole) as (connections, _):
            async with connections.ask("GET", "/", None, 10) as answer:
                seen = [block async for blocks in answer.blocks() for block in blocks]
            assert b"".join(data for _, data in seen) == b"".join(b"%d," % n for n in range(count))
            assert all(one[0] <= two[0] for one, two in itertools.pairwise(seen))

    run(journey())


@pytest.mark.parametrize("started", [b"", LENGTH[:9], LENGTH[:-2], CHUNKED[:-4]])
def test_an_answer_that_breaks_off_is_never_taken_for_whole(started: bytes) -> None:
    async def journey() -> None:
        async with plain([started, b"cut"]) as (connections, _):
            with pytest.raises(Broken):
                await get(connections)

    run(journey())


def test_what_is_no_http_is_said_to_be_none() -> None:
    async def journey() -> None:
        async with plain([b"220 mail.example.org\r\n\r\n"]) as (connections, _):
            with pytest.raises(Broken, match="not HTTP: '220 mail"):
                await get(connections)

    run(journey())


def test_a_deadline_holds_for_head_and_body() -> None:
    async def journey() -> None:
        for started in ([], [LENGTH[:-2]]):
            async with plain(started) as (connections, server):
                with pytest.raises(asyncio.TimeoutError):
                    async with connections.ask("GET", "/", None, 0.05) as answer:
                        await answer.read()
                while not server.ended:
                    await asyncio.sleep(0.005)  # the server sees the end of the connection

    run(journey())


def test_without_a_listener_there_is_no_connection() -> None:
    async def journey() -> None:
        with pytest.raises(NotConnected):
            await get(Connections("/nowhere", {}))

    run(journey())


def test_a_header_cannot_smuggle_another() -> None:
    with pytest.raises(ValueError, match="control characters"):
        Connections("/s", {"X-API-Key": "a\r\nX-B: c"})


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        (b'{"a": 1}', {"a": 1}),
        (' {"a": 1}\n', {"a": 1}),
        ('{"a": 1} more', {}),
        ("[1]", {}),
        ("", {}),
        (b"\xff", {}),
        ('{"a":' * 100_000, {}),  # deeper than Python's stack
        (b"[" * 100_000, {}),
    ],
)
def test_any_text_is_an_object_or_an_empty_one(body: str | bytes, found: dict[str, int]) -> None:
    assert as_object(body) == found


def test_a_server_with_a_full_queue_of_connections_is_waited_for() -> None:
    async def journey(path: str) -> None:
        connections = Connections(path, {})

        async def ask() -> bytes:
            async with connections.ask("GET", "/", None, 30) as answer:
                return await answer.read()

        assert set(await asyncio.gather(*(ask() for _ in range(8)))) == {b"hello"}
        connections.close()
        await asyncio.sleep(0)  # their sockets are closed one turn later

    with tempfile.TemporaryDirectory(prefix="hb") as folder, full_queue(folder, LENGTH) as path:
        run(journey(path))


def test_the_wait_for_a_full_queue_ends_with_the_deadline() -> None:
    async def journey(path: str) -> None:
        with pytest.raises(asyncio.TimeoutError):
            async with Connections(path, {}).ask("GET", "/", None, 0.2):
                pass

    with tempfile.TemporaryDirectory(prefix="hb") as folder, full_queue(folder, None) as path:
        run(journey(path))
