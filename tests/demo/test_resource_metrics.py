"""Resource metrics on the tiny model: in a plan, its report, a comparison, a gate; not of reused answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.demo.reader import hpcbench

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

PLAN = """\
schema_version: 1
name: measured
executor: local
reports: [markdown, json]
run_tasks:
  - name: vqa
    ml_task: vqa
    model: tiny-vlm
    dataset: demo_vqa
    split: easy
    prompt: demo_vqa
    metrics: [ttft_p50, anls, latency_p95, tpot, answer_tokens, tokens_per_second, documents_per_hour,
              peak_gpu_memory, energy, cost]
    generation: {max_tokens: 16}
    concurrency: 4
    limit: 24
    resources: {cpus: 1, memory_gb: 3, time_limit: "00:30:00"}
"""


class Desk:
    """A user's home and working directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run a command; it must end with `code`. Returns what it printed."""
        return hpcbench(self.folder / "home", *arguments, code=code, folder=self.folder)

    def table(self, experiment: str) -> dict[str, Any]:
        """The run task in `metrics.json`."""
        file = self.folder / "home" / "experiments" / experiment / "metrics.json"
        found: dict[str, Any] = json.loads(file.read_text())["run_tasks"]["vqa"]
        return found

    def client_bound(self, experiment: str) -> bool:
        """Whether its client was too slow for figures of the engine."""
        file = self.folder / "home" / "experiments" / experiment / "performance.json"
        return not json.loads(file.read_text())["run_tasks"]["vqa"]["valid"]

    @property
    def experiments(self) -> list[str]:
        """Ids of the experiments, the oldest first."""
        folders = (self.folder / "home" / "experiments").iterdir()
        return [
            one.name
            for one in sorted(folders, key=lambda one: (one / "manifest.json").stat().st_mtime_ns)
        ]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A desk where the plan has run once."""
    made = Desk(tmp_path_factory.mktemp("desk"))
    (made.folder / "plan.yaml").write_text(PLAN)
    made.run("submit", "plan.yaml", "--wait")
    return made


def test_they_are_in_the_report_with_values_or_reasons(desk: Desk) -> None:
    (experiment,) = desk.experiments
    table = desk.table(experiment)
    metrics: Mapping[str, Any] = table["metrics"]
    for name in ("ttft_p50", "tpot", "answer_tokens"):
        assert metrics[name]["value"] > 0 and metrics[name]["n"] <= 24
    assert metrics["ttft_p50"]["low"] <= metrics["ttft_p50"]["value"] <= metrics["ttft_p50"]["high"]
    for name, why in (
        ("latency_p95", "a percentile of 95 % needs 90 answers, and 24 have a value"),
        ("peak_gpu_memory", "model 'tiny-vlm' uses no GPU"),
        ("energy", "model 'tiny-vlm' uses no GPU"),
        ("cost", "site profile 'default' has no gpu_hour_price"),
    ):
        assert metrics[name] is None
        assert table["measured"][name]["why"] == why
    whole = json.loads(
        (desk.folder / "home" / "experiments" / experiment / "performance.json").read_text()
    )
    speed = whole["run_tasks"]["vqa"]
    assert metrics["ttft_p50"]["value"] == pytest.approx(speed["ttft_ms"]["p50"]["value"], abs=0.01)
    rate = speed["tokens_per_s"]
    assert (metrics["tokens_per_second"] or {}).get("value") == (rate and rate["value"])
    printed = desk.run("report")
    assert "ttft_p50, ms ↓" in printed
    assert "vqa: energy has no value: model 'tiny-vlm' uses no GPU" in printed


def test_an_old_plan_is_scored_by_group(desk: Desk) -> None:
    rows = json.loads(
        desk.run("score", "@last", "--metrics", "ttft_mean", "--by", "doc_type", "--json")
    )["rows"]
    assert len(rows) > 1
    assert all(row["metric"] == "ttft_mean" and row["value"] > 0 for row in rows)


def test_two_runs_are_compared_and_judged_and_reused_answers_have_no_times(desk: Desk) -> None:
    desk.run("submit", "plan.yaml", "--fresh", "--wait")
    one, other = desk.experiments
    words = ("compare", one, other, "--metric", "ttft_p50", "--json")
    if desk.client_bound(one) or desk.client_bound(other):  # a machine that much else runs on
        assert "client was too slow: the times are not the engine's" in desk.run(*words, code=2)
    else:
        (row,) = json.loads(desk.run(*words))["candidates"][0]["compared"]
        assert row["metric"] == "ttft_p50" and row["unit"] == "ms" and not row["paired"]
        assert row["comparison"]["interval"]["low"] < row["comparison"]["interval"]["high"]
    (desk.folder / "gate.yaml").write_text(
        "schema_version: 1\nname: strict\nmetrics: {ttft_p50: {absolute: 1.0e+6}, energy: {absolute: 1}}\n"
    )
    printed = desk.run("gate", other, "--baseline", one, "--policy", "gate.yaml", code=5)
    assert "energy" in printed and "uses no GPU" in printed

    desk.run("submit", "plan.yaml", "--wait")
    table = desk.table(desk.experiments[-1])
    assert table["metrics"]["ttft_p50"] is None
    fresh = "; `hpcbench submit --fresh` measures"
    for name, why in (
        ("ttft_p50", f"an earlier experiment asked for the answer{fresh}"),
        ("tokens_per_second", f"earlier experiments asked for all its answers{fresh}"),
    ):
        assert table["measured"][name]["why"] == why
    assert table["metrics"]["answer_tokens"]["value"] > 0
    assert table["metrics"]["anls"]["value"] == desk.table(one)["metrics"]["anls"]["value"]
