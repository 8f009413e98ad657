"""A budget that several workers share: no two spend the same part, and a dead one loses nothing."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from hpcbench.experiment import budget
from hpcbench.experiment.budget import Ledger, cost_of, settle, why_over
from hpcbench.experiment.control import control_request, control_state
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import WorkerRun
from hpcbench.inference.client import Client
from hpcbench.inference.load_driver import drive, warm_up
from hpcbench.schema.model import Prices
from hpcbench.schema.records import Request, Response, Times
from hpcbench.schema.spending import Amount, BudgetCaps
from hpcbench.worker import budget_share
from hpcbench.worker.budget_share import BudgetShare
from tests.mock_openai import Script, Server
from tests.unit.inference.limited import Gateway
from tests.unit.inference.talking import request, run
from tests.unit.inference.test_rate_limits import open_gateway

CAPS = BudgetCaps(max_requests=100)


class Model:
    name = "m"
    prices: Prices | None = Prices(input=1.0, output=10.0, image=0.5)


class Task:
    name, model = "t", Model()


class News:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def write(self, kind: str, **details: Any) -> None:
        self.events.append((kind, details))


def test_workers_that_take_at_once_never_take_more_than_there_is(tmp_path: Path) -> None:
    def take_all(number: int) -> float:
        ledger, whole = Ledger(Experiment(tmp_path)), 0.0
        while part := ledger.take(f"w{number}", Amount(7), Amount(1), CAPS):
            whole += part.requests
        ledger.report_over(f"w{number}", CAPS, Amount(1))
        return whole

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(take_all, range(8)))
    assert sum(found) == 100
    ledger = Ledger(Experiment(tmp_path))
    assert ledger.taken() == Amount(100)
    assert ledger.over(CAPS)
    assert not ledger.over(BudgetCaps(max_requests=101)), "a larger budget is another one"
    names = sorted(path.name for path in (tmp_path / "budget").iterdir())
    assert names == [f"{number:05d}.json" for number in range(1, len(names) + 1)]


def test_what_is_given_back_can_be_taken_and_what_was_overspent_counts(tmp_path: Path) -> None:
    ledger = Ledger(Experiment(tmp_path))
    assert ledger.take("a", Amount(60), Amount(1), CAPS) == Amount(60)
    assert ledger.take("b", Amount(60), Amount(1), CAPS) == Amount(40)
    assert ledger.take("c", Amount(1), Amount(1), CAPS) is None
    ledger.give_back("a", Amount(50))
    ledger.give_back("b", Amount(-3, 12))
    assert Ledger(Experiment(tmp_path)).taken() == Amount(53, -12)
    assert ledger.held() == {}


def test_a_dead_worker_keeps_what_it_spent_and_loses_the_rest(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    ledger = Ledger(here)
    for worker in ("7_0-0", "7_1-0"):
        ledger.take(worker, Amount(40), Amount(1), CAPS)
    here.workers_dir.mkdir()
    with EventLog(here.workers_dir / "g0.7_0-0.events.jsonl") as log:
        log.write("started", owner={"job": "7_0", "restart": 0})
        for requests in (3, 12):
            log.write("budget", spent={"requests": requests, "tokens": 10 * requests, "cost": 0.5})
    assert settle(here).taken() == Amount(12, 120, 0.5)
    assert settle(here).taken() == Amount(12, 120, 0.5), "a second time changes nothing"


def test_what_a_dead_worker_held_is_asked_although_another_was_refused_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = Experiment(tmp_path)
    ledger = Ledger(experiment)
    for worker in ("dead", "ended"):
        assert ledger.take(worker, Amount(50), Amount(1), CAPS)
    ledger.report_over("ended", CAPS, Amount(2))
    ledger.give_back("ended", Amount(1))
    assert ledger.over(CAPS), "what a living worker left does not pay a request"
    dead = WorkerRun("g0", "dead", spent=Amount(30))
    monkeypatch.setattr(budget, "worker_runs", lambda _: [dead])
    assert not settle(experiment).over(CAPS)
    assert settle(experiment).taken() == Amount(79)


def test_a_budget_is_over_by_what_is_left_of_it(tmp_path: Path) -> None:
    ledger = Ledger(Experiment(tmp_path))
    caps = BudgetCaps(max_requests=10, max_tokens=1000)
    assert ledger.take("a", Amount(4, 900), Amount(1, 100), caps)
    assert ledger.take("b", Amount(1, 200), Amount(1, 200), caps) is None
    ledger.report_over("b", caps, Amount(2, 400))
    assert ledger.over(caps)
    ledger.give_back("a", Amount(0, 250))
    assert ledger.over(caps), "two workers may leave so much, each too little for a request"
    ledger.give_back("c", Amount(0, 100))
    assert not ledger.over(caps), "a worker that was drained gave it back"
    used_up = BudgetCaps(max_requests=4, max_cost=5)
    assert ledger.over(used_up), "another budget that pays no request either"
    assert not ledger.over(BudgetCaps(max_requests=5, max_cost=5))


def test_a_user_raises_the_budget_and_the_plan_has_the_rest(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    control_request(here, "resume", budget={"max_cost": 3.0})
    control_request(here, "resume", budget={"max_cost": 5.0})
    control_request(here, "pause")
    assert control_state(here).budget == {"max_cost": 5.0}
    infinite = float("inf")
    assert BudgetCaps(max_cost=5.0).most == Amount(infinite, infinite, 5.0)


def test_the_reason_says_what_is_spent_of_what() -> None:
    caps = BudgetCaps(max_tokens=2_000_000, max_cost=5)
    assert why_over(caps, Amount(9, 1_999_000, 4.98765), "EUR") == (
        "the rest is not asked: budget (9 requests, 1,999,000 of 2,000,000 tokens, 4.98765 of 5 EUR spent)"
    )


def test_prices_are_of_a_million_tokens_and_of_one_image() -> None:
    prices = Prices(input=0.15, output=0.60, image=0.001)
    assert prices.cost(1_000_000, 0) == pytest.approx(0.15)
    assert prices.cost(2000, 500, 3) == pytest.approx(0.0003 + 0.0003 + 0.003)


class Worker:
    """A worker's share of the budget, and what it asks of a server that counts tokens."""

    def __init__(
        self,
        folder: Path,
        caps: BudgetCaps,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        of: int = 1,
    ) -> None:
        monkeypatch.setattr(budget_share, "caps_of", lambda experiment: caps)
        self.news = News()
        self.share = BudgetShare(Experiment(folder), name, of, cast(Any, self.news))
        self.task = self.share.of(cast(Any, Task()))

    async def ask(self, server: str, names: str, count: int, at_once: int = 4) -> list[Response]:
        async with Client(server, "key", "tiny") as client:
            assert await warm_up(client, [request(f"{names}-w")], 1, self.task) <= 1
            requests = (request(f"{names}{number}") for number in range(count))
            stop = asyncio.Event()
            return [one async for one in drive(client, requests, at_once, stop, budget=self.task)]


