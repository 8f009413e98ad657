"""The wrapper's WebSocket plane: the answers of HTTP in frames of JSON, for those with the key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from hpcbench.wrapper import web_socket
from tests.mock_openai import Script
from tests.unit.wrapper.running import Wrapper
from tests.unit.wrapper.test_app import KEY, run, wrapped

ASK = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Read."}]}


def sockets(script: Script | None = None, **options: Any) -> Any:
    """A wrapper that serves WebSocket, with further options of uvicorn."""
    return wrapped(script, ws=web_socket.reader_of_frames(), **options)


async def answer(socket: aiohttp.ClientWebSocketResponse, *names: str) -> dict[str, list[Any]]:
    """Frames until the last one of each of these requests."""
    found: dict[str, list[Any]] = {name: [] for name in names}
    while not all(frames and "final" in frames[-1] for frames in found.values()):
        frame = await socket.receive_json()
        found[frame.pop("id")].append(frame)
    return found


def text_of(frames: list[Any]) -> str:
    """The text of an answer."""
    deltas = [one["chunk"]["choices"][0]["delta"] for one in frames if "chunk" in one]
    return "".join(delta.get("content", "") for delta in deltas)


def test_requests_on_one_connection_are_answered_side_by_side() -> None:
    async def journey() -> None:
        async with sockets(Script(first=0.05)) as (session, engine):
            async with session.ws_connect("/v1/stream") as socket:
                for name in ("a", "b", "c"):
                    await socket.send_json({"id": name, "request": ASK})
                found = await answer(socket, "a", "b", "c")
            assert engine.most_active == 3
            for frames in found.values():
                head, *chunks, last = frames
                assert head["status"] == 200 and float(head["headers"]["x-latency-ms"]) > 0
                assert text_of(chunks) == "".join(Script().pieces)
                assert last == {"final": True}
            async with session.post("/v1/chat/completions", json=ASK) as over_http:
                lines = [
                    line[6:] async for line in over_http.content if line.startswith(b"data: {")
                ]
            assert [one["chunk"] for one in found["a"][1:-1]] == [json.loads(one) for one in lines]

    run(journey())


def test_an_answer_in_one_piece_is_one_chunk() -> None:
    async def journey() -> None:
        async with sockets() as (session, _), session.ws_connect("/v1/stream") as socket:
            await socket.send_json({"id": "1", "request": {**ASK, "stream": False}})
            [_, piece, _] = (await answer(socket, "1"))["1"]
            message = piece["chunk"]["choices"][0]["message"]
            assert message["content"] == "".join(Script().pieces)

    run(journey())


@pytest.mark.parametrize(
    "first", [{"key": "wrong"}, {"key": 7}, {"key": "\ud800"}, {"id": "1", "request": ASK}, []]
)
def test_nothing_answers_without_the_key(first: Any) -> None:
    async def journey() -> None:
        async with sockets() as (session, engine):
            session.headers.clear()
            async with session.ws_connect("/v1/stream") as socket:
                await socket.send_json(first)
                message = await socket.receive()
                assert (message.type, socket.close_code) == (aiohttp.WSMsgType.CLOSE, 4401)
                assert "the key is missing or wrong" in str(message.extra)
            assert engine.seen == []

    run(journey())


def test_a_browser_sends_the_key_in_its_first_message() -> None:
    async def journey() -> None:
        async with sockets() as (session, _):
            session.headers.clear()
            async with session.ws_connect("/v1/stream") as socket:
                await socket.send_json({"key": KEY})
                await socket.send_json({"id": "1", "request": ASK})
                frames = (await answer(socket, "1"))["1"]
                assert text_of(frames) == "".join(Script().pieces)

    run(journey())


def test_errors_carry_their_request_and_the_connection_stays() -> None:
    async def journey() -> None:
        async with (
            sockets(Script(plan=["status:500", "cut"])) as (session, _),
            session.ws_connect("/v1/stream") as socket,
        ):
            await socket.send_json({"id": "1", "request": ASK})
            [error] = (await answer(socket, "1"))["1"]
            assert (error["status"], error["error"]["message"]) == (500, "scripted 500")
            await socket.send_json({"id": "2", "request": ASK})
            assert (await answer(socket, "2"))["2"][-1]["error"]["code"] == "broken_off"
            await socket.send_json({"id": "3", "request": ASK})
            assert text_of((await answer(socket, "3"))["3"])

    run(journey())


def test_a_request_is_as_large_as_over_http() -> None:
    async def journey() -> None:
        async with sockets() as (session, engine), session.ws_connect("/v1/stream") as socket:
            body = {**ASK, "user": "é" * 400_000}
            for _ in range(2):  # together more than a client may send without the key
                await socket.send_str(json.dumps({"id": "1", "request": body}, ensure_ascii=False))
                assert text_of((await answer(socket, "1"))["1"])
                assert json.loads(engine.seen[-1]["raw"]) == body

    run(journey())


def test_a_client_without_the_key_may_send_no_more_than_a_key_needs() -> None:
    async def journey() -> None:
        async with sockets() as (session, engine):
            session.headers.clear()
            async with session.ws_connect("/v1/stream") as socket:
                await socket.send_json({"key": KEY, "and": "x" * web_socket.FIRST_BYTES})
                await socket.receive()
                assert socket.close_code == 1009
            async with session.ws_connect("/v1/stream") as socket:
                await socket.send_json({"key": KEY})
                body = {**ASK, "user": "x" * 900_000}
                for _ in range(2):
                    await socket.send_json({"id": "1", "request": body})
                    assert text_of((await answer(socket, "1"))["1"])
            assert len(engine.seen) == 2

    run(journey())


@pytest.mark.parametrize("headers", [{"X-API-Key": KEY}, {}])
def test_who_sends_too_much_gets_the_reason_after_all_of_it(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def journey() -> None:
        logging = {"log_level": "error", "log_config": None}
        async with sockets(ws_max_size=2**20, **logging) as (session, _):
            connector = session.connector
            assert isinstance(connector, aiohttp.UnixConnector)
            reader, writer = await asyncio.open_unix_connection(connector.path)
            asked = {"Host": "w", "Connection": "Upgrade", "Upgrade": "websocket"}
            asked |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "A" * 22 + "=="} | headers
            lines = [f"{name}: {value}" for name, value in asked.items()]
            writer.write("\r\n".join(["GET /v1/stream HTTP/1.1", *lines, "", ""]).encode())
            await reader.readuntil(b"\r\n\r\n")
            for kind in (1, *[0] * 50):  # parts of one message, as Chromium sends a large one
                head = bytes([kind, 0xFF]) + (2**18).to_bytes(8, "big") + bytes(4)
                writer.write(head + bytes(2**18))
                await writer.drain()
            assert (await reader.read())[2:4] == (1009).to_bytes(2, "big")
            writer.close()

    run(journey())
    assert caplog.records == []


def test_half_a_character_passes_in_a_chunk_and_in_an_id() -> None:
    async def journey() -> None:
        half = Script(pieces=("a \ud83d", "\ude00 z"), ascii=True)
        async with sockets(half) as (session, _), session.ws_connect("/v1/stream") as socket:
            for name in ("1", "\ud83d"):
                await socket.send_str(json.dumps({"id": name, "request": ASK}))
                assert text_of((await answer(socket, name))[name]) == "a \ud83d\ude00 z"

    run(journey())


def test_deep_nesting_is_answered_or_no_request() -> None:
    async def journey() -> None:
        async with sockets() as (session, _):
            for depth in range(900, 990):  # where the reader and the writer of JSON differ
                async with session.ws_connect("/v1/stream") as socket:
                    deep = "[" * depth + "]" * depth
                    await socket.send_str(f'{{"id": "1", "request": {{"messages": {deep}}}}}')
                    first = await socket.receive()
                    said = first.json() if first.type == aiohttp.WSMsgType.TEXT else {}
                    assert said.get("id") == "1" or socket.close_code == 4400, (depth, first)

    run(journey())


@pytest.mark.parametrize("text", ["{", "[]", '{"id": 1, "request": {}}', '{"id": "1"}'])
def test_a_message_that_is_no_request_ends_the_connection(text: str) -> None:
    async def journey() -> None:
        async with sockets() as (session, _), session.ws_connect("/v1/stream") as socket:
            await socket.send_str(text)
            message = await socket.receive()
            assert socket.close_code == 4400 and 'send {"id"' in str(message.extra)

    run(journey())


def test_a_cancelled_request_and_a_client_that_leaves_end_the_work_of_the_engine() -> None:
    async def journey() -> None:
        async with sockets(Script(gap=10)) as (session, engine):
            async with session.ws_connect("/v1/stream") as socket:
                for name in ("1", "2"):
                    await socket.send_json({"id": name, "request": ASK})
                    await socket.receive_json()
                await socket.send_json({"id": "2", "request": ASK})  # its id is taken
                assert (await socket.receive_json())["error"]["code"] == "bad_request"
                await socket.send_json({"id": "1", "cancel": True})
                while engine.left < 1:
                    await asyncio.sleep(0.01)
            while engine.left < 2:
                await asyncio.sleep(0.01)

    run(journey())


def test_a_client_that_vanishes_leaves_no_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def journey() -> None:
        async with sockets(Script(pieces=("x",) * 1000, gap=0.02)) as (session, engine):
            socket = await session.ws_connect("/v1/stream")
            for number in range(60):
                await socket.send_json({"id": str(number), "request": ASK})
            while engine.active < 60:
                await socket.receive_json()
            connection = socket._response.connection
            assert connection is not None and connection.transport is not None
            connection.transport.abort()
            while engine.active:
                await asyncio.sleep(0.01)

    run(journey())
    assert [one.message for one in caplog.records if one.name != "aiohttp.server"] == []


def test_a_client_that_neither_reads_nor_answers_pings_ends_the_work_of_the_engine() -> None:
    async def journey() -> None:
        script = Script(pieces=("x" * 60_000,) * 200)
        async with (
            sockets(script, ws_ping_interval=0.2, ws_ping_timeout=0.2) as (session, engine),
            session.ws_connect("/v1/stream") as socket,
        ):
            await socket.send_json({"id": "1", "request": ASK})
            while not engine.left:
                await asyncio.sleep(0.01)

    run(journey())


def test_the_id_of_a_cancelled_request_is_free_at_once() -> None:
    async def journey() -> None:
        async with sockets(Script(gap=0.05)) as (session, engine):
            async with session.ws_connect("/v1/stream") as socket:
                await socket.send_json({"id": "1", "request": ASK})
                await socket.receive_json()
                for _ in range(3):
                    await socket.send_json({"id": "1", "cancel": True})
                    await socket.send_json({"id": "1", "request": ASK})
                frames: list[Any] = []
                while not frames or "final" not in frames[-1]:
                    frames.append(await socket.receive_json())
                newest = max(number for number, one in enumerate(frames) if "status" in one)
                assert all(one.get("status", 200) == 200 for one in frames)
                assert text_of(frames[newest:]) == "".join(Script().pieces)
                await socket.send_json({"id": "1", "request": ASK})
                await socket.receive_json()
            while engine.left < 2:  # the first and the last one; others need not have reached it
                await asyncio.sleep(0.01)

    run(journey())


def test_another_path_is_not_accepted() -> None:
    async def journey() -> None:
        async with sockets() as (session, _):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await session.ws_connect("/v1/other")
            assert refused.value.status == 403

    run(journey())


@pytest.mark.long
def test_a_process_serves_it_when_asked(start: Callable[..., Wrapper]) -> None:
    wrapper = start("--web-socket")

    async def journey() -> None:
        async with wrapper.control() as control:
            await control.loaded(wrapper.body())
            async with control.session.ws_connect("/v1/stream") as socket:
                await socket.send_json({"id": "1", "request": ASK})
                assert text_of((await answer(socket, "1"))["1"]) == "".join(Script().pieces)

    run(journey())
