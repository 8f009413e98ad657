"""Rules 4 to 10, 14, 16, 17 by raw HTTP: what the guard lets through, and what every answer carries."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse

from hpcbench import secret
from hpcbench.portal import app as apps
from hpcbench.portal import guard, headers, peer_accounts, protocol
from hpcbench.portal.access_tokens import new_secret
from hpcbench.portal.audit_log import Journal
from hpcbench.portal.context import Options
from hpcbench.portal.models.sessions import NewToken
from tests.unit.portal.served import Served, new_desk, served

GET = "GET {} HTTP/1.1\r\n{}Connection: close\r\n\r\n"


def probes() -> APIRouter:
    """Routes that do what no real one does."""
    room = APIRouter(prefix=guard.API)

    @room.get("/probe/boom")
    def boom() -> None:
        raise RuntimeError("inner workings")

    @room.get("/probe/large")
    def large(cut: int = 0) -> Response:
        if cut:
            return StreamingResponse(b"x" * 1_000_000 for _ in range(70))
        return Response(b"x" * 65_000_000)

    @room.get("/probe/headers")
    def seen(request: Request) -> dict[str, Any]:
        return {"headers": dict(request.headers), "url": str(request.url)}

    @room.get("/probe/report")
    def report(locked: int) -> Response:
        csp = "sandbox allow-scripts; default-src 'unsafe-inline'" if locked else "script-src *"
        return HTMLResponse(
            "<p>", headers={"Content-Security-Policy": csp, "Cache-Control": "public"}
        )

    @room.put("/probe/change")
    async def change(request: Request) -> dict[str, int]:
        return {"bytes": len(await request.body())}

    @room.put("/probe/model")
    def model(body: NewToken) -> None:
        return None

    return room


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One portal for all tests here."""
    folder = tmp_path_factory.mktemp("house")
    (folder / "logs").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apps, "ROOMS", (*apps.ROOMS, probes()))
        journal = Journal(folder / "logs", "here")
        with served(folder, journal=journal, options=Options(folder)) as portal:
            yield portal


@pytest.fixture
def portal(house: Served) -> Served:
    """It, as just started."""
    folder = house.socket.parent
    house.access.desk = new_desk(folder, house.clock)
    house.access.crowded = False
    house.cookies.clear()
    for file in (folder / "logs").iterdir():
        os.truncate(file, 0)
    return house


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def log(portal: Served, until: str, name: str = "portal-here.log") -> str:
    """A log, once it has text: it is written when the answer has gone."""
    path = portal.socket.parent / "logs" / name
    while until not in (text := path.read_text()):
        time.sleep(0.01)
    return text


# --- authentication (4, 5, 7)


@pytest.mark.long
def test_every_route_asks_who_it_is_but_those_that_say_nothing(portal: Served) -> None:
    """Found in the application itself, so that no route can be forgotten."""
    description = portal.get("/api/v1/openapi.json").data
    asked = 0
    for path, verbs in description["paths"].items():
        filled = re.sub(r"\{[^}]*\}", "x", path)
        for verb in verbs:
            if (verb, path) in {("post", "/api/v1/session"), ("post", "/api/v1/session/refresh")}:
                continue
            found = portal.ask(verb.upper(), filled, {"X-Hpcbench": "1"})
            assert found.status == 401, (verb, path)
            assert found.fault == "not_signed_in"
            asked += 1
    assert asked > 8
    for path in (
        "/api",
        "/api/",
        "/api/v1",
        "/docs",
        "/redoc",
        "/openapi.json",
        "/x",
        "/assets/../x",
        "//",
    ):
        assert portal.ask("GET", path).status == 401, path
    for path in ("/plain", "/plain/x", "/plain/"):
        found = portal.ask("GET", path)
        assert (found.status, found.body) == (303, b"")
    for path in ("/", "/healthz", "/plain/login"):
        assert portal.ask("GET", path).status == 200, path


@pytest.mark.parametrize(
    ("path", "there"),
    [("/plain/", "../plain"), ("/healthz//", "../../healthz"), ("/plain/login/?x=1&y", "../login?x=1&y"),
     ("/api/v1/session/", "../session"), ("/assets/", "../assets"), ("/plain/e%3Ff/", "../e%3Ff")],
)  # fmt: skip
def test_a_slash_too_many_leads_to_the_same_page(portal: Served, path: str, there: str) -> None:
    found = portal.get(path)
    assert (found.status, found.header("location")) == (308, there)
    assert found.header("x-content-type-options") == "nosniff"


