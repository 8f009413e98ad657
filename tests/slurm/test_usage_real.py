"""GPU-hours of a real run against Slurm's accounting of its jobs, and an estimate of the next one."""

from __future__ import annotations

import pytest

from tests.user import User, until

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(1200)]

VQA = {
    "name": "vqa",
    "ml_task": "vqa",
    "model": "tiny-vlm",
    "dataset": "demo_vqa",
    "split": "easy",
    "prompt": "demo_vqa",
    "limit": 32,
}


def test_gpu_hours_are_those_of_slurms_accounting_and_the_next_estimate_rests_on_them(
    slurm_user: User,
) -> None:
    user = slurm_user
    plan = user.plan("usage", [VQA], parallelism=2, shard_size=8)
    before = user.json("submit", plan, "--registry", user.registry, "--estimate")
    assert not before["measured"]
    (queues,) = before["queues"].values()
    assert any(queue["start"] is not None for queue in queues), queues
    assert not [job for job in user.lab.squeue() if "-usage-" in job.name]
    assert not (user.home / "experiments").exists()

    user.ok("submit", plan, "--registry", user.registry, "--wait")

    (experiment,) = [row["id"] for row in user.json("list")]
    # A worker's last word comes before its job's end.
    until(
        lambda: not [job for job in user.lab.squeue() if experiment in job.name],
        150,
        "its jobs to end",
    )
    reported = user.json("usage", experiment)
    (row,) = reported["hours"]
    (one,) = reported["experiments"]
    assert one["source"] == "slurm"
    jobs = _gpu_seconds(user, experiment)
    assert one["jobs"] == len(jobs), reported
    # Slurm counts whole seconds.
    assert row["allocated"] * 3600 == pytest.approx(sum(jobs), abs=len(jobs))
    assert row["allocated"] == pytest.approx(row["used"] + row["wasted"], abs=1e-6)
    assert row["used"] > 0
    assert row["loading"] > 0
    assert one["waited"]["longest"] >= one["waited"]["first"] >= 0
    assert "GPU-hours" in (user.experiment(experiment) / "report" / "report.md").read_text()
    after = user.json("submit", plan, "--registry", user.registry, "--estimate")
    assert after["measured"], after["rates"]


def _gpu_seconds(user: User, experiment: str) -> list[int]:
    """GPU-seconds of each job of an experiment that held a GPU."""
    done = user.lab.run_as_user(
        ["sacct", "-X", "-n", "-P", "--duplicates", "--format=JobName%200,ElapsedRaw,AllocTRES"]
    )
    rows = [line.split("|") for line in done.stdout.splitlines()]
    return [int(row[1]) for row in rows if experiment in row[0] and "gres/gpu=1" in row[2]]
