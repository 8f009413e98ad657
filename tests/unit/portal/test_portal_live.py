"""The stream, the WebSocket and asking: same messages, resuming, and ends."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpcbench.portal.models.live import ClusterNews, News
from hpcbench.portal.models.sessions import NewToken
from hpcbench.portal.routes import live
from tests.unit.portal.served import Served, new_desk, served


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("live")) as portal:
        yield portal


@pytest.fixture
def portal(house: Served) -> Served:
    house.access.desk = new_desk(house.socket.parent, house.clock)
    house.cookies.clear()
    return house


def news(seq: int, time: float) -> News:
    return ClusterNews(seq=seq, time=time)


class Stream:
    """A reader of server-sent events over a bare socket."""

    def __init__(self, line: socket.socket) -> None:
        self._file = line.makefile("rb")
        self.head = self._until(b"\r\n\r\n").decode()

    def _until(self, mark: bytes) -> bytes:
        got = b""
        while not got.endswith(mark):
            more = self._file.read(1)
            if not more:
                raise EOFError(got)
            got += more
        return got

    def close(self) -> None:
        """Hang up: the socket is closed with the file."""
        self._file.close()

    def until_the_end(self) -> None:
        """Read on until the other end closes."""
        with contextlib.suppress(EOFError):
            while self.text():
                pass

    def text(self) -> str:
        """The next piece: an event or a comment."""
        size = int(self._until(b"\r\n"), 16)
        if size == 0:
            raise EOFError
        piece = self._file.read(size + 2)
        return piece[:-2].decode()

    def event(self) -> dict[str, str]:
        """The next event's fields."""
        while (text := self.text()).startswith(":"):
            pass
        return dict(line.split(": ", 1) for line in text.strip().splitlines())


@contextmanager
def streaming(
    portal: Served, given: dict[str, str], path: str = "/api/v1/events"
) -> Iterator[Stream]:
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    with socket.create_connection(("127.0.0.1", portal.port)) as line:
        line.settimeout(20)
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: {portal.host}\r\n{lines}\r\n".encode())
        stream = Stream(line)
        yield stream
        stream.close()


def test_a_stream_tells_what_happens(portal: Served) -> None:
    portal.sign_in()
    hub = portal.portal.hub
    with streaming(portal, portal.browser) as stream:
        assert stream.head.startswith("HTTP/1.1 200")
        head = stream.head.lower()
        assert "content-type: text/event-stream" in head
        assert "x-accel-buffering: no" in head
        assert "cache-control: no-store, no-transform" in head
        assert "content-encoding" not in head
        first = stream.event()
        assert first == {"retry": "2000", "id": str(hub.seq)}, "a place to resume from at once"
        hub.publish(news)
        event = stream.event()
        assert event["id"] == str(hub.seq)
        assert json.loads(event["data"]) == {
            "kind": "cluster", "seq": hub.seq, "time": pytest.approx(hub.since(hub.seq - 1).news[0].time),
        }  # fmt: skip


def test_a_stream_is_not_packed(portal: Served) -> None:
    given = {**portal.owner, "Accept-Encoding": "gzip"}
    with streaming(portal, given) as stream:
        assert "gzip" not in stream.head
        assert stream.event()["retry"]


@pytest.mark.parametrize("how", ["header", "query"])
def test_it_resumes_behind_the_last_message(portal: Served, how: str) -> None:
    hub = portal.portal.hub
    seen = hub.seq
    for _ in range(3):
        hub.publish(news)
    given, path = dict(portal.owner), "/api/v1/events"
    if how == "header":
        given["Last-Event-ID"] = str(seen)
        path += f"?after={hub.seq}"  # the header is newer: the browser sets it when it reconnects
    else:
        path += f"?after={seen}"
    with streaming(portal, given, path) as stream:
        assert stream.event()["id"] == str(seen)
        text = stream.event(), stream.event(), stream.event()
        assert [one["id"] for one in text] == [str(seen + n) for n in (1, 2, 3)]


@pytest.mark.parametrize("last", ["7", "99999999999999999999", "x", "-1", ""])
def test_a_place_that_is_not_known_is_reset_or_now(portal: Served, last: str) -> None:
    hub = portal.portal.hub
    with streaming(portal, {**portal.owner, "Last-Event-ID": last}) as stream:
        first = stream.event()
        if last == "7":
            assert json.loads(stream.event()["data"])["kind"] == "reset"
        else:
            assert first["id"] == str(hub.seq)


def test_silence_is_broken_for_proxies(portal: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.02)
    with streaming(portal, portal.owner) as stream:
        stream.event()
        assert stream.text() == ": still here\n\n"


def test_a_stream_ends_with_the_session(portal: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.02)
    portal.sign_in()
    token = portal.access.desk.tokens.create(NewToken(name="x"))
    bearer = {"Authorization": f"Bearer {token.token}"}
    with streaming(portal, portal.browser) as one, streaming(portal, bearer) as other:
        assert one.event()
        assert other.event()
        portal.ask("DELETE", "/api/v1/session", portal.browser)
        portal.access.desk.tokens.revoke(token.row.id)
        for stream in (one, other):
            stream.until_the_end()