def test_a_slash_too_many_changes_nothing_about_who_may(portal: Served) -> None:
    assert portal.ask("GET", "/api/v1/session/").status == 401
    assert portal.ask("GET", "/plain/").header("location") == "../plain/login"
    assert portal.ask("PUT", "/api/v1/probe/change/").status == 403
    assert portal.ask("PUT", "/api/v1/probe/change/", portal.owner, b"x").data == {"bytes": 1}


@pytest.mark.parametrize(
    "path",
    ["/%61pi/v1/session", "/api/v1/../v1/session", "/api%2fv1/session", "//api/v1/session",
     "/assets/..%2fapi/v1/session", "/healthz/../api/v1/session", "/API/v1/session", "/api/v1/session/",
     "http://localhost/api/v1/session", "/healthz%00", "/plain/login/../x", "/healthz;x"],
)  # fmt: skip
def test_no_spelling_of_a_path_gets_around_it(portal: Served, path: str) -> None:
    found = portal.raw(GET.format(path, "Host: localhost\r\n").encode())
    assert status(found) in {401, 303, 400}
    assert b'"user"' not in found


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", "Bearer x", "Basic eDp5", "bearer " + "o" * 42, "Bearer hpcb_x_y"],
)
def test_a_wrong_token_opens_nothing(portal: Served, value: str) -> None:
    found = portal.get("/api/v1/session", {"Authorization": value})
    assert (found.status, found.fault) == (401, "not_signed_in")


@pytest.mark.parametrize("name", ["token", "t", "code", "access_token"])
def test_a_token_in_the_address_is_not_read(portal: Served, name: str) -> None:
    code = portal.access.desk.sessions.code()
    for word in (portal.access.desk.owner, code):
        assert portal.ask("GET", f"/api/v1/session?{name}={word}").status == 401
        found = portal.ask("POST", f"/api/v1/session?{name}={word}", portal.browser, {"code": "x"})
        assert found.status == 401


def test_a_wrong_token_beside_a_good_session_does_not_pass(portal: Served) -> None:
    portal.sign_in()
    found = portal.get("/api/v1/session", {**portal.browser, "Authorization": "Bearer x"})
    assert found.status == 401


def test_tokens_are_good_for_what_they_say(portal: Served) -> None:
    tokens = portal.access.desk.tokens

    def tried(*scopes: str) -> list[int]:
        made = tokens.create(NewToken(name="x", scopes=scopes))  # type: ignore[arg-type]
        bearer = {"Authorization": f"Bearer {made.token}", "X-Hpcbench": "1"}
        return [
            portal.ask("GET", "/api/v1/session", bearer).status,
            portal.ask("PUT", "/api/v1/probe/change", bearer).status,
            portal.ask("POST", "/api/v1/submissions", bearer, {}).status,
            portal.ask("GET", "/api/v1/tokens", bearer).status,
            portal.ask("POST", "/api/v1/tokens", bearer, {"name": "more"}).status,
            portal.ask("POST", "/api/v1/session/codes", bearer).status,
        ]

    assert tried("read") == [200, 403, 403, 403, 403, 403]
    assert tried("read", "plan-edit") == [200, 200, 403, 403, 403, 403]
    assert tried("plan-edit") == [403, 200, 403, 403, 403, 403]
    assert tried("submit")[0] == 403


def test_tokens_are_listed_and_revoked_in_the_browser(portal: Served) -> None:
    portal.sign_in()
    made = portal.ask("POST", "/api/v1/tokens", portal.browser, {"name": "plots", "days": 7})
    assert made.status == 201
    bearer = {"Authorization": f"Bearer {made.data['token']}"}
    assert portal.get("/api/v1/session", bearer).status == 200
    listed = portal.get("/api/v1/tokens", portal.browser)
    assert [row["name"] for row in listed.data] == ["plots"]
    assert made.data["token"].encode() not in listed.body
    path = f"/api/v1/tokens/{made.data['row']['id']}"
    assert portal.ask("DELETE", path, portal.browser).status == 204
    assert portal.ask("DELETE", path, portal.browser).status == 404
    assert portal.get("/api/v1/session", bearer).status == 401
    assert portal.ask("POST", "/api/v1/session/codes", portal.browser).status == 403


