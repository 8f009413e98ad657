"""Scores name the version of the parser that read the answers; scores of two versions are not compared.

An experiment of an earlier version of hpcbench opens as ever, and keeps its numbers: its scores files name no
parser, so version 1 has read its answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import polars
import pytest

from hpcbench.cli.main import main
from hpcbench.comparison import history
from hpcbench.comparison.gate import judge
from hpcbench.evaluation.versions import made_by, other_reading
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.scores import KEYS, ScoresFiles
from hpcbench.files.atomic import read_json, write_json
from hpcbench.parsers import Text, reading_of, same_reading
from hpcbench.schema.ml_task import MLTask
from tests.unit.command import Cli
from tests.unit.comparison.judged import ended, policy, wrong

HERE = "tests.unit.evaluation.test_reading_versions"
NOW = f"text|v{Text.version}"


class Own:
    """A parser with a version of its own."""

    api: ClassVar[int] = 1
    version: ClassVar[int] = 3

    def parse(self, text: str) -> str:
        return text


class Nameless:
    """A parser that states no version."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> str:
        return text


def as_before(here: Experiment, **metadata: Any) -> Experiment:
    """Its files as an earlier version of hpcbench wrote them; or with other metadata of the scores."""
    for path in here.scores_dir.glob("*.parquet"):
        keys = json.loads(polars.read_parquet_metadata(path)[KEYS])
        if metadata:
            keys |= metadata
        else:
            del keys["reading"], keys["signatures"]
            keys["samples"] = keys["metrics"]["exact_match"] = "of another version"
        polars.read_parquet(path).write_parquet(path, metadata={KEYS: json.dumps(keys)})
    if not metadata:
        metrics = read_json(here.metrics_file)
        for table in metrics["run_tasks"].values():
            for entry in table["metrics"].values():
                del entry["reading"]
        write_json(here.metrics_file, metrics)
    return Experiment(here.path)


def test_scores_and_metrics_name_parser_and_version(tmp_path: Path) -> None:
    here = ended(tmp_path, "e1")
    made = made_by(here, ScoresFiles(here.scores_dir, "rt"), "rt")
    (entry,) = read_json(here.metrics_file)["run_tasks"]["rt"]["metrics"].values()
    assert made.reading == entry["reading"] == NOW
    assert made.signatures == {"exact_match": entry["signature"]}


def test_scores_of_before_were_read_by_version_1_and_keep_numbers_and_signatures(
    tmp_path: Path, cli: Cli
) -> None:
    one, other = (as_before(ended(tmp_path, name, wrong(1, 2))) for name in ("e1", "e2"))
    reported = one.metrics_file.read_bytes()
    made = made_by(one, ScoresFiles(one.scores_dir, "rt"), "rt")
    assert made.reading == ""
    assert made.signatures["exact_match"].startswith("exact_match|")
    (candidate,) = cli.json("compare", "e1", "e2", "--json")["candidates"]
    assert candidate["compared"][0]["comparison"]["baseline"] == pytest.approx(58 / 60)
    assert judge(one, other, policy()).verdict == "GO"
    assert one.metrics_file.read_bytes() == reported


def test_scores_of_two_versions_are_not_compared_until_the_older_are_made_again(
    tmp_path: Path, cli: Cli
) -> None:
    as_before(ended(tmp_path, "e1", wrong(1, 2)))
    ended(tmp_path, "e2", wrong(1))
    refused = cli.err("compare", "e1", "e2")
    assert (
        f"scores of e1 come from version 1 of parser text, those of e2 from version {Text.version}"
        in refused
    )
    assert "run `hpcbench score e1`" in refused
    assert main(["score", "e1"]) == 0
    assert main(["compare", "e1", "e2"]) == 0


