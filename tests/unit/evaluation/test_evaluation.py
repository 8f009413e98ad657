"""From answers to metrics: coverage, policies, bytes that depend on the answers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.errors import UserError
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import Appender, read_json, write_json
from tests.unit.small import experiment, record, response, write_attempt
from tests.unit.timing import closed_loop


def mixed(folder: Path, **task: Any) -> Experiment:
    """Eight samples: right, right, wrong, invalid, failed, and three that were not asked."""
    here = experiment(folder, [record(number) for number in range(8)], **task)
    write_attempt(
        here, 0, 1,
        [
            response("s0", "0"), response("s1", "1"), response("s2", "nine"),
            response("s3", None, outcome="invalid", error="cannot identify image"),
        ],
    )  # fmt: skip
    write_attempt(here, 1, 1, [response("s4", None)], end="drained")
    return here


def test_every_sample_is_counted_whatever_became_of_it(tmp_path: Path) -> None:
    table = evaluate(mixed(tmp_path)).to_json()["run_tasks"]["rt"]
    assert (table["asked"], table["answered"], table["coverage"]) == (8, 3, 3 / 8)
    assert table["outcomes"] == {"failed": 1, "invalid": 1, "missing": 3, "ok": 3}
    assert {
        "outcome": "invalid",
        "message": "cannot identify image",
        "count": 1,
        "sample": "s3",
    } in (table["errors"])


@pytest.mark.parametrize(("policy", "value", "n"), [("zero", 2 / 8, 8), ("exclude", 2 / 3, 3)])
def test_what_has_no_answer_counts_as_the_run_task_says(
    tmp_path: Path, policy: str, value: float, n: int
) -> None:
    table = evaluate(mixed(tmp_path, on_failed=policy)).to_json()["run_tasks"]["rt"]
    assert table["metrics"]["exact_match"]["value"] == pytest.approx(value)
    assert table["metrics"]["exact_match"]["n"] == n
    assert table["on_failed"] == policy


def test_no_answers_at_all_and_left_out_is_no_score_not_zero(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(1)], on_failed="exclude")
    assert evaluate(here).to_json()["run_tasks"]["rt"]["metrics"] == {"exact_match": None}


def test_a_dataset_that_lost_rows_which_were_asked_about_is_reported_instead_of_scored(
    tmp_path: Path,
) -> None:
    here = mixed(tmp_path)
    write_json(here.chosen_file, {"rt": [[0, 3], [4, 9]]})
    reported = (
        "dataset '.*' has changed since .* 9 or more samples then, 8 now .submit the plan again"
    )
    with pytest.raises(UserError, match=reported):
        evaluate(Experiment(here.path))


def test_a_row_more_in_front_is_reported_instead_of_scored_at_shifted_places(
    tmp_path: Path,
) -> None:
    here = mixed(tmp_path)
    lines = _annotations(here).read_text().splitlines(keepends=True)
    _annotations(here).write_text("".join([lines[0].replace("s0", "new"), *lines]))
    with pytest.raises(
        UserError, match="has changed since .* has an answer, but is no longer at its place"
    ):
        evaluate(Experiment(here.path))


def test_rows_added_at_the_end_since_change_no_score(tmp_path: Path) -> None:
    here = mixed(tmp_path)
    before = evaluate(here)
    lines = _annotations(here).read_text().splitlines(keepends=True)
    _annotations(here).write_text("".join([*lines, lines[0].replace("s0", "new")]))
    assert evaluate(Experiment(here.path)) == before


def _annotations(here: Experiment) -> Path:
    (path,) = Path(here.run_task("rt").dataset.source).glob("*.jsonl")
    return path


def test_the_same_answers_give_the_same_bytes_in_any_order_and_over_any_attempts(
    tmp_path: Path,
) -> None:
    records = [record(number) for number in range(6)]
    answers = [response(f"s{number}", str(number % 4)) for number in range(6)]
    calm, wild = experiment(tmp_path / "a", records, 6), experiment(tmp_path / "b", records, 6)
    write_attempt(calm, 0, 1, answers)
    write_attempt(wild, 0, 1, [answers[4], answers[1]], end="released")
    other = response("s1", "another answer")
    write_attempt(wild, 0, 2, [other, answers[5], answers[0], answers[3], answers[2]])
    evaluate(calm)
    evaluate(wild)
    assert calm.metrics_file.read_bytes() == wild.metrics_file.read_bytes()


def test_all_right_still_has_an_interval_and_it_is_not_certainty(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(number) for number in range(20)], 20)
    write_attempt(here, 0, 1, [response(f"s{number}", str(number)) for number in range(20)])
    entry = evaluate(here).to_json()["run_tasks"]["rt"]["metrics"]["exact_match"]
    assert entry["value"] == 1.0
    assert (entry["low"], entry["high"]) == (pytest.approx(0.8316, abs=1e-4), 1.0)
    assert entry["method"] == "Clopper-Pearson"


def test_scores_hold_one_row_a_sample(tmp_path: Path) -> None:
    import polars

    here = mixed(tmp_path)
    evaluate(here)
    frame = polars.read_parquet(here.scores_file("rt"))
    assert frame["sample"].to_list() == [f"s{number}" for number in range(8)]
    assert frame["exact_match"].to_list() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert frame["outcome"].to_list()[3] == "invalid"
    json.loads(here.performance_file.read_text())


def test_performance_tells_the_load_and_counts_every_request_that_was_made(tmp_path: Path) -> None:
    """A sample answered twice, by a worker that was taken over and by the next, loaded the engine twice."""
    here = experiment(tmp_path, [record(number) for number in range(2)], concurrency=3)
    write_attempt(here, 0, 1, [response("s0", "0")], end="released")
    write_attempt(here, 0, 2, [response("s0", "0"), response("s1", "1")])
    assert evaluate(here).to_json()["run_tasks"]["rt"]["answered"] == 2
    table = read_json(here.performance_file)
    assert (table["version"], table["sweeps"]) == (3, {})
    figures = table["run_tasks"]["rt"]
    assert (figures["requests"], figures["window"]["pieces"]) == (3, 2)
    assert figures["load"] == {
        "concurrency": 3, "rate": None, "arrival": None, "warm_up": 1, "sweep": None,
        "chosen": None, "protocol": "http", "route": "proxied",
    }  # fmt: skip


def test_what_workers_tell_of_a_run_task_is_found_by_its_name(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(0)])
    write_attempt(here, 0, 1, [response("s0", "0")])
    with Appender(here.worker_events("g0", "1-0")) as news:
        news.write({"event": "started", "time": 0})
        for name, bound in (("rt", True), ("another", False)):
            news.write({"event": "client_health", "run_task": name, "client_bound": bound})
            news.write({"event": "monitor", "run_task": name, "memory": {"gpu_peak": 7}})
            news.write({"event": "route", "run_task": name, "route": "direct" if bound else "x"})
    metrics = evaluate(here).to_json()
    figures = read_json(here.performance_file)["run_tasks"]["rt"]
    assert figures["valid"] is False
    assert figures["memory"] == {"gpu_peak": 7}
    assert figures["load"]["route"] == "direct"
    assert metrics["run_tasks"]["rt"]["metrics"]["exact_match"]["value"] == 1, "scores stand"


def test_a_worker_of_an_earlier_version_took_the_only_route_that_there_was(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(0)])
    write_attempt(here, 0, 1, [response("s0", "0")])
    for job, events in {
        "1-0": [{"event": "route", "run_task": "rt", "route": "direct"}],
        "2-0": [{"event": "shard_done", "shard": "another/0"}],
        "3-0": [{"event": "shard_done", "shard": "rt/0"}],
    }.items():
        with Appender(here.worker_events("g0", job)) as news:
            for event in events:
                news.write({"time": 0, **event})
        evaluate(here)
        (found,) = read_json(here.performance_file)["run_tasks"].values()
        assert found["load"]["route"] == ("direct and proxied" if job == "3-0" else "direct")


def test_a_sweep_is_reported_with_its_points(tmp_path: Path) -> None:
    here = experiment(tmp_path, [record(number) for number in range(60)], 60)
    plan = here.resolved
    (one,) = plan.run_tasks
    changed = plan.model_copy(update={"run_tasks": (one.model_copy(update={"sweep": "vqa"}),)})
    here.resolved_file.write_text(changed.model_dump_json())
    write_attempt(here, 0, 1, closed_loop(60, 2, lambda chance, n: 100))
    evaluate(Experiment(here.path))
    assert read_json(here.performance_file)["sweeps"] == {
        "vqa": {"points": ["rt"], "knee": None, "rate_knee": None, "best": None}
    }
