"""`hpcbench metrics`: what there is, what it means, and a score without an experiment."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import Any

import pytest

import hpcbench.metrics
from hpcbench.cli.main import main
from hpcbench.metrics import METRICS, corpus_score, metric
from tests.conftest import ROOT
from tests.unit.command import Cli


def reported(cli: Cli, *words: str, code: int = 0) -> Any:
    return cli.json("metrics", *words, "--json", code=code)


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return str(path)


def test_all_metrics_are_listed_with_what_they_are(cli: Cli) -> None:
    rows = {row["name"]: row for row in reported(cli, "list")}
    assert rows.keys() >= METRICS.keys()
    for name in METRICS:
        assert rows[name]["text"] and rows[name]["accepts"], name


@pytest.mark.long
@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_defined_with_every_option_and_the_code_of_each_dialect(
    cli: Cli, name: str
) -> None:
    shown = reported(cli, "show", name)
    text = cli("metrics", "show", name)
    assert shown["signature"] == metric(name).signature
    assert shown["signature"] in text
    for option in shown["options"]:
        assert option["text"], option["name"]
    assert shown["follows"].keys() == shown["dialects"].keys()
    for code in shown["follows"].values():
        assert re.fullmatch(r"\d{4}-\d\d(-\d\d)?", code["date"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", code["computed"])
        said = f"{code['kit']}, {code['release']} of {code['date']} ({code['place']})"
        for part in (said, code["computed"], *code["files"]):
            assert part in text


def test_a_file_is_scored_as_the_function_scores_it(cli: Cli, tmp_path: Path) -> None:
    rows = [
        {"prediction": "Масква", "references": ["Москва"], "document": "a"},
        {"prediction": "Рига", "reference": "Рига", "document": "a"},
        {"prediction": "Minsk", "references": ["Минск", "Minsk"], "document": "b"},
    ]
    found = reported(cli, "score", "cer", write(tmp_path / "rows.jsonl", rows))
    assert found["value"] == corpus_score(
        "cer", [row["prediction"] for row in rows], [["Москва"], ["Рига"], ["Минск", "Minsk"]]
    )
    assert (found["n"], found["documents"], found["faults"]) == (3, 2, [])
    assert found["low"] <= found["value"] <= found["high"]


def test_an_option_and_a_dialect_change_value_and_signature(cli: Cli, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [{"prediction": "xx        ", "reference": "yy"}] * 2)
    plain = reported(cli, "score", "anls", path)
    official = reported(cli, "score", "anls", path, "--option", "compat=docvqa-official")
    assert (plain["value"], official["value"]) == (0.0, 0.8)
    assert plain["signature"] != official["signature"]


def test_a_csv_of_v01s_form_and_objects_in_text_are_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        '\ufeffprediction;reference\n"{""inn"": ""77""}";"{""inn"": ""77"", ""kpp"": ""01""}"\n'
    )
    found = reported(cli, "score", "kie_f1_micro", str(tmp_path / "rows.csv"))
    assert found["value"] == pytest.approx(2 / 3)


def test_a_row_the_metric_cannot_score_is_reported_and_costs_no_other(
    cli: Cli, tmp_path: Path
) -> None:
    rows = [{"prediction": "a", "reference": "a"}, {"prediction": "a", "reference": {"b": 1}}]
    found = reported(cli, "score", "exact_match", write(tmp_path / "rows.jsonl", rows))
    assert (found["value"], found["n"]) == (1.0, 1)
    assert found["faults"][0]["row"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "anlz"], "did you mean 'anls'"),
        (["score", "anls", "FILE", "--option", "tau=2"], "tau is 2"),
        (["score", "anls", "FILE", "--option", "tua=0.2"], "did you mean 'tau'"),
        (["score", "anls", "FILE", "--option", "tau"], "is not of the form NAME=VALUE"),
        (["score", "anls", "nowhere.jsonl"], "no such file"),
        (["score", "anls", "LACKING"], "needs `prediction`"),
        (["score", "anls", "TORN"], "not JSON"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(
    cli: Cli, tmp_path: Path, words: list[str], said: str
) -> None:
    files = {
        "FILE": write(tmp_path / "good.jsonl", [{"prediction": "a", "reference": "a"}]),
        "LACKING": write(tmp_path / "lacking.jsonl", [{"answer": "a"}]),
        "TORN": str(tmp_path / "torn.jsonl"),
    }
    Path(files["TORN"]).write_text('{"prediction": "a", "refer')
    assert said in cli.err("metrics", *(files.get(word, word) for word in words))


def test_what_the_package_and_the_page_show_is_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, tried = doctest.testmod(hpcbench.metrics)
    assert tried >= 5 and not failed
    page = (ROOT / "docs/metrics.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    write(tmp_path / "answers.jsonl", [{"prediction": "a", "reference": "a"}])
    monkeypatch.chdir(tmp_path)
    (commands,) = re.findall(r"```sh\n(hpcbench metrics .*?)```", page, re.DOTALL)
    for line in commands.splitlines():
        assert main(line.split()[1:]) == 0, line
    named = set(re.findall(r"`(\w+)`", page[page.index("## Which") : page.index("## Why")]))
    assert set(METRICS) <= named, "every metric stands on the page"
