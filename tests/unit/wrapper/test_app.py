"""The wrapper's two planes over real sockets: who may enter, that bytes pass unchanged, what is added."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.wrapper.app import ControlPlane, Wrapper
from hpcbench.wrapper.bodies import Bodies
from hpcbench.wrapper.masking import Mask
from hpcbench.wrapper.memory import Peaks
from hpcbench.wrapper.proxy import Proxy
from hpcbench.wrapper.supervisor import Route, Supervisor, engine_session
from tests.campaign import first
from tests.mock_openai import Script, Server
from tests.sockets import full_queue

KEY = "k" * 40
PLAIN = Bodies({}, checked=False, media_root=None)


@contextlib.asynccontextmanager
async def wrapped(
    script: Script | None = None,
    body_limit: int = 2**20,
    bodies: Bodies | None = None,
    peaks: Peaks | None = None,
    hidden: Sequence[str] = (),
    **server_options: Any,
) -> AsyncIterator[tuple[aiohttp.ClientSession, Server]]:
    """A wrapper around a scripted engine, and a session that knows the key; further options are uvicorn's."""
    with tempfile.TemporaryDirectory(prefix="hb") as name:
        folder = Path(name)
        supervisor = Supervisor(folder, folder / "log")
        app = Wrapper(supervisor, KEY, body_limit)
        socket = str(folder / "w")
        options = {"lifespan": "off", "log_level": "critical", "ws": "none", **server_options}
        config = uvicorn.Config(app, uds=socket, **options)
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign,assignment]
        serving = asyncio.ensure_future(server.serve())
        async with Server(folder / "e", script) as engine:
            connector = aiohttp.UnixConnector(str(folder / "e"))
            to_engine = aiohttp.ClientSession(connector=connector, auto_decompress=False)
            supervisor.state = "ready"
            rules, memory = bodies or PLAIN, peaks or Peaks()
            supervisor.route = Route(to_engine, rules, memory, Mask(hidden), folder / "e")
            while not server.started:
                await asyncio.sleep(0.005)
            connector = aiohttp.UnixConnector(str(folder / "w"))
            headers = {"X-API-Key": KEY}
            async with aiohttp.ClientSession(
                "http://wrapper", connector=connector, headers=headers
            ) as session:
                yield session, engine
            await to_engine.close()
            server.should_exit = True
            await serving


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-API-Key": "k"},
        {"X-API-Key": KEY + "k"},
        {"Authorization": f"Bearer {KEY}k"},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": KEY},
        {"Authorization": "Bearer"},
        {"X-API-Key": "k", "Authorization": "Bearer k"},
    ],
)
def test_nothing_answers_without_the_key(headers: dict[str, str]) -> None:
    async def journey() -> None:
        async with wrapped() as (session, engine):
            session.headers.clear()
            paths = ("/status", "/events", "/healthz", "/metrics", "/v1/models", "/nothing")
            paths += ("/v1/chat/completions", "/v1/model/load", "/v1/model/unload")
            for path in paths:
                for method in ("GET", "POST"):
                    async with session.request(method, path, headers=headers) as answer:
                        assert answer.status == 401
                        assert (await answer.json())["error"]["code"] == "wrong_key"
            assert engine.seen == []

    run(journey())


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer  {KEY} "},
        {"X-API-Key": "another", "Authorization": f"Bearer {KEY}"},
    ],
)
def test_the_key_comes_as_openais_sdk_sends_it_and_the_engine_does_not_see_it(
    headers: dict[str, str],
) -> None:
    async def journey() -> None:
        async with wrapped() as (session, engine):
            session.headers.clear()
            sdk = {"Accept": "application/json", "User-Agent": "OpenAI/Python 2.8.1"}
            body = {"messages": [{"role": "user", "content": "Hello"}], "model": "m"}
            async with session.post(
                "/v1/chat/completions", json=body, headers={**sdk, **headers}
            ) as answer:
                assert answer.status == 200
            [seen] = engine.seen
            assert {"authorization", "x-api-key"}.isdisjoint(map(str.lower, seen["headers"]))
            assert KEY not in str(seen["headers"])

    run(journey())


