"""A judge as a run task: real workers and files, a scripted engine that answers and one that judges."""

from __future__ import annotations

import json

import pytest

from tests.faults.conftest import SAMPLES, Bench, kill, question, until
from tests.faults.court import JUDGE, RIGHT, Court, judged, labels

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]


@pytest.fixture
def court(bench: Bench) -> Court:
    return Court(bench)


def test_a_judge_starts_when_all_answers_are_there_and_unreadable_verdicts_are_no_zeros(
    court: Court,
) -> None:
    # The judge calls s003, s009 and s015 right, which are wrong, and says nothing readable about s005.
    court.says(
        (f"{question(3)}|{question(9)}|{question(15)}", RIGHT), (question(5), "I cannot say")
    )
    trial = court.submitted(repeats=1)
    trial.wait("done")

    whole = judged(trial)
    right = sum(number % 3 > 0 for number in range(SAMPLES))
    assert (whole["judged"], whole["unreadable"], whole["without_answer"]) == (SAMPLES - 1, 1, 0)
    assert whole["naive"]["value"] == pytest.approx((right - 1 + 3) / (SAMPLES - 1))
    assert (whole["state"], whole["why"]) == ("uncalibrated", "there are no human labels")
    scores = json.loads(trial.metrics)["run_tasks"]["judged"]
    assert (scores["ok"], scores["unreadable"]) == (SAMPLES - 1, 1)
    assert scores["metrics"]["judge_binary"]["value"] == pytest.approx(whole["naive"]["value"])
    first = next(event["time"] for event in trial.shard_events("judged"))
    assert first > max(event["time"] for event in trial.shard_events("numbers"))
    assert trial.twice() == []

    # A person's labels of half of the answers show the judge's errors.
    out, _ = court.bench.run(
        "judge", "check", trial.id, "--labels", labels(court, trial, every=2), "--json"
    )
    found = json.loads(out)["judged"]
    assert found["state"] == "calibrated"
    assert found["labels"] == {"given": 20, "used": 20, "other_answers": 0, "unknown": 0}
    assert found["sensitivity"]["value"] == 1.0
    # 3, 9 and 15 are odd, so these labels do not show that it is wrong about them.
    assert found["specificity"]["value"] == 1.0
    assert judged(trial)["state"] == "uncalibrated"  # nothing is kept without --keep

    path = labels(court, trial)
    out, _ = court.bench.run("judge", "check", trial.id, "--labels", path, "--keep")
    assert "specificity" in out
    kept = judged(trial)
    wrong = SAMPLES - right
    assert kept["specificity"]["value"] == pytest.approx((wrong - 3) / wrong)
    assert kept["corrected"]["value"] == pytest.approx((right - 1) / (SAMPLES - 1))
    assert kept["powered"]["value"] == pytest.approx((right - 1) / (SAMPLES - 1))
    assert kept["powered"]["low"] < kept["powered"]["value"] < kept["powered"]["high"]

    # The next plan quotes the same answers: its labels fit, and nothing is asked again.
    before = len(court.asked)
    again = court.submitted("--reuse", "greedy", judge={"of": "numbers", "labels": str(path)})
    again.wait("done")
    assert len(court.asked) == before
    assert judged(again)["powered"] == kept["powered"]


@pytest.mark.campaign
def test_a_worker_of_the_judge_is_killed_and_no_verdict_is_asked_or_lost_twice(
    court: Court,
) -> None:
    court.says(answer_ms=[150, 250])
    trial = court.submitted(concurrency=1)
    until(lambda: trial.answered() > SAMPLES + 3, "verdicts")
    before = trial.answers("judged")
    assert len(before) < SAMPLES
    for pid in trial.workers():
        kill(pid)
    trial.wait("done")
    assert before.items() <= trial.answers("judged").items()
    assert trial.twice() == []
    assert judged(trial)["judged"] == SAMPLES


@pytest.mark.campaign
def test_answers_that_are_missing_are_not_judged_and_the_judge_waits_for_the_others(
    court: Court,
) -> None:
    court.bench.script(broken=f"^scripted ({question(1)}|{question(2)})$", answer_ms=[20, 30])
    trial = court.submitted()
    until(lambda: trial.answered() > 4, "answers")
    for pid in trial.workers():  # so the first round ends without some of the answers
        kill(pid)
    trial.wait("done", "incomplete")
    whole = judged(trial)
    assert (whole["judged"], whole["without_answer"]) == (SAMPLES - 2, 2)
    asked = [line for line in court.asked if "<answer>" in line or "question" in line]
    assert not any(question(1) in line or question(2) in line for line in asked)
    lost = json.loads(trial.metrics)["run_tasks"]["judged"]["errors"]
    assert [one["message"] for one in lost] == ["no answer of numbers to judge"]
    assert len(trial.answers("judged")) == SAMPLES


@pytest.mark.campaign
def test_pairs_are_shown_in_both_orders_and_a_judge_that_likes_the_first_is_found(
    court: Court,
) -> None:
    court.bench.write(
        "registry/prompts/wordy.yaml", {"name": "wordy", "user": "{{ question }} please"}
    )
    court.orders.write_text(json.dumps({"says": [["<first>", '{"verdict": "first"}']]}))
    trial = court.bench.submit(
        court.bench.plan(
            {},
            {"name": "wordy", "prompt": "wordy"},
            {**JUDGE, "ml_task": "judge_pairwise", "repeats": 2,
             "judge": {"of": "numbers", "against": "wordy", "pages": False}},
        )
    )  # fmt: skip
    trial.wait("done")
    whole = judged(trial)
    assert whole["run_tasks"] == ["judged-r1", "judged-r2"]
    assert whole["naive"]["value"] == 0.5
    assert whole["order"]["value"] == 1.0
    assert whole["order"]["consistent"] == 0.0
    assert any("prefers the first answer of a pair" in one for one in whole["findings"])
    signatures = [
        json.loads(trial.metrics)["run_tasks"][name]["metrics"]["judge_pairwise"]["signature"]
        for name in whole["run_tasks"]
    ]
    assert signatures == ["judge|kind:pairwise|v1", "judge|kind:pairwise|swapped|v1"]


@pytest.mark.campaign
def test_a_judge_that_always_says_yes_and_labels_of_other_answers_are_findings(
    court: Court,
) -> None:
    court.says(("<answer>", RIGHT))
    trial = court.submitted()
    trial.wait("done")
    whole = judged(trial)
    assert whole["naive"]["value"] == 1.0
    assert whole["findings"] == [
        "the judge gave the same verdict to all 40 answers: it may not tell good from bad",
    ]
    out, _ = court.bench.run(
        "judge", "check", trial.id, "--labels", labels(court, trial, answer="of another model"),
        code=1,
    )  # fmt: skip
    assert "40 quote other answers, as labels of another experiment do" in " ".join(out.split())
    out, _ = court.bench.run("judge", "check", trial.id, "--labels", labels(court, trial), code=1)
    assert "the judge does not tell right from wrong" in " ".join(out.split())
