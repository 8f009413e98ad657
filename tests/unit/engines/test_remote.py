"""The relay to an endpoint elsewhere, against a strict stand-in for one on this machine, over real TLS."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import formatdate
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from hpcbench import plugins
from hpcbench.engines.remote import RemoteEngine
from hpcbench.errors import UserError
from hpcbench.unix_http import UnixConnection
from tests.sockets import listens

KEY = "sk-test-1234567890"
PIXEL = "data:image/png;base64,iVBORw0KGgo="


class Endpoint:
    """A stand-in for a hosted model (a cloud cannot be had here), by OpenAI's published API.

    As strict as the strictest: the key is checked, and any field that API does not have is an error. Its
    orders come in the prompt.
    """

    FIELDS = frozenset(
        {
            "max_completion_tokens", "messages", "model", "response_format", "seed", "stop",
            "stream", "stream_options", "temperature", "top_p",
        }
    )  # fmt: skip

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[tuple[dict[str, str], dict[str, Any]]] = []
        """Headers and body of each request."""
        self.left = threading.Event()
        """A client went away before its answer had ended."""
        self.models_status = [200]
        """How `GET /models` answers, in turn; the last for ever."""
        self._tls, self._loop = tls, asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._up.wait(10)
        self.url = f"http{'s' if tls else ''}://localhost:{self._port}/v1"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._start())
        self._up.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.add_routes(self._routes())
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", 0, ssl_context=self._tls)
        await site.start()
        self._port = runner.addresses[0][1]
        return runner

    def _routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/models", self._models), web.post("/v1/chat/completions", self._chat)]

    async def _models(self, request: web.Request) -> web.Response:
        status = self.models_status[0]
        if len(self.models_status) > 1:
            self.models_status.pop(0)
        if status == 200 and request.headers.get("Authorization") != f"Bearer {KEY}":
            status = 401
        headers = {"Location": "https://elsewhere.invalid/v1/models"} if status == 307 else {}
        answer: dict[str, Any] = {"object": "list", "data": []}
        if status == 401:
            answer = {"error": {"message": f"no access by {request.headers.get('Authorization')}"}}
        return web.json_response(answer, status=status, headers=headers)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append((dict(request.headers), body))
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return self._error(401, "Incorrect API key provided", "invalid_api_key")
        unknown = {*body} - self.FIELDS
        unknown |= {*body.get("stream_options", {})} - {"include_usage", "include_obfuscation"}
        if unknown:
            return self._error(400, f"Unknown parameter: {sorted(unknown)}", "unknown_parameter")
        if body["model"] != "big-model":
            return self._error(404, "no such model", "model_not_found")
        return await getattr(self, f"_{body['messages'][-1]['content'][0]['text']}")(request, body)

    def _error(self, status: int, message: str, code: str, **headers: str) -> web.Response:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        return web.json_response({"error": error}, status=status, headers=headers)

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            return web.Response(
                body=b'{"id": "x",  "choices": []}', content_type="application/json"
            )
        answer = await self._begin(request)
        for text in ("To", "tal", " 12"):
            await answer.write(
                b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % text.encode()
            )
            await asyncio.sleep(0.05)
        await answer.write(b"data: [DONE]\n\n")
        return answer

    async def _limit(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        more = {"Retry-After": "7", "x-ratelimit-remaining-requests": "0", "Set-Cookie": "a=b"}
        return self._error(429, "Rate limit reached", "rate_limit_exceeded", **more)

    async def _date(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """A limit whose end is a date, by a clock that is an hour slow."""
        clock = time.time() - 3600
        more = {
            name: formatdate(clock + n, usegmt=True)
            for name, n in (("Retry-After", 7), ("Date", 0))
        }
        more |= {
            "x-ratelimit-reset": str(int(clock) + 8), "anthropic-ratelimit-tokens-reset":
            datetime.fromtimestamp(int(clock) + 9, timezone.utc).isoformat(),
            "x-ratelimit-reset-requests": "6m0s",
            "ratelimit-reset": str(int(clock) + 30 * 86400),
        }  # fmt: skip
        return self._error(429, "Rate limit reached", "rate_limit_exceeded", **more)

    async def _cut(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        answer = await self._begin(request)
        await answer.write(b"data: {}\n\n")
        assert request.transport is not None
        request.transport.abort()
        return answer

    async def _drop(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError

    async def _endless(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        answer = await self._begin(request)
        try:
            while True:
                await answer.write(b"data: {}\n\n")
                await asyncio.sleep(0.02)
        finally:
            self.left.set()

    async def _silence(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError("nobody waited so long")

    async def _elsewhere(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": "https://elsewhere.invalid/v1"})

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        return answer


class Relay:
    """The real child process, started by the command the engine gives."""

    def __init__(self, endpoint: Endpoint, env: dict[str, str], **options: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hr"))
        spec = plugins.EngineSpec(
            "", "ours", str(self.folder / "s"),
            options={"base_url": endpoint.url, "model": "big-model", **options},
        )  # fmt: skip
        command = RemoteEngine().launch_command(spec)
        assert KEY not in " ".join(command.argv)
        plain = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command.argv, env={**plain, **command.env, **env}, stdout=log, stderr=log
            )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def up(self) -> Relay:
        deadline = time.monotonic() + 20
        while not (listens(self.folder / "s") and self.get("/health")[0] == 200):
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return self

    def listening(self) -> Relay:
        """The same, when it can be asked for its figures; it may still wait."""
        while not listens(self.folder / "s"):
            time.sleep(0.02)
        return self

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of an answer."""
        with UnixConnection(self.folder / "s", 5) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def failed(self) -> str:
        """Its last output, when it ended with exit code 1."""
        assert self.process.wait(20) == 1
        log = self.log
        shutil.rmtree(self.folder)
        assert not any(word in log for word in (KEY, "wrong-key", "Traceback")), log
        return log.strip().splitlines()[-1]

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        log = self.log
        shutil.rmtree(self.folder)
        assert KEY not in log

    def session(self) -> aiohttp.ClientSession:
        connector = aiohttp.UnixConnector(str(self.folder / "s"), force_close=True)
        return aiohttp.ClientSession("http://engine", connector=connector)

    def ask(self, text: str, **body: Any) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and bytes of the answer to a prompt."""

        async def journey() -> tuple[int, dict[str, str], bytes]:
            async with self.session() as session:
                path = "/v1/chat/completions"
                async with session.post(path, json=chat(text, **body)) as answer:
                    return answer.status, dict(answer.headers), await answer.read()

        return asyncio.run(asyncio.wait_for(journey(), 20))


def chat(text: str, image: str = PIXEL, **body: Any) -> dict[str, Any]:
    parts = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}]
    return {"model": "ours", "messages": [{"role": "user", "content": parts}], **body}


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Certificate and key of a server for `localhost`, and the file of the authority that vouches for it."""
    public, private = folder / "public.pem", folder / "private.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    make += ["-nodes", "-days", "2", "-subj", "/CN=the test's authority"]
    make += ["-addext", "subjectAltName=DNS:localhost", "-keyout", private, "-out", public]
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return context, public


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def hosted(authority: tuple[ssl.SSLContext, Path]) -> Iterator[Endpoint]:
    endpoint = Endpoint(authority[0])
    yield endpoint
    endpoint.close()


