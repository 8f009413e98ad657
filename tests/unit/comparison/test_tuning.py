"""The search for fastest settings, with duels whose results are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpcbench.comparison.tuning import AT_ONCE, Duel, Knob, Settings, search

AT = Knob.around("concurrency", 8, AT_ONCE)
BATCH = Knob.around("model.engine_options.batch", None, (2, 4, 8))


def duels(
    speed: Callable[[Settings], float], most: int = 99
) -> tuple[list[Duel], Callable[..., Duel | None]]:
    """Duels that the faster settings win, if they are 2 % faster."""
    fought: list[Duel] = []

    def run(best: Settings, tried: Settings) -> Duel | None:
        if len(fought) == most:
            return None
        ratio = speed(tried) / speed(best)
        verdict = "better" if ratio > 1.02 else "worse" if ratio < 0.98 else "equivalent"
        fought.append(Duel(tried, best, f"e{len(fought)}", verdict, ratio))
        return fought[-1]

    return fought, run


@pytest.mark.parametrize("peak", AT_ONCE)
def test_a_peak_is_found_in_either_direction(peak: int) -> None:
    fought, run = duels(
        lambda one: 1 / abs(AT_ONCE.index(one.get("concurrency", 8)) - AT_ONCE.index(peak) + 0.1)
    )
    best, whole = search([AT], run)
    assert whole and best == ({} if peak == 8 else {"concurrency": peak})
    distance = abs(AT_ONCE.index(peak) - AT_ONCE.index(8))
    assert len(fought) <= distance + 4, "steps, one or two refused ones, the last comparison"


def test_each_knob_starts_from_what_was_best_so_far_and_the_end_meets_the_start() -> None:
    fought, run = duels(lambda one: one.get("concurrency", 8) ** 0.5 * (one.get(BATCH.path) or 1))
    best, whole = search([AT, BATCH], run)
    assert whole and best == {"concurrency": 256, BATCH.path: 8}
    assert fought[-1].against == {} and fought[-1].settings == best


def test_settings_with_worse_answers_do_not_win() -> None:
    def run(best: Settings, tried: Settings) -> Duel:
        return Duel(tried, best, "e", "better", 2.0, worse=("anls",))

    assert search([AT], run) == ({}, True)


def test_the_budget_ends_the_search_with_what_is_known() -> None:
    fought, run = duels(lambda one: one.get("concurrency", 8), most=2)
    assert search([AT, BATCH], run) == ({"concurrency": 32}, False)
    assert len(fought) == 2


def test_a_gain_that_the_last_comparison_does_not_confirm_is_none() -> None:
    def run(best: Settings, tried: Settings) -> Duel:
        last = not best and tried.get("concurrency") == 256
        return Duel(tried, best, "e", "inconclusive" if last else "better", 1.03)

    assert search([AT], run) == ({}, True)


def test_the_value_in_use_is_one_of_the_values_or_takes_its_place_among_them() -> None:
    assert Knob.around("x", 4, (2, 4, 8)) == Knob("x", (2, 4, 8), 1)
    assert Knob.around("x", 5, (2, 4, 8)) == Knob("x", (2, 4, 5, 8), 2)
    assert Knob.around("x", None, (2, 4)) == Knob("x", (None, 2, 4), 0)
    assert Knob.around("x", "a", ("b", "c")) == Knob("x", ("a", "b", "c"), 0)
