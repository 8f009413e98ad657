"""The state of shards, run tasks and experiments, whatever files and Slurm say: every state, every lie."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment.claims import ShardState
from hpcbench.experiment.control import control_request
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.process_identity import identity
from hpcbench.files import lease
from hpcbench.files.atomic import Appender, read_json, write_json
from hpcbench.files.lease import boot_id
from hpcbench.finalise import advance
from hpcbench.resume import last_job
from hpcbench.schema.plan import Shard
from hpcbench.schema.shared_types import LastJob
from hpcbench.schema.site import Partition, SlurmSite
from hpcbench.schema.work import JobResources
from hpcbench.site.gc import _busy
from hpcbench.status import Observer, briefs, due
from hpcbench.status import findings as finding
from hpcbench.status.experiment_status import Failure, counted
from hpcbench.status.shards import Life, OwnerFacts, judge
from tests.unit.scene import HOUR, Scene
from tests.unit.small import resolved, run_task


@pytest.fixture(autouse=True)
def job_ends(monkeypatch: pytest.MonkeyPatch) -> dict[str, slurm.JobEnd]:
    """Ends of jobs by accounting: none, unless a test adds one."""
    known: dict[str, slurm.JobEnd] = {}

    def reported(
        ids: Iterable[str], names: Collection[str], **_: Any
    ) -> Mapping[str, slurm.JobEnd]:
        return {job: known.get(job, slurm.JobEnd(slurm.LOST)) for job in ids}

    monkeypatch.setattr(slurm, "job_ends", reported)
    return known


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    one = Scene(tmp_path)
    one.submitted()
    return one


def test_a_shard_that_no_worker_took_is_pending(scene: Scene) -> None:
    scene.job("4711", "PENDING", reason="Reservation")
    scene.job("4712", "PENDING", reason="Dependency")
    now = scene.look()
    assert (now.state, now.shards.pending, now.answered) == ("pending", 4, 0)
    assert [(wait.step, wait.why) for wait in now.waits] == [
        ("g0", "waits for the start of its reservation")
    ]


def test_workers_that_began_after_slurms_answer_do_not_wait_any_more(scene: Scene) -> None:
    """Slurm is asked every 30 s; a worker's first line is read at once."""
    scene.job("4711", "PENDING", reason="Resources", task_ids="0-3%2")
    scene.job("4712", "PENDING", reason="Dependency")
    scene.worker("4711_0", ago=2, heard=1)
    scene.worker("4711_2", ago=2, heard=1)
    now = scene.look()
    assert now.jobs == {"PENDING": 3, "RUNNING": 2}
    assert [(wait.step, wait.count) for wait in now.waits] == [("g0", 2)]
    scene.worker("4711_1", ago=2, heard=1)
    scene.worker("4711_3", ago=2, heard=1)
    now = scene.look()
    assert (now.jobs, now.waits) == ({"PENDING": 1, "RUNNING": 4}, ())


def test_lost_jobs_are_explained_by_a_log_of_one_that_did_not_end_well(scene: Scene) -> None:
    scene.experiment.jobs_dir.mkdir(exist_ok=True)
    for age, (name, last) in enumerate(
        [
            ("4711_1_0_log.out", "submitit INFO (x) - Exiting after successful completion"),
            ("4711_0_0_log.out", "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED ***"),
            ("4711_2_0_log.out", "older"),
        ]
    ):
        path = scene.experiment.jobs_dir / name
        path.write_text(f"begin\n{last}\n")
        os.utime(path, (scene.now - 300 - age, scene.now - 300 - age))
    now = scene.look()
    assert now.state == "lost"
    (failure,) = [one for one in now.failures if one.kind == "lost"]
    assert failure.cause.endswith("slurmstepd: error: *** JOB 4711 ON n1 CANCELLED ***")
    assert failure.log is not None and failure.log.endswith("4711_0_0_log.out")


def test_lost_workers_and_samples_without_an_answer_are_counted_as_what_they_are() -> None:
    lost = Failure(cause="preempted", kind="lost", count=2, nodes=("n1", "n2"))
    answers = Failure(cause="failed: timeout", kind="answers", run_tasks=("vqa",))
    died = Failure(cause="engine died", kind="engine_died", count=1_000, nodes=("n1",))
    assert (
        counted([lost, answers, died])
        == "2 workers lost, 1 sample without an answer, 1,000 failures"
    )
    assert counted([]) == ""
    assert (lost.line, died.line) == ("worker lost: preempted", "engine died")
    gone = Failure(cause="all jobs disappeared, and none left a log", kind="lost")
    assert (gone.line, counted([gone])) == (gone.cause, "1 failure")


