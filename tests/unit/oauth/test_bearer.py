"""Tokens of a token server for HTTP storage and trackers, against a server that checks them."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from hpcbench import plugins
from hpcbench.cli.main import main
from hpcbench.data.storage import open_storage
from hpcbench.data.web import HttpStorage, HubStorage
from hpcbench.errors import EnvironmentFault, HpcbenchError, UserError
from hpcbench.oauth import lifecycle
from hpcbench.oauth.bearer import Bearer
from hpcbench.oauth.options import AuthOptions
from hpcbench.schema.outputs import Tracker
from hpcbench.tracking.mlflow import MlflowOptions, MlflowTracker
from hpcbench.tracking.phoenix import PhoenixTracker
from hpcbench.tracking.server_requests import Web
from tests.unit.tracked import ended

SECRET = "storage-secret-42"
FILES = {"/data/": b'<a href="a.txt">a</a>', "/data/a.txt": b"pixels"}


class Protected:
    """Gives tokens at `/token`, and files to those that have one."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.ends: dict[str, float] = {}
        """Valid tokens → their end."""
        self.lifetime = 3600.0
        self.refused = 0
        self.slow = 0.0
        """Seconds that an answer with a token takes."""
        self.away = 0
        """Requests for tokens that the server cannot answer."""
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if self.path != "/token":
                    return self.do_GET()
                time.sleep(outer.slow)
                if outer.away:
                    outer.away -= 1
                    return self._say(503, b"")
                if parse_qs(body.decode()).get("client_secret") != [SECRET]:
                    return self._say(401, b'{"error": "invalid_client"}')
                access = f"token-{len(outer.given)}-abcdef"
                outer.given.append(access)
                outer.ends[access] = time.monotonic() + outer.lifetime
                answer = {
                    "access_token": access,
                    "token_type": "bearer",
                    "expires_in": outer.lifetime,
                }
                return self._say(200, json.dumps(answer).encode())

            def do_GET(self) -> None:
                access = (self.headers["Authorization"] or "").removeprefix("Bearer ")
                if outer.ends.get(access, 0) < time.monotonic():
                    outer.refused += 1
                    return self._say(401, json.dumps({"detail": f"{access} is over"}).encode())
                return self._say(200 if self.path in FILES else 404, FILES.get(self.path, b"{}"))

            do_HEAD = do_GET

            def _say(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def auth(self, **more: Any) -> dict[str, Any]:
        return {
            "token_url": f"{self.url}/token", "client_id": "bench", "client_auth": "client_secret_post",
            "client_secret": "${env:STORAGE_SECRET}", **more,
        }  # fmt: skip


@pytest.fixture
def protected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Protected]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("STORAGE_SECRET", SECRET)
    found = Protected()
    yield found
    found.server.shutdown()
    found.server.server_close()


def read(protected: Protected) -> bytes:
    url = f"{protected.url}/data/"
    storage = open_storage(url, {"auth": protected.auth()})
    (file,) = storage.list(url)
    return b"".join(storage.read(url, file, 0, file.size))


def test_a_protected_folder_is_read_and_later_readers_need_no_further_token(
    protected: Protected,
) -> None:
    assert read(protected) == read(protected) == b"pixels"
    assert (len(protected.given), protected.refused) == (1, 0)


def test_a_mirror_of_the_hub_behind_a_gateway_gets_tokens_too(protected: Protected) -> None:
    options = {"auth": protected.auth(), "endpoint": protected.url}
    with pytest.raises(FileNotFoundError):  # this is no hub
        list(open_storage("hf://datasets/a/b", options).list("hf://datasets/a/b"))
    assert (len(protected.given), protected.refused) == (1, 0)


@pytest.mark.long
def test_tokens_that_end_or_are_revoked_between_two_requests(protected: Protected) -> None:
    url, protected.lifetime = f"{protected.url}/data/", 1.0
    storage = open_storage(url, {"auth": protected.auth()})
    (file,) = storage.list(url)
    for _ in range(4):
        assert b"".join(storage.read(url, file, 0, file.size)) == b"pixels"
        time.sleep(0.4)
    assert protected.refused == 0
    assert len(protected.given) >= 2
    protected.lifetime = 3600
    time.sleep(1)
    assert b"".join(storage.read(url, file, 0, file.size)) == b"pixels"
    protected.ends.clear()
    assert b"".join(storage.read(url, file, 0, file.size)) == b"pixels"
    protected.ends.clear()
    assert [one.path for one in storage.list(url)] == ["a.txt"]
    assert protected.refused == 2


