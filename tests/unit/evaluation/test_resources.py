"""Resource metrics: what answers took as a metric like any other, and never a 0 for what was not measured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest

from hpcbench import plugins
from hpcbench.comparison.compare import compare_many
from hpcbench.comparison.gate import judge
from hpcbench.comparison.history import record as remember
from hpcbench.comparison.history import table as history_table
from hpcbench.errors import UserError
from hpcbench.evaluation.performance import performance
from hpcbench.evaluation.score_tables import table
from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import Measured, MetricValue, Scores, metrics_of
from hpcbench.files.atomic import write_atomic, write_json
from hpcbench.metrics.resources import REUSED, unit_of
from hpcbench.schema.gate import Gate
from hpcbench.schema.records import Response, Times
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt

A100 = {"gpus": ["NVIDIA A100"], "driver": "550.90", "cuda": "12.4", "cpu": "EPYC"}
OF_ANSWERS = (
    "ttft_mean", "ttft_p50", "latency_mean", "latency_p95", "tpot", "answer_tokens",
)  # fmt: skip
OF_RUNS = ("tokens_per_second", "documents_per_hour", "peak_gpu_memory", "energy", "cost")
EVERY = (*OF_ANSWERS, *OF_RUNS)
COUNT = 100


def answer(number: int, slow: float = 1.0, *, text: str | None = None, **more: Any) -> Response:
    """An answer of three tokens: first text after 10 ms and more, 5 ms between tokens."""
    start = number * 40_000_000
    first = start + round((10 + number % 7) * slow * 1e6)
    chunks = tuple(first + round(5e6 * slow * step) for step in range(3))
    times = Times(start, start, start + 1, chunks, chunks[-1] + 1)
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    said = str(number) if text is None else text
    return response(f"s{number}", said, **{"times": times, "usage": usage, **more})


def run(
    folder: Path,
    answers: Sequence[Response] | None = None,
    *,
    metrics: Sequence[str] = ("exact_match", *EVERY),
    hardware: Mapping[str, Any] = A100,
    site: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    watts: float | None = 300.0,
    prices: Mapping[str, Any] | None = None,
    name: str = "20261120-1432-plan-aaaa",
) -> Experiment:
    """A finished run of two questions to each document, with a GPU and its monitor."""
    if answers is None:
        answers = [answer(number) for number in range(COUNT)]
    records = [
        record(number, document=f"doc{number // 2}", metadata={"kind": "ab"[number % 2]})
        for number in range(len(answers))
    ]
    model, dataset = {"gpus": 1}, {"group_by": ["kind"]}
    here = experiment(
        folder / name, records, shard_size=len(answers), metrics=metrics, model=model,
    )  # fmt: skip
    plan = json.loads(here.resolved_file.read_text())
    plan["run_tasks"][0]["dataset"] |= dataset
    plan["run_tasks"][0]["model"]["prices"] = prices
    plan["site"] |= site or {}
    write_atomic(here.resolved_file, json.dumps(plan))
    here = Experiment(here.path)
    write_attempt(here, 0, 1, answers)
    events = [
        {"event": "started", "owner": {"job": "1_0", "node": "n1"}},
        {"event": "shard_claimed", "shard": "rt/00000", "attempt": 1},
        {"event": "model_ready", "model": "m", "hardware": dict(hardware)},
        {"event": "monitor", "run_task": "rt", "memory": memory or {}},
    ]
    file = here.worker_events("g0", "1_0-0")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    if watts is not None:
        readings = [
            {"time": 1000.0 + at, "phase": phase, "gpus": [{"gpu": 0, "watts": watts}]}
            for at, phase in enumerate(["loading m", *["rt"] * 36, "x"])
        ]
        here.worker_monitor("g0", "1_0-0").write_text(
            "".join(json.dumps(one) + "\n" for one in readings)
        )
    evaluate(here)
    return here


def scores(here: Experiment) -> Scores:
    return metrics_of(here).run_tasks["rt"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """A run of which everything is known."""
    return run(
        tmp_path_factory.mktemp("measured"),
        site={"gpu_hour_price": 2.0, "currency": "EUR"},
        memory={"gpu_peak": 3 * 2**30, "gpu_peak_source": "processes"},
    )


def value(here: Experiment, metric: str) -> MetricValue:
    found = scores(here).metrics[metric]
    assert found is not None, scores(here).measured[metric].why
    return found


# --- values -------------------------------------------------------------------------------------------


def test_every_resource_metric_is_in_the_metrics_file_with_unit_and_direction(
    measured: Experiment,
) -> None:
    table = scores(measured)
    assert set(table.metrics) == {"exact_match", *EVERY}
    assert set(table.measured) == set(EVERY)
    units = {name: one.unit for name, one in table.measured.items()}
    assert (units["tpot"], units["energy"]) == ("ms", "Wh per 1,000 documents")
    assert units["cost"] == "EUR per 1,000 documents"
    better = {name for name, one in table.values.items() if one.higher_is_better}
    assert better == {"exact_match", "tokens_per_second", "documents_per_hour"}
    assert table.coverage == 1.0


def test_latencies_are_those_of_the_answers(measured: Experiment) -> None:
    ttft = [10.0 + number % 7 for number in range(COUNT)]
    assert value(measured, "ttft_mean").value == pytest.approx(numpy.mean(ttft))
    assert value(measured, "ttft_p50").value == pytest.approx(numpy.quantile(ttft, 0.5))
    latency = [one + 10 for one in ttft]
    assert value(measured, "latency_mean").value == pytest.approx(numpy.mean(latency))
    assert value(measured, "latency_p95").value == pytest.approx(numpy.quantile(latency, 0.95))
    assert value(measured, "tpot").value == pytest.approx(5.0)
    assert value(measured, "answer_tokens").value == 3


def test_latencies_are_the_speed_sections(measured: Experiment) -> None:
    """One figure has one value wherever it is shown: both come from the same stamps."""
    speed = performance(measured).run_tasks["rt"]
    assert speed.ttft_ms is not None and speed.e2e_ms is not None and speed.tpot_ms is not None
    assert value(measured, "ttft_p50").value == pytest.approx(speed.ttft_ms.p50.value)
    assert value(measured, "latency_p95").value == pytest.approx(speed.e2e_ms.p95.value)
    assert value(measured, "tpot").value == pytest.approx(speed.tpot_ms.mean.value)
    assert speed.tokens_per_s is not None and speed.answers_per_s is not None
    assert value(measured, "tokens_per_second").value == speed.tokens_per_s.value
    rate = speed.answers_per_s.value
    assert rate is not None
    assert value(measured, "documents_per_hour").value == pytest.approx(rate * 3600 / 2)


def test_intervals_are_by_documents(measured: Experiment) -> None:
    for name in OF_ANSWERS:
        one = value(measured, name)
        assert (one.n, one.clusters) == (COUNT, COUNT // 2)
    for name in ("ttft_mean", "ttft_p50", "latency_p95"):
        one = value(measured, name)
        assert one.low is not None and one.high is not None
        assert one.low <= one.value <= one.high
    assert value(measured, "latency_p95").method == "order statistics by documents"


def test_memory_energy_and_cost(measured: Experiment) -> None:
    memory = value(measured, "peak_gpu_memory")
    assert (memory.value, memory.low) == (3.0, None)
    assert memory.method == "undefined: one value of the run"
    # 36 s of 300 W are 3 Wh, for 50 documents.
    assert value(measured, "energy").value == pytest.approx(3.0 / 50 * 1000)
    hourly, cost = value(measured, "documents_per_hour"), value(measured, "cost")
    assert cost.value == pytest.approx(2.0 * 1000 / hourly.value)
    assert cost.low == pytest.approx(2000.0 / (hourly.high or math.nan))
    assert cost.signature == "cost|currency:EUR|v1"


PRICES = {"input": 2.0, "output": 10.0, "currency": "EUR", "image": 0.001}


def test_a_providers_prices_make_the_cost_with_an_interval_by_documents(tmp_path: Path) -> None:
    answers = [
        answer(
            number,
            usage={"prompt_tokens": 1000 + number, "completion_tokens": 3},
            image_sha256=("a",) * (number % 2),
        )
        for number in range(COUNT)
    ]
    answers[7] = answer(7, outcome="failed", usage=None, text="")
    here = run(tmp_path, answers, prices=PRICES, site={"gpu_hour_price": 2.0, "currency": "USD"})
    charged = [(1000 + number) * 2e-6 + 3e-5 + 0.001 * (number % 2) for number in range(COUNT)]
    charged[7] = 0.0
    documents = [1000 * (one + two) for one, two in zip(charged[::2], charged[1::2], strict=True)]
    cost = value(here, "cost")
    assert cost.value == pytest.approx(numpy.mean(documents))
    assert cost.low is not None and cost.high is not None
    assert cost.high - cost.value == pytest.approx(cost.value - cost.low)
    assert (cost.n, cost.clusters) == (COUNT - 1, COUNT // 2)
    assert cost.signature == "cost|currency:EUR|v1"
    assert scores(here).measured["cost"].unit == "EUR per 1,000 documents"


def test_answers_without_a_count_of_tokens_have_no_cost(tmp_path: Path) -> None:
    answers = [answer(0), answer(1, usage=None), answer(2)]
    here = run(tmp_path, answers, prices=PRICES, metrics=["exact_match", "cost"])
    assert scores(here).metrics["cost"] is None
    assert scores(here).measured["cost"].why == (
        "the engine did not count the tokens of 1 of 3 answers"
    )


def test_what_has_no_basis_has_no_value_and_says_why(tmp_path: Path) -> None:
    here = run(tmp_path, watts=None, hardware={"gpus": [], "driver": None, "cpu": "EPYC"})
    measured = scores(here).measured
    assert {name for name in EVERY if scores(here).metrics[name] is None} == {
        "peak_gpu_memory", "energy", "cost",
    }  # fmt: skip
    assert measured["cost"].why == "site profile 'default' has no gpu_hour_price"
    assert measured["energy"].why == "no monitor of its workers read the power of a GPU"
    assert measured["peak_gpu_memory"].why == "no monitor of its workers read the memory of a GPU"


def test_energy_of_some_workers_alone_is_no_energy(tmp_path: Path) -> None:
    here = run(tmp_path, metrics=["exact_match", "energy"])
    other = here.worker_events("g0", "1_1-0")
    other.write_text(here.worker_events("g0", "1_0-0").read_text())
    evaluate(here)
    why = "only 1 of 2 workers have a monitor that read the power of GPUs"
    assert scores(here).measured["energy"].why == why
    here.worker_monitor("g0", "1_0-0").write_text("{not JSON\n")
    evaluate(here)
    assert scores(here).measured["energy"].why.startswith("a monitor's readings are damaged: ")


def test_a_percentile_needs_enough_answers(tmp_path: Path) -> None:
    here = run(tmp_path, [answer(n) for n in range(20)], metrics=["latency_p95", "ttft_p50"])
    assert value(here, "ttft_p50").n == 20
    assert scores(here).metrics["latency_p95"] is None
    why = "a percentile of 95 % needs 90 answers, and 20 have a value"
    assert scores(here).measured["latency_p95"].why == why


def test_failed_requests_have_no_time_whatever_the_policy(tmp_path: Path) -> None:
    answers = [answer(n) for n in range(10)]
    answers[3] = response("s3", None)
    records = [record(n) for n in range(10)]
    for policy in ("zero", "exclude"):
        here = experiment(
            tmp_path / policy, records, shard_size=10, metrics=["exact_match", "ttft_mean"],
            on_failed=policy,
        )  # fmt: skip
        write_attempt(here, 0, 1, answers)
        evaluate(here)
        assert value(here, "ttft_mean").n == 9
        assert value(here, "ttft_mean").value > 10


def test_an_unreadable_answer_took_its_time(tmp_path: Path) -> None:
    answers = [answer(n, text="") for n in range(10)]
    here = run(tmp_path, answers, metrics=["exact_match", "ttft_mean"])
    assert value(here, "ttft_mean").n == 10
    assert not scores(here).metrics["exact_match"] or scores(here).is_scored


def test_answers_of_one_chunk_have_no_tpot_and_are_no_faults(tmp_path: Path) -> None:
    answers = [response(f"s{n}") if n % 2 else answer(n) for n in range(10)]
    here = run(tmp_path, answers, metrics=["exact_match", "tpot"])
    assert value(here, "tpot").n == 5
    assert scores(here).faults == ()
    one = scores(here).measured["tpot"]
    assert (one.without, one.reason) == (5, "an answer of one chunk has no time between tokens")


@pytest.mark.long
def test_answers_of_earlier_experiments_have_no_times_but_tokens(tmp_path: Path) -> None:
    origin = {"experiment": "e", "run_task": "rt", "sample": "s", "piece": "0.1"}
    answers = [answer(n, reused_from=origin if n < 60 else None) for n in range(COUNT)]
    here = run(tmp_path / "some", answers)
    assert value(here, "ttft_p50").n == 40
    assert scores(here).measured["ttft_p50"].without == 60
    assert value(here, "answer_tokens").n == COUNT
    here = run(tmp_path / "all", [answer(n, reused_from=origin) for n in range(COUNT)])
    why = scores(here).measured["latency_mean"].why
    assert why == REUSED
    assert scores(here).is_scored


def test_resource_metrics_alone_do_not_make_a_run_scored(tmp_path: Path) -> None:
    """A metric of answers that scored nothing: that the answers took time is no score."""
    whole = {"asked": 2, "answered": 2, "measured": {"tpot": {"unit": "ms"}}}
    tpot = {"value": 5.0}
    assert not Scores.model_validate({**whole, "metrics": {"anls": None, "tpot": tpot}}).is_scored
    assert Scores.model_validate({**whole, "metrics": {"tpot": tpot}}).is_scored
    here = run(tmp_path, metrics=["ttft_p50", "tokens_per_second"])
    assert scores(here).is_scored and scores(here).wrong == 0


# --- tables -------------------------------------------------------------------------------------------


def shown(here: Experiment, cli: Cli, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = cli.json("score", here.path, "--json", *more)
    return found


def test_score_computes_them_on_an_old_experiment_by_group(tmp_path: Path, cli: Cli) -> None:
    here = run(tmp_path, metrics=["exact_match"])
    assert scores(here).to_json().get("measured") is None
    names = ("ttft_p50", "exact_match", "documents_per_hour")
    rows = shown(here, cli, "--metrics", ",".join(names))["rows"]
    assert {row["metric"]: row["n"] for row in rows} == dict.fromkeys(names, COUNT)
    rows = shown(here, cli, "--metrics", "ttft_p50,tokens_per_second", "--by", "kind")["rows"]
    assert [(row["metric"], row["by"]["kind"], row["n"]) for row in rows] == [
        ("ttft_p50", "a", 50), ("ttft_p50", "b", 50),
    ]  # fmt: skip
    assert {row["unit"] for row in rows} == {"ms"}


def test_what_is_of_the_whole_run_is_said_to_be_left_out_of_groups(
    tmp_path: Path, cli: Cli
) -> None:
    here = run(tmp_path, metrics=["exact_match"])
    said = cli.err("score", here.path, "--metrics", "cost,tpot", "--by", "kind", code=0)
    assert "cost: such a metric has one value for a whole run task" in said


@pytest.mark.parametrize("option", [["--by", "kind", "--macro"], ["--weight", "kind"]])
def test_a_percentile_is_neither_averaged_nor_weighed(
    measured: Experiment, cli: Cli, option: list[str]
) -> None:
    said = cli.err("score", measured.path, "--metrics", "ttft_p50", *option)
    assert "'ttft_p50' is a percentile" in said


def test_options_are_refused(measured: Experiment, cli: Cli) -> None:
    more = ["--metrics", "tpot", "--metric-option", "tpot.tau=1"]
    assert "metric 'tpot': unknown option 'tau'" in cli.err("score", measured.path, *more)


def test_a_file_of_predictions_has_none(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prediction": "a", "reference": "a"}\n')
    assert "ttft_p50 reads no prediction" in cli.err("metrics", "score", "ttft_p50", file)


# --- two runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Experiment]:
    """A run, and one of twice the time."""
    root = tmp_path_factory.mktemp("pair")
    site = {"gpu_hour_price": 2.0, "currency": "EUR"}
    memory = {"gpu_peak": 2**30, "gpu_peak_source": "processes"}
    slow = [answer(number, 2.0) for number in range(COUNT)]
    return (
        run(root, site=site, memory=memory, name="20261120-1432-plan-aaaa"),
        run(
            root,
            slow,
            site=site,
            memory={**memory, "gpu_peak": 2**31},
            name="20261120-1432-plan-bbbb",
        ),
    )


@pytest.mark.long
def test_two_runs_are_compared_by_their_own_intervals(pair: tuple[Experiment, Experiment]) -> None:
    (result,) = compare_many(pair[0], [pair[1]])
    found = {one.metric: one for one in result.compared}
    assert set(found) == {"exact_match", *EVERY}
    assert found["exact_match"].paired and not found["tpot"].paired
    ttft = found["ttft_mean"]
    assert ttft.difference == pytest.approx(value(pair[0], "ttft_mean").value)
    low, high = ttft.comparison.interval.low, ttft.comparison.interval.high
    assert low is not None and high is not None and 0 < low < ttft.difference < high
    assert ttft.comparison.verdict == "worse"
    assert found["answer_tokens"].comparison.verdict == "inconclusive"
    assert found["peak_gpu_memory"].comparison.interval.low is None
    assert any("each side is one run" in text for text in result.caveats)


def test_compare_prints_units_and_no_won_samples(
    pair: tuple[Experiment, Experiment], cli: Cli
) -> None:
    printed = cli("compare", *(str(one.path) for one in pair), "--metric", "latency_p95")
    assert "latency_p95, ms" in printed and "exact_match" not in printed
    both = ["--metric", "latency_p95,exact_match"]
    printed = cli("compare", *(str(one.path) for one in pair), *both)
    assert "latency_p95, ms" in printed and "exact_match" in printed


def test_times_of_other_machines_are_refused_and_costs_are_not(
    pair: tuple[Experiment, Experiment], tmp_path: Path
) -> None:
    other = run(
        tmp_path,
        hardware={**A100, "gpus": ["NVIDIA H100"]},
        site={"gpu_hour_price": 5.0, "currency": "EUR"},
        memory={"gpu_peak": 2**30, "gpu_peak_source": "device"},
    )
    (result,) = compare_many(pair[0], [other])
    compared = {one.metric for one in result.compared}
    assert compared == {"exact_match", "answer_tokens", "energy", "cost"}
    refused = {one.metric: one.why for one in result.refused}
    assert "GPUs differ: NVIDIA A100 → NVIDIA H100" in refused["ttft_p50"]
    assert "measured in different ways" in refused["peak_gpu_memory"]


def test_other_currencies_and_missing_values_are_refused(
    pair: tuple[Experiment, Experiment], tmp_path: Path
) -> None:
    site = {"gpu_hour_price": 2.0, "currency": "USD"}
    other = run(tmp_path, watts=None, site=site)
    refused = {one.metric: one.why for one in compare_many(pair[0], [other])[0].refused}
    assert "currency:EUR" in refused["cost"] and "currency:USD" in refused["cost"]
    assert refused["energy"].startswith("'energy' has no value in the candidate: no monitor")


def gate(**metrics: Any) -> Gate:
    return Gate.model_validate({"name": "g", "metrics": metrics})


def test_a_gate_judges_a_resource_metric_by_its_own_rule(
    pair: tuple[Experiment, Experiment], tmp_path: Path
) -> None:
    policy = gate(
        **{
            "*": {"absolute": 0.5},
            "ttft_mean": {"relative": 0.1},
            "answer_tokens": {"absolute": 1},
        },
        peak_gpu_memory={"relative": 0.1},
        energy={"absolute": 1},
    )
    checks = {one.what: one for one in judge(*pair, policy, state="done").checks}
    assert checks["ttft_mean"].verdict == "fail" and checks["ttft_mean"].kind == "speed"
    assert checks["answer_tokens"].verdict == "inconclusive"  # all answers alike: no interval
    assert checks["peak_gpu_memory"].verdict == "fail"
    assert "tpot" not in checks, "a rule for all metrics is meant for scores"
    assert "repeat the run" in checks["energy"].why
    same = {one.what: one for one in judge(pair[1], pair[0], policy, state="done").checks}
    assert same["ttft_mean"].verdict == same["peak_gpu_memory"].verdict == "pass"


def test_a_gate_of_resources_alone_can_pass(pair: tuple[Experiment, Experiment]) -> None:
    verdict = judge(pair[1], pair[0], gate(ttft_mean={"relative": 0.1}), state="done")
    assert (verdict.verdict, verdict.reasons[1:]) == ("GO", ())


def test_a_gate_without_a_value_is_inconclusive_in_one_line(tmp_path: Path) -> None:
    one = run(tmp_path, name="20261120-1432-plan-aaaa", metrics=["exact_match", "cost"])
    other = run(tmp_path, name="20261120-1432-plan-bbbb", metrics=["exact_match", "cost"])
    verdict = judge(one, other, gate(cost={"relative": 0.1}), state="done")
    assert verdict.verdict == "INCONCLUSIVE"
    (reason,) = (line for line in verdict.reasons if "cost" in line)
    assert reason.endswith("no value in the baseline: site profile 'default' has no gpu_hour_price")


def test_history_keeps_machines_apart(measured: Experiment) -> None:
    remember(measured)
    rows = history_table(measured.path.parent.parent)
    assert rows is not None
    found = {row["name"]: row for row in rows.iter_rows(named=True)}
    assert set(EVERY) <= set(found)
    assert found["cost"]["kind"] == "speed" and "NVIDIA A100" in found["cost"]["signature"]
    assert found["answer_tokens"]["kind"] == "quality"
    assert "A100" not in found["answer_tokens"]["signature"]
    assert len(rows.filter(rows["name"] == "ttft_p50")) == 1


# --- parts --------------------------------------------------------------------------------------------


def test_a_table_of_several_run_tasks_needs_no_figures(measured: Experiment) -> None:
    from hpcbench.evaluation.stage import score, subject_of

    one, _ = score(measured, subject_of(measured, measured.run_task("rt")))
    names = {row.metric for row in table([one])}
    assert names == {"exact_match", *OF_ANSWERS}, "figures are added by `with_figures`"
    with pytest.raises(UserError, match="percentile"):
        table([one], ["kind"], macro=True)


def test_old_files_without_the_field_are_read(tmp_path: Path) -> None:
    here = run(tmp_path, metrics=["exact_match"])
    write_json(here.metrics_file, metrics_of(here).to_json())
    assert scores(here).measured == {}
    assert Measured().basis == "times"


def test_the_unit_is_known_by_the_signature_alone() -> None:
    for name in ("ttft_p50", "latency_mean", "answer_tokens", "energy", "documents_per_hour"):
        metric = plugins.load("metrics", name)()
        assert unit_of(metric.signature) == metric.unit
    assert unit_of("cost|currency:EUR|v1") == "EUR per 1,000 documents"
    assert unit_of("cost|currency:none|v1") == "per 1,000 documents"
    assert unit_of("anls|tau:0.5|v1") == unit_of("") == ""
