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
from hpcbench.inference.client import Client
from hpcbench.schema.plan import WorkPlan
from hpcbench.worker.engine import EngineProcess
from tests.unit import small
from tests.unit.inference.talking import request
from tests.unit.wrapper.running import ROOT


@pytest.mark.long
def test_each_load_has_a_client_of_its_own_and_the_one_before_is_closed(
    tmp_path: Path, plugins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(plugins), str(ROOT))))
    here = small.experiment(tmp_path, [small.record(0)], model={"engine": "scripted", "gpus": 0})
    manifest = json.loads(here.manifest_file.read_text())
    own = {"kind": "venv", "path": sys.executable, "digest": None}
    here.manifest_file.write_text(json.dumps({**manifest, "environments": {"": own}}))
    [group] = WorkPlan.model_validate(manifest["work"]).groups
    model = here.resolved.run_tasks[0].model
    owner = Owner("1_0", 0, "here", os.getpid())

    async def unloaded() -> None:
        pass

    async def journey() -> list[Client]:
        clients = []
        async with EngineProcess(here, group, owner, unloaded) as process:
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


def threads_of_clients(at_most: int) -> int:
    """How many there are once those that end have ended."""
    until = time.monotonic() + 5
    while True:
        count = sum(one.name.startswith("inference") for one in threading.enumerate())
        if count <= at_most or time.monotonic() > until:
            return count
        time.sleep(0.01)
