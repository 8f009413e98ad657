"""Rules 4, 6, 7: codes, sessions, tokens, and waits after failures."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.portal import access_tokens
from hpcbench.portal.access_tokens import Backoff, Keys, Sessions, Tokens, owner_token
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.models.sessions import NewToken
from tests.unit.command import Cli
from tests.unit.portal.served import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(clock)


def signed_in(sessions: Sessions) -> Keys:
    keys = sessions.sign_in(sessions.code())
    assert keys is not None
    return keys


def test_a_code_is_good_once(sessions: Sessions) -> None:
    code = sessions.code()
    assert len(code) >= 43, "256 bits"
    assert sessions.sign_in(code) is not None
    assert sessions.sign_in(code) is None


def test_a_code_is_good_for_a_minute(sessions: Sessions, clock: Clock) -> None:
    young, old = sessions.code(), sessions.code()
    clock.now += access_tokens.CODE_SECONDS - 1
    assert sessions.sign_in(young) is not None
    clock.now += 1
    assert sessions.sign_in(old) is None


@pytest.mark.parametrize("code", ["", "x", "\udcff", "é" * 50, "a.b"])
def test_a_wrong_code_opens_nothing(sessions: Sessions, code: str) -> None:
    sessions.code()
    assert sessions.sign_in(code) is None


def test_an_access_key_lasts_a_quarter_of_an_hour(sessions: Sessions, clock: Clock) -> None:
    keys = signed_in(sessions)
    assert keys.expires == clock.now + 15 * 60
    clock.now += 15 * 60 - 1
    assert sessions.who(str(keys.access)) is not None
    clock.now += 1
    assert sessions.who(str(keys.access)) is None


def test_renewing_changes_both_keys(sessions: Sessions, clock: Clock) -> None:
    first = signed_in(sessions)
    clock.now += 14 * 60
    second = sessions.renew(str(first.refresh))
    assert second is not None
    assert len({first.access, first.refresh, second.access, second.refresh}) == 4
    assert sessions.who(str(second.access)) is not None
    assert sessions.who(str(first.access)) is not None, "requests under way go through"
    clock.now += 60
    assert sessions.who(str(first.access)) is None


def test_a_session_ends_after_half_a_day_however_often_it_is_renewed(
    sessions: Sessions, clock: Clock
) -> None:
    keys = signed_in(sessions)
    renewals = 0
    while (renewed := sessions.renew(str(keys.refresh))) is not None:
        keys, renewals = renewed, renewals + 1
        clock.now += 14 * 60
    assert renewals == 52
    assert sessions.who(str(keys.access)) is None


def test_a_key_used_again_ends_the_session(sessions: Sessions, clock: Clock) -> None:
    first = signed_in(sessions)
    second = sessions.renew(str(first.refresh))
    assert second is not None
    clock.now += access_tokens.REUSE_SECONDS
    assert sessions.renew(str(first.refresh)) is None
    assert sessions.who(str(second.access)) is None, "the thief and the user are both out"
    assert sessions.renew(str(second.refresh)) is None


def test_two_tabs_may_renew_at_the_same_moment(sessions: Sessions) -> None:
    first = signed_in(sessions)
    second = sessions.renew(str(first.refresh))
    again = sessions.renew(str(first.refresh))
    assert second is not None
    assert again is not None
    assert (again.access, again.refresh) == (None, None), (
        "whoever holds the old key gets nothing new"
    )
    assert sessions.who(str(second.access)) is not None


def test_the_key_before_the_last_two_always_ends_the_session(sessions: Sessions) -> None:
    first = signed_in(sessions)
    second = sessions.renew(str(first.refresh))
    assert second is not None
    third = sessions.renew(str(second.refresh))
    assert third is not None
    assert sessions.renew(str(first.refresh)) is None
    assert sessions.who(str(third.access)) is None


def test_an_access_key_cannot_renew_nor_a_renewing_key_open(sessions: Sessions) -> None:
    keys = signed_in(sessions)
    assert sessions.who(str(keys.refresh)) is None
    assert sessions.renew(str(keys.access)) is None


def test_leaving_ends_it(sessions: Sessions) -> None:
    keys = signed_in(sessions)
    who = sessions.who(str(keys.access))
    assert who is not None
    assert sessions.lives(who.id)
    sessions.leave(who.id)
    assert not sessions.lives(who.id)
    assert sessions.who(str(keys.access)) is None
    assert sessions.renew(str(keys.refresh)) is None


def test_a_plain_session_opens_plain_pages_and_is_not_renewed(
    sessions: Sessions, clock: Clock
) -> None:
    keys = sessions.sign_in(sessions.code(), plain=True)
    assert keys is not None
    assert keys.refresh is None
    who = sessions.who(str(keys.access))
    assert who is not None
    assert (who.kind, who.scopes) == ("plain", {"read"})
    assert sessions.renew(str(keys.access)) is None
    clock.now += access_tokens.SESSION_SECONDS
    assert sessions.who(str(keys.access)) is None


def test_codes_and_sessions_are_bounded(sessions: Sessions) -> None:
    first = sessions.code()
    for _ in range(access_tokens.MOST_CODES):
        sessions.code()
    assert sessions.sign_in(first) is None
    keys = signed_in(sessions)
    for _ in range(access_tokens.MOST_SESSIONS):
        signed_in(sessions)
    assert sessions.who(str(keys.access)) is None


def test_nothing_of_a_session_is_kept_as_it_is(sessions: Sessions) -> None:
    code = sessions.code()
    keys = signed_in(sessions)
    held = repr((sessions._codes, sessions._sessions))
    for secret in (code, str(keys.access), str(keys.refresh)):
        assert secret.split(".")[-1] not in held


def test_secrets_are_compared_in_constant_time(
    sessions: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    true = access_tokens.hmac.compare_digest
    monkeypatch.setattr(
        access_tokens.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or true(a, b)
    )
    keys = signed_in(sessions)
    assert len(compared) == 1
    sessions.who(str(keys.access))
    sessions.renew(str(keys.refresh))
    assert len(compared) == 3
    desk = access_tokens.Desk("o" * 43, Tokens(tmp_path / "tokens.json"))
    made = desk.tokens.create(NewToken(name="x"))
    desk.bearer(made.token)
    assert len(compared) == 5, "the owner's and the script's"


def test_a_token_is_kept_as_a_hash_and_shown_once(tmp_path: Path, clock: Clock) -> None:
    store = Tokens(tmp_path / "tokens.json", clock)
    made = store.create(NewToken(name="nightly plots", scopes=("submit", "read"), days=2))
    assert made.row.scopes == ("read", "submit")
    assert made.row.expires == clock.now + 2 * 86_400
    text = (tmp_path / "tokens.json").read_text()
    assert made.token.split("_", 2)[2] not in text
    assert made.token.split("_", 2)[2] not in str(store.rows())
    assert stat.S_IMODE((tmp_path / "tokens.json").stat().st_mode) == 0o600
    who = store.who(made.token)
    assert who is not None
    assert (who.kind, who.scopes) == ("token", {"read", "submit"})


def test_a_token_ends_and_can_be_revoked(tmp_path: Path, clock: Clock) -> None:
    store = Tokens(tmp_path / "tokens.json", clock)
    short, long = store.create(NewToken(name="a", days=1)), store.create(NewToken(name="b"))
    clock.now += 86_400
    assert store.who(short.token) is None
    assert [row.name for row in store.rows()] == ["b"]
    assert store.revoke(long.row.id)
    assert not store.revoke(long.row.id)
    assert store.who(long.token) is None
    assert json.loads((tmp_path / "tokens.json").read_text()) == []


def test_what_the_command_line_changes_counts_at_once(tmp_path: Path, clock: Clock) -> None:
    portal, line = (Tokens(tmp_path / "tokens.json", clock) for _ in range(2))
    assert portal.rows() == ()
    made = line.create(NewToken(name="a"))
    assert portal.who(made.token) is not None
    line.revoke(made.row.id)
    assert portal.who(made.token) is None


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"row": 1}]', "null"])
def test_a_damaged_file_lets_no_user_in(tmp_path: Path, text: str) -> None:
    store = Tokens(tmp_path / "tokens.json")
    made = store.create(NewToken(name="a"))
    (tmp_path / "tokens.json").write_text(text)
    assert store.who(made.token) is None


def test_a_file_that_others_could_have_written_is_refused(tmp_path: Path) -> None:
    store = Tokens(tmp_path / "tokens.json")
    made = store.create(NewToken(name="a"))
    store._seen = None
    (tmp_path / "tokens.json").chmod(0o666)
    with pytest.raises(EnvironmentFault):
        store.who(made.token)


def test_there_are_not_too_many_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_tokens, "MOST_TOKENS", 2)
    store = Tokens(tmp_path / "tokens.json")
    store.create(NewToken(name="a"))
    store.create(NewToken(name="b"))
    with pytest.raises(PortalFault, match="there are 2 tokens already"):
        store.create(NewToken(name="c"))


def test_one_token_too_many_is_one_line_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(access_tokens, "MOST_TOKENS", 1)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cli("portal", "token", "create", "first")
    said = cli.err("portal", "token", "create", "second")
    assert said == (
        "there are 1 tokens already (revoke a token: `hpcbench portal token list` lists the ids)\n"
    )


def test_a_name_steers_no_terminal(tmp_path: Path) -> None:
    made = Tokens(tmp_path / "tokens.json").create(NewToken(name="a\x1b[2Jb\nc\u202e"))
    assert made.row.name == "a [2Jb c"


def test_waits_grow_with_failures_and_end(clock: Clock) -> None:
    backoff = Backoff(clock)
    for _ in range(Backoff.FREE):
        assert backoff.wait("x") == 0
        backoff.failed("x")
    waits = []
    for _ in range(10):
        waits.append(backoff.wait("x"))
        backoff.failed("x")
    assert waits == sorted(waits)
    assert waits[0] == 0.5
    assert waits[-1] == Backoff.LONGEST
    assert backoff.wait("y") == 0, "others do not wait"
    clock.now += Backoff.LONGEST
    assert backoff.wait("x") == 0
    backoff.failed("x")
    assert backoff.wait("x") == Backoff.LONGEST, "to wait takes nothing back"


def test_a_failure_counts_until_it_is_old(clock: Clock) -> None:
    backoff = Backoff(clock)
    for _ in range(Backoff.FREE + 1):
        backoff.failed("x")
        clock.now += Backoff.FORGIVEN / 10
    clock.now += Backoff.FORGIVEN / 2
    assert backoff.wait("x") == 0, "the first ones are old"
    for _ in range(Backoff.FREE):
        backoff.failed("x")
    assert backoff.wait("x") > 0


@pytest.mark.long
def test_many_names_take_no_endless_memory_and_clear_no_others(clock: Clock) -> None:
    backoff = Backoff(clock)
    for number in range(3000):
        backoff.failed(f"other {number}")
        clock.now += 0.001
        if number % 100 == 0:
            backoff.failed("x")
    assert len(backoff._failed) <= 1001
    assert backoff.wait("x") > 0


def test_the_owners_token_is_new_at_every_start_unless_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    first = owner_token(path, keep=False)
    assert len(first) >= 43
    assert owner_token(path, keep=True) == first
    assert owner_token(path, keep=False) != first
    path.write_text("short")
    assert len(owner_token(path, keep=True)) >= 43, "a token that can be guessed is not kept"
