"""Faults while jobs are submitted: limits of Slurm's, kills between any two steps, several at once."""

from __future__ import annotations

import json
import time

import pytest

from tests.campaign import first
from tests.cluster.lab import Lab
from tests.slurm.drill import Drill, Run, alarm, impatient, until, whole

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(900)]

DYING = """
import os, signal
if "SLURM_JOB_ID" not in os.environ and "DIE_AFTER" in os.environ:
    from hpcbench.experiment.event_log import EventLog
    write, left = EventLog.write, [int(os.environ["DIE_AFTER"])]
    def dying(self, kind, /, **details):
        line = write(self, kind, **details)
        left[0] -= kind in ("round", "intent", "submitted", "dropped", "handed")
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return line
    EventLog.write = dying
"""
"""A sitecustomize that kills `hpcbench submit` after so many lines of submission.jsonl."""


@pytest.mark.parametrize("limit", first(1, [2, 3, 1]))
def test_what_a_limit_on_submitted_jobs_keeps_waiting_is_done_all_the_same(
    drill: Drill, calm: Run, lab: Lab, limit: int
) -> None:
    drill.script(answer_ms=[300, 300])
    with lab.submit_limit(limit) as account:
        drill.at_site(account=account)
        run = drill.submit(drill.plan(parallelism=6))
        assert len(run.jobs()) <= limit
        until(lambda: run.answered() > 4, "answers")
        before, status = run.answers(), run.status()
        assert status["state"] == "running"
        assert status["deferred"] >= 6 - limit
        assert status["needs"] is None
        assert "workers wait for submission: Slurm limits the number of jobs" in run.screen()
        drill.script(answer_ms=[1, 3])
        run.wait_alone()
    run.wait()
    whole(run, calm, [before])
    assert run.twice() == []


def test_where_nothing_can_be_chained_status_says_what_is_due_and_does_it(
    drill: Drill, calm: Run, lab: Lab
) -> None:
    drill.script(answer_ms=[300, 300])
    with lab.submit_limit(1) as account:
        drill.at_site(submit_from_jobs=False, account=account)
        run = drill.submit(drill.plan(parallelism=6))
        until(lambda: run.answered() > 4, "answers")
        before, screen = run.answers(), run.screen()
        assert "the next `hpcbench status` submits them" in screen, screen
        drill.script(answer_ms=[1, 3])
        until(lambda: not run.jobs(), "its only job to end", timeout=90)
        assert not (run.path / "outcome.json").exists()

        def reported() -> bool:
            time.sleep(1)  # each look is a command
            said = drill.run("status", run.id, **impatient(drill.folder))[1]
            return "this command does it" in said

        until(reported, "status to see that nobody else does it", timeout=60)
    run.wait()
    whole(run, calm, [before])
    assert run.twice() == []


def test_submit_killed_again_and_again_submits_several_arrays_once(drill: Drill, calm: Run) -> None:
    drill.at_site(max_array_size=3)
    folder = drill.folder / "dying"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(DYING)
    plan = drill.plan(parallelism=7)
    command = ("submit", plan, "--registry", drill.folder / "registry", "--json")
    # After the round, a step's id, an intent, in the middle of the arrays.
    for lines in (1, 2, 1, 3):
        drill.run(*command, code=-9, PYTHONPATH=str(folder), DIE_AFTER=str(lines))
    # After sbatch has taken the third array, before anybody knows.
    path = drill.shim("sbatch", '/usr/bin/sbatch "$@" >/dev/null; kill -9 $PPID\n')
    drill.run(*command, code=-9, PATH=path, PYTHONPATH=str(folder))
    # After it was found again; after the last intent.
    for lines in (1, 1):
        drill.run(*command, code=-9, PYTHONPATH=str(folder), DIE_AFTER=str(lines))
    drill.run(*command, PYTHONPATH=str(folder))

    assert len(drill.known()) == 1, [run.path for run in drill.known()]
    (run,) = drill.known()
    run.wait_alone()
    run.wait()
    whole(run, calm)
    assert run.twice() == []
    arrays = [step for step in run.round.steps.values() if step.group]
    assert [(step.first, step.workers) for step in arrays] == [(0, 3), (3, 3), (6, 1)]
    # Accounting shows elements that ended before they began in one row: jobs are counted, not rows.
    ids = {row[1] for row in run.accounted("State")}
    jobs = {step.job for step in run.round.steps.values()}
    # The job that finalises may have ended before accounting had heard of it.
    assert {number.partition("_")[0] for number in ids} <= jobs, "a step was submitted twice"
    for step in arrays[:2]:
        assert {f"{step.job}_{index}" for index in range(3)} <= ids, "an array begins at index 0"