def test_without_a_token_the_reason_is_the_servers(
    protected: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_SECRET", "wrong-secret")
    with pytest.raises(HpcbenchError, match="401: invalid_client") as found:
        read(protected)
    assert "wrong-secret" not in str(found.value)
    monkeypatch.delenv("STORAGE_SECRET")
    with pytest.raises(EnvironmentFault, match="STORAGE_SECRET}: the variable is not set"):
        read(protected)


@pytest.mark.long
def test_a_short_outage_of_the_token_server_is_waited_for(
    protected: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected.away = 2
    begin = time.monotonic()
    assert read(protected) == b"pixels"
    assert 0.7 < time.monotonic() - begin < 10, "pauses of 0.5 and 1 s, somewhat shortened"
    monkeypatch.setattr("hpcbench.oauth.bearer.PATIENCE", 0.2)
    protected.away = 100
    bearer = Bearer(AuthOptions(**protected.auth(scope="other")))
    with pytest.raises(EnvironmentFault, match="the token server answers 503"):
        bearer.token()


@pytest.mark.long
def test_a_token_that_works_is_used_while_its_successor_is_asked_for(
    protected: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "MARGIN_SHARE", 0.6)
    monkeypatch.setattr("hpcbench.oauth.bearer.any_jitter", lambda: 0.0)
    bearer = Bearer(AuthOptions(**protected.auth()))
    protected.lifetime = 5.0
    first = bearer.token()
    protected.slow = 1.0
    time.sleep(2.1)  # it is stale, and ends after 4.5 s
    begin = time.monotonic()
    assert bearer.token() == first
    assert time.monotonic() - begin < 0.5
    time.sleep(1.2)
    assert bearer.token() == protected.given[-1] != first
    assert len(protected.given) == 2


def test_a_tracker_sends_tokens_and_asks_once_more_after_a_401(protected: Protected) -> None:
    web = Web(protected.url, {}, bearer=Bearer(AuthOptions(**protected.auth())))
    assert web.json("POST", "/v1/projects", {})[0] == 404
    protected.ends.clear()
    assert web.json("POST", "/v1/projects", {})[0] == 404
    assert (len(protected.given), protected.refused) == (2, 1)
    protected.ends.clear()
    protected.lifetime = -1  # the server rejects what it gives
    for _ in range(5):
        assert web.json("POST", "/v1/projects", {})[0] == 401
    assert len(protected.given) == 3, "after two rejected in a row it waits for the next one"


@pytest.mark.long
def test_a_tracker_that_repeats_the_token_does_not_show_it(
    protected: Protected, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The token is known to the tracker's own process alone."""
    protected.lifetime = -1  # the server rejects what it gives
    options = {"url": protected.url, "auth": protected.auth()}
    here = ended(tmp_path, 1, trackers=[Tracker(plugin="phoenix", options=options)])
    assert main(["track", str(here.path)]) == 3
    said = capsys.readouterr().err
    assert "answers 401" in said
    assert "*** is over" in said
    assert protected.given
    for hidden in (SECRET, *protected.given):
        assert hidden not in said
        files = [one for one in here.path.rglob("*") if one.is_file()]
        assert not [one for one in files if hidden.encode() in one.read_bytes()]


def test_mlflows_client_gets_the_present_token(
    protected: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    from hpcbench.tracking.mlflow import _client

    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "another")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "password")
    options = MlflowOptions(url=protected.url, auth=protected.auth())  # type: ignore[arg-type]
    client = _client(options)
    bearer = options.bearer()
    assert bearer is not None
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", bearer.token())
    with pytest.raises(mlflow.exceptions.MlflowException):
        client.get_run("0" * 32)  # 404: this is no MLflow
    assert (protected.refused, len(protected.given)) == (0, 1)


@pytest.mark.parametrize("plugin", [HttpStorage, HubStorage, MlflowTracker, PhoenixTracker])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"client_secret": "plain"}, "write ${env:NAME}"),
        ({"token_url": "http://far.example/token"}, "http:// would send secrets"),
        ({"grant": "password"}, "unknown option 'grant'"),
    ],
)
def test_options_are_checked_before_anything_is_asked(
    plugin: Any, change: dict[str, Any], said: str
) -> None:
    auth = {
        "token_url": "https://x/token", "client_id": "c", "client_secret": "${env:STORAGE_SECRET}",
        **change,
    }  # fmt: skip
    options = {"auth": auth} | ({} if "Storage" in plugin.__name__ else {"url": "https://x"})
    found = [message for _, message in plugins.check_options(plugin, options)]
    assert len(found) == bool(said), found
    assert all(said in message for message in found)


def test_a_fixed_token_of_a_storage_is_a_reference(
    protected: Protected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIXED", "fixed-token")
    protected.ends["fixed-token"] = time.monotonic() + 60
    url = f"{protected.url}/data/"
    storage = open_storage(url, {"auth": {"type": "bearer", "token": "${env:FIXED}"}})
    assert len(list(storage.list(url))) == 1
    with pytest.raises(UserError, match="'token' is missing"):
        open_storage(url, {"auth": {"type": "bearer"}})
    both = {"auth": protected.auth(), "headers": {"authorization": "Basic x"}}
    with pytest.raises(UserError, match="`auth` and `headers` both say who asks"):
        open_storage(url, both)