@pytest.fixture(scope="module")
def shared(hosted: Endpoint, authority: tuple[ssl.SSLContext, Path]) -> Iterator[Relay]:
    """One relay over TLS for the tests that only ask."""
    env = {"API_KEY": KEY, "SSL_CERT_FILE": str(authority[1])}
    more = {"headers": {"X-Project": "bench"}, "max_tokens_name": "max_completion_tokens"}
    relay = Relay(hosted, env, timeout=1, **more)
    yield relay.up()
    relay.close()


@pytest.fixture
def local() -> Iterator[Endpoint]:
    """An endpoint on loopback without TLS."""
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.mark.long
def test_the_model_is_named_the_key_added_and_the_answer_passed_byte_for_byte(
    hosted: Endpoint, shared: Relay
) -> None:
    status, headers, body = shared.ask("answer", max_tokens=5, temperature=0)
    assert (status, body) == (200, b'{"id": "x",  "choices": []}')
    assert headers["Content-Type"].startswith("application/json")
    sent, asked = hosted.asked[-1]
    assert asked == {
        **chat("answer"), "model": "big-model", "temperature": 0, "max_completion_tokens": 5,
    }  # fmt: skip
    assert sent["Authorization"] == f"Bearer {KEY}"
    assert sent["X-Project"] == "bench"