def answered(asked: Request, **change: Any) -> Response:
    """An answer to a request, without a server."""
    fields = {
        "outcome": "ok", "text": "x", "finish_reason": "stop", "usage": None, "tries": 1,
        "times": Times(0, 0, None, (), 0), "image_sha256": (), **change,
    }  # fmt: skip
    return Response(asked.sample_id, **fields)


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_share_a_budget_of_requests_to_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    caps = BudgetCaps(max_requests=40)
    all_of_them = [Worker(tmp_path, caps, monkeypatch, f"w{n}", workers) for n in range(workers)]

    async def journey() -> int:
        async with Server(str(tmp_path / "s"), Script(gap=0.001)) as server:
            found = await asyncio.gather(
                *(one.ask(str(tmp_path / "s"), f"{n}-", 60) for n, one in enumerate(all_of_them))
            )
            for one in all_of_them:
                one.share.close()
            assert sum(map(len, found)) == 40 - workers, "warm-ups count, too"
            return len(server.seen)

    assert run(journey()) == 40
    assert all(one.share.empty for one in all_of_them)
    assert all(one.share.rests(cast(Any, Task())) for one in all_of_them)
    assert Ledger(Experiment(tmp_path)).taken().requests == 40
    assert Ledger(Experiment(tmp_path)).over(caps)


def test_tokens_and_money_are_exceeded_by_requests_in_flight_at_the_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caps = BudgetCaps(max_tokens=300, max_cost=1.0)
    one = Worker(tmp_path, caps, monkeypatch, "w")

    async def journey() -> list[Response]:
        async with Server(str(tmp_path / "s"), Script()):
            found = await one.ask(str(tmp_path / "s"), "a", 500)
            one.share.close()
            return found

    found = run(journey())
    each = [sum(cast(Any, answer.usage).values()) for answer in found]
    taken = Ledger(Experiment(tmp_path)).taken()
    assert taken.tokens == pytest.approx(sum(each) + each[0])
    assert 300 - max(each) <= taken.tokens <= 300 + 4 * max(each)
    kinds = {kind for kind, _ in one.news.events}
    assert kinds == {"budget"}
    assert json.loads(json.dumps(one.news.events[-1][1]["spent"]))["tokens"] == taken.tokens


