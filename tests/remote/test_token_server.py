"""Tokens of a real server: glewlwyd of Debian on SQLite, with refresh tokens that work once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.oauth import token_file
from hpcbench.oauth.keeper import Keeper, TokenRefused
from hpcbench.oauth.options import AuthOptions
from hpcbench.oauth.token_file import Store
from hpcbench.oauth.token_server import TokenServer
from tests.cluster import packages
from tests.conftest import unavailable
from tests.remote.sshd import free_port

LIBRARY = "usr/lib/x86_64-linux-gnu"
LIFETIME = 2


def unpacked(folder: Path) -> Path:
    """Debian's packages of the server, unpacked: nothing is installed, no service starts."""
    root = folder / "root"
    if root.exists():
        return root
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _download(folder)
    except (OSError, subprocess.CalledProcessError):
        with packages.alone():  # a fresh machine has no lists of packages
            subprocess.run(
                [*packages.APT_GET, "update"],
                env=packages.APT_ENV,
                capture_output=True,
                check=False,
            )
        try:
            _download(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            unavailable(f"glewlwyd cannot be had here: {error}")
    partial = folder / f"root.{os.getpid()}"
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, partial], check=True)
    with contextlib.suppress(OSError):  # another process was first
        partial.rename(root)
    return root


def _download(folder: Path) -> None:
    """Get the server's package and those that it needs and this machine lacks."""
    asked = subprocess.run(
        ["apt-get", "install", "-s", "glewlwyd"], capture_output=True, text=True, check=True
    )
    names = [line.split()[1] for line in asked.stdout.splitlines() if line.startswith("Inst ")]
    subprocess.run(
        ["apt-get", "download", "-q", *names], cwd=folder, capture_output=True, check=True
    )


