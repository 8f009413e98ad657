"""Metrics that a publisher's program computes: the cost of a crash, the release, refusals.

The program here is a fake of ours, a few lines of Python. The real ones run in campaigns:
`tests/packages/test_scorers_venv.py` and `tests/apptainer/test_scorers.py`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hpcbench.metrics.base import Parts, over_one
from hpcbench.metrics.programs import (
    FunctionMetric,
    NotInstalled,
    ProgramFailed,
    ProgramMetric,
    apart,
)
from hpcbench.metrics.publishers import Cdm, Grits, OlmOcrBench, ParseBench, tables_of
from hpcbench.schema.records import Reading, Sample
from hpcbench.scorer.isolate import Guard
from hpcbench.scorer.one import Scorer

PYTEST = importlib.metadata.version("pytest")

PROGRAM = """
import json, sys, time
said = json.load(open("in.json"))
open(sys.argv[1], "a").write(f"{len(said)} ")
for text, right in said:
    if text == "crash":
        raise ValueError("cannot take this one")
    if text == "hang":
        time.sleep(60)
json.dump([float(text == right) for text, right in said], open("out.json", "w"))
"""


@dataclass(frozen=True)
class Fake(ProgramMetric):
    """Equality, by a program that crashes on `crash`; it stands for a publisher's."""

    release: str = PYTEST
    runs: str = ""
    """File that gets the number of samples of each run."""
    name: ClassVar[str] = "fake"
    distribution: ClassVar[str] = "pytest"
    most_at_once: ClassVar[int] = 64

    def write(self, folder: Path, texts: Sequence[str], references: Sequence[Any]) -> list[str]:
        (folder / "in.json").write_text(json.dumps(list(zip(texts, references, strict=True))))
        return [sys.executable, "-c", PROGRAM, self.runs]

    def read(self, folder: Path, printed: str, references: Sequence[Any]) -> list[Parts]:
        return [over_one(value) for value in json.loads((folder / "out.json").read_text())]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_a_prediction_that_crashes_the_program_costs_no_other_its_score(runs: Path) -> None:
    texts = ["a", "b", "crash", "a", "a"]
    scorer = Scorer(Fake(runs=str(runs)))
    asked = [(Sample(str(n), (), {}, ("a",), "d"), Reading(text)) for n, text in enumerate(texts)]
    found = scorer.score_all(asked, seconds=10)
    assert [one.value if one else None for one, _ in found] == [1.0, 0.0, None, 1.0, 1.0]
    (fault,) = (fault for _, fault in found if fault)
    assert fault == "ProgramFailed: pytest ended with exit code 1: ValueError: cannot take this one"
    assert runs.read_text().split() == ["5", "2", "3", "1", "2"]


@pytest.mark.long
def test_a_program_that_fails_on_all_is_not_run_for_each(runs: Path) -> None:
    found = Fake(runs=str(runs)).score_all([("crash", ["a"])] * 64, seconds=10)
    assert all(isinstance(one, ProgramFailed) for one in found) and len(found) == 64
    assert str(found[-1]).startswith(
        "not run: pytest failed on each of the first 8 samples: pytest ended"
    )
    assert len(runs.read_text().split()) < 24


@pytest.mark.long
def test_a_program_that_hangs_on_one_prediction_is_ended(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.metrics.programs.START", 2.0)
    monkeypatch.setattr("hpcbench.metrics.programs.PACE", 0.0)
    found = Fake(runs=str(runs)).score_all([("a", ["a"]), ("hang", ["a"])], seconds=0.1)
    assert found[0] == Parts(1.0, 1)
    assert str(found[1]) == "pytest did not end in 2.1 s"


def test_one_sample_alone_is_a_run_and_raises_why_it_has_no_score(runs: Path) -> None:
    metric = Fake(runs=str(runs))
    score = Scorer(metric).score(Sample("1", (), {}, ("a",), "d"), Reading("a"))
    assert (score.parts, score.value) == ((1.0, 1), 1.0)
    with pytest.raises(ProgramFailed, match="cannot take this one"):
        metric.score("crash", ["a"])


@pytest.mark.parametrize("metric", [Grits(), OlmOcrBench(), ParseBench(), Cdm(), Fake("0.0.1")])
def test_a_release_that_is_not_here_is_one_line_with_the_remedy(metric: Any) -> None:
    with pytest.raises(NotInstalled) as raised:
        metric.check_here()
    wanted = f"{metric.distribution} {metric.release}"
    if metric.name == "fake":
        assert (
            str(raised.value) == f"the metric is of {wanted}, and pytest {PYTEST} is installed here"
        )
    else:
        said = (
            "is not installed here; `image:` of the metric's definition names an image that has it"
        )
        assert str(raised.value) == f"{wanted} {said}"
    assert f"|{metric.distribution}:{metric.release}|v1" in metric.signature


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("the text of a page", "the reference is not what the iterator 'page_tests' makes"),
        ("[1]", "the reference is not what the iterator 'page_tests' makes"),
        ('{"../a.jsonl": [{}]}', "tests of a file named '../a.jsonl'; it has to be NAME.jsonl"),
    ],
)
def test_a_reference_of_another_form_is_refused(tmp_path: Path, reference: str, said: str) -> None:
    for metric in (OlmOcrBench(), ParseBench()):
        folder = tmp_path / metric.name
        folder.mkdir()
        with pytest.raises(ValueError, match=r"\w") as raised:
            metric.write(folder, ["x"], [reference])
        assert said in str(raised.value)


