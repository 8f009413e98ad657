"""Tokens shared by processes through a file, and refresh tokens that are never used twice."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import stat
import subprocess
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs

import pytest
from fake_server import FakeServer

from hpcbench.errors import EnvironmentFault
from hpcbench.oauth import token_file
from hpcbench.oauth.keeper import GrantedToken, TokenFailed, TokenRefused
from hpcbench.oauth.options import AuthOptions
from hpcbench.oauth.token_file import Record, Store
from hpcbench.oauth.token_server import TokenServer, source_of
from hpcbench.oauth.transport import Reply, discover


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OAUTH_SECRET", "secret-1")
    monkeypatch.setenv("OAUTH_FIRST", "r0")


def options(grant: str = "client_credentials", **more: Any) -> AuthOptions:
    if grant == "password":
        more |= {"username": "u", "password": "${env:OAUTH_SECRET}"}
    return AuthOptions(
        grant_type=grant, token_url="https://g/token", client_id="c",
        **{"client_secret": "${env:OAUTH_SECRET}", **more},
    )  # type: ignore[arg-type]  # fmt: skip


def first(folder: Path, fake: FakeServer, grant: str = "refresh_token", **more: Any) -> TokenServer:
    if grant == "refresh_token":
        more.setdefault("refresh_token", "${env:OAUTH_FIRST}")
    chosen = options(grant, **more)
    return TokenServer(chosen, Store(chosen.key, folder / "auth"), fake, poll=0.02)


def obtain(server: TokenServer, old: str | None = None, *, full: bool = False) -> GrantedToken:
    return asyncio.run(server.obtain(old, full=full))


def record(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "auth").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def age(folder: Path, **change: Any) -> None:
    """Change the record as a crash or another node would have left it."""
    (path,) = (folder / "auth").glob("*.json")
    kept = Store(path.stem, folder / "auth")
    before = path.stat()
    kept.write(replace(Record(**json.loads(path.read_text())), **change))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.long
@pytest.mark.parametrize("grant", ["client_credentials", "password", "refresh_token"])
async def test_a_hundred_workers_that_start_at_once_ask_once(tmp_path: Path, grant: str) -> None:
    fake = FakeServer()
    workers = [first(tmp_path, fake, grant) for _ in range(100)]
    found = await asyncio.gather(*(one.obtain(None, full=False) for one in workers))
    assert {one.token.access for one in found} == {"a1"}
    assert len(fake.asked) == 1
    assert sum(one.kind == "cache" for one in found) == 99


def test_a_server_that_repeats_its_token_until_it_ends_is_asked_by_one_process(
    tmp_path: Path,
) -> None:
    """WSO2's gateways give a client the same token with the rest of its lifetime."""

    class Repeats(FakeServer):
        def _answer(self, form: Any) -> Reply:
            reply = super()._answer(form)
            return Reply(
                200, {}, json.dumps({**json.loads(reply.body), "access_token": "a1"}).encode()
            )

    fake = Repeats()
    workers = [first(tmp_path, fake, "client_credentials") for _ in range(5)]
    for count in (1, 2, 3):
        found = [obtain(one, None if count == 1 else "a1") for one in workers]
        assert [one.kind for one in found] == ["full_auth", *["cache"] * 4]
        assert len(fake.asked) == count
    assert obtain(workers[1], "a1", full=True).kind == "full_auth", "the endpoint rejected it"


def test_a_later_run_needs_no_request(tmp_path: Path) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))
    assert obtain(first(tmp_path, fake)).kind == "cache"
    assert len(fake.asked) == 1


def test_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    obtain(first(tmp_path, FakeServer()))
    (path,) = (tmp_path / "auth").glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "secret-1" not in path.read_text()
    path.chmod(0o644)
    with pytest.raises(TokenRefused, match="accessible to other users"):
        obtain(first(tmp_path, FakeServer()))
    path.parent.chmod(0o755)
    with pytest.raises(EnvironmentFault, match="chmod 700"):
        first(tmp_path, FakeServer())


@pytest.mark.long
def test_rotating_refresh_tokens_follow_each_other_and_none_is_used_twice(tmp_path: Path) -> None:
    fake = FakeServer()
    old = None
    for _ in range(20):

        async def round_of(old: str | None) -> list[GrantedToken]:
            workers = [first(tmp_path, fake) for _ in range(4)]
            return await asyncio.gather(*(one.obtain(old, full=False) for one in workers))

        found = asyncio.run(round_of(old))
        (old,) = {one.token.access for one in found}
    assert (len(fake.asked), fake.used_twice) == (20, 0)
    assert record(tmp_path)["refresh"] == fake.refresh
    assert record(tmp_path)["rotates"] is True