def test_a_look_leaves_nothing_in_memory_once_its_status_is_there(scene: Scene) -> None:
    """A portal looks at hundreds of experiments and looks for garbage but once a minute."""
    scene.job("4711_0")
    scene.worker("4711_0")
    scene.claimed("a", 0, answered=3)
    gc.disable()
    try:
        observer = Observer(Experiment(scene.experiment.path))
        assert observer.look(scene.slurm).answered == 3
        held = weakref.ref(observer), weakref.ref(observer.experiment)
        del observer
        assert [one() for one in held] == [None, None]
    finally:
        gc.enable()


def test_a_shard_is_claimed_until_it_has_its_first_answer(scene: Scene) -> None:
    scene.job("4711_0")
    scene.worker("4711_0", ("model_ready", {"model": "model-a"}))
    scene.claimed("a", 0)
    now = scene.look()
    assert (now.state, now.shards.claimed) == ("running", 1)
    scene.claimed("a", 1, "4711_1", answered=3)
    scene.job("4711_1")
    scene.worker("4711_1")
    now = scene.look()
    assert (now.shards.claimed, now.shards.running, now.answered) == (1, 1, 3)


def test_what_a_worker_handed_back_is_acknowledged_and_counts(scene: Scene) -> None:
    scene.job("4711_1")
    scene.claimed("a", 0, answered=4, end="drained", reason="time limit")
    (shard, *_) = Observer(scene.experiment).shards(scene.slurm)
    assert (shard.state, shard.answered, shard.cause) == ("acknowledged", 4, "time limit")


def test_a_shard_that_ended_too_many_workers_has_failed_with_its_cause(scene: Scene) -> None:
    scene.job("4711_0")
    for attempt in range(1, 9):
        scene.claimed("a", 0, attempt=attempt, end="failed", reason="cannot read page.png")
    now = scene.look()
    assert now.shards.failed == 1
    (shard, *_) = Observer(scene.experiment).shards(scene.slurm)
    assert shard.cause is not None and shard.cause.endswith("cannot read page.png")


def test_a_shard_whose_job_slurm_does_not_know_is_lost_once_its_news_is_old(scene: Scene) -> None:
    scene.job("4712", "PENDING", reason="Dependency")
    scene.claimed("a", 0, answered=3)
    scene.worker("4711_0", heard=60)
    assert scene.look().shards.running == 1, "its last file may still be on its way over NFS"
    scene.worker("4711_1", heard=400)
    scene.claimed("a", 1, "4711_1", answered=3)
    now = scene.look()
    assert (now.shards.running, now.shards.lost) == (1, 1)
    assert now.state == "running"


def test_a_lost_shard_says_what_accounting_knows(
    scene: Scene, job_ends: dict[str, slurm.JobEnd]
) -> None:
    job_ends["4711_0"] = slurm.JobEnd("NODE_FAIL")
    scene.job("4711_1")
    scene.claimed("a", 0)
    scene.worker("4711_0", ("progress", {"shard": "a/00000", "answered": 1}), heard=400)
    now = scene.look()
    (failure,) = now.failures
    assert (failure.kind, failure.cause) == ("lost", "its node failed")
    assert failure.run_tasks == ("a",)
    assert failure.nodes == ("n1",)
    assert Observer(scene.experiment).shards(scene.slurm)[0].cause == "its node failed"


def test_without_accounting_a_lost_shard_is_lost_all_the_same(scene: Scene) -> None:
    scene.job("4711_1")
    scene.claimed("a", 0)
    scene.worker("4711_0", heard=400)
    now = scene.look()
    assert now.shards.lost == 1
    (failure,) = now.failures
    assert failure.kind == "lost" and "no record" in failure.cause


def test_another_job_of_the_same_number_is_not_ours(scene: Scene) -> None:
    scene.job("4711_0", name="train-my-model")
    scene.job("4712", "PENDING", reason="Dependency")
    scene.claimed("a", 0)
    scene.worker("4711_0", heard=400)
    now = scene.look()
    assert now.shards.lost == 1
    assert now.jobs == {"PENDING": 1}


def test_a_requeued_array_task_keeps_its_shard(scene: Scene) -> None:
    scene.job("4711_0", "PENDING", restarts=1, reason="BeginTime")
    scene.claimed("a", 0, answered=2)
    scene.worker("4711_0", heard=900)
    now = scene.look()
    assert (now.shards.claimed, now.shards.lost) == (1, 0)
    scene.jobs.clear()
    scene.job("4711", "PENDING", task_ids="0,7-9", reason="Resources")
    assert scene.look().shards.claimed == 1, "it may wait together with others of its array"