def test_failures_have_to_wait_and_say_how_long(portal: Served) -> None:
    for _ in range(5):
        assert portal.get("/api/v1/session", {"Authorization": "Bearer wrong"}).status == 401
    found = portal.get("/api/v1/session", {"Authorization": "Bearer wrong"})
    assert (found.status, found.fault) == (429, "busy")
    assert int(found.header("retry-after")) >= 1
    old = {"Authorization": "Bearer hpcb_0123_old"}
    for _ in range(7):
        last = portal.get("/api/v1/session", old).status
    assert last == 429
    good = portal.access.desk.tokens.create(NewToken(name="x"))
    assert portal.get("/api/v1/session", {"Authorization": f"Bearer {good.token}"}).status == 200


def test_a_users_own_success_takes_no_failure_back(portal: Served) -> None:
    good = portal.access.desk.tokens.create(NewToken(name="x")).token
    wrong = f"{good[:-4]}xxxx"  # with the id of a token that one may know
    seen = []
    for _ in range(9):
        for token in (wrong, good):
            headers = {"Authorization": f"Bearer {token}"}
            seen.append(portal.get("/api/v1/session", headers).status)
    assert seen[:10] == [401, 200, 401, 200, 401, 200, 401, 200, 401, 429]
    assert seen.count(401) <= 7


def test_a_users_own_sign_in_takes_no_failure_back(portal: Served) -> None:
    seen = []
    for _ in range(7):
        wrong = portal.ask("POST", "/api/v1/session", portal.browser, {"code": "x"})
        seen += [wrong.status, portal.sign_in().status]
    assert seen[:10] == [401, 200, 401, 200, 401, 200, 401, 200, 401, 429]
    assert 429 in seen[10::2]


def test_wrong_codes_have_to_wait_too(portal: Served) -> None:
    codes = [
        portal.ask("POST", "/api/v1/session", portal.browser, {"code": "x"}).status
        for _ in range(6)
    ]
    assert codes == [401] * 5 + [429]
    assert portal.sign_in().status == 429, "a right one as well: who tries many must not be told"


# --- the session (6)


def test_a_session_is_a_cookie_that_no_script_and_no_other_site_gets(portal: Served) -> None:
    found = portal.sign_in()
    assert found.status == 200
    instance = portal.access.desk.instance
    cookies = sorted(value for name, value in found.headers if name == "set-cookie")
    renew, access = (re.sub(r"=[^;]*;", "=…;", one, count=1) for one in cookies)
    assert access == f"hpcbench-{instance}=…; HttpOnly; Path=/; SameSite=strict"
    assert renew == f"hpcbench-{instance}-renew=…; HttpOnly; Path=/api/v1/session; SameSite=strict"
    for word in found.cookies.values():
        assert word.encode() not in found.body
    assert portal.get("/api/v1/session", portal.browser).data["expires"] == portal.clock.now + 900


def test_it_is_renewed_and_a_stolen_key_ends_it(portal: Served) -> None:
    portal.sign_in()
    first = dict(portal.cookies)
    portal.clock.now += 16 * 60
    assert portal.get("/api/v1/session", portal.browser).status == 401
    renewed = portal.ask("POST", "/api/v1/session/refresh", portal.browser)
    assert renewed.status == 200
    portal.cookies.update(renewed.cookies)
    assert portal.cookies != first
    assert portal.get("/api/v1/session", portal.browser).status == 200
    portal.clock.now += 60
    kept, portal.cookies = portal.cookies, first
    assert portal.ask("POST", "/api/v1/session/refresh", portal.browser).status == 401
    portal.cookies = kept
    assert portal.get("/api/v1/session", portal.browser).status == 401
    assert portal.ask("POST", "/api/v1/session/refresh", portal.browser).status == 401


def test_signing_out_ends_it_on_the_server(portal: Served) -> None:
    portal.sign_in()
    assert portal.ask("DELETE", "/api/v1/session", portal.browser).status == 204
    assert portal.get("/api/v1/session", portal.browser).status == 401
    assert portal.ask("POST", "/api/v1/session/refresh", portal.browser).status == 401


def test_a_session_of_another_start_is_worth_nothing(portal: Served, tmp_path: Path) -> None:
    portal.sign_in()
    (tmp_path / "second").mkdir()
    with served(tmp_path / "second") as second:
        second.cookies = {
            name.replace(portal.access.desk.instance, second.access.desk.instance): value
            for name, value in portal.cookies.items()
        }
        assert second.get("/api/v1/session", second.browser).status == 401
        assert second.ask("POST", "/api/v1/session/refresh", second.browser).status == 401


