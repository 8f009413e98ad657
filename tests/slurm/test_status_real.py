"""`hpcbench status` of real jobs: why one cannot start, and what became of a killed worker."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest

from tests.slurm.drill import Drill, Run, until, whole

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1200)]


def test_status_tells_why_a_job_cannot_start_and_what_became_of_a_killed_worker(
    drill: Drill, calm: Run
) -> None:
    drill.at_site(options={"hold": True})
    drill.script(answer_ms=[400, 400])
    run = drill.submit(drill.plan(parallelism=1, shard_size=10))

    held = run.status()
    assert (held["state"], held["answered"]) == ("pending", 0)
    assert "held by you" in held["waits"][0]["why"], held["waits"]
    assert "held by you" in run.screen()
    assert held["eta"] is None or held["eta"]["waits"]

    _release(run)
    until(lambda: run.answered() > 4, "answers")
    now = run.status()
    assert now["state"] == "running", now
    (worker,) = now["workers"]
    assert worker["node"].startswith("n"), worker
    assert worker["state"] in ("working", "silent", "idle"), worker

    before, (victim,) = run.answers(), run.processes()
    os.kill(victim, signal.SIGKILL)
    drill.script(answer_ms=[1, 3])
    failure = until(lambda: _lost(_looked(run)), "word of the loss", timeout=120)
    assert failure["nodes"] == [worker["node"]], failure
    assert failure["run_tasks"] == ["numbers"], failure

    def done() -> Any:
        _release(run)
        now = _looked(run)
        return now["state"] == "done" and now

    ended = until(done, "the end", timeout=120)
    assert (ended["round"], ended["answered"], ended["shards"]["done"]) == (2, 40, 4)
    assert _lost(ended), "the loss stays visible"
    whole(run, calm, [before])
    assert json.loads(drill.run("list", "--json")[0])[0]["state"] == "done"


def _looked(run: Run) -> Any:
    time.sleep(1)
    return run.status()


def _lost(status: Any) -> Any:
    failures = status["failures"]
    return next((one for one in failures if one["kind"] == "lost" and one["nodes"]), None)


def _release(run: Run) -> None:
    """Let the experiment's held jobs start."""
    for job in {job.id.partition("_")[0] for job in run.jobs("PD") if "Held" in job.reason}:
        run.bench.slurm("scontrol", "release", job)
