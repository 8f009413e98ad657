"""Results of an evaluation, whole and of one run task alone: the same, however they are laid out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from hpcbench.portal.results_cache import Results
from tests.unit.reporting.many import answered, right


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    folder = tmp_path_factory.mktemp("results")
    return answered(folder, {"a": right(8, 0.9), "a-b": right(8, 0.5), "b": [None] * 8})


@pytest.mark.parametrize("name", ["a", "a-b", "b"])
def test_a_part_is_what_the_whole_says(experiment: Experiment, name: str) -> None:
    results = Results()
    metrics, performance = results.metrics(experiment), results.performance(experiment)
    assert metrics is not None
    assert performance is not None
    parts = Results().of_run_task(experiment, name)
    assert parts == (metrics.run_tasks[name], performance.run_tasks[name])


def test_a_part_that_is_not_there_is_empty(experiment: Experiment, tmp_path: Path) -> None:
    assert Results().of_run_task(experiment, "nothing") == (None, None)
    assert Results().of_run_task(Experiment(tmp_path), "a") == (None, None)


def test_a_file_that_is_laid_out_otherwise_is_read_whole(
    experiment: Experiment, tmp_path: Path
) -> None:
    here = Experiment(tmp_path)
    reported = json.loads(experiment.metrics_file.read_text())
    here.metrics_file.write_text(json.dumps(reported))
    scores, speed = Results().of_run_task(here, "a")
    assert scores is not None
    assert (scores.to_json(), speed) == (reported["run_tasks"]["a"], None)


def test_a_name_elsewhere_in_the_file_is_not_taken_for_a_run_task(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    tables: dict[str, Any] = {"other": {"a": {"answered": 1}}}
    write_json(
        here.performance_file, {"version": 3, "run_tasks": tables, "sweeps": {"a": {"points": []}}}
    )
    assert Results().of_run_task(here, "a") == (None, None)


def test_what_another_version_wrote_is_nothing(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    write_json(here.metrics_file, {"version": 99, "run_tasks": {"a": {"answered": 1}}})
    assert Results().of_run_task(here, "a") == (None, None)
    assert Results().metrics(here) is None
