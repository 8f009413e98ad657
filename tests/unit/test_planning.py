"""Plans become work: every sample once, one shape an array, keys that change with what determines."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcbench.errors import UserError
from hpcbench.planning import (
    LONGEST_SHARD,
    MIN_SHARD,
    ROUNDS,
    SECONDS_PER_SAMPLE,
    WORTH_SPARING,
    clock,
    enough_workers,
    plan_work,
    shard_size,
    shares,
    stage_key,
    within,
    worst_gpu_hours,
)
from hpcbench.schema.decoding import decoded
from hpcbench.schema.plan import ResolvedRunTask, WorkPlan
from hpcbench.schema.records import PromptExample
from hpcbench.schema.shared_types import seconds
from tests.unit.small import measured, resolved, run_task

SHAPES = st.sampled_from([{"cpus": 1}, {"cpus": 2}, {"cpus": 1, "partition": "gpu"}])


@given(
    counts=st.lists(st.integers(1, 3000), min_size=1, max_size=6),
    shapes=st.lists(SHAPES, min_size=6, max_size=6),
    parallelism=st.integers(1, 50),
    shard_size=st.none() | st.integers(1, 600),
)
def test_every_sample_is_in_one_shard_and_every_run_task_in_one_group(
    counts: list[int], shapes: list[dict[str, object]], parallelism: int, shard_size: int | None
) -> None:
    tasks = [run_task(f"t{index}", resources=shapes[index]) for index in range(len(counts))]
    plan = resolved(*tasks, parallelism=parallelism, shard_size=shard_size)
    samples = {f"t{index}": count for index, count in enumerate(counts)}
    work = plan_work(plan, measured(plan, samples))
    for name, count in samples.items():
        covered = [
            sample
            for shard in work.shards
            if shard.run_task == name
            for sample in range(shard.start, shard.stop)
        ]
        assert covered == list(range(count))
    assert Counter(name for group in work.groups for name in group.run_tasks) == Counter(
        list(samples)
    )
    assert len({shard.id for shard in work.shards}) == len(work.shards)
    for group in work.groups:
        shards = work.shards_of(group.run_tasks)
        assert 1 <= group.workers <= min(parallelism, len(shards))
    at_once = [group.throttle for group in work.groups if not group.after]
    assert sum(at_once) <= parallelism


def test_a_job_of_several_workers_needs_fewer_jobs_and_as_many_shards() -> None:
    one, four = run_task("a"), run_task("a", model={"replicas_per_node": 4})
    plans = [resolved(task, parallelism=3, workers="all") for task in (one, four)]
    (alone,), (filled,) = (plan_work(plan, measured(plan, 4000)).groups for plan in plans)
    assert (alone.workers, alone.replicas) == (3, 1)
    assert (filled.workers, filled.replicas, filled.job_gpus) == (3, 4, 4)
    shards = [plan_work(plan, measured(plan, 4000)).cuts[0].count for plan in plans]
    assert shards[1] >= 4 * 3 > shards[0] // 4
    few = plan_work(plans[1], measured(plans[1], 5))
    assert few.groups[0].workers == 1, "one job has workers for all of its shards"
    limited = within([filled], worst_gpu_hours([filled]) / 3)
    assert (limited[0].workers, limited[0].replicas) == (1, 4)


def test_what_needs_the_same_resources_and_image_shares_an_array() -> None:
    plan = resolved(
        run_task("a"),
        run_task("b", resources={"cpus": 16}),
        run_task("c"),
        run_task("d", model={"image": "docker://r/x@sha256:1"}),
        run_task("e", model={"gpus": 4}),
    )
    work = plan_work(plan, measured(plan))
    assert [group.run_tasks for group in work.groups] == [("a", "c"), ("b",), ("d",), ("e",)]
    assert [group.id for group in work.groups] == ["g0", "g1", "g2", "g3"]
    assert work.groups[3].gpus == 4


def test_run_tasks_of_one_model_stand_together_so_that_it_is_loaded_once() -> None:
    plan = resolved(
        run_task("a", model={"name": "m1"}),
        run_task("b", model={"name": "m2"}),
        run_task("c", model={"name": "m1"}),
    )
    (group,) = plan_work(plan, measured(plan)).groups
    assert group.run_tasks == ("a", "c", "b")


@given(
    samples=st.integers(1, 10**6),
    parallelism=st.integers(1, 1000),
    per_sample=st.floats(1e-3, 1e4),
    wanted=st.floats(1, 1e5),
)
def test_shards_are_of_the_length_wanted_and_yet_enough_for_all_workers(
    samples: int, parallelism: int, per_sample: float, wanted: float
) -> None:
    size = shard_size(samples, parallelism, per_sample, wanted)
    assert size >= 1
    if size > MIN_SHARD:
        assert size * per_sample <= wanted + per_sample
        assert size - 1 <= samples / (4 * parallelism)
    else:
        assert size * per_sample <= max(LONGEST_SHARD, wanted, per_sample)


def test_shards_of_slow_models_hold_fewer_samples() -> None:
    plan = resolved(run_task("quick"), run_task("slow"), parallelism=2, shard_minutes=2)
    pace = {"quick": 0.5, "slow": 30.0}
    sizes = {one.run_task: one.size for one in plan_work(plan, measured(plan, 5000), pace).cuts}
    assert sizes == {"quick": 240, "slow": 8}


@given(
    samples=st.integers(1, 300), size=st.integers(1, 60), first=st.integers(0, 20),
)  # fmt: skip
def test_a_cut_knows_its_shards_without_making_them(samples: int, size: int, first: int) -> None:
    plan = resolved(run_task("a"), shard_size=size)
    (planned,) = plan_work(plan, measured(plan, samples)).cuts
    for cut in (planned, replace(planned, pilot=min(first, samples))):
        shards = list(cut.shards())
        assert len(shards) == cut.count
        assert shards == [cut.shard(index) for index in range(cut.count)]
        assert all(shard.start < shard.stop for shard in shards)
        assert [shard.start for shard in shards[1:]] == [shard.stop for shard in shards[:-1]]
        assert (shards[0].start, shards[-1].stop) == (0, samples)


def test_what_comes_after_something_is_a_group_that_waits_for_it() -> None:
    plan = resolved(
        run_task("a"), run_task("b", after=["a"]), run_task("c", after=["b"]), run_task("d")
    )
    groups = plan_work(plan, measured(plan)).groups
    assert [(one.run_tasks, one.after) for one in groups] == [
        (("a", "d"), ()), (("b",), ("g0",)), (("c",), ("g1",)),
    ]  # fmt: skip


def test_groups_share_the_parallelism_by_their_work_and_more_groups_than_that_queue_up() -> None:
    tasks = [run_task(f"t{place}", resources={"cpus": place + 1}) for place in range(3)]
    samples = {"t0": 900, "t1": 100, "t2": 100}
    plan = resolved(*tasks, parallelism=8)
    groups = plan_work(plan, measured(plan, samples)).groups
    assert [one.throttle for one in groups] == [5, 2, 1]
    plan = resolved(*tasks, parallelism=2)
    groups = plan_work(plan, measured(plan, samples)).groups
    assert [(one.throttle, one.after) for one in groups] == [(1, ()), (1, ()), (1, ("g0",))]


@example([0.0], 3)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.integers(1, 100))
def test_shares_are_whole_at_least_one_and_add_up(weights: list[float], total: int) -> None:
    found = shares(weights, total)
    assert min(found) >= 1
    assert sum(found) == max(total, len(weights))


AUTO = {"concurrency": "auto", "model": {"gpus": 1}}


def auto(name: str = "a", count: int = 64, **task: Any) -> ResolvedRunTask:
    """A run task whose `concurrency: auto` came to a number."""
    return run_task(name, **{**AUTO, **task}).model_copy(update={"at_once": count})


def test_eighty_samples_do_not_load_a_model_eight_times() -> None:
    """Seen: three minutes of work and eight loads of two minutes."""
    plan = resolved(auto(), parallelism=8)
    work = plan_work(plan, measured(plan, 80), {"a": 180 / 80}, {"m": 120.0}, {"m"})
    assert [(one.workers, one.throttle) for one in work.groups] == [(1, 8)]
    (reported,) = work.fewer
    assert (reported.workers, reported.instead_of, reported.known) == (1, 8, True)
    assert {shard.stop - shard.start for shard in work.shards} == {80}, "the engine is kept full"
    all_workers = plan.model_copy(update={"plan": plan.plan.model_copy(update={"workers": "all"})})
    every = plan_work(all_workers, measured(plan, 80), {"a": 180 / 80}, {"m": 120.0}, {"m"})
    assert [one.workers for one in every.groups] == [8]
    assert every.fewer == ()


def test_while_times_are_not_known_workers_are_as_many_as_have_a_full_engine() -> None:
    def workers(samples: int, task: ResolvedRunTask) -> int:
        plan = resolved(task, parallelism=8)
        return plan_work(plan, measured(plan, samples)).groups[0].workers

    assert workers(80, auto()) == 2
    assert workers(1000, auto()) == 8
    assert workers(80, auto(count=1)) == 8, "one at a time fills an engine at once"
    assert workers(80, auto(count=4)) == 8
    assert workers(80, auto(model={"source": "", "engine": "remote"})) == 8, "nothing is loaded"


def test_shards_of_a_given_size_keep_no_more_in_flight_than_they_hold() -> None:
    plan = resolved(auto(), parallelism=8, shard_size=10)
    assert plan_work(plan, measured(plan, 80)).groups[0].workers == 8


def test_each_model_of_an_array_has_the_workers_that_it_is_worth() -> None:
    tasks = [auto(name, model={"name": name, "gpus": 1}) for name in ("large", "small")]
    plan = resolved(*tasks, parallelism=8)
    samples, pace = {"large": 1000, "small": 20}, {"large": 0.5, "small": 0.5}
    loads = {"large": 100.0, "small": 100.0}
    work = plan_work(plan, measured(plan, samples), pace, loads, {"large", "small"})
    assert [(one.model, one.workers) for one in work.fewer] == [("large", 5), ("small", 1)]
    assert [one.workers for one in work.groups] == [6]


@example(wanted=8, full=1, work=1.0, load=1e-309, known=True)
@given(
    wanted=st.integers(1, 500), full=st.integers(1, 500), work=st.floats(0, 1e6),
    load=st.floats(0, 3600), known=st.booleans(),
)  # fmt: skip
def test_a_worker_that_is_left_out_would_have_loaded_longer_than_it_worked(
    wanted: int, full: int, work: float, load: float, known: bool
) -> None:
    found = enough_workers(wanted, full, work, load, known=known)
    assert 1 <= found <= wanted
    if found < wanted:
        assert (wanted - found) * load >= WORTH_SPARING
        assert work < (found + 1) * load if known else found == max(1, full)


@given(
    samples=st.integers(1, 10_000), workers=st.integers(1, 64), pace=st.floats(0.01, 100),
    flight=st.sampled_from([1, 4, 64]),
)  # fmt: skip
def test_a_shard_fills_its_engine_as_far_as_a_workers_share_and_its_time_go(
    samples: int, workers: int, pace: float, flight: int
) -> None:
    size = shard_size(samples, workers, pace, 300.0, flight)
    share = -(-samples // workers)
    assert size >= min(share, ROUNDS * flight, int(300 / pace))
    assert size <= max(MIN_SHARD, share)


def test_short_jobs_are_as_many_as_the_work_takes() -> None:
    plan = resolved(run_task("a"), parallelism=4, max_job_minutes=30)
    work = plan_work(plan, measured(plan, 9000), load_seconds={"m": 120.0})
    (group,) = work.groups
    assert group.resources.time_limit == "00:30:00"
    assert group.throttle == 4
    assert group.workers * (1800 - 120 - 90) >= 9000 * SECONDS_PER_SAMPLE


@given(
    cap=st.floats(0.5, 100), workers=st.integers(1, 40), gpus=st.integers(0, 8),
    hours=st.integers(1, 24),
)  # fmt: skip
def test_no_job_is_planned_that_could_exceed_the_gpu_hours(
    cap: float, workers: int, gpus: int, hours: int
) -> None:
    task = run_task("a", model={"gpus": gpus}, resources={"time_limit": f"{hours:02d}:00:00"})
    plan = resolved(task, parallelism=workers, shard_size=1)
    groups = plan_work(plan, measured(plan, 100)).groups
    try:
        kept = within(groups, cap)
    except UserError:
        assert cap < gpus / 6 + 1e-9, "one job of ten minutes would have fitted"
        return
    assert worst_gpu_hours(kept) <= cap + 1e-9
    assert all(seconds(one.resources.time_limit) >= 600 for one in kept)


@given(st.integers(60, 10**6))
def test_a_duration_is_written_as_slurm_reads_it(duration: int) -> None:
    assert seconds(clock(duration)) == duration


def point(name: str = "a-c4", **task: Any) -> ResolvedRunTask:
    """A point of a sweep of run task `a`."""
    load = {"concurrency": [4], **task.pop("load", {})}
    return run_task(name, load=load, concurrency=4, **task).model_copy(update={"sweep": "a"})


def test_a_point_of_a_sweep_is_one_shard_so_that_one_engine_has_the_whole_load() -> None:
    plan = resolved(point(), run_task("b"), parallelism=3, shard_size=20)
    shards = plan_work(plan, measured(plan, 100)).shards
    assert [(one.run_task, one.start, one.stop) for one in shards if one.run_task == "a-c4"] == [
        ("a-c4", 0, 100)
    ]
    assert sum(one.run_task == "b" for one in shards) == 5


@pytest.mark.parametrize(
    ("load", "reported"),
    [
        ({"requests": 60}, "sweep of 'a': 60 requests per point are more than its 50 samples"),
        ({"requests": 50}, None),
    ],
)
def test_a_point_of_more_requests_than_samples_is_refused(
    load: dict[str, int], reported: str | None
) -> None:
    plan = resolved(point(load=load))
    if reported is None:
        assert len(plan_work(plan, measured(plan, 50)).shards) == 1
        return
    with pytest.raises(UserError) as caught:
        plan_work(plan, measured(plan, 50))
    assert [one.message for one in caught.value.problems] == [reported]


def test_samples_that_cannot_fill_the_load_are_refused() -> None:
    plan = resolved(point())
    with pytest.raises(UserError, match="3 samples are too few for 4 requests in flight"):
        plan_work(plan, measured(plan, 3))


BASE = {"generation": {"max_tokens": 64}}


@pytest.mark.parametrize(
    "changed",
    [
        run_task("a", generation={"max_tokens": 65}),
        run_task("a", **BASE, model={"dtype": "bfloat16"}),
        run_task("a", **BASE, model={"engine": "huggingface"}),
        run_task("a", **BASE, model={"engine_options": {"max_num_seqs": 1}}),
        run_task("a", **BASE, prompt={"user": "{{ question }} Be short."}),
        run_task("a", **BASE, dataset={"split": "hard"}),
        run_task("a", **BASE, dataset={"options": {"dpi": 300}}),
        run_task("a", **BASE, dataset={"mapping": {"references": "others"}}),
    ],
)
def test_a_stage_key_changes_with_all_that_determines_the_answers(changed: object) -> None:
    assert _key(run_task("a", **BASE)) != _key(changed)


@pytest.mark.parametrize(
    "changed",
    [
        run_task("a", **BASE, concurrency=8),
        run_task("a", **BASE, resources={"cpus": 9}),
        run_task("a", **BASE, request_timeout=5),
        run_task("a", **BASE, model={"load_timeout": 5}),
        run_task("a", **BASE, model={"request_mb": 200}),
        run_task("a", **BASE, description="other words"),
        run_task("a", **BASE, metrics=("anls",)),
    ],
)
def test_an_inference_key_does_not_change_with_what_does_not_determine(changed: object) -> None:
    assert _key(run_task("a", **BASE)) == _key(changed)


def test_a_stage_key_does_not_know_where_images_of_examples_lie() -> None:
    def key(image: str) -> str:
        example = PromptExample("x", {"question": "?"}, (image,))
        plan = resolved(run_task(prompt={"examples": (example,)}))
        return stage_key(plan.run_tasks[0], measured(plan), None, "inference")

    assert key("/here/1.png") == key("/there/1.png")


def test_a_stage_key_changes_with_the_samples_that_were_chosen() -> None:
    plan = resolved(run_task("a"))
    some = [
        measured(plan).model_copy(update={"chosen": {"a": chosen}})
        for chosen in (((0, 5),), ((0, 6),), ((1, 6),))
    ]
    assert len({stage_key(plan.run_tasks[0], one, None, "inference") for one in some}) == 3


def test_an_evaluation_key_changes_with_metrics_and_policy() -> None:
    base = _key(run_task("a"), "evaluation")
    assert base != _key(run_task("a", metrics=("anls",)), "evaluation")
    assert base != _key(run_task("a", on_failed="exclude"), "evaluation")


def test_time_limits_are_read_as_slurm_writes_them() -> None:
    assert seconds("00:10:00") == 600
    assert seconds("2-01:00:05") == 2 * 86400 + 3605


def _key(task: object, stage: str = "inference") -> str:
    plan = resolved(task)  # type: ignore[arg-type]
    return stage_key(plan.run_tasks[0], measured(plan), None, stage)


def test_the_stored_work_has_a_float_wherever_its_type_says_so() -> None:
    """`8` and `8.0` are other bytes: a manifest does not depend on how a number was given."""
    plan = resolved(run_task("a"), executor="slurm")
    work = plan_work(plan, measured(plan, 10), {"a": 3}, {"m": 30})
    stored = json.dumps(asdict(work))
    assert json.dumps(asdict(decoded(WorkPlan, json.loads(stored)))) == stored