def test_a_lost_answer_of_a_rotating_token_needs_a_login_and_the_token_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))
    fake.trouble = "lost"
    with pytest.raises(TokenFailed, match="broke off"):
        obtain(first(tmp_path, fake), "a1")
    fake.trouble = ""
    with pytest.raises(TokenRefused, match="put a new one into .*`hpcbench auth login MODEL`"):
        obtain(first(tmp_path, fake), "a1")
    assert (len(fake.asked), fake.used_twice) == (2, 0)
    fake.refresh = "fresh-one"
    monkeypatch.setenv("OAUTH_FIRST", "fresh-one")
    assert asyncio.run(first(tmp_path, fake).login()).kind == "refresh_token"
    assert obtain(first(tmp_path, fake)).kind == "cache"


def test_a_crash_while_the_token_was_out_ends_in_a_full_authentication(tmp_path: Path) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake, "password"))
    age(tmp_path, sent=True, rotates=True)
    found = obtain(first(tmp_path, fake, "password"), "a1")
    assert (found.kind, found.fallback) == ("full_auth", True)
    assert fake.used_twice == 0


def test_an_answer_is_lost_where_tokens_do_not_rotate_and_the_same_one_is_sent_again(
    tmp_path: Path,
) -> None:
    fake = FakeServer(rotates=False)
    obtain(first(tmp_path, fake))
    fake.trouble = "lost"
    with pytest.raises(TokenFailed):
        obtain(first(tmp_path, fake), "a1")
    fake.trouble = ""
    assert obtain(first(tmp_path, fake), "a1").kind == "refresh_token"


@pytest.mark.parametrize("trouble", ["unsent", "503", "429"])
def test_an_outage_uses_up_no_refresh_token(tmp_path: Path, trouble: str) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))
    fake.trouble = trouble
    for _ in range(3):
        with pytest.raises(TokenFailed) as found:
            obtain(first(tmp_path, fake), "a1")
        assert not isinstance(found.value, TokenRefused)
    fake.trouble = ""
    assert obtain(first(tmp_path, fake), "a1").kind == "refresh_token"
    assert fake.used_twice == 0


def test_a_refresh_token_that_no_longer_works_falls_back_to_a_full_authentication(
    tmp_path: Path,
) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake, "password"))
    fake.refresh = "revoked"
    found = obtain(first(tmp_path, fake, "password"), "a1")
    assert (found.kind, found.fallback) == ("full_auth", True)


def test_another_password_is_sent_whatever_tokens_the_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake, "password"))
    monkeypatch.setenv("OAUTH_SECRET", "secret-2")
    assert obtain(first(tmp_path, fake, "password")).kind == "full_auth"
    assert fake.asked[-1]["password"] == "secret-2"
    assert obtain(first(tmp_path, fake, "password")).kind == "cache"
    assert "secret-2" not in json.dumps(record(tmp_path))


def test_after_a_401_a_password_is_sent_and_no_refresh_token(tmp_path: Path) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake, "password"))
    found = obtain(first(tmp_path, fake, "password"), "a1", full=True)
    assert (found.kind, found.fallback) == ("full_auth", False)
    assert [one["grant_type"] for one in fake.asked] == ["password", "password"]


def test_another_boot_reads_the_age_from_the_file_server_whatever_its_own_clock_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeServer(100)
    obtain(first(tmp_path, fake))
    age(tmp_path, boot="another", since=5.0, written=5.5)
    (path,) = (tmp_path / "auth").glob("*.json")
    os.utime(path, (time.time() - 30,) * 2)
    monkeypatch.setattr(time, "time", lambda: 1e9)  # a clock that is years behind
    found = obtain(first(tmp_path, fake))
    assert found.kind == "cache"
    assert found.token.expires - token_file.now() == pytest.approx(100 - 30.5 - 5, abs=2)
    os.utime(path, (time.time() + 3600 * 24 * 20000,) * 2)
    assert obtain(first(tmp_path, fake)).kind == "refresh_token", "its age cannot be known"


