"""A model behind a gateway that limits the rate, and budgets: the whole way, from submit to the report."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web

from tests.faults.conftest import SAMPLES, Bench, Trial, kill, until, whole
from tests.unit.inference.limited import Gateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture
def gateway() -> Iterator[tuple[Gateway, str]]:
    """A gateway that lets 12 requests through and then none for a while, and its address."""
    limited = Gateway(12, "seconds", windowed=True)
    loop, up = asyncio.new_event_loop(), threading.Event()
    port = []

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", limited.chat)
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


def test_a_budget_ends_a_run_in_order_and_a_larger_one_goes_on(bench: Bench, calm: Trial) -> None:
    trial = bench.submit(
        bench.plan({}, parallelism=2, workers="all", shard_size=4, max_requests=15)
    )

    now = trial.wait("incomplete")

    before = trial.answers()
    assert len(before) == now["answered"] == 15
    why = now["run_tasks"][0]["reason"]
    assert why.startswith("the rest is not asked: budget (15 of 15 requests spent")
    assert f"`hpcbench resume {trial.id}` with a larger" in why
    assert now["reason"].startswith("15 of 40 samples are ok")
    assert trial.rounds == 1
    bench.run("resume", trial.id, code=None)  # the same budget is still used up
    trial.wait("incomplete")
    assert len(trial.answers()) == 15

    bench.run("resume", trial.id, "--max-requests", "1000")

    trial.wait("done")
    whole(trial, calm, [before])
    assert trial.twice() == []


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
