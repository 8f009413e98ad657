"""A judge as a run task in jobs of its own: another partition, a GPU; the engines are scripted ones."""

from __future__ import annotations

import json

import pytest

from tests.faults.conftest import SAMPLES, kill, question
from tests.faults.court import JUDGE, RIGHT, Court, judged, labels
from tests.slurm.drill import Drill, until

# tests/faults/test_judges.py has a judge's verdicts, labels and findings without Slurm.
pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

ALONE = {"cpus": 1, "memory_gb": 1, "time_limit": "00:20:00", "partition": "low"}
PRICES = {"input": 1000.0, "output": 2000.0}
"""For each million tokens, so that the few of a verdict cost something."""


def test_a_judge_on_a_partition_and_a_gpu_of_its_own_loses_no_verdict(drill: Drill) -> None:
    court = Court(drill)
    drill.model("judge", gpus=1, prices=PRICES, engine_options={"script": str(court.orders)})
    # It calls s003 and s009 right, which are wrong, and says nothing readable about s005.
    says = ((f"{question(3)}|{question(9)}", RIGHT), (question(5), "I cannot say"))
    court.says(*says, answer_ms=[400, 500])
    own = {"resources": ALONE, "concurrency": 1, "metrics": ["judge_binary", "cost"]}
    stages = ["inference", "evaluation", "reporting"]
    run = drill.submit(drill.plan({}, {**JUDGE, **own}, stages=stages))

    until(lambda: len(run.answers("judged")) > 4, "verdicts")
    assert len(run.answers("numbers")) == SAMPLES, "the rated run task has ended"
    before = run.answers("judged")
    (killed, *_) = run.processes()
    assert kill(killed)
    until(lambda: run.answered() > SAMPLES + len(before) + 2, "the other worker to go on")
    drill.run("pause", run.id)
    run.wait("paused")
    before |= run.answers("judged")
    assert len(before) < SAMPLES
    court.says(*says)
    run.resume()
    run.wait("done")

    assert before.items() <= run.answers("judged").items(), "a verdict was lost or changed"
    assert run.twice() == []
    rows = run.accounted("Partition,AllocTRES")
    places = {(row[2], "gres/gpu=1" in row[3]) for row in rows if ":finalise" not in row[0]}
    assert places == {("main", False), ("low", True)}

    right = sum(number % 3 > 0 for number in range(SAMPLES))
    whole = judged(run)
    assert (whole["judged"], whole["unreadable"], whole["without_answer"]) == (SAMPLES - 1, 1, 0)
    assert whole["naive"]["value"] == pytest.approx((right - 1 + 2) / (SAMPLES - 1))
    scores = json.loads(run.metrics)["run_tasks"]["judged"]
    assert scores["coverage"] == pytest.approx((SAMPLES - 1) / SAMPLES)
    assert scores["metrics"]["cost"]["value"] > 0
    assert whole["state"] == "uncalibrated"
    assert "uncalibrated" in (run.path / "report/report.md").read_text()

    drill.run("judge", "check", run.id, "--labels", labels(court, run), "--keep")
    drill.run("report", run.id, "--format", "markdown")
    kept = judged(run)
    assert (kept["state"], kept["labels"]["other_answers"]) == ("calibrated", 0)
    assert kept["powered"]["value"] == pytest.approx((right - 1) / (SAMPLES - 1))
    report = (run.path / "report/report.md").read_text()
    assert "uncalibrated" not in report
    assert f"{kept['powered']['value']:.3f} [" in report, "the corrected value beside the naive one"
