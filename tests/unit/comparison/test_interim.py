"""Looks at two arms while they run: when, at what, what follows, and what they say of speed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.ab import _notes, ab
from hpcbench.comparison.ab import FIGURES, PairOfBlocks, compare_speed, costs, paired_blocks
from hpcbench.comparison.interim import alpha_each, endpoints, last_looks, look
from hpcbench.evaluation import stage
from hpcbench.experiment.control import control_request, control_state
from hpcbench.experiment.interim import due, halves, is_due, keep, looks_at, settle, states_in
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.experiment.view.usage import Hours, Usage
from hpcbench.files.atomic import Appender, create_exclusive, write_atomic, write_json
from hpcbench.number_format import why_inconclusive
from hpcbench.planning import plan_work
from hpcbench.reporting.methods import methods, to_json
from hpcbench.schema.plan import Arms
from hpcbench.schema.records import Times
from hpcbench.statistics import nominal_levels
from tests.unit.reporting.many import MANIFEST
from tests.unit.small import measured, record, resolved, response, run_task, write_dataset

SAMPLES = 160
SIZE = 4
SHARDS = SAMPLES // SIZE


class Scene:
    """Two arms of `x`, blocks of four samples of four documents; no worker has started yet."""

    def __init__(self, root: Path, *, own_shapes: bool = False, **arms: Any) -> None:
        data = write_dataset(root / "data", [record(number) for number in range(SAMPLES)])
        tasks = [
            run_task(
                f"x.{arm}",
                model={"name": f"m.{arm}", "gpus": 1 + (own_shapes and arm == "b")},
                dataset={"source": str(data)},
                metrics=("exact_match", "anls"),
            ).model_copy(update={"pair": "x", "arm": arm})
            for arm in "ab"
        ]
        plan = resolved(*tasks, shard_size=SIZE).model_copy(update={"arms": Arms(**arms)})
        self.experiment = Experiment(root / "experiments" / "20261120-1432-plan-aaaa")
        work = plan_work(plan, measured(plan, SAMPLES))
        write_atomic(self.experiment.resolved_file, plan.model_dump_json())
        write_json(
            self.experiment.manifest_file,
            {
                **MANIFEST,
                "work": asdict(work),
                "measured": {"dataset_hashes": {}, "model_hashes": {}},
            },
        )
        chosen = {task.name: [(0, SAMPLES)] for task in tasks}
        write_json(self.experiment.chosen_file, chosen)

    def answered(
        self,
        arm: str,
        shards: Sequence[int],
        right: Callable[[int], bool] = lambda number: True,
        *,
        ms: float = 100.0,
        job: str = "1_0",
        end: str = "done",
        late: float = 0.0,
    ) -> None:
        """Blocks of an arm, each answer taking so long, one after the other."""
        for index in shards:
            owner = {"job": job, "restart": 0, "host": "h", "pid": 7, "node": "n1"}
            if not job:  # a damaged record
                owner = {"restart": 0}
            at = 100.0 * index + late + (50.0 if (arm == "b") == (index % 2 == 0) else 0.0)
            events = self.experiment.shard_events(f"x.{arm}", index, 1)
            create_exclusive(events, {"event": "claimed", "time": at, "owner": owner})
            with Appender(self.experiment.shard_responses(f"x.{arm}", index, 1)) as file:
                for place in range(SIZE):
                    number = index * SIZE + place
                    took = int(ms * 1e6)
                    start = place * took
                    times = Times(
                        start, start, start + 1, (start + took // 2, start + took), start + took
                    )
                    text = str(number) if right(number) else "wrong"
                    usage = {"prompt_tokens": 5, "completion_tokens": 5}
                    file.write(response(f"s{number}", text, times=times, usage=usage).to_json())
            with Appender(events) as file:
                file.write({"event": end, "time": at + 10, "answered": SIZE})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def many(share: float) -> range:
    return range(int(share * SHARDS))


def table(scene: Scene, capsys: pytest.CaptureFixture[str]) -> str:
    """The table that `hpcbench ab EXPERIMENT` prints, without breaks."""
    arguments = argparse.Namespace(
        what=str(scene.experiment.path), a=[], b=[], other=None, json=False
    )
    assert ab(arguments) == 0
    return " ".join(capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ").split())


# --- what the table says ------------------------------------------------------------------------------


@pytest.mark.long
def test_the_table_has_coverage_tokens_and_cost_of_both_plans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(tmp_path, plans=("A.yaml", "B.yaml"))
    for arm in "ab":
        scene.answered(arm, range(SHARDS), lambda number, arm=arm: arm == "a" or number % 2 == 0)  # type: ignore[misc]
    found = look(scene.experiment, "x", last=True)
    assert found is not None
    assert found["answers"]["a"] == {"coverage": 1.0, "prompt_tokens": 5, "completion_tokens": 5}
    stage.evaluate(scene.experiment)
    hours = [Hours(run_task=f"x.{arm}", allocated=hour) for arm, hour in (("a", 0.5), ("b", 1.0))]
    write_json(scene.experiment.usage_file, Usage(hours=tuple(hours)).model_dump(mode="json"))
    plan = scene.experiment.resolved
    site = plan.site.model_copy(update={"gpu_hour_price": 2.0, "currency": "EUR"})
    priced = plan.model_copy(update={"site": site})
    write_atomic(scene.experiment.resolved_file, priced.model_dump_json())
    said = table(scene, capsys)
    assert "arm a: A.yaml arm b: B.yaml" in said
    assert "coverage ↑ 1.000 1.000 +0.000" in said
    assert "completion_tokens ↓ 5.00 tokens 5.00 tokens × 1.000" in said
    documents = {one.documents for one in metrics_of(scene.experiment).run_tasks.values()}
    assert documents == {SAMPLES}
    assert "gpu_seconds_per_document 11.2 s 22.5 s × 2.000" in said
    assert "cost_per_1000_documents 6.25 EUR 12.5 EUR × 2.000" in said


# --- when ---------------------------------------------------------------------------------------------


@pytest.mark.long
def test_looks_stand_at_fixed_shares_of_what_both_arms_have_done(scene: Scene) -> None:
    scene.answered("a", range(SHARDS))
    scene.answered("b", many(0.2))
    assert not due(scene.experiment, "x")
    scene.answered("b", range(int(0.2 * SHARDS), int(0.3 * SHARDS)))
    assert halves(scene.experiment, "x").fraction == 0.3
    assert due(scene.experiment, "x")
    found = look(scene.experiment, "x")
    assert found is not None
    assert (found["done"], found["samples"]) == (12, 48)
    # The next one is at 3/8; that more is answered before makes no look.
    assert not due(scene.experiment, "x")
    assert look(scene.experiment, "x") is None
    scene.answered("b", range(12, 15))
    assert due(scene.experiment, "x")


@pytest.mark.long
def test_without_early_stopping_no_look_comes_before_the_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path, early_stop=False)
    for arm in "ab":
        scene.answered(arm, many(0.5))
    assert not due(scene.experiment, "x")
    last_looks(scene.experiment)
    (only,) = looks_at(scene.experiment, "x")
    assert only["nominal"] == pytest.approx(0.05)


@pytest.mark.long
def test_the_last_look_at_all_there_is_is_made_when_nothing_more_comes(scene: Scene) -> None:
    for arm in "ab":
        scene.answered(arm, range(SHARDS))
    assert not due(scene.experiment, "x")
    last_looks(scene.experiment)
    last_looks(scene.experiment)
    (only,) = looks_at(scene.experiment, "x")
    assert (only["fraction"], only["last"], only["stop"]) == (1.0, True, False)


def test_of_two_looks_at_once_the_first_counts(scene: Scene) -> None:
    assert keep(scene.experiment, "x", 0, {"fraction": 0.3, "stop": False})
    assert not keep(scene.experiment, "x", 0, {"fraction": 0.3, "stop": True})
    assert [one["stop"] for one in looks_at(scene.experiment, "x")] == [False]


# --- what follows -------------------------------------------------------------------------------------


@pytest.mark.long
def test_arms_that_are_distinguished_end_and_only_whole_blocks_count(scene: Scene) -> None:
    scene.answered("a", many(0.5))
    scene.answered("b", many(0.3), lambda number: number % 2 == 0)
    scene.answered("b", [30], end="drained")
    found = look(scene.experiment, "x")
    assert found is not None
    assert found["stop"]
    assert found["verdicts"] == {"exact_match": "worse"}
    (first, *_) = found["quality"]
    assert (first["baseline"], first["candidate"]) == (1.0, 0.5)
    settle(scene.experiment)
    now = control_state(scene.experiment)
    assert {"x.a", "x.b"} == now.enough_tasks.keys()
    assert now.ended("x.a")
    assert now.rests("x.b")
    assert not due(scene.experiment, "x")
    stage.evaluate(scene.experiment)
    metrics = json.loads(scene.experiment.metrics_file.read_text())["run_tasks"]
    assert [metrics[f"x.{arm}"]["asked"] for arm in "ab"] == [80, 48]
    assert [metrics[f"x.{arm}"]["coverage"] for arm in "ab"] == [1.0, 1.0]


@pytest.mark.long
def test_a_kill_between_the_look_and_the_wish_leaves_the_wish_to_the_next(scene: Scene) -> None:
    scene.answered("a", many(0.5))
    scene.answered("b", many(0.5), lambda number: False)
    look(scene.experiment, "x")
    assert not control_state(scene.experiment).enough_tasks
    assert not due(scene.experiment, "x")  # what every worker asks after a shard
    assert control_state(scene.experiment).enough_tasks.keys() == {"x.a", "x.b"}


def test_who_resumes_what_was_ended_has_her_way(scene: Scene) -> None:
    keep(scene.experiment, "x", 0, {"fraction": 0.5, "stop": True, "why": "b is worse"})
    settle(scene.experiment)
    control_request(scene.experiment, "resume")
    assert control_state(scene.experiment).enough_tasks  # of the whole: what is not needed stays so
    control_request(scene.experiment, "resume", ["x.a", "x.b"])
    settle(scene.experiment)
    assert not control_state(scene.experiment).enough_tasks


@pytest.mark.long
def test_without_a_difference_nothing_ends_but_within_a_margin_it_does(tmp_path: Path) -> None:
    for margins, stop in (({}, False), ({"exact_match": 0.2}, True), ({"*": 0.2}, True)):
        scene = Scene(tmp_path / str(len(list(tmp_path.iterdir()))), margins=margins)
        for arm, number in (("a", 0), ("b", 1)):
            scene.answered(arm, many(0.75), lambda n, k=number: n % 30 != k)  # type: ignore[misc]
        found = look(scene.experiment, "x")
        assert found is not None
        assert found["stop"] is stop


@pytest.mark.long
def test_each_look_has_what_the_looks_before_it_left_of_the_risk(scene: Scene) -> None:
    times = []
    for begin, end in ((0, 11), (11, 20), (20, 36)):
        for arm in "ab":
            scene.answered(arm, range(begin, end))
        assert look(scene.experiment, "x") is not None
        times.append(end / SHARDS)
    found = looks_at(scene.experiment, "x")
    assert [one["nominal"] for one in found] == pytest.approx(nominal_levels(times))
    levels = [one["quality"][0]["interval"]["level"] for one in found]
    assert levels == pytest.approx([1 - one["nominal"] for one in found])


def test_the_risk_is_divided_among_all_that_decides(tmp_path: Path) -> None:
    scene = Scene(tmp_path, metrics=("anls", "answers_per_s"))
    assert endpoints(scene.experiment.resolved, "x") == ("anls", "answers_per_s")
    assert alpha_each(scene.experiment.resolved) == pytest.approx(0.025)
    for arm, ms in (("a", 100.0), ("b", 150.0)):
        scene.answered(arm, many(0.5), ms=ms)
    found = look(scene.experiment, "x")
    assert found is not None
    # One of the two is undecided: it goes on.
    assert found["verdicts"] == {"anls": "inconclusive", "answers_per_s": "inconclusive"}
    assert not found["stop"]


def test_a_figure_of_speed_may_decide(tmp_path: Path) -> None:
    scene = Scene(tmp_path, metrics=("e2e_ms",))
    for index in many(0.5):
        scene.answered("a", [index], ms=100.0 + index % 3)
        scene.answered("b", [index], ms=150.0 + index % 5)
    found = look(scene.experiment, "x")
    assert found is not None
    assert found["verdicts"] == {"e2e_ms": "worse"}
    assert found["stop"]


@pytest.mark.parametrize("fraction", [0.0, 0.249, 1.0])
def test_no_look_is_due_too_early_or_at_the_very_end(scene: Scene, fraction: float) -> None:
    done = halves(scene.experiment, "x")
    object.__setattr__(done, "both", tuple(range(int(fraction * SHARDS))))
    assert not is_due([], done)


# --- speed --------------------------------------------------------------------------------------------


def blocks_of(scene: Scene) -> tuple[list[PairOfBlocks], int]:
    here = scene.experiment
    return paired_blocks(here, ("x.a", "x.b"), states_in(here, "x"), halves(here, "x"))


def test_ratios_are_of_blocks_of_one_worker_over_the_same_samples(scene: Scene) -> None:
    for index in range(12):
        node = 1.0 + index  # nodes differ twelvefold, arms by a quarter
        scene.answered("a", [index], ms=80.0 * node, job=f"1_{index}")
        scene.answered("b", [index], ms=(100.0 + index % 3) * node, job=f"1_{index}")
    blocks, apart = blocks_of(scene)
    assert (len(blocks), apart) == (12, 0)
    assert [one.a_first for one in blocks[:4]] == [True, False, True, False]
    found = compare_speed(blocks, "e2e_ms")
    assert found is not None
    assert found.ratio == pytest.approx(1.262, abs=0.001)
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low < 0.02
    assert found.verdict == "worse"
    faster = compare_speed(blocks, "answers_per_s")
    assert faster is not None
    assert faster.ratio == pytest.approx(1 / found.ratio)


def test_blocks_of_two_workers_or_in_several_goes_make_no_pair(scene: Scene) -> None:
    scene.answered("a", range(3), job="1_0")
    scene.answered("b", [0, 1], job="1_0")
    scene.answered("b", [2], job="1_1")
    with Appender(scene.experiment.shard_responses("x.b", 1, 2)) as file:
        file.write(response("s4").to_json())
    create_exclusive(scene.experiment.shard_events("x.b", 1, 2), {"event": "done", "time": 9.0})
    blocks, apart = blocks_of(scene)
    assert ([one.shard for one in blocks], apart) == ([0], 2)


def test_blocks_whose_worker_is_not_recorded_make_no_pair(scene: Scene) -> None:
    scene.answered("a", [0, 1], job="1_0")
    scene.answered("b", [0], job="1_0")
    scene.answered("b", [1], job="")
    for arm in "ab":
        scene.answered(arm, [2], job="")
    blocks, apart = blocks_of(scene)
    assert ([one.shard for one in blocks], apart) == ([0], 2)


def test_a_margin_of_speed_is_a_share_in_either_direction(scene: Scene) -> None:
    for index in range(12):
        scene.answered("a", [index], ms=100.0 + index % 3)
        scene.answered("b", [index], ms=100.5 + index % 2)
    blocks, _ = blocks_of(scene)
    assert [
        one.verdict
        for margin in (None, 0.005, 0.05)
        if (one := compare_speed(blocks, "e2e_ms", margin=margin))
    ] == ["inconclusive", "inconclusive", "equivalent"]


@pytest.mark.long
def test_arms_of_two_shapes_have_no_ratio_of_speeds(tmp_path: Path) -> None:
    scene = Scene(tmp_path, own_shapes=True)
    for arm in "ab":
        scene.answered(arm, many(0.5))
    found = look(scene.experiment, "x")
    assert found is not None
    assert (found["same_nodes"], found["speed"]) == (False, [])
    assert found["quality"]


def test_every_figure_comes_from_the_stamps_of_its_block(scene: Scene) -> None:
    """Four answers one after the other, 100 ms each, two chunks at 50 and 100 ms, five tokens."""
    for arm in "ab":
        scene.answered(arm, [0])
    ((only,), _) = blocks_of(scene)
    expected = {
        "answers_per_s": 10.0, "tokens_per_s": 50.0, "ttft_ms": 50.0, "tpot_ms": 12.5, "e2e_ms": 100.0,
    }  # fmt: skip
    assert set(FIGURES) == set(expected)
    assert {name: a for name, (a, _) in only.figures.items()} == pytest.approx(expected)


def test_loads_and_memory_are_counted_apart_by_arm(scene: Scene) -> None:
    with Appender(scene.experiment.worker_events("g0", "1_0-0")) as file:
        for seconds, arm in ((10.0, "a"), (20.0, "b"), (14.0, "a")):
            file.write({"event": "model_ready", "model": f"m.{arm}", "seconds": seconds})
        for arm, peak in (("a", 5), ("b", 7)):
            memory = {"gpu_peak": peak, "host_source": "job"}
            file.write({"event": "monitor", "run_task": f"x.{arm}", "memory": memory})
    found = costs(scene.experiment, ("x.a", "x.b"))
    assert found["a"] == {"loads": 2, "load_seconds": 12.0, "memory": {"gpu_peak": 5}}
    assert found["b"] == {"loads": 1, "load_seconds": 20.0, "memory": {"gpu_peak": 7}}


# --- the report ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_methods_section_says_how_arms_were_compared(tmp_path: Path) -> None:
    """And that no look was made, before there is one."""
    scene = Scene(tmp_path, a=("models/m:dtype=float32",))

    def written() -> dict[str, str]:
        sections = to_json(methods(scene.experiment))["sections"]
        return {one["name"]: "\n".join(one["paragraphs"]) for one in sections}

    for arm in "ab":
        scene.answered(arm, range(SHARDS))
    settle(scene.experiment)
    stage.evaluate(scene.experiment)
    assert "A comparison of the arms of run task x: no look was made." in written()["missing"]
    last_looks(scene.experiment)
    found = written()
    assert "a (`models/m:dtype=float32`) and b (the plan unchanged)" in found["statistics"]
    assert "The risk of any false alarm is 0.05" in found["statistics"]
    assert "The risk of each endpoint is spent over repeated looks" in found["statistics"]
    assert f"last look after {SHARDS} of {SHARDS} pairs of blocks" in found["statistics"]
    assert "no look was made" not in found["missing"]


@pytest.mark.long
def test_the_report_tells_what_the_arms_are_and_misses_nothing_that_was_not_needed(
    scene: Scene,
) -> None:
    from hpcbench.reporting.writing import report

    half = many(0.5)
    scene.answered("a", half)
    scene.answered("b", half, right=lambda number: False)
    assert look(scene.experiment, "x")
    settle(scene.experiment)
    stage.evaluate(scene.experiment)
    tables = report(scene.experiment)
    (reported,) = tables["arms"]["run_tasks"]
    assert (reported["run_task"], reported["done"], reported["of"]) == ("x", len(half), SHARDS)
    assert reported["stopped"] is not None
    assert [one["what"] for one in reported["answers"]] == [
        "coverage",
        "prompt_tokens",
        "completion_tokens",
    ]
    (quality, *_) = reported["quality"]
    assert (quality["what"], quality["a"], quality["b"]) == ("exact_match", 1, 0)
    assert (quality["verdict"], quality["decides"]) == ("worse", True)
    assert tables["left"] == 0, "what was not needed is not missing"
    text = (scene.experiment.report_dir / "report.md").read_text()
    assert "Two arms in turns" in text
    assert "Stopped early: b against a" in text
    assert "Incomplete" not in text


# --- why nothing is decided ---------------------------------------------------------------------------


def comparison(p: float, low: float | None, high: float | None, **more: Any) -> dict[str, Any]:
    interval = {"low": low, "high": high, "level": 1 - 0.016, "method": "too few documents"}
    reported = {"verdict": "inconclusive", "p_value": p, "p_adjusted": None, "margin": None}
    return {**reported, "interval": interval, **more}


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (comparison(0.3, -0.1, 0.1), "p = 0.3 is above 0.016, the level of this look"),
        (
            comparison(0.0161, -0.069, -0.002),
            "p = 0.0161 is above 0.016, the level of this look; the interval excludes 0, but `better` and "
            "`worse` also need the p-value",
        ),
        (
            comparison(0.2, -0.1, 0.1, margin=0.05),
            "p = 0.2 is above 0.016, the level of this look; the interval is not within ± 0.05",
        ),
        (comparison(1.0, None, None), "there is no interval: too few documents"),
        (comparison(0.001, 0.1, 0.2, verdict="better"), None),
    ],
)
def test_an_inconclusive_comparison_says_why(one: dict[str, Any], why: str | None) -> None:
    assert why_inconclusive(one, "the level of this look") == why


@pytest.mark.long
def test_the_table_of_ab_explains_a_verdict_beside_an_interval_with_0(scene: Scene) -> None:
    scene.answered("a", many(0.75))
    scene.answered("b", many(0.75), right=lambda number: number % 12 != 0)
    found = look(scene.experiment, "x")
    assert found is not None
    for one in found["quality"]:
        one["verdict"], one["interval"] = "worse", {**one["interval"], "low": -0.5, "high": 0.1}
    lines = [*_notes(found, scene.experiment.resolved.arms)]
    (said,) = (line for line in lines if "contains 0" in line)
    for one in found["quality"]:
        assert f"{one['metric']} is worse (p = {one['p_value']:.2g})" in said


def test_the_table_of_ab_says_why_with_p_and_the_level_of_the_look(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.answered("a", many(0.25))
    scene.answered("b", many(0.25), right=lambda number: number % 12 != 0)
    found = look(scene.experiment, "x")
    assert found is not None
    (one,) = (one for one in found["quality"] if one["metric"] == "exact_match")
    assert one["verdict"] == "inconclusive"
    arguments = argparse.Namespace(
        what=f"{scene.experiment.path}/", a=[], b=[], other=None, json=False
    )
    assert ab(arguments) == 0
    said = capsys.readouterr().out
    p, level = f"{one['p_value']:.4g}", f"{found['nominal']:.4g}"
    assert f"exact_match is inconclusive: p = {p} is above {level}, the level of this look" in said
