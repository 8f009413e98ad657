"""Other kits' figures from our records: by hand, on schedules small enough to check in the head.

Two requests; times in milliseconds from the first send:

    a: sent 0, role 100, text 200, 300, 500, reason 510, end 520; 7 prompt and 5 answer tokens, recounted 4
    b: sent 100, text 150, end 160; 3 prompt tokens, 1 answer token, recounted 1
"""

from __future__ import annotations

import re

import pytest

from hpcbench.inference.kit_figures import KITS, end_to_end, percentile
from hpcbench.schema.records import Outcome, Response, Times


def response(
    name: str,
    send: int,
    chunks: tuple[int, ...],
    done: int,
    *,
    empty: tuple[int, ...] = (),
    usage: tuple[int, int] | None = None,
    outcome: Outcome = "ok",
    recount: int | None = None,
    scheduled: int | None = None,
    tokens: tuple[int, ...] = (),
) -> Response:
    """A response whose times are given in milliseconds."""
    counts = None if usage is None else {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    return Response(
        name,
        outcome,
        "text" if outcome == "ok" else None,
        "stop",
        counts,
        Times(
            start=(send - 10) * 10**6,
            send=send * 10**6,
            headers=None,
            chunks=tuple(chunk * 10**6 for chunk in chunks),
            done=done * 10**6,
            scheduled=None if scheduled is None else scheduled * 10**6,
            empty=tuple(chunk * 10**6 for chunk in empty),
            tokens=tokens,
        ),
        1,
        (),
        recount=recount,
    )


A = response("a", 0, (200, 300, 500), 520, empty=(100, 510), usage=(7, 5), recount=4)
B = response("b", 100, (150,), 160, usage=(3, 1), recount=1)
LOST = response("c", 0, (), 900, outcome="failed")


def values(kit: str, *responses: Response, **slos: float) -> dict[str, float]:
    """Values that the kit would have reported."""
    return {name: figure.value for name, figure in KITS[kit](responses, slos or None).items()}


def test_vllm() -> None:
    found = values("vllm", A, B, LOST)
    expected = {
        "duration": 0.52,
        "completed": 2,
        "failed": 1,
        "total_input_tokens": 10,
        "total_output_tokens": 6,
        "request_throughput": 2 / 0.52,
        "output_throughput": 6 / 0.52,
        "total_token_throughput": 16 / 0.52,
        # the role counts as a first chunk: 100 and 50
        "mean_ttft_ms": 75,
        "median_ttft_ms": 75,
        "std_ttft_ms": 25,
        "p99_ttft_ms": 99.5,
        # 510 and 50; (510 - 100) / 4, and nothing for a single token
        "mean_e2el_ms": 280,
        "mean_tpot_ms": 102.5,
        # 100 200 300 500 510
        "mean_itl_ms": 102.5,
        "median_itl_ms": 100,
        "p99_itl_ms": 197,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_vllms_goodput_counts_what_meets_all_objectives() -> None:
    assert values("vllm", A, B, LOST, ttft=60)["request_goodput"] == pytest.approx(1 / 0.52)
    assert values("vllm", A, B, LOST, ttft=100, tpot=200)["request_goodput"] == pytest.approx(
        2 / 0.52
    )
    assert values("vllm", A, B, LOST, e2el=10)["request_goodput"] == 0
    for word in ("e2e", "e2el"):  # either kit's word in both
        assert values("vllm", A, B, **{word: 100})["request_goodput"] == pytest.approx(1 / 0.52)
        assert values("sglang", A, B, **{word: 100})["goodput"] == pytest.approx(1 / 0.52)
    assert "request_goodput" not in values("vllm", A, B)


def test_vllm_counts_again_where_the_server_did_not_count() -> None:
    recounted = response("d", 0, (100,), 110, recount=9)
    unknown = response("e", 0, (100,), 110)
    assert values("vllm", recounted, unknown)["total_output_tokens"] == 9 + 1


def test_sglang() -> None:
    found = values("sglang", A, B, LOST)
    expected = {
        "completed": 2,
        "total_output_tokens": 6,
        "total_output_tokens_retokenized": 5,
        "output_throughput_retokenized": 5 / 0.52,
        "input_throughput": 10 / 0.52,
        "total_throughput": 16 / 0.52,
        "concurrency": (0.52 + 0.06) / 0.52,
        # the first text: 200 and 50
        "mean_ttft_ms": 125,
        # to the stream's end: 520 and 60; (520 - 200) / 4
        "mean_e2e_latency_ms": 290,
        "p90_e2e_latency_ms": 60 + 0.9 * 460,
        "mean_tpot_ms": 80,
        # 200 300 500
        "mean_itl_ms": 150,
        "p95_itl_ms": 195,
        "max_itl_ms": 200,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert values("sglang", A, B, LOST, ttft=100)["slo_attainment"] == pytest.approx(1 / 3)


def test_guidellm() -> None:
    found = values("guidellm", A, B, LOST)
    expected = {
        "time_to_first_token_ms.mean": 125,
        "inter_token_latency_ms.mean": (500 - 200) / 4,
        "time_per_output_token_ms.mean": (500 / 5 + 50 / 1) / 2,
        "request_latency.mean": 0.29,
        "output_tokens_per_second.mean": (5 / 0.52 + 1 / 0.06) / 2,
        "output_token_count.mean": 3,
    }
    assert found == pytest.approx(expected)
    late = response("f", 130, (200,), 210, usage=(1, 1), scheduled=100)
    assert values("guidellm", late)["request_dispatch_delay.mean"] == pytest.approx(0.03)


def test_aiperf() -> None:
    found = values("aiperf", A, B, LOST)
    expected = {
        "request_count": 2,
        "error_request_count": 1,
        "benchmark_duration": 0.5,
        "request_throughput": 4,
        "time_to_first_token.avg": 125,
        "time_to_second_token.avg": 100,
        "request_latency.avg": (500 + 50) / 2,
        "inter_chunk_latency.avg": 150,
        # four recounted tokens, one of them in the first chunk
        "inter_token_latency.avg": (500 - 200) / 3,
        "total_output_sequence_length": 5,
        "output_token_throughput": 10,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    counted = response("g", 0, (100, 300), 310, recount=5, tokens=(3, 5))
    assert values("aiperf", counted)["inter_token_latency.avg"] == pytest.approx(200 / 2)


def test_aiperf_without_a_recount_has_no_figure_of_tokens() -> None:
    found = values("aiperf", response("h", 0, (100, 200), 210, usage=(1, 9)))
    assert "request_latency.avg" in found
    assert not [name for name in found if "token_throughput" in name or "inter_token" in name]


def test_the_same_records_give_each_kit_another_answer() -> None:
    """One request, one schedule: what the words mean is all that differs."""
    found = {kit: values(kit, A) for kit in KITS}
    assert {
        "vllm": found["vllm"]["mean_ttft_ms"],
        "sglang": found["sglang"]["mean_ttft_ms"],
        "guidellm": found["guidellm"]["time_to_first_token_ms.mean"],
        "aiperf": found["aiperf"]["time_to_first_token.avg"],
    } == {"vllm": 100, "sglang": 200, "guidellm": 200, "aiperf": 200}
    assert {
        "vllm": found["vllm"]["mean_itl_ms"],
        "sglang": found["sglang"]["mean_itl_ms"],
        "guidellm": found["guidellm"]["inter_token_latency_ms.mean"],
        "aiperf": found["aiperf"]["inter_token_latency.avg"],
    } == {"vllm": 102.5, "sglang": 150, "guidellm": 75, "aiperf": 100}
    assert {
        "vllm": found["vllm"]["mean_tpot_ms"],
        "sglang": found["sglang"]["mean_tpot_ms"],
        "guidellm": found["guidellm"]["time_per_output_token_ms.mean"],
    } == {"vllm": 102.5, "sglang": 80, "guidellm": 100}


@pytest.mark.parametrize("kit", KITS)
def test_every_figure_says_what_it_means(kit: str) -> None:
    figures = KITS[kit]((A, B, LOST), {"ttft": 1.0})
    assert figures
    assert all(len(figure.definition) > 10 for figure in figures.values())


@pytest.mark.parametrize("kit", KITS)
def test_of_no_answers_nothing_is_said(kit: str) -> None:
    assert KITS[kit]((LOST,), None) == KITS[kit]((), None) == {}


def test_percentiles_are_numpys() -> None:
    numbers = [3.0, 1.0, 4.0, 1.0, 5.0]
    assert [percentile(numbers, share) for share in (0, 50, 100)] == [1, 3, 5]
    assert percentile(numbers, 90) == pytest.approx(4.6)
    assert percentile([7.0], 99) == 7


@pytest.mark.parametrize("kit", KITS)
@pytest.mark.parametrize("clock", [0, 10**6, -(10**5)])
def test_a_piece_says_the_same_whatever_its_clock_shows(kit: str, clock: int) -> None:
    later = [
        response("a", clock, (clock + 200, clock + 500), clock + 520, usage=(7, 5), recount=4),
        response("c", clock, (), clock + 900, outcome="failed"),
    ]
    once = [
        response("a", 0, (200, 500), 520, usage=(7, 5), recount=4),
        response("c", 0, (), 900, outcome="failed"),
    ]
    assert values(kit, *end_to_end([later, [LOST]])) == values(kit, *once, LOST)


@pytest.mark.parametrize("kit", KITS)
def test_the_same_piece_twice_has_the_same_latencies_and_rates(kit: str) -> None:
    piece = [response("a", 0, (200, 300, 500), 500, usage=(7, 5), recount=4)]
    one, two = values(kit, *piece), values(kit, *end_to_end([piece, piece]))
    sums = ("duration", "completed", "total_", "request_count", "benchmark_duration")
    percentiles = re.compile(r"\.p\d|^p\d")  # interpolated between more values
    for name in (name for name in one if not percentiles.search(name)):
        value = one[name]
        expected = 2 * value if name.startswith(sums) and "throughput" not in name else value
        assert two[name] == pytest.approx(expected), name
