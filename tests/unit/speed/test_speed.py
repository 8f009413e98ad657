"""Speed: each figure from its stamps, refused where the data cannot bear it, and true on known schedules."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench import speed
from hpcbench.schema.load import Slo
from hpcbench.schema.records import Response
from tests.campaign import examples
from tests.unit.timing import answered, closed_loop, failed, in_columns, measured, open_loop

# --- one request --------------------------------------------------------------------------------------


def test_latencies_are_taken_from_the_stamps_they_are_defined_by() -> None:
    one = answered(1, 10, 90, 130, start=4, scheduled=1, chunks=3, tokens=5)
    assert speed.ttft(one) == 80
    assert speed.e2e(one) == 120
    assert (speed.ttft_due(one), speed.e2e_due(one)) == (89, 129)
    assert speed.queue(one) == 3
    assert speed.prepare(one) == 6
    assert speed.tpot(one) == 40 / 4


def test_without_a_rate_a_request_is_due_when_there_is_room_for_it() -> None:
    one = answered(1, 10, 90, 130, start=4)
    assert (speed.ttft_due(one), speed.queue(one)) == (86, None)


def test_tokens_of_the_first_chunk_take_no_part_in_time_per_token() -> None:
    one = answered(1, 0, 100, 180, chunks=3, tokens=12, counted=True)  # 4, 8, 12
    assert speed.tpot(one) == 80 / 8


def test_the_token_that_ends_an_answer_takes_its_own_time_or_none() -> None:
    # Two words, 20 ms apart, and the end 20 ms after them: three tokens by the engine's total.
    counted = answered(1, 0, 100, 120, chunks=2, counted=True, ended=140)
    assert speed.tpot(counted) == 20
    assert speed.tpot(answered(1, 0, 100, 120, chunks=2, ended=140)) == 20
    assert speed.e2e(counted) == 120


def test_an_answer_of_one_chunk_has_no_time_per_token() -> None:
    assert speed.tpot(answered(1, 0, 100, 100, chunks=1, tokens=30)) is None


def test_time_between_tokens_spreads_a_chunks_gap_over_its_tokens() -> None:
    figures = measured(
        [[answered(n, 0, 100, 180, chunks=3, tokens=12, counted=True) for n in range(9)]]
    )
    assert figures["itl_ms"]["mean"]["value"] == 10
    assert figures["chunk_gap_ms"]["mean"]["value"] == 40
    assert (figures["itl_ms"]["n"], figures["itl_ms"]["answers"]) == (9 * 8, 9)
    assert figures["tokens_per_chunk"] == 4


def test_without_counts_by_chunk_there_is_no_time_between_tokens_only_between_chunks() -> None:
    figures = measured([[answered(n, 0, 100, 180) for n in range(9)]])
    assert figures["itl_ms"] is None
    assert figures["tokens_per_chunk"] is None
    assert figures["chunk_gap_ms"]["mean"]["value"] == 20


def test_what_failed_makes_no_latency_look_better() -> None:
    slow = [answered(n, 0, 500, 1000) for n in range(10)]
    quick = [failed(n, 0, 1) for n in range(10, 30)]
    figures = measured([[*slow, *quick]])
    assert figures["ttft_ms"]["p50"]["value"] == 500
    assert (figures["requests"], figures["answered"], figures["ttft_ms"]["n"]) == (30, 10, 10)


# --- percentiles ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "needs"), [("p50", 7), ("p90", 44), ("p95", 90), ("p99", 459)])
def test_a_percentile_of_too_few_requests_is_refused_and_says_how_many_it_needs(
    name: str, needs: int
) -> None:
    few, enough = (
        measured([[answered(n, n, n + 5, n + 9) for n in range(count)]])["ttft_ms"][name]
        for count in (needs - 1, needs)
    )
    assert few == {"value": None, "low": None, "high": None, "needs": needs}
    assert enough["value"] == 5


def test_a_mean_over_batches_does_not_take_neighbours_for_independent() -> None:
    """A queue that builds up and ends: neighbours wait alike, so the mean is less certain than it looks."""
    waits = [100 + 90 * ((number // 100) % 2) for number in range(1000)]
    reported = measured([[answered(n, n, n + wait, n + wait) for n, wait in enumerate(waits)]])
    mixed = random.Random(1).sample(waits, len(waits))
    calm = measured([[answered(n, n, n + wait, n + wait) for n, wait in enumerate(mixed)]])
    widths = [
        one["ttft_ms"]["mean"]["high"] - one["ttft_ms"]["mean"]["low"] for one in (reported, calm)
    ]
    assert widths[0] > 3 * widths[1]


# --- the steady window and rates ----------------------------------------------------------------------


def test_a_closed_loop_of_equal_answers_has_the_rate_it_must_have() -> None:
    figures = measured([closed_loop(80, 4, lambda chance, n: 100)])
    assert figures["answers_per_s"]["value"] == pytest.approx(40)
    assert figures["tokens_per_s"]["value"] == pytest.approx(200)
    assert figures["window"]["in_flight"] == pytest.approx(4)
    assert figures["whole"]["answers_per_s"] == pytest.approx(40)


def test_the_drain_at_the_end_is_no_part_of_the_steady_window() -> None:
    """One straggler of ten seconds: over the whole run the rate is a third of the engine's."""
    piece = closed_loop(400, 8, lambda chance, n: 10_000 if n == 399 else 100)
    figures = measured([piece])
    assert figures["answers_per_s"]["value"] == pytest.approx(80, rel=0.05)
    assert figures["whole"]["answers_per_s"] < 30


