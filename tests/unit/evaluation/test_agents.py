"""Evaluation of agents' answers: scores, metrics of resources, and the figures in performance.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.agents.loop import End
from hpcbench.evaluation.performance import performance
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answers import answer_frames
from hpcbench.experiment.view.metrics_json import MetricValue, metrics_of
from hpcbench.experiment.view.performance_json import performance_of
from hpcbench.experiment.view.scores import rows_of
from hpcbench.reporting.writing import report
from hpcbench.schema.metric import Metric
from hpcbench.schema.model import Prices
from hpcbench.schema.outputs import Report
from hpcbench.speed.agents import trajectories
from tests.unit.agents.trajectories import Story, write_trajectories
from tests.unit.evaluation.scene import with_metrics
from tests.unit.small import describe, experiment, record

METRICS = tuple(
    Metric(name=name, plugin=name)
    for name in (
        "success", "turns", "tool_calls", "wasted_calls", "plan_adherence", "answer_tokens", "ttft_p50",
        "latency_mean", "tokens_per_second", "documents_per_hour", "cost",
    )
)  # fmt: skip


def story(number: int) -> Story:
    """A sample's work: number % 3 crops, then an answer; every third with a plan of which half is done."""
    found = Story(f"s{number}")
    if number % 3 == 2:
        found.does(
            ("create_plan", {"steps": ["a", "b"]}, "ok", 0),
            ("update_plan", {"step": 1, "status": "done"}, "ok", 0),
        )
    for place in range(number % 3):
        found.does(("crop", {"left": place}, "ok" if place == 0 else "time", 1))
    return found.says(str(number))


def asked(folder: Path, works: Sequence[tuple[Story, End | None]], **model: Any) -> Experiment:
    """An experiment of an agent; its shards have four samples each."""
    count = len(works)
    here = with_metrics(experiment(folder, [record(n) for n in range(count)], agent=True), METRICS)
    if model:
        plan = here.resolved
        (one,) = plan.run_tasks
        changed = one.model_copy(update={"model": one.model.model_copy(update=model)})
        here.resolved_file.write_text(
            plan.model_copy(update={"run_tasks": (changed,)}).model_dump_json()
        )
        here = Experiment(here.path)
    for shard in here.work.shards:
        some = works[shard.start : shard.stop]
        lines = [line for one, _ in some for line in one.lines]
        write_trajectories(here, shard.index, 1, lines, [one.response(end) for one, end in some])
    return here


LIMIT = End("limit_calls", "", "100 calls", "truncated")
GONE = End("request_failed", None, "the engine hung up", "failed")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    works: list[tuple[Story, End | None]] = [(story(number), None) for number in range(7)]
    works.append((Story("s7").does(("zoom", "{", "arguments", 0)), LIMIT))
    works.append((Story("s8").does(("zoom", {}, "ok", 1)), GONE))
    prices = Prices(input=1, output=2, image=0.5)
    found = asked(tmp_path_factory.mktemp("agents"), works, prices=prices)
    evaluate(found)
    return found


def value(here: Experiment, name: str) -> MetricValue:
    found = metrics_of(here).run_tasks["rt"].metrics[name]
    assert found is not None
    return found


def test_scores_know_how_each_work_ended(here: Experiment) -> None:
    rows = rows_of(here.scores_file("rt"), ["sample", "exit", "agent_turns", "agent_calls"])
    assert rows.row(2) == ("s2", "answered", 4, 4)
    assert rows.row(7) == ("s7", "limit_calls", 1, 1)
    assert rows.row(8) == ("s8", "request_failed", 1, 1)


def test_each_metric_has_the_value_computed_by_hand(here: Experiment) -> None:
    success = value(here, "success")
    assert (success.value, success.n, success.clusters) == (7 / 9, 9, 9), "no answer is no success"
    # Samples 0, 3, 6: one turn; 1, 4: two turns with one call; 2, 5: four turns with four calls; 7: one.
    assert value(here, "turns").value == (3 * 1 + 2 * 2 + 2 * 4 + 1) / 8
    assert value(here, "tool_calls").value == (2 * 1 + 2 * 4 + 1) / 8
    assert value(here, "wasted_calls").value == (2 * 1 + 1) / 8, (
        "of 2, 5: the crop out of time; 7: no JSON"
    )
    assert value(here, "plan_adherence").value == 0.5
    assert value(here, "plan_adherence").n == 2
    assert value(here, "answer_tokens").value == 10 * 16 / 8
    why = metrics_of(here).run_tasks["rt"].measured
    assert why["plan_adherence"].reason == "its agent made no plan"


def test_a_request_s_times_have_no_value_of_an_agent(here: Experiment) -> None:
    table = metrics_of(here).run_tasks["rt"]
    assert table.metrics["ttft_p50"] is None and table.metrics["latency_mean"] is None
    assert table.metrics["tokens_per_second"] is None
    assert "in turns" in table.measured["tokens_per_second"].why
    hourly = table.metrics["documents_per_hour"]
    assert hourly is None and "under full load" in table.measured["documents_per_hour"].why