def test_a_stream_outlives_the_quarter_of_an_hour(
    portal: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.02)
    portal.sign_in()
    with streaming(portal, portal.browser) as stream:
        stream.event()
        portal.clock.now += 3600
        assert stream.text()
        assert stream.text(), "the page that reads it renews the session meanwhile"
        portal.clock.now += 12 * 3600
        stream.until_the_end()


def test_who_reads_is_watched_until_he_goes(portal: Served) -> None:
    hub = portal.portal.hub
    with streaming(portal, portal.owner) as stream:
        stream.event()
        assert hub._readers == 1
    while hub._readers:
        time.sleep(0.01)


def test_asking_gives_the_same_messages(portal: Served) -> None:
    hub = portal.portal.hub
    start = portal.get("/api/v1/events/poll").data
    assert start == {"news": [], "seq": hub.seq}
    hub.publish(news)
    found = portal.get(f"/api/v1/events/poll?after={start['seq']}").data
    assert [one["seq"] for one in found["news"]] == [hub.seq]
    assert portal.get(f"/api/v1/events/poll?after={found['seq']}&wait=0.01").data["news"] == []
    assert portal.get("/api/v1/events/poll?after=5").data["news"][0]["kind"] == "reset"
    assert portal.get("/api/v1/events/poll?after=5&wait=1000").status == 422


# --- WebSocket, spoken by hand


def handshake(given: dict[str, str], path: str = "/api/v1/ws") -> bytes:
    key = base64.b64encode(os.urandom(16)).decode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return (
        f"GET {path} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{lines}\r\n"
    ).encode()


class WebSocket:
    """A client of a WebSocket over a bare socket."""

    def __init__(self, line: socket.socket) -> None:
        self._file = line.makefile("rb")
        self.head = b""
        while not self.head.endswith(b"\r\n\r\n"):
            self.head += self._file.read(1)

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    def close(self) -> None:
        """Hang up."""
        self._file.close()

    def message(self) -> Any:
        """The next text; None: the other end closes."""
        kind, size = self._file.read(2)
        if size == 126:
            size = int.from_bytes(self._file.read(2), "big")
        body = self._file.read(size)
        return json.loads(body) if kind & 0x0F == 1 else None


@contextmanager
def talking(portal: Served, given: dict[str, str], path: str = "/api/v1/ws") -> Iterator[WebSocket]:
    with socket.create_connection(("127.0.0.1", portal.port)) as line:
        line.settimeout(20)
        line.sendall(handshake({"Host": portal.host, **given}, path))
        web_socket = WebSocket(line)
        yield web_socket
        web_socket.close()


def test_a_web_socket_tells_the_same(portal: Served) -> None:
    hub = portal.portal.hub
    seen = hub.seq
    hub.publish(news)
    with talking(portal, portal.owner, f"/api/v1/ws?after={seen}") as line:
        assert line.status == 101
        assert line.message()["seq"] == seen + 1
        hub.publish(news)
        assert line.message()["seq"] == seen + 2


@pytest.mark.parametrize(
    "change", [{"Origin": "http://evil.example"}, {"Origin": "http://localhost:1"}, {"Origin": "null"},
               {"Origin": ""}, {"Sec-Fetch-Site": "cross-site"}, {"Cookie": ""}],
)  # fmt: skip
def test_a_web_socket_of_another_site_is_refused(portal: Served, change: dict[str, str]) -> None:
    """Browsers let any page open one, with our cookies."""
    portal.sign_in()
    given = {**portal.browser}
    del given["Sec-Fetch-Site"]
    with talking(portal, given) as line:
        assert line.status == 101
    refused = {name: value for name, value in {**given, **change}.items() if value}
    with talking(portal, refused) as line:
        assert line.status in {401, 403}
        assert b"content-security-policy" in line.head


def test_a_web_socket_needs_a_name_of_ours_and_a_user(portal: Served) -> None:
    with talking(portal, {}) as line:
        assert line.status == 401
    with talking(portal, {**portal.owner, "Host": "evil.example"}) as line:
        assert line.status == 400
    with talking(portal, portal.owner, "/api/v1/nothing") as line:
        assert line.status in {403, 404}
    with talking(portal, {}, "/ws") as line:
        assert line.status == 401


def test_a_web_socket_ends_with_the_token(portal: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.02)
    token = portal.access.desk.tokens.create(NewToken(name="x"))
    with talking(portal, {"Authorization": f"Bearer {token.token}"}) as line:
        assert line.status == 101
        portal.access.desk.tokens.revoke(token.row.id)
        assert line.message() is None


def test_all_streams_end_with_the_portal(tmp_path: Path) -> None:
    with (
        served(tmp_path) as portal,
        streaming(portal, portal.owner) as stream,
        talking(portal, portal.owner) as line,
    ):
        stream.event()
        portal.portal.hub.close()
        assert line.message() is None
        stream.until_the_end()
