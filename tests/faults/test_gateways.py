"""A model behind a gateway that limits the rate, and budgets: the whole way, from submit to the report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from hpcbench.experiment.layout import Experiment
from tests.faults.conftest import SAMPLES, Bench, Trial, kill, until, whole
from tests.unit.inference.limited import Gateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

elsewhere = pytest.mark.parametrize("route", ["direct"])
"""For tests with a model elsewhere: its relay is a hop by both routes, so the other one shows no more."""

AWAY = threading.Event()
"""While it is set, the token server cannot answer."""

SECRET, TOKEN = "c0rrect-horse-battery", "tok.3n-of-the-gateway"


@web.middleware
async def with_door(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Below /secure only who brings the token is let in; one question is refused with all that it brought."""
    if not request.path.startswith("/secure"):
        return await handler(request)
    given = request.headers.get("Authorization", "")
    if given != f"Bearer {TOKEN}":
        return web.json_response({"error": {"message": "no token"}}, status=401)
    if "question 003" in await request.text():
        said = f"cannot answer {given}, whose client has {SECRET}"
        return web.json_response({"error": {"message": said}}, status=400)
    return await handler(request)


async def give_token(request: web.Request) -> web.Response:
    """A token for the secret."""
    if AWAY.is_set():
        return web.Response(status=503, text="the tokens' database is away")
    form = await request.post()
    if form.get("client_secret") != SECRET:
        return web.json_response({"error": "invalid_client"}, status=401)
    return web.json_response({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600})


@pytest.fixture
def gateway() -> Iterator[tuple[Gateway, str]]:
    """A gateway that lets 12 requests through and then none for a while, and its address."""
    limited = Gateway(12, "seconds", windowed=True)
    loop, up = asyncio.new_event_loop(), threading.Event()
    port = []

    async def start() -> web.AppRunner:
        app = web.Application(middlewares=[with_door])
        app.router.add_post("/v1/chat/completions", limited.chat)
        app.router.add_post("/secure/v1/chat/completions", limited.chat)
        app.router.add_post("/token", give_token)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "localhost", 0).start()
        port.append(runner.addresses[0][1])
        return runner

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        up.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    assert up.wait(10)
    yield limited, f"http://localhost:{port[0]}/v1"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@elsewhere
def test_a_gateways_limits_fail_no_sample_and_the_run_says_that_they_held_it_up(
    bench: Bench, gateway: tuple[Gateway, str]
) -> None:
    limited, url = gateway
    bench.model(
        "elsewhere", engine="remote", source="", package=None,
        engine_options={"base_url": url, "model": "m", "auth": {"type": "none"}},
        prices={"input": 1.0, "output": 2.0},
    )  # fmt: skip
    task = {"model": "elsewhere", "concurrency": 8}
    trial = bench.submit(bench.plan(task, parallelism=2, workers="all", shard_size=4))

    now = trial.wait("done")

    assert now["answered"] == limited.answered == SAMPLES
    (alarm,) = [one for one in now["alarms"] if one["kind"] == "limited"]
    assert "the gateway of elsewhere limits the rate" in alarm["cause"]
    assert "the gateway of elsewhere limits the rate" in trial.screen()
    reported = json.loads((trial.path / "performance.json").read_text())["run_tasks"]["numbers"]
    assert reported["limits"]["refused"] == limited.refused
    assert reported["load"]["route"] == "proxied", "a relay is a hop in any case"
    assert reported["tries"] == SAMPLES, "a refusal is no try"


@elsewhere
def test_a_worker_that_has_to_end_does_not_wait_for_a_gateway_with_its_warm_up(
    bench: Bench, gateway: tuple[Gateway, str]
) -> None:
    limited, url = gateway
    limited.limit = limited.left = 0
    bench.model(
        "elsewhere", engine="remote", source="", package=None,
        engine_options={"base_url": url, "model": "m", "auth": {"type": "none"}},
    )  # fmt: skip
    trial = bench.submit(bench.plan({"model": "elsewhere", "warm_up": 1}))
    until(lambda: limited.refused, "a refusal")
    bench.run("pause", trial.id)
    begin = time.monotonic()

    trial.wait("paused")

    assert time.monotonic() - begin < 30
    limited.limit = 1000
    trial.resume()
    trial.wait("done")
    assert limited.answered == SAMPLES + 1, "the warm-up came after all"


