"""What `hpcbench status` says of real jobs: why one cannot start, and what became of a killed worker."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.lab import Lab
from tests.slurm.test_reliability import _workers
from tests.slurm.test_spine import VQA
from tests.user import User, until

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(1200)]


@pytest.fixture
def user(lab: Lab, lab_python: Path) -> Iterator[User]:
    """A user whose own jobs alone are cancelled in the end: others may be at work on the cluster."""
    folder = lab.new_directory("status")
    one = User(lab, lab_python, folder)
    yield one
    for experiment in (one.home / "experiments").glob("*"):
        jobs = sorted(
            {job.id.partition("_")[0] for job in lab.squeue() if experiment.name in job.name}
        )
        if jobs:
            lab.run_as_user(["scancel", *jobs])
    shutil.rmtree(folder, ignore_errors=True)


def test_status_tells_why_a_job_cannot_start_and_what_became_of_a_killed_worker(
    slurm_user: User,
) -> None:
    user = slurm_user
    _hold_every_job(user)
    plan = user.plan("told", [{**VQA, "limit": 120}], parallelism=1, shard_size=20)
    experiment = user.submit(plan)

    held = user.status(experiment)
    assert (held["state"], held["answered"]) == ("pending", 0)
    assert "held by you" in held["waits"][0]["why"], held["waits"]
    assert "held by you" in user.ok("status", experiment)
    assert held["eta"] is None or held["eta"]["waits"]

    _release(user, experiment)
    until(lambda: user.answered(experiment) > 5, 240, "answers", every=0.2)
    now = user.status(experiment)
    assert now["state"] == "running", now
    (worker,) = now["workers"]
    assert worker["node"].startswith("n"), worker
    assert worker["state"] in ("working", "silent", "idle"), worker

    (victim,) = _workers(experiment)
    os.kill(victim, signal.SIGKILL)
    until(lambda: _lost(user, experiment) is not None, 200, "word of the loss", every=2)
    failure = _lost(user, experiment)
    assert failure["nodes"] == [worker["node"]], failure
    assert failure["run_tasks"] == ["vqa"], failure

    def done() -> bool:
        _release(user, experiment)
        return bool(user.status(experiment)["state"] == "done")

    until(done, 300, "the end", every=3)
    ended = user.status(experiment)
    assert (ended["round"], ended["answered"], ended["shards"]["done"]) == (2, 120, 6)
    assert _lost(user, experiment) is not None, "the loss stays visible"
    assert user.json("list")[0]["state"] == "done"


def _lost(user: User, experiment: str) -> Any:
    failures = user.status(experiment)["failures"]
    return next((one for one in failures if one["kind"] == "lost" and one["nodes"]), None)


def _hold_every_job(user: User) -> None:
    profile = user.folder / "config" / "hpcbench" / "sites" / "default.yaml"
    data = yaml.safe_load(profile.read_text())
    data.setdefault("slurm", {})["options"] = {"hold": True}
    profile.write_text(yaml.safe_dump(data))


def _release(user: User, experiment: str) -> None:
    """Let the experiment's held jobs start."""
    held = {
        job.id.partition("_")[0]
        for job in user.lab.squeue()
        if experiment in job.name and "Held" in job.reason
    }
    for job in held:
        user.lab.run_as_user(["scontrol", "release", job])
