"""Long series in few points: no extreme is lost, and the newest value is always there."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hpcbench.portal.downsample import Thinned, extremes
from hpcbench.portal.json_safe import finite

VALUES = st.lists(
    st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=400
)
LIMITS = st.integers(min_value=3, max_value=60)


def thinned(values: list[float], limit: int) -> Thinned:
    series = Thinned(limit)
    for place, value in enumerate(values):
        series.add(float(place), value)
    return series


@given(VALUES, LIMITS)
def test_a_series_keeps_its_extremes_and_its_newest_value_in_few_points(
    values: list[float], limit: int
) -> None:
    times, kept = thinned(values, limit).points()
    assert len(kept) <= limit
    assert (min(kept), max(kept)) == (min(values), max(values))
    assert (times[-1], kept[-1]) == (float(len(values) - 1), values[-1])


@given(VALUES, LIMITS)
def test_what_is_kept_was_there_at_that_time_and_is_in_order(
    values: list[float], limit: int
) -> None:
    times, kept = thinned(values, limit).points()
    assert list(times) == sorted(times)
    assert all(values[int(time)] == value for time, value in zip(times, kept, strict=True))


@given(VALUES)
def test_a_short_series_stays_as_it_is(values: list[float]) -> None:
    series = thinned(values, len(values) + 2)
    assert series.points()[1] == tuple(values)
    assert series.peak == max(values)
    assert thinned(values, 3).peak == max(values)


@given(VALUES, VALUES, LIMITS)
def test_asking_for_what_came_since_gives_nothing_older_and_the_newest(
    before: list[float], after: list[float], limit: int
) -> None:
    series = thinned(before, limit)
    since = series.until
    for place, value in enumerate(after):
        series.add(since + 1 + place, value)
    times, kept = series.points(since)
    assert all(time > since for time in times)
    assert kept[-1] == after[-1]


@given(VALUES)
def test_the_mean_is_of_all_values(values: list[float]) -> None:
    mean = thinned(values, 5).mean
    assert mean is not None
    assert math.isclose(mean, math.fsum(values) / len(values), rel_tol=1e-6, abs_tol=1e-3)


@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=300),
    st.integers(min_value=4, max_value=50),
)
def test_places_of_extremes_are_few_and_hold_the_least_and_greatest(
    values: list[float | None], limit: int
) -> None:
    places = extremes(values, limit)
    assert len(places) <= max(limit, min(len(values), limit))
    assert places == sorted(set(places))
    known = [value for value in values if value is not None]
    kept = [values[place] for place in places if values[place] is not None]
    if known:
        assert {min(known), max(known)} <= set(kept)


def test_what_is_no_number_is_none() -> None:
    assert [finite(one) for one in (1, 2.5, True, "3", None, math.nan, math.inf)] == [
        1.0, 2.5, None, None, None, None, None,
    ]  # fmt: skip