class Glewlwyd:
    """The server, its client `service` and its user `bench`."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.port = root, folder, free_port()
        self.url = f"http://localhost:{self.port}/api"
        documents = root / "usr/share/doc/glewlwyd"
        database = folder / "glewlwyd.db"
        with gzip.open(documents / "database/init.sqlite3.sql.gz", "rt") as script:
            connection = sqlite3.connect(database)
            connection.executescript(script.read())
            connection.close()
        settings = gzip.decompress((documents / "glewlwyd.conf.sample.gz").read_bytes()).decode()
        for old, new in (
            ("/usr/lib/glewlwyd", f"{root}/usr/lib/glewlwyd"),
            ("/usr/share/glewlwyd", f"{root}/usr/share/glewlwyd"),
            ("/var/cache/glewlwyd/glewlwyd.db", str(database)),
            ("4593", str(self.port)),
            ("cookie_secure=1", "cookie_secure=0"),
        ):
            settings = settings.replace(old, new)
        (folder / "glewlwyd.conf").write_text(settings)
        self._cookie = ""
        self.start()
        self._set_up()

    def start(self) -> None:
        """Run it until it answers."""
        library = str(self.root / LIBRARY)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.root / "usr/bin/glewlwyd", "--config-file", self.folder / "glewlwyd.conf"],
                env={**os.environ, "LD_LIBRARY_PATH": library}, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while True:
            try:
                self._call("/auth/", {"username": "admin", "password": "password"})
                return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait(10)

    def as_client(self, path: str, **form: str) -> dict[str, Any]:
        """A request of the client `service` about a token."""
        basic = base64.b64encode(b"service:service-secret").decode()
        request = urllib.request.Request(
            f"{self.url}/oidc/{path}",
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {basic}"},
        )
        with urllib.request.urlopen(request) as answer:
            found: dict[str, Any] = json.loads(answer.read() or b"{}")
            return found

    def active(self, access: str) -> bool:
        """Whether the server takes a token: RFC 7662."""
        return bool(self.as_client("introspect", token=access)["active"])

    def revoke(self, token: str) -> None:
        """Revoke an access token or a refresh token: RFC 7009."""
        self.as_client("revoke", token=token)

    def _call(self, path: str, data: dict[str, Any]) -> None:
        request = urllib.request.Request(
            self.url + path, json.dumps(data).encode(), {"Content-Type": "application/json"}
        )
        if self._cookie:
            request.add_header("Cookie", self._cookie)
        try:
            with urllib.request.urlopen(request) as answer:
                self._cookie = (
                    answer.headers["Set-Cookie"].split(";")[0] if path == "/auth/" else self._cookie
                )
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read()!r}") from None

    def _set_up(self) -> None:
        self._call(
            "/scope/",
            {
                "name": "inference",
                "display_name": "i",
                "description": "d",
                "password_required": False,
            },
        )
        on, off = ("client", "password", "refresh"), ("code", "token", "implicit", "none", "device")
        self._call("/mod/plugin/", {
            "module": "oidc", "name": "oidc", "display_name": "o", "order_rank": 0,
            "parameters": {
                "iss": f"{self.url}/oidc", "jwt-type": "sha", "jwt-key-size": "256", "key": "k" * 40,
                "access-token-duration": LIFETIME, "refresh-token-duration": 1000, "code-duration": 600,
                "refresh-token-rolling": False, "refresh-token-one-use": "always", "allow-non-oidc": True,
                "auth-type-id-token-enabled": True,
                "introspection-revocation-allowed": True,
                "introspection-revocation-allow-target-client": True,
                **{f"auth-type-{name}-enabled": name in on for name in (*on, *off)},
            },
        })  # fmt: skip
        self._call("/user/", {
            "username": "bench", "name": "b", "email": "", "enabled": True, "password": "user-password",
            "scope": ["inference"],
        })  # fmt: skip
        self._call("/client/", {
            "client_id": "service", "name": "s", "confidential": True, "enabled": True,
            "password": "service-secret", "client_secret": "service-secret", "scope": ["inference"],
            "authorization_type": ["client_credentials", "password", "refresh_token"],
            "redirect_uri": [], "token_endpoint_auth_method": ["client_secret_basic", "client_secret_post"],
        })  # fmt: skip


@pytest.fixture(scope="module")
def glewlwyd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Glewlwyd]:
    shared = Path("/var/lib/hpcbench-lab")
    here = shared if os.access(shared, os.W_OK) else tmp_path_factory.mktemp("packages")
    server = Glewlwyd(unpacked(here / "glewlwyd"), tmp_path_factory.mktemp("glewlwyd"))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_SECRET", "service-secret")
    monkeypatch.setenv("USER_PASSWORD", "user-password")


def source(glewlwyd: Glewlwyd, folder: Path, grant: str, **more: Any) -> TokenServer:
    if grant == "password":
        more |= {"username": "bench", "password": "${env:USER_PASSWORD}"}
    options = AuthOptions(
        issuer=f"{glewlwyd.url}/oidc", client_id="service", client_secret="${env:SERVICE_SECRET}",
        grant_type=grant, scope="inference", **more,
    )  # type: ignore[arg-type]  # fmt: skip
    return TokenServer(options, Store(options.key, folder / "auth"), poll=0.05)


def end(access: str) -> float:
    """The server's own end of a token, seconds since the epoch."""
    part = access.split(".")[1]
    found: float = json.loads(base64.urlsafe_b64decode(part + "=="))["exp"]
    return found


@pytest.mark.parametrize(("grant", "wrong_by"), [("client_credentials", -3600), ("password", 3600)])
async def test_two_keepers_share_tokens_of_two_seconds_and_no_request_gets_an_expired_one(
    glewlwyd: Glewlwyd, tmp_path: Path, grant: str, wrong_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + wrong_by)  # our clock
    seen: set[str] = set()
    stalls = 0
    async with (
        Keeper(source(glewlwyd, tmp_path, grant)).running() as one,
        Keeper(source(glewlwyd, tmp_path, grant)).running() as two,
    ):
        until = token_file.now() + 3 * LIFETIME
        while token_file.now() < until:
            for keeper in (one, two):
                access = keeper.ready() or await keeper.wait(20)
                seen.add(access)
                # The server's times are whole seconds, cut down.
                assert real() < end(access) + 1
            slept = token_file.now()
            await asyncio.sleep(0.05)
            stalls += token_file.now() - slept > LIFETIME / 4
    figures = one.figures.granted + two.figures.granted
    asked = figures["full_auth"] + figures["refresh_token"]
    assert 3 <= len(seen) <= 6
    # The last token, and one of a time when this machine did nothing for us, may have come unseen.
    assert len(seen) <= asked <= len(seen) + 1 + stalls, "one request for each token"
    assert not one.figures.failed + two.figures.failed
    if grant == "password":
        assert figures["full_auth"] == 1, "every later one came by a refresh token that works once"


