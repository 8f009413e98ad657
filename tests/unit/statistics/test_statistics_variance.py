"""Where spread comes from: likeness within documents."""

from __future__ import annotations

import numpy
import pytest

from hpcbench.statistics import intraclass_correlation

SHROUT_FLEISS = [
    [9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7],
]  # fmt: skip
"""Six subjects, four ratings each: table 2 of Shrout & Fleiss 1979; ICC(1,1) 0.17."""


@pytest.mark.parametrize("unit", [1, 1e-9, 1e9])
def test_the_published_table_in_any_unit(unit: float) -> None:
    ratings = [unit * one for row in SHROUT_FLEISS for one in row]
    subjects = [number for number in range(6) for _ in range(4)]
    assert intraclass_correlation(ratings, subjects) == pytest.approx(0.17, abs=0.005)


def test_likeness_within_documents_of_unequal_size() -> None:
    chance = numpy.random.default_rng(3)
    documents = numpy.repeat(numpy.arange(3000), chance.integers(1, 9, 3000))
    values = chance.normal(0, 1, 3000)[documents] + chance.normal(0, 2, len(documents))
    assert intraclass_correlation(values, documents) == pytest.approx(0.2, abs=0.02)
    assert intraclass_correlation([0, 1, 0, 1], [1, 1, 2, 2]) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("values", "documents"), [([1, 2], [1, 1]), ([1, 2], [1, 2]), ([1, 1, 1], [1, 1, 2])]
)
def test_unknown_likeness(values: list[float], documents: list[int]) -> None:
    assert intraclass_correlation(values, documents) is None