def test_there_are_no_documentation_pages() -> None:
    async def journey() -> None:
        async with wrapped() as (session, _):
            for path in ("/docs", "/redoc", "/openapi.json"):
                async with session.get(path) as answer:
                    assert answer.status == 404
                    assert (await answer.json())["error"]["code"] == "not_found"

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
            async with session.get("/v1/models") as answer:
                assert await answer.json() == {"object": "list", "data": [{"id": "scripted"}]}
            for path in ("/v1/models", "/metrics"):
                async with session.post(path) as answer:
                    assert answer.status == 405
                    assert (await answer.json())["error"]["code"] == "method_not_allowed"

    run(journey())


def test_who_asks_whether_to_send_the_body_asks_us() -> None:
    async def journey() -> None:
        async with wrapped() as (session, engine):
            asking = session.post("/v1/chat/completions", data=b"{}", expect100=True)
            async with asking as answer:
                assert answer.status == 200
            assert "Expect" not in engine.seen[-1]["headers"]

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
                    assert "larger than 3000 bytes: raise request_mb" in await answer.text()
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


def test_answers_tell_latency_and_memory() -> None:
    async def journey() -> None:
        async with wrapped(Script(first=0.05), peaks=Peaks(3 * 2**19)) as (session, _):
            async with session.post("/v1/chat/completions", data=b'{"messages": []}') as answer:
                whole = await answer.json()
                text = await answer.text()
            assert answer.headers["X-Peak-Memory-Mb"] == "1.5"
            metrics = whole.pop("metrics")
            assert metrics["peak_memory_mb"] == 1.5
            assert 0 < metrics["ttfb_ms"] <= metrics["latency_ms"] < 30_000
            assert float(answer.headers["X-Latency-Ms"]) >= metrics["latency_ms"]
            assert list(json.loads(text))[-1] == "metrics"
            assert whole["usage"]["total_tokens"] == 11
            async with session.get("/v1/models") as answer:
                assert "metrics" not in await answer.json()

    run(journey())


def test_memory_is_not_reported_where_it_is_not_known() -> None:
    async def journey() -> None:
        async with (
            wrapped() as (session, _),
            session.post("/v1/chat/completions", data=b"{}") as answer,
        ):
            assert "X-Peak-Memory-Mb" not in answer.headers
            assert (await answer.json())["metrics"]["peak_memory_mb"] is None

    run(journey())


def test_errors_of_the_engine_hold_no_secrets_and_answers_pass_as_they_are() -> None:
    async def journey() -> None:
        plan = ["status:400", "ok"]
        async with wrapped(Script(plan=plan), hidden=["scripted 400", "scripted"]) as (session, _):
            async with session.post("/v1/chat/completions", data=b"{}") as answer:
                assert answer.status == 400
                assert int(answer.headers["Content-Length"]) == len(await answer.read())
                assert (await answer.json())["error"]["message"] == "***"
            async with session.get("/v1/models") as answer:
                assert (await answer.json())["data"] == [{"id": "scripted"}]

    run(journey())


ERRORS = [
    b'data: {"error": {"message": "MY_VALUE=hush-hush-1", "code": 500}}\n\n',
    b'data: {"object": "error", "message": "MY_VALUE=hush-hush-1"}\r\n\r\n',
    b'data:{"error": "hush-hush-1"}',
    b'data: {"error": {"message": "cut: hush-hush-1',
]
PLAIN_CHUNKS = (
    b'data: {"choices": [{"delta": {"content": "\\"error\\": hush-hush-1"}}], "error": null}\n\n'
)


@pytest.mark.parametrize("end", ERRORS)
def test_an_error_in_a_stream_holds_no_secrets_wherever_it_is_cut(end: bytes) -> None:
    stream = PLAIN_CHUNKS + end
    whole = PLAIN_CHUNKS + end.replace(b"hush-hush-1", b"***")
    secret_at = stream.rindex(b"hush")
    for place in range(1, len(stream)):
        blocks = [stream[:place], stream[place:]]
        sent, _, _ = exchanged(CutAnswer(blocks), hidden=["hush-hush-1"])
        passed = b"".join(message["body"] for message in sent[1:])
        assert passed == whole, place
        if place < len(PLAIN_CHUNKS) or place > secret_at:
            continue
        # a complete line does not wait for the next one
        assert sent[1]["body"].startswith(PLAIN_CHUNKS)


