"""The trajectories of a shard when their engine ends, and behind a gateway that limits the rate."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from hpcbench.agents.loop import ToolTimes
from hpcbench.agents.tools import ToolResult
from hpcbench.experiment.claims import Claim, Owner, ShardState, claim
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.turns import turns_of
from hpcbench.inference.client import Client, EngineGone, Tries
from hpcbench.inference.request_body import Prepared
from hpcbench.schema.records import Message, Request, Response, Sample
from hpcbench.schema.work import Shard
from hpcbench.worker.trajectories import Served, Trajectories
from tests.unit.agents.scene import Tools, response, with_tools
from tests.unit.inference.limited import Gateway
from tests.unit.inference.test_rate_limits import open_gateway
from tests.unit.small import resolved, run_task


@dataclass
class Engine:
    """Sample s0 is asked to pay; s1 ends the engine while s0's payment is made."""

    paying: asyncio.Event

    async def admitted(self) -> None:
        pass

    async def prepare(self, request: Request) -> Prepared:
        return Prepared(request, 0)

    async def send(
        self, prepared: Prepared, due: int, *, heeds_limits: bool, tries: Tries
    ) -> Response:
        if prepared.request.sample_id == "s0":
            return response("", calls=[("pay", "{}")])
        await self.paying.wait()
        raise EngineGone("the engine ended")


@dataclass
class SlowTools(Tools):
    """Payments take a while."""

    paying: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(
        self, name: str, arguments: Mapping[str, Any], images: Sequence[Path], seconds: float
    ) -> ToolResult:
        self.paying.set()
        await asyncio.sleep(0.05)
        return await super().call(name, arguments, images, seconds)


@dataclass
class Purse:
    """Counts requests, and pays so many."""

    pays: int = 100
    reserved: int = 0
    spent: list[Response | None] = field(default_factory=list)

    async def reserve(self, request: Request) -> bool:
        if self.reserved + len(self.spent) == self.pays:
            return False
        self.reserved += 1
        return True

    def release(self, request: Request) -> None:
        self.reserved -= 1

    def spend(self, request: Request, response: Response | None) -> None:
        self.reserved -= 1
        self.spent.append(response)


class Shut(Gateway):
    """Refuses the first requests.

    Args:
        refusals: how many.
        wait: what it asks for each time.
    """

    def __init__(self, refusals: int, wait: Mapping[str, str]) -> None:
        super().__init__(1000)
        self.refusals, self.wait = refusals, wait
        self.failing = 0
        """Which one of them fails instead."""

    async def chat(self, asked: web.Request) -> web.Response:
        if self.refused < self.refusals:
            self.refused += 1
            if self.refused == self.failing:
                return web.json_response({}, status=502)
            return web.json_response({}, status=429, headers=dict(self.wait))
        return await super().chat(asked)


def scene(
    folder: Path, client: Client, tools: Tools, purse: Purse | None = None
) -> tuple[Trajectories, list[tuple[Sample, Request]], Claim]:
    """An agent, its two samples, and their shard."""
    plan = resolved(run_task("numbers", model={"engine": "remote"}, agent=with_tools()))
    state = ShardState(Shard(run_task="numbers", index=0, start=0, stop=2), 0, 0, "free", None)
    taken = claim(Experiment(folder), state, Owner.here())
    assert taken is not None
    asked = [
        (Sample(one, (), {}, ("42",), one), Request(one, (Message("user", "?"),), {}, 60.0))
        for one in ("s0", "s1")
    ]
    served = {"": Served(plan.run_tasks[0], client, purse)}
    return Trajectories(served, tools, ToolTimes(30), folder), asked, taken


async def test_an_agents_requests_wait_as_long_as_a_gateway_refuses_them(tmp_path: Path) -> None:
    gateway, purse = Shut(12, {"retry-after-ms": "20"}), Purse()
    gateway.failing = 5
    async with open_gateway(gateway) as socket, Client(socket, "key", "tiny") as client:
        trajectories, asked, taken = scene(tmp_path, client, Tools(), purse)
        answers = trajectories.answers(asked, taken, 2, asyncio.Event())
        found = [one async for one in answers]
    assert [one.outcome for one in found] == ["ok", "ok"]
    assert gateway.refused == 12
    assert sorted(one.tries for one in purse.spent if one) == [1, 2], "a refusal is no try"
    assert purse.reserved == 0


async def test_a_paid_request_waits_for_the_gateway_although_the_budget_is_used_up(
    tmp_path: Path,
) -> None:
    gateway, purse = Shut(4, {"retry-after-ms": "50"}), Purse(pays=1)
    async with open_gateway(gateway) as socket, Client(socket, "key", "tiny") as client:
        trajectories, asked, taken = scene(tmp_path, client, Tools(), purse)
        answers = trajectories.answers(asked, taken, 2, asyncio.Event())
        found = [one.outcome async for one in answers]
    assert (found, len(purse.spent), purse.reserved) == (["ok"], 1, 0)


async def test_an_agent_that_is_to_end_does_not_wait_for_the_gateway(tmp_path: Path) -> None:
    gateway, purse, stop = Shut(1000, {"Retry-After": "3600"}), Purse(), asyncio.Event()
    async with open_gateway(gateway) as socket, Client(socket, "key", "tiny") as client:
        trajectories, asked, taken = scene(tmp_path, client, Tools(), purse)
        asyncio.get_running_loop().call_later(0.3, stop.set)
        answers = trajectories.answers(asked, taken, 2, stop)
        found = [one async for one in answers]
    assert found == []
    assert purse == Purse(), "nothing was answered"


async def test_a_payment_under_way_is_finished_when_the_engine_ends(tmp_path: Path) -> None:
    tools = SlowTools()
    client = cast(Client, Engine(tools.paying))
    trajectories, asked, taken = scene(tmp_path, client, tools)
    with pytest.raises(EngineGone) as caught:
        async for _ in trajectories.answers(asked, taken, 2, asyncio.Event()):
            pass
    gone = caught.value
    assert gone.in_flight == ("s1",)
    intent, turn = turns_of(taken.experiment, "numbers", 0, "s0")
    assert intent["intent"]["tool"] == "pay"
    assert [one["text"] for one in turn["results"]] == ["payed"]
