"""Promises that hold when things break: workers killed, nodes dead, models and images broken, disks full."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.drill import Drill, Run, whole
from tests.slurm.test_spine import KIE, VQA, _asked_twice
from tests.user import User, answers_on_disk, until

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(900)]


@pytest.mark.campaign  # tests/faults kills the same processes without Slurm
def test_workers_killed_at_random_moments_lose_nothing_and_change_no_score(
    slurm_user: User,
) -> None:
    user = slurm_user
    tasks = [{**VQA, "limit": 120}, {**KIE, "limit": 60}]
    calm = user.submit(user.plan("calm", tasks, parallelism=2, shard_size=20))
    assert user.wait(calm)["state"] == "done"

    wild = user.submit(user.plan("wild", tasks, parallelism=2, shard_size=20, max_resubmits=0))
    chance = random.Random(20261120)
    acknowledged: dict[str, str] = {}
    for _ in range(4):
        start = user.answered(wild)
        until(
            lambda start=start: user.answered(wild) > start or not _workers(wild),
            180,
            "new answers",
        )
        time.sleep(chance.uniform(0, 1.0))
        _kill_one(wild, chance)
        acknowledged |= _answers(user, wild)
        if not _workers(wild):
            user.wait(wild)
            user.hpcbench("resume", wild)
    if user.wait(wild)["state"] != "done":
        user.ok("resume", wild)
        assert user.wait(wild)["state"] == "done"

    final = _answers(user, wild)
    assert acknowledged.items() <= final.items(), "an acknowledged answer was lost or changed"
    assert _asked_twice(user.experiment(wild)) == []
    same = [(user.experiment(one) / "metrics.json").read_bytes() for one in (calm, wild)]
    assert same[0] == same[1]


def test_a_worker_warned_that_its_time_is_up_drains_and_the_rest_is_submitted_again(
    drill: Drill, calm: Run
) -> None:
    drill.script(answer_ms=[400, 400])
    run = drill.submit(drill.plan(parallelism=1, shard_size=20))
    until(lambda: run.answered() > 4, 120, "answers")
    before, (worker,) = run.answers(), run.workers_at()

    drill.slurm("scancel", "--signal=USR2", "--batch", worker.id)

    until(lambda: bool(run.said("stopped")), 90, "the drained end")
    drill.script(answer_ms=[1, 3])
    status = run.wait()
    assert status["round"] == 2
    whole(run, calm, [before])
    assert {one["signal"] for one in run.said("draining")} == {"SIGUSR2"}
    assert run.said("finished")


@pytest.mark.campaign  # test_faults_daemons kills a node too
def test_a_node_that_dies_mid_run_ends_in_a_completed_experiment(slurm_user: User) -> None:
    user = slurm_user
    experiment = user.submit(user.plan("node", [VQA], parallelism=2, shard_size=16))
    until(lambda: user.answered(experiment) > 8, 120, "first answers")
    node = next(job.node for job in user.lab.squeue() if job.state == "R")

    with user.lab.without_node(node):
        deadline = time.monotonic() + 240
        while user.status(experiment)["state"] not in ("done", "incomplete", "failed", "lost"):
            assert time.monotonic() < deadline, user.status(experiment)
            for job in user.lab.squeue():
                if job.reason == "BeginTime":
                    user.lab.release_requeued(job.id)
            time.sleep(1)
        assert user.status(experiment)["state"] == "done"
        assert _asked_twice(user.experiment(experiment)) == []
    user.lab.wait_idle(120)


@pytest.mark.campaign  # tests/engine and tests/faults have a model that cannot be loaded, without Slurm
def test_missing_weights_are_named_in_status_with_the_log(slurm_user: User, image: str) -> None:
    user = slurm_user
    broken = user.folder / "broken-model"
    shutil.copytree(user.share / "examples/demo/model", broken)
    (broken / "model.safetensors").unlink()
    user.write_model("broken", source=broken, image=image, gpus=1)

    experiment = user.submit(user.plan("weights", [{**VQA, "model": "broken", "limit": 8}]))

    status = user.wait(experiment)
    assert status["state"] == "failed"
    (trouble,) = [one for one in status["failures"] if one["models"] == ["broken"]]
    assert "safetensors" in trouble["cause"]
    assert "Traceback" not in trouble["cause"]
    assert Path(trouble["log"]).is_file()
    printed = user.ok("status", experiment)
    assert trouble["log"] in printed
    assert "Traceback" not in printed
    assert status["round"] == 1, "what cannot load is not tried again by itself"


@pytest.mark.campaign  # tests/engine/test_huggingface.py has it with the same client, wrapper and engine
def test_a_broken_image_file_is_an_invalid_sample_and_the_rest_is_scored(slurm_user: User) -> None:
    user = slurm_user
    data = user.folder / "data"
    shutil.copytree(user.share / "examples/demo/data", data)
    first = json.loads((data / "vqa.jsonl").read_text().splitlines()[0])
    image = data / first["images"][0]
    # Both its ends are whole, so that preparation, which looks no further, takes it for an image.
    whole = image.read_bytes()
    middle = whole.index(b"IDAT") + 4
    image.write_bytes(whole[:middle] + bytes(len(whole) - middle - 12) + whole[-12:])
    user.write(
        "datasets/cracked.yaml",
        {
            "schema_version": 1, "name": "cracked", "source": str(data),
            "annotations": "vqa.jsonl", "fields": ["question"],
        },
    )  # fmt: skip

    experiment = user.submit(
        user.plan(
            "cracked",
            [{**VQA, "dataset": "cracked", "split": "easy", "limit": 12, "min_coverage": 0.5}],
        )
    )

    status = user.wait(experiment)
    assert status["state"] == "done"
    (trouble,) = status["failures"]
    assert trouble["run_tasks"] == ["vqa"]
    assert trouble["cause"].startswith("invalid: ")
    assert "image" in trouble["cause"]
    metrics = json.loads((user.experiment(experiment) / "metrics.json").read_text())
    outcomes = metrics["run_tasks"]["vqa"]["outcomes"]
    assert outcomes["invalid"] == trouble["count"] >= 1
    assert outcomes["ok"] == 12 - outcomes["invalid"]


@pytest.fixture
def small_disk(slurm_user: User) -> Iterator[User]:
    """The user's experiments on a file system of a few megabytes."""
    experiments = slurm_user.home / "experiments"
    experiments.mkdir()
    options = f"size=3m,uid={experiments.stat().st_uid or 0},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(experiments)], check=True)
    shutil.chown(experiments, "hpcuser", "hpcuser")
    yield slurm_user
    slurm_user.lab.cancel_all()
    subprocess.run(["umount", "-l", str(experiments)], check=True)


