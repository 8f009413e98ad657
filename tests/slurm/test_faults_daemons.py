"""Faults of the cluster's daemons and nodes: slurmctld, slurmdbd, slurmd gone and back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import Lab
from tests.slurm.drill import Drill, Run, alarm, until, whole

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]


@pytest.fixture
def pair(drill: Drill, lab: Lab) -> Iterator[None]:
    """Two nodes of which one may die: only this user's jobs are on them."""
    with lab.reserved("n1", "n2") as name:
        drill.at_site(reservation=name)
        yield


@pytest.mark.usefixtures("pair")
def test_a_worker_that_outlives_its_slurmd_is_fenced_and_ends(
    drill: Drill, calm: Run, lab: Lab
) -> None:
    drill.script(answer_ms=[1500, 1500])
    run = drill.submit(drill.plan(parallelism=1, shard_size=20))
    until(lambda: run.answered() > 2, "answers")
    before, (worker,), old = run.answers(), run.workers_at(), run.processes()

    with lab.without_slurmd(worker.node):
        until(lambda: lab.is_down(worker.node), "the node to be down")

        def elsewhere() -> bool:
            run.release()
            return any(job.node not in ("", worker.node) for job in run.workers_at())

        until(elsewhere, "the job to run elsewhere")
        assert set(old) <= set(run.processes()), "the old worker should have outlived its slurmd"
        outlived = run.answers()
        until(lambda: run.said("fenced"), "the old worker to be fenced")
        until(lambda: not set(old) & set(run.processes()), "the old worker to end")
        assert lab.is_down(worker.node)
        drill.script(answer_ms=[1, 3])
    status = run.wait()
    # What the old one had in flight may come after the new one has looked.
    whole(run, calm, [before, outlived], twice=2)
    assert "continued after Slurm had restarted its job" in alarm(status, "draining")
    assert "continued after Slurm had restarted its job" in run.screen()
    owners = [event["owner"] for event in run.said("started")]
    assert [owner["restart"] for owner in owners] == [0, 1]
    assert owners[0]["node"] != owners[1]["node"]


@pytest.mark.alone
def test_slurmctld_is_restarted_during_submit_and_during_the_run(
    drill: Drill, calm: Run, lab: Lab
) -> None:
    drill.script(answer_ms=[300, 300])
    command = ("submit", drill.plan(), "--registry", drill.folder / "registry", "--json")
    with lab.without("slurmctld"):
        submitting = drill.start(*command)
        until(lambda: drill.known() and _intended(drill.known()[0]), "a job to be tried")
        time.sleep(2)
        assert submitting.poll() is None, "it should wait for slurmctld"
    out, err = submitting.communicate(timeout=90)
    assert submitting.returncode == 0, out + err
    assert "Traceback" not in err
    (run,) = drill.known()
    until(lambda: run.answered() > 4, "answers")
    assert run.status()["slurm"]["fault"] is None
    drill.script(answer_ms=[3000, 3000])
    until(lambda: _has_saved(lab, run), "slurmctld to have saved its jobs")

    with lab.without("slurmctld"):
        drill.age_slurms_word(40)
        before = run.answers()
        status, screen = run.status(), run.screen()
        assert status["state"] == "running"
        assert status["slurm"]["fault"]
        assert 30 < status["time"] - status["slurm"]["time"] < 200
        assert "Slurm does not answer" in screen
        assert "old" in screen
        assert not [one for one in status["failures"] if one["kind"] == "lost"]
        drill.script(answer_ms=[1, 3])
        until(lambda: run.answered() == 40, "the workers to go on without slurmctld")
    status = run.wait()
    whole(run, calm, [before])
    assert run.rounds == 1
    assert run.twice() == []
    names = drill.slurm("sacct", "-X", "-n", "-P", "--format=JobName%120").split()
    mine = [name for name in names if run.id in name and ":g0" in name]
    assert len(mine) == 2, mine


@pytest.fixture
def healed(lab: Lab) -> Iterator[None]:
    """Slurm drains nodes that run a job which slurmctld, as it has lost its state, wants to start there."""
    yield
    lab.wait_responding()


@pytest.mark.campaign  # the test below it meets the same slurmctld
@pytest.mark.usefixtures("healed")
def test_slurmctld_killed_in_the_midst_of_a_run_has_forgotten_that_its_jobs_began(
    drill: Drill, calm: Run, lab: Lab
) -> None:
    drill.script(answer_ms=[300, 300])
    run, saved = _submitted_and_saved(drill, lab)
    until(lambda: run.answered() > 8 and len(run.workers_at()) == 2, "both at work")
    before = run.answers()

    with lab.slurmctld_killed(saved):
        drill.script(answer_ms=[2000, 2000])
    lab.wait_responding()
    # It ends both, and what then becomes of them is chance: they are started a second time, or a node that
    # has not yet forgotten them refuses (then it is drained, and they wait or are held), or they are failed.
    until(lambda: _looked(run) and len(run.said("started")) > 2, "workers to begin again", 120)
    drill.script(answer_ms=[1, 3])
    until(lambda: _looked(run) and (run.path / "outcome.json").exists(), "its end", 120)
    status = run.wait()

    whole(run, calm, [before])
    assert run.twice() == []
    names = [(one["owner"]["job"], one["owner"]["restart"]) for one in run.said("started")]
    assert len(names) == len(set(names)), "two processes had one name"
    # Where both nodes have forgotten their jobs, the second start of each finds nothing lost.
    assert {one["kind"] for one in status["failures"]} <= {"lost"}, status["failures"]
    assert all(one["cause"] for one in status["failures"])


