"""Estimates of a plan's time by earlier experiments."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.archiving import fold, fold_workers
from hpcbench.experiment.layout import Experiment
from hpcbench.planning import LOAD_SECONDS, SECONDS_PER_SAMPLE, plan_work
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.usage.durations import Rate, Rates, rates, remember
from tests.unit.past import hashed, past, takes, works
from tests.unit.small import resolved, run_task

ONE, TWO = ("1_0", 0), ("1_1", 0)


def ran(
    root: Path, name: str, seconds: float, *tasks: ResolvedRunTask, load: float = 60, **more: Any
) -> Experiment:
    """An experiment whose samples took so long, in four shards of ten."""
    here = past(root, name, *tasks, **more)
    for task in here.resolved.run_tasks:
        for shard in range(4):
            begin = 100.0 * shard
            takes(here, ONE, shard, begin, begin + 10 * seconds, range(10), name=task.name)
        ready = {"model": task.model.name, "seconds": load}
        works(here, ONE, [(0, "started"), (load, "model_ready", ready)])
    remember(here)
    return here


def said(root: Path, task: ResolvedRunTask, **hashes: str) -> Rates:
    return rates(root, resolved(task), hashed(task, **hashes))


def test_without_history_the_stated_defaults_hold_and_say_so(tmp_path: Path) -> None:
    found = said(tmp_path, run_task())
    assert found.seconds_per_sample == {"rt": SECONDS_PER_SAMPLE}
    assert found.load_seconds == {"m": LOAD_SECONDS}
    assert found.known == frozenset()
    assert found.samples["rt"] == Rate(SECONDS_PER_SAMPLE, SECONDS_PER_SAMPLE, SECONDS_PER_SAMPLE)


def test_more_requests_at_once_make_the_default_quicker_up_to_a_bound(tmp_path: Path) -> None:
    seconds = [
        said(tmp_path, run_task(concurrency=count)).seconds_per_sample["rt"]
        for count in (1, 4, 8, 64, "auto")
    ]
    assert seconds == [2.0, 0.5, 0.25, 0.25, 0.25]


def test_an_earlier_experiment_of_the_same_model_and_dataset_gives_seconds_and_load(
    tmp_path: Path,
) -> None:
    ran(tmp_path, "a", 0.5)
    found = said(tmp_path, run_task())
    assert found.seconds_per_sample == {"rt": 0.5}
    assert found.load_seconds == {"m": 60}
    assert (found.known, found.timed) == ({"rt"}, {"m"})
    assert found.samples["rt"].source == "1 experiment, the same dataset"
    assert found.answer_bytes["rt"] > 100


def test_the_newest_experiments_count_and_their_median(tmp_path: Path) -> None:
    for number, seconds in enumerate([9.0, 9.0, 0.4, 0.6, 0.5]):
        ran(tmp_path, f"2026110{number}", seconds)
    found = said(tmp_path, run_task()).samples["rt"]
    assert (found.seconds, found.low, found.high) == (0.5, 0.4, 0.6)
    assert found.source == "3 experiments, the same dataset"


def test_the_same_bytes_count_whatever_they_are_called_and_other_bytes_do_not(
    tmp_path: Path,
) -> None:
    other = run_task(model={"name": "other"}, dataset={"name": "e"})
    ran(tmp_path, "a", 0.5, model="M", dataset="D")
    assert said(tmp_path, other, model="M", dataset="D").known == {"rt"}
    assert said(tmp_path, run_task(), model="N", dataset="D").known == frozenset()


def test_a_model_is_timed_once_all_its_run_tasks_are(tmp_path: Path) -> None:
    ran(tmp_path, "a", 0.5)
    new = run_task("new", model={"name": "unseen"})
    plan = resolved(run_task(), new, parallelism=8)
    found = rates(tmp_path, plan, hashed(*plan.run_tasks, samples=80))
    assert found.timed == {"m"}
    (reported,) = plan_work(plan, hashed(*plan.run_tasks, samples=80), *found.for_planning).fewer
    assert (reported.model, reported.workers, reported.known) == ("m", 1, True), (
        "40 s of work, loads of 60 s"
    )


def test_without_hashes_documents_are_compared_by_name(tmp_path: Path) -> None:
    ran(tmp_path, "a", 0.5)
    task = run_task()
    dry = hashed(task).model_copy(
        update={"model_hashes": {"m": "not hashed"}, "dataset_hashes": {"rt": "not hashed"}}
    )
    assert rates(tmp_path, resolved(task), dry).samples["rt"].source.endswith("the same dataset")


@pytest.mark.parametrize(
    ("now", "source"),
    [
        ({}, "the same dataset"),
        ({"dataset": {"name": "e"}}, "another dataset of its ML task"),
        ({"dataset": {"name": "e"}, "plugin": "ocr"}, "another ML task"),
        ({"concurrency": 8}, "the same dataset under another load"),
        ({"model": {"engine_options": {"x": 1}}}, "other options or GPUs of its engine"),
        ({"model": {"gpus": 2}}, "other options or GPUs of its engine"),
    ],
)
def test_weaker_matches_are_used_and_named(
    tmp_path: Path, now: dict[str, Any], source: str
) -> None:
    ran(tmp_path, "a", 0.5)
    found = said(tmp_path, run_task(**now)).samples["rt"]
    assert found.seconds == 0.5
    assert found.source == f"1 experiment, {source}"


def test_the_nearest_match_wins_over_a_newer_weak_one(tmp_path: Path) -> None:
    ran(tmp_path, "a", 0.5)
    ran(tmp_path, "b", 7.0, run_task(dataset={"name": "e"}))
    assert said(tmp_path, run_task()).seconds_per_sample == {"rt": 0.5}


def test_one_slow_shard_does_not_change_the_median(tmp_path: Path) -> None:
    here = past(tmp_path, "a")
    for shard, seconds in enumerate([5, 5, 500, 5]):
        takes(here, ONE, shard, 0, seconds, range(10))
    remember(here)
    assert said(tmp_path, run_task()).seconds_per_sample == {"rt": 0.5}


def test_an_attempt_counts_only_what_it_answered_itself(tmp_path: Path) -> None:
    here = past(tmp_path, "a", samples=10)
    takes(here, ONE, 0, 0, 8, range(8), ended="drained")
    takes(here, TWO, 0, 20, 22, range(8, 10), attempt=2, before=8)
    remember(here)
    assert said(tmp_path, run_task()).seconds_per_sample == {"rt": 1.0}


def test_a_worker_that_was_killed_gives_no_figure_of_speed(tmp_path: Path) -> None:
    here = past(tmp_path, "a", samples=10)
    takes(here, ONE, 0, 0, None, range(3))
    remember(here)
    assert said(tmp_path, run_task()).known == frozenset()


def test_requests_at_a_rate_take_at_least_as_long_as_they_take_to_come(tmp_path: Path) -> None:
    ran(tmp_path, "a", 0.5)
    assert said(tmp_path, run_task(rate=0.25)).seconds_per_sample == {"rt": 4.0}


def test_a_missing_summary_is_made_again_and_one_of_a_running_experiment_is_not(
    tmp_path: Path,
) -> None:
    ran(tmp_path, "a", 0.5).history_file.unlink()
    running = ran(tmp_path, "b", 9.0, ended=False)
    running.history_file.unlink()
    task = run_task()
    assert said(tmp_path, task).seconds_per_sample == {"rt": 0.5}
    assert not (tmp_path / "experiments/a/history.json").exists(), "who only looks writes nothing"
    rates(tmp_path, resolved(task), hashed(task), keep=True)
    assert (tmp_path / "experiments/a/history.json").exists()
    assert not running.history_file.exists()


def test_experiments_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    ran(tmp_path, "a", 0.5)
    (tmp_path / "experiments/b").mkdir()
    (tmp_path / "experiments/b/outcome.json").write_text("{}")
    (tmp_path / "experiments/c").mkdir()
    (tmp_path / "experiments/c/history.json").write_text("{torn")
    written = json.loads((tmp_path / "experiments/a/history.json").read_text())
    slow = {**written["run_tasks"][0], "seconds": 9.0}
    for name, text in {
        "d": '{"version": 99}', "e": '{"version": 1}', "f": "[]", "g": "[" * 100_000,
        "h": json.dumps({**written, "run_tasks": [{**slow, "seconds": "9"}]}),
        "i": json.dumps({**written, "run_tasks": [{**slow, "model_hash": 7}]}),
        "j": json.dumps({**written, "run_tasks": [{"model": "m"}], "loads": 3}),
    }.items():  # fmt: skip
        (tmp_path / f"experiments/{name}").mkdir()
        (tmp_path / f"experiments/{name}/history.json").write_text(text)
    assert said(tmp_path, run_task()).seconds_per_sample == {"rt": 0.5}


def test_history_is_read_without_a_look_at_answers(tmp_path: Path) -> None:
    here = ran(tmp_path, "a", 0.5)
    shutil.rmtree(here.path / "shards")
    shutil.rmtree(here.workers_dir)
    assert said(tmp_path, run_task()).known == {"rt"}


def test_what_was_folded_tells_the_same(tmp_path: Path) -> None:
    here = ran(tmp_path, "a", 0.5)
    before = here.history_file.read_bytes()
    assert fold(here, "rt")
    assert fold_workers(here, all_ended=True)
    assert not list(here.workers_dir.glob("*.events.jsonl"))
    remember(here)
    assert here.history_file.read_bytes() == before


def test_five_hundred_experiments_are_heard_in_a_moment(tmp_path: Path) -> None:
    one = ran(tmp_path, "20260101-0000-plan-aaaa", 0.5).history_file.read_text()
    other = one.replace('"sha256:m"', '"sha256:n"')
    for number in range(500):
        folder = tmp_path / f"experiments/20261101-{number:04d}-plan-bbbb"
        folder.mkdir()
        (folder / "history.json").write_text(other)
    assert said(tmp_path, run_task()).known == frozenset(), "older ones are not looked at"


def test_planning_takes_what_history_says(tmp_path: Path) -> None:
    ran(tmp_path, "a", 0.5)
    task = run_task()
    plan = resolved(task, parallelism=1, shard_minutes=1)
    found = rates(tmp_path, plan, hashed(task, samples=4000))
    work = plan_work(plan, hashed(task, samples=4000), found.seconds_per_sample, found.load_seconds)
    assert work.cuts[0].size == 120
    assert work.load_seconds == {"m": 60}
