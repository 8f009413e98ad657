"""The wrapper's gRPC for the worker's client: whole requests in any pieces, and refusals of all others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from hpcbench.inference.client import Client, EngineGone
from hpcbench.inference.grpc_wire import Call, Connection, header_block
from hpcbench.inference.http_client import Broken, connected
from hpcbench.inference.request_body import prepare
from hpcbench.inference.stream import Stream
from hpcbench.open_inference import chat, http2
from hpcbench.open_inference.protobuf_classes import STREAM, ModelStreamInferResponse
from hpcbench.wrapper import grpc_wire
from tests.mock_openai import Script, Server, image_hashes
from tests.unit.inference.talking import request
from tests.unit.wrapper.plane import Plane, scripted
from tests.unit.wrapper.running import KEY, ROOT, Wrapper, gone

HEADERS = header_block(STREAM, {"x-api-key": KEY})


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@contextlib.asynccontextmanager
async def served(
    script: Script | None = None, **options: Any
) -> AsyncIterator[tuple[Plane, Server, Connection]]:
    """The plane, its engine, and a connection of the worker's client."""
    async with scripted(script, **options) as (plane, engine):
        one = await connected(str(plane.worker_socket), Connection)
        yield plane, engine, one
        one.close()
        await asyncio.sleep(0.01)


def question(*images: bytes, text: str = "Read.") -> tuple[bytes, ...]:
    """A request, encoded, in parts."""
    urls = [{"type": "image_url", "image_url": {"url": f"tensor:{n}"}} for n in range(len(images))]
    messages = [{"role": "user", "content": [*urls, {"type": "text", "text": text}]}]
    body = json.dumps({"model": "tiny", "stream": True, "messages": messages}).encode()
    return chat.request("tiny", body, images)


async def ask(one: Connection, *parts: bytes, headers: bytes = HEADERS) -> tuple[Call, str]:
    """A whole call, and the text of its answer."""
    call = one.open(headers)
    try:
        await one.send(call, parts)
        found: list[bytes] = []
        while batch := await call.more():
            found += [data for _, data in batch]
        return call, text_of(found)
    finally:
        one.release(call)


def text_of(found: list[bytes]) -> str:
    stream = Stream()
    for data in found:
        for raw in ModelStreamInferResponse.FromString(data).infer_response.raw_output_contents:
            for block in chat.elements_of(raw):
                stream.take(0, bytes(block))
    return stream.text


TEXT = "".join(Script().pieces)


@pytest.mark.parametrize("size", [1, 4_000, 16_384, 2**18, 2**20, 2**20 + 1, 9_000_000])
async def test_a_page_of_any_size_reaches_the_engine_unchanged(size: int) -> None:
    async with served(limit=2**24) as (_, engine, one):
        page = os.urandom(size)
        call, text = await ask(one, *question(page))
        assert text == TEXT and call.status == (0, "")
        assert image_hashes(engine.seen[0]["raw"]) == image_hashes(_as_uri(page))


def _as_uri(*pages: bytes) -> bytes:
    """A body that has the pages as data URIs."""
    return prepare("tiny", request("s", *pages))[0]


@pytest.mark.long
async def test_pages_of_one_connection_do_not_mix() -> None:
    async with served(limit=2**23) as (_, engine, one):
        pages = [os.urandom(size) for size in (2_000_000, 10, 3_000_000, 70_000, 0x100000) * 4]
        asked = [ask(one, *question(page, text=f"Page {n}.")) for n, page in enumerate(pages)]
        for call, text in await asyncio.gather(*asked):
            assert text == TEXT and call.status == (0, "")
        for seen in engine.seen:
            text = json.loads(seen["raw"])["messages"][0]["content"][-1]["text"]
            page = pages[int(text.strip("Page ."))]
            assert image_hashes(seen["raw"]) == image_hashes(_as_uri(page))
        assert len(engine.seen) == len(pages)


@pytest.mark.long
async def test_512_calls_at_once_end_in_order() -> None:
    async with served() as (_, engine, one):
        answers = await asyncio.gather(*(ask(one, *question()) for _ in range(512)))
        assert {(call.status, text) for call, text in answers} == {((0, ""), TEXT)}
        assert len(engine.seen) == 512


# a client that is not ours


def setting(name: int, value: int) -> bytes:
    return name.to_bytes(2, "big") + value.to_bytes(4, "big")


def opened(*settings: bytes) -> bytes:
    """First bytes of a client, with its settings."""
    return http2.PREFACE + http2.frame(http2.SETTINGS, b"".join(settings))


def called(number: int = 1, block: bytes = HEADERS, flags: int = 4) -> bytes:
    return http2.frame(http2.HEADERS, block, flags, number)


def data(text: bytes, flags: int = 0, number: int = 1) -> bytes:
    return http2.frame(http2.DATA, text, flags, number)


def message(text: bytes, compressed: int = 0) -> bytes:
    return bytes([compressed]) + len(text).to_bytes(4, "big") + text


