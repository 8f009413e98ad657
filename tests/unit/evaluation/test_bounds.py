"""A value outside a metric's bounds is a finding in every place that shows scores, and never a number."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.comparison.compare import compare_many
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.metrics.base import outside
from hpcbench.status.causes import bad_answers
from hpcbench.testing import check
from tests.unit.command import Cli
from tests.unit.evaluation.scene import asked, strange
from tests.unit.evaluation.strange import Counted, Mean
from tests.unit.small import describe

TOO_HIGH = "above 1, the greatest value in the metric's bounds"


def experiment(folder: Path, factor: float) -> Experiment:
    """Four samples, of which the metric scores two as `factor` and two as 0."""
    here = asked(folder, ["0", "1", "x", "y"], strange("Mean", Mean={"factor": factor}))
    evaluate(here)
    return here


def test_a_run_task_with_values_outside_has_no_value_and_says_why(tmp_path: Path, cli: Cli) -> None:
    """The samples inside the bounds alone would be a choice: here they would give 0."""
    here = experiment(tmp_path, 2.5)
    found = metrics_of(here).run_tasks["rt"]
    assert found.metrics == {"mean": None}
    ((metric, count, sample),) = [(one.metric, one.count, one.sample) for one in found.faults]
    assert (metric, count, sample) == ("mean", 2, "s0")
    assert found.faults[0].message.endswith(TOO_HIGH)
    (failure,) = bad_answers(here)
    assert (failure.kind, failure.count) == ("metric", 2)
    reported = cli.both("score", here.id)
    assert "2.5" not in reported.out
    assert (
        f"2 samples without a score by mean: ValueError: the metric gave a value {TOO_HIGH}"
        in reported.err
    )
    describe(here)
    cli("report", here.id, "--format", "markdown")
    assert TOO_HIGH in (here.report_dir / "report.md").read_text()


def test_it_is_not_compared(tmp_path: Path) -> None:
    good, bad = experiment(tmp_path / "a", 1.0), experiment(tmp_path / "b", 1.0)
    _overwrite(bad, 1.5)
    with pytest.raises(Exception, match="'mean' has no value in the candidate") as caught:
        compare_many(good, [bad])
    assert "correct the metric or its bounds" in str(caught.value)


def test_scores_files_of_earlier_versions_are_judged_by_their_values(tmp_path: Path) -> None:
    here = experiment(tmp_path, 1.0)
    _overwrite(here, 1.5)
    found = evaluate(here).run_tasks["rt"]  # nothing is due: the columns stay as they are
    assert found.metrics == {"mean": None}
    ((message, count),) = [(one.message, one.count) for one in found.faults]
    assert (message, count) == ("2 values of samples outside the metric's bounds", 4)


def _overwrite(here: Experiment, value: float) -> None:
    """Two values in the scores file become this one, as an earlier version would have written them."""
    path = here.scores_file("rt")
    metadata = {
        k: v for k, v in polars.read_parquet_metadata(path).items() if k.startswith("hpcbench")
    }
    right = polars.col("mean") == 1.0
    columns = (
        polars.when(right).then(value).otherwise(polars.col(name)).alias(name)
        for name in ("mean", "mean.numerator")
    )
    polars.read_parquet(path).with_columns(*columns).write_parquet(path, metadata=metadata)


def test_a_corpus_metrics_value_outside_is_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Each sample is inside; only what is made of all of them is not."""
    monkeypatch.setattr(
        Counted,
        "combine",
        lambda self, sums: sum(value for name, value in sums.items() if name.startswith("right.")),
    )
    here = asked(tmp_path, ["0", "1", "2", "y"], strange("Counted"))
    found = evaluate(here).run_tasks["rt"]
    assert found.metrics == {"counted": None}
    assert [one.message for one in found.faults] == [f"its value 3 is {TOO_HIGH}"]
    assert f"– counted of run_task rt: its value 3 is {TOO_HIGH}" in cli("score", here.id)


@given(st.floats(-3, 3), st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (0.0, None), (-math.inf, None)]))
def test_bounds_are_inclusive(value: float, bounds: Any) -> None:
    kind = type("Kind", (), {"bounds": bounds})
    low, high = bounds
    inside = low - 1e-9 <= value and (high is None or value <= high + 1e-9)
    assert (outside(kind, value) == "") == inside
    for end in (low, high):
        assert end is None or math.isinf(end) or outside(kind, end) == ""


class Doubled(Mean):
    """A plugin whose author forgot its bounds."""

    __slots__ = ()

    def score(self, prediction: object, references: Any) -> Any:
        part = super().score(prediction, references)
        return type(part)(2 * part.numerator, 1)


def test_the_contract_of_plugins_names_the_value(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="outside|above 1"):
        check("metrics", Doubled, tmp_path)


def test_metrics_score_names_the_rows(tmp_path: Path, cli: Cli) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        '{"prediction": "a", "reference": "a"}\n{"prediction": "b", "reference": "a"}\n'
    )
    name = f"{Doubled.__module__}.Doubled"
    assert f"ValueError: the metric gave 2, {TOO_HIGH}" in cli("metrics", "score", name, rows)
