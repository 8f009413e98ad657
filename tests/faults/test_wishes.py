"""Commands of users during a run: pause, resume, cancel, submit, each of them twice; pilots, order, caps."""

from __future__ import annotations

import json
import time

import pytest

from tests.campaign import first
from tests.faults.conftest import Bench, Trial, until, whole
from tests.help_examples import example

pytestmark = [
    pytest.mark.engine, pytest.mark.timeout(600),
]  # fmt: skip

BOTH = ({"name": "first"}, {"name": "second"})


@pytest.mark.campaign  # tests/slurm has it with five at once
@pytest.mark.parametrize("count", first(1, [5, 2]))
def test_several_resumes_at_once_start_one_round(bench: Bench, calm: Trial, count: int) -> None:
    bench.script(answer_ms=[200, 300])
    trial = bench.submit(bench.plan({}))
    until(lambda: trial.answered() > 5, "answers")
    before = trial.answers()
    trial.kill_all()
    trial.wait("lost")

    running = [bench.start("resume", trial.id) for _ in range(count)]
    said = [process.communicate(timeout=90) for process in running]

    assert all("Traceback" not in out + err and "bug" not in err for out, err in said), said
    codes = [process.returncode for process in running]
    assert codes.count(0) >= 1, said
    for code, (out, err) in zip(codes, said, strict=True):
        assert code == 0 or "another hpcbench is submitting it right now" in err, (out, err)
    bench.script(answer_ms=[1, 3])
    trial.wait("done")
    whole(trial, calm, [before])
    assert trial.rounds == 2


@pytest.mark.campaign  # on the cluster: tests/slurm/test_faults_submission.py
def test_two_submits_of_one_plan_at_once_leave_nothing_half_done(bench: Bench, calm: Trial) -> None:
    plan = bench.plan({})
    command = ("submit", plan, "--registry", bench.folder / "registry", "--json")
    running = [bench.start(*command) for _ in range(2)]
    said = [process.communicate(timeout=90) for process in running]

    assert all("Traceback" not in out + err and "bug" not in err for out, err in said), said
    assert 0 in [process.returncode for process in running], said
    known = json.loads(bench.run("list", "--json")[0])
    assert 1 <= len(known) <= 2
    for one in known:
        trial = Trial(bench, bench.home / "experiments" / one["id"])
        trial.wait("done")
        whole(trial, calm)
        assert trial.twice() == []
        assert trial.rounds == 1


@pytest.mark.campaign  # test_agents.py pauses all of an experiment, the test below a run task
def test_a_paused_experiment_rests_with_what_it_has_and_goes_on(bench: Bench, calm: Trial) -> None:
    bench.script(answer_ms=[900, 1100])  # the command takes seconds on a busy machine
    trial = bench.submit(bench.plan({}))
    until(lambda: trial.answered() > 2, "answers")
    before = trial.answers()

    bench.run("pause", trial.id)

    trial.wait("paused")
    assert "paused" in trial.screen()
    resting = trial.answers()
    assert len(resting) < 40
    time.sleep(1)
    assert trial.answers() == resting
    bench.script(answer_ms=[1, 3])
    trial.resume()
    trial.wait("done")
    whole(trial, calm, [before, resting])
    assert trial.twice() == []


def test_one_run_task_is_paused_while_the_other_goes_on(bench: Bench) -> None:
    bench.script(answer_ms=[600, 800])  # the command takes seconds on a busy machine
    # The cap does not touch a model without GPUs.
    trial = bench.submit(bench.plan(*BOTH), "--max-gpu-hours", "0.001")
    until(lambda: trial.answered() > 2, "answers")

    bench.run(*example("pause @last vqa-hard", {"vqa-hard": "first"}))

    until(lambda: len(trial.answers("second")) > 2, "the other one", timeout=60)
    resting = trial.answers("first")
    bench.script(answer_ms=[1, 3])
    trial.wait("paused")
    assert "paused" in trial.screen()
    assert len(trial.answers("second")) == 40
    assert trial.answers("first") == resting
    assert 0 < len(resting) < 40
    bench.run(*example("resume @last vqa-hard --pilot 0", {"vqa-hard": "first"}))
    trial.wait("done")
    assert len(trial.answers()) == 80
    assert trial.twice() == []
    assert resting.items() <= trial.answers("first").items()


