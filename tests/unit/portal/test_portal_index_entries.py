"""Sources of the index: small files of an experiment, whatever state they are in."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.control import control_request
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from hpcbench.portal import index_entries
from hpcbench.portal.index import Account, Entry
from tests.unit.past import past
from tests.unit.small import run_task


def table(value: float | None = 0.75, metric: str = "exact_match", **more: Any) -> dict[str, Any]:
    """A run task's table of `metrics.json`."""
    entry = {
        "value": value,
        "low": 0.7,
        "high": 0.8,
        "n": 40,
        "clusters": 8,
        "higher_is_better": True,
    }
    return {
        "ml_task": "vqa", "model": "m", "dataset": "d", "split": None, "prompt": "p", "asked": 40,
        "answered": 39, "coverage": 0.975, "invalid": 2, "errors": [], "metrics": {metric: entry}, **more,
    }  # fmt: skip


def evaluated(here: Experiment, **tables: Any) -> None:
    """Files that evaluation leaves."""
    speed = {
        "e2e_ms": {"p50": {"value": 1500.0}, "p95": {"value": 2500.0}},
        "tokens_per_s": {"value": 30.0},
        "memory": {"gpu_peak": 20 << 30},
    }
    write_json(here.metrics_file, {"version": 2, "run_tasks": tables})
    performance = {"version": 3, "run_tasks": dict.fromkeys(tables, speed), "sweeps": {}}
    write_json(here.performance_file, performance)


def read(here: Experiment, **more: Any) -> Entry:
    return index_entries.entry(
        index_entries.planned(here),
        index_entries.results(here),
        index_entries.account(here),
        status=None,
        stamp="s",
        updated=1.0,
        **more,
    )


def test_one_that_is_done_is_read_from_its_small_files_alone(tmp_path: Path) -> None:
    here = past(
        tmp_path, "20261120-1432-plan-aaaa", run_task("a", dataset={"split": "test"}), run_task("b")
    )
    evaluated(here, a=table(0.5), b=table(0.7))
    write_json(here.usage_file, {
        "hours": [{"unit": "GPU", "allocated": 2.0, "used": 1.5, "idle": 0.25, "loading": 0.25},
                  {"unit": "CPU", "allocated": 9.0, "used": 9.0}],
        "waited": {"first": 10.0, "median": 30.0, "longest": 60.0},
    })  # fmt: skip
    found = read(here, baselines=("good",))
    row = found.row
    assert (row.state, row.run_tasks, row.samples, row.answered) == ("done", 2, 80, 80)
    assert row.tasks_by_state == {"done": 2}
    assert row.datasets == ("d/test", "d")
    assert row.score is not None
    assert (row.score.metric, row.score.value, row.score.n, row.score.low) == (
        "exact_match",
        0.6,
        80,
        None,
    )
    assert row.baselines == ("good",)
    assert row.gpu_hours == 2.0
    assert found.account.usage.gpu_hours_wasted == 0.5
    assert found.account.usage.queue_wait == 60.0
    task = found.run_tasks[0]
    assert (task.coverage, task.invalid, task.latency_p50, task.latency_p95) == (0.925, 2, 1.5, 2.5)
    assert (task.tokens_per_second, task.peak_memory_gb) == (30.0, 20.0)
    assert task.scores[0].documents == 8


def test_the_score_of_the_only_run_task_keeps_its_interval(tmp_path: Path) -> None:
    here = past(tmp_path, "e")
    evaluated(here, rt=table(0.5))
    row = read(here).row
    assert row.score is not None
    assert (row.score.low, row.score.high) == (0.7, 0.8)


def test_run_tasks_that_share_no_metric_have_no_score_together(tmp_path: Path) -> None:
    here = past(tmp_path, "e", run_task("a"), run_task("b", metrics=("anls",)))
    evaluated(here, a=table(0.5), b=table(0.7, "anls"))
    assert read(here).row.score is None


def test_metrics_stand_in_the_order_of_the_plan(tmp_path: Path) -> None:
    here = past(tmp_path, "e", run_task(metrics=("exact_match", "anls")))
    both = {
        **table(0.1, "anls")["metrics"],
        **table(0.2)["metrics"],
        **table(0.3, "added")["metrics"],
    }
    evaluated(here, rt=table(metrics=both))
    assert [score.metric for score in read(here).run_tasks[0].scores] == [
        "exact_match",
        "anls",
        "added",
    ]


def test_errors_of_answers_are_counted_by_cause(tmp_path: Path) -> None:
    here = past(tmp_path, "e", run_task("a"), run_task("b"))
    error = {"outcome": "failed", "message": "the engine hung up", "count": 3}
    evaluated(here, a=table(errors=[error]), b=table(errors=[error, {**error, "message": "other"}]))
    assert read(here).row.failures == 2


def test_the_summary_is_what_the_report_says_first(tmp_path: Path) -> None:
    here = past(tmp_path, "e")
    assert index_entries.account(here).summary == ()
    blocks = ["m reaches 0.7 [0.6, 0.8] on d\\_.", "**Who leads**", "| dataset |\n|---|\n| d |"]
    write_json(here.summary_file, {"version": 1, "blocks": blocks})
    assert index_entries.account(here).summary == tuple(blocks)
    here.summary_file.write_text('{"blocks": ')
    assert index_entries.account(here).summary == ()