@pytest.mark.parametrize(("gpus", "reported"), [(5 * 2**30, 5120.0), (None, None)])
def test_of_a_model_on_gpus_their_memory_is_reported(
    gpus: int | None, reported: float | None
) -> None:
    async def journey() -> None:
        peaks = Peaks(2**20, on_gpus=True, gpus=gpus)
        async with (
            wrapped(peaks=peaks) as (session, _),
            session.post("/v1/chat/completions", data=b"{}") as answer,
        ):
            metrics = (await answer.json())["metrics"]
            assert (metrics["peak_memory_mb"], metrics["peak_gpu_memory_mb"]) == (1.0, reported)
            header = answer.headers.get("X-Peak-Memory-Mb")
            assert header == (None if reported is None else f"{reported:.1f}")

    run(journey())


@pytest.mark.parametrize("block", [0, 1, 7, 100_000])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_stream_ends_with_metrics_where_that_is_asked_for(block: int, newline: str) -> None:
    async def journey() -> None:
        async with wrapped(Script(block=block, newline=newline)) as (session, engine):
            body = b'{"stream": true, "messages": []}'
            plain = b"".join(engine._events({}, "ok"))
            async with session.post("/v1/chat/completions", data=body) as answer:
                assert await answer.read() == plain
                assert float(answer.headers["X-Latency-Ms"]) > 0
            headers = {"X-Metrics": "1"}
            async with session.post("/v1/chat/completions", data=body, headers=headers) as answer:
                got = await answer.read()
            last = f"data: [DONE]{newline}{newline}".encode()
            events = plain.removesuffix(last)
            assert got.startswith(events)
            assert got.endswith(last)
            added = json.loads(got[len(events) : -len(last)].removeprefix(b"data: "))
            assert added["choices"] == []
            assert set(added["metrics"]) == {"latency_ms", "ttfb_ms", "peak_memory_mb"}
            assert "X-Metrics" not in engine.seen[-1]["headers"]

    run(journey())


def test_what_the_rules_of_the_model_refuse_never_reaches_the_engine() -> None:
    async def journey() -> None:
        rules = Bodies({"seed": 1}, checked=True, media_root=None)
        async with wrapped(bodies=rules) as (session, engine):
            part = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
            asked = {"messages": [{"role": "user", "content": [part]}]}
            async with session.post("/v1/chat/completions", json=asked) as answer:
                assert answer.status == 400
                assert (await answer.json())["error"]["code"] == "media_not_allowed"
            assert engine.seen == []
            async with session.post("/v1/chat/completions", json={"messages": []}) as answer:
                assert answer.status == 200
            assert json.loads(engine.seen[0]["raw"]) == {"seed": 1, "messages": []}

    run(journey())


def test_metrics_are_prometheus_text_with_the_engines_own_behind() -> None:
    async def journey() -> None:
        async with wrapped(Script(plan=["ok", "ok", "status:400"])) as (session, _):
            for _ in range(3):
                await read(session, b'{"messages": []}')
            async with session.get("/metrics") as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                lines = (await answer.text()).splitlines()
            assert lines[-1] == "scripted_requests_total 1"
            for line in (
                'hpcbench_wrapper_state{state="ready"} 1.0',
                'hpcbench_wrapper_state{state="failed"} 0.0',
                'hpcbench_wrapper_requests_total{code="200"} 2.0',
                'hpcbench_wrapper_requests_total{code="400"} 1.0',
                "hpcbench_wrapper_requests_in_flight 0.0",
                "hpcbench_wrapper_request_bytes_total 48.0",
                'hpcbench_wrapper_first_byte_seconds_bucket{le="300"} 3.0',
                'hpcbench_wrapper_first_byte_seconds_bucket{le="+Inf"} 3.0',
                "hpcbench_wrapper_first_byte_seconds_count 3.0",
            ):
                assert line in lines
            named = [line.split("{")[0].split(" ")[0] for line in lines if line[0] != "#"]
            typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
            own = {name for name in named if name.startswith("hpcbench_wrapper_")}
            assert {re.sub("_(bucket|sum|count)$", "", name) for name in own} == typed

    run(journey())


def test_mistakes_of_the_control_plane_have_openais_form_too() -> None:
    async def journey() -> None:
        async with wrapped() as (session, _):
            for method, path, data, status, code in (
                ("POST", "/v1/model/load", b'{"engine": 1}', 422, "bad_request"),
                ("POST", "/v1/model/load", b"not json", 422, "bad_request"),
                ("POST", "/v1/model/unload", b'{"drain_seconds": -1}', 422, "bad_request"),
                ("GET", "/v1/model/load", b"", 405, "method_not_allowed"),
                ("POST", "/v1/completions", b"{}", 404, "not_found"),
            ):
                headers = {"Content-Type": "application/json"}
                async with session.request(method, path, data=data, headers=headers) as answer:
                    error = (await answer.json())["error"]
                assert (answer.status, error["code"]) == (status, code)
                assert error["type"] == "invalid_request_error"
                assert error["message"]

    run(journey())


