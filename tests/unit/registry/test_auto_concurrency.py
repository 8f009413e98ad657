"""`concurrency: auto`: the engine's own number, and 1 where latency or peak memory is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.errors import UserError
from hpcbench.evaluation.performance import write_performance
from hpcbench.experiment.claims import Owner
from hpcbench.experiment.view.performance_json import Load, performance_of
from hpcbench.files.atomic import read_json
from hpcbench.inference.adaptive import Adaptive
from hpcbench.registry.ab import side_by_side
from hpcbench.registry.auto_concurrency import auto
from hpcbench.reporting.sections.speed import _chosen
from hpcbench.schema.gate import Gate
from hpcbench.schema.plan import Arms, ResolvedRunTask
from hpcbench.worker.process import Worker
from tests.unit.registries import PLAN, Files
from tests.unit.small import experiment, record, run_task


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.delenv("RUN_MODE", raising=False)
    return Files(tmp_path)


def wanting_auto(**task: Any) -> ResolvedRunTask:
    return run_task(**{"concurrency": "auto", **task})


class Batching:
    """An engine of another author that gives its number."""

    def at_once(self, options: Any, gpus: int) -> int:
        return options.get("lanes", 3) * max(1, gpus)


@pytest.mark.parametrize(
    ("engine", "gpus", "options", "count"),
    [
        ("vllm", 1, {}, 64),
        ("vllm", 8, {}, 64),
        ("vllm", 1, {"max_num_seqs": 4}, 4),
        ("vllm", 1, {"max-num-seqs": 16}, 16),
        ("vllm", 1, {"max_num_seqs": 1024}, 64),
        ("vllm", 0, {}, 4),
        ("vllm", 0, {"max_num_seqs": 2}, 2),
        ("sglang", 1, {"max_running_requests": 12}, 12),
        ("sglang", 0, {}, 4),
        ("deepseek_ocr", 1, {}, 64),
        ("deepseek_ocr_sglang", 1, {}, 64),
        ("remote", 0, {"base_url": "https://x/v1", "model": "m"}, 8),
        ("huggingface", 1, {}, 1),
    ],
)
def test_each_engine_has_a_number_that_follows_from_documents(
    files: Files, engine: str, gpus: int, options: dict[str, Any], count: int
) -> None:
    source = "" if engine == "remote" else "source: ../../weights\n"
    files.write(
        "models/org/tiny.yaml",
        f"name: org/tiny\n{source}engine: {engine}\ngpus: {gpus}\nengine_options: {options}\n",
    )
    assert files.resolved().run_tasks[0].in_flight == count


@pytest.mark.parametrize(
    "words",
    ["measure: latency", "slo: {ttft_ms: 500}", "measure: latency\n    slo: {e2e_ms: 9}"],
)
def test_a_run_task_that_measures_latency_is_asked_one_at_a_time(files: Files, words: str) -> None:
    assert files.resolved(PLAN + f"    {words}\n").run_tasks[0].in_flight == 1


def test_what_a_run_task_says_itself_comes_before_all_else(files: Files) -> None:
    slo = "    slo: {ttft_ms: 500}\n"
    assert files.resolved(PLAN + slo + "    measure: throughput\n").run_tasks[0].in_flight == 64
    assert files.resolved(PLAN + slo + "    concurrency: 5\n").run_tasks[0].in_flight == 5
    (reported,) = files.refusal(PLAN + "    measure: speed\n")
    assert "measure" in reported or "p.yaml:8:14" in reported


@pytest.mark.parametrize(
    ("gate", "count"),
    [
        ({"speed": {"ttft_p95": {"relative": 0.1, "level": "critical"}}}, 1),
        ({"speed": {"*": {"relative": 0.1, "level": "critical"}}}, 1),
        ({"memory": {"gpu_peak": {"relative": 0.1, "level": "critical"}}}, 1),
        ({"speed": {"ttft_p95": {"relative": 0.1, "level": "advisory"}}}, 3),
        ({"speed": {"answers_per_s": {"relative": 0.1, "level": "critical"}}}, 3),
        ({"speed": {"other:ttft_p95": {"relative": 0.1, "level": "critical"}}}, 3),
        ({"metrics": {"anls": {"absolute": 0.1}}}, 3),
    ],
)
def test_a_gate_that_is_decided_by_latency_or_memory_measures_them(
    gate: dict[str, Any], count: int
) -> None:
    definition = Gate.model_validate({"name": "g", **gate})
    assert auto(wanting_auto(), Batching, definition) == count


def test_arms_that_are_compared_by_a_latency_are_asked_one_at_a_time(files: Files) -> None:
    sides = [files.resolved(PLAN, f"models/org/tiny:dtype={one}") for one in ("float16", "float32")]
    for figures, count in ((("ttft_ms",), 1), (("answers_per_s",), 64), ((), 64)):
        both = side_by_side(sides[0], sides[1], Arms(metrics=figures), ())
        assert [one.in_flight for one in both.run_tasks] == [count, count]


def test_an_engine_of_others_says_its_number_or_is_asked_one_at_a_time() -> None:
    task = wanting_auto(model={"engine_options": {"lanes": 5}, "gpus": 2})
    assert auto(task, Batching) == 10
    assert auto(task, object) == 1
    assert auto(task, None) == 1
    assert auto(run_task(concurrency=7), Batching) is None


@pytest.mark.parametrize("wrong", [0, -1, "8", 2.5, None, True])
def test_an_engine_that_gives_no_number_is_reported_in_a_line(wrong: object) -> None:
    engine = type("Wrong", (), {"at_once": lambda self, options, gpus: wrong})
    with pytest.raises(UserError, match="it must be a whole number above 0"):
        auto(wanting_auto(), engine)


def test_an_engine_that_cannot_say_is_reported_in_a_line_too() -> None:
    class Failing:
        def at_once(self, options: Any, gpus: int) -> int:
            return int(options["lanes"])

    with pytest.raises(UserError, match="engine 'vllm' gives no number for .* KeyError: 'lanes'"):
        auto(wanting_auto(), Failing)


# --- what a worker does with it, and what is reported ---------------------------------------------------


def worker(folder: Path, count: int | None, **task: Any) -> Worker:
    here = experiment(folder, [record(0)], **{"concurrency": "auto", **task})
    plan = here.resolved
    changed = plan.run_tasks[0].model_copy(update={"at_once": count})
    here.resolved_file.write_text(
        plan.model_copy(update={"run_tasks": (changed,)}).model_dump_json()
    )
    fresh = type(here)(here.path)
    return Worker(fresh, fresh.work.groups[0], Owner.here())


@pytest.mark.parametrize(("count", "most"), [(64, 64), (1, 1)])
def test_a_worker_asks_as_many_as_the_plan_says(tmp_path: Path, count: int, most: int) -> None:
    one = worker(tmp_path, count)
    assert one._concurrency(one.experiment.run_task("rt")) == most


def test_a_worker_of_an_earlier_plan_looks_for_the_number(tmp_path: Path) -> None:
    one = worker(tmp_path, None)
    found = one._concurrency(one.experiment.run_task("rt"))
    assert isinstance(found, Adaptive)
    assert found.most == 256


def test_what_was_chosen_is_written_once_and_is_in_performance_and_report(tmp_path: Path) -> None:
    one = worker(tmp_path, 8)
    task, searched = one.experiment.run_task("rt"), Adaptive(8)
    one.owner = one.events.open()
    for limit in (4, 4, 8):
        searched.limit = limit
        one._tell_chosen(task, searched)
    one.events.close("finished")
    ((_, events),) = one.experiment.worker_records()
    assert [each["at_once"] for each in events if each["event"] == "concurrency"] == [4, 8]
    write_performance(one.experiment)
    performance = read_json(one.experiment.performance_file)
    load = performance["run_tasks"]["rt"]["load"]
    assert (load["concurrency"], list(load["chosen"].values())) == (8, [8])
    assert Load(**{**load, "chosen": {"w0": 4, "w1": 8}}).at_once == "4 to 8"
    part = _chosen(performance_of(one.experiment).run_tasks)
    assert part is not None
    assert part.blocks[0].rows == (("rt", "8", "1", next(iter(load["chosen"]))),)  # type: ignore[union-attr]


def test_a_number_in_the_plan_is_no_choice(tmp_path: Path) -> None:
    one = worker(tmp_path, None, concurrency=2)
    one.owner = one.events.open()
    one._tell_chosen(one.experiment.run_task("rt"), 2)
    one.events.close("finished")
    write_performance(one.experiment)
    performance = read_json(one.experiment.performance_file)
    assert performance["run_tasks"]["rt"]["load"]["chosen"] is None
    assert _chosen(performance_of(one.experiment).run_tasks) is None


@pytest.mark.parametrize(
    ("key", "count"),
    [
        ("ttft_p50", 1),
        ("rt:peak_gpu_memory", 1),
        ("other:ttft_p50", 3),
        ("answer_tokens", 3),
        ("*", 3),
    ],
)
def test_a_gate_that_is_decided_by_a_metric_of_latency_measures_it(key: str, count: int) -> None:
    gate = Gate.model_validate({"name": "g", "metrics": {key: {"relative": 0.1}}})
    named = wanting_auto(metrics=["anls", "ttft_p50", "peak_gpu_memory", "answer_tokens"])
    assert auto(named, Batching, gate) == count
    assert auto(wanting_auto(metrics=["anls"]), Batching, gate) == 3
