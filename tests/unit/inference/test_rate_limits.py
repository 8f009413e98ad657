"""Rate limits: a gateway of known limits says them, and the client keeps to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from hpcbench import retry_after
from hpcbench.inference import rate_limits
from hpcbench.inference.adaptive import Adaptive
from hpcbench.inference.client import Client
from hpcbench.inference.load_driver import MOST_REFUSALS, drive
from hpcbench.inference.rate_limits import (
    LONGEST_PAUSE,
    RateLimits,
    Shared,
    now,
)
from hpcbench.schema.records import Response
from tests.unit.inference.limited import Gateway
from tests.unit.inference.talking import request, run


@contextlib.asynccontextmanager
async def open_gateway(gateway: Any) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", gateway.chat)
    runner = web.AppRunner(app)
    await runner.setup()
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        await web.UnixSite(runner, f"{folder}/s").start()
        try:
            yield f"{folder}/s"
        finally:
            await runner.cleanup()


async def ask_all(
    socket: str, count: int, at_once: int | Adaptive = 8, limits: RateLimits | None = None
) -> tuple[list[Response], RateLimits]:
    async with Client(socket, "key", "tiny", limits=limits) as client:
        requests = (request(f"s{number}") for number in range(count))
        found = [one async for one in drive(client, requests, at_once, asyncio.Event())]
        return found, client.limits


@pytest.mark.parametrize(
    "gateway",
    [
        Gateway(10),
        Gateway(10, "resets"),
        Gateway(10, windowed=True),
        Gateway(10, "resets", windowed=True),
        Gateway(1000, "resets", tokens=100),
        Gateway(10, "milliseconds", windowed=True),
        Gateway(20, "seconds", windowed=True),
        Gateway(20, "date", windowed=True),
        Gateway(10, "nothing"),
    ],
    ids=lambda one: f"{one.says}-{'window' if one.windowed else 'bucket'}",
)
def test_every_request_is_answered_within_the_gateways_limits(
    gateway: Gateway,
) -> None:
    async def journey() -> tuple[list[Response], RateLimits]:
        async with open_gateway(gateway) as socket:
            return await ask_all(socket, 40)

    found, limits = run(journey())
    assert [one.outcome for one in found] == ["ok"] * 40
    assert {one.tries for one in found} == {1}, "a refusal is no try"
    assert gateway.refused == limits.figures.refused <= 40
    assert limits.figures.waits and limits.figures.wait_seconds > 0


@pytest.mark.long
def test_workers_of_a_node_wait_together_after_one_was_refused(tmp_path: Path) -> None:
    gateway = Gateway(20, "seconds", windowed=True)

    async def journey() -> list[list[Response]]:
        async with open_gateway(gateway) as socket:
            shared = [RateLimits(Shared(tmp_path, "gateway")) for _ in range(4)]
            whole = await asyncio.gather(*(ask_all(socket, 15, 4, one) for one in shared))
            return [found for found, _ in whole]

    found = run(journey())
    assert {one.outcome for own in found for one in own} == {"ok"}
    assert gateway.refused <= 40
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_refusal_of_an_earlier_run_holds_nothing_up_once_its_pause_is_over(
    tmp_path: Path,
) -> None:
    Shared(tmp_path, "k").write(now() - 5)
    limits = RateLimits(Shared(tmp_path, "k"))
    assert limits.pause(now()) == 0
    limits.sent(now())
    assert limits.pause(now()) == 0


def test_a_gateway_that_is_away_and_says_until_when_is_waited_for() -> None:
    gateway = Gateway(3, "seconds", windowed=True)
    gateway.refusal = 503

    async def journey() -> tuple[list[Response], RateLimits]:
        async with open_gateway(gateway) as socket:
            return await ask_all(socket, 12)

    found, limits = run(journey())
    assert [one.outcome for one in found] == ["ok"] * 12
    assert {one.tries for one in found} == {1}, "it was not tried"
    assert gateway.refused == limits.figures.refused < 16


def test_a_failure_that_does_not_say_until_when_is_none_of_the_limits() -> None:
    limits = RateLimits()
    for headers in ({}, {"retry-after": "0"}, {"retry-after": "soon"}):
        limits.heard(limits.sent(0), 503, headers, 0)
    assert (limits.pause(0), limits.figures.refused) == (0, 0)


def test_after_a_refusal_one_request_goes_first() -> None:
    limits = RateLimits()
    out = [limits.sent(0) for _ in range(8)]
    assert limits.pause(0) == 0
    for one in out:
        limits.heard(one, 429, {"retry-after": "3"}, 1)
    assert limits.pause(1) == pytest.approx(3)
    assert limits.pause(4) == 0
    (first,) = [limits.sent(4)]
    assert limits.pause(4) is None, "its answer comes first"
    limits.heard(first, 200, {}, 5)
    sent = []
    while limits.pause(5) == 0:
        sent.append(limits.sent(5))
    assert len(sent) == 2
    for one in sent:
        limits.heard(one, 200, {}, 6)
    while limits.pause(6) == 0:
        sent.append(limits.sent(6))
    assert len(sent) == 2 + 4


def test_a_burst_of_refusals_counts_once_and_the_pauses_double() -> None:
    limits = RateLimits(chance=random.Random(1))
    moment, pauses = 0.0, []
    for _ in range(5):
        out = [limits.sent(moment) for _ in range(3)]
        for one in out:
            limits.heard(one, 429, {}, moment + 0.1)
        pauses.append(limits.pause(moment + 0.1) or 0)
        moment += 0.1 + pauses[-1]
    assert all(0.25 * 2**n <= pause <= 0.5 * 2**n for n, pause in enumerate(pauses))


def test_what_remains_is_asked_for_and_no_more() -> None:
    limits = RateLimits()
    head = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "3",
        "x-ratelimit-reset-requests": "57s",
    }
    limits.heard(limits.sent(0), 200, head, 0)
    for _ in range(3):
        assert limits.pause(0) == 0
        limits.sent(0)
    assert limits.pause(0) == pytest.approx(1, abs=0.01), "one comes back in a second"
    assert limits.held_by(0) == "3 of 60 requests remain; the next request goes in 1 s"


def test_tokens_are_counted_by_the_mean_of_the_answers() -> None:
    limits = RateLimits()
    head = {
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "250",
        "x-ratelimit-reset-tokens": "45s",
    }
    limits.heard(limits.sent(0), 200, head, 0)
    limits.used(100)
    limits.sent(0)
    limits.sent(0)
    assert limits.pause(0) == pytest.approx(3), "300 of 1000 in a minute"


def test_a_quota_that_is_used_up_ends_a_request_at_once() -> None:
    class Empty(Gateway):
        async def chat(self, asked: web.Request) -> web.Response:
            self.refused += 1
            error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
            return web.json_response({"error": error}, status=429)

    gateway = Empty(1)

    async def journey() -> list[Response]:
        async with open_gateway(gateway) as socket:
            return (await ask_all(socket, 2))[0]

    found = run(journey())
    assert {one.error for one in found} == {"HTTP 429: You exceeded your current quota"}
    assert gateway.refused == 2


def test_a_failed_try_counts_although_a_refusal_follows_it() -> None:
    class Ailing(Gateway):
        async def chat(self, asked: web.Request) -> web.Response:
            self.moments.append(0)
            if len(self.moments) in (1, 3):
                return web.json_response({}, status=502)
            if len(self.moments) in (2, 4):
                return web.json_response({}, status=429, headers={"retry-after-ms": "1"})
            return await super().chat(asked)

    gateway = Ailing(9)

    async def journey() -> list[Response]:
        async with open_gateway(gateway) as socket:
            return (await ask_all(socket, 1, 1))[0]

    (found,) = run(journey())
    assert (found.outcome, found.tries) == ("ok", 3)


def test_a_gateway_that_refuses_for_ever_fails_a_request_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limits, "_BELIEVED", MOST_REFUSALS)

    class Never(Gateway):
        async def chat(self, asked: web.Request) -> web.Response:
            self.refused += 1
            return web.json_response({}, status=429, headers={"retry-after-ms": "1"})

    gateway = Never(1)

    async def journey() -> list[Response]:
        async with open_gateway(gateway) as socket:
            return (await ask_all(socket, 1, 1))[0]

    (found,) = run(journey())
    assert found.outcome == "failed"
    assert "HTTP 429" in str(found.error)
    assert MOST_REFUSALS < gateway.refused <= MOST_REFUSALS + 3


def test_a_worker_that_is_to_end_does_not_wait_for_the_gateway() -> None:
    gateway = Gateway(3, "seconds", windowed=True)
    gateway.since = time.monotonic() + 3600  # the window never ends

    async def journey() -> list[Response]:
        async with open_gateway(gateway) as socket, Client(socket, "key", "tiny") as client:
            stop = asyncio.Event()
            driving = drive(client, (request(f"s{n}") for n in range(9)), 2, stop)
            found = []
            async for one in driving:
                found.append(one)
                if len(found) == 3:
                    asyncio.get_running_loop().call_later(0.2, stop.set)
            return found

    assert [one.outcome for one in run(journey())] == ["ok"] * 3


def test_the_search_for_the_best_concurrency_tries_no_more_while_a_gateway_refuses() -> None:
    search = Adaptive(most=64, first=4)
    moment = 0.0

    def window() -> None:
        nonlocal moment
        for _ in range(8 * search.limit + 40):
            moment += 1 / search.limit
            search.completed(moment)

    search.resume(0)
    while search.limit < 16:
        window()
    raised = search.limit
    search.limited()
    search.limited()
    assert search.limit < raised
    calm = search.limit
    window()
    assert search.limit <= calm
    for _ in range(20):
        window()
    assert search.limit > calm, "the gateway has long been calm"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1), ("6m0s", 360), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("7.66s", 7.66), ("30", 30),
        ("0", 0), ("", None), ("soon", None), ("1d", None), ("-3", None), ("5s ago", None),
    ],
)  # fmt: skip
def test_resets_in_openais_spellings(text: str, seconds: float | None) -> None:
    assert retry_after.reset(text, {}) == seconds


def test_a_reset_as_a_moment() -> None:
    assert retry_after.reset(str(time.time() + 30), {}) == pytest.approx(30, abs=1)
    date = formatdate(1_800_000_000, usegmt=True)
    for text in (
        "1800000030", "1800000030.0", "1800000030000", "2027-01-15T08:00:30Z",
        "2027-01-15T09:00:30+01:00", "2027-01-15t08:00:30z", formatdate(1_800_000_030, usegmt=True),
    ):  # fmt: skip
        assert retry_after.is_moment(text)
        assert retry_after.reset(text, {"date": date}) == 30, "by the gateway's own clock"
    assert not any(map(retry_after.is_moment, ("30", "6m0s", "", "soon", "999999999")))


def spelt(pattern: str, **values: str) -> dict[str, str]:
    return {pattern.format(name): value for name, value in values.items()}


@pytest.mark.parametrize(
    ("headers", "kind", "expected"),
    [
        (spelt("x-ratelimit-{}-requests", limit="60", remaining="5", reset="1s"), "requests", (60, 5, 1)),
        (spelt("x-ratelimit-{}-tokens", limit="9000", remaining="0", reset="6m0s"), "tokens",
         (9000, 0, 360)),
        (spelt("anthropic-ratelimit-requests-{}", limit="50", remaining="49",
               reset="2027-01-15T08:01:00Z"), "requests", (50, 49, 60)),
        (spelt("anthropic-ratelimit-tokens-{}", limit="40000", remaining="0",
               reset="2027-01-15T08:00:15Z"), "tokens", (40000, 0, 15)),
        (spelt("x-ratelimit-{}", limit="10, 10;w=60", remaining="3", reset="42"), "requests", (10, 3, 42)),
        (spelt("x-ratelimit-{}", limit="5000", remaining="0", reset="1800000600"), "requests",
         (5000, 0, 600)),
        (spelt("ratelimit-{}", limit="100", remaining="50", reset="50"), "requests", (100, 50, 50)),
        ({"ratelimit": "limit=100, remaining=50, reset=5"}, "requests", (100, 50, 5)),
        ({"ratelimit": '"default";r=50;t=30', "ratelimit-policy": '"default";q=100;w=60'}, "requests",
         (100, 50, 30)),
        ({"ratelimit": '"day";r=900;t=80000, "burst";r=2;t=5',
          "ratelimit-policy": '"day";q=1000;w=86400,"burst";q=10;w=10'}, "requests", (10, 2, 5)),
        ({"ratelimit": '"burst";r=0;t=1, "day";r=0;t=80000',
          "ratelimit-policy": '"burst";q=10;w=1,"day";q=1000;w=86400'}, "requests", (1000, 0, 80000)),
        ({"ratelimit": '"p";r=0', "ratelimit-policy": '"p";q=10;w=60'}, "requests", (10, 0, 60)),
    ],
)  # fmt: skip
def test_limits_in_the_spellings_of_gateways(
    headers: dict[str, str], kind: str, expected: tuple[float, float, float]
) -> None:
    limits, date = RateLimits(), formatdate(1_800_000_000, usegmt=True)
    limits.heard(limits.sent(0), 200, {**headers, "date": date}, 0)
    ((found, one),) = limits.allowances.items()
    assert found == kind
    assert (one.limit, one.remaining, one.reset) == expected
    if one.remaining == 0:
        assert (limits.pause(0) or 0) > 0


@pytest.mark.parametrize(
    "headers",
    [
        {"x-ratelimit-remaining-requests": "0"},  # Azure, at times: when it is back, is not said
        {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, {"ratelimit": '"default"'},
        {"x-ratelimit-limit": "0", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "60"},  # none
        {"ratelimit": '"default";r=0;t=60', "ratelimit-policy": '"default";q=0;w=60'},
        {"ratelimit": '"default";r=x;t=5'}, {"ratelimit-remaining": "-1", "ratelimit-reset": "9"},
        {"ratelimit-policy": '"default";q=1;w=60'},
        {"ratelimit": '"b";r=0;t=30', "ratelimit-policy": '"b";q=65535;qu="content-bytes";w=60'},
        {"ratelimit": '"c";r=0;t=30;qu="concurrent-requests"'},
    ],
)  # fmt: skip
def test_half_a_word_of_limits_holds_nothing_up(headers: dict[str, str]) -> None:
    limits = RateLimits()
    limits.heard(limits.sent(0), 200, headers, 0)
    assert limits.pause(0) == 0


WORDS = st.one_of(
    st.text(max_size=12), st.integers().map(str), st.floats().map(str),
    st.sampled_from(["6m0s", "1s", '"a";r=0;t=9', "limit=1, remaining=0, reset=1e9"]),
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.sampled_from([200, 429, 500]),
            st.dictionaries(
                st.sampled_from(
                    [
                        "retry-after", "retry-after-ms", "ratelimit", "ratelimit-policy",
                        "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset",
                        *(
                            f"x-ratelimit-{what}-{kind}"
                            for what in ("limit", "remaining", "reset")
                            for kind in ("requests", "tokens")
                        ),
                    ]
                ),
                WORDS,
            ),
            st.floats(0, 100),
        ),
        max_size=12,
    )
)  # fmt: skip
def test_whatever_a_gateway_says_the_pause_is_a_number_up_to_an_hour(
    heard: list[tuple[int, dict[str, str], float]],
) -> None:
    limits, moment = RateLimits(), 0.0
    for status, headers, seconds in heard:
        limits.heard(limits.sent(moment), status, headers, moment + seconds)
        moment += seconds
        pause = limits.pause(moment)
        assert pause is not None
        assert 0 <= pause <= LONGEST_PAUSE
        json.dumps(limits.to_json(), allow_nan=False)


def test_a_gateway_without_a_rest_is_asked_again_after_an_hour_whatever_it_says() -> None:
    limits = RateLimits()
    headers = {
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": "86400000",
    }  # perhaps milliseconds
    limits.heard(limits.sent(0), 200, headers, 0)
    assert limits.pause(0) == LONGEST_PAUSE
    assert limits.pause(LONGEST_PAUSE) == 0
    limits.heard(limits.sent(LONGEST_PAUSE), 200, headers, LONGEST_PAUSE)
    assert limits.pause(LONGEST_PAUSE) == LONGEST_PAUSE


def test_the_file_of_a_node_survives_nonsense_and_strangers(tmp_path: Path) -> None:
    one = Shared(tmp_path, "k")
    (file,) = tmp_path.iterdir()
    one.write(now() + 10)
    limits = RateLimits(Shared(tmp_path, "k"))
    assert 9 < (limits.pause(now()) or 0) < 12
    for text in ("soon", "", "inf", str(now() + 10 * LONGEST_PAUSE)):
        file.write_text(text)
        assert RateLimits(Shared(tmp_path, "k")).pause(now()) == 0
    file.unlink()
    file.symlink_to("/etc/passwd")
    assert RateLimits(Shared(tmp_path, "k")).pause(now()) == 0
    assert RateLimits(Shared(tmp_path / "none", "k")).pause(now()) == 0


@pytest.mark.parametrize("said", ["0", "0.0", "soon", "Wed, 21 Oct 2015 07:28:00 GMT", "²"])
def test_a_refusal_that_says_at_once_or_nothing_readable_makes_pauses_that_double(
    said: str,
) -> None:
    limits, moment, pauses = RateLimits(), 0.0, []
    for _ in range(5):
        limits.heard(limits.sent(moment), 429, {"retry-after": said}, moment)
        pauses.append(limits.pause(moment) or 0.0)
        moment += pauses[-1]
    assert pauses[0] >= 0.25 and pauses[-1] >= 4


class Resting:
    """A gateway whose first answer says that nothing remains for a while; then it has no limit."""

    async def chat(self, asked: web.Request) -> web.Response:
        await asked.read()
        headers = {} if self.rested else {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2"}
        self.rested = True
        choice = {"message": {"content": "42"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]}, headers=headers)

    rested = False


def test_no_request_loses_its_time_while_those_before_it_wait_for_the_gateway() -> None:
    """Requests are prepared ahead, and the first one that waits is not the only one that is late."""

    async def journey() -> list[Response]:
        async with open_gateway(Resting()) as socket, Client(socket, "key", "tiny") as client:
            requests = (request(f"s{number}", timeout=1) for number in range(12))
            first = [one async for one in drive(client, [next(requests)], 1, asyncio.Event())]
            rest = drive(client, requests, 8, asyncio.Event())
            return [*first, *[one async for one in rest]]

    found = run(journey())
    assert [one.error for one in found] == [None] * 12
    slowest = max(one.times.send - one.times.start for one in found)
    assert slowest < 5e8, "no latency has the gateway's pause"


@pytest.mark.parametrize("word", [{"retry-after": "1"}, {"retry-after-ms": "20"}])
def test_a_gateway_that_always_says_soon_is_asked_less_and_less(word: dict[str, str]) -> None:
    """A request may be refused 60 times; that was over within a minute, or within two seconds."""
    limits, moment, moments = RateLimits(), 0.0, list[float]()
    for _ in range(MOST_REFUSALS):
        moment += limits.pause(moment) or 0.0
        limits.heard(limits.sent(moment), 429, word, moment)
        moments.append(moment)
    assert moments[9] < 10, "it is believed at first"
    assert moments[-1] > 20 * 60
    moment += limits.pause(moment) or 0.0
    limits.heard(limits.sent(moment), 200, {}, moment)
    limits.heard(limits.sent(moment), 429, word, moment)
    assert (limits.pause(moment) or 0.0) <= 1, "and after an answer"