def test_a_control_request_that_is_too_large_is_refused() -> None:
    async def journey() -> None:
        async with wrapped(body_limit=100) as (session, _):
            for path in ("/v1/model/load", "/v1/model/unload"):
                async with session.post(path, data=b" " * 101) as answer:
                    assert answer.status == 413
                    error = (await answer.json())["error"]
                    assert error["code"] == "too_large"
                    assert "raise request_mb" in error["message"]

    run(journey())


def control(path: str, supervisor: Supervisor, *coming: Any) -> list[Any]:
    """Answers of the control plane to these messages; no more come."""
    sent: list[Any] = []

    async def journey() -> None:
        left = list(coming)

        async def receive() -> Any:
            return left.pop(0) if left else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"path": path, "method": "GET" if path != "/v1/model/load" else "POST"}
        await asyncio.wait_for(ControlPlane(supervisor, 2**20)(scope, receive, send), 10)

    asyncio.run(journey())
    return sent


EMPTY = {"type": "http.request", "body": b""}
LEFT = {"type": "http.disconnect"}


def test_events_are_sent_until_the_client_leaves_and_no_listener_stays() -> None:
    supervisor = Supervisor(Path("/nowhere"), Path("/nowhere"))
    start, first, *rest = control("/events", supervisor, EMPTY, LEFT)
    assert start["status"] == 200
    assert json.loads(first["body"].removeprefix(b"data: "))["state"] == "empty"
    assert rest == []
    assert not supervisor._listeners


def test_a_client_that_leaves_before_it_has_asked_is_not_answered() -> None:
    supervisor = Supervisor(Path("/nowhere"), Path("/nowhere"))
    start_time = {"type": "http.request", "body": b'{"eng', "more_body": True}
    assert control("/v1/model/load", supervisor, start_time, LEFT) == []
    assert supervisor.state == "empty"


def test_a_bug_is_named_to_the_client_and_no_more_and_its_traceback_goes_on() -> None:
    supervisor = Supervisor(Path("/nowhere"), Path("/nowhere"))

    def broken() -> Any:
        raise LookupError("a token")

    supervisor.status = broken  # type: ignore[method-assign]
    sent: list[Any] = []

    async def journey() -> None:
        async def receive() -> Any:
            return EMPTY

        async def send(message: Any) -> None:
            sent.append(message)

        await ControlPlane(supervisor, 9)({"path": "/status", "method": "GET"}, receive, send)

    with pytest.raises(LookupError):
        asyncio.run(journey())
    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"])["error"]["code"] == "internal_error"
    assert b"token" not in sent[1]["body"]


@pytest.mark.long
@pytest.mark.parametrize("file", [None, "/etc/own.pem"])
def test_the_engine_finds_the_certificates_that_the_wrapper_does_without(file: str | None) -> None:
    code = "import os, hpcbench.wrapper.__main__; print(os.environ.get('SSL_CERT_FILE'))"
    environ = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    environ |= {"SSL_CERT_FILE": file} if file else {}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(file)


class CutAnswer:
    """An engine's answer in blocks of any size, instead of a connection: a fake of aiohttp's."""

    status = 200
    content_length = None
    raw_headers = ((b"Content-Type", b"text/event-stream"),)
    headers = {"Content-Type": "text/event-stream"}  # noqa: RUF012

    def __init__(self, blocks: list[bytes]) -> None:
        self.blocks, self.content = blocks, self
        self.left = len(blocks)

    def request(self, *how: Any, **more: Any) -> CutAnswer:
        return self

    async def __aenter__(self) -> CutAnswer:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def iter_any(self) -> AsyncIterator[bytes]:
        for block in self.blocks:
            self.left -= 1
            yield block

    def at_eof(self) -> bool:
        return self.left == 0


class Measured(CutAnswer):
    """The answer of an engine that is another wrapper's: it has all that we add."""

    raw_headers = (
        (b"Content-Type", b"application/json"),
        (b"X-Latency-Ms", b"9"),
        (b"X-Peak-Memory-Mb", b"9"),
        (b"X-Other", b"9"),
    )
    headers = {"Content-Type": "application/json"}  # noqa: RUF012