def test_the_verdict_of_a_gate_is_shown(tmp_path: Path) -> None:
    here = past(tmp_path, "e")
    write_json(here.verdict_file, {"version": 1, "verdict": "NO-GO", "reasons": ["worse"]})
    found = read(here)
    assert found.row.verdict == "NO-GO"
    assert found.account.verdict == {"version": 1, "verdict": "NO-GO", "reasons": ["worse"]}


def test_its_time_is_the_manifests_else_the_ids(tmp_path: Path) -> None:
    here = past(tmp_path, "20261120-1432-plan-aaaa")
    assert time.localtime(index_entries.planned(here).created)[:5] == (2026, 11, 20, 14, 32)
    manifest = json.loads(here.manifest_file.read_text())
    write_json(here.manifest_file, {**manifest, "created": "2026-11-20T12:00:00+0000"})
    assert index_entries.planned(here).created == 1795176000.0
    write_json(here.manifest_file, {**manifest, "created": ["nonsense"]})
    assert time.localtime(index_entries.planned(here).created)[:5] == (2026, 11, 20, 14, 32)


def test_only_an_outcome_of_the_newest_round_is_an_end(tmp_path: Path) -> None:
    here = past(tmp_path, "e", ended=False)
    assert index_entries.ending(here) is None
    with here.submission_file.open("w") as file:
        file.write(json.dumps({"event": "round", "round": 0, "groups": [], "time": 1.0}) + "\n")
    write_json(here.outcome_file, {"version": 1, "round": 0, "state": "incomplete"})
    assert index_entries.ending(here) == "incomplete"
    with here.submission_file.open("a") as file:
        file.write(json.dumps({"event": "round", "round": 1, "groups": [], "time": 2.0}) + "\n")
    assert index_entries.ending(here) is None


def test_a_stamp_changes_with_what_may_change_after_the_end(tmp_path: Path) -> None:
    here = past(tmp_path, "e")
    stamps = [index_entries.stamp_of(here)]

    def note() -> None:
        stamps.append(index_entries.stamp_of(here))

    evaluated(here, rt=table())
    note()
    write_json(here.verdict_file, {"verdict": "GO"})
    note()
    control_request(here, "pause")
    note()
    with here.submission_file.open("a") as file:
        file.write("{}\n")
    note()
    assert len(set(stamps)) == len(stamps)
    assert index_entries.stamp_of(here) == stamps[-1]
    os.utime(here.outcome_file, (2e9, 2e9))
    assert index_entries.changed_at(index_entries.stamp_of(here)) == 2e9


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 50)


def a_list(path: Path) -> None:
    path.write_text("[1, 2]")


def deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def other_types(path: Path) -> None:
    path.write_text(
        '{"run_tasks": {"rt": [], "x": 7}, "plan": 7, "work": [], "hours": 3, "verdict": {"a": 1}}'
    )


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


HARMS = [cut, nothing, binary, a_list, deep, other_types, a_folder]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("file", ["resolved_file", "manifest_file"])
def test_without_its_plan_it_is_unreadable(
    tmp_path: Path, file: str, harm: Callable[[Path], None]
) -> None:
    here = past(tmp_path, "20261120-1432-plan-aaaa")
    harm(getattr(here, file))
    with pytest.raises(index_entries.Unreadable):
        index_entries.planned(here)
    row = index_entries.unreadable(here, index_entries.stamp_of(here)).row
    assert (row.state, row.run_tasks) == ("unreadable", 0)
    assert time.localtime(row.created)[:3] == (2026, 11, 20)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("file", ["metrics_file", "performance_file", "usage_file", "verdict_file"])
def test_without_what_was_written_at_its_end_it_is_shown_all_the_same(
    tmp_path: Path, file: str, harm: Callable[[Path], None]
) -> None:
    here = past(tmp_path, "e")
    evaluated(here, rt=table())
    write_json(here.usage_file, {"hours": [{"unit": "GPU", "allocated": 2.0}]})
    write_json(here.verdict_file, {"verdict": "GO"})
    harm(getattr(here, file))
    found = read(here)
    assert found.row.state == "done"
    assert found.run_tasks[0].samples == 40


def test_tables_of_another_version_are_not_believed(tmp_path: Path) -> None:
    here = past(tmp_path, "e")
    write_json(here.metrics_file, {"version": 1, "run_tasks": {"rt": table()}})
    assert read(here).run_tasks[0].scores == ()


@pytest.mark.parametrize("damage", [("0.7,", "Infinity,"), ("0.75", '"x"')])
def test_a_run_task_with_a_number_that_is_none_has_no_scores(
    tmp_path: Path, damage: tuple[str, str]
) -> None:
    here = past(tmp_path, "e")
    evaluated(here, rt=table())
    here.metrics_file.write_text(here.metrics_file.read_text().replace(*damage))
    (task,) = read(here).run_tasks
    assert (task.scores, task.counts) == ((), None)
    assert Entry(read(here).row, (task,), Account(), "").run_tasks[0].model_dump_json()