# --- other sites (8, 9)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.2",
     "0.0.0.0", "localhost@evil.example", "evil.example#localhost", "localhost:80:80", "", "localhost:x",
     "[::2]", "localhost/", "169.254.169.254", "xlocalhost", "localhost\x0b"],
)  # fmt: skip
def test_names_that_are_not_ours_are_refused(portal: Served, host: str) -> None:
    """DNS rebinding: a page of evil.example whose name now points to 127.0.0.1."""
    for path in ("/", "/api/v1/session", "/healthz", "/plain/login"):
        answer = portal.raw(
            GET.format(path, f"Host: {host}\r\nAuthorization: Bearer {'o' * 43}\r\n").encode()
        )
        assert status(answer) == 400, path


@pytest.mark.parametrize(
    "target", ["http://evil.example/healthz", "http://localhost/healthz", "http://localhost@evil.example/healthz",
               "//evil.example/healthz/..", "evil.example:80", "*", "https://evil.example/"],
)  # fmt: skip
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
def test_a_target_that_is_no_path_is_refused(portal: Served, target: str, host: str) -> None:
    for more in ("", "Upgrade: websocket\r\nConnection: Upgrade\r\n"):
        lines = f"Host: {host}\r\nAuthorization: Bearer {'o' * 43}\r\n{more}"
        answer = portal.raw(GET.format(target, lines).encode())
        assert status(answer) in {400, 404}, target
        assert b"nosniff" in answer, (
            "an answer to what is no request has the headers of all answers"
        )


def test_a_request_without_a_name_is_refused(portal: Served) -> None:
    assert status(portal.raw(b"GET / HTTP/1.0\r\n\r\n")) == 400


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8787", "[::1]:8787", "cluster.localhost:8787"]
)
def test_names_of_the_tunnel_are_ours(portal: Served, host: str) -> None:
    for unix in (False, True):
        answer = portal.raw(GET.format("/healthz", f"Host: {host}\r\n").encode(), unix=unix)
        assert status(answer) == 200


@pytest.mark.parametrize(
    "lost", [{"X-Hpcbench": ""}, {"X-Hpcbench": "0"}, {"Origin": "http://evil.example"},
             {"Origin": "null", "Sec-Fetch-Site": ""}, {"Origin": "http://localhost:1"},
             {"Origin": "http://localhost"}, {"Origin": "file://"}, {"Origin": "http://localhost@evil.example"},
             {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "x"}],
)  # fmt: skip
def test_no_other_site_changes_anything(portal: Served, lost: dict[str, str]) -> None:
    portal.sign_in()
    given = {name: value for name, value in {**portal.browser, **lost}.items() if value}
    for method, path in (
        ("PUT", "/api/v1/probe/change"),
        ("POST", "/api/v1/session"),
        ("DELETE", "/api/v1/session"),
    ):
        found = portal.ask(method, path, given, {"code": "x"})
        assert (found.status, found.fault) == (403, "refused"), method
    assert portal.ask("PUT", "/api/v1/probe/change", portal.browser).status == 200


def test_a_plain_form_of_another_site_changes_nothing(portal: Served) -> None:
    portal.sign_in()
    cookie = {
        "Cookie": portal.browser["Cookie"],
        "Content-Type": "application/x-www-form-urlencoded",
    }
    for found in (
        portal.ask("PUT", "/api/v1/probe/change", cookie, b"x=1"),
        portal.ask(
            "POST", "/api/v1/tokens", {**cookie, "Content-Type": "text/plain"}, b'{"name":"x"}'
        ),
    ):
        assert found.status == 403
    assert portal.access.desk.tokens.rows() == ()


@pytest.mark.parametrize(
    "path", ["/api/v1/session", "/api/v1/events", "/api/v1/events/poll", "/plain"]
)
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_no_other_site_reads_anything(portal: Served, path: str, site: str) -> None:
    """Another port of localhost is the same site to cookies: they would be sent."""
    portal.sign_in()
    found = portal.get(path, {"Cookie": portal.browser["Cookie"], "Sec-Fetch-Site": site})
    assert found.status == 403
    other = {"Cookie": portal.browser["Cookie"], "Origin": "http://localhost:9"}
    assert portal.get(path, other).status == 403


@pytest.mark.parametrize("method", ["OPTIONS", "PATCH", "TRACE", "CONNECT", "PROPFIND", "HEAD"])
def test_there_are_no_other_methods_and_no_sharing_with_other_sites(
    portal: Served, method: str
) -> None:
    text = (
        f"{method} /api/v1/session HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n"
    )
    found = portal.raw(
        (text + "Access-Control-Request-Method: PUT\r\nConnection: close\r\n\r\n").encode()
    )
    assert status(found) in {400, 403, 405}
    assert b"access-control" not in found.lower()


