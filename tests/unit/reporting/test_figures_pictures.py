"""Figures in each picture of what was measured, and what it must not hide."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.experiment.view.performance_json import Latency, Speed, Sweep
from hpcbench.reporting import charts
from hpcbench.reporting.charts.figure_names import stem
from hpcbench.reporting.charts.speed import machine
from hpcbench.reporting.figures import Figure, svg, table
from hpcbench.reporting.printed_tables import MetricRow


def row(run_task: str, metric: str, value: float | None, **more: Any) -> MetricRow:
    """One score."""
    reported: dict[str, Any] = {
        "run_task": run_task, "ml_task": "vqa", "model": "m", "dataset": "d", "split": None,
        "metric": metric, "value": value, "low": None, "high": None, "n": 9, "clusters": 9,
        "coverage": 1.0, "higher_is_better": True, "signature": "", "method": "",
    }  # fmt: skip
    return MetricRow(**{**reported, **more})


def speed(rate: float | None, *gpus: str, **more: Any) -> Speed:
    """A run task of `performance.json`."""
    reported = {
        "load": {"concurrency": 4, "rate": None, "sweep": None},
        "answers_per_s": None if rate is None else {"value": rate, "low": rate - 1, "high": rate + 1},
        "e2e_due_ms": {"mean": {"value": 1000.0, "low": None, "high": None}},
        "hardware": [{"gpus": list(gpus)}] if gpus else None,
        "valid": True, "memory": None, "answered": 10, "completion_tokens": None, **more,
    }  # fmt: skip
    return Speed.model_validate(reported)


def score(value: float, **more: Any) -> Scores:
    """A run task of `metrics.json`."""
    entry = {"value": value, "low": value - 0.1, "high": value + 0.1, "higher_is_better": True}
    metrics = {"anls": {**entry, **more.pop("entry", {})}}
    reported = {
        "ml_task": "vqa", "dataset": "d", "split": None, "metrics": metrics,
        "groups": [], "outcomes": {"ok": 10}, "asked": 10, "answered": 10, "invalid": 0,
    }  # fmt: skip
    return Scores.model_validate({**reported, **more})


def only(figures: Any) -> Figure:
    """The only figure of a builder."""
    (figure,) = figures
    return figure


def ringed(figure: Figure) -> set[str]:
    """Labels of the points with a ring."""
    return {
        label
        for one in figure.series
        for label, ring in zip(one.labels or (), one.highlight or (), strict=False)
        if ring
    }


# --- scores ---------------------------------------------------------------------------------------------


def test_the_machine_of_an_engine_on_two_nodes_is_said_with_its_nodes_and_all_gpus() -> None:
    one = {"gpus": ["NVIDIA H100"] * 16, "nodes_each": 2, "workers": 1}
    assert machine(speed(1.0, hardware=[one])) == "16 × NVIDIA H100 on 2 nodes"


def test_metrics_of_one_run_task_share_its_row_and_coverage_is_reported_once() -> None:
    rows = [
        row("a", "anls", 0.5, coverage=0.9),
        row("a", "cer", 0.2, coverage=0.9),
        row("b", "anls", 0.6),
    ]
    figure = only(charts.metrics(rows))
    assert [one.name for one in figure.series] == ["anls ↑", "cer ↑"]
    assert figure.series[0].x == ("a", "b")
    assert figure.series[0].labels == ("coverage 90.0 %", "")
    assert figure.series[1].labels is None
    assert (figure.y.low, figure.y.high) == (0.0, 1.0)


def test_a_metric_beyond_one_does_not_squeeze_the_shares() -> None:
    rows = [row("a", "anls", 0.5), row("a", "bleu", 43.0), row("a", "none", None)]
    shares, bleu = charts.metrics(rows)
    assert [one.name for one in shares.series] == ["anls ↑"]
    assert [one.name for one in bleu.series] == ["bleu ↑"]
    assert bleu.y.high is None
    assert shares.name != bleu.name


def test_scores_of_many_run_tasks_are_divided_by_ml_task() -> None:
    rows = [row(f"r{n}", "anls", 0.5, ml_task=["vqa", "kie"][n % 2]) for n in range(80)]
    figures = list(charts.metrics(rows))
    assert [one.title.split(": ")[1] for one in figures] == ["vqa", "kie"]
    assert list(charts.metrics([])) == []


def test_categories_stand_side_by_side_for_run_tasks_that_were_asked_the_same() -> None:
    def level(value: float) -> list[dict[str, Any]]:
        rows = [
            {"by": {"kind": kind}, "metric": "anls", "value": value, "low": 0.1, "high": 0.9,
             "asked": 7, "coverage": coverage}
            for kind, coverage in (("invoice", 1.0), (None, 0.5))
        ]  # fmt: skip
        return [{"by": ["kind"], "groups": 2, "rows": rows}]

    tables = {
        "a": score(0.5, groups=level(0.5)),
        "b": score(0.6, groups=level(0.6)),
        "other": score(0.6, groups=level(0.7), dataset="e"),
        "alone": score(0.6, groups=[{"by": ["kind"], "groups": 1, "rows": []}]),
    }
    same, other = charts.categories(tables)
    assert [one.name for one in same.series] == ["a", "b"]
    assert same.series[0].x == ("invoice", "–")
    assert same.series[0].labels == ("n 7", "n 7, coverage 50.0 %")
    assert [one.name for one in other.series] == ["other"]


def test_the_distribution_of_one_counts_of_some_shares_and_of_many_a_heatmap() -> None:
    one = {"a": [1, *[0] * 18, 2]}
    figure = charts.distribution(one, "anls")
    assert figure is not None
    assert figure.kind == "histogram"
    assert sum(value or 0 for value in figure.series[0].y) == 3
    some = charts.distribution({**one, "b": one["a"], "none": [0] * 20}, "anls")
    assert some is not None
    assert [sum(value or 0 for value in each.y) for each in some.series] == pytest.approx(
        [1.0, 1.0]
    )
    many = charts.distribution({f"r{n}": one["a"] for n in range(9)}, "anls")
    assert many is not None
    assert many.matrix is not None
    assert len(many.matrix.rows) == 9
    assert charts.distribution({"none": [0] * 20}, "anls") is None


def test_only_samples_that_did_not_end_well_are_drawn() -> None:
    tables = {"good": score(0.5), "bad": score(0.5, outcomes={"ok": 7, "failed": 1}, invalid=2)}
    figure = only(charts.outcomes(tables))
    assert {one.name: one.y for one in figure.series} == {"unreadable": (20.0,), "failed": (10.0,)}
    assert "All samples of 1 other run tasks are ok." in figure.notes
    assert list(charts.outcomes({"good": score(0.5)})) == []


# --- speed ----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_no_model_beats_the_front_and_all_others_are_beaten(points: list[tuple[int, int]]) -> None:
    front = charts.front(points)
    for one, on in zip(points, front, strict=True):
        beaten = any(other != one and other[0] >= one[0] and other[1] >= one[1] for other in points)
        assert on == (not beaten)


def test_the_front_is_of_one_kind_of_machine_and_the_figure_says_so() -> None:
    metrics = {"fast": score(0.5), "good": score(0.9), "slow": score(0.4), "old": score(0.3)}
    rates = {
        "fast": speed(20, "H100"), "good": speed(10, "H100"), "slow": speed(5, "H100"),
        "old": speed(1, "A100", "A100"),
    }  # fmt: skip
    figure = only(charts.tradeoffs(metrics, rates))
    assert [one.name for one in figure.series] == ["H100", "2 × A100"]
    assert ringed(figure) == {"fast", "good", "old"}
    assert any("different machines" in note for note in figure.notes)
    assert figure.marked == "Pareto front"


def test_of_an_error_rate_the_lowest_is_best() -> None:
    worse = {"entry": {"higher_is_better": False}}
    metrics = {"a": score(0.1, **worse), "b": score(0.4, **worse)}
    figure = only(charts.tradeoffs(metrics, {"a": speed(2), "b": speed(2)}))
    assert ringed(figure) == {"a"}


def test_run_tasks_that_were_asked_something_else_are_not_compared_with_each_other() -> None:
    metrics = {"a": score(0.1), "b": score(0.4, dataset="e"), "c": score(0.4)}
    rates = {"a": speed(2), "b": speed(2), "c": speed(None)}
    assert list(charts.tradeoffs(metrics, rates)) == []


def test_a_sweep_rings_its_knee_and_crosses_what_the_client_spoilt() -> None:
    tables = {
        f"c{n}": speed(n, load={"concurrency": n, "rate": None, "sweep": "s"}, valid=n < 4)
        for n in (1, 2, 4)
    }
    tables["r5"] = speed(5, load={"concurrency": 64, "rate": 5.0, "sweep": "s"})
    swept = Sweep(points=tuple(tables), knee="c2")
    figure = charts.sweep("s", swept, tables)
    assert figure is not None
    assert ringed(figure) == {"2"}
    both = charts.sweep("s", swept.model_copy(update={"rate_knee": "r5"}), tables)
    assert both is not None
    assert ringed(both) == {"2", "5/s"}
    kept, paced, late = figure.series
    assert kept.labels == ("1", "2", "4")
    assert kept.y == (1.0, 1.0, 1.0)
    assert paced.labels == ("5/s",)
    assert late.x == (4,)
    assert charts.sweep("s", Sweep(points=("c1",)), tables) is None


def test_a_distribution_of_few_is_all_of_them_and_of_many_its_quantiles() -> None:
    few = Latency(n=4, quantiles=(1.0, 2.0, 3.0, 4.0))
    many = Latency(n=1000, quantiles=tuple(float(n) for n in range(41)))
    tables = {"few": Speed(ttft_ms=few), "many": Speed(ttft_ms=many), "none": Speed()}
    figure = only(charts.latencies(tables))
    assert figure.series[0].y == (0.25, 0.5, 0.75, 1.0)
    assert figure.series[1].y[:3] == (0.001, 0.025, 0.05)
    assert figure.series[1].y[-1] == 1.0
    assert table(figure)[1][1][3] == 20.0


def test_distributions_of_many_run_tasks_are_medians_with_ranges() -> None:
    each = Latency(n=41, quantiles=tuple(float(n + 1) for n in range(41)))
    tables = {f"r{n}": Speed(ttft_ms=each, e2e_due_ms=each) for n in range(30)}
    ttft, e2e = charts.latencies(tables)
    assert (ttft.kind, e2e.kind) == ("interval", "interval")
    assert (ttft.series[0].y[0], ttft.series[0].low, ttft.series[0].high) == (
        21.0,
        (3.0,) * 30,
        (39.0,) * 30,
    )
    assert ttft.x.scale == "category"
    assert ttft.y.scale == "log"


def test_tokens_are_a_line_over_answers_and_of_older_files_a_mean() -> None:
    each = {"completion_tokens": [1.0, 2.0, 9.0], "prompt_tokens": None}
    tables = {
        "a": speed(1, tokens_each=each),
        "b": speed(1, tokens_each={"completion_tokens": None}),
    }
    figure = only(charts.tokens(tables))
    assert figure.kind == "line"
    assert figure.series[0].x == (0.0, 50.0, 100.0)
    assert figure.series[0].y == (1.0, 2.0, 9.0)
    mean = only(charts.tokens({"a": speed(1, completion_tokens=50)}))
    assert mean.series[0].y == (5.0,)
    assert list(charts.tokens({"a": speed(1)})) == []


def test_memory_shows_what_was_measured_in_gib() -> None:
    peaks = {"gpu_peak": 3 * 2**30, "effective": None}
    figure = charts.memory({"a": speed(1, memory=peaks), "b": speed(1)})
    assert figure is not None
    assert [(one.name, one.x, one.y) for one in figure.series] == [("GPU", ("a",), (3.0,))]
    assert charts.memory({"b": speed(1)}) is None


# --- several runs ---------------------------------------------------------------------------------------


def test_a_flow_goes_from_right_to_missing_and_counts_what_moved() -> None:
    counts = {
        ("wrong", "right"): 3,
        ("right", "right"): 5,
        ("right", "odd"): 1,
        ("failed", "right"): 0,
    }
    figure = charts.flow(counts, "main", "new")
    assert figure is not None
    assert [(one.source, one.target) for one in figure.flows] == [
        ("right", "right"), ("right", "odd"), ("wrong", "right"),
    ]  # fmt: skip
    assert figure.notes == ("4 of 9 samples changed their outcome.",)
    assert charts.flow({}, "main", "new") is None


def test_a_history_is_in_order_of_time_and_names_the_experiments() -> None:
    runs = [charts.Moment(200.0, "second", 0.5, 0.4, 0.6, True), charts.Moment(100.0, "first", 0.9)]
    figure = charts.history("anls ↑", {"rt": runs, "none": [charts.Moment(1.0, "x", None)]})
    assert figure is not None
    assert figure.series[0].labels == ("first", "second")
    assert ringed(figure) == {"second"}
    assert len(figure.series) == 1
    assert "second" in svg(figure)
    assert charts.history("anls", {}) is None


def test_names_of_files_differ_where_names_differ() -> None:
    names = [
        stem(*one) for one in (("a", "b c"), ("a", "b-c"), ("a", "b/c"), ("a", "Б"), ("a", "д"))
    ]
    assert len(set(names)) == 5
    assert names[1] == "a-b-c"
