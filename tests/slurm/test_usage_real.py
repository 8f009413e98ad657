"""GPU-hours of a real run against Slurm's accounting of its jobs, and an estimate of the next one."""

from __future__ import annotations

import json

import pytest

from tests.slurm.drill import Drill, until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1200)]


def test_gpu_hours_are_those_of_slurms_accounting_and_the_next_estimate_rests_on_them(
    drill: Drill,
) -> None:
    drill.model("scripted", gpus=1)
    drill.script(load_ms=1500, answer_ms=[200, 300])
    plan = drill.plan(stages=["inference", "evaluation", "reporting"])
    estimate = ("submit", plan, "--registry", drill.folder / "registry", "--estimate", "--json")
    before = json.loads(drill.run(*estimate)[0])
    assert not before["measured"]
    (queues,) = before["queues"].values()
    assert any(queue["start"] is not None for queue in queues), queues
    assert drill.known() == []

    run = drill.submit(plan)
    run.wait()

    # A worker's last word comes before its job's end.
    until(lambda: not run.jobs(), "its jobs to end")
    reported = json.loads(drill.run("usage", run.id, "--json")[0])
    (row,) = reported["hours"]
    (one,) = reported["experiments"]
    assert one["source"] == "slurm"
    # GPU-seconds of each job that held a GPU; Slurm counts whole seconds.
    rows = run.accounted("ElapsedRaw,AllocTRES")
    jobs = [int(elapsed) for *_, elapsed, held in rows if "gres/gpu=1" in held]
    assert one["jobs"] == len(jobs), reported
    assert row["allocated"] * 3600 == pytest.approx(sum(jobs), abs=len(jobs))
    assert row["allocated"] == pytest.approx(row["used"] + row["wasted"], abs=1e-6)
    assert row["used"] > 0
    assert row["loading"] > 0
    assert one["waited"]["longest"] >= one["waited"]["first"] >= 0
    assert "GPU-hours" in (run.path / "report" / "report.md").read_text()
    after = json.loads(drill.run(*estimate)[0])
    assert after["measured"], after["rates"]
