"""A worker's message about a wrapper that ends at once, and about logs of any length."""

from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench import environments
from hpcbench.experiment.manifest import Manifest
from hpcbench.inference.client import LoadFailed
from hpcbench.plugins import Command, Environment
from hpcbench.schema.plan import Measured
from hpcbench.schema.site import Site
from hpcbench.worker import engine
from hpcbench.worker.engine import EngineProcess


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        (
            "echo 'FATAL:   container creation failed'; exit 255",
            "container_failed",
            "the container did not start: FATAL:   container creation failed",
        ),
        ("exit 3", "wrapper_exited", "the wrapper ended with exit code 3: no output"),
    ],
)
def test_a_wrapper_that_ends_before_it_has_read_its_key_is_reported_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: str, said: str
) -> None:
    monkeypatch.setattr(environments, "wrap", lambda *_, **__: Command(["sh", "-c", script]))
    # more than a pipe holds: the write lasts until the reader has gone
    monkeypatch.setattr(engine.secrets, "token_urlsafe", lambda _: "k" * 2**20)
    venv = asdict(Environment(kind="venv", path="/none", digest=None))
    experiment: Any = SimpleNamespace(
        resolved=SimpleNamespace(site=Site(name="here"), run_tasks=[]),
        manifest=Manifest(environments={"e": venv}),
        measured=Measured(),
        worker_log=lambda *_: tmp_path / "logs" / "worker.log",
    )
    resources = SimpleNamespace(cpus=1)
    group: Any = SimpleNamespace(id="g", run_tasks=[], environment="e", gpus=0, resources=resources)
    owner: Any = SimpleNamespace(id="1_0-0")

    async def unloaded() -> None:
        pass

    async def journey() -> None:
        async with EngineProcess(experiment, group, owner, unloaded) as process:
            await process._start_process()

    with pytest.raises(LoadFailed) as failed:
        asyncio.run(journey())
    assert failed.value.kind == kind
    assert failed.value.message == said


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert engine.last_lines(log) == []
    with log.open("wb") as file:
        file.truncate(2**24)
        file.seek(0, 2)
        file.write("é".encode() * 2**16 + b"\nlast but one\n\n  last\n")
    tracemalloc.start()
    try:
        tail = engine.last_lines(log)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert tail[-2:] == ["last but one", "last"]