async def test_a_server_that_is_killed_and_comes_back(glewlwyd: Glewlwyd, tmp_path: Path) -> None:
    async with Keeper(source(glewlwyd, tmp_path, "password")).running() as keeper:
        first = await keeper.wait(20)
        glewlwyd.stop()
        assert keeper.ready() == first
        await asyncio.sleep(LIFETIME * 1.5)
        assert keeper.ready() is None
        assert "cannot be reached" in (keeper.look().why or "")
        await asyncio.to_thread(glewlwyd.start)
        assert await keeper.wait(20) != first
    assert keeper.figures.granted["refresh_token"] == 1, "the outage used up no refresh token"


async def test_a_refresh_token_that_was_used_elsewhere_ends_in_a_full_authentication(
    glewlwyd: Glewlwyd, tmp_path: Path
) -> None:
    server = source(glewlwyd, tmp_path, "password")
    first = await server.obtain(None, full=False)
    copy = tmp_path / "copy" / "auth"
    copy.parent.mkdir()
    copy.mkdir(mode=0o700)
    for path in (tmp_path / "auth").glob("*.json"):
        (copy / path.name).write_bytes(path.read_bytes())
        (copy / path.name).chmod(0o600)
    thief = source(glewlwyd, tmp_path / "copy", "password")
    assert (await thief.obtain(first.token.access, full=False)).kind == "refresh_token"
    second = await server.obtain(first.token.access, full=False)
    assert (second.kind, second.fallback) == ("full_auth", True)


async def test_a_revoked_token_and_a_revoked_refresh_token_end_in_a_full_authentication(
    glewlwyd: Glewlwyd, tmp_path: Path
) -> None:
    server = source(glewlwyd, tmp_path, "password")
    async with Keeper(server).running() as keeper:
        first = await keeper.wait(20)
        assert glewlwyd.active(first)
        glewlwyd.revoke(first)
        assert not glewlwyd.active(first)
        keeper.reject(first)  # as the relay does when the endpoint answers 401
        second = await keeper.wait(20)
        assert glewlwyd.active(second)
        assert keeper.figures.granted["full_auth"] == 2
        assert keeper.figures.rejected == 1
    record = await server._read()
    assert record is not None and record.refresh
    glewlwyd.revoke(record.refresh)
    later = await server.obtain(second, full=False)
    assert (later.kind, later.fallback) == ("full_auth", True)


PLAN = """\
name: behind-a-gateway
run_tasks:
  - {name: vqa, ml_task: vqa, model: hosted, dataset: demo_vqa, split: easy, prompt: demo_vqa, limit: 2}
"""
HOSTED = """\
name: hosted
engine: remote
engine_options:
  base_url: http://localhost:9/v1
  model: m
  auth:
    issuer: URL/oidc
    client_id: service
    client_secret: ${env:SERVICE_SECRET}
    scope: inference
"""


@pytest.mark.parametrize("verb", [["validate", "--tokens"], ["submit"]])
def test_a_wrong_secret_is_one_line_before_anything_is_submitted(
    glewlwyd: Glewlwyd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], verb: list[str],
) -> None:  # fmt: skip
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    (tmp_path / "registry" / "models").mkdir(parents=True)
    hosted = HOSTED.replace("URL", glewlwyd.url)
    (tmp_path / "registry" / "models" / "hosted.yaml").write_text(hosted)
    (tmp_path / "plan.yaml").write_text(PLAN)
    ask = [*verb, str(tmp_path / "plan.yaml"), "--registry", str(tmp_path / "registry")]
    if verb[0] == "validate":
        assert main(ask) == 0
    monkeypatch.setenv("SERVICE_SECRET", "some-other-secret")
    shutil.rmtree(tmp_path / "STATE", ignore_errors=True)
    assert main(ask) == 2
    said = capsys.readouterr().err
    (line,) = [one for one in said.splitlines() if "no token for model 'hosted'" in one]
    assert "the token server answers 40" in line
    assert "some-other-secret" not in said
    assert not list((tmp_path / "home").glob("experiments/*/manifest.json"))


def test_a_wrong_secret_is_refused_in_one_line(
    glewlwyd: Glewlwyd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_SECRET", "some-other-secret")
    with pytest.raises(TokenRefused, match="the token server answers 40[0-3]") as found:
        asyncio.run(source(glewlwyd, tmp_path, "client_credentials").obtain(None, full=False))
    assert "some-other-secret" not in str(found.value)