@pytest.mark.parametrize("caps", [BudgetCaps(max_tokens=300), BudgetCaps(max_cost=0.003)])
@pytest.mark.parametrize("usage", [None, {}])
@pytest.mark.parametrize("text", ["x", None])  # a turn of an agent may be calls of tools alone
def test_answers_whose_tokens_no_server_counts_use_the_budget_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caps: BudgetCaps, usage: Any, text: str | None
) -> None:
    """Some gateways leave `usage` out; a budget of tokens or money would never end a run there."""
    one = Worker(tmp_path, caps, monkeypatch, "w")

    async def ask() -> int:
        task: Any = one.task
        for count in range(1000):
            asked = request(str(count))
            if not await task.reserve(asked):
                return count
            answer = answered(asked, usage=usage, text=text)
            task.spend(asked, answer)
        return 1000

    most = request("a").generation["max_tokens"]
    count = run(ask())
    assert count == (300 // most if caps.max_tokens else 0.003 // (most * 10 / 1e6))
    one.share.close()


def test_a_failed_request_without_a_count_costs_no_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Worker(tmp_path, BudgetCaps(max_tokens=1000, max_requests=9), monkeypatch, "w")

    async def ask() -> None:
        task: Any = one.task
        assert await task.reserve(asked := request("a"))
        failed = {"text": None, "outcome": "failed", "error": "HTTP 500: no", "tries": 3}
        task.spend(asked, answered(asked, **failed))

    run(ask())
    one.share.close()
    assert Ledger(Experiment(tmp_path)).taken() == Amount(3)


def test_after_a_failed_request_the_next_ones_are_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = int(request("a").generation["max_tokens"])
    one = Worker(tmp_path, BudgetCaps(max_tokens=2 * full), monkeypatch, "w")

    async def ask() -> None:
        assert await one.task.reserve(first := request("a"))
        one.task.spend(first, answered(first, text=None, outcome="invalid", error="no"))
        asked = [request("b"), request("c")]  # their ids are those of living objects
        for other in asked:
            assert await one.task.reserve(other)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(one.task.reserve(request("d")), 0.3)
        for other in asked:
            one.task.spend(other, answered(other, usage={"completion_tokens": full}))

    run(ask())


def test_tries_whose_answers_were_lost_count_besides_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = int(request("a").generation["max_tokens"])
    one = Worker(tmp_path, BudgetCaps(max_tokens=100 * full), monkeypatch, "w")
    used = {"prompt_tokens": 8, "completion_tokens": 2}

    async def ask() -> None:
        for number in range(3):
            assert await one.task.reserve(asked := request(str(number)))
            one.task.spend(asked, answered(asked, usage=used, tries=2, lost=1))

    run(ask())
    one.share.close()
    # The first lost answer may have had full length; then the dearest answer is known.
    assert Ledger(Experiment(tmp_path)).taken()[:2] == (6, full + 2 * 10 + 3 * 10)


def test_a_budget_ends_a_run_whose_requests_are_worked_on_and_never_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Worker(tmp_path, BudgetCaps(max_cost=0.003), monkeypatch, "w")
    lost = {"text": None, "outcome": "failed", "error": "no answer before the deadline", "lost": 1}

    async def ask() -> int:
        for count in range(1000):
            if not await one.task.reserve(asked := request(str(count))):
                return count
            one.task.spend(asked, answered(asked, **lost))
        return 1000

    assert run(ask()) == 0.003 // (request("a").generation["max_tokens"] * 10 / 1e6)
    one.share.close()


def test_a_request_that_is_lost_counts_as_much_as_it_might_have_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Worker(tmp_path, BudgetCaps(max_tokens=1000), monkeypatch, "w")
    lost, unsent = request("a"), request("b")

    async def reserve() -> None:
        task: Any = one.task
        assert await task.reserve(lost)
        assert await task.reserve(unsent)
        task.spend(lost, None)
        task.release(unsent)

    run(reserve())
    one.share.close()
    assert Ledger(Experiment(tmp_path)).taken().tokens == lost.generation["max_tokens"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_budget_that_pays_few_answers_of_full_length_is_spent_by_short_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    caps = BudgetCaps(max_tokens=2000)
    shares = [Worker(tmp_path, caps, monkeypatch, f"w{n}", workers) for n in range(workers)]

    async def ask(one: Worker, server: str) -> None:
        async with Client(server, "key", "tiny") as client:
            requests = (request(f"a{number}", max_tokens=300) for number in range(500))
            async for _ in drive(client, requests, 32, asyncio.Event(), budget=one.task):
                pass
        one.share.close()

    async def journey() -> None:
        async with Server(server := str(tmp_path / "s"), Script(gap=0.001)):
            await asyncio.gather(*(ask(one, server) for one in shares))

    run(journey())
    ledger = Ledger(Experiment(tmp_path))
    assert ledger.taken().tokens > 1900, "32 at once might take 9600"
    assert ledger.over(caps)


def test_a_request_that_waits_for_the_budget_loses_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Worker(tmp_path, BudgetCaps(max_tokens=10_000), monkeypatch, "w")
    monkeypatch.setattr(BudgetShare, "_likely", lambda *_: Amount(1, 9000))  # so they go one by one

    async def journey() -> list[Response]:
        script = Script(gap=0.1)
        async with Server(s := str(tmp_path / "s"), script), Client(s, "key", "tiny") as client:
            asked = (request(f"a{number}", timeout=1) for number in range(8))
            answers = drive(client, asked, 8, asyncio.Event(), budget=one.task)
            return [answer async for answer in answers]

    assert [answer.error for answer in run(journey())] == [None] * 8


def test_requests_that_a_gateway_refuses_do_not_hold_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, gateway = Worker(tmp_path, BudgetCaps(max_requests=30), monkeypatch, "w"), Gateway(6)

    async def journey() -> int:
        async with open_gateway(gateway) as server:
            return len(await one.ask(server, "a", 60, at_once=12))

    assert run(journey()) + 1 == gateway.answered == 30
    assert gateway.refused
    one.share.close()
    assert Ledger(Experiment(tmp_path)).taken().requests == 30


def test_a_run_that_ends_while_a_slice_is_taken_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Worker(tmp_path, BudgetCaps(max_requests=100), monkeypatch, "w")
    take, started = Ledger.take, threading.Event()

    def slow(*arguments: Any) -> Amount | None:
        started.set()
        time.sleep(0.2)
        return take(*arguments)

    monkeypatch.setattr(Ledger, "take", slow)

    async def cancelled() -> None:
        reserving = asyncio.ensure_future(cast(Any, one.task).reserve(request("a")))
        await asyncio.to_thread(started.wait)
        reserving.cancel()
        await asyncio.wait({reserving})
        one.share.close()

    run(cancelled())
    assert Ledger(Experiment(tmp_path)).taken() == Amount()


def test_a_budget_of_money_does_not_bind_a_model_without_prices(tmp_path: Path) -> None:
    class Free(Task):
        class Model:
            name, prices = "m", None

        model = cast(Any, Model())

    assert not budget.binds(BudgetCaps(max_cost=1), cast(Any, Free()))
    assert budget.binds(BudgetCaps(max_cost=1, max_tokens=5), cast(Any, Free()))
    assert budget.binds(BudgetCaps(max_cost=1), cast(Any, Task()))
    assert budget.cost_of(cast(Any, Free()), 10, 10, 10) == 0


@pytest.mark.parametrize("prices", [Model.prices, None])
def test_what_was_sent_without_a_budget_counts_for_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prices: Prices | None
) -> None:
    monkeypatch.setattr(Model, "prices", prices)
    one = Worker(tmp_path, BudgetCaps(), monkeypatch, "w")

    async def ask() -> None:
        for name in ("a", "b", "c"):
            assert await one.task.reserve(asked := request(name))
            usage = {"prompt_tokens": 8, "completion_tokens": 2}
            one.task.spend(asked, answered(asked, usage=usage))
            one.share.tell()

    run(ask())
    logged = len(one.news.events)
    assert logged == (0 if prices is None else 3), "money counts although a worker is killed"
    one.share.close()
    assert not (tmp_path / "budget").exists()
    (_, last) = one.news.events[-1]
    ended = WorkerRun("g0", "w", spent=Amount.of(last["spent"]))
    monkeypatch.setattr(budget, "worker_runs", lambda _: [ended])
    for _ in range(2):
        assert settle(Experiment(tmp_path)).taken() == pytest.approx(
            Amount(3, 30, 3 * cost_of(cast(Any, Task()), 8, 2, 0))
        )
