"""The wrapper as the worker keeps it: one model after the other, one client at a time."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.inference.client import Client
from hpcbench.schema.decoding import decoded
from hpcbench.schema.plan import Group, WorkPlan
from hpcbench.worker.engine import EngineProcess
from tests.unit import small
from tests.unit.inference.talking import request
from tests.unit.wrapper.running import ROOT

SCRIPTED = {"engine": "scripted", "gpus": 0}
OWNER = Owner("1_0", 0, "here", os.getpid())


def in_this_python(here: Experiment) -> Group:
    """The experiment's group, whose engines run in the Python of these tests."""
    manifest = json.loads(here.manifest_file.read_text())
    own = {"kind": "venv", "path": sys.executable, "digest": None}
    here.manifest_file.write_text(json.dumps({**manifest, "environments": {"": own}}))
    [group] = decoded(WorkPlan, manifest["work"]).groups
    return group


async def unloaded() -> None:
    """Engines of these tests hold no memory of GPUs."""


@pytest.mark.long
def test_each_load_has_a_client_of_its_own_and_the_one_before_is_closed(
    tmp_path: Path, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(plugins), str(ROOT))))
    here = small.experiment(tmp_path, [small.record(0)], model=SCRIPTED)
    group = in_this_python(here)
    model = here.resolved.run_tasks[0].model

    async def journey() -> list[Client]:
        clients = []
        async with EngineProcess(here, group, OWNER, unloaded) as process:
            for _ in range(3):
                await process.load(model, lambda line: None)
                clients.append(process.client)
                assert (await process.client.ask(request())).outcome == "ok"
            with pytest.raises(RuntimeError, match="after shutdown"):
                await clients[0].prepare(request())
            assert threads_of_clients(at_most=1) == 1
        return clients

    assert len(set(map(id, asyncio.run(journey())))) == 3
    assert threads_of_clients(at_most=0) == 0


@pytest.mark.long
def test_each_model_has_the_limit_of_requests_of_its_definition(
    tmp_path: Path, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each protocol and route; a wrapper is kept where the next model has the same limit."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(plugins), str(ROOT))))
    limits = {"small": 1, "other": 1, "large": 2, "usual": None}
    plan = small.resolved(
        *(
            small.run_task(
                name,
                model={**SCRIPTED, "name": name, "request_mb": limit},
                dataset={"source": str(small.write_dataset(tmp_path / "data", [small.record(0)]))},
                protocol="grpc" if name == "small" else "http",
            )
            for name, limit in limits.items()
        )
    )
    here = small.submitted(tmp_path, plan, 1)
    group = in_this_python(here)
    page = 1_600_000 * b"x"

    async def outcomes(process: EngineProcess) -> list[str]:
        found = []
        for protocol, route in (("grpc", "proxied"), ("http", "proxied"), ("http", "direct")):
            process.client.protocol = protocol  # type: ignore[assignment]
            assert await process.client.take(route) == route  # type: ignore[arg-type]
            answer = await process.client.ask(request("s1", page))
            found.append(answer.outcome)
            refused = answer.outcome == "invalid"
            assert refused == ("raise request_mb in the model's definition" in str(answer.error))
        return found

    async def journey() -> None:
        wrappers, found = [], {}
        async with EngineProcess(here, group, OWNER, unloaded) as process:
            for name in (*limits, "small"):
                await process.load(here.resolved.run_task(name).model, lambda line: None)
                found[name] = await outcomes(process)
                assert process._process is not None
                wrappers.append(process._process.pid)
        assert found == {
            "small": ["invalid", "invalid", "invalid"],
            "other": ["invalid", "invalid", "invalid"],
            "large": ["ok", "invalid", "invalid"],  # in base64 the page has 2.1 MB
            "usual": ["ok", "ok", "ok"],
        }
        assert wrappers[0] == wrappers[1]
        assert len(set(wrappers)) == 4

    asyncio.run(journey())


def threads_of_clients(at_most: int) -> int:
    """How many there are once those that end have ended."""
    until = time.monotonic() + 5
    while True:
        count = sum(one.name.startswith("inference") for one in threading.enumerate())
        if count <= at_most or time.monotonic() > until:
            return count
        time.sleep(0.01)