def test_cost_counts_every_turn_and_every_image(here: Experiment) -> None:
    # Prompt tokens of n turns: 100 (1 + … + n); one image in each request.
    each = {1: (100, 10, 1), 2: (300, 20, 2), 4: (1000, 40, 4)}
    costs = [
        (each[n][0] * 1 + each[n][1] * 2) / 1e6 + 0.5 * each[n][2] for n in (1, 2, 4, 1, 2, 4, 1, 1)
    ]
    assert value(here, "cost").value == pytest.approx(1000 * sum(costs) / 8)
    (frame,) = answer_frames(here, "rt", columns=["sample", "images", "exit", "think_seconds"])
    assert frame.row(2) == ("s2", 4, "answered", 2.0)


def test_performance_has_the_figures_of_the_work_and_none_of_requests(here: Experiment) -> None:
    table = performance_of(here).run_tasks["rt"]
    assert (table.requests, table.answered, table.tries) == (0, 0, 0)
    assert table.ttft_ms is None and table.answers_per_s is None and table.prompt_tokens == 0
    work = table.trajectories
    assert work is not None
    assert (work.samples, work.answered) == (9, 8)
    assert work.exits == {"answered": 7, "limit_calls": 1, "request_failed": 1}
    assert work.calls == {"crop": 6, "create_plan": 2, "update_plan": 2, "zoom": 2}
    assert work.failed == {"time": 2, "arguments": 1}
    assert work.wasted == 3
    assert work.by_calls == {"0": 3, "1": 4, "4": 2}
    assert work.prompt_tokens == 3 * 100 + 2 * 300 + 2 * 1000 + 2 * 100
    assert work.completion_tokens == 10 * 17
    assert sum(one.samples for one in work.by_tokens) == 9
    assert {one.low: one.samples for one in work.by_tokens if one.samples} == {10: 5, 20: 2, 40: 2}
    assert work.turns_each is not None and work.turns_each.p50.value == 1
    assert work.turns_each.p95.value is None, "nine samples have no 95th percentile"
    assert work.think_s is not None and work.think_s.mean.value == round(17 / 2 / 9, 3)
    assert work.tool_s is not None and work.tool_s.max == 1.0
    assert work.sync_s is not None and work.sync_s.max == 0.04
    assert work.ttft_ms is not None and (work.ttft_ms.n, work.ttft_ms.max) == (17, 100)
    assert work.plans is not None
    assert (work.plans.samples, work.plans.steps, work.plans.done) == (2, 4, 2)


def test_flows_join_each_step_to_the_next_one(here: Experiment) -> None:
    work = performance_of(here).run_tasks["rt"].trajectories
    assert work is not None
    flows = {(one.source, one.target): one.count for one in work.flows}
    assert flows == {
        ("start", "answered"): 3, ("start", "crop"): 2, ("crop", "answered"): 4, ("start", "create_plan"): 2,
        ("create_plan", "update_plan"): 2, ("update_plan", "crop"): 2, ("crop", "crop"): 2,
        ("start", "zoom"): 2, ("zoom", "limit_calls"): 1, ("zoom", "request_failed"): 1,
    }  # fmt: skip
    assert sum(count for (source, _), count in flows.items() if source == "start") == work.samples


def test_many_samples_have_a_rate(tmp_path: Path) -> None:
    """40 samples of half a second, one after the other on one worker: two a second."""
    half = 500_000_000
    found = Story("s").says("1").response()
    answers = [
        replace(found, times=replace(found.times, send=n * half, done=(n + 1) * half))
        for n in range(40)
    ]
    work = trajectories([answers])
    assert work is not None and work["samples_per_s"]["value"] == 2
    assert trajectories([]) is None


def test_a_damaged_answer_of_an_agent_is_left_out(here: Experiment, tmp_path: Path) -> None:
    damaged = asked(tmp_path, [(story(number), None) for number in range(4)])
    path = damaged.shard_responses("rt", 0, 1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0]["trajectory"]["calls"] = [1]
    lines[1]["trajectory"] = {"turns": 3}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    work = performance(damaged).run_tasks["rt"].trajectories
    assert work is not None and work.samples == 2
    assert evaluate(damaged).run_tasks["rt"].answered == 4


@pytest.mark.long
def test_a_report_shows_the_work_and_no_request_of_it(here: Experiment) -> None:
    describe(here)
    report(Experiment(here.path), [Report(name=name, plugin=name) for name in ("markdown", "html")])
    text = (here.report_dir / "report.md").read_text()
    section = text.partition("## Agents")[2].partition("\n## ")[0]
    assert "| rt | 9 | 8 | 1 / – | 1 / – | 3 |" in section
    assert "| rt | 7 | 1 | 1 |" in section, "exits"
    assert "crop" in section and "update_plan" in section
    assert "## Latency" not in text, "no request has a latency"
    speed = text.partition("## Speed and memory")[2].partition("\n## ")[0]
    assert "| rt |" not in speed
    page = (here.report_dir / "report.html").read_text()
    assert "Which step follows which: rt" in page and "Tool calls of a sample: rt" in page
