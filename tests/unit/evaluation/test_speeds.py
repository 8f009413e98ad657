"""Speed side by side: comparable only on machines and loads of one kind, and never otherwise in silence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.comparison.speed import ratio_interval, speed
from hpcbench.evaluation.performance import write_performance
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.performance_json import Figure, performance_of
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt

A100 = {"gpus": ["NVIDIA A100"], "driver": "550.90", "cuda": "12.4", "cpu": "EPYC"}
SAME = [("rt", "rt")]


def run(folder: Path, hardware: Mapping[str, Any] | None = A100) -> Experiment:
    """An experiment of eight answers; its worker reported this hardware, None: none."""
    here = experiment(folder, [record(n) for n in range(8)], shard_size=8)
    write_attempt(here, 0, 1, [response(f"s{n}") for n in range(8)])
    reported = {} if hardware is None else {"hardware": dict(hardware)}
    events = [
        {"event": "started", "owner": {"job": "1_0", "node": "n1"}},
        {"event": "shard_claimed", "shard": "rt/00000", "attempt": 1},
        {"event": "model_ready", "model": "m", **reported},
        {"event": "monitor", "run_task": "rt", "memory": {"gpu_peak": 2**30}},
    ]
    file = here.worker_events("g0", "1_0-0")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    evaluate(here)
    return here


def changed(here: Experiment, change: Callable[[dict[str, Any]], None]) -> Experiment:
    """Another `performance.json`."""
    whole = json.loads(here.performance_file.read_text())
    change(whole["run_tasks"]["rt"])
    here.performance_file.write_text(json.dumps(whole))
    return here


def test_performance_tells_the_machines_that_asked_a_run_task(tmp_path: Path) -> None:
    here = run(tmp_path)
    (kind,) = performance_of(here).to_json()["run_tasks"]["rt"]["hardware"]
    assert kind == {**A100, "nodes": ["n1"], "workers": 1}
    idle = here.worker_events("g0", "1_1-0")
    idle.write_text('{"event":"model_ready","model":"m","hardware":{"gpus":["T4"]}}\n')
    write_performance(here)
    assert len(performance_of(here).to_json()["run_tasks"]["rt"]["hardware"]) == 1


def test_performance_sums_the_tokens_that_workers_got(tmp_path: Path) -> None:
    here = run(tmp_path)
    assert json.loads(here.performance_file.read_text())["run_tasks"]["rt"].get("tokens") is None
    for number, granted in ((2, {"full_auth": 2}), (3, {"cache": 1, "refresh_token": 4})):
        earlier = {"event": "token", "model": "m", "granted": {"full_auth": 1}, "waits": 1}
        events = [
            {"event": "shard_claimed", "shard": "rt/00000", "attempt": number},
            earlier,
            {
                **earlier,
                "granted": granted,
                "longest": 0.1 * number,
                "fallbacks": 1,
                **({"oldest": 40.5} if number == 2 else {}),  # earlier versions had none
            },
            {**earlier, "model": "another", "granted": {"full_auth": 50}},
        ]
        file = here.worker_events("g0", f"1_{number}-0")
        file.write_text("".join(json.dumps(event) + "\n" for event in events))
    write_performance(here)
    found = performance_of(here).run_tasks["rt"].tokens
    assert found is not None
    assert found.granted == {"cache": 1, "full_auth": 2, "refresh_token": 4}
    assert (found.waits, found.fallbacks, found.longest) == (2, 2, pytest.approx(0.3))
    assert found.oldest == 40.5


def test_performance_sums_what_a_gateways_limits_did(tmp_path: Path) -> None:
    here = run(tmp_path)
    assert performance_of(here).run_tasks["rt"].limits is None
    for number in (2, 3):
        first = {"event": "limited", "model": "m", "refused": 1, "waits": 1, "wait_seconds": 0.5}
        events = [
            {"event": "shard_claimed", "shard": "rt/00000", "attempt": number},
            first,
            {**first, "refused": number, "wait_seconds": 10.25},
            {**first, "model": "another", "refused": 50},
        ]
        file = here.worker_events("g0", f"1_{number}-0")
        file.write_text("".join(json.dumps(event) + "\n" for event in events))
    write_performance(here)
    found = performance_of(here).run_tasks["rt"].limits
    assert found is not None
    assert (found.refused, found.waits, found.wait_seconds) == (5, 2, 20.5)


def test_on_machines_and_loads_of_one_kind_figures_are_comparable(tmp_path: Path) -> None:
    one, other = run(tmp_path / "a"), run(tmp_path / "b")
    found = speed(one, other, SAME)
    figures = {figure.figure: figure for figure in found.figures}
    assert all(figure.comparable for figure in found.figures)
    assert figures["ttft_ms.p50"].ratio == 1.0
    assert figures["memory.gpu_peak"].low is None
    assert found.notes == ()


def slower_client(table: dict[str, Any]) -> None:
    table["valid"] = False


def at(**load: Any) -> Callable[[dict[str, Any]], None]:
    return lambda table: table["load"].update(load)


@pytest.mark.long
@pytest.mark.parametrize(
    ("hardware", "change", "why"),
    [
        ({**A100, "gpus": ["NVIDIA H100"]}, None, "GPUs differ: NVIDIA A100 → NVIDIA H100"),
        ({**A100, "gpus": ["NVIDIA A100"] * 2}, None, "GPUs differ: NVIDIA A100 → 2 × NVIDIA A100"),
        ({**A100, "driver": "470.1"}, None, "drivers differ: 550.90 → 470.1"),
        ({**A100, "cpu": "Xeon"}, None, "CPUs differ: EPYC → Xeon"),
        (None, None, "the files do not show which GPUs the candidate ran on"),
        (A100, at(concurrency=8), "the loads differ: requests in flight 1 → 8"),
        (
            A100,
            at(concurrency=8, chosen={"w0": 4, "w1": 8}),
            "the loads differ: requests in flight 1 → 4 to 8",
        ),
        (A100, at(rate=2.0), "the loads differ: requests per second none → 2.0"),
        (A100, at(protocol="grpc"), "the loads differ: protocol http → grpc"),
        (A100, at(route="direct"), "the loads differ: route proxied → direct"),
        (A100, slower_client, "the candidate's client was too slow"),
    ],
)
def test_whatever_else_is_not_the_same_is_reported_and_never_passes(
    tmp_path: Path,
    hardware: Mapping[str, Any] | None,
    change: Callable[[dict[str, Any]], None] | None,
    why: str,
    cli: Cli,
) -> None:
    one, other = run(tmp_path / "a"), run(tmp_path / "b", hardware)
    if change is not None:
        changed(other, change)
    figures = speed(one, other, SAME).figures
    latencies = [figure for figure in figures if figure.kind == "speed"]
    assert latencies
    assert not any(figure.comparable for figure in latencies)
    assert all(why in "; ".join(figure.why_not) for figure in latencies)
    out = cli("compare", one.path, other.path)
    assert "not comparable" in out
    assert why in out


def test_runs_that_both_took_two_routes_are_not_comparable(tmp_path: Path) -> None:
    runs = [run(tmp_path / name) for name in ("a", "b")]
    for one in runs:
        changed(one, at(route="direct and proxied"))
    latencies = [one for one in speed(*runs, SAME).figures if one.kind == "speed"]
    assert {one.why_not for one in latencies} == {("several routes in both: direct and proxied",)}


def test_other_nodes_and_longer_answers_are_reported_beside_the_figures(tmp_path: Path) -> None:
    def change(table: dict[str, Any]) -> None:
        table["hardware"][0]["nodes"] = ["n7"]
        table["completion_tokens"] *= 3

    found = speed(run(tmp_path / "a"), changed(run(tmp_path / "b"), change), SAME)
    assert found.figures[0].comparable
    nodes, length = found.notes
    assert nodes == "rt: nodes differ: n1 → n7"
    assert "3.00 times as many tokens" in length


def test_without_performance_scores_are_compared_all_the_same(tmp_path: Path, cli: Cli) -> None:
    one, other = run(tmp_path / "a"), run(tmp_path / "b")
    other.performance_file.unlink()
    out = cli("compare", one.path, other.path)
    assert "exact_match" in out
    assert "speed is not compared" in out


ENDS = st.floats(0.01, 1e6)


@given(low=ENDS, up=st.floats(1.0, 100), more=st.floats(1.0, 100), scale=ENDS)
def test_the_interval_of_a_ratio_holds_it_and_keeps_its_unit(
    low: float, up: float, more: float, scale: float
) -> None:
    one = {"low": low, "value": low * up, "high": low * up * more}
    found = ratio_interval(Figure(**one), Figure(**one))
    assert found is not None
    assert found[0] <= 1 + 1e-9
    assert found[1] >= 1 - 1e-9
    assert found[0] * found[1] == pytest.approx(1.0)  # one run against itself: the same both ways
    scaled = Figure(**{name: end * scale for name, end in one.items()})
    assert ratio_interval(scaled, scaled) == pytest.approx(found)
    assert ratio_interval(Figure(value=one["value"], high=one["high"]), Figure(**one)) is None


def test_the_interval_of_a_ratio_adds_distances_in_squares() -> None:
    one = Figure(low=100 / 1.1, value=100.0, high=110.0)
    other = Figure(low=200 / 1.2, value=200.0, high=240.0)
    found = ratio_interval(one, other)
    # exp(log 2 ± sqrt(log(1.1)^2 + log(1.2)^2)), worked out apart
    assert found == pytest.approx((1.628104, 2.456845), abs=1e-6)
