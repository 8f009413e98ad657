"""A file of an experiment is damaged: one line names the file, and lists go on."""

from __future__ import annotations

import json
from pathlib import Path

import polars
import pytest

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.scores import KEYS
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt

CONTENTS = {
    "empty": "",
    "torn": '{"id": "x", "work"',
    "list": "[1, 2]",
    "text": '"half"',
    "other": '{"work": {"groups": 1}, "run_tasks": 7}',
}
VERBS = ("status", "report", "score", "rerun", "resume", "usage")


def evaluated(folder: Path) -> Experiment:
    """An experiment with scores."""
    here = experiment(folder, [record(0)])
    write_attempt(here, 0, 1, [response("s0", "0")])
    evaluate(here)
    return here


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("file", ["manifest.json", "resolved.json"])
def test_one_line_names_the_damaged_file(tmp_path: Path, cli: Cli, file: str, content: str) -> None:
    whole, here = evaluated(tmp_path / "whole"), evaluated(tmp_path)
    (here.path / file).write_text(CONTENTS[content])
    damaged = f"{here.path / file} is damaged: "
    for verb, before in (*((verb, ()) for verb in VERBS), ("compare", (whole.path,))):
        # A verb that does not need the damaged part goes on: neither of these two reads groups.
        if verb in ("rerun", "compare") and (file, content) == ("manifest.json", "other"):
            continue
        said = cli.err(verb, *before, here.path, code=3)
        assert said.count("\n") == 1 and damaged in said, (verb, said)
    assert here.id in cli("list")


@pytest.mark.parametrize(
    "content",
    ["[]", "{}", '{"rt": {}}', '{"rt": [[0]]}', '{"rt": [[-1, 1]]}', '{"rt": [[0, "x"]]}'],
)
def test_one_line_names_the_damaged_file_of_chosen_samples(
    tmp_path: Path, cli: Cli, content: str
) -> None:
    here = evaluated(tmp_path)
    here.chosen_file.write_text(content)
    said = cli.err("score", here.path, "--anew", code=3)
    assert said.count("\n") == 1 and f"{here.chosen_file} is damaged: " in said


@pytest.mark.parametrize(
    "content", ["{}", '{"packages": 1}', '{"rt": "x"}', '{"rt": {"metrics": []}}']
)
def test_one_line_names_the_damaged_record_of_stored_scores(
    tmp_path: Path, cli: Cli, content: str
) -> None:
    here = evaluated(tmp_path)
    cli("score", here.path, "--metrics", "anls", "--save", "loose")
    record = here.path / "rescored/loose/scored.json"
    whole = json.loads(record.read_text())
    damaged = json.loads(content)
    record.write_text(json.dumps({**whole, "run_tasks": damaged} if "rt" in damaged else damaged))
    said = cli.err("report", f"{here.path}/rescored/loose", code=3)
    assert said.count("\n") == 1 and f"{record} is damaged: " in said
    assert "--save loose" in said


def test_scores_of_a_run_task_that_the_plan_lacks_are_refused(tmp_path: Path, cli: Cli) -> None:
    here = evaluated(tmp_path)
    metrics = json.loads(here.metrics_file.read_text())
    metrics["run_tasks"]["other"] = metrics["run_tasks"]["rt"]
    here.metrics_file.write_text(json.dumps(metrics))
    said = cli.err("report", here.path, code=3)
    assert "has scores of other, which the plan lacks" in said


@pytest.mark.parametrize("file", ["shards/rt/folded.jsonl", "submission.jsonl"])
@pytest.mark.parametrize("verb", ["status", "events"])
def test_a_folder_in_place_of_a_file_is_named(
    tmp_path: Path, cli: Cli, file: str, verb: str
) -> None:
    here = evaluated(tmp_path)
    (here.path / file).mkdir()
    assert str(here.path / file) in cli.err(verb, here.id, code=3)


@pytest.mark.parametrize("damage", ["torn", "text", "column"])
def test_damaged_scores_are_named(tmp_path: Path, cli: Cli, damage: str) -> None:
    here = evaluated(tmp_path)
    file = here.scores_file("rt")
    if damage == "torn":
        file.write_bytes(file.read_bytes()[:-5])
    else:
        frame = polars.read_parquet(file)
        error = polars.lit(1).alias("error")
        (frame.with_columns(error) if damage == "text" else frame.drop("document")).write_parquet(
            file
        )
    said = cli.err("power", here.path, code=3)
    assert said.count("\n") == 1 and f"{file} is damaged: " in said


@pytest.mark.parametrize("content", ["", "{", "[]", '{"round": "x"}', '{"round": Infinity}'])
def test_a_damaged_outcome_counts_as_none_in_every_list_of_events(
    tmp_path: Path, cli: Cli, content: str
) -> None:
    here = evaluated(tmp_path)
    here.outcome_file.write_text(content)
    assert "claimed" in cli("events", here.path)
    assert '"ended"' not in cli("events", here.path, "--json")


@pytest.mark.parametrize("file", ["resolved.json", "submission.jsonl"])
def test_verbs_about_all_experiments_leave_a_damaged_one_alone_and_name_it(
    tmp_path: Path, cli: Cli, file: str
) -> None:
    here = evaluated(tmp_path)
    (here.path / file).write_text('{"event": "round", "groups": 7}\n')
    cleared = cli.json("gc", "--dry-run", "--json")["experiments"]
    assert [one["done"] for one in cleared] == ["left alone"]
    assert f"{here.path / file} is damaged: " in cleared[0]["reason"]
    assert (
        f"{here.id} is left out: {here.path / file} is damaged: " in cli.both("usage", "--all").err
    )


def test_gc_deletes_no_source_of_answers_whose_user_is_not_known(tmp_path: Path, cli: Cli) -> None:
    here = evaluated(tmp_path)
    here.reused_file.write_text("{")
    said = cli.err("gc", "--older", "0", "--yes", code=3)
    assert said.count("\n") == 1 and f"{here.reused_file} is damaged: " in said


def test_scores_without_a_column_of_a_metric_are_named(tmp_path: Path, cli: Cli) -> None:
    here = evaluated(tmp_path)
    file = here.scores_file("rt")
    scores = polars.read_parquet(file)
    keys = {KEYS: polars.read_parquet_metadata(file)[KEYS]}
    scores.drop("exact_match.numerator").write_parquet(file, metadata=keys)
    said = cli.err("score", here.path, "--by", "document", code=3)
    assert said.count("\n") == 1 and f"{file} is damaged: " in said
