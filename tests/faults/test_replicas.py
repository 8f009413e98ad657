"""Two workers in one job of the local executor, with the scripted engine: one is killed, both are ended."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.conftest import Bench, Trial, kill, until, whole


def seats(trial: Trial) -> set[str]:
    """Seats of the workers that answered a shard."""
    owners = [one["owner"] for one in trial.shard_events("numbers") if one["event"] == "claimed"]
    return {f"{one['job']}.{one['replica']}" for one in owners}


def two_in_a_job(bench: Bench) -> Trial:
    """Submit a plan for one job with two workers."""
    bench.model("scripted", replicas_per_node=2)
    return bench.submit(bench.plan({}, parallelism=1, workers="all", shard_size=4))


@pytest.mark.usefixtures("route")
def test_a_killed_worker_is_started_again_in_its_job_and_goes_on_with_its_shard(
    bench: Bench, calm: Trial
) -> None:
    bench.script(answer_ms=[150, 200])
    trial = two_in_a_job(bench)
    until(lambda: trial.answered() > 2 and len(seats(trial)) == 2, "answers of both workers")
    before = trial.answers()
    first, second = trial.workers()
    assert len(trial.engines()) == 2

    kill(second)

    until(lambda: len(trial.said("started")) == 3, "the worker to be started again")
    assert first in trial.workers(), "the other worker was ended"
    bench.script(answer_ms=[1, 3])
    trial.wait("done")
    whole(trial, calm, [before])
    assert trial.rounds == 1
    assert not Path(f"/proc/{second}").exists() and len(seats(trial)) == 2
    (failed,) = trial.said("failed")
    assert failed["message"] == "SIGKILL ended this worker, and its job starts it again"
    assert "SIGKILL ended this worker" in trial.screen()


@pytest.mark.campaign
@pytest.mark.usefixtures("route")
def test_a_job_that_is_ended_drains_all_its_workers(bench: Bench, calm: Trial) -> None:
    bench.script(answer_ms=[150, 200])
    trial = two_in_a_job(bench)
    until(lambda: trial.answered() > 2 and len(seats(trial)) == 2, "answers of both workers")
    (job,) = [pid for pid in trial.pids("submitit.core._submit")]

    kill(job, signal.SIGTERM)

    until(lambda: len(trial.said("stopped")) == 2, "both workers to end in order")
    bench.script(answer_ms=[1, 3])
    trial.wait("done")
    whole(trial, calm)