def test_what_functions_return_or_raise_apart_comes_back() -> None:
    found, failed = apart([lambda: [os.getppid(), 0.1 + 0.2], lambda: {}["a"]], None, 1)
    assert found == [os.getpid(), 0.1 + 0.2]
    assert isinstance(failed, ProgramFailed) and str(failed) == "KeyError: 'a'"


def test_a_function_that_ends_its_process_is_named_by_how_it_ended() -> None:
    ends = [lambda: os.kill(os.getpid(), 9), lambda: os._exit(3), lambda: sys.exit(2)]
    assert [str(one) for one in apart(ends, None, 1)] == [
        "its process ended by signal 9",
        "its process ended with exit code 3",
        "SystemExit: 2",
    ]


def test_a_function_that_hangs_ends_with_the_programs_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def hang() -> None:
        program = f"echo $$ > {mark}.part; mv {mark}.part {mark}; exec sleep 600"
        subprocess.run(["sh", "-c", program], check=True)

    guard = Guard(1.0)
    while not mark.exists():  # on a busy machine it may not have started in time
        with guard:
            assert guard.call(apart, [hang], None, 1) == (None, guard.over)
        guard = Guard(2 * guard.seconds)
    gone(mark)


def gone(mark: Path) -> None:
    """Wait until the program that wrote its number into a file is gone."""
    started = Path("/proc", mark.read_text().strip(), "cmdline")
    deadline = time.monotonic() + 60
    while started.exists() and b"sleep" in started.read_bytes():
        assert time.monotonic() < deadline, "what it started still runs"
        time.sleep(0.05)


def test_functions_run_side_by_side_and_come_back_in_their_order(tmp_path: Path) -> None:
    def both(own: str, other: str) -> str:
        """Its name, once the other one runs, too."""
        (tmp_path / own).touch()
        while not (tmp_path / other).exists():
            time.sleep(0.01)
        return own

    calls = [partial(both, "a", "b"), partial(both, "b", "a"), partial(os._exit, 3)]
    *found, failed = apart(calls, 300.0, 2)
    assert found == ["a", "b"]
    assert str(failed) == "its process ended with exit code 3"
    assert apart([], 1.0, 2) == []


