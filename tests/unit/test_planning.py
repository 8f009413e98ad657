"""Plans become work: every sample once, one shape an array, keys that change with what determines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.errors import UserError
from hpcbench.planning import (
    MAX_SHARD,
    MIN_SHARD,
    default_shard_size,
    plan_work,
    stage_key,
)
from hpcbench.schema.documents import seconds
from hpcbench.schema.plan import ResolvedRunTask
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
        assert group.throttle == parallelism


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


@given(samples=st.integers(1, 10**6), parallelism=st.integers(1, 1000))
def test_shards_are_few_files_and_yet_enough_for_all_workers(
    samples: int, parallelism: int
) -> None:
    size = default_shard_size(samples, parallelism)
    assert MIN_SHARD <= size <= MAX_SHARD
    if MIN_SHARD < size < MAX_SHARD:
        assert samples / size <= 4 * parallelism


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
    ("load", "told"),
    [
        ({"requests": 60}, "sweep of 'a': 60 requests a point are more than its 50 samples"),
        ({"requests": 50}, None),
    ],
)
def test_a_point_of_more_requests_than_samples_is_refused(
    load: dict[str, int], told: str | None
) -> None:
    plan = resolved(point(load=load))
    if told is None:
        assert len(plan_work(plan, measured(plan, 50)).shards) == 1
        return
    with pytest.raises(UserError) as caught:
        plan_work(plan, measured(plan, 50))
    assert [one.message for one in caught.value.problems] == [told]


def test_samples_that_cannot_fill_the_load_are_refused() -> None:
    plan = resolved(point())
    with pytest.raises(UserError, match="3 samples cannot be 4 requests in flight"):
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
        run_task("a", **BASE, description="other words"),
        run_task("a", **BASE, metrics=("anls",)),
    ],
)
def test_an_inference_key_does_not_change_with_what_does_not_determine(changed: object) -> None:
    assert _key(run_task("a", **BASE)) == _key(changed)


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