@elsewhere
def test_a_secret_and_its_token_are_in_no_argument_and_in_no_file_of_an_experiment(
    bench: Bench, gateway: tuple[Gateway, str]
) -> None:
    limited, url = gateway
    limited.limit = 1000
    behind_a_token_server(bench, url)
    bench.environ["GATEWAY_SECRET"] = SECRET
    arguments: set[bytes] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # it has ended
                    arguments.add(place.read_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        stages = ["inference", "evaluation", "reporting"]
        trial = bench.submit(bench.plan({"model": "elsewhere"}, parallelism=2, stages=stages))
        trial.wait("done")
        screen = trial.screen()
    finally:
        over.set()
        watcher.join()

    answers = trial.answers()
    refused = [text for text in answers.values() if not text.startswith("ok ")]
    assert (len(answers), len(refused)) == (SAMPLES, 1)
    assert any(b"hpcbench.wrapper" in one for one in arguments)
    written = {place: place.read_bytes() for place in bench.home.rglob("*") if place.is_file()}
    assert any(b"cannot answer" in data for data in written.values()), "the refusal is kept"
    for hidden in (SECRET.encode(), TOKEN.encode()):
        assert not [one for one in arguments if hidden in one]
        assert not [place for place, data in written.items() if hidden in data]
        assert hidden.decode() not in screen


@elsewhere
def test_a_resume_without_the_secret_or_with_a_wrong_one_submits_nothing(
    bench: Bench, gateway: tuple[Gateway, str]
) -> None:
    limited, url = gateway
    limited.limit = 1000
    behind_a_token_server(bench, url)
    plan = bench.plan({"model": "elsewhere", "limit": 3}, max_requests=2)
    trial = bench.submit(plan, GATEWAY_SECRET=SECRET)
    trial.wait("incomplete")
    more = ("resume", trial.id, "--max-requests", "1000")

    _, lacking = bench.run(*more, code=2)
    _, wrong = bench.run(*more, code=2, GATEWAY_SECRET="not-the-secret")

    assert "${env:GATEWAY_SECRET}: the variable is not set" in lacking
    assert "no token for model 'elsewhere': the token server answers 401" in wrong
    assert (trial.rounds, trial.status()["state"]) == (1, "incomplete")
    bench.run(*more, GATEWAY_SECRET=SECRET)
    trial.wait("done")
    assert len(trial.answers()) == 3


@elsewhere
def test_a_load_says_which_token_it_waits_for_and_its_failed_requests_count(
    bench: Bench, gateway: tuple[Gateway, str]
) -> None:
    limited, url = gateway
    limited.limit = 1000
    behind_a_token_server(bench, url)
    AWAY.set()
    try:
        trial = bench.submit(bench.plan({"model": "elsewhere", "limit": 3}), GATEWAY_SECRET=SECRET)
        until(lambda: trial.said("token"), "a word about the token while the model loads", 20)
        now, screen = trial.status(), trial.screen()
    finally:
        AWAY.clear()

    (worker,) = now["workers"]
    assert worker["state"] == "loading"
    assert "requests failed" in worker["token"]
    (alarm,) = [one for one in now["alarms"] if one["kind"] == "token_failed"]
    assert "the tokens' database is away" in alarm["cause"]
    assert "the tokens' database is away" in screen
    trial.wait("done")
    reported = json.loads((trial.path / "performance.json").read_text())["run_tasks"]["numbers"]
    assert reported["tokens"]["failed"]["full_auth"] >= 1
    assert sum(reported["tokens"]["granted"].values()) == 1


@elsewhere
def test_a_load_that_fails_without_a_token_leaves_its_figures(
    bench: Bench, gateway: tuple[Gateway, str]
) -> None:
    behind_a_token_server(bench, gateway[1], timeout=2)
    AWAY.set()
    try:
        stages = ["inference", "evaluation", "reporting"]
        plan = bench.plan({"model": "elsewhere", "limit": 3}, stages=stages)
        trial = bench.submit(plan, GATEWAY_SECRET=SECRET)
        trial.wait("failed")
    finally:
        AWAY.clear()

    last = trial.said("token")[-1]
    assert (last["state"], last["granted"]) == ("none", {})
    assert last["failed"]["full_auth"] >= 2
    assert last["waits"] == 1
    out, _ = bench.run("export", trial.id, "--what", "token_refresh_metrics", "--format", "csv")
    assert f"full_auth,0,{last['failed']['full_auth']}" in out
    reported = json.loads((trial.path / "performance.json").read_text())["run_tasks"]["numbers"]
    assert reported["tokens"]["failed"] == last["failed"]


@elsewhere
def test_tokens_of_a_model_that_an_agent_uses_beside_its_own_count(
    bench: Bench, gateway: tuple[Gateway, str]
) -> None:
    limited, url = gateway
    limited.limit = 1000
    behind_a_token_server(bench, url)
    bench.script(answer_ms=[1, 3], calls=[["hand_over", {"agent": "writer"}]])
    roles = {"thinker": {"prompt": "Think."}, "writer": {"prompt": "Write.", "model_of": "reads"}}
    thinks = {"agent": {"tools": ["calculator"], "agents": roles}, "limit": 2}
    reads = {"name": "reads", "model": "elsewhere", "limit": 1}
    trial = bench.submit(bench.plan(thinks, reads), GATEWAY_SECRET=SECRET)
    trial.wait("done")

    of_agents = [
        [event for event in events if event["event"] == "token"]
        for _, events in Experiment(trial.path).worker_records()
        if any("numbers" in str(event.get("shard")) for event in events)
    ]
    assert of_agents
    for said in of_agents:
        assert said
        assert {event["model"] for event in said} == {"elsewhere"}


def behind_a_token_server(bench: Bench, url: str, **options: float) -> None:
    """The model `elsewhere`, whose gateway wants a token."""
    address = url.removesuffix("/v1")
    auth = {
        "token_url": f"{address}/token", "client_id": "benchmark",
        "client_secret": "${env:GATEWAY_SECRET}", "client_auth": "client_secret_post",
    }  # fmt: skip
    bench.model(
        "elsewhere", engine="remote", source="", package=None,
        engine_options={"base_url": f"{address}/secure/v1", "model": "m", "auth": auth, **options},
    )  # fmt: skip
    bench.environ["XDG_STATE_HOME"] = str(bench.folder / "state")


def test_a_budget_ends_a_run_in_order_and_a_larger_one_goes_on(bench: Bench, calm: Trial) -> None:
    trial = bench.submit(
        bench.plan({}, parallelism=2, workers="all", shard_size=4, max_requests=15)
    )

    now = trial.wait("incomplete")

    before = trial.answers()
    assert len(before) == now["answered"] == 15
    why = now["run_tasks"][0]["reason"]
    assert why.startswith("the rest is not asked: budget (15 of 15 requests, ")
    assert (now["spending"]["requests"], now["spending"]["max_requests"]) == (15, 15)
    assert f"`hpcbench resume {trial.id}` with a larger" in why
    assert now["reason"].startswith("15 of 40 samples are ok")
    assert trial.rounds == 1
    for same_or_less in ([], ["--max-requests", "14"]):  # it is still used up
        _, err = bench.run("resume", trial.id, *same_or_less)
        assert f"{trial.id}: nothing more was asked" in err
        assert f"{trial.id} is incomplete: 15 of 40 samples are ok" in err
        assert "tokens spent" in err
        trial.wait("incomplete")
        assert len(trial.answers()) == 15
        assert trial.rounds == 1
    _, err = bench.run("resume", trial.id, "--max-cost", "5", code=2)
    assert "max_cost needs `prices`" in err, "it would limit nothing"

    bench.run("resume", trial.id, "--max-requests", "1000")

    trial.wait("done")
    whole(trial, calm, [before])
    assert trial.twice() == []


def test_a_budget_that_comes_with_resume_has_the_requests_before_it(bench: Bench) -> None:
    bench.script(answer_ms=[900, 1000])  # slow: commands of a busy machine are, too
    trial = bench.submit(bench.plan({"concurrency": 1}))
    until(lambda: trial.answered() >= 2, "answers")
    said = "".join(bench.run("resume", trial.id, "--max-requests", "1000"))
    assert "is running: nothing to resume; workers that start later have the new budget" in said
    bench.run("pause", trial.id)
    trial.wait("paused")
    before = len(trial.answers())
    bench.script(answer_ms=[1, 3])

    bench.run("resume", trial.id, "--max-requests", before + 3)

    trial.wait("incomplete")
    assert len(trial.answers()) == before + 3


def test_a_worker_that_dies_takes_no_budget_with_it(bench: Bench) -> None:
    bench.script(answer_ms=[150, 250])
    trial = bench.submit(bench.plan({"concurrency": 2}, shard_size=20, max_requests=30))
    until(lambda: len(trial.said("budget")) > 0, "a word of the budget")
    for pid in trial.workers():
        kill(pid)
    bench.script(answer_ms=[1, 3])

    trial.wait("incomplete", "lost")
    if trial.status()["state"] == "lost":
        trial.resume()
        trial.wait("incomplete")

    asked = len(trial.answers())
    assert 25 <= asked <= 30 + 2, "what a dead worker sent after its last word is not known"


def test_an_agents_requests_count_before_its_sample_has_an_answer(bench: Bench) -> None:
    calls = [["calculator", {"expression": f"6 * {number}"}] for number in range(60)]
    bench.script(answer_ms=[400, 400], calls=calls)
    agent = {"agent": {"tools": ["calculator"]}, "concurrency": 1}
    trial = bench.submit(bench.plan(agent, max_requests=100))
    until(lambda: len(trial.said("budget")) > 1, "two words of the budget", 20)
    said = trial.said("budget")[-1]["spent"]

    for pid in trial.workers():
        kill(pid)

    assert trial.answered() == 0
    assert said["requests"] > 5


@pytest.fixture
def paid(bench: Bench, gateway: tuple[Gateway, str]) -> Gateway:
    """A gateway that refuses nothing, and whose model `elsewhere` has prices."""
    found, url = gateway
    found.limit = 1000
    bench.model(
        "elsewhere", engine="remote", source="", package=None,
        engine_options={"base_url": url, "model": "m", "auth": {"type": "none"}},
        prices={"input": 1.0, "output": 1.0},
    )  # fmt: skip
    return found


@elsewhere
def test_a_budget_of_a_model_beside_an_agents_own_ends_the_agent(
    bench: Bench, paid: Gateway
) -> None:
    bench.script(answer_ms=[1, 3], calls=[["hand_over", {"agent": "writer"}]])
    roles = {"thinker": {"prompt": "Think."}, "writer": {"prompt": "Write.", "model_of": "reads"}}
    thinks = {"agent": {"tools": ["calculator"], "agents": roles}, "concurrency": 2}
    reads = {"name": "reads", "model": "elsewhere", "generation": {"max_tokens": 16}}
    trial = bench.submit(bench.plan(thinks, reads, max_cost=0.00006))

    now = trial.wait("incomplete")

    assert paid.answered == 6, "each one costs 10 millionths"
    spent = "0.00006 of 0.00006 USD spent)"
    assert all(spent in one["reason"] for one in now["run_tasks"])
    assert trial.rounds == 1
    assert len(trial.shard_events("numbers")) < 40


@elsewhere
def test_a_budget_that_ends_one_arm_of_a_comparison_ends_the_other(
    bench: Bench, paid: Gateway
) -> None:
    costs = {"model": "elsewhere", "generation": {"max_tokens": 16}}
    plans = bench.plan(costs, name="a", max_cost=0.0001), bench.plan({}, name="b")
    out, _ = bench.run("ab", *plans, "--registry", bench.folder / "registry", "--json")
    trial = Trial(bench, Path(json.loads(out)["path"]))

    now = trial.wait("incomplete")

    arms = {one["name"]: one for one in now["run_tasks"]}
    assert arms["numbers.a"]["answered"] == paid.answered == 10
    assert arms["numbers.b"]["answered"] <= 16, "it has the same shards"
    assert "the rest is not asked: budget" in arms["numbers.b"]["reason"]
