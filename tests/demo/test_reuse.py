"""Plans submitted again: the real tiny model through the local executor is asked only what is new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import worker_runs
from tests.demo.reader import ROOT, hpcbench

DEMO = ROOT / "examples/demo/data"

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

PLAN = """\
name: again
executor: local
run_tasks:
  - name: vqa
    ml_task: vqa
    model: tiny-vlm
    dataset: pages
    prompt: ask
    generation: {max_tokens: 32}
    concurrency: 2
    resources: {cpus: 1, memory_gb: 3, time_limit: "00:30:00"}
"""


class User:
    """A user with a growing dataset and a prompt of her own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("plan.yaml", PLAN)
        self.write(
            "registry/datasets/pages.yaml",
            f"name: pages\nsource: {folder}/pages\nannotations: a.jsonl\nfields: [question]\n",
        )
        self.prompt("{{ question }}")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def prompt(self, user: str) -> None:
        self.write("registry/prompts/ask.yaml", f'name: ask\nuser: "{user}"\n')

    def samples(self, count: int) -> None:
        """The first samples of the demo."""
        lines = (DEMO / "vqa.jsonl").read_text().splitlines()[:count]
        for line in lines:
            for image in json.loads(line)["images"]:
                target = self.folder / "pages" / image
                if not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes((DEMO / image).read_bytes())
        self.write("pages/a.jsonl", "".join(line + "\n" for line in lines))

    def submit(self, *options: str) -> Any:
        """Submit the plan; JSON on the screen."""
        words = (
            "submit",
            "plan.yaml",
            "--json",
            "--registry",
            "registry",
            *(options or ["--wait"]),
        )
        printed = hpcbench(self.folder / "home", *words, folder=self.folder, RUN_MODE="prod")
        return json.loads(printed)

    @property
    def experiments(self) -> list[Experiment]:
        folders = (self.folder / "home/experiments").iterdir()
        known = [Experiment(folder) for folder in folders]
        return sorted(known, key=lambda one: one.manifest_file.stat().st_mtime_ns)


@pytest.mark.campaign  # what is asked: unit/submit/test_reuse.py; a real reuse: test_resource_metrics.py
def test_a_plan_submitted_again_asks_only_what_is_new(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.samples(6)
    user.submit()
    (first,) = user.experiments

    reported = user.submit("--dry-run")
    assert (reported["asked"], reported["reused"]) == ({"vqa": 0}, {"vqa": {first.id: 6}})
    user.submit()
    second = user.experiments[-1]
    assert [*worker_runs(second)] == []  # no engine was started
    assert second.metrics_file.read_bytes() == first.metrics_file.read_bytes()
    report = (second.report_dir / "report.md").read_text()
    assert f"6 of 6 samples have answers of earlier experiments: {first.id} (6)." in report
    assert "All figures were measured in this experiment." in report

    user.samples(8)
    user.submit()
    grown = user.experiments[-1]
    speed = json.loads(grown.performance_file.read_text())["run_tasks"]["vqa"]
    assert speed["requests"] == 2
    answers = [answer for _, own in answers_of(grown, "vqa") for answer in own.values()]
    assert [one.reused_from is None for one in answers] == [False] * 6 + [True] * 2

    user.prompt("{{ question }} ")
    assert user.submit("--dry-run")["asked"] == {"vqa": 8}