def test_after_a_requeue_the_first_run_is_seen_as_gone_and_the_second_as_alive(
    scene: Scene,
) -> None:
    scene.job("4711_0", restarts=1)
    scene.worker("4711_0", heard=900)
    scene.worker("4711_0", ("model_ready", {"model": "model-a"}), restart=1, node="n2")
    now = scene.look()
    assert [(worker.id, worker.node) for worker in now.workers] == [("4711_0-1", "n2")]
    (failure,) = now.failures
    assert "requeued" in failure.cause


def test_a_worker_slurm_calls_running_of_which_nothing_is_heard_is_silent(scene: Scene) -> None:
    scene.job("4711_0")
    scene.worker("4711_0", ("model_ready", {"model": "model-a"}), heard=600)
    scene.claimed("a", 0, answered=2)
    now = scene.look()
    assert (now.shards.silent, now.workers[0].state) == (1, "silent")
    assert now.state == "running"


def test_a_model_that_loads_for_long_is_not_silence(scene: Scene) -> None:
    scene.job("4711_0")
    scene.worker("4711_0", ("model_loading", {"model": "model-a"}), heard=900)
    scene.monitor("4711_0", gpus=[{"gpu": 0, "utilisation": 97, "used": 61 * 2**30}])
    (worker,) = scene.look().workers
    assert (worker.state, worker.model) == ("loading", "model-a")
    assert [(one.utilisation, one.used_gb) for one in worker.gpus] == [(97, 61.0)]


def test_when_slurm_does_not_answer_files_count_and_nothing_is_lost(scene: Scene) -> None:
    scene.fault = "squeue: Unable to contact slurm controller"
    scene.claimed("a", 0, answered=2)
    scene.worker("4711_0", heard=5)
    scene.claimed("a", 1, "4711_1", answered=2)
    scene.worker("4711_1", heard=900)
    now = scene.look()
    assert (now.state, now.shards.running, now.shards.silent, now.shards.lost) == (
        "running", 1, 1, 0,
    )  # fmt: skip
    assert now.slurm is not None and now.slurm.fault == scene.fault
    assert now.slurm.time == pytest.approx(scene.now - 5)
    assert not due(scene.experiment, now)


def test_a_slurm_that_is_silent_does_not_end_an_experiment_that_waits(scene: Scene) -> None:
    scene.fault = "squeue gave no answer in 60 s"
    assert scene.look().state == "pending"


def test_accounting_that_fails_costs_the_cause_and_no_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise EnvironmentFault("sacct: connection refused")

    monkeypatch.setattr(slurm, "job_ends", refuses)
    scene.job("4711_1")
    scene.claimed("a", 0)
    scene.worker("4711_0", heard=400)
    assert scene.look().shards.lost == 1


def test_an_experiment_is_paused_by_a_wish_and_a_run_task_too(scene: Scene) -> None:
    scene.job("4711_0")
    control_request(scene.experiment, "pause", ["a"])
    now = scene.look()
    assert now.run_tasks[0].state == "paused"
    control_request(scene.experiment, "pause")
    now = scene.look()
    assert now.state == "paused" and now.needs is not None and "resume" in now.needs
    scene.jobs.clear()
    assert scene.look().state == "paused", "also when all its jobs have ended"


def test_a_stopped_run_task_says_why(scene: Scene) -> None:
    scene.job("4711_0")
    control_request(scene.experiment, "stop", ["a"], "no GPU-hours are left")
    (task,) = scene.look().run_tasks
    assert (task.state, task.reason) == ("stopped", "no GPU-hours are left")


def test_a_run_task_whose_pilot_failed_has_failed_and_says_why(scene: Scene) -> None:
    scene.job("4711_0")
    control_request(scene.experiment, "fail", ["a"], "its pilot failed: 20 × invalid: 400")
    (task,) = scene.look().run_tasks
    assert (task.state, task.reason) == ("failed", "its pilot failed: 20 × invalid: 400")


def test_a_cancelled_experiment_is_cancelled_before_anybody_says_so(scene: Scene) -> None:
    control_request(scene.experiment, "cancel")
    assert scene.look().state == "cancelled"


def test_workers_that_a_cancel_ended_are_not_lost(
    scene: Scene, job_ends: dict[str, slurm.JobEnd]
) -> None:
    """Slurm kills workers that load a model before they write a last event."""
    scene.worker("4711_0", heard=2)
    scene.worker("4711_1", heard=HOUR, ago=2 * HOUR, node="n2")
    scene.worker("4711_2", heard=2, node="n3")
    control_request(scene.experiment, "cancel")
    assert [one.nodes for one in scene.look().failures] == [("n2",)], "this one ended long before"
    job_ends["4711_0"] = slurm.JobEnd("CANCELLED")
    job_ends["4711_1"] = job_ends["4711_2"] = slurm.JobEnd("NODE_FAIL")
    control_request(scene.experiment, "resume")
    (failure,) = scene.look().failures
    assert failure.nodes == ("n2", "n3"), "a failure of a node stays one"