async def test_a_stream_comes_as_it_is_made(shared: Relay) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = chat("answer", stream=True, stream_options=options)
    async with (
        shared.session() as session,
        session.post("/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        blocks = [block async for block in answer.content.iter_any()]
    assert b"".join(blocks).count(b"data: ") == 4
    assert len(blocks) > 1, "it came in one piece"


def test_what_the_plan_asks_for_and_the_endpoint_does_not_know_is_the_endpoints_to_refuse(
    shared: Relay,
) -> None:
    status, _, body = shared.ask("answer", top_k=3)
    assert status == 400
    assert json.loads(body)["error"]["code"] == "unknown_parameter"


def test_a_rate_limit_is_passed_on_with_how_long_to_wait(shared: Relay) -> None:
    status, headers, body = shared.ask("limit")
    assert (status, headers["Retry-After"]) == (429, "7")
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert "Set-Cookie" not in headers
    assert json.loads(body)["error"]["code"] == "rate_limit_exceeded"


def test_a_date_to_wait_for_is_passed_on_as_seconds_of_the_endpoints_clock(shared: Relay) -> None:
    status, headers, _ = shared.ask("date")
    assert (status, headers["Retry-After"]) == (429, "7")
    assert headers["X-RateLimit-Reset"] == "8"
    assert headers["anthropic-ratelimit-tokens-reset"] == "9"
    assert headers["x-ratelimit-reset-requests"] == "6m0s"
    assert headers["ratelimit-reset"] == "2592000"


def test_an_answer_that_breaks_off_there_breaks_off_here(shared: Relay) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        shared.ask("cut", stream=True)
    assert shared.ask("answer")[0] == 200


def test_an_endpoint_that_hangs_up_may_have_worked_on_the_request(shared: Relay) -> None:
    status, _, body = shared.ask("drop")
    assert (status, json.loads(body)["error"]["code"]) == (502, "endpoint_broke_off")


async def test_a_client_that_leaves_ends_its_request_there(hosted: Endpoint, shared: Relay) -> None:
    hosted.left.clear()
    async with (
        shared.session() as session,
        session.post("/v1/chat/completions", json=chat("endless", stream=True)) as answer,
    ):
        await answer.content.readany()
    assert hosted.left.wait(10)


def test_an_endpoint_that_falls_silent_is_an_error_of_its_own(shared: Relay) -> None:
    status, _, body = shared.ask("silence")
    assert status == 504
    assert json.loads(body)["error"]["code"] == "endpoint_timeout"


def test_a_redirect_is_not_followed_since_the_key_would_go_with_it(shared: Relay) -> None:
    status, _, body = shared.ask("elsewhere")
    assert status == 502
    assert "redirects to https://elsewhere.invalid/v1" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"model": "other"}, 404, "model_not_found"),
        ({"image": "file:///etc/passwd"}, 400, "media_not_allowed"),
        ({"image": "https://host/page.png"}, 400, "media_not_allowed"),
    ],
)
def test_what_cannot_be_meant_for_it_is_not_sent(
    hosted: Endpoint, shared: Relay, changes: dict[str, Any], status: int, code: str
) -> None:
    before = len(hosted.asked)
    found, _, body = shared.ask("answer", **changes)
    assert (found, json.loads(body)["error"]["code"]) == (status, code)
    assert len(hosted.asked) == before


def test_it_is_an_engine_like_others(shared: Relay) -> None:
    async def journey() -> None:
        async with shared.session() as session:
            async with session.get("/health") as answer:
                assert answer.status == 200
            async with session.get("/v1/models") as answer:
                assert [one["id"] for one in (await answer.json())["data"]] == ["ours"]
            async with session.get("/metrics") as answer:
                assert 'hpcbench_remote_answers_total{code="200"}' in await answer.text()

    shared.ask("answer")
    asyncio.run(journey())


@pytest.mark.long
def test_a_wrong_key_ends_it_at_once_with_one_line(local: Endpoint) -> None:
    said = Relay(local, {"API_KEY": "wrong-key"}).failed()
    assert "answers 401 to the key in `API_KEY`" in said


@pytest.mark.long
def test_a_certificate_without_an_authority_is_refused(hosted: Endpoint) -> None:
    said = Relay(hosted, {"API_KEY": KEY}).failed()
    assert "its certificate is not accepted: self-signed certificate (`SSL_CERT_FILE`" in said


@pytest.mark.long
def test_an_endpoint_that_redirects_is_not_used(local: Endpoint) -> None:
    local.models_status = [307]
    assert "set `base_url` to the final address" in Relay(local, {"API_KEY": KEY}).failed()