@pytest.mark.campaign  # tests/faults fills the same disk without Slurm
def test_a_full_disk_is_named_in_status_and_room_and_resume_cure_it(small_disk: User) -> None:
    user = small_disk
    experiment = user.submit(user.plan("full", [VQA], shard_size=50, max_resubmits=0))
    until(lambda: user.answered(experiment) > 4, 120, "first answers")
    filler = user.home / "experiments" / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)

    status = _until_troubled(user, experiment)

    assert any("disk full" in trouble["cause"] for trouble in status["failures"]), status
    assert "Traceback" not in user.ok("status", experiment)
    filler.unlink()
    until(lambda: user.lab.squeue() == [], 120, "the jobs to end")
    if user.status(experiment)["state"] != "done":
        user.ok("resume", experiment)
    assert user.wait(experiment)["state"] == "done"
    assert _asked_twice(user.experiment(experiment)) == []


def _until_troubled(user: User, experiment: str) -> dict[str, object]:
    deadline = time.monotonic() + 120
    while True:
        status: dict[str, object] = user.status(experiment)
        if status["failures"] or time.monotonic() > deadline:
            return status
        time.sleep(1)


def _workers(experiment: str) -> list[int]:
    """Processes that work on an experiment: submitit's Python with the worker in it."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if "submitit.core._submit" in command and experiment in command:
                found.append(int(folder.name))
    return found


def _kill_one(experiment: str, chance: random.Random) -> None:
    workers = _workers(experiment)
    if workers:
        os.kill(chance.choice(sorted(workers)), signal.SIGKILL)


def _answers(user: User, experiment: str) -> dict[str, str]:
    """Sample → answer, of every whole line on the disk."""
    return {key: text or "" for key, text in answers_on_disk(user.experiment(experiment))}