def test_after_a_cancel_nothing_failed_and_its_signals_are_no_warning(scene: Scene) -> None:
    scene.worker("4711_0", ("draining", {"signal": "SIGTERM"}), heard=1)
    scene.worker("4711_1", ("draining", {"signal": "SIGTERM"}), heard=HOUR, ago=2 * HOUR, node="n2")
    scene.worker("4711_2", ("draining", {"signal": "SIGUSR2"}), heard=1, node="n3")
    scene.claimed("a", 0, answered=10, end="drained")
    scene.claimed("a", 1, job="4711_2")
    control_request(scene.experiment, "cancel")
    now = scene.look()
    assert (now.shards.failed, now.shards.lost, now.shards.acknowledged) == (0, 0, 1)
    assert now.shards.pending == 3
    before, limit = now.alarms
    assert (before.nodes, "preempted" in before.cause) == (("n2",), True), "long before the cancel"
    assert (limit.nodes, "time limit" in limit.cause) == (("n3",), True)


def test_the_outcome_of_the_newest_round_is_the_last_word(scene: Scene) -> None:
    for index in range(3):
        scene.claimed("a", index, answered=10, end="done")
    write_json(scene.experiment.outcome_file, {"version": 1, "round": 0, "state": "incomplete"})
    now = scene.look()
    assert (now.state, now.shards.done, now.shards.failed) == ("incomplete", 3, 1)
    assert now.run_tasks[0].state == "incomplete"
    assert now.slurm is None, "nobody asks Slurm about what has ended"


def test_when_all_answers_are_in_it_evaluates(scene: Scene) -> None:
    scene.job("4712")
    for index in range(4):
        scene.claimed("a", index, answered=10, end="done")
    now = scene.look()
    assert (now.state, now.eta) == ("evaluating", None)