@pytest.mark.long
def test_an_endpoint_that_is_not_there_yet_is_waited_for(local: Endpoint) -> None:
    local.models_status = [503, 200]
    relay = Relay(local, {"API_KEY": KEY}).up()
    relay.close()
    assert local.models_status == [200]


@pytest.mark.long
def test_and_one_that_never_comes_is_given_up(local: Endpoint) -> None:
    local.models_status = [503]
    relay = Relay(local, {"API_KEY": KEY}, timeout=0.2)
    assert "it answers 503" in relay.failed()


@pytest.mark.long
def test_an_endpoint_need_not_list_its_models(local: Endpoint) -> None:
    local.models_status = [404]
    Relay(local, {"API_KEY": KEY}).up().close()


@pytest.mark.long
def test_a_proxy_of_the_site_is_used(local: Endpoint) -> None:
    """The relay asks the proxy for the endpoint instead of the endpoint itself."""
    asked: list[bytes] = []

    async def journey() -> Relay:
        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readline())
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            env = {"API_KEY": KEY, "HTTP_PROXY": f"http://127.0.0.1:{port}"}
            relay = Relay(local, env)
            return await asyncio.to_thread(relay.up)

    asyncio.run(journey()).close()
    assert asked == [f"GET {local.url}/models HTTP/1.1\r\n".encode()]


@pytest.mark.long
@pytest.mark.parametrize("door", ["", "HTTP_PROXY"])
def test_a_users_netrc_does_not_replace_the_key(local: Endpoint, tmp_path: Path, door: str) -> None:
    """curl's and git's file often has the hosts that a relay asks, with another user's password."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login u password p\n")
    env = {"API_KEY": KEY, "NETRC": str(netrc)}
    if door:
        env |= {door: "http://localhost:9", "NO_PROXY": local.url.split("/")[2]}
    relay = Relay(local, env).up()
    assert relay.ask("answer")[0] == 200
    relay.close()
    assert local.asked[-1][0]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.long
def test_a_proxy_that_is_no_address_is_one_line(local: Endpoint) -> None:
    said = Relay(local, {"API_KEY": KEY, "HTTP_PROXY": "http://u:pass-word@proxy:port"}).failed()
    assert said.splitlines()[-1].startswith("the endpoint cannot be used: HTTP_PROXY is no address")
    assert "pass-word" not in said


def spec(options: dict[str, Any], **more: Any) -> plugins.EngineSpec:
    base = {"base_url": "https://api.example.com/v1", "model": "m"}
    return plugins.EngineSpec("", "ours", "/s", options={**base, **options}, **more)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"base_url": "api.example.com"}, "write https://HOST/v1"),
        ({"base_url": "https://me:secret@host/v1"}, "cannot have user and password"),
        ({"base_url": "https://host/v1?key=1"}, "only scheme, host and path"),
        ({"base_url": "http://host/v1"}, "send the key unencrypted"),
        ({"headers": {"X-Api-Key": "1"}}, "looks like a secret"),
        ({"headers": {"X": "a\r\nB: c"}}, "is not a valid header"),
        ({"modell": "m"}, "did you mean 'model'"),
        ({"timeout": 0}, "option 'timeout'"),
    ],
)
def test_wrong_options_are_reported_before_anything_runs(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said) as error:
        RemoteEngine().launch_command(spec(options))
    assert len(error.value.problems) == 1
    assert "secret@" not in str(error.value)


def test_both_what_it_needs_and_what_it_cannot_have_are_reported() -> None:
    with pytest.raises(UserError) as error:
        RemoteEngine().launch_command(plugins.EngineSpec("", "m", "/s", dtype="float16", gpus=1))
    said = str(error.value)
    assert "option 'base_url' is missing" in said and "option 'model' is missing" in said
    assert "set the model's 'gpus' to 0" in said and "has its own dtype" in said


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "http://[::1]/v1", "http://localhost"])
def test_loopback_needs_no_tls(url: str) -> None:
    RemoteEngine().launch_command(spec({"base_url": url}))
    RemoteEngine().launch_command(spec({"base_url": "http://host/v1", "allow_http": True}))


@pytest.mark.long
def test_it_serves_no_weights_and_is_known_by_name() -> None:
    plugins.forget()
    point = plugins.find("engines", "remote")
    assert RemoteEngine.weights is False
    assert plugins.mismatch("engines", RemoteEngine) is None
    assert point is None or point.value == "hpcbench.engines.remote:RemoteEngine"
    assert sys.executable in RemoteEngine().launch_command(spec({})).argv
