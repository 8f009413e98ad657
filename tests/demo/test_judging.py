"""The real tiny model answers, and judges its own answers: through the local executor, with a grammar."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.demo.reader import hpcbench

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900), pytest.mark.campaign]

TASK = '{max_tokens: %d}\n    resources: {cpus: 1, memory_gb: 3, time_limit: "00:30:00"}\n'
PLAN = f"""\
name: judged
executor: local
min_coverage: 0
run_tasks:
  - name: answers
    ml_task: vqa
    model: tiny-vlm
    dataset: demo_vqa
    limit: 6
    generation: {TASK % 32}\
  - name: verdicts
    ml_task: judge_binary
    model: tiny-vlm
    dataset: demo_vqa
    judge: {{of: answers}}
    output_schema: response_format
    generation: {TASK % 64}"""


def test_verdicts_that_the_engine_cannot_finish_are_coverage_and_the_report_says_uncalibrated(
    tmp_path: Path,
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    words = ("submit", "plan.yaml", "--wait", "--json")
    hpcbench(tmp_path / "home", *words, folder=tmp_path, RUN_MODE="prod")
    (folder,) = (tmp_path / "home/experiments").iterdir()
    metrics = json.loads((folder / "metrics.json").read_text())
    judge = metrics["judges"]["verdicts"]
    assert judge["own_family"] is False or judge["findings"]
    assert judge["samples"] == 6
    # The grammar allows nothing but a verdict, and a text that is cut at 64 tokens has none.
    assert judge["verdicts"] + judge["unreadable"] == 6
    assert metrics["run_tasks"]["verdicts"]["unreadable"] == judge["unreadable"]
    assert (judge["state"], judge["without_answer"]) == ("uncalibrated", 0)
    report = (folder / "report/report.md").read_text()
    assert "uncalibrated" in report
    assert "## Judges" in report