async def exchange(socket: Path, sent: bytes, size: int = 2**20) -> bytes:
    """The wrapper's answer to these bytes, until a call or the connection ends."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    with contextlib.suppress(ConnectionError):
        for begin in range(0, len(sent), size):
            writer.write(sent[begin : begin + size])
            await writer.drain()
            await asyncio.sleep(0)
    answer = b""
    with contextlib.suppress(ConnectionError):
        while b"grpc-status" not in answer and (more := await reader.read(2**16)):
            answer += more
    writer.close()
    return answer


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_a_request_may_come_in_any_pieces(size: int) -> None:
    async with scripted() as (plane, engine):
        page = os.urandom(3000)
        whole = message(b"".join(question(page)))
        sent = opened() + called() + data(whole[:3]) + data(b"\2" + whole[3:99] + b"\0\0", 8)
        sent += http2.frame(http2.PING, b"12345678") + http2.frame(0x20, b"of an extension")
        sent += data(whole[99:]) + data(b"", http2.END_STREAM)
        answer = await exchange(plane.worker_socket, sent, size)
        assert http2.frame(http2.PING, b"12345678", http2.ACK) in answer
        assert b"grpc-status\x010" in answer
        assert image_hashes(engine.seen[0]["raw"]) == image_hashes(_as_uri(page))


NO_KEY = header_block(STREAM, {})
OTHER = header_block("/inference.GRPCInferenceService/ModelInfer", {"x-api-key": KEY})


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (called(block=NO_KEY), 16, b"the key is missing or wrong"),
        (called(block=header_block(STREAM, {"x-api-key": KEY[:-1]})), 16, b"the key is"),
        (called(block=OTHER), 12, b"no such method"),
        (called(flags=5), 3, b"the call has no request"),
        (called() + data(message(b"x", 1)), 12, b"must not be compressed"),
        (called() + data(message(b"x" * 9)[:-1], 1), 3, b"ended within its message"),
        (called() + data(b"\0\0", 1), 3, b"ended within its message"),
        (called() + data(message(b"x") + message(b"y")), 12, b"a call has one request"),
        (called() + data(message(bytes(2**20 + 1))[:9]), 8, b"larger than 1048576 bytes"),
    ],
)
async def test_what_is_no_request_is_refused_and_the_next_one_is_answered(
    sent: bytes, status: int, said: bytes
) -> None:
    async with scripted() as (plane, engine):
        answer = await exchange(plane.worker_socket, opened() + sent)
        assert b"grpc-status" + bytes([len(str(status))]) + str(status).encode() in answer
        assert said in answer
        assert engine.seen == []
        after = called(3) + data(message(b"".join(question())), 1, 3)
        reader, writer = await asyncio.open_unix_connection(str(plane.worker_socket))
        writer.write(opened() + sent + after)
        found = b""
        while b"grpc-status\x010" not in found:
            found += await reader.read(2**16)
        writer.close()
        assert len(engine.seen) == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX",
        opened() + (2**20 + 1).to_bytes(3, "big") + bytes(6),
        opened() + called(2),
        opened() + called(5) + called(3),
        opened() + called(block=b"\xbe"),
        opened() + called(flags=0) + data(b""),
        opened() + data(b"\x09abc", 8),
    ],
)
async def test_a_connection_that_speaks_something_else_is_closed(sent: bytes) -> None:
    async with scripted() as (plane, engine):
        answer = await asyncio.wait_for(exchange(plane.worker_socket, sent), 10)
        assert b"grpc-status\x010" not in answer and engine.seen == []


async def test_no_more_is_sent_than_the_client_takes() -> None:
    pieces = tuple("word" * 10 for _ in range(30))
    async with scripted(Script(pieces=pieces)) as (plane, _):
        reader, writer = await asyncio.open_unix_connection(str(plane.worker_socket))
        writer.write(opened(setting(http2.FIRST_WINDOW, 100)) + called())
        writer.write(data(message(b"".join(question())), 1))
        taken, texts, ended = 0, b"", False
        while not ended:
            head = await asyncio.wait_for(reader.readexactly(9), 10)
            body = await reader.readexactly(int.from_bytes(head[:3], "big"))
            ended = head[3] == http2.HEADERS and bool(head[4] & http2.END_STREAM)
            if head[3] == http2.DATA:
                taken += len(body)
                texts += body
                assert taken <= 100
                if taken == 100:
                    taken = 0
                    writer.write(http2.frame(http2.WINDOW, (100).to_bytes(4, "big"), 0, 1))
        writer.close()
        found, at = [], 0
        while at < len(texts):
            end = at + 5 + int.from_bytes(texts[at + 1 : at + 5], "big")
            found.append(texts[at + 5 : end])
            at = end
        assert text_of(found) == "".join(pieces)


@pytest.mark.parametrize("way", ["the call", "the connection"])
async def test_a_client_that_leaves_ends_the_work_of_the_engine(way: str) -> None:
    async with served(Script(gap=10)) as (plane, engine, one):
        call = one.open(HEADERS)
        await one.send(call, question())
        await call.begin()
        assert plane.supervisor.meter.in_flight == 1
        if way == "the call":
            one.release(call)
        else:
            one.close()
        while not engine.left:
            await asyncio.sleep(0.01)
        assert plane.supervisor.meter.in_flight == 0


async def test_a_client_that_leaves_within_its_page_costs_nothing() -> None:
    async with served(limit=2**22) as (plane, engine, one):
        reader, writer = await asyncio.open_unix_connection(str(plane.worker_socket))
        whole = message(b"".join(question(os.urandom(2**20))))
        writer.write(opened() + called() + data(whole[:500]) + data(whole[500:900_000])[:-7])
        await writer.drain()
        writer.close()
        assert (await ask(one, *question()))[1] == TEXT
        assert len(engine.seen) == 1 and plane.supervisor.meter.in_flight == 0


async def test_an_answer_that_waits_for_its_client_is_no_silence_of_the_engine() -> None:
    pieces = tuple("word" * 2000 for _ in range(400))
    async with scripted(Script(pieces=pieces)) as (plane, _):
        reader, writer = await asyncio.open_unix_connection(str(plane.worker_socket))
        writer.write(opened(setting(http2.FIRST_WINDOW, http2.MOST)) + called())
        writer.write(http2.frame(http2.WINDOW, (2**30).to_bytes(4, "big")))
        writer.write(data(message(b"".join(question())), 1))
        meter = plane.supervisor.meter
        while not meter.unread:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert meter.unread == 1
        found = b""
        while b"grpc-status\x010" not in found[-99:]:
            found += await reader.read(2**20)
        assert len(found) > 400 * 8000 and meter.unread == 0
        writer.close()


async def test_at_the_end_open_calls_may_end_and_no_others_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_wire, "GRACE_SECONDS", 30)
    async with scripted(Script(gap=0.1)) as (plane, _):
        one = await connected(str(plane.worker_socket), Connection)
        asking = asyncio.ensure_future(ask(one, *question()))
        while not plane.supervisor.meter.in_flight:
            await asyncio.sleep(0.01)

        async def later() -> None:
            while one.usable:
                await asyncio.sleep(0.005)
            with pytest.raises(Broken, match="connection was closed"):
                await ask(one, *question())

        late = asyncio.ensure_future(later())
    assert (await asking)[1] == TEXT
    await late


async def test_a_call_that_does_not_end_in_time_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_wire, "GRACE_SECONDS", 0.1)
    async with scripted(Script(gap=60)) as (plane, _):
        one = await connected(str(plane.worker_socket), Connection)
        asking = asyncio.ensure_future(ask(one, *question()))
        while not plane.supervisor.meter.in_flight:
            await asyncio.sleep(0.01)
    with pytest.raises(Broken, match="connection was closed"):
        await asking


async def test_a_bug_is_an_error_of_its_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as (_, _, one):
        with monkeypatch.context() as patch:
            patch.setattr(chat, "read_request", lambda unread: 1 / 0)
            call, text = await ask(one, *question())
            assert text == ""
            assert call.status == (13, "a bug in the wrapper: ZeroDivisionError")
        assert (await ask(one, *question()))[1] == TEXT


@pytest.mark.long
def test_it_needs_no_library_of_grpc() -> None:
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "import hpcbench.wrapper.grpc_wire, hpcbench.inference.grpc_client\n"
        "print('served')"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "served"


@pytest.mark.long
def test_a_process_drains_and_watches_as_over_http_and_tells_of_a_killed_engine(
    start: Callable[..., Wrapper],
) -> None:
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        path = Path(folder) / "w"
        wrapper = start("--worker-socket", str(path))
        assert path.stat().st_mode & 0o777 == 0o600
        reading = {"engine": "tests.unit.wrapper.plane:ReadingEngine"}

        async def journey() -> None:
            client = Client(str(wrapper.socket), KEY, "scripted", grpc_socket=str(path))
            client.protocol = "grpc"
            async with wrapper.control() as control, client:
                await control.loaded(wrapper.body(gap=0.3))
                asking = asyncio.ensure_future(client.ask(request()))
                while not (await control.status())["in_flight"]:
                    await asyncio.sleep(0.01)
                unloading = asyncio.ensure_future(control.unload(drain_seconds=30))
                await control.until("draining")
                with pytest.raises(EngineGone, match=r"no model is ready \(draining\)"):
                    await client.ask(request())
                assert (await asking).text == TEXT
                assert (await unloading)[0] == 200
                await control.loaded({**wrapper.body(gap=30), "stall_timeout": 0.5})
                with pytest.raises(EngineGone, match="no model is ready"):
                    await client.ask(request())
                assert (await control.until("failed"))["error"]["kind"] == "stalled"
                pid = (await control.loaded({**wrapper.body(gap=10.0), **reading}))["pid"]
                asking = asyncio.ensure_future(client.ask(request("s", b"a page")))
                while not (images := list((wrapper.folder / "e").glob("*/i/*"))):
                    await asyncio.sleep(0.01)
                assert [one.read_bytes() for one in images] == [b"a page"]
                os.kill(pid, signal.SIGKILL)
                with pytest.raises(EngineGone, match=r"no model is ready.*SIGKILL"):
                    await asking

        run(journey())
        wrapper.close()
        assert gone([wrapper.process.pid]) and not path.exists()