def test_a_gate_does_not_judge_scores_of_two_versions(tmp_path: Path) -> None:
    one, other = as_before(ended(tmp_path, "e1")), ended(tmp_path, "e2")
    for baseline, candidate in ((one, other), (other, one)):
        found = judge(baseline, candidate, policy())
        (check,) = (each for each in found.checks if each.kind == "quality")
        assert (found.verdict, check.verdict) == ("INCONCLUSIVE", "inconclusive")
        assert "come from version" in check.why
        assert "run `hpcbench score e1`" in check.why


def test_the_same_holds_of_versions_of_a_metric(tmp_path: Path, cli: Cli) -> None:
    older = as_before(ended(tmp_path, "e1"), signatures={"exact_match": "exact_match|v0"})
    other = ended(tmp_path, "e2")
    refused = cli.err("compare", "e1", "e2")
    assert "'exact_match' is exact_match|v0 in the baseline" in refused
    assert "run `hpcbench score e1`" in refused
    (check,) = (one for one in judge(older, other, policy()).checks if one.kind == "quality")
    assert check.verdict == "inconclusive"
    assert "the signatures differ: exact_match|v0 in the baseline" in check.why
    assert check.why.endswith("run `hpcbench score e1`")


@pytest.mark.long
def test_a_trend_never_mixes_versions_and_says_how_it_becomes_one(tmp_path: Path, cli: Cli) -> None:
    history.record(as_before(ended(tmp_path, "20260101-0200-x-aaaa")))
    history.record(ended(tmp_path, "20260102-0200-x-aaaa"))
    found = history.trends(tmp_path, "exact_match")
    assert sorted((one.reading, len(one.points)) for one in found) == [("", 1), (NOW, 1)]
    assert len({one.signature for one in found}) == 1
    said = " ".join("".join(cli.both("history", "exact_match")).split())
    assert "scores of 20260101-0200-x-aaaa come from version 1 of parser text" in said
    assert "run `hpcbench score 20260101-0200-x-aaaa`, then `hpcbench history --rebuild`" in said
    assert main(["score", "20260101-0200-x-aaaa"]) == 0
    assert main(["history", "--rebuild"]) == 0
    (one,) = history.trends(tmp_path, "exact_match")
    assert len(one.points) == 2


# --- what a reading is called ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "reading"),
    [
        ({"plugin": "vqa"}, "text|v2"),
        ({"plugin": "ocr"}, "text|v2"),
        ({"plugin": "classification", "output": "label"}, "label|v2"),
        ({"plugin": "kie", "output": "object"}, "json_object|v2"),
        ({"plugin": "vqa", "parser": "json_object"}, "json_object|v2"),
        ({"plugin": "ocr", "parser": "deepseek_ocr"}, "deepseek_ocr|v1.2"),
        ({"plugin": "ocr", "parser": "deepseek_ocr", "reasoning": "keep"}, ""),
        ({"plugin": "ocr", "parser": f"{HERE}.Own"}, f"{HERE}.Own|v3.2"),
        ({"plugin": "ocr", "parser": f"{HERE}.Nameless", "reasoning": "keep"}, ""),
    ],
)
def test_a_reading_is_called_by_its_parser_and_the_versions_that_have_a_say(
    reported: dict[str, Any], reading: str
) -> None:
    assert reading_of(MLTask.model_validate({"name": "t", "metrics": ["m"], **reported})) == reading


def test_readings_of_two_parsers_are_no_two_versions() -> None:
    assert same_reading("text|v2", "json_object|v2")
    assert same_reading("text|v2", "text|v2")
    assert not same_reading("text|v2", "text|v3")
    assert not same_reading("", "text|v2")
    assert other_reading(("text|v3", "text|v2"), ("a", "b")) == (
        "scores of a come from version 3 of parser text, those of b from version 2",
        "run `hpcbench score b`",
    )
    within = other_reading(("", "own|v1.2"), ("a", "a"))
    assert within == (
        "scores of a come from versions 1 and 1.2 of parser own", "run `hpcbench score a`",
    )  # fmt: skip
