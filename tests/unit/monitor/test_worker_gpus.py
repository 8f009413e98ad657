"""A worker whose GPUs do not fit its model: it says so, and asks for no load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.claims import Owner
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from hpcbench.inference.client import LoadFailed
from hpcbench.schema.model import Model
from hpcbench.worker.engine import EngineProcess
from hpcbench.worker.process import Worker
from tests.fake_nvml import GIB, FakeGpu, FakeNvml
from tests.unit.small import experiment, record

Machine = Callable[..., FakeNvml]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models that a wrapper was asked to load; each load fails."""
    models: list[str] = []

    async def load(self: EngineProcess, model: Model, *_: object) -> None:
        models.append(model.name)
        raise LoadFailed("engine_exited", "it was asked", cause="unknown")

    monkeypatch.setattr(EngineProcess, "load", load)
    return models


def worked(folder: Path, **model: Any) -> tuple[Experiment, dict[str, Any]]:
    """Events of a worker about a model that it could not load; it has come to its end."""
    here = experiment(folder, [record(0)], model=model)
    (group,) = here.work.groups
    environment = {"kind": "venv", "path": "/nowhere/bin/python", "digest": None}
    manifest = {**read_json(here.manifest_file), "environments": {group.environment: environment}}
    write_json(here.manifest_file, manifest)
    here = Experiment(here.path)  # it keeps the manifest that it has read
    assert asyncio.run(Worker(here, group, Owner.here()).run()) == 0
    [(_, events)] = here.worker_records()
    (failed,) = (event for event in events if event["event"] == "model_failed")
    assert "shard_claimed" not in [event["event"] for event in events]
    return here, failed


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"gpus": 2}, "the model needs 2 GPUs, this worker has 1 (NVIDIA A100-SXM4-40GB, 40 GiB)"),
        ({"gpus": 1, "gpu_memory_gb": 80}, "the model needs 1 GPU of 80 GB, this worker has 1 (NVIDIA A100"),
    ],
)  # fmt: skip
def test_too_few_or_too_small_gpus_are_reported_before_anything_is_loaded(
    tmp_path: Path, machine: Machine, asked: list[str], model: dict[str, Any], said: str
) -> None:
    machine(FakeGpu("GPU-a", total=40 * GIB))
    here, failed = worked(tmp_path, **model)
    assert failed["cause"] == "allocation"
    assert failed["message"].startswith(said)
    assert asked == []
    assert list(here.path.glob("workers/*.log")) == [], "a wrapper was started"


def test_what_fits_is_loaded(tmp_path: Path, machine: Machine, asked: list[str]) -> None:
    machine(FakeGpu("GPU-a", total=40 * GIB))
    _, failed = worked(tmp_path, gpus=1, gpu_memory_gb=40)
    assert (asked, failed["message"]) == (["m"], "it was asked")