def test_a_stall_in_the_middle_stays_in_the_steady_window() -> None:
    """All slots wait two seconds in the middle: choosing the best stretch would hide it."""
    piece = closed_loop(400, 4, lambda chance, n: 2000 if 200 <= n < 204 else 20)
    window = speed.steady_window(in_columns(*piece))
    assert (window.end - window.begin) / 1e9 == pytest.approx(4, rel=0.05)
    assert measured([piece])["answers_per_s"]["value"] == pytest.approx(100, rel=0.05)


def test_moments_between_two_requests_do_not_end_the_window() -> None:
    """One after the other with a millisecond between: never in flight is not idle."""
    piece = [answered(n, 101 * n, 101 * n + 50, 101 * n + 100) for n in range(50)]
    window = speed.steady_window(in_columns(*piece))
    assert (window.begin, window.end) == (window.first, window.last)
    assert window.usual == 1


def test_a_burst_at_the_start_does_not_decide_what_is_usual() -> None:
    burst = [answered(n, 0, 50, 100) for n in range(64)]
    calm = [answered(100 + n, 100 + 100 * n, 150 + 100 * n, 200 + 100 * n) for n in range(100)]
    assert speed.steady_window(in_columns(*burst, *calm)).usual == 1


def test_pieces_of_several_workers_are_the_rate_of_one_engine_and_their_clocks_do_not_meet() -> (
    None
):
    one = closed_loop(80, 4, lambda chance, n: 100)
    far = [
        answered(n, 10**9 + r.times.send / 1e6, 10**9 + r.times.chunks[0] / 1e6, 10**9 + r.times.done / 1e6)
        for n, r in enumerate(one)
    ]  # fmt: skip
    figures = measured([one, far])
    assert figures["answers_per_s"]["value"] == pytest.approx(40)
    assert figures["window"]["seconds"] == pytest.approx(4)
    assert figures["window"]["pieces"] == 2


