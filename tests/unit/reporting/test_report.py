"""The report says what was measured, in any alphabet, and trusts no answer."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.control import control_request
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from hpcbench.reporting.writing import report
from tests.unit.small import experiment, record, response, write_attempt

VOID = {"meta", "link", "br", "hr", "img", "input", "path", "use", "rect", "circle", "line"}


class Checker(HTMLParser):
    """Counts what is opened and closed, and what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.fetched += [value or "" for name, value in attrs if name == "src"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def written(folder: Path, answers: dict[str, str | None], **task: Any) -> Experiment:
    """An evaluated experiment with a whole manifest."""
    here = experiment(folder, [record(number) for number in range(len(answers))], 50, **task)
    write_attempt(here, 0, 1, [response(name, text) for name, text in answers.items()])
    manifest = read_json(here.manifest_file) | {
        "hpcbench": "0.1.0", "python": "3.11.2", "created": "2026-11-20T14:32:00+0000",
        "host": "login1", "plan_key": "f" * 64, "seed": 0,
        "git": {"plan": None, "hpcbench": {"commit": "a" * 40, "dirty": True}},
        "packages": {"polars": "2.1.0", "numpy": None},
        "environments": {"": {"digest": None}},
        "measured": {"model_hashes": {"m": "sha256:m"}, "dataset_hashes": {"rt": "sha256:d"}},
    }  # fmt: skip
    write_json(here.manifest_file, manifest)
    evaluate(here)
    return here


def test_a_pilot_that_failed_is_the_first_thing_said(tmp_path: Path) -> None:
    here = written(tmp_path, {"s0": None})
    control_request(here, "fail", ["rt"], "its pilot failed, 20 × invalid: 400")
    text = shown(here).read_text()
    (first, *_) = text.partition("## Verdict")[2].strip().splitlines()
    assert "its pilot failed, 20 × invalid: 400." in first


def shown(here: Experiment) -> Path:
    """Have it reported; the Markdown file."""
    report(here)
    assert not (here.report_dir / "failed.txt").exists()
    return here.report_dir / "report.md"


@pytest.mark.long
def test_the_scores_of_the_metrics_file_stand_in_both_reports(tmp_path: Path) -> None:
    here = written(tmp_path, {"s0": "0", "s1": "1", "s2": "9", "s3": None})
    markdown = shown(here)
    entry = read_json(here.metrics_file)["run_tasks"]["rt"]["metrics"]["exact_match"]
    ends = f"[{entry['low']:.3f}, {entry['high']:.3f}]"
    row = f"{entry['value']:.3f} | {ends} | 4 | 4 | 75.0 %"
    assert f"| rt | exact_match ↑ | {row} |" in markdown.read_text()
    html = markdown.with_suffix(".html").read_text()
    assert f'<td class="n">{entry["value"]:.3f}</td>' in html
    assert f"{entry['value']:.3f} {ends} at 75.0 %" in html, "coverage stands in the matrix"
    assert "the engine hung up" in html
    assert "commit aaaaaaaaaaaa and uncommitted changes" in html


@pytest.mark.long
def test_an_answer_is_text_and_never_markup(tmp_path: Path) -> None:
    path = shown(written(tmp_path, {"s0": "<script>alert(1)</script> | ИТОГО\n12", "s1": "1"}))
    checker = Checker()
    checker.feed(path.with_suffix(".html").read_text())
    assert checker.scripts == 0
    assert "&lt;script>alert(1)&lt;/script> \\| ИТОГО 12" in path.read_text()


def test_run_tasks_in_any_alphabet_are_plotted_as_text(tmp_path: Path) -> None:
    here = written(tmp_path, {"s0": "0", "s1": "2"}, metrics=("exact_match", "anls"))
    metrics = read_json(here.metrics_file)
    metrics["run_tasks"]["rt"]["metrics"]["точность"] = metrics["run_tasks"]["rt"]["metrics"].pop(
        "exact_match"
    )
    write_json(here.metrics_file, metrics)
    here.scores_file("rt").unlink()
    assert "точность" in (shown(here).parent / "scores-vqa.svg").read_text()


@pytest.mark.parametrize("policy", ["zero", "exclude"])
def test_an_experiment_without_any_answer_still_has_a_report(tmp_path: Path, policy: str) -> None:
    here = written(tmp_path, {"s0": None, "s1": None}, on_failed=policy)
    text = shown(here).read_text()
    assert "Failed: nothing was scored: 2 of 2 requests failed" in text
    assert "Samples: 2 asked: 0 responded, 2 failed; coverage 0.0 %." in text
    assert ("count as the worst" if policy == "zero" else "are left out") in text


def test_unusable_rows_count_against_coverage_in_the_lead(tmp_path: Path) -> None:
    here = written(tmp_path, {"s0": "0", "s1": "2"})
    metrics = read_json(here.metrics_file)
    metrics["run_tasks"]["rt"]["skipped"] = 2
    write_json(here.metrics_file, metrics)
    assert "Samples: 2 asked: 2 responded; 2 skipped; coverage 50.0 %." in shown(here).read_text()
