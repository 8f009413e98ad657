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


def test_engines_on_one_pretended_gpu_load_one_after_the_other_within_their_shares(
    bench: Bench, calm: Trial
) -> None:
    bench.environ["CUDA_VISIBLE_DEVICES"] = "0"
    bench.model("scripted", gpus=1, gpu_memory_share=0.45)
    bench.script(answer_ms=[800, 900], load_ms=2000)
    trial = bench.submit(bench.plan({}, parallelism=1, workers="all", shard_size=4))
    until(lambda: len(seats(trial)) == 2, "shards of both workers")
    assert [one["gpus"] for one in trial.said("started")] == ["0", "0"]
    shares = []
    for engine in trial.engines():
        words = Path(f"/proc/{engine}/cmdline").read_bytes().decode().split("\0")
        shares.append(words[words.index("--memory-share") + 1])
    assert shares == ["0.45", "0.45"]
    first, second = sorted(one["time"] for one in trial.said("model_ready"))
    assert second - first >= 2, "the second engine loaded beside the first"
    bench.script(answer_ms=[1, 3])
    trial.wait("done")
    whole(trial, calm)
    hardware = trial.said("model_ready")[0]["hardware"]
    assert (hardware["engines_each"], hardware["engines_per_gpu"]) == (2, 2)


@pytest.mark.campaign
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
