"""The wrapper's two planes over real sockets: who may enter, and that bytes pass unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn

from hpcbench.wrapper.app import Wrapper
from hpcbench.wrapper.supervisor import Supervisor
from tests.mock_openai import Script, Server

KEY = "k" * 40


@contextlib.asynccontextmanager
async def wrapped(
    script: Script | None = None, body_limit: int = 2**20
) -> AsyncIterator[tuple[aiohttp.ClientSession, Server]]:
    """A wrapper around a scripted engine, and a session that knows the key."""
    with tempfile.TemporaryDirectory(prefix="hb") as name:
        folder = Path(name)
        supervisor = Supervisor(folder, folder / "log")
        app = Wrapper(supervisor, KEY, body_limit)
        config = uvicorn.Config(app, lifespan="off", log_level="critical", uds=str(folder / "w"))
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        serving = asyncio.ensure_future(server.serve())
        async with Server(folder / "e", script) as engine:
            connector = aiohttp.UnixConnector(str(folder / "e"))
            supervisor.session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
            while not server.started:
                await asyncio.sleep(0.005)
            connector = aiohttp.UnixConnector(str(folder / "w"))
            headers = {"X-API-Key": KEY}
            async with aiohttp.ClientSession(
                "http://wrapper", connector=connector, headers=headers
            ) as session:
                yield session, engine
            await supervisor.session.close()
            server.should_exit = True
            await serving


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "k"}, {"X-API-Key": KEY + "k"}])
def test_nothing_answers_without_the_key(headers: dict[str, str]) -> None:
    async def journey() -> None:
        async with wrapped() as (session, engine):
            session.headers.clear()
            paths = ("/status", "/v1/models", "/metrics", "/v1/chat/completions", "/nothing")
            for path in paths:
                for method in ("GET", "POST"):
                    async with session.request(method, path, headers=headers) as answer:
                        assert answer.status == 401
                        assert (await answer.json())["error"]["code"] == "wrong_key"
            assert engine.seen == []

    run(journey())


def test_there_are_no_documentation_pages() -> None:
    async def journey() -> None:
        async with wrapped() as (session, _):
            for path in ("/docs", "/redoc", "/openapi.json"):
                async with session.get(path) as answer:
                    assert answer.status == 404

    run(journey())


def test_bytes_pass_unchanged_both_ways_and_the_key_does_not() -> None:
    async def journey() -> None:
        async with wrapped() as (session, engine):
            # not as any encoder would write it: it must arrive like this
            odd = b'{ "messages" :[],\n\t"stream":false, "x": "\\u00e9\xc3\xa9" }'
            large = odd[:-1] + b',"pad":"' + b"x" * 700_000 + b'"}'
            for body in (odd, large):
                async with session.post("/v1/chat/completions?a=1", data=body) as answer:
                    assert answer.status == 200
                    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
                    assert (await answer.json())["choices"][0]["finish_reason"] == "stop"
                seen = engine.seen[-1]
                assert hashlib.sha256(seen["raw"]).digest() == hashlib.sha256(body).digest()
                assert KEY not in str(seen["headers"])

    run(journey())


def test_a_stream_passes_in_the_blocks_it_comes_in() -> None:
    async def journey() -> None:
        async with wrapped(Script(gap=0.05)) as (session, engine):
            body = b'{"stream": true, "messages": []}'
            async with session.post("/v1/chat/completions", data=body) as answer:
                blocks = [block async for block in answer.content.iter_any()]
        # the first may come together with the headers; an event each after that
        assert len(blocks) >= 5
        assert b"".join(blocks) == b"".join(engine._events({}, "ok"))

    run(journey())


def test_a_broken_stream_never_looks_complete() -> None:
    async def journey() -> None:
        async with wrapped(Script(plan=["cut"])) as (session, _):
            body = b'{"stream": true, "messages": []}'
            async with session.post("/v1/chat/completions", data=body) as answer:
                assert answer.status == 200
                with pytest.raises(aiohttp.ClientPayloadError):
                    await answer.read()

    run(journey())


def test_errors_of_the_engine_pass_as_they_are() -> None:
    async def journey() -> None:
        async with wrapped(Script(plan=["status:400", "status:500"])) as (session, _):
            for status in (400, 500):
                async with session.post("/v1/chat/completions", data=b"{}") as answer:
                    assert answer.status == status
                    assert (await answer.json())["error"]["message"] == f"scripted {status}"
            for path in ("/v1/models", "/metrics"):
                async with session.get(path) as answer:
                    assert "scripted" in await answer.text()
                async with session.post(path) as answer:
                    assert answer.status == 405

    run(journey())


def test_a_client_that_leaves_frees_the_engine() -> None:
    async def journey() -> None:
        async with wrapped() as (session, engine):
            for script in (Script(plan=["hang"]), Script(gap=30)):
                engine.script = script
                body = b'{"stream": true, "messages": []}'
                asking = asyncio.ensure_future(read(session, body))
                while not engine.active:
                    await asyncio.sleep(0.01)
                async with session.get("/status") as answer:
                    assert (await answer.json())["in_flight"] == 1
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
                while engine.active or await in_flight(session):
                    await asyncio.sleep(0.01)

    run(journey())


async def read(session: aiohttp.ClientSession, body: bytes) -> bytes:
    async with session.post("/v1/chat/completions", data=body) as answer:
        return await answer.read()


async def in_flight(session: aiohttp.ClientSession) -> int:
    async with session.get("/status") as answer:
        return int((await answer.json())["in_flight"])


def test_what_is_too_large_is_refused_with_and_without_a_length() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x" * 1000

    async def journey() -> None:
        async with wrapped(body_limit=3000) as (session, engine):
            for data in (b"x" * 3001, parts()):
                async with session.post("/v1/chat/completions", data=data) as answer:
                    assert answer.status == 413
                    assert "larger than 3000 bytes" in await answer.text()
            assert engine.seen == []

    run(journey())


def test_a_request_that_stops_halfway_does_no_harm() -> None:
    async def journey() -> None:
        async with wrapped() as (session, engine):
            connector = session.connector
            assert isinstance(connector, aiohttp.UnixConnector)
            with socket.socket(socket.AF_UNIX) as half:
                half.connect(os.fspath(connector.path))
                head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: w\r\nX-API-Key: {KEY}\r\n"
                half.sendall(f"{head}Content-Length: 100\r\n\r\nabc".encode())
                await asyncio.sleep(0.05)
            assert await in_flight(session) == 0
            assert engine.seen == []
            assert await read(session, b'{"messages": []}')

    run(journey())