def test_a_cancelled_run_task_ends_and_the_other_is_finished(bench: Bench) -> None:
    bench.script(answer_ms=[600, 800])  # the command takes seconds on a busy machine
    trial = bench.submit(bench.plan(*BOTH))
    until(lambda: trial.answered() > 2, "answers")

    bench.run("cancel", trial.id, "first")

    until(lambda: len(trial.answers("second")) > 2, "the other one", timeout=60)
    bench.script(answer_ms=[1, 3])
    status = trial.wait("incomplete", "done")
    kept = trial.answers("first")
    assert len(trial.answers("second")) == 40
    assert 0 < len(kept) < 40
    states = {one["name"]: one["state"] for one in status["run_tasks"]}
    assert states == {"first": "cancelled", "second": "done"}
    assert "cancelled" in trial.screen()
    trial.resume("first")
    trial.wait("done")
    assert kept.items() <= trial.answers("first").items()
    assert len(trial.answers("first")) == 40
    assert trial.twice() == []


@pytest.mark.campaign  # on the cluster: tests/slurm/test_spine.py
def test_a_cancelled_experiment_keeps_its_answers_and_resumes(bench: Bench, calm: Trial) -> None:
    bench.script(answer_ms=[600, 800])  # the command takes seconds on a busy machine
    trial = bench.submit(bench.plan({}))
    until(lambda: trial.answered() > 3, "answers")
    before = trial.answers()

    bench.run("cancel", trial.id)

    until(lambda: not trial.workers() and not trial.engines(), "the workers to end")
    trial.wait("cancelled")
    bench.script(answer_ms=[1, 3])
    trial.resume()
    trial.wait("done")
    whole(trial, calm, [before])
    assert trial.twice() == []


def test_a_pilot_fails_the_run_task_that_fails_throughout_and_lets_the_others_go_on(
    bench: Bench,
) -> None:
    bench.model("broken")
    bench.script(answer_ms=[1, 3], broken="^broken")
    tasks = ({"name": "bad", "model": "broken"}, {"name": "good"})
    trial = bench.submit(bench.plan(*tasks))

    status = trial.wait("incomplete")

    own = {one["name"]: one for one in status["run_tasks"]}
    assert own["bad"]["state"] == "failed"
    assert 20 <= own["bad"]["answered"] < 40
    assert "its pilot failed, none of the first 20 samples" in own["bad"]["reason"]
    assert "20 × " in own["bad"]["reason"] and "scripted to refuse this" in own["bad"]["reason"]
    assert own["good"]["state"] == "done"
    assert len(trial.answers("good")) == 40
    assert "its pilot failed" in trial.screen()

    assert trial.twice() == []

    bench.script(answer_ms=[1, 3])
    trial.resume("bad")
    trial.wait("done")
    assert len(trial.answers("bad")) == 40


@pytest.mark.campaign  # tests/unit/worker/test_pilot.py has it without processes
def test_without_a_pilot_what_fails_is_asked_to_its_end(bench: Bench) -> None:
    bench.model("broken")
    bench.script(answer_ms=[1, 3], broken="^broken")
    trial = bench.submit(bench.plan({"model": "broken"}), "--pilot", "0")
    trial.wait("failed")
    assert len(trial.answers()) == 40
    assert trial.twice() == []


@pytest.mark.campaign  # on the cluster: tests/slurm/test_faults_submission.py
def test_run_tasks_come_after_those_they_wait_for(bench: Bench) -> None:
    tasks = (
        {"name": "last", "after": ["middle"], "limit": 8},
        {"name": "middle", "after": ["begin"], "limit": 8},
        {"name": "begin", "limit": 8},
    )
    trial = bench.submit(bench.plan(*tasks, parallelism=2))
    trial.wait("done")
    spans = {
        name: [line["time"] for line in trial.shard_events(name)]
        for name in ("begin", "middle", "last")
    }
    assert max(spans["begin"]) <= min(spans["middle"])
    assert max(spans["middle"]) <= min(spans["last"])


def test_a_cap_too_small_for_one_job_is_refused_in_one_line(bench: Bench) -> None:
    bench.model("scripted", gpus=1)
    command = ("submit", bench.plan({}), "--registry", bench.folder / "registry")
    _, err = bench.run(*command, "--max-gpu-hours", "0.001", code=2)
    assert "GPU-hours are too few for one job" in err
    assert list((bench.home / "experiments").glob("*")) == []