@pytest.mark.parametrize("peak", [None, 2**20])
@pytest.mark.parametrize(
    ("body", "rest"),
    [
        (b'{"metrics": {"latency_ms": 9}, "a": "\xc3\xa9"}', {"a": "é"}),
        (b'{"a": {"metrics": 1}, "metrics": 9 }\n', {"a": {"metrics": 1}}),
        (b'{"a": "\\"metrics\\"", "b": {"metrics": 1}}', {"a": '"metrics"', "b": {"metrics": 1}}),
        (b'{"a": "\\ud800", "metrics": null}', {"a": "\ud800"}),
        (b'{"metrics": 9}', {}),
    ],
)
def test_what_another_wrapper_measured_gives_way_to_what_we_did(
    body: bytes, rest: dict[str, Any], peak: int | None
) -> None:
    sent, _, raised = exchanged(Measured([body]), peak=peak)
    assert raised is None
    names = [name for name, _ in sent[0]["headers"]]
    assert names.count(b"x-latency-ms") == names.count(b"x-other") == 1
    assert names.count(b"x-peak-memory-mb") == (peak is not None)
    assert (b"x-latency-ms", b"9") not in sent[0]["headers"]
    pairs = json.loads(sent[1]["body"], object_pairs_hook=list)
    assert [name for name, _ in pairs] == [*rest, "metrics"]
    reported = json.loads(sent[1]["body"])
    assert set(reported.pop("metrics")) == {"latency_ms", "ttfb_ms", "peak_memory_mb"}
    assert reported == rest


@pytest.mark.parametrize("body", [b'["metrics"]', b'{"metrics": }', b'{"metrics": ' + b"[" * 9999])
def test_what_is_no_object_gets_no_metrics(body: bytes) -> None:
    assert exchanged(Measured([body]))[0][1]["body"] == body


class Breaking(CutAnswer):
    """An engine's answer that raises instead of ending; with no block it raises instead of answering."""

    def __init__(self, blocks: list[bytes], error: Exception) -> None:
        super().__init__(blocks)
        self.error = error

    async def __aenter__(self) -> CutAnswer:
        if not self.blocks:
            raise self.error
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        for block in self.blocks:
            yield block
        raise self.error

    def at_eof(self) -> bool:
        return False


def exchanged(
    session: Any,
    leaves_after: float | None = None,
    bodies: Bodies = PLAIN,
    peak: int | None = None,
    hidden: Sequence[str] = (),
) -> tuple[list[Any], Supervisor, BaseException | None]:
    """Bytes, counts and errors of the data plane with such an engine, and a client that may leave."""
    sent: list[Any] = []
    supervisor = Supervisor(Path("/nowhere"), Path("/nowhere"))
    supervisor.route = Route(session, bodies, Peaks(peak), Mask(hidden), Path("/nowhere"))
    coming = [{"type": "http.request", "body": b"{}"}]

    async def receive() -> Any:
        if coming:
            return coming.pop()
        await asyncio.sleep(3600 if leaves_after is None else leaves_after)
        return LEFT

    async def send(message: Any) -> None:
        sent.append(message)

    async def journey() -> BaseException | None:
        scope = {"path": "/v1/chat/completions", "method": "POST", "headers": []}
        asking = Proxy(supervisor, 2**20)(scope, receive, send)
        [raised] = await asyncio.gather(asking, return_exceptions=True)
        return raised

    return sent, supervisor, asyncio.run(journey())


LOST = RuntimeError("Connection closed.")  # aiohttp's, streams.py


@pytest.mark.parametrize(
    "error", first(1, [aiohttp.ClientConnectionError("x"), ConnectionError("x"), LOST])
)
def test_an_engine_that_breaks_off_is_reported_or_breaks_the_answer_off(error: Exception) -> None:
    sent, supervisor, raised = exchanged(Breaking([], error))
    assert (raised, sent[0]["status"]) == (None, 502)
    assert json.loads(sent[1]["body"])["error"]["code"] == "engine_unreachable"
    assert supervisor.meter.in_flight == 0
    sent, _, raised = exchanged(Breaking([b"data: x\n\n"], error))
    assert (raised, sent[0]["status"]) == (None, 200)
    assert sent[-1]["more_body"]  # uvicorn then cuts the connection


def test_a_client_that_leaves_while_we_ask_what_became_of_the_engine_is_no_bug() -> None:
    sent, supervisor, raised = exchanged(Breaking([], LOST), leaves_after=0.1)
    assert (sent, raised) == ([], None)
    assert supervisor.meter.codes == {499: 1}
    assert supervisor.meter.in_flight == 0


