"""Two workers in one job of the real cluster: with a GPU each, and with one for both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.conftest import kill
from tests.faults.test_replicas import seats
from tests.slurm.drill import Drill, Run, until, whole

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]


def test_workers_of_a_job_have_a_gpu_each_and_outlive_a_kill_and_a_requeue(
    drill: Drill, calm: Run
) -> None:
    # A real node that Slurm gives whole would hold up all other tests: the site profile says so instead.
    main = {"whole_nodes": True, "gpus": {"fake": 2}, "cpus": 8, "memory_gb": 16}
    drill.at_site(partition="main", partitions={"main": main})
    drill.model("scripted", gpus=1)
    drill.script(answer_ms=[200, 300])
    run = drill.submit(drill.plan({}, parallelism=1))
    until(lambda: run.answered() > 2 and len(seats(run)) == 2, "answers of both workers")
    (job,) = run.workers_at()
    assert "gres/gpu=2" in drill.slurm("scontrol", "show", "job", job.id)
    assert sorted(one["gpus"] for one in run.said("started")) == ["0", "1"]
    acknowledged = [run.answers()]

    kill(run.workers()[1])
    until(lambda: len(run.said("started")) == 3, "the worker to be started again")
    acknowledged.append(run.answers())
    drill.slurm("scontrol", "requeue", job.id)
    until(lambda: len(run.said("started")) >= 5, "both workers to be started again", 240)
    drill.script(answer_ms=[1, 3])

    run.wait("done")
    whole(run, calm, acknowledged)
    assert {one["owner"]["replica"] for one in run.said("started")} == {0, 1}
    usage = json.loads((run.path / "usage.json").read_text())
    assert usage["source"] == "slurm" and usage["jobs"] == 2, "two runs of one job"


def test_engines_that_share_a_gpu_load_one_after_the_other_within_their_shares(
    drill: Drill, calm: Run
) -> None:
    drill.model("scripted", gpus=1, gpu_memory_share=0.45)
    drill.script(answer_ms=[200, 300], load_ms=3000)
    run = drill.submit(drill.plan({}, parallelism=1))
    until(lambda: run.answered() > 2 and len(seats(run)) == 2, "answers of both workers")
    (job,) = run.workers_at()
    assert "gres/gpu=1" in drill.slurm("scontrol", "show", "job", job.id)
    started = run.said("started")
    assert len({one["gpus"] for one in started}) == 1 and len(started) == 2
    for engine in run.engines():
        words = Path(f"/proc/{engine}/cmdline").read_bytes().decode().split("\0")
        assert words[words.index("--memory-share") + 1] == "0.45"
    first, second = sorted(one["time"] for one in run.said("model_ready"))
    assert second - first >= 3, "the second engine loaded beside the first"
    drill.script(answer_ms=[1, 3])

    run.wait("done")
    whole(run, calm)
    hardware = run.said("model_ready")[0]["hardware"]
    assert (hardware["engines_each"], hardware["engines_per_gpu"]) == (2, 2)
