"""Counting answers without a value, by policies and readings; shown beside the result of the other policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from tests.unit.evaluation.scene import asked, reported, strange
from tests.unit.small import record

RIGHT, UNREADABLE = '{"total": "1"}', "I see a total of 1"


def objects(folder: Path, answers: list[str | None], **task: Any) -> Experiment:
    """Key-information extraction with so many answers; each right one is `RIGHT`."""
    records = [record(n, references=[json.loads(RIGHT)]) for n in range(len(answers))]
    metrics = strange("ByField", "Readable")
    return asked(folder, answers, metrics, records, plugin="kie", **task)


@pytest.mark.parametrize(("policy", "value", "n"), [("exclude", 1.0, 2), ("zero", 2 / 3, 3)])
def test_an_invalid_answer_counts_as_the_run_task_says_and_both_values_are_reported(
    tmp_path: Path, policy: str, value: float, n: int
) -> None:
    table = reported(objects(tmp_path, [RIGHT, UNREADABLE, RIGHT], on_invalid=policy))
    entry = table["metrics"]["byfield"]
    assert (entry["value"], entry["n"], entry["invalid"]) == (pytest.approx(value), n, 1)
    assert entry["value_if"] == {"exclude": 1.0, "zero": pytest.approx(2 / 3)}
    assert (table["on_invalid"], table["invalid"]) == (policy, 1)


def test_the_reasons_of_invalid_answers_are_reported_with_a_sample(tmp_path: Path) -> None:
    table = reported(objects(tmp_path, [UNREADABLE, RIGHT, UNREADABLE]))
    (reason,) = table["invalid_reasons"]
    assert (reason["count"], reason["sample"]) == (2, "s0")
    assert reason["reason"]


def test_without_invalid_answers_there_is_one_value(tmp_path: Path) -> None:
    entry = reported(objects(tmp_path, [RIGHT]))["metrics"]["byfield"]
    assert (entry["invalid"], entry["value_if"]) == (0, None)


def test_a_metric_of_readings_has_something_to_say_of_every_answer(tmp_path: Path) -> None:
    table = reported(objects(tmp_path, [RIGHT, UNREADABLE, None], on_failed="exclude"))
    entry = table["metrics"]["readable"]
    assert (entry["value"], entry["n"], entry["invalid"]) == (0.5, 2, 0)


def test_nothing_but_invalid_answers_is_no_score_but_a_count(tmp_path: Path) -> None:
    table = reported(objects(tmp_path, [UNREADABLE, UNREADABLE]))
    assert table["metrics"]["byfield"] is None
    assert table["invalid"] == 2


def test_what_has_no_answer_is_not_invalid(tmp_path: Path) -> None:
    table = reported(objects(tmp_path, [RIGHT, None], on_failed="zero"))
    assert (table["invalid"], table["metrics"]["byfield"]["value"]) == (0, 0.5)


def test_a_left_out_sample_has_no_value_but_its_parts_in_the_scores(tmp_path: Path) -> None:
    import polars

    here = objects(tmp_path, [RIGHT, UNREADABLE])
    reported(here)
    frame = polars.read_parquet(here.scores_file("rt"))
    assert frame["byfield"].to_list() == [1.0, None]
    assert frame["byfield.denominator"].to_list() == [1.0, 1.0]
    assert frame["invalid"].to_list() == [False, True]
    assert frame["reason"].to_list()[0] is None
    assert frame["reason"].to_list()[1]
    assert frame["prediction"].to_list() == [RIGHT, None]


def test_half_a_surrogate_pair_in_an_answer_is_written_as_an_escape(tmp_path: Path) -> None:
    import polars

    here = asked(tmp_path, ["\ud83d", "1"], strange("Mean"))
    assert reported(here)["metrics"]["mean"]["value"] == 0.5
    answers = polars.read_parquet(here.scores_file("rt"))["answer"].to_list()
    assert answers == ["\\ud83d", "1"]


def test_several_references_stay_a_list(tmp_path: Path) -> None:
    import polars

    records = [record(0, references=["0", "zero"]), record(1), record(2, references=["two"])]
    here = asked(tmp_path, ["zero", "1", "2"], strange("Mean"), records)
    assert reported(here)["metrics"]["mean"]["value"] == pytest.approx(2 / 3)
    frame = polars.read_parquet(here.scores_file("rt"))
    assert frame["references"].to_list() == [["0", "zero"], ["1"], ["two"]]


def test_kinds_of_mistakes_are_counted_in_wrong_samples_only(tmp_path: Path) -> None:
    answers = ["1204", "124", "1 204", "9", None, "1264"]
    records = [record(n, references=["1204"]) for n in range(len(answers))]
    metrics = strange("Digits")
    scores = evaluate(asked(tmp_path, answers, metrics, records)).run_tasks["rt"]
    # To the metric, which reads digits alone, "1 204" is right: it has no mistake.
    assert scores.wrong == 4
    assert scores.mistakes == {"digit dropped": 1, "digit changed": 1}
    assert scores.unnamed == 1