@pytest.mark.long
def test_of_functions_side_by_side_one_that_hangs_costs_itself_alone(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def hang() -> None:
        subprocess.run(["sh", "-c", f"echo $$ > {mark}; exec sleep 600"], check=True)

    found = apart([hang, lambda: 1, lambda: 2, lambda: "x" * 10**6], 5.0, 2)
    assert str(found[0]) == "took longer than 5 s"
    assert found[1:] == [1, 2, "x" * 10**6]
    if mark.exists():  # on a busy machine it may not have started in time
        gone(mark)


@dataclass(frozen=True)
class Equal(FunctionMetric):
    """Equality, by a function that hangs on `hang` and raises on `raise`."""

    release: str = PYTEST
    name: ClassVar[str] = "equal"
    distribution: ClassVar[str] = "pytest"
    module: ClassVar[str] = "pytest"

    def compute(self, prediction: str, references: Sequence[Any]) -> float:
        if prediction == "raise":
            raise ValueError("cannot take this one")
        if prediction == "hang":
            time.sleep(600)
        return float(prediction == references[0])

    def parts(self, computed: float) -> Parts:
        return over_one(computed)


@pytest.mark.long
def test_each_sample_of_a_publishers_function_has_a_score_or_a_fault_of_its_own() -> None:
    asked = [
        (Sample(str(n), (), {}, ("a",), "d"), Reading(text))
        for n, text in enumerate(["a", "hang", "b", "raise", None])
    ]
    found = Scorer(Equal()).score_all(asked, seconds=5.0)
    assert [one.value if one else None for one, _ in found] == [1.0, None, 0.0, None, 0.0]
    assert [fault for _, fault in found if fault] == [
        "ProgramFailed: took longer than 5 s",
        "ProgramFailed: ValueError: cannot take this one",
    ]
    assert Scorer(Equal()).score(*asked[0]).value == 1.0
    with pytest.raises(ProgramFailed, match="cannot take this one"):
        Equal().score("raise", ["a"])


def test_a_function_whose_package_is_not_here_scores_no_sample() -> None:
    found = Equal("0.0.1").score_all([("a", ["a"])] * 2, seconds=5.0)
    assert [type(one) for one in found] == [NotInstalled, NotInstalled]


SUMMARY = """
  [FAIL] Final Summary with 95% Confidence Intervals: as an answer may say
    (9/9 tests)
Final Summary with 95% Confidence Intervals:
answers              : Average Score: 75.0% ± 0.0% (average of per-JSONL scores)
        a.jsonl                       : 50.0% (1/2 tests)
        baseline                      : 100.0% (1/1 tests)
"""


def test_olmocrs_counts_are_read_from_its_files_and_checked_against_what_it_prints(
    tmp_path: Path,
) -> None:
    reference = json.dumps({"a.jsonl": [{"type": "present"}, {"type": "order"}]})
    metric = OlmOcrBench()
    (tmp_path / "failed.jsonl").write_text('{"id": "0:1"}\n')
    (counts,) = metric.read(tmp_path, SUMMARY, [reference])
    assert counts == {
        "tests:a.jsonl": 2, "passed:a.jsonl": 1, "tests:baseline": 1, "passed:baseline": 1,
    }  # fmt: skip
    assert metric.aggregate([counts]) == 0.75
    (tmp_path / "failed.jsonl").unlink()
    with pytest.raises(ProgramFailed, match="olmocr printed .* its files of failed tests say"):
        metric.read(tmp_path, SUMMARY, [reference])
    broken = "  [ERROR] Error running test 0:1: it broke\n" + SUMMARY.replace(
        "75.0%", "FAILED (errors)"
    )
    with pytest.raises(ProgramFailed, match="^Error running test 0:1: it broke$"):
        metric.read(tmp_path, broken, [reference])


def test_parse_benchs_figures_are_read_by_page_and_a_missing_one_is_said(tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    results = [
        {"test_id": "text/1", "success": True, "metrics": [{"metric_name": "f", "value": 0.25}]},
        {"test_id": "text/0", "success": False, "error": "it\nbroke", "metrics": []},
        {"test_id": "text/2", "success": True, "metrics": [{"metric_name": "g", "value": 1}]},
    ]  # fmt: skip
    report = tmp_path / "output/_evaluation_report.json"
    report.write_text(json.dumps({"per_example_results": results}))
    found = ParseBench(figure="f").read(tmp_path, "", ["{}"] * 4)
    assert found[1] == Parts(0.25, 1)
    assert [str(found[place]) for place in (0, 2, 3)] == [
        "parse-bench: it broke",
        "parse-bench gives no 'f' for this page, but g",
        "parse-bench has no result of this page",
    ]


def test_means_over_files_and_sums_of_cells_combine_numbers_and_resamples_alike() -> None:
    import numpy

    sums = {"tests:a": 4, "passed:a": 1, "tests:b": 0, "passed:b": 0, "tests:c": 2, "passed:c": 2}
    several = {name: numpy.array([value, 0.0]) for name, value in sums.items()}
    assert OlmOcrBench().combine(sums) == OlmOcrBench().combine(several)[0] == 0.625
    cells = {"similar": 3.0, "right": 4.0, "given": 6.0}
    arrays = {name: numpy.array([value, 0.0]) for name, value in cells.items()}
    assert Grits().combine(cells) == Grits().combine(arrays)[0] == 0.6
    assert Grits().combine(arrays)[1] == 1.0, "no table where none belongs"


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("a<table>1</table>b<TABLE x>2</TABLE>", ["<table>1</table>", "<TABLE x>2</TABLE>"]),
        ("<table><td><table>1</table></td></table>", ["<table><td><table>1</table></td></table>"]),
        ("</table>a<table>cut", ["<table>cut"]),
        ("no tables", []),
    ],
)
def test_outer_tables_of_a_page_are_given_to_grits_one_by_one(text: str, tables: list[str]) -> None:
    assert tables_of(text) == tables
