"""Pairing: the least sum of costs, by trying all, in every shape."""

import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from munkres import Munkres

from hpcbench.metrics.matching import Costs, cheapest_pairs, pairs_as_munkres

Solver = Callable[[Costs], list[tuple[int, int]]]


def least(costs: Costs) -> float:
    rows, columns = len(costs), len(costs[0])
    if rows > columns:
        return least(list(zip(*costs, strict=True)))
    return min(
        sum(costs[row][column] for row, column in enumerate(chosen))
        for chosen in itertools.permutations(range(columns), rows)
    )


def tables() -> Iterator[list[list[float]]]:
    rng = random.Random(1)
    for _ in range(800):
        rows, columns, most = rng.randint(1, 6), rng.randint(1, 6), rng.choice([1, 3, 100])
        yield [[rng.randint(0, most) / 4 for _ in range(columns)] for _ in range(rows)]


@pytest.mark.parametrize("solve", [cheapest_pairs, pairs_as_munkres])
def test_the_sum_is_the_least(solve: Solver) -> None:
    for costs in tables():
        rows, columns = len(costs), len(costs[0])
        pairs = solve(costs)
        assert len(pairs) == min(rows, columns) == len({column for _, column in pairs})
        assert [row for row, _ in pairs] == sorted({row for row, _ in pairs})
        assert sum(costs[row][column] for row, column in pairs) == least(costs)


def test_of_equally_cheap_matchings_it_is_that_of_munkres() -> None:
    rounded = [
        [0.3, 0.1, 0.6, 0.4],
        [0.2, 0.1, 0.6, 0.6],
        [0.6, 0.6, 0.1, 0.4],
        [0.2, 0.1, 0.1, 0.4],
    ]
    for costs in [rounded, *tables()]:
        assert pairs_as_munkres(costs) == sorted(Munkres().compute(costs))


def test_large_whole_numbers_are_exact() -> None:
    huge = 10**40
    assert cheapest_pairs([[huge, huge + 1], [huge, huge + 3]]) == [(0, 1), (1, 0)]


def test_nothing_has_no_pairs() -> None:
    assert cheapest_pairs([]) == cheapest_pairs([[], []]) == []
