"""The trajectories of a shard when their engine ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from hpcbench.agents.loop import ToolTimes
from hpcbench.agents.tools import ToolResult
from hpcbench.experiment.claims import Owner, ShardState, claim
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.turns import turns_of
from hpcbench.inference.client import Client, EngineGone
from hpcbench.schema.records import Message, Request, Response, Sample
from hpcbench.schema.work import Shard
from hpcbench.worker.trajectories import Served, Trajectories
from tests.unit.agents.scene import Tools, response, with_tools
from tests.unit.small import resolved, run_task


@dataclass
class Engine:
    """Sample s0 is asked to pay; s1 ends the engine while s0's payment is made."""

    paying: asyncio.Event

    async def admitted(self) -> None:
        pass

    async def prepare(self, request: Request) -> Request:
        return request

    async def send(self, request: Request, due: int) -> Response:
        if request.sample_id == "s0":
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


async def test_a_payment_under_way_is_finished_when_the_engine_ends(tmp_path: Path) -> None:
    plan = resolved(run_task("numbers", model={"engine": "remote"}, agent=with_tools()))
    state = ShardState(Shard(run_task="numbers", index=0, start=0, stop=2), 0, 0, "free", None)
    taken = claim(Experiment(tmp_path), state, Owner.here())
    assert taken is not None
    asked = [
        (Sample(one, (), {}, ("42",), one), Request(one, (Message("user", "?"),), {}, 60.0))
        for one in ("s0", "s1")
    ]
    tools = SlowTools()
    client = cast(Client, Engine(tools.paying))
    served = {"": Served(plan.run_tasks[0], client)}
    trajectories = Trajectories(served, tools, ToolTimes(30), tmp_path)
    with pytest.raises(EngineGone) as caught:
        async for _ in trajectories.answers(asked, taken, 2, asyncio.Event()):
            pass
    gone = caught.value
    assert gone.in_flight == ("s1",)
    intent, turn = turns_of(taken.experiment, "numbers", 0, "s0")
    assert intent["intent"]["tool"] == "pay"
    assert [one["text"] for one in turn["results"]] == ["payed"]