def test_a_marked_record_does_not_make_its_token_younger(tmp_path: Path) -> None:
    fake = FakeServer(100)
    obtain(first(tmp_path, fake))
    age(tmp_path, since=token_file.now() - 60, written=token_file.now() - 60)
    fake.trouble = "lost"
    with pytest.raises(TokenFailed):
        obtain(first(tmp_path, fake), "a1")
    left = record(tmp_path)
    assert left["sent"] is True
    age(tmp_path, boot="another", since=left["since"] + 5e6, written=left["written"] + 5e6)
    found = obtain(first(tmp_path, fake))
    assert found.token.expires - token_file.now() == pytest.approx(100 - 60 - 5, abs=3)


def test_a_refresh_token_that_brought_nothing_usable_is_not_sent_again(tmp_path: Path) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))
    fake.trouble = "odd"
    with pytest.raises(TokenRefused, match="'mac'"):
        obtain(first(tmp_path, fake), "a1")
    with pytest.raises(TokenRefused, match="may not be sent again"):
        obtain(first(tmp_path, fake), "a1")
    assert (len(fake.asked), fake.used_twice) == (2, 0)


def test_a_secret_that_is_missing_uses_up_no_refresh_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))
    monkeypatch.delenv("OAUTH_SECRET")
    with pytest.raises(TokenRefused, match="the variable is not set"):
        obtain(first(tmp_path, fake), "a1")
    monkeypatch.setenv("OAUTH_SECRET", "secret-1")
    assert obtain(first(tmp_path, fake), "a1").kind == "refresh_token"


def test_a_mistyped_login_ends_no_chain(tmp_path: Path) -> None:
    fake = FakeServer()
    asyncio.run(first(tmp_path, fake, refresh_token=None).login("r0"))
    with pytest.raises(TokenRefused):
        asyncio.run(first(tmp_path, fake, refresh_token=None).login("mistyped"))
    assert obtain(first(tmp_path, fake, refresh_token=None)).kind == "cache"
    assert obtain(first(tmp_path, fake, refresh_token=None), "a1").kind == "refresh_token"


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake, "password"))
    (path,) = (tmp_path / "auth").glob("*.json")
    path.write_text('{"access": "a1", "lifeti')
    assert obtain(first(tmp_path, fake, "password")).kind == "full_auth"


@pytest.mark.parametrize(
    "change",
    [
        {"access": 5}, {"access": None}, {"refresh": 5}, {"since": "1"}, {"since": None},
        {"since": float("nan")}, {"lifetime": float("inf")}, {"boot": None}, {"sent": "no"},
        {"written": True}, {"rotates": "x"}, {"seed": []},
    ],
)  # fmt: skip
def test_a_file_of_other_types_is_damaged(tmp_path: Path, change: dict[str, Any]) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake, "password"))
    (path,) = (tmp_path / "auth").glob("*.json")
    path.write_text(json.dumps({**record(tmp_path), **change}))
    assert obtain(first(tmp_path, fake, "password")).kind == "full_auth"


def test_a_file_of_a_later_version_is_read(tmp_path: Path) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))
    (path,) = (tmp_path / "auth").glob("*.json")
    path.write_text(json.dumps({**record(tmp_path), "later": 1}))
    assert obtain(first(tmp_path, fake)).kind == "cache"


def test_a_damaged_file_does_not_send_the_first_refresh_token_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))
    (path,) = (tmp_path / "auth").glob("*.json")
    for content in ("", "[" * 100_000, path.read_text()[:-9]):
        path.write_text(content)
        with pytest.raises(TokenRefused, match=r"is damaged.*`hpcbench auth login MODEL`"):
            obtain(first(tmp_path, fake))
    assert fake.used_twice == 0
    fake.refresh = "fresh-one"
    monkeypatch.setenv("OAUTH_FIRST", "fresh-one")
    assert asyncio.run(first(tmp_path, fake).login()).kind == "refresh_token"
    assert obtain(first(tmp_path, fake)).kind == "cache"


