"""The relay with tokens of a token server, against a stand-in for endpoint and token server."""

from __future__ import annotations

import asyncio
import json
import time
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from test_remote import Endpoint, Relay, chat

from hpcbench import plugins
from hpcbench.engines import relay as engine_relay
from hpcbench.engines.remote import RemoteEngine, RemoteOptions
from hpcbench.errors import UserError
from hpcbench.oauth import token_metrics
from hpcbench.oauth.keeper import Keeper
from hpcbench.oauth.token_server import source_of

SECRET = "gateway-secret-42"


class Gateway(Endpoint):
    """Checks tokens, and gives them at `/oauth/token`."""

    def __init__(self) -> None:
        self.lifetime: float = 3600
        self.given: list[str] = []
        self.ends: dict[str, float] = {}
        """Valid tokens → their end."""
        self.secret = SECRET
        self.rejects_all = False
        self.away = 0
        """Requests for a token that are answered 503."""
        self.tail = ""
        """End of each token."""
        self.slow, self.busy = 0.0, False
        """Seconds that a token takes, and whether a request for one is here."""
        self.expired_sent = 0
        super().__init__()
        self.token_url = self.url.replace("/v1", "/oauth/token")

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/oauth/token", self._give)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", 0)
        await site.start()
        self._port = runner.addresses[0][1]
        return runner

    async def _give(self, request: web.Request) -> web.Response:
        form = await request.post()
        if self.away:
            self.away -= 1
            return web.Response(status=503)
        if form.get("client_secret") != self.secret:
            said = f"no client has the secret {form.get('client_secret')}"
            return web.json_response(
                {"error": "invalid_client", "error_description": said}, status=401
            )
        self.busy = True
        await asyncio.sleep(self.slow)
        access = f"token-{len(self.given)}-abcdef{self.tail}"
        self.given.append(access)
        self.ends[access] = time.monotonic() + self.lifetime
        answer = {"access_token": access, "token_type": "Bearer", "expires_in": self.lifetime}
        if form["grant_type"] == "refresh_token":
            answer["refresh_token"] = f"r{len(self.given)}"
        return web.json_response(answer)

    def _valid(self, request: web.Request) -> bool:
        access = request.headers.get("Authorization", "").removeprefix("Bearer ")
        end = self.ends.get(access, 0)
        self.expired_sent += 0 < end < time.monotonic()
        return end > time.monotonic() and not self.rejects_all

    async def _models(self, request: web.Request) -> web.Response:
        if not self._valid(request):
            said = f"{request.headers.get('Authorization')} lacks the audience 'vision'"
            return web.json_response({"error": {"message": said}}, status=401)
        return web.json_response({"data": []})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append((dict(request.headers), body))
        if not self._valid(request):
            said = f"{request.headers.get('Authorization')} is not valid any more"
            return self._error(401, said, "invalid_token")
        order = body["messages"][-1]["content"][0]["text"]
        if order == "leads":
            where = quote(request.headers["Authorization"], safe="")
            return web.Response(status=302, headers={"Location": f"https://login.invalid/{where}"})
        return await (self._repeats if order == "repeats" else self._answer)(request, body)

    async def _repeats(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """An answer of success that contains the token, whole or as a stream."""
        given = request.headers["Authorization"]
        said = json.dumps({"error": {"message": f"{given} {quote(given, safe='')}"}})
        if not body.get("stream"):
            return web.Response(text=said, content_type="application/json")
        answer = await self._begin(request)
        await answer.write(f"data: {said}\n\n".encode())
        return answer


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    endpoint = Gateway()
    yield endpoint
    endpoint.close()


def relay(
    gateway: Gateway,
    state: Path,
    secret: str = SECRET,
    env: Mapping[str, str] = types.MappingProxyType({}),
    **auth: Any,
) -> Relay:
    chosen = {
        "token_url": gateway.token_url, "client_id": "bench", "client_secret": "${env:GATEWAY_SECRET}",
        "client_auth": "client_secret_post", **auth,
    }  # fmt: skip
    env = {"GATEWAY_SECRET": secret, "XDG_STATE_HOME": str(state), **env}
    return Relay(gateway, env, auth=chosen, timeout=5)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def logged(one: Relay) -> str:
    log = one.log
    one.close()
    assert "Traceback" not in log, log
    assert not any(word in log for word in (SECRET, "token-")), log
    return log


@pytest.mark.long
def test_two_workers_share_one_token_and_a_later_run_asks_for_none(
    gateway: Gateway, tmp_path: Path
) -> None:
    both = [relay(gateway, tmp_path), relay(gateway, tmp_path)]
    for one in both:
        assert one.up().ask("answer")[0] == 200
    for one in both:
        logged(one)
    assert gateway.given == ["token-0-abcdef"]
    assert gateway.asked[-1][0]["Authorization"] == "Bearer token-0-abcdef"
    later = relay(gateway, tmp_path).up()
    assert later.ask("answer")[0] == 200
    logged(later)
    assert len(gateway.given) == 1


@pytest.mark.long
def test_a_revoked_token_costs_one_more_request_and_no_failure(
    gateway: Gateway, tmp_path: Path
) -> None:
    one = relay(gateway, tmp_path).up()
    gateway.ends.clear()
    assert one.ask("answer")[0] == 200
    assert one.ask("answer")[0] == 200
    assert len(gateway.given) == 2
    assert [headers["Authorization"] for headers, _ in gateway.asked] == [
        f"Bearer {gateway.given[0]}", f"Bearer {gateway.given[1]}", f"Bearer {gateway.given[1]}",
    ]  # fmt: skip

    async def metrics() -> str:
        async with one.session() as session, session.get("/metrics") as answer:
            return await answer.text()

    found = asyncio.run(metrics())
    assert 'hpcbench_token_requests_total{kind="full_auth",outcome="granted"} 2' in found
    assert "hpcbench_token_rejected_total 1" in found
    assert 'hpcbench_remote_answers_total{code="401"} 1' in found, "as the endpoint counts"
    assert 'hpcbench_remote_answers_total{code="200"} 2' in found
    assert 'hpcbench_token_state{state="fresh"} 1' in found
    logged(one)


@pytest.mark.long
def test_an_endpoint_that_rejects_every_token_answers_in_its_own_words_without_the_token(
    gateway: Gateway, tmp_path: Path
) -> None:
    one = relay(gateway, tmp_path).up()
    gateway.rejects_all = True
    status, _, body = one.ask("answer")
    assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_token")
    assert json.loads(body)["error"]["message"] == "Bearer *** is not valid any more"
    for _ in range(5):
        assert one.ask("answer")[0] == 401
    assert len(gateway.given) <= 4
    logged(one)


@pytest.mark.long
def test_an_answer_of_success_does_not_show_the_token_either(
    gateway: Gateway, tmp_path: Path
) -> None:
    gateway.tail = "/+="
    one = relay(gateway, tmp_path).up()
    for stream in (False, True):
        status, headers, body = one.ask("repeats", stream=stream)
        assert status == 200
        assert b"token-0" not in body
        assert b'"Bearer ***' in body
        assert stream or int(headers["Content-Length"]) == len(body)
    logged(one)


@pytest.mark.long
def test_a_redirect_does_not_show_the_token_either(gateway: Gateway, tmp_path: Path) -> None:
    gateway.tail = "/+="
    one = relay(gateway, tmp_path).up()
    status, _, body = one.ask("leads")
    assert status == 502
    assert b"redirects to https://login.invalid/Bearer%20***, and redirects are not" in body
    logged(one)


@pytest.mark.long
def test_an_endpoint_that_rejects_tokens_from_the_beginning_says_why(
    gateway: Gateway, tmp_path: Path
) -> None:
    gateway.rejects_all = True
    said = relay(gateway, tmp_path).failed()
    assert "answers 401 to a new token of the token server" in said
    assert said.endswith("Bearer *** lacks the audience 'vision'")
    assert not any(token in said for token in gateway.given)


@pytest.mark.long
def test_many_requests_over_many_lifetimes_meet_no_expired_token(
    gateway: Gateway, tmp_path: Path
) -> None:
    gateway.lifetime = 2.4  # a busy machine may keep a request waiting for a tenth of it
    one = relay(gateway, tmp_path).up()

    async def ask_all() -> list[int]:
        async with one.session() as session:

            async def many() -> list[int]:
                found, until = [], time.monotonic() + 10
                while time.monotonic() < until:
                    path = "/v1/chat/completions"
                    async with session.post(path, json=chat("answer")) as answer:
                        found.append(answer.status)
                    await asyncio.sleep(0.05)
                return found

            return sum(await asyncio.gather(*(many() for _ in range(4))), [])

    found = asyncio.run(ask_all())
    assert {*found} == {200}
    assert len(found) > 50
    assert gateway.expired_sent == 0
    assert 4 <= len(gateway.given) <= 12
    logged(one)


@pytest.mark.long
def test_a_wrong_secret_ends_it_at_once_in_the_servers_words_without_the_secret(
    gateway: Gateway, tmp_path: Path
) -> None:
    said = relay(gateway, tmp_path, "wrong-key-here").failed()
    assert "the token server answers 401: invalid_client: no client has the secret ***" in said


@pytest.mark.long
def test_a_missing_secret_is_one_line(gateway: Gateway, tmp_path: Path) -> None:
    said = relay(gateway, tmp_path, "").failed()
    assert "${env:GATEWAY_SECRET}: the variable is not set" in said


@pytest.mark.long
def test_a_token_server_that_is_away_is_named(gateway: Gateway, tmp_path: Path) -> None:
    said = relay(gateway, tmp_path, token_url="http://localhost:9/token", timeout=1).failed()
    assert "the token server localhost cannot be reached" in said


async def test_a_model_that_loads_waits_for_a_token_as_long_as_a_request_does(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_relay, "PATIENCE", 0.0)
    monkeypatch.setenv("GATEWAY_SECRET", SECRET)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    gateway.away = 1
    auth = {"token_url": gateway.token_url, "client_id": "b", "client_secret": "${env:GATEWAY_SECRET}",
            "client_auth": "client_secret_post"}  # fmt: skip
    options = RemoteOptions.model_validate({"base_url": gateway.url, "model": "m", "auth": auth})
    assert options.auth is not None
    source = source_of(options.auth, allow_http=False, say=print)
    one = engine_relay.Relay(options, "m", "", Keeper(source))
    async with one.keeping(), one.session() as session:
        await one.look(session)
    assert gateway.given


@pytest.mark.long
def test_while_a_model_loads_its_relay_says_how_it_fares_with_the_token_server(
    gateway: Gateway, tmp_path: Path
) -> None:
    gateway.away = 1000
    one = relay(gateway, tmp_path).listening()
    until(lambda: 'outcome="failed"} 2' in one.get("/metrics")[1])
    assert one.get("/health")[0] == 503
    assert "hpcbench_token_waiting 1" in one.get("/metrics")[1]
    assert one.process.wait(20) == 1
    last = token_metrics.of_log(one.log.splitlines())
    assert last is not None
    assert (last.granted, last.waits, last.state) == ({}, 1, "none")
    assert last.failed["full_auth"] >= 2
    assert "503" in (last.why or "")


@pytest.mark.long
def test_a_relay_that_ends_while_its_model_loads_keeps_the_refresh_token_that_is_on_its_way(
    gateway: Gateway, tmp_path: Path
) -> None:
    gateway.slow = 1.0
    one = relay(
        gateway,
        tmp_path,
        grant_type="refresh_token",
        refresh_token="${env:FIRST}",
        env={"FIRST": "r0"},
    )
    until(lambda: gateway.busy)
    one.close()
    (file,) = (tmp_path / "hpcbench" / "auth").glob("*.json")
    record = json.loads(file.read_text())
    assert (record["refresh"], record["sent"]) == ("r1", False)
    assert record["access"] == gateway.given[0]


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        ({"client_secret": "plain-text"}, "option 'auth.client_secret': write ${env:NAME}"),
        ({"token_url": "http://far.example/token"}, "option 'auth.token_url': http:// would send"),
        ({"client_id": None}, "'client_id' is missing"),
        ({"grant": "password"}, "unknown option 'grant'"),
    ],
)
def test_wrong_options_are_refused_before_the_run(auth: dict[str, Any], said: str) -> None:
    chosen = {
        "token_url": "https://g/t", "client_id": "c", "client_secret": "${env:GATEWAY_SECRET}", **auth,
    }  # fmt: skip
    chosen = {name: value for name, value in chosen.items() if value is not None}
    options = {"base_url": "https://g/v1", "model": "m", "auth": chosen}
    with pytest.raises(UserError) as found:
        RemoteEngine().launch_command(plugins.EngineSpec("", "n", "/s", options=options))
    assert said in str(found.value)
    assert "plain-text" not in str(found.value)


@pytest.mark.long
def test_a_fixed_token_and_none(gateway: Gateway, tmp_path: Path) -> None:
    gateway.ends["fixed-token"] = time.monotonic() + 60
    bearer = {"type": "bearer", "token": "${env:FIXED}"}
    one = Relay(gateway, {"FIXED": "fixed-token"}, auth=bearer).up()
    assert one.ask("answer")[0] == 200
    one.close()
    said = Relay(gateway, {"API_KEY": "fixed-token"}, auth={"type": "none"}).failed()
    assert "answers 401 to a request without a key" in said
