"""pass@k and pass^k over the repeats of a run task."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.statistics import pass_all, pass_at
from tests.unit.small import (
    record,
    resolved,
    response,
    run_task,
    submitted,
    write_attempt,
    write_dataset,
)


@pytest.mark.parametrize("n", range(1, 7))
def test_both_estimates_are_the_shares_of_all_choices_of_k_attempts(n: int) -> None:
    for c in range(n + 1):
        tries = [place < c for place in range(n)]
        for k in range(1, n + 1):
            choices = [*combinations(tries, k)]
            assert pass_at(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))
            assert pass_all(n, c, k) == pytest.approx(sum(map(all, choices)) / len(choices))


def test_hand_computed_values() -> None:
    assert pass_at(5, 2, 2) == pytest.approx(1 - 3 / 10)
    assert pass_all(4, 3, 2) == pytest.approx(3 / 6)
    for wrong in ((2, 1, 3), (2, 3, 1), (2, 1, 0)):
        with pytest.raises(ValueError, match="has no value"):
            pass_at(*wrong)


RIGHT = ([1, 1, 1], [1, 0, 1], [0, 0, 0], [1, None, 0])
"""For each sample, whether repeats 1, 2, 3 are right; None: no answer."""


def test_metrics_json_joins_the_repeats_by_sample(tmp_path: Path) -> None:
    lines = [record(n, document=f"doc{n // 2}") for n in range(4)]
    data = {"source": str(write_dataset(tmp_path / "data", lines))}
    names = ["rt-r1", "rt-r2", "rt-r3", "other"]
    metrics = ("exact_match", "cer", "answer_tokens")
    tasks = [run_task(name, dataset=data, metrics=metrics, on_failed="exclude") for name in names]
    here = submitted(tmp_path, resolved(*tasks, shard_size=4), 4)
    for place, name in enumerate(names):
        answers = [
            None if right[place % 3] is None else str(n) if right[place % 3] else "x"
            for n, right in enumerate(RIGHT)
        ]
        some = [response(f"s{n}", answer) for n, answer in enumerate(answers)]
        write_attempt(here, 0, 1, some, run_task=name)
    evaluate(here)
    found = metrics_of(here).repeats
    assert [*found] == ["rt"] and found["rt"].run_tasks == ("rt-r1", "rt-r2", "rt-r3")
    assert [*found["rt"].metrics] == ["exact_match"], "only values of 0 and 1"
    one, two, three = found["rt"].metrics["exact_match"]
    # Attempts and successes: (3, 3), (3, 2), (3, 0), (2, 1).
    assert (one.k, one.n, one.clusters) == (1, 4, 2)
    assert one.pass_at.value == one.pass_all.value == pytest.approx((1 + 2 / 3 + 0 + 1 / 2) / 4)
    assert two.pass_at.value == pytest.approx((1 + 1 + 0 + 1) / 4)
    assert two.pass_all.value == pytest.approx((1 + 1 / 3 + 0 + 0) / 4)
    assert (three.n, three.clusters) == (3, 2), "the fourth sample has two attempts"
    assert three.pass_at.value == pytest.approx(2 / 3)
    assert three.pass_all.value == pytest.approx(1 / 3)
    assert three.pass_all.low is not None and three.pass_all.low < 1 / 3 < (
        three.pass_all.high or 0
    )


def test_without_repeats_the_file_is_as_before(tmp_path: Path) -> None:
    data = {"source": str(write_dataset(tmp_path / "data", [record(0)]))}
    here = submitted(tmp_path, resolved(run_task("rt-r1", dataset=data)), 1)
    write_attempt(here, 0, 1, [response("s0", "0")], run_task="rt-r1")
    assert "repeats" not in evaluate(here).to_json()
