"""Published scores beside those of an experiment: what is compared, and what counts as noise."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcbench.experiment.view.metrics_json import MetricValue
from hpcbench.reporting.gather import gather
from hpcbench.reporting.published import Z, noise_of
from hpcbench.reporting.report_tables import PublishedScore
from hpcbench.reporting.writing import report
from hpcbench.schema.dataset import Published
from tests.unit.reporting.many import answered, right
from tests.unit.small import record, write_dataset

SOURCE = {"model": "org/one", "metric": "exact_match", "source": "a paper, table 1"}


def beside(folder: Path, share: float, **published: Any) -> PublishedScore:
    (found,) = gather(run(folder, share, **published))["published"]
    return found


def run(folder: Path, share: float, **published: Any) -> Any:
    count = 100
    data = write_dataset(folder / "data", [record(number) for number in range(count)])
    dataset = {"source": str(data), "published": [{**SOURCE, **published}]}
    return answered(folder, {"one": right(count, share)}, tasks={"one": {"dataset": dataset}})


def test_a_score_far_from_the_published_one_is_more_than_noise(tmp_path: Path) -> None:
    found = beside(tmp_path, 0.5, value=90.0, samples=2000)
    assert found["verdict"] == "more than noise"
    assert found["value"] == pytest.approx(50)
    assert found["difference"] == pytest.approx(-40)
    assert found["noise"] is not None
    assert found["low"] is not None
    assert found["low"] < 50 < 90


def test_a_score_near_the_published_one_is_within_noise(tmp_path: Path) -> None:
    assert beside(tmp_path, 0.5, value=0.55, of=1, samples=100)["verdict"] == "within noise"


def test_without_the_number_of_published_samples_nothing_is_decided(tmp_path: Path) -> None:
    found = beside(tmp_path, 0.5, value=90.0)
    assert (found["verdict"], found["noise"]) == ("undecided", None)
    assert "of how many samples" in found["why"]


def test_a_score_of_something_else_is_not_beside_it(tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [
        {"model": "org/two"},
        {"metric": "anls"},
        {"split": "test"},
        {"metric": None, "program": "a judge"},
    ]
    data = write_dataset(tmp_path / "data", [record(number) for number in range(4)])
    published = [{**SOURCE, "value": 90.0, **one} for one in [{}, *others]]
    tasks = {"one": {"dataset": {"source": str(data), "published": published}}}
    here = answered(tmp_path, {"one": right(4, 0.5)}, tasks=tasks)
    assert [one["source"] for one in gather(here)["published"]] == [SOURCE["source"]]


@pytest.mark.long
def test_the_report_shows_the_conditions_of_both(tmp_path: Path) -> None:
    here = run(
        tmp_path, 0.5, value=90.0, samples=2000, conditions={"generation": "beam search, 4 beams"}
    )
    report(here)
    text = (here.report_dir / "report.md").read_text(encoding="utf-8")
    section = text[text.index("## Beside published scores") :].partition("\n## ")[0]
    assert "| one | exact_match ↑ × 100 | 90 | 50.00 [" in section
    assert "more than noise" in section
    assert "| generation | beam search, 4 beams | temperature 0, at most 1024 tokens |" in section
    assert "| images | not published | as the dataset has them |" in section
    assert "Source: a paper, table 1." in section


def test_two_runs_of_one_truth_seldom_differ_by_more_than_noise() -> None:
    chance = np.random.default_rng(7)
    runs, alarms = 1000, 0
    for ours, theirs in zip(
        chance.binomial(300, 0.7, runs), chance.binomial(1000, 0.7, runs), strict=True
    ):
        share = ours / 300
        half = Z * math.sqrt(share * (1 - share) / 300)
        own = MetricValue(value=share, low=share - half, high=share + half, n=300)
        one = Published.model_validate({**SOURCE, "value": theirs / 10, "samples": 1000})
        noise, why = noise_of(one, own)
        assert noise is not None, why
        alarms += abs(share * 100 - one.value) > noise
    assert alarms / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_a_published_score_names_one_way_to_make_it() -> None:
    for ways in ({"metric": "anls", "program": "a judge"}, {"metric": None}):
        with pytest.raises(ValueError, match="metric"):
            Published.model_validate({**SOURCE, "value": 1, **ways})