def test_whole_batches_lose_no_round_at_the_end_of_each_piece() -> None:
    """Eight at once, answered together every second: the last seven end a moment after load was full."""

    def piece(rounds: int) -> list[Response]:
        return [
            answered(n, begin, begin + 500, begin + 999 + n % 8 / 100)
            for n in range(8 * rounds)
            for begin in (1000 * (n // 8),)
        ]

    figures = measured([piece(3) for _ in range(10)])
    assert figures["answers_per_s"]["value"] == pytest.approx(8, rel=0.01)
    assert figures["answers_per_s"]["low"] <= 8 <= figures["answers_per_s"]["high"]


def test_a_run_of_ramp_and_drain_alone_has_no_steady_rate_and_says_so() -> None:
    figures = measured([closed_loop(10, 8, lambda chance, n: 100 + n)])
    assert figures["answers_per_s"] is None
    assert figures["whole"]["answers_per_s"] > 0
    assert any("no steady rates" in note for note in figures["notes"])


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 12), st.integers(0, 10**6), st.floats(0, 0.5), st.booleans()
)
def test_any_run_gives_figures_that_hang_together(
    count: int, concurrency: int, seed: int, failing: float, whole: bool
) -> None:
    piece = closed_loop(count, concurrency, lambda chance, n: chance.uniform(1, 200), seed)
    chance = random.Random(seed)
    piece = [
        failed(n, one.times.send / 1e6, one.times.done / 1e6) if chance.random() < failing else one
        for n, one in enumerate(piece)
    ]
    figures = measured([piece] if whole else [piece[: count // 2], piece[count // 2 :]])
    assert figures["requests"] == count
    window = speed.steady_window(in_columns(*piece))
    assert window.first <= window.begin <= window.end <= window.last
    assert 0 <= window.usual <= concurrency
    shown = figures["e2e_ms"]
    if shown is not None:
        ladder = [shown["min"], *(shown[p]["value"] for p in speed.SHARES), shown["max"]]
        known = [one for one in ladder if one is not None]
        assert known == sorted(known)
        assert shown["mean"]["value"] == pytest.approx(shown["mean"]["value"])
        for share in speed.SHARES:
            entry = shown[share]
            if entry["low"] is not None:
                assert entry["low"] <= entry["value"]
            if entry["high"] is not None:
                assert entry["value"] <= entry["high"]


@pytest.mark.long
def test_intervals_of_rates_cover_the_true_rate_about_as_often_as_they_say() -> None:
    """Four slots with exponential service of 100 ms: 40 answers a second, known from theory."""
    covered = 0
    for seed in range(100):
        piece = closed_loop(400, 4, lambda chance, n: chance.expovariate(1 / 100), seed)
        rate = measured([piece])["answers_per_s"]
        covered += rate["low"] <= 40 <= rate["high"]
    assert 86 <= covered <= 99


# --- coordinated omission ---------------------------------------------------------------------------


def test_a_stall_shows_in_what_is_counted_from_due_and_hides_from_what_is_counted_from_send() -> (
    None
):
    """A request is due every 10 ms and takes 5; the server stalls once, for two seconds.

    Two hundred requests come due meanwhile. Counted from send all but one took 5 ms.
    """
    arrivals = [10.0 * n for n in range(1000)]
    service = [2000.0 if n == 300 else 5.0 for n in range(1000)]
    figures = measured([open_loop(arrivals, service, room=1)])
    assert figures["e2e_ms"]["p99"]["value"] == pytest.approx(5)
    assert figures["e2e_due_ms"]["p90"]["value"] > 1000
    assert figures["queue_ms"]["p90"]["value"] > 1000
    assert figures["queue_ms"]["p50"]["value"] == 0


# --- goodput ------------------------------------------------------------------------------------------


def test_a_good_answer_keeps_every_limit_and_what_failed_is_never_good() -> None:
    slo = Slo(ttft_ms=100, tpot_ms=10, e2e_ms=200)
    reported = {
        "kept, TPOT 10": (answered(1, 0, 100, 140), True),
        "late first token": (answered(2, 0, 101, 140), False),
        "slow tokens": (answered(3, 0, 50, 150), False),
        "late from when it was due": (answered(4, 0, 100, 140, scheduled=-1), False),
        "failed": (failed(5, 0, 1), False),
        "one token has no TPOT": (answered(6, 0, 90, 90, chunks=1, tokens=1), True),
    }
    for why, (one, expected) in reported.items():
        assert speed.good(in_columns(one), slo).tolist() == [expected], why


def test_goodput_counts_good_answers_over_time_and_attainment_over_all_that_was_asked() -> None:
    piece = closed_loop(200, 2, lambda chance, n: 100 if n % 4 else 300)
    figures = measured([[*piece, failed(200, 0, 1)]], Slo(e2e_ms=150))
    assert figures["attainment"]["good"] == 150
    assert figures["attainment"]["value"] == pytest.approx(150 / 201, abs=1e-6)
    ratio = figures["good_per_s"]["value"] / figures["answers_per_s"]["value"]
    assert ratio == pytest.approx(0.75, abs=0.02)


def test_without_limits_there_is_no_goodput() -> None:
    figures = measured([closed_loop(40, 2, lambda chance, n: 100)], Slo())
    assert figures["good_per_s"] is None
    assert figures["attainment"] is None


# --- what casts doubt ---------------------------------------------------------------------------------


def test_a_client_bound_run_is_not_valid_for_speed_and_says_why() -> None:
    piece = closed_loop(40, 2, lambda chance, n: 100)
    health = {"event": "client_health", "lag_p50_ms": 0.1, "lag_p99_ms": 0.4, "lag_max_ms": 1.0}
    calm = measured([piece], events=[{**health, "client_bound": False}])
    late = measured(
        [piece],
        events=[
            {**health, "client_bound": False},
            {**health, "lag_p99_ms": 31, "client_bound": True},
        ],
    )
    assert (calm["valid"], late["valid"]) == (True, False)
    assert late["client"]["lag_p99_ms"] == 31
    assert "client-bound" in late["notes"][0]
    assert calm["notes"] == []


def test_counts_of_tokens_that_disagree_are_flagged_but_for_the_one_that_ends_an_answer() -> None:
    def reported(recount: int) -> dict[str, Any]:
        piece = [answered(n, 9 * n, 9 * n + 5, 9 * n + 9, recount=recount) for n in range(10)]
        return measured([piece])

    assert reported(4)["notes"] == [], "an end token is counted and not seen"
    assert reported(4)["recount"] == {"answers": 10, "engine": 50, "tokenizer": 40, "apart": 0.0}
    assert any("tokens/s and TPOT are unreliable" in note for note in reported(3)["notes"])


def test_an_engine_that_tells_no_tokens_has_no_token_rate() -> None:
    piece = [answered(n, n, n + 5, n + 9, usage=None) for n in range(40)]
    figures = measured([piece])
    assert (figures["tokens_per_s"], figures["completion_tokens"]) == (None, None)
    assert figures["tpot_ms"] is None


def test_memory_is_the_largest_peak_that_any_worker_saw() -> None:
    events = [
        {"event": "monitor", "memory": {"gpu_peak": 5, "host_peak": 9, "kv_peak": None}},
        {"event": "monitor", "memory": {"gpu_peak": 7, "host_peak": None, "kv_peak": None}},
    ]
    assert measured([], events=events)["memory"] == {
        "gpu_peak": 7, "host_peak": 9, "kv_peak": None,
    }  # fmt: skip
    assert measured([])["memory"] is None


def test_nothing_asked_is_no_figure_and_no_error() -> None:
    figures = measured([])
    assert (figures["requests"], figures["ttft_ms"], figures["answers_per_s"]) == (0, None, None)


# --- the knee -----------------------------------------------------------------------------------------


def test_the_knee_of_an_ideal_server_is_where_it_is_just_full() -> None:
    """N requests as fast as one up to 8 (asymptotic bounds): throughput N / R, then constant."""
    curve = {
        str(count): (min(count, 8) / 0.5, 0.5 * max(1, count / 8))
        for count in (1, 2, 4, 8, 16, 32, 64)
    }
    assert speed.knee(curve) == "8"


def test_the_knee_of_a_single_queue_is_half_its_capacity() -> None:
    """M/M/1 with service rate 1: latency 1 / (1 - rate), power rate · (1 - rate)."""
    curve = {f"{rate / 10}": (rate / 10, 1 / (1 - rate / 10)) for rate in range(1, 10)}
    assert speed.knee(curve) == "0.5"


def test_no_point_has_no_knee() -> None:
    assert speed.knee({}) is None
    assert speed.knee({"a": (0.0, 1.0)}) is None


def test_a_sweep_names_its_knee_and_its_best_point_among_the_valid_ones() -> None:
    slo = Slo(e2e_ms=250)

    def point(
        concurrency: int, took: float, rate: float | None = None, **more: Any
    ) -> dict[str, Any]:
        piece = closed_loop(400, concurrency, lambda chance, n: took)
        figures = measured([piece], slo)
        return {**figures, "load": {"sweep": "vqa", "rate": rate}, **more}

    run_tasks = {
        "vqa-c1": point(1, 100),
        "vqa-c2": point(2, 100),
        "vqa-c4": point(4, 190),
        "vqa-c8": point(8, 500),
        "vqa-c16": point(16, 1, valid=False),
        "vqa-r10.0": point(1, 100, rate=10),
        "vqa-r30.0": point(6, 200, rate=30),
        "vqa-r40.0": point(16, 400, rate=40),
        "other": {**point(1, 100), "load": {"sweep": None, "rate": None}},
    }
    (found,) = speed.sweeps(run_tasks).values()
    assert found["points"] == [name for name in run_tasks if name != "other"]
    assert found["knee"] == "vqa-c2", "no point with a rate is on its curve"
    assert found["rate_knee"] == "vqa-r30.0"
    assert found["best"] == "vqa-r30.0"


def test_one_point_of_a_kind_is_no_knee() -> None:
    figures = measured([closed_loop(400, 2, lambda chance, n: 100)])
    loads: dict[str, float | None] = {"vqa-c2": None, "vqa-r5.0": 5}
    run_tasks = {
        name: {**figures, "load": {"sweep": "vqa", "rate": rate}} for name, rate in loads.items()
    }
    (found,) = speed.sweeps(run_tasks).values()
    assert (found["knee"], found["rate_knee"]) == (None, None)


def test_no_point_is_the_best_where_nothing_was_good() -> None:
    piece = closed_loop(400, 2, lambda chance, n: 100)
    figures = measured([piece], Slo(e2e_ms=1))
    (found,) = speed.sweeps(
        {"vqa-c2": {**figures, "load": {"sweep": "vqa", "rate": None}}}
    ).values()
    assert found["best"] is None


def test_requests_that_took_no_time_at_all_have_a_window_of_none() -> None:
    window = speed.steady_window(in_columns(*(failed(n, 5, 5) for n in range(3))))
    assert (window.usual, window.end - window.begin) == (1, 0)
    assert measured([[failed(0, 5, 5)]])["requests"] == 1