def test_two_submits_at_once_and_five_resumes_at_once_do_nothing_twice(
    drill: Drill, calm: Run
) -> None:
    drill.script(answer_ms=[400, 400])
    command = (
        "submit",
        drill.plan(parallelism=1),
        "--registry",
        drill.folder / "registry",
        "--json",
    )
    both = [drill.start(*command) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    assert all("Traceback" not in out + err for out, err in said), said
    assert 0 in [process.returncode for process in both], said
    runs = drill.known()
    assert 1 <= len(runs) <= 2
    run = runs[0]
    until(lambda: run.answered() > 4, "answers")
    before = run.answers()
    jobs = sorted({job.id.partition("_")[0] for job in run.jobs()})
    drill.slurm("scancel", *jobs)  # by hand, behind hpcbench's back: no process goes on by itself
    until(lambda: not run.jobs(), "all to be gone")
    time.sleep(3)  # a shorter silence is none
    lost = json.loads(drill.run("status", run.id, "--json", **impatient(drill.folder))[0])
    assert lost["state"] == "lost"
    assert f"`hpcbench resume {run.id}` continues it" in lost["needs"]
    assert "a worker got SIGTERM" in alarm(lost, "draining")

    five = [drill.start("resume", run.id) for _ in range(5)]
    said = [process.communicate(timeout=120) for process in five]

    assert all("Traceback" not in out + err for out, err in said), said
    assert 0 in [process.returncode for process in five], said
    drill.script(answer_ms=[1, 3])
    for one in runs:
        one.wait()
        whole(one, calm)
        assert one.twice() == []
    assert run.rounds == 2
    assert before.items() <= run.answers().items()
    names = [row[0] for row in run.accounted("State")]
    assert len(names) == len(set(names)), names


def test_groups_follow_each_other_and_share_the_workers_that_are_allowed(
    drill: Drill, calm: Run
) -> None:
    # Jobs of five minutes, of which a minute is of use: more array tasks than may run at once.
    drill.at_site(drain_seconds=180)
    drill.script(answer_ms=[500, 500])
    other = {"cpus": 2, "memory_gb": 1, "time_limit": "00:20:00"}
    tasks = (
        {},
        {"name": "few", "limit": 4, "resources": other},
        {"name": "later", "limit": 4, "resources": other, "after": ["few"]},
    )
    run = drill.submit(drill.plan(*tasks, max_job_minutes=5))
    steps = {step.group: str(step.job) for step in run.round.steps.values() if step.group}
    assert run.round.group("g0").throttle == 1
    until(
        lambda: "throttle" in [line["event"] for line in run.story_of_submission()],
        "a share to move",
    )
    reported = drill.slurm("scontrol", "show", "job", steps["g0"])
    assert "ArrayTaskThrottle=2" in reported, reported
    until(
        lambda: len([job for job in run.workers_at() if job.id.startswith(steps["g0"])]) == 2,
        "a second worker",
    )
    drill.script(answer_ms=[1, 3])
    run.wait()
    own = {key: text for key, text in run.answers().items() if key.startswith("numbers/")}
    assert own == calm.answers()
    assert run.twice() == []
    times = {row[1].partition("_")[0]: row[2:] for row in run.accounted("Start,End")}
    assert times[steps["g1"]][1] <= times[steps["g2"]][0]
    written = json.loads(run.metrics)["run_tasks"]["numbers"]
    assert written == json.loads(calm.metrics)["run_tasks"]["numbers"]


def test_what_a_group_leaves_goes_to_the_other_and_its_tasks_that_wait_are_cancelled(
    drill: Drill, calm: Run
) -> None:
    drill.script(answer_ms=[500, 500])
    other = {"cpus": 2, "memory_gb": 1, "time_limit": "00:20:00"}
    run = drill.submit(drill.plan({}, {"name": "few", "limit": 8, "resources": other}))
    many, few = run.round.groups
    assert [(one.workers, one.throttle) for one in (many, few)] == [(2, 1), (2, 1)]
    jobs = {step.group: str(step.job) for step in run.round.steps.values() if step.group}

    def of(group: str, *states: str) -> list[str]:
        return [job.id for job in run.workers_at(*states) if job.id.startswith(jobs[group])]

    until(lambda: of(few.id, "PD"), "a task of the small group to wait")
    until(lambda: len(of(many.id)) == 2, "the large group to get the worker of the small one")
    assert "ArrayTaskThrottle=2" in drill.slurm("scontrol", "show", "job", jobs[many.id])
    assert of(few.id, "PD") == [], "what would find nothing to do should be cancelled"
    drill.script(answer_ms=[1, 3])
    run.wait()

    own = {key: text for key, text in run.answers().items() if key.startswith("numbers/")}
    assert own == calm.answers()
    assert run.twice() == []
    assert run.tracebacks() == []
    began = [one["owner"]["job"] for one in run.said("started")]
    assert sorted(began) == sorted([f"{jobs[few.id]}_0", *(f"{jobs[many.id]}_{n}" for n in (0, 1))])
    written = json.loads(run.metrics)["run_tasks"]["numbers"]
    assert written == json.loads(calm.metrics)["run_tasks"]["numbers"]