def test_work_left_and_no_job_that_finalises_waits_for_the_login_node(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.submitted(finalise=None)
    scene.worker("4711_0", ("finished", {}), heard=400)
    now = scene.look()
    assert now.state == "stalled" and now.needs is not None
    assert due(scene.experiment, now)


def test_where_jobs_may_not_submit_an_end_without_outcome_waits_for_the_login_node(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, site={"submit_from_jobs": False})
    scene.submitted()
    assert scene.look().state == "stalled"


@pytest.mark.parametrize("allowed", [True, False])
def test_a_job_submits_a_further_round_only_where_the_site_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    scene = Scene(tmp_path, site={"submit_from_jobs": allowed})
    scene.submitted()
    scene.worker("4711_0", ("finished", {}), heard=400)
    called: list[str] = []
    for module, name in (("finalise", "begin_round"), ("slurm", "cancel")):
        monkeypatch.setattr(
            f"hpcbench.{module}.{name}", lambda *_, name=name, **__: called.append(name)
        )
    monkeypatch.setattr(slurm, "queue", lambda **_: [])
    monkeypatch.setenv("SLURM_JOB_ID", "4712")
    assert advance(scene.experiment) == ("submitted" if allowed else "left")
    assert called == (["begin_round"] if allowed else [])
    monkeypatch.delenv("SLURM_JOB_ID")
    assert advance(scene.experiment) == "submitted", "the login node does"


@pytest.mark.parametrize(
    ("counts", "helps"),
    [
        ({"failed": 2, "outcomes": {"ok": 38, "failed": 2}, "answered": 38}, "hpcbench resume"),
        ({"skipped": 9, "outcomes": {"ok": 40}, "answered": 40}, "`hpcbench data check DATASET`"),
        ({"invalid": 9, "outcomes": {"ok": 40}, "answered": 40}, "`hpcbench report"),
    ],
)
def test_after_a_poor_end_what_helps_is_said_and_nothing_else(
    scene: Scene, counts: dict[str, Any], helps: str
) -> None:
    write_json(scene.experiment.outcome_file, {"version": 1, "round": 0, "state": "incomplete"})
    table = {"asked": 40, "metrics": {}, **counts}
    write_json(scene.experiment.metrics_file, {"version": 2, "run_tasks": {"a": table}})
    needs = scene.look().needs
    assert needs is not None and helps in needs
    assert ("resume" in needs) == (helps == "hpcbench resume")


def test_after_an_end_by_the_budget_its_reason_says_what_helps(scene: Scene) -> None:
    write_json(scene.experiment.outcome_file, {"version": 1, "round": 0, "state": "incomplete"})
    control_request(scene.experiment, "stop", ["a"], "budget; `hpcbench resume` with a larger one")
    now = scene.look()
    assert (now.state, now.needs) == ("incomplete", None), (
        "the same command without it does nothing"
    )
    assert now.run_tasks[0].reason == "budget; `hpcbench resume` with a larger one"


def test_a_job_that_finalises_and_failed_is_made_good_from_the_login_node(
    scene: Scene, job_ends: dict[str, slurm.JobEnd]
) -> None:
    job_ends["4712"] = slurm.JobEnd("NODE_FAIL")
    assert due(scene.experiment, scene.look())


def test_a_last_job_that_died_says_why_and_what_comes_next(
    scene: Scene, job_ends: dict[str, slurm.JobEnd]
) -> None:
    job_ends["4712"] = slurm.JobEnd("OUT_OF_MEMORY")
    now = scene.look()
    assert now.state == "stalled" and now.needs is not None
    assert "its job needed more memory than it had requested (1 CPU, 4 GB, 01:00:00" in now.needs
    assert "`hpcbench status` submits it again with 1 CPU, 8 GB" in now.needs


def test_the_login_node_submits_a_last_job_again_and_does_not_evaluate_itself(
    scene: Scene, job_ends: dict[str, slurm.JobEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(4):
        scene.claimed(index=index, answered=10, end="done")
    scene.worker("4711_0", ("finished", {}), heard=400)
    monkeypatch.setattr(slurm, "queue", lambda **_: [])
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr("hpcbench.finalise.reopen_damaged", lambda _: None)  # the answers are none
    monkeypatch.setattr("hpcbench.finalise.conclude", lambda _: pytest.fail("on the login node"))
    submitted: list[JobResources] = []

    def submit(experiment: Experiment, wanted: JobResources, died: str) -> None:
        submitted.append(wanted)
        at, name = scene.now - HOUR, f"finalise+{len(submitted)}"
        with Appender(experiment.submission_file) as log:
            held = wanted.stated()
            said = {"resources": held, "died": died}
            log.write({"event": "intent", "step": name, "time": at, **said})
            log.write(
                {"event": "submitted", "step": name, "job": f"500{len(submitted)}", "time": at}
            )
            log.write({"event": "handed", "time": at})

    monkeypatch.setattr("hpcbench.finalise.submit_last_job", submit)
    job_ends["4712"] = slurm.JobEnd("OUT_OF_MEMORY")
    assert advance(scene.experiment) == "submitted"
    assert any(
        "memory than it had requested (1 CPU, 4 GB" in one.cause for one in scene.look().failures
    )
    job_ends["5001"] = slurm.JobEnd("TIMEOUT")
    assert advance(scene.experiment) == "submitted"
    assert [(one.memory_gb, one.time_limit) for one in submitted] == [
        (8, "01:00:00"),
        (8, "02:00:00"),
    ]

    job_ends["5002"] = slurm.JobEnd("OUT_OF_MEMORY")
    with pytest.raises(EnvironmentFault, match="died 3 times.*hpcbench resume.*16 GB, 02:00:00"):
        advance(scene.experiment)
    now = scene.look()
    assert now.state == "lost" and now.needs is not None and "8 GB, 02:00:00" in now.needs
    assert not due(scene.experiment, now), "it is not submitted without end"
    assert advance(scene.experiment, again=True) == "submitted", "a user may try once more"


def test_a_last_job_grows_no_further_than_its_partition() -> None:
    plan = resolved(run_task(), last_job={"memory_gb": 48})
    cpu = Partition(memory_gb=64, time_limit="1-12:00:00")
    need = LastJob(cpus=2, memory_gb=8, time_limit="20:00:00")
    of_site = SlurmSite(cpu_partition="cpu", partitions={"cpu": cpu}, last_job=need)
    plan = plan.model_copy(update={"site": plan.site.model_copy(update={"slurm": of_site})})
    first = last_job.resources(plan)
    assert (first.cpus, first.memory_gb, first.time_limit) == (2, 48, "20:00:00")
    assert last_job.grown(None, "OUT_OF_MEMORY", plan).memory_gb == 64
    assert last_job.grown(None, "TIMEOUT", plan).time_limit == "1-12:00:00"
    assert last_job.grown(None, "NODE_FAIL", plan) == first


@pytest.mark.parametrize("end", ["CANCELLED", slurm.LOST])
def test_a_job_cancelled_in_slurm_is_lost_and_not_started_again(
    scene: Scene, job_ends: dict[str, slurm.JobEnd], end: str
) -> None:
    job_ends["4712"] = slurm.JobEnd(end)
    now = scene.look()
    assert now.state == "lost" and now.needs is not None and "resume" in now.needs
    assert not due(scene.experiment, now)
    assert now.failures[0].cause == "all jobs disappeared, and none left a log"


def test_right_after_submission_a_job_slurm_does_not_show_yet_is_no_loss(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.submitted(ago=20)
    assert scene.look().state == "running"


def test_failures_of_one_cause_are_one_line_with_count_and_nodes(scene: Scene) -> None:
    for number in range(5):
        what = {
            "model": "model-a", "message": f"CUDA out of memory: tried {number}.50 GiB, pid {number}",
        }  # fmt: skip
        scene.worker(f"4711_{number}", ("model_failed", what), ("finished", {}), node=f"n{number}")
    scene.worker("4711_9", ("alarm", {"kind": "disk_nearly_full", "message": "1 GiB left"}))
    scene.job("4711_9")
    now = scene.look()
    (failure,) = now.failures
    assert (failure.count, failure.models) == (5, ("model-a",))
    assert failure.nodes == ("n0", "n1", "n2", "n3", "n4")
    (alarm,) = now.alarms
    assert (alarm.kind, alarm.cause) == ("disk_nearly_full", "1 GiB left")


def test_damaged_lines_of_a_worker_do_not_hide_the_others(scene: Scene) -> None:
    scene.job("4711_0")
    scene.worker("4711_0", ("model_ready", {"model": "model-a"}))
    path = scene.experiment.worker_events("g0", "4711_0-0")
    with path.open("ab") as file:
        file.write(b'{"event":"engine_d\xff\x00\n[1]\n"x"\n{"event":"torn')
    assert scene.look().workers[0].model == "model-a"


def test_a_worker_is_believed_when_it_says_that_a_shard_is_done(scene: Scene) -> None:
    """Its word comes after the shard's own file was forced to the disk, which no reader need open then."""
    scene.job("4711_0")
    scene.claimed("a", 0)  # over NFS the last line may take a while to be seen
    scene.worker("4711_0", ("shard_done", {"shard": "a/00000", "attempt": 1, "began": scene.now - 600,
                                           "ended": scene.now - 500, "answered": 10}))  # fmt: skip
    scene.claimed("a", 1)
    now = scene.look()
    assert (now.shards.done, now.answered) == (1, 10)
    shard = Observer(scene.experiment).shards(scene.slurm)[0]
    assert (shard.state, shard.attempt) == ("done", 1)


def test_the_word_of_a_worker_does_not_hide_that_a_shard_was_opened_again(scene: Scene) -> None:
    scene.job("4711_0")
    scene.claimed("a", 0, end="done", answered=10)
    scene.worker("4711_0", ("shard_done", {"shard": "a/00000", "attempt": 1, "began": scene.now - 600,
                                           "ended": scene.now - 500, "answered": 10}))  # fmt: skip
    assert scene.look().shards.done == 1
    scene.claimed("a", 0, attempt=2, end="released", reopened=True)
    assert scene.look().shards.done == 0


def supervised(scene: Scene, job: str, **said: object) -> None:
    """A round of the local executor whose supervisor is this process."""
    with Appender(scene.experiment.submission_file) as log:
        log.write({"event": "round", "round": 0, "groups": [], "time": 0.0})
        log.write({"event": "intent", "step": "supervise"})
        log.write({"event": "submitted", "step": "supervise", "job": job, **said})
        log.write({"event": "handed"})


def test_the_local_executor_is_judged_by_its_processes(tmp_path: Path) -> None:
    scene = Scene(tmp_path, executor="local")
    supervised(scene, f"{socket.gethostname()}:{2**22 + 1}")
    now = Observer(scene.experiment).look()
    assert now.state == "lost" and now.slurm is None
    assert not due(scene.experiment, now)


def test_a_supervisor_is_known_by_whatever_path_is_looked(tmp_path: Path) -> None:
    """Another mount or a link leads to the same experiment; its supervisor's command line names one path."""
    scene = Scene(tmp_path / "one", executor="local")
    supervised(scene, f"{socket.gethostname()}:{os.getpid()}", process=identity(os.getpid()))
    (tmp_path / "other").symlink_to(scene.experiment.path)
    for path in (scene.experiment.path, tmp_path / "other"):
        assert Observer(Experiment(path)).look().state == "running"


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, "running"),
        ({"began": "1"}, "lost"),  # a later process has its number
        ({"pid": 2**22 + 1}, "lost"),
        ({"host": "elsewhere"}, "pending"),
        # Another start of this machine, and before it.
        ({"space": "another-boot-4026531836", "time": 1.0}, "lost"),
        ({"space": "another-boot-4026532999"}, "pending"),  # a container of it
        ({"space": "another-boot-4026531836"}, "pending"),  # it began after this machine's start
    ],
    ids=[
        "runs", "number given again", "gone", "another host", "restarted", "in a container",
        "another machine of that name",
    ],
)  # fmt: skip
def test_a_supervisor_is_gone_only_where_that_can_be_seen(
    tmp_path: Path, changed: dict[str, object], state: str
) -> None:
    scene = Scene(tmp_path, executor="local")
    who = {**identity(os.getpid()), "space": f"{boot_id()}-4026531836", **changed}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "_space", lambda: f"{boot_id()}-4026531836")
        supervised(scene, f"{who['host']}:{who['pid']}", process=who)
        now = Observer(scene.experiment).look()
        assert now.state == state
        unseen = state == "pending"
        assert ("--force" in (now.needs or "")) == unseen
        assert bool(_busy(scene.experiment, frozenset())) == (state != "lost")
        if unseen:
            with pytest.raises(UserError, match="only that machine shows whether it still runs"):
                advance(scene.experiment, again=True)