def test_without_a_place_for_the_file_a_refresh_token_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process would send the configured one."""
    (tmp_path / "hpcbench").mkdir()
    (tmp_path / "hpcbench" / "auth").mkdir()
    (tmp_path / "hpcbench" / "auth").chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    said: list[str] = []
    assert source_of(options("password"), say=said.append)._store is None
    assert "each process asks for tokens of its own" in said[0]
    with pytest.raises(EnvironmentFault, match="may work only once.*is open to other users"):
        source_of(options("refresh_token", refresh_token="${env:OAUTH_FIRST}"), say=said.append)


class Full:
    """The disk of a file of tokens; while it is full, nothing is written."""

    def __init__(self, server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
        assert server._store is not None
        self.full, self._written = False, server._store.write
        monkeypatch.setattr(server._store, "write", self.write, raising=False)

    def write(self, record: Record) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._written(record)


@pytest.mark.parametrize("grant", ["client_credentials", "password"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_full_disk_keeps_no_token_from_requests_that_no_other_process_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grant: str, when: str
) -> None:
    fake = FakeServer()
    made = first(tmp_path, fake, grant)

    def lease() -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    Full(made, monkeypatch).full = True
    if when == "before":
        monkeypatch.setattr(made._store, "lease", lease)
    for number in range(1, 4):
        old = f"a{number - 1}" if number > 1 else None
        assert obtain(made, old).token.access == f"a{number}"
    assert fake.used_twice == 0


def test_a_login_that_cannot_be_kept_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = first(tmp_path, FakeServer(), "client_credentials")
    Full(made, monkeypatch).full = True
    with pytest.raises(TokenFailed, match="the token is not kept"):
        asyncio.run(made.login())


def test_an_answer_that_met_a_full_disk_is_used_as_soon_as_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))
    server = first(tmp_path, fake)
    disk = Full(server, monkeypatch)
    answer = fake._answer

    def answered(form: Any) -> Reply:
        disk.full = True
        return answer(form)

    monkeypatch.setattr(fake, "_answer", answered)
    for _ in range(2):
        with pytest.raises(TokenFailed, match="No space left"):
            obtain(server, "a1")
    disk.full = False
    assert obtain(server, "a1").token.access == "a2"
    assert (len(fake.asked), record(tmp_path)["refresh"]) == (2, fake.refresh)


def test_two_chains_of_one_client_do_not_replace_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OAUTH_SECOND", "q0")
    fakes = FakeServer(), FakeServer()
    fakes[1].refresh = "q0"
    names = "OAUTH_FIRST", "OAUTH_SECOND"
    for _ in range(3):
        for fake, name in zip(fakes, names, strict=True):
            obtain(first(tmp_path, fake, refresh_token=f"${{env:{name}}}"))
    assert [len(fake.asked) for fake in fakes] == [1, 1]


def test_a_process_that_slept_leaves_the_file_of_the_one_that_took_over(tmp_path: Path) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))

    class Slept(FakeServer):
        async def send(self, *request: Any) -> Reply:
            age(tmp_path, refresh="of-a-login", sent=False)
            return Reply(400, {}, b'{"error": "invalid_grant"}')

    with pytest.raises(TokenRefused):
        obtain(first(tmp_path, Slept()), "a1")
    assert record(tmp_path)["refresh"] == "of-a-login"


def test_without_a_file_one_process_keeps_its_tokens(tmp_path: Path) -> None:
    fake = FakeServer()
    server = TokenServer(options("password"), None, fake)
    assert obtain(server).kind == "full_auth"
    assert obtain(server, "a1").kind == "refresh_token"


def test_a_new_configured_refresh_token_begins_a_new_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeServer()
    obtain(first(tmp_path, fake))
    monkeypatch.setenv("OAUTH_FIRST", "second-chain")
    fake.refresh = "second-chain"
    assert obtain(first(tmp_path, fake), "a1").kind == "refresh_token"


@pytest.mark.parametrize("skew", [-3600, 0, 3600])
@pytest.mark.parametrize("grant", ["client_credentials", "password"])
def test_a_signed_assertion_is_dated_by_the_servers_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew: int, grant: str
) -> None:
    """A node whose clock is an hour wrong."""
    make = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]
    key = subprocess.run(make, check=True, capture_output=True, text=True).stdout
    monkeypatch.setenv("OAUTH_KEY", key)

    class Strict(FakeServer):
        async def send(self, method: str, url: str, headers: Any, body: str | None) -> Reply:
            (signed,) = parse_qs(body or "")["client_assertion"]
            part = signed.split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
            now = time.time() + skew
            date = {"date": formatdate(now, usegmt=True)}
            if not claims["iat"] - 5 <= now <= claims["exp"]:
                self.refused += 1
                return Reply(401, date, b'{"error": "invalid_client", "error_description": "late"}')
            return replace(await super().send(method, url, headers, body), headers=date)

        refused = 0

    fake = Strict()
    server = first(tmp_path, fake, grant, client_secret=None, private_key="${env:OAUTH_KEY}")
    assert obtain(server).kind == "full_auth"
    assert obtain(server, "a1").token.access == "a2"
    assert (fake.refused, fake.used_twice) == (int(skew != 0), 0)


def test_a_refused_assertion_is_not_repeated_where_the_clocks_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuses(FakeServer):
        async def send(self, *request: Any) -> Reply:
            await super().send(*request)
            date = {"date": formatdate(time.time() - 5, usegmt=True)}
            return Reply(401, date, b'{"error": "invalid_client"}')

    make = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]
    key = subprocess.run(make, check=True, capture_output=True, text=True).stdout
    monkeypatch.setenv("OAUTH_KEY", key)
    fake, keyed = Refuses(), {"client_secret": None, "private_key": "${env:OAUTH_KEY}"}
    with pytest.raises(TokenRefused, match="invalid_client"):
        obtain(first(tmp_path, fake, "client_credentials", **keyed))
    assert len(fake.asked) == 1


class Metadata:
    """Servers of metadata: address → body."""

    def __init__(self, **found: Any) -> None:
        self.found = found

    async def send(self, method: str, url: str, headers: Any, body: Any) -> Reply:
        for name, data in self.found.items():
            if name.replace("_", "-") in url:
                return Reply(200, {}, json.dumps(data).encode())
        return Reply(404, {}, b"")


def test_an_issuer_is_discovered_in_both_places_and_must_be_the_one_that_was_asked() -> None:
    chosen = AuthOptions(issuer="https://g/tenant", client_id="c", client_secret="${env:S}")
    good = {
        "issuer": "https://g/tenant", "token_endpoint": "https://g/t",
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
    }  # fmt: skip
    for place in ("openid_configuration", "oauth_authorization_server"):
        found = asyncio.run(discover(chosen, Metadata(**{place: good})))
        assert found == ("https://g/t", ["client_secret_post"])
    for bad, said in (
        ({**good, "issuer": "https://evil"}, "is of the issuer"),
        ({"issuer": "https://g/tenant"}, "names no token_endpoint"),
        ({**good, "token_endpoint": "http://g/t"}, "without TLS"),
        ({**good, "token_endpoint": "https://[g/t"}, "names no token_endpoint"),
        ({**good, "token_endpoint": "https:///t"}, "names no token_endpoint"),
        ({**good, "issuer": ["https://g/tenant"]}, "is of the issuer"),
    ):
        with pytest.raises(TokenRefused, match=said):
            asyncio.run(discover(chosen, Metadata(openid_configuration=bad)))
    slash = {**good, "issuer": "https://g/tenant/"}
    found = asyncio.run(discover(chosen, Metadata(openid_configuration=slash)))
    assert found[0] == "https://g/t"
    with pytest.raises(TokenRefused, match="no metadata"):
        asyncio.run(discover(chosen, Metadata()))


PLACES = (
    "/tenant/.well-known/openid-configuration", "/.well-known/oauth-authorization-server/tenant",
    "/.well-known/openid-configuration/tenant", "/tenant/.well-known/oauth-authorization-server",
)  # fmt: skip


@pytest.mark.parametrize("issuer", ["https://g/tenant", "https://g/tenant/"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("trouble", ["404", "500", "html", "no endpoint", "another"])
def test_metadata_may_be_in_any_usual_place_whatever_the_others_answer(
    issuer: str, place: str, trouble: str
) -> None:
    asked = []
    other = {
        "404": Reply(404, {}, b""), "500": Reply(500, {}, b""), "html": Reply(200, {}, b"<html>"),
        "no endpoint": Reply(200, {}, json.dumps({"issuer": issuer}).encode()),
        "another": Reply(200, {}, b'{"issuer": "https://other", "token_endpoint": "https://other/t"}'),
    }[trouble]  # fmt: skip

    class Places:
        async def send(self, method: str, url: str, headers: Any, body: Any) -> Reply:
            asked.append(url.removeprefix("https://g"))
            good = {"issuer": issuer, "token_endpoint": "https://g/t"}
            return Reply(200, {}, json.dumps(good).encode()) if asked[-1] == place else other

    chosen = AuthOptions(issuer=issuer, client_id="c", client_secret="${env:S}")
    assert asyncio.run(discover(chosen, Places()))[0] == "https://g/t"
    assert tuple(asked) == PLACES[: len(asked)]


def test_an_outage_of_the_metadata_passes() -> None:
    class Away:
        async def send(self, method: str, url: str, headers: Any, body: Any) -> Reply:
            return Reply(503 if "openid" in url else 404, {"retry-after": "7"}, b"")

    chosen = AuthOptions(issuer="https://g", client_id="c", client_secret="${env:S}")
    with pytest.raises(TokenFailed, match="openid-configuration answers 503") as found:
        asyncio.run(discover(chosen, Away()))
    assert not isinstance(found.value, TokenRefused)
    assert found.value.wait == 7
