"""The real tiny model answers, and judges its own answers: through the local executor, with a grammar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    done = subprocess.run(
        [str(Path(sys.executable).with_name("hpcbench")), "submit", "plan.yaml", "--wait", "--json"],
        cwd=tmp_path, text=True, capture_output=True, check=False,
        env={
            **os.environ, "HPCBENCH_HOME": str(tmp_path / "home"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"), "RUN_MODE": "prod",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
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