@pytest.mark.parametrize(("of", "state"), [("one", "running"), ("another", "lost")])
def test_a_supervisor_of_before_is_known_by_the_experiments_name(
    tmp_path: Path, of: str, state: str
) -> None:
    """Its record has no start and no boot: a later process of its number is of another experiment."""
    scene = Scene(tmp_path, executor="local")
    name = {"one": scene.experiment.id, "another": "20261126-1200-another-abcd"}[of]
    code = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, f"/other/mount/experiments/{name}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()  # it has its arguments now
        supervised(scene, f"{socket.gethostname()}:{process.pid}")
        assert Observer(scene.experiment).look().state == state
        assert bool(_busy(scene.experiment, frozenset())) == (state == "running")


def test_no_shard_is_lost_where_its_workers_supervisor_cannot_be_seen(tmp_path: Path) -> None:
    """A container has the host's name and processes of its own: the worker's number says nothing there."""
    scene = Scene(tmp_path, executor="local")
    host = socket.gethostname()
    scene.claimed(host=host, ago=HOUR)
    supervised(scene, f"{host}:1", process={**identity(1), "space": f"{boot_id()}-4026532999"})
    [shard, *_] = Observer(scene.experiment).shards()
    assert shard.state == "silent"


def test_a_worker_is_known_by_the_experiments_id_where_the_folder_has_another_name(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, executor="local")
    before = scene.experiment
    write_json(before.manifest_file, {**read_json(before.manifest_file), "id": before.id})
    code = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(before.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()  # it has its arguments now
        scene.claimed(host=socket.gethostname(), pid=process.pid, ago=HOUR)
        supervised(scene, f"{socket.gethostname()}:{os.getpid()}", process=identity(os.getpid()))
        mounted = before.path.rename(tmp_path / "mount")  # as a bind mount of that name
        [shard, *_] = Observer(Experiment(mounted)).shards()
    assert shard.state == "silent"


def test_a_submission_that_ends_while_we_look_is_not_taken_for_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Scene(tmp_path, executor="local").experiment
    with Appender(found.submission_file) as log:
        log.write({"event": "round", "round": 0, "groups": [], "time": 0.0})
        log.write({"event": "intent", "step": "supervise"})
    assert Observer(found).look().state == "interrupted"

    def ends_now(_: object) -> bool:
        with Appender(found.submission_file) as log:
            log.write({"event": "submitted", "step": "supervise", "job": "1:1"})
            log.write({"event": "handed"})
        return False  # its lock is gone already

    monkeypatch.setattr(finding, "submitting", ends_now)
    assert Observer(found).look().state != "interrupted"


def test_the_rate_is_of_the_last_minutes(scene: Scene) -> None:
    scene.job("4711_0")
    scene.worker("4711_0", ("progress", {"shard": "a/2", "answered": 5}), ago=4000)
    scene.claimed("a", 0, answered=10, end="done", ago=3600, took=100)
    scene.claimed("a", 1, answered=10, end="done", ago=200, took=100)
    scene.claimed("a", 2, answered=5, ago=100)
    now = scene.look()
    assert now.rate == pytest.approx(15 / 300, abs=0.001)


def test_answers_of_an_earlier_attempt_are_not_this_minutes_rate(scene: Scene) -> None:
    scene.job("4711_1")
    scene.worker("4711_1", ("progress", {"shard": "a/0", "answered": 10}))
    scene.claimed("a", 0, answered=9, ago=3600, end="drained")
    scene.claimed("a", 0, "4711_1", attempt=2, answered=1, ago=300)
    now = scene.look()
    assert now.rate == pytest.approx(1 / 300, abs=0.001)


@pytest.mark.parametrize("off", [-5400.0, 7200.0])
def test_a_worker_whose_clock_is_hours_off_moves_neither_rate_nor_estimate(
    scene: Scene, off: float
) -> None:
    scene.job("4711_0")
    reported = {"shard": "a/0", "answered": 5, "time": scene.now - 2 + off}
    scene.worker("4711_0", ("progress", reported), ago=60 - off)
    scene.claimed("a", 0, answered=5, ago=50 - off)
    now = scene.look()
    assert now.rate == pytest.approx(5 / 50, rel=0.1)
    assert now.eta is not None
    assert 100 < now.eta.likely - now.time < 1000


def test_an_estimate_says_that_the_wait_for_slurm_is_not_in_it(scene: Scene) -> None:
    scene.job("4711", "PENDING", reason="Reservation")
    now = scene.look()
    assert now.eta is not None and now.eta.waits
    assert now.eta.text.endswith("after it starts")
    scene.job("4711_0")
    scene.worker("4711_0", ("model_ready", {"model": "model-a"}))
    scene.claimed("a", 0, answered=5, ago=50)
    now = scene.look()
    assert now.eta is not None and not now.eta.waits
    assert now.time < now.eta.low <= now.eta.likely <= now.eta.high


def test_a_second_look_reads_only_what_is_new_and_finds_the_same(scene: Scene) -> None:
    scene.job("4711_0")
    scene.worker("4711_0", ("model_ready", {"model": "model-a"}))
    scene.claimed("a", 0, answered=10, end="done")
    observer = Observer(scene.experiment)
    observer.look(scene.slurm)
    scene.claimed("a", 1, answered=2)
    path = scene.experiment.worker_events("g0", "4711_0-0")
    with Appender(path) as log:
        log.write(
            {"event": "engine_died", "seq": 9, "time": scene.now, "message": "x", "model": "m"}
        )
    again, fresh = observer.look(scene.slurm), scene.look()
    assert replace(again, time=0) == replace(fresh, time=0, eta=again.eta)
    assert [one.kind for one in again.failures] == ["engine_died"]


def test_a_list_asks_slurm_once_for_all_and_never_for_what_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def snapshot(*_: Any, newer_than: float = 0.0, **__: Any) -> slurm.Snapshot:
        asked.append(newer_than)
        return slurm.Snapshot((), 1.0)

    monkeypatch.setattr(slurm, "snapshot", snapshot)
    scenes = [Scene(tmp_path / str(number)) for number in range(4)]
    for one in scenes:
        one.submitted()
    for one in scenes[:2]:
        write_json(one.experiment.outcome_file, {"version": 1, "round": 0, "state": "done"})
    found = briefs([one.experiment for one in scenes])
    assert [one.state for one in found] == ["done", "done", "lost", "lost"]
    assert [one.answered for one in found] == [40, 40, 0, 0]
    assert len(asked) == 1
    briefs([one.experiment for one in scenes[:2]])
    assert len(asked) == 1


def test_an_experiment_of_another_version_does_not_hide_the_others(tmp_path: Path) -> None:
    old, new = Scene(tmp_path / "old"), Scene(tmp_path / "new")
    write_json(old.experiment.manifest_file, {"work": {"shards": []}})
    with Appender(old.experiment.submission_file) as log:
        log.write({"event": "round", "round": 0, "workers": {"g0": 1}})
    new.submitted()
    write_json(new.experiment.outcome_file, {"version": 1, "round": 0, "state": "done"})
    found = briefs([old.experiment, new.experiment])
    assert [one.state for one in found] == ["unreadable", "done"]


LIVES: list[Life] = ["lives", "requeued", "gone", "unknown"]


@given(
    life=some.sampled_from(LIVES),
    silent=some.floats(0, 1e6),
    answered=some.integers(0, 10),
    ended=some.booleans(),
)
def test_a_claimed_shard_is_never_unknown_and_lost_only_by_slurms_word(
    life: Life, silent: float, answered: int, ended: bool
) -> None:
    state = ShardState(
        Shard("a", 0, 0, 10), 1, 1, "claimed", {"job": "1_0", "restart": 0}, counted=answered
    )
    word = judge(state, OwnerFacts(life, 1e6 - silent), 1e6, ended=ended).state
    assert word in ("claimed", "running", "silent", "lost")
    assert (word == "lost") == (life == "gone" and (ended or silent > 120))
    if life == "requeued":
        assert word == "claimed"
    if word == "running":
        assert answered


def test_a_status_loads_no_models_of_metrics_before_there_are_any() -> None:
    """To define them takes as long as to read a small experiment."""
    code = (
        "import sys, hpcbench.status; print('hpcbench.experiment.view.metrics_json' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
