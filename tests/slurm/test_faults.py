"""Faults of Slurm's own on the real cluster: the result is the undisturbed one, and status says why."""

from __future__ import annotations

import pytest

from tests.slurm.drill import Drill, Run, alarm, until, whole

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]


def test_a_cancelled_element_leaves_its_work_to_the_others(drill: Drill, calm: Run) -> None:
    drill.script(answer_ms=[400, 400])
    run = drill.submit(drill.plan())
    until(lambda: run.answered() > 4 and len(run.workers_at()) == 2, "both at work")
    before, victim = run.answers(), run.workers_at()[0].id

    drill.slurm("scancel", victim)

    until(lambda: victim not in [job.id for job in run.workers_at("R", "CG")], "its end")
    drill.script(answer_ms=[1, 3])
    status = run.wait()
    whole(run, calm, [before])
    assert (
        alarm(status, "draining")
        == "a worker got SIGTERM: Slurm preempted, requeued or cancelled its job"
    )
    assert "a worker got SIGTERM" in run.screen()
    assert not run.processes()


def test_a_requeued_element_drains_and_takes_up_its_own_shard(drill: Drill, calm: Run) -> None:
    drill.script(answer_ms=[400, 400])
    run = drill.submit(drill.plan(parallelism=1, shard_size=20))
    until(lambda: run.answered() > 4, "answers")
    before, (worker,) = run.answers(), run.workers_at()

    drill.slurm("scontrol", "requeue", worker.id)

    until(lambda: run.said("stopped"), "the drained end", timeout=90)
    until(lambda: not run.processes(), "its process to end", timeout=90)
    assert run.status()["state"] in ("pending", "running")
    drill.script(answer_ms=[1, 3])
    status = run.wait()
    whole(run, calm, [before])
    assert run.rounds == 1
    owners = [event["owner"] for event in run.said("started")]
    assert [(owner["job"], owner["restart"]) for owner in owners] == [
        (worker.id, 0),
        (worker.id, 1),
    ]
    handed_back = [one for one in run.shard_events("numbers") if one["event"] == "drained"]
    assert len(handed_back) == 1
    assert "requeued" in alarm(status, "draining")


def test_preempted_jobs_drain_and_go_on_when_the_others_are_through(
    drill: Drill, calm: Run
) -> None:
    drill.at_site(partition="low")
    drill.model("scripted", gpus=2)  # all of a node
    drill.script(answer_ms=[400, 400])
    run = drill.submit(drill.plan())
    until(lambda: run.answered() > 4 and len(run.workers_at()) == 2, "both at work")
    before = run.answers()
    nodes = ",".join(sorted({job.node for job in run.workers_at()}))

    urgent = drill.slurm(
        "sbatch", "--parsable", "--partition=high", f"--nodelist={nodes}", "--gres=gpu:fake:2",
        "--job-name=urgent", "--output=/dev/null", "--time=1", "--wrap=sleep 300",
    ).strip()  # fmt: skip
    try:
        until(lambda: len(run.said("stopped")) == 2, "both to drain", timeout=120)
        until(lambda: len(run.workers_at("PD")) == 2, "both to be requeued", timeout=120)
        assert run.status()["state"] in ("pending", "running")
        drill.script(answer_ms=[1, 3])
    finally:
        drill.slurm("scancel", urgent)
    status = run.wait()
    whole(run, calm, [before])
    assert run.rounds == 1
    assert "preempted" in alarm(status, "draining")


@pytest.mark.campaign  # two minutes; test_reliability has a worker that is warned of its limit
def test_jobs_that_end_at_their_time_limit_hand_on_until_all_is_done(
    drill: Drill, calm: Run
) -> None:
    # Slurm looks every half minute, and warns up to that much too early: 20 to 50 seconds after the start. A
    # shard of 20 takes longer than that; between two shards no worker would be warned, but claim no more.
    drill.at_site(drain_seconds=10)
    drill.script(answer_ms=[2600, 2600])
    short = {"cpus": 1, "memory_gb": 1, "time_limit": "00:01:00"}
    run = drill.submit(drill.plan({"resources": short}, parallelism=1, shard_size=20))

    until(lambda: run.said("stopped"), "the first to be told that its time is up", timeout=90)
    before = run.answers()
    assert 0 < len(before) < 40
    until(lambda: run.rounds > 1, "a further round")
    status = run.wait()

    whole(run, calm, [before])
    assert run.twice() == []
    assert status["round"] >= 2
    assert {one["signal"] for one in run.said("draining")} == {"SIGUSR2"}
    assert "time limit was near" in alarm(status, "draining")
    # Slurm's accounting hears of the last job's end a little after its outcome is there.
    until(lambda: {row[2] for row in run.accounted("State")} == {"COMPLETED"}, "its accounting")


def test_an_experiment_goes_on_when_the_login_node_is_gone(drill: Drill, calm: Run) -> None:
    drill.script(answer_ms=[300, 300])
    process = drill.start("submit", drill.plan(), "--registry", drill.folder / "registry", "--wait")
    until(lambda: drill.known() and "handed" in _log(drill.known()[0]), "jobs to be submitted")
    drill.log_out()
    process.communicate(timeout=120)
    assert process.returncode < 0
    drill.script(answer_ms=[1, 3])

    (run,) = drill.known()
    run.wait_alone()

    run.wait()
    whole(run, calm)
    assert run.twice() == []


def _log(run: Run) -> str:
    path = run.path / "submission.jsonl"
    return path.read_text() if path.exists() else ""