@pytest.mark.parametrize(
    "name",
    ["Host", "Origin", "Authorization", "Cookie", "Content-Length", "X-Hpcbench", "Sec-Fetch-Site"],
)
def test_headers_that_decide_come_once(portal: Served, name: str) -> None:
    """A proxy could believe the first and we the last."""
    value = {"Host": "localhost", "Content-Length": "0", "Origin": "http://localhost"}.get(
        name, "1"
    )
    lines = f"Host: localhost\r\n{name}: {value}\r\n{name.upper()}: {value}\r\n"
    found = portal.raw(GET.format("/healthz", lines).encode())
    assert status(found) == 400


def test_two_lengths_of_a_body_are_refused(portal: Served) -> None:
    """Request smuggling."""
    head = "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nX-Hpcbench: 1\r\n"
    for lines in (
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: 0x4\r\n",
    ):
        found = portal.raw(f"{head}{lines}Connection: close\r\n\r\n0\r\n\r\n".encode())
        assert status(found) == 400, lines


def test_heads_are_bounded(portal: Served) -> None:
    many = "".join(f"X-{n}: 1\r\n" for n in range(100))
    assert status(portal.raw(GET.format("/healthz", f"Host: localhost\r\n{many}").encode())) == 431
    long = f"Host: localhost\r\nX-Long: {'x' * 40_000}\r\n"
    assert status(portal.raw(GET.format("/healthz", long).encode())) == 431


# --- answers (10, 16)


@pytest.mark.parametrize(
    "path",
    [
        "/", "/healthz", "/nothing", "/api/v1/session", "/api/v1/probe/boom", "/plain",
        "/plain/login",
    ],
)  # fmt: skip
def test_every_answer_carries_the_headers(portal: Served, path: str) -> None:
    for given in (None, {}, {"Host": "evil.example"}):
        found = portal.get(path, given)
        assert found.header("content-security-policy") == headers.CSP
        for name, value in headers.ALWAYS.items():
            assert found.header(name) == value, name
        assert re.fullmatch("[0-9a-f]{12}", found.header("x-request-id"))
        assert found.header("server") == ""
        if path.startswith(("/api", "/plain", "/healthz")):
            assert found.header("cache-control") == "no-store"