@pytest.mark.alone
@pytest.mark.usefixtures("healed")
def test_a_worker_that_slurmctld_has_forgotten_is_fenced_by_the_one_started_in_its_place(
    drill: Drill, calm: Run, lab: Lab
) -> None:
    drill.script(answer_ms=[1500, 1500])
    run, saved = _submitted_and_saved(drill, lab, parallelism=1, shard_size=20)
    until(lambda: run.answered() > 2, "answers")
    before, (worker,), old = run.answers(), run.workers_at(), run.processes()

    with lab.without_slurmd(worker.node):  # or it would end what slurmctld does not know
        with lab.slurmctld_killed(saved):
            pass
        _release(run)
        until(lambda: _looked(run) and len(run.said("started")) == 2, "it to be started again")
        # Slurm counts no restart then, or one where it tried the dead node first: names differ all the same.
        assert set(old) <= set(run.processes()), "the old worker should have outlived slurmctld"
        until(lambda: run.said("fenced"), "the old worker to be fenced")
        until(lambda: not set(old) & set(run.processes()), "the old worker to end")
        drill.script(answer_ms=[1, 3])
    status = run.wait()
    # What the old one had in flight may come after the new one has looked.
    whole(run, calm, [before], twice=2)
    assert "continued after Slurm had restarted its job" in alarm(status, "draining")
    owners = [event["owner"] for event in run.said("started")]
    assert [(owner["job"], owner["restart"]) for owner in owners] == [
        (worker.id, 0),
        (worker.id, 1),
    ]
    assert owners[0]["node"] != owners[1]["node"]


@pytest.mark.alone
def test_without_accounting_nothing_hangs_and_a_killed_worker_is_reported(
    drill: Drill, calm: Run, lab: Lab
) -> None:
    drill.script(answer_ms=[300, 300])
    with lab.without("slurmdbd"):
        run = drill.submit(drill.plan())
        until(lambda: run.answered() > 4 and len(run.processes()) == 2, "both at work")
        before = run.answers()
        os.kill(run.processes()[0], signal.SIGKILL)
        until(lambda: len(run.workers_at("R", "CG")) == 1, "its job to end")
        assert run.status()["state"] == "running"
        drill.script(answer_ms=[1, 3])
        status = run.wait()
        whole(run, calm, [before])
        assert run.rounds == 2
        (lost,) = [one for one in status["failures"] if one["kind"] == "lost"]
        assert lost["cause"], status["failures"]
        assert "worker lost" in run.screen()


@pytest.mark.usefixtures("pair")
def test_a_job_started_again_keeps_off_the_node_it_died_on(
    drill: Drill, calm: Run, lab: Lab
) -> None:
    drill.model("scripted", gpus=1)
    drill.script(answer_ms=[400, 400])
    large = {"cpus": 3, "memory_gb": 1, "time_limit": "00:20:00"}  # one fits on a node
    run = drill.submit(drill.plan({"resources": large}))
    until(lambda: run.answered() > 4 and len(run.workers_at()) == 2, "both at work")
    before, victim = run.answers(), run.workers_at()[0]

    drill.script(answer_ms=[2500, 2500])  # the other one outlasts the time until Slurm sees it
    with lab.without_node(victim.node):
        until(lambda: [job.id for job in run.workers_at("PD")] == [victim.id], "it to be requeued")
        drill.slurm("scontrol", "hold", victim.id)
        drill.script(answer_ms=[1, 3])
        until(lambda: run.workers_at("R", "CG") == [], "the other one to end")
        reported = drill.slurm("scontrol", "show", "job", victim.id)
        assert f"ExcNodeList={victim.node}" in reported, run.story(reported)
        status = run.status()
        assert status["state"] in ("pending", "running")
    drill.slurm("scontrol", "release", victim.id)
    status = run.wait()
    whole(run, calm, [before])
    owners = {
        (one["owner"]["job"], one["owner"]["restart"]): one["owner"] for one in run.said("started")
    }
    assert owners[victim.id, 1]["node"] != victim.node
    (lost,) = [one for one in status["failures"] if one["kind"] == "lost"]
    assert "a node failure" in lost["cause"]
    assert lost["nodes"] == [victim.node]


def _submitted_and_saved(drill: Drill, lab: Lab, **plan: Any) -> tuple[Run, Path]:
    """An experiment that is at work, and what slurmctld knew of its jobs before they began."""
    drill.at_site(options={"hold": True})
    run = drill.submit(drill.plan(**plan))
    drill.at_site(options={})
    until(lambda: _has_saved(lab, run), "slurmctld to have saved its jobs")
    saved = lab.save_jobs(drill.folder / "saved")
    _release(run)
    return run, saved


def _has_saved(lab: Lab, run: Run) -> bool:
    """Whether slurmctld has saved all jobs of an experiment; it does so every five seconds."""
    saved = (lab.state / "job_state").read_bytes()
    return all(job.name.encode() in saved for job in run.jobs())


def _looked(run: Run) -> bool:
    """A reader looks at it: where a node has the job yet that it is to launch, Slurm holds it, and a reader
    releases it."""
    run.release()
    _release(run)
    return bool(run.status())


def _release(run: Run) -> None:
    """Let jobs start that were submitted to be held."""
    held = {job.id.partition("_")[0] for job in run.jobs("PD") if job.reason == "JobHeldUser"}
    for job in held:  # slurmctld that has just started refuses some requests
        release = ("scontrol", "release", job)
        until(lambda: run.bench.lab.run_as_user(release).returncode == 0, f"the release of {job}")  # noqa: B023


def _intended(run: Run) -> bool:
    path = run.path / "submission.jsonl"
    return path.exists() and '"event":"intent"' in path.read_text().replace(": ", ":")
