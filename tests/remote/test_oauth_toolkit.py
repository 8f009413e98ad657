"""Tokens of a second real server, written by others than the first: django-oauth-toolkit.

Its refresh tokens rotate, and it takes a second use for theft: it revokes the whole chain.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from hpcbench.oauth import token_file
from hpcbench.oauth.keeper import Keeper, TokenRefused
from hpcbench.oauth.options import AuthOptions
from hpcbench.oauth.token_file import Store
from hpcbench.oauth.token_server import TokenServer
from tests.conftest import ROOT
from tests.remote.oauth_toolkit import CLIENT, LIFETIME, PASSWORD, SECRET, USER
from tests.remote.sshd import free_port

Grant = Literal["client_credentials", "password", "refresh_token"]


class Toolkit:
    """The server's process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://localhost:{self.port}/o/token/"
        self.start()

    def start(self) -> None:
        """Run it until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.remote.oauth_toolkit", self.folder, str(self.port)],
                cwd=ROOT, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(self.url).close()
            except urllib.error.HTTPError as error:
                error.close()
                return  # it wants a POST
            except OSError:
                log_text = (self.folder / "log").read_text()
                assert time.monotonic() < deadline, log_text
                assert self._process.poll() is None, log_text
                time.sleep(0.05)

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait(10)


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolkit]:
    server = Toolkit(tmp_path_factory.mktemp("toolkit"))
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_SECRET", SECRET)
    monkeypatch.setenv("USER_PASSWORD", PASSWORD)


def source(toolkit: Toolkit, folder: Path, grant: Grant = "password", **more: Any) -> TokenServer:
    if grant == "password":
        more |= {"username": USER, "password": "${env:USER_PASSWORD}"}
    of = "client-credentials" if grant == "client_credentials" else "password"
    options = AuthOptions(
        token_url=toolkit.url, client_id=f"{CLIENT}-{of}", client_secret="${env:SERVICE_SECRET}",
        grant_type=grant, scope="inference", **more,
    )  # fmt: skip
    return TokenServer(options, Store(options.key, folder / "auth"), poll=0.05)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
@pytest.mark.parametrize("grant", ["client_credentials", "password"])
def test_both_grants_and_both_ways_to_say_the_secret(
    toolkit: Toolkit, tmp_path: Path, grant: Grant, method: str
) -> None:
    found = asyncio.run(
        source(toolkit, tmp_path, grant, client_auth=method).obtain(None, full=False)
    )
    assert found.kind == "full_auth"
    assert found.token.lifetime == LIFETIME


async def test_many_keepers_share_rotating_refresh_tokens_and_use_none_twice(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    keepers = [Keeper(source(toolkit, tmp_path)) for _ in range(4)]
    seen: set[str] = set()

    async def keep(keeper: Keeper, until: float) -> None:
        async with keeper.running():
            while token_file.now() < until:
                seen.add(keeper.ready() or await keeper.wait(20))
                await asyncio.sleep(0.05)
        seen.update(filter(None, [keeper.ready()]))  # it may have come since the last look

    until = token_file.now() + 3 * LIFETIME
    await asyncio.gather(*(keep(one, until) for one in keepers))
    granted = sum((one.figures.granted for one in keepers), start=Counter[str]())
    assert 3 <= len(seen) <= 7
    assert granted["full_auth"] + granted["refresh_token"] == len(seen), (
        "one request for each token"
    )
    assert granted["full_auth"] == 1, "no chain was broken"
    assert not any(one.figures.failed or one.figures.fallbacks for one in keepers)


async def test_a_stolen_refresh_token_breaks_the_chain_and_a_full_authentication_follows(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    server = source(toolkit, tmp_path)
    first = await server.obtain(None, full=False)
    copy = tmp_path / "copy" / "auth"
    copy.mkdir(mode=0o700, parents=True)
    for path in (tmp_path / "auth").glob("*.json"):
        (copy / path.name).write_bytes(path.read_bytes())
        (copy / path.name).chmod(0o600)
    thief = source(toolkit, tmp_path / "copy")
    stolen = await thief.obtain(first.token.access, full=False)
    assert stolen.kind == "refresh_token"
    second = await server.obtain(first.token.access, full=False)
    assert (second.kind, second.fallback) == ("full_auth", True)
    third = await thief.obtain(stolen.token.access, full=False)
    assert (third.kind, third.fallback) == ("full_auth", True), (
        "the server revoked the thief's, too"
    )


async def test_a_chain_of_refresh_tokens_that_a_user_began_elsewhere(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
    server = source(toolkit, tmp_path / "first")
    first = await server.obtain(None, full=False)
    record = server._now(await server._read())  # type: ignore[arg-type]
    assert record.refresh
    later = source(toolkit, tmp_path / "second", "refresh_token")
    granted = await later.login(record.refresh)
    assert granted.kind == "refresh_token"
    assert granted.token.access != first.token.access
    again = await later.obtain(granted.token.access, full=False)
    assert again.kind == "refresh_token"
    with pytest.raises(TokenRefused, match="hpcbench auth login"):
        await source(toolkit, tmp_path / "third", "refresh_token").obtain(None, full=False)


def test_a_server_that_is_killed_and_comes_back_uses_up_no_refresh_token(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    async def journey() -> Keeper:
        async with Keeper(source(toolkit, tmp_path)).running() as keeper:
            first = await keeper.wait(20)
            toolkit.stop()
            await asyncio.sleep(LIFETIME * 1.5)
            assert keeper.ready() is None
            await asyncio.to_thread(toolkit.start)
            assert await keeper.wait(20) != first
        return keeper

    assert asyncio.run(journey()).figures.granted["refresh_token"] == 1


def test_a_wrong_secret_is_refused_in_the_servers_words(
    toolkit: Toolkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_SECRET", "some-other-secret")
    with pytest.raises(TokenRefused, match="answers 401: invalid_client") as found:
        asyncio.run(source(toolkit, tmp_path, "client_credentials").obtain(None, full=False))
    assert "some-other-secret" not in str(found.value)