def test_the_policy_allows_no_inline_script_no_eval_and_nothing_from_elsewhere() -> None:
    rules = dict(rule.split(" ", 1) for rule in headers.CSP.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert "unsafe-eval" not in headers.CSP
    assert "http" not in headers.CSP
    assert "*" not in headers.CSP


def test_only_a_locked_up_page_has_a_policy_of_its_own(portal: Served) -> None:
    locked = portal.get("/api/v1/probe/report?locked=1")
    assert locked.header("content-security-policy").startswith("sandbox allow-scripts;")
    free = portal.get("/api/v1/probe/report?locked=0")
    assert free.header("content-security-policy") == headers.CSP
    assert free.header("cache-control") == "no-store"


def test_a_bug_tells_its_id_and_keeps_its_traceback(portal: Served) -> None:
    found = portal.get("/api/v1/probe/boom")
    assert (found.status, found.fault) == (500, "bug")
    assert b"inner workings" not in found.body
    assert b"Traceback" not in found.body
    assert b'.py"' not in found.body
    identity = found.data["id"]
    assert identity == found.header("x-request-id")
    assert "inner workings" in log(portal, f"bug {identity}\nTraceback")


def test_what_was_sent_wrongly_is_not_sent_back(portal: Served) -> None:
    found = portal.ask("POST", "/api/v1/session", portal.browser, {"code": ["hunter2"]})
    assert (found.status, found.fault) == (422, "bad_request")
    assert b"hunter2" not in found.body
    wrong = portal.ask("POST", "/api/v1/session", portal.browser, b"\xff{not json")
    assert wrong.status == 422


def test_faults_hide_secrets(portal: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_TEST", "hunter2-hunter2")
    secret.reveal("${env:A_SECRET_OF_THE_TEST}")
    found = portal.get("/plain/hunter2-hunter2")
    assert b"hunter2" not in found.body


def test_the_log_has_no_query_no_token_and_keeps_its_lines(portal: Served) -> None:
    portal.sign_in()
    code = portal.access.desk.sessions.code()
    portal.ask("GET", f"/api/v1/session?token={code}", portal.browser)
    portal.ask("POST", "/api/v1/session", portal.browser, {"code": code})
    made = portal.ask("POST", "/api/v1/tokens", portal.browser, {"name": "x"})
    portal.get("/api/v1/session", {"Authorization": f"Bearer {made.data['token']}"})
    portal.get("/api/v1/session")
    portal.ask("GET", "/x%0a2026-01-01T00:00:00Z%20forged%1b[2J%e2%80%ae")
    text = log(portal, "forged") + log(portal, "tokens", "changes-here.jsonl")
    assert "?" not in text
    held = [code, made.data["token"], portal.access.desk.owner, *portal.cookies.values()]
    for word in held:
        assert word not in text
        # Without the identity before it, which the log does name; a secret may hold "_" anywhere.
        assert word[-len(new_secret()) :] not in text
    lines = log(portal, "forged").splitlines()
    assert sum("forged" in line for line in lines) == 1
    assert "\\x0a2026-01-01T00:00:00Z forged\\x1b[2J\\x202e" in text
    assert "\x1b" not in text
    for name in ("portal-here.log", "changes-here.jsonl"):
        assert (portal.socket.parent / "logs" / name).stat().st_mode & 0o777 == 0o600


def test_changes_and_attempts_are_written_down(portal: Served) -> None:
    portal.sign_in()
    portal.ask("PUT", "/api/v1/probe/change", portal.browser)
    portal.ask("PUT", "/api/v1/probe/change", {"X-Hpcbench": "1"})
    portal.get("/api/v1/session")
    lines = log(portal, "401", "changes-here.jsonl").splitlines()
    found = [json.loads(line) for line in lines]
    assert [(one["method"], one["path"], one["status"]) for one in found] == [
        ("POST", "/api/v1/session", 200),
        ("PUT", "/api/v1/probe/change", 200),
        ("PUT", "/api/v1/probe/change", 401),
    ]
    assert found[1]["who"].startswith("session:")
    assert found[2]["who"] == "-"


def test_a_log_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "portal-h.log").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        Journal(tmp_path, "h")


# --- what may be changed at all (15)


def test_it_is_read_only_unless_the_user_asked(portal: Served) -> None:
    portal.sign_in()
    for method, path in (
        ("POST", "/api/v1/definitions"),
        ("PUT", "/api/v1/definitions/x"),
        ("DELETE", "/api/v1/definitions/x"),
        ("POST", "/api/v1/submissions"),
    ):
        found = portal.ask(method, path, portal.browser, {})
        assert (found.status, found.fault) == (403, "refused"), path
        assert "--allow-" in found.data["remedy"]


# --- bounds (17)


def test_a_large_body_is_refused_unread(portal: Served) -> None:
    head = f"PUT /api/v1/probe/change HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {'o' * 43}\r\n"
    found = portal.raw(
        f"{head}X-Hpcbench: 1\r\nContent-Length: 1000001\r\nConnection: close\r\n\r\n".encode()
    )
    assert status(found) == 413
    assert status(portal.raw(f"{head}Content-Length: {'9' * 30}\r\n\r\n".encode())) in {400, 413}
    small = portal.ask("PUT", "/api/v1/probe/change", portal.owner, b"x" * 1_000_000)
    assert small.data == {"bytes": 1_000_000}


@pytest.mark.parametrize("path", ["change", "model"])
def test_a_large_body_in_pieces_is_refused_too(portal: Served, path: str) -> None:
    head = (
        f"PUT /api/v1/probe/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {'o' * 43}\r\n"
        "X-Hpcbench: 1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        "Connection: close\r\n\r\n"
    )
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    found = portal.raw(head.encode() + piece * 20 + b"0\r\n\r\n")
    assert status(found) in {0, 413}, "refused, or cut while we were still sending"
    assert b'"bytes"' not in found


@pytest.mark.long
def test_a_large_answer_is_refused_or_cut(portal: Served) -> None:
    whole = portal.get("/api/v1/probe/large")
    assert (whole.status, whole.fault) == (500, "too_large")
    head = GET.format(
        "/api/v1/probe/large?cut=1", f"Host: localhost\r\nAuthorization: Bearer {'o' * 43}\r\n"
    )
    cut = portal.raw(head.encode())
    assert status(cut) == 200
    assert len(cut) < 66_000_000
    assert not cut.endswith(b"0\r\n\r\n"), "the reader sees that it is not whole"


def test_there_are_not_too_many_connections(portal: Served) -> None:
    lines = []
    try:
        for _ in range(protocol.MOST_CONNECTIONS):
            line = socket.create_connection(("127.0.0.1", portal.port))
            line.settimeout(20)
            lines.append(line)
            who = f"Host: localhost\r\nAuthorization: Bearer {'o' * 43}\r\n"
            line.sendall(f"GET /api/v1/events HTTP/1.1\r\n{who}\r\n".encode())
            assert line.recv(65536).startswith(b"HTTP/1.1 200")
        found = portal.raw(b"")
        assert status(found) == 503
        head, _, body = found.partition(b"\r\n\r\n")
        assert json.loads(body)["code"] == "busy"
        assert int(re.search(rb"Content-Length: (\d+)", head)[1]) == len(body)  # type: ignore[index]
        lines.pop().close()
        deadline = time.monotonic() + 60
        while status(portal.raw(GET.format("/healthz", "Host: localhost\r\n").encode())) != 200:
            assert time.monotonic() < deadline, "the place of one that has gone is not free"
    finally:
        for line in lines:
            line.close()


SLOW = {
    "say nothing": b"",
    "send half a head": b"GET /healthz HTTP/1.1\r\nHost: loc",
    "send half a second head": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /hea",
    "send half a body": b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nX-Hpcbench: 1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{",
    "send a body that nobody reads": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 900\r\n\r\n{",
    "are idle": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
"""Requests of connections that take places."""


@pytest.mark.long
@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("what", SLOW)
def test_hundreds_of_slow_connections_keep_no_user_out(
    portal: Served, what: str, unix: bool
) -> None:
    lines = []
    try:
        for number in range(200):
            line = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
            line.settimeout(20)
            line.connect(str(portal.socket) if unix else ("127.0.0.1", portal.port))
            lines.append(line)
            with contextlib.suppress(ConnectionError):
                line.sendall(SLOW[what])
            if number % 50 == 49:
                for _ in range(5):
                    answer = portal.raw(
                        GET.format("/healthz", "Host: localhost\r\n").encode(), unix=unix
                    )
                    assert status(answer) == 200
    finally:
        for line in lines:
            line.close()


@pytest.mark.parametrize(
    "what", [one for one in SLOW if one not in {"are idle", "send half a body"}]
)
def test_who_drips_loses_his_place(
    portal: Served, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(protocol, "SLOWEST_HEAD_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", portal.port)) as line:
        line.settimeout(0.02)
        line.sendall(SLOW[what])
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                if line.recv(65536) == b"":
                    return
            except TimeoutError:
                with contextlib.suppress(ConnectionError):
                    line.sendall(b"x" if SLOW[what] else b"")
            except ConnectionError:
                return
        raise AssertionError("it still has its place")


def test_who_says_nothing_loses_his_place(portal: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "SLOWEST_HEAD_SECONDS", 0.05)
    for started in (b"", b"GET /healthz HTTP/1.1\r\nHost: loc"):
        assert portal.raw(started) == b"", "closed by the portal"


def test_a_route_that_hangs_is_given_up(portal: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SLOWEST_SECONDS", 0.05)
    found = portal.get(f"/api/v1/events/poll?after={portal.portal.hub.seq}&wait=20")
    assert (found.status, found.fault) == (503, "busy")
    assert portal.get("/healthz").status == 200


def test_short_of_memory_it_takes_no_work_but_stays_up(portal: Served) -> None:
    portal.access.crowded = True
    assert portal.get("/api/v1/session").status == 503
    assert portal.get("/api/v1/events/poll").status == 200
    assert portal.get("/healthz").status == 200


def test_streams_and_renewals_do_not_keep_it_alive(portal: Served) -> None:
    portal.sign_in()
    portal.portal.used = 0.0
    for method, path in (
        ("GET", "/healthz"),
        ("GET", "/api/v1/events/poll"),
        ("POST", "/api/v1/session/refresh"),
    ):
        portal.ask(method, path, portal.browser)
    portal.ask("GET", "/api/v1/session", {"Authorization": "Bearer x"})
    assert portal.portal.used == 0.0
    portal.get("/api/v1/session")
    assert portal.portal.used > 0.0


# --- behind a proxy (14)

FORWARDED = {
    "X-Forwarded-Host": "ondemand.example.edu",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-User": "root",
    "X-Forwarded-For": "192.0.2.9",
    "Forwarded": "for=192.0.2.9;host=ondemand.example.edu",
}


def by_proxy(folder: Path) -> Any:
    # The proxy's account is our own here: its account alone distinguishes it from others.
    doorkeeper = peer_accounts.Doorkeeper(uid=-1, proxy_uid=os.geteuid())
    return served(
        folder,
        options=Options(folder, root_path="/node/n1/8080"),
        doorkeeper=doorkeeper,
        hosts=frozenset({"n1.cluster"}),
    )


def test_a_proxy_may_pass_the_prefix_or_take_it_off(tmp_path: Path) -> None:
    with by_proxy(tmp_path) as portal:
        for path in ("/node/n1/8080/api/v1/session", "/api/v1/session"):
            assert portal.get(path).status == 200, path
        for path in ("/node/n1/8080", "/node/n1/8080/", "/"):
            assert portal.ask("GET", path).status == 200, path
        for path in ("/node/n1/80801/healthz", "/node/n2/8080/healthz"):
            assert portal.ask("GET", path).status == 401, path
        found = portal.ask("GET", "/node/n1/8080/plain")
        assert found.header("location") == "plain/login", "relative: right under any prefix"


def test_cookies_go_to_the_prefix_only_and_are_secure_through_https(tmp_path: Path) -> None:
    with by_proxy(tmp_path) as portal:
        code = portal.access.desk.sessions.code()
        given = {
            **FORWARDED, "Host": "n1.cluster:8080", "X-Hpcbench": "1",
            "Origin": "https://ondemand.example.edu", "Sec-Fetch-Site": "same-origin",
        }  # fmt: skip
        found = portal.ask("POST", "/node/n1/8080/api/v1/session", given, {"code": code})
        assert found.status == 200
        cookies = sorted(value for name, value in found.headers if name == "set-cookie")
        assert "Path=/node/n1/8080/api/v1/session;" in cookies[0]
        assert "Path=/node/n1/8080/;" in cookies[1]
        assert all("Secure" in one for one in cookies)


def test_the_proxys_own_site_may_ask_and_no_other(tmp_path: Path) -> None:
    with by_proxy(tmp_path) as portal:
        given = {**portal.owner, **FORWARDED, "Host": "n1.cluster:8080"}
        for origin, wanted in (
            ("https://ondemand.example.edu", 201),
            ("https://evil.example", 403),
        ):
            found = portal.ask("POST", "/api/v1/tokens", {**given, "Origin": origin}, {"name": "x"})
            assert found.status == wanted, origin
        chained = {**given, "X-Forwarded-Host": "evil.example, ondemand.example.edu"}
        for origin, wanted in (
            ("https://ondemand.example.edu", 201),
            ("https://evil.example", 403),
        ):
            found = portal.ask(
                "POST", "/api/v1/tokens", {**chained, "Origin": origin}, {"name": "x"}
            )
            assert found.status == wanted, "what the browser claimed does not count"


def test_no_other_client_is_believed_about_where_it_comes_from(portal: Served) -> None:
    portal.sign_in()
    given = {**portal.browser, **FORWARDED, "Origin": "https://ondemand.example.edu"}
    assert portal.ask("PUT", "/api/v1/probe/change", given).status == 403
    found = portal.get("/api/v1/probe/headers", {**portal.owner, **FORWARDED}).data
    assert not [name for name in found["headers"] if "forwarded" in name]
    assert found["url"].startswith("http://")
    signed = portal.ask(
        "POST", "/api/v1/session", {**portal.browser, **FORWARDED},
        {"code": portal.access.desk.sessions.code()},
    )  # fmt: skip
    assert "Secure" not in signed.header("set-cookie")


def test_no_client_is_believed_to_be_a_user_by_a_header(portal: Served, tmp_path: Path) -> None:
    named = {"X-Forwarded-User": "root", "Remote-User": "root", "X-Remote-User": "root"}
    assert portal.get("/api/v1/session", named).status == 401
    (tmp_path / "proxy").mkdir()
    with by_proxy(tmp_path / "proxy") as behind:
        assert behind.get("/api/v1/session", named).status == 401, "not from the proxy either"
        seen = behind.get("/api/v1/session", {**behind.owner, **named})
        assert seen.status == 200


def test_node_names_are_ours_behind_a_proxy_only(tmp_path: Path, portal: Served) -> None:
    (tmp_path / "proxy").mkdir()
    with by_proxy(tmp_path / "proxy") as behind:
        for host in ("n1.cluster", "n1.cluster:8080"):
            assert behind.get("/healthz", {"Host": host}).status == 200
        assert behind.get("/healthz", {"Host": "n2.cluster"}).status == 400
    assert portal.get("/healthz", {"Host": "n1.cluster"}).status == 400