@pytest.mark.parametrize("size", [2, 2**21])
def test_an_engine_with_a_full_queue_of_connections_is_waited_for(size: int) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    sent: list[Any] = []

    async def journey(path: str) -> None:
        supervisor = Supervisor(Path("/nowhere"), Path("/nowhere"))
        coming = [{"type": "http.request", "body": b" " * size}]

        async def receive() -> Any:
            return coming.pop() if coming else await asyncio.sleep(3600)

        async def send(message: Any) -> None:
            sent.append(message)

        async with engine_session(Path(path)) as session:
            supervisor.route = Route(session, PLAIN, Peaks(), Mask(), Path(path))
            scope = {"path": "/v1/chat/completions", "method": "POST", "headers": []}
            await Proxy(supervisor, 2**22)(scope, receive, send)

    with tempfile.TemporaryDirectory(prefix="hb") as folder, full_queue(folder, answer) as path:
        run(journey(path))
    assert (sent[0]["status"], sent[1]["body"]) == (200, b"hello"), sent


class BrokenBodies(Bodies):
    """Rules with a bug."""

    def prepared(self, body: bytes) -> bytes:
        raise LookupError("a token")


def test_a_bug_of_the_data_plane_is_named_and_no_more_and_its_traceback_goes_on() -> None:
    bug = LookupError("a token")
    rules = BrokenBodies({}, checked=False, media_root=None)
    for sent, supervisor, raised in (
        exchanged(Breaking([], bug)),
        exchanged(Breaking([], bug), bodies=rules),
    ):
        assert isinstance(raised, LookupError)
        assert sent[0]["status"] == 500
        assert json.loads(sent[1]["body"])["error"]["code"] == "internal_error"
        assert b"token" not in sent[1]["body"]
        assert supervisor.meter.codes == {500: 1}
        assert supervisor.meter.in_flight == 0
    sent, _, raised = exchanged(Breaking([b"data: x\n\n"], bug))
    assert raised is bug
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


def passed(blocks: list[bytes], headers: list[tuple[bytes, bytes]]) -> bytes:
    """The data plane's form of an answer in these blocks."""
    out: list[bytes] = []

    async def journey() -> None:
        supervisor = Supervisor(Path("/nowhere"), Path("/nowhere"))
        session: Any = CutAnswer(blocks)
        supervisor.route = Route(session, PLAIN, Peaks(), Mask(), Path("/nowhere"))
        coming = [{"type": "http.request", "body": b"{}"}]

        async def receive() -> Any:
            return coming.pop() if coming else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            out.append(message.get("body", b""))

        scope = {"path": "/v1/chat/completions", "method": "POST", "headers": headers}
        await Proxy(supervisor, 2**20)(scope, receive, send)

    asyncio.run(journey())
    return b"".join(out)


def test_the_end_of_a_stream_goes_with_its_last_block() -> None:
    sent, supervisor, raised = exchanged(CutAnswer([b"data: 1\n\n", b"data: 2\n\n"]))
    assert raised is None
    assert [(one["body"], one.get("more_body", False)) for one in sent[1:]] == [
        (b"data: 1\n\n", True),
        (b"data: 2\n\n", False),
    ]
    assert supervisor.meter.served == 1


LINES = st.sampled_from(
    [b"data: x", b"data: [DONE]", b"", b": c", b"data:[DONE]", b"data: [DONE]x", b"\xff"]
)


@given(
    lines=st.lists(LINES, max_size=6),
    end=st.sampled_from([b"\n", b"\r\n"]),
    cuts=st.lists(st.integers(0, 80), max_size=6),
)
def test_however_a_stream_is_cut_its_bytes_stay_what_they_are(
    lines: list[bytes], end: bytes, cuts: list[int]
) -> None:
    stream = end.join(lines)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    blocks = [stream[a:b] for a, b in zip(places, places[1:], strict=False)]
    assert passed(blocks, []) == stream
    with_metrics = passed(blocks, [(b"x-metrics", b"1")])
    added = re.compile(rb'data: \{"choices": \[\], "metrics": \{[^}]*\}\}\n\n')
    assert added.sub(b"", with_metrics) == stream
    ends = [line for line in lines if line in (b"data: [DONE]", b"data:[DONE]")]
    assert len(added.findall(with_metrics)) == len(ends)
