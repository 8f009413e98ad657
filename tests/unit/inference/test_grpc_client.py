"""The client over gRPC: the same records as over HTTP, with the same times, whatever the engine does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.errors import RunFailed
from hpcbench.inference.client import Client, EngineGone, Protocol
from hpcbench.inference.request_body import prepare
from hpcbench.schema.records import Image, Response, Times
from tests.mock_openai import Script, Server, image_hashes
from tests.unit.inference.talking import request
from tests.unit.wrapper.plane import Plane, scripted
from tests.unit.wrapper.running import KEY

ACTS = (
    "ok", "length", "content_filter", "refusal", "abort", "error_event", "unfinished", "whole", "no_usage",
    "usage_once", "last_usage", "status:400", "status:429", "status:500", "status:500:out_of_memory",
    "no_model", "cut", "drop",
)  # fmt: skip

NO_TIMES = Times(start=0, send=0, headers=None, chunks=(), done=0)


@contextlib.asynccontextmanager
async def asking(
    script: Script | None = None, key: str = KEY, *, library: bool = False
) -> AsyncIterator[tuple[Client, Server, Plane]]:
    """A client that speaks gRPC to a plane before a scripted engine; `library`: to that of gRPC's library."""
    async with scripted(script) as (plane, engine):
        # the control plane is not used: its socket is the engine's
        socket = str(plane.engine_socket)
        grpc_socket = str(plane.socket if library else plane.worker_socket)
        async with Client(socket, key, "tiny", grpc_socket=grpc_socket) as client:
            client.protocol = "grpc"
            yield client, engine, plane


async def answered(
    protocol: Protocol, script: Script, *images: Image, library: bool = False
) -> Response | str:
    """The record of a request, or the error that ends the run task's work."""
    async with asking(script, library=library) as (client, _, _):
        client.protocol = protocol
        try:
            return await client.ask(request("s1", *images))
        except RunFailed as error:
            return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("act", ACTS)
async def test_the_record_is_that_of_http(act: str) -> None:
    found = []
    for protocol, library in (("http", False), ("grpc", False), ("grpc", True)):
        script = Script(plan=[act] * 3, thoughts=("hm",))
        page = b"\x89PNG\r\n\x1a\n a page"
        one = await answered(protocol, script, page, library=library)  # type: ignore[arg-type]
        if isinstance(one, Response):
            texts = len(one.times.chunks), len(one.times.empty), one.times.tokens
            one = replace(one, times=NO_TIMES), texts  # type: ignore[assignment]
        found.append(one)
    if act in ("cut", "drop", "no_model"):  # the wrapper has its own words
        found = [one if isinstance(one, str) else replace(one[0], error="") for one in found]
        found = [one[:30] if isinstance(one, str) else one for one in found]
    assert found[0] == found[1] == found[2]


async def test_the_engine_gets_the_bytes_that_http_sends() -> None:
    async with asking() as (client, engine, _):
        page = os.urandom(100_000)
        await client.ask(request("s1", page, b"\xff\xd8\xff more"))
        body, hashes = prepare("tiny", request("s1", page, b"\xff\xd8\xff more"))
        [seen] = engine.seen
        assert seen["raw"] == body
        assert image_hashes(seen["raw"]) == list(hashes)


async def test_a_file_the_engine_can_read_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.png"
    page.write_bytes(b"x")
    async with asking() as (client, engine, _):
        client._files_under = tmp_path
        await client.ask(request("s1", page, b"y"))
        assert page.as_uri().encode() in engine.seen[0]["raw"]


async def test_times_are_those_of_the_engine() -> None:
    async with asking(Script(first=0.05, gap=0.02)) as (client, engine, _):
        before = time.monotonic_ns()
        response = await client.ask(request())
        times = response.times
        written = [at for _, at in engine.events]
        assert len(times.chunks) == len(Script().pieces)
        # each text was stamped after it was written, and before the next one was
        for arrived, wrote, after in zip(times.chunks, written[1:], written[2:], strict=False):
            assert wrote < arrived < after
        assert before <= times.start <= times.send < (times.headers or 0) < times.chunks[0]
        assert times.chunks[-1] < times.done < time.monotonic_ns()


async def test_the_deadline_is_kept_and_ends_the_work() -> None:
    async with asking(Script(gap=10)) as (client, engine, _):
        response = await client.ask(request(timeout=0.3))
        assert response.outcome == "failed"
        assert response.error == "no answer before the deadline"
        while not engine.left:
            await asyncio.sleep(0.01)


async def test_a_wrong_key_ends_the_run() -> None:
    async with asking(key="wrong") as (client, _, _):
        with pytest.raises(RunFailed, match="refused the key"):
            await client.ask(request())


async def test_a_message_over_the_limit_is_invalid() -> None:
    async with asking() as (client, engine, _):
        response = await client.ask(request("s1", os.urandom(2**20)))
        assert response.outcome == "invalid" and "larger than 1048576" in (response.error or "")
        assert engine.seen == []


async def test_a_wrapper_that_is_gone_is_no_engine() -> None:
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        socket = f"{folder}/g"
        async with Client(f"{folder}/s", KEY, "tiny", grpc_socket=socket) as client:
            client.protocol = "grpc"
            with pytest.raises(EngineGone, match="the wrapper does not answer"):
                await client.ask(request())


async def test_rate_limits_of_a_gateway_are_heard() -> None:
    async with asking(Script(plan=["status:429 after 1"])) as (client, _, _):
        response = await client.ask(request())
        assert response.outcome == "ok" and response.tries == 2
        assert response.times.send - response.times.start >= 1e9
