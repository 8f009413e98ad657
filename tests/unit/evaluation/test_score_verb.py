"""`hpcbench score`: tables of what is there, and scores by other metrics without asking a model again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.experiment.layout import Experiment
from tests.unit.command import Cli
from tests.unit.evaluation.scene import asked, reported, strange
from tests.unit.small import record, write_dataset

ANSWERS: list[str | None] = ["0", "1x", "two", "3"]


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """An evaluated experiment with two types of documents, and languages that its plan does not group by."""
    records = [
        record(
            n, metadata={"doc_type": "ab"[n % 2], "language": "ru" if n else "en", "size": n + 1}
        )
        for n in range(4)
    ]
    one = asked(tmp_path, ANSWERS, strange("Mean"), records, dataset={"group_by": ("doc_type",)})
    reported(one)
    return one


def run(cli: Cli, *arguments: str, code: int = 0) -> Any:
    """Output of `hpcbench score … --json`."""
    out = cli.both("score", *arguments, "--json", code=code)
    return json.loads(out.out) if out.out else out.err


def named(found: Any, key: str) -> dict[str, Any]:
    return {row["by"].get(key, row["metric"]): row["value"] for row in found["rows"]}


def files(here: Experiment) -> dict[str, bytes]:
    return {
        str(path.relative_to(here.path)): path.read_bytes()
        for path in here.path.rglob("*")
        if path.is_file()
    }


def test_scores_that_are_there_are_shown_by_any_group(here: Experiment, cli: Cli) -> None:
    before = files(here)
    assert named(run(cli, here.id, "--by", "doc_type"), "doc_type") == {"a": 0.5, "b": 0.5}
    assert files(here) == before, "nothing was written"
    found = run(cli, here.id, "--by", "language")
    assert named(found, "language") == {"en": 1.0, "ru": pytest.approx(1 / 3)}
    assert found["run_tasks"]["rt"] == {
        "scored": [], "kept": ["mean"], "written": True, "failed": [],
    }  # fmt: skip


def test_another_metric_is_printed_and_the_experiment_stays_as_it_is(
    here: Experiment, cli: Cli
) -> None:
    before = files(here)
    found = run(cli, here.id, "--metrics", "mean,anls", "--metric-option", "anls.tau=0")
    assert found["run_tasks"]["rt"]["scored"] == ["anls"]
    assert found["run_tasks"]["rt"]["kept"] == ["mean"]
    assert named(found, "metric")["anls"] == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert "tau:0|" in found["rows"][1]["signature"]
    assert files(here) == before


def test_what_named_metrics_leave_out_is_said(here: Experiment, cli: Cli) -> None:
    (text,) = here.resolved.run_tasks
    objects = [
        text.model_copy(
            update={
                "task": text.task.model_copy(update={"name": name}),
                "ml_task": text.ml_task.model_copy(update={"output": "object"}),
            }
        )
        for name in ("kie-easy", "kie-hard")
    ]
    plan = here.resolved.model_copy(update={"run_tasks": (text, *objects)})
    here.resolved_file.write_text(plan.model_dump_json())
    words = (here.id, "--metrics", "anls", "--dry-run")
    reported = run(cli, *words)
    assert [(one["run_task"], one["metric"]) for one in reported["left_out"]] == [
        ("rt", "mean"), ("kie-easy", "anls"), ("kie-easy", "mean"), ("kie-hard", "anls"),
        ("kie-hard", "mean"),
    ]  # fmt: skip
    assert list(reported["run_tasks"]) == ["rt"]
    said = cli.err("score", *words, code=0)
    assert said.splitlines() == [
        "left out: anls of kie-easy, kie-hard: the metric scores text, label; the answers are object",
        "left out: mean: --metrics does not name it",
    ]


def test_a_table_says_below_it_what_is_left_out(here: Experiment, cli: Cli) -> None:
    said = cli.err("score", here.id, "--metrics", "anls", code=0)
    assert "left out: mean: --metrics does not name it" in said
    assert run(cli, here.id)["left_out"] == []


def test_what_is_saved_lies_apart_and_is_not_scored_again(here: Experiment, cli: Cli) -> None:
    before = files(here)
    words = ("--metrics", "mean,anls", "--save", "loose")
    run(cli, here.id, *words)
    after = files(here)
    assert {name: after[name] for name in before} == before
    assert {name for name in after if name not in before} == {
        "rescored/loose/metrics.json", "rescored/loose/scored.json",
        "rescored/loose/scores/rt.parquet",
    }  # fmt: skip
    again = run(cli, here.id, *words)
    assert again["run_tasks"]["rt"] == {
        "scored": [], "kept": ["mean", "anls"], "written": False, "failed": [],
    }  # fmt: skip
    assert again["folder"] == str(here.path / "rescored" / "loose")


def test_a_dry_run_says_what_would_be_scored_and_does_nothing(here: Experiment, cli: Cli) -> None:
    before = files(here)
    found = run(cli, here.id, "--metrics", "mean,anls", "--save", "x", "--dry-run")
    assert found["run_tasks"]["rt"]["scored"] == ["anls"]
    assert cli("score", here.id, "--dry-run") == "rt: will score: nothing; unchanged: mean\n"
    assert files(here) == before


def test_lost_scores_and_figures_come_back_from_the_answers(here: Experiment, cli: Cli) -> None:
    good = here.metrics_file.read_bytes()
    for path in (*here.scores_dir.iterdir(), here.metrics_file, here.performance_file):
        path.unlink()
    run(cli, here.id)
    assert here.metrics_file.read_bytes() == good
    assert here.performance_file.exists()


def test_weights_and_macro_averages_are_said(here: Experiment, cli: Cli) -> None:
    found = run(cli, here.id, "--weight", "size")
    assert named(found, "metric")["mean"] == pytest.approx((1 + 4) / 10)
    (row,) = run(cli, here.id, "--by", "language", "--macro")["rows"]
    assert (row["average"], row["value"]) == ("macro", pytest.approx((1 + 1 / 3) / 2))
    printed = cli("score", here.id, "--by", "language", "--macro")
    assert "mean of the values of the groups by language" in printed


def test_a_table_for_people_can_be_side_by_side(here: Experiment, cli: Cli) -> None:
    head, first, *_ = cli(
        "score", here.id, "--by", "doc_type,language", "--pivot", "language"
    ).splitlines()
    assert head.split() == ["metric", "doc_type", "en", "ru"]
    assert first.split()[:3] == ["mean", "a", "1.000"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--by", "languag"], "did you mean 'language'"),
        (["--metrics", "anlx"], "did you mean 'anls'"),
        (["--metrics", "kie_f1_micro"], "does not score answers of the kind text"),
        (["--metrics", "anls", "--metric-option", "anls.toe=1"], "unknown option 'toe'"),
        (["--run-task", "other"], "unknown run task 'other' (there are: rt)"),
        (["--macro"], "--by doc_type"),
        (["--save", "../x"], "is not a valid name"),
        (["--by", "a,b", "--pivot", "c"], "works with two columns of --by"),
        (["--weight", "language"], "cannot be the samples' weight"),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(
    here: Experiment, cli: Cli, words: list[str], said: str
) -> None:
    error = cli.err("score", here.id, *words)
    assert said in error
    assert len(error.splitlines()) == 1


def test_an_option_that_is_none_is_refused(
    here: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["score", here.id, "--metric-option", "tau=1"])
    assert "METRIC.OPTION=VALUE" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_experiment_of_another_user_is_distinguished_from_a_bug(
    here: Experiment, capsys: pytest.CaptureFixture[str]
) -> None:
    here.scores_dir.chmod(0o500)
    try:
        assert main(["score", here.id, "--anew"]) == 3
    finally:
        here.scores_dir.chmod(0o700)
    assert "belongs to another user" in capsys.readouterr().err


# --- a file of answers --------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    records = [record(n, metadata={"doc_class": "паспорт" if n else "счёт"}) for n in range(4)]
    return write_dataset(tmp_path / "data", records)


def test_a_file_of_answers_is_scored_by_the_same_tables(
    data: Path, tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "answers.csv"
    path.write_text("id;model_answer\ns0;0\ns1;1x\ns2;2\n", encoding="utf-8-sig")
    words = ("--dataset", str(data), "--annotations", "a.jsonl", "--ml-task", "vqa")
    found = run(cli, str(path), *words, "--metrics", "exact_match", "--by", "doc_class")
    assert named(found, "doc_class") == {"паспорт": pytest.approx(1 / 3), "счёт": 1.0}
    assert [row["coverage"] for row in found["rows"]] == [pytest.approx(2 / 3), 1.0]
    assert "--dataset DATASET --ml-task vqa" in cli.err("score", path)


def test_a_metric_whose_package_is_not_here_is_refused_before_it_scores(
    here: Experiment, data: Path, tmp_path: Path, cli: Cli
) -> None:
    said = "metric 'grits' cannot score here: grits-metric 0.7.0 is not installed here; `image:` of the"
    before = files(here)
    assert said in run(cli, here.id, "--metrics", "grits", code=2)["problems"][0]["message"]
    assert files(here) == before, "nothing was written"
    path = tmp_path / "answers.csv"
    path.write_text("id;model_answer\ns0;0\n")
    words = ("--dataset", str(data), "--annotations", "a.jsonl", "--ml-task", "ocr")
    found = run(cli, str(path), *words, "--metrics", "grits", code=2)
    assert said in found["problems"][0]["message"]
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prediction": "a", "references": ["<table></table>"]}\n')
    assert said in cli.err("metrics", "score", "grits", path)
