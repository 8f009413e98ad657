"""The keeper of a token, in virtual time, with a scripted source of tokens."""

from __future__ import annotations

import asyncio

import pytest
from virtual_time import run

from hpcbench.oauth.keeper import GRACE_SECONDS, GrantedToken, Keeper, TokenFailed, TokenRefused
from hpcbench.oauth.lifecycle import Token


class Scripted:
    """Gives tokens with numbers, or fails as it is set to."""

    def __init__(self, lifetime: float = 100, takes: float = 0.2) -> None:
        self.lifetime, self.takes = lifetime, takes
        self.asked: list[tuple[float, str | None, bool]] = []
        self.fails: TokenFailed | None = None
        self.ends: dict[str, float] = {}

    async def obtain(self, old: str | None, *, full: bool) -> GrantedToken:
        now = asyncio.get_running_loop().time()
        self.asked.append((now, old, full))
        await asyncio.sleep(self.takes)
        if self.fails is not None:
            raise self.fails
        access = f"t{len(self.asked)}"
        self.ends[access] = now + self.lifetime
        return GrantedToken(Token(access, now, self.lifetime), "full_auth")


def keeper(source: Scripted) -> Keeper:
    return Keeper(source, 0.0, clock=asyncio.get_running_loop().time)


def test_a_hundred_waiting_requests_cost_one_token_request_and_a_renewal_delays_none() -> None:
    async def journey() -> None:
        source = Scripted()
        async with keeper(source).running() as kept:
            found = await asyncio.gather(*(kept.wait(10) for _ in range(100)))
            assert {*found} == {"t1"}
            for _ in range(5000):
                await asyncio.sleep(0.1)
                access = kept.ready()
                assert access is not None
                assert source.ends[access] > asyncio.get_running_loop().time()
        assert 5 <= len(source.asked) <= 7, "one for each lifetime"
        assert kept.figures.waits == 100

    run(journey())


def test_an_outage_is_survived_until_the_token_ends_and_then_requests_wait() -> None:
    async def journey() -> None:
        source = Scripted()
        async with keeper(source).running() as kept:
            assert await kept.wait(10) == "t1"
            source.fails = TokenFailed("503 from the token server")
            await asyncio.sleep(93)
            assert kept.ready() == "t1"
            assert kept.look().state == "stale"
            await asyncio.sleep(2)
            assert kept.ready() is None
            with pytest.raises(TokenFailed, match="503 from the token server"):
                await kept.wait(1)
            waiting = asyncio.ensure_future(kept.wait(200))
            await asyncio.sleep(0)
            assert kept.look().waiting == 1
            source.fails = None
            assert await waiting == f"t{len(source.asked)}"
            assert len(source.asked) < 15, "it backs off"

    run(journey())


def test_a_rejected_token_is_replaced_once_by_a_full_authentication() -> None:
    async def journey() -> None:
        source = Scripted()
        async with keeper(source).running() as kept:
            assert await kept.wait(10) == "t1"
            for _ in range(8):  # as many requests got a 401 for it
                kept.reject("t1")
            assert await kept.wait(10) == "t2"
            kept.reject("t1")  # a late one
            assert kept.ready() == "t2"
        assert [(old, full) for _, old, full in source.asked] == [(None, False), ("t1", True)]
        assert kept.figures.rejected == 1

    run(journey())


def test_a_refused_credential_is_an_error_at_once_in_the_servers_words() -> None:
    async def journey() -> None:
        source = Scripted()
        source.fails = TokenRefused("invalid_client: unknown secret")
        async with keeper(source).running() as kept:
            with pytest.raises(TokenRefused, match="unknown secret"):
                await kept.wait(100)
            assert asyncio.get_running_loop().time() < 1001
            source.fails = None  # the secret is right now
            await asyncio.sleep(5)
            assert kept.ready() is not None

    run(journey())


def test_a_broken_source_does_not_end_the_keeper() -> None:
    class Broken(Scripted):
        async def obtain(self, old: str | None, *, full: bool) -> GrantedToken:
            if len(self.asked) == 0:
                self.asked.append((0, old, full))
                raise RuntimeError("a bug")
            return await super().obtain(old, full=full)

    async def journey() -> None:
        async with keeper(Broken()).running() as kept:
            assert await kept.wait(10) == "t2"

    run(journey())


def test_lifetimes_shorter_than_the_way_to_the_server_do_not_flood_it() -> None:
    async def journey() -> None:
        source = Scripted(lifetime=0.1, takes=0.3)
        async with keeper(source).running() as kept:
            with pytest.raises(TokenFailed, match="had expired when it came"):
                await kept.wait(60)
        assert len(source.asked) < 12

    run(journey())


@pytest.mark.parametrize(("takes", "ends"), [(2.0, 1), (60.0, 0)])
def test_the_end_waits_a_moment_for_an_answer_that_is_on_its_way(takes: float, ends: int) -> None:
    """A refresh token whose answer is not read may not be sent again."""
    started: list[str | None] = []
    ended: list[str | None] = []

    class Slow:
        async def obtain(self, old: str | None, *, full: bool) -> GrantedToken:
            started.append(old)
            await asyncio.sleep(takes)
            ended.append(old)
            now = asyncio.get_running_loop().time()
            return GrantedToken(Token("a", now, 100), "refresh_token")

    async def journey() -> float:
        clock = asyncio.get_running_loop().time
        async with Keeper(Slow(), 0.0, clock=clock).running():
            await asyncio.sleep(0.5)
            begin = clock()
        return clock() - begin

    took = run(journey())
    assert (len(started), len(ended)) == (1, ends)
    assert took == pytest.approx(1.5 if ends else GRACE_SECONDS, abs=0.1)
