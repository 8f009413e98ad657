"""Estimate of what a plan would take, before anything is submitted."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.data.copies import Cache
from hpcbench.planning import plan_work
from hpcbench.schema.metric import Metric
from hpcbench.schema.model import Model
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask
from hpcbench.schema.site import Partition
from hpcbench.schema.work import JobResources
from hpcbench.submit import estimate as estimating
from hpcbench.submit.estimate import (
    ANSWER_BYTES,
    Estimate,
    RemainingSamples,
    disk_of,
    estimate,
    parse_test_only,
    queues,
    shape_fits,
)
from hpcbench.submit.estimate_text import size, span
from hpcbench.submit.plan_facts import look
from hpcbench.usage.durations import Rate, Rates
from tests.campaign import examples
from tests.unit.command import Cli
from tests.unit.past import hashed
from tests.unit.small import plan_without_weights, resolved, run_task


def on_slurm(*run_tasks: ResolvedRunTask, **plan: Any) -> ResolvedPlan:
    return resolved(*run_tasks, executor="slurm", **plan)


def known(plan: ResolvedPlan, seconds: float = 1, load: float = 60, spread: float = 0) -> Rates:
    """Rates from history; the spread is a share of the figure."""

    def rate(value: float) -> Rate:
        return Rate(value, value * (1 - spread), value * (1 + spread), "1 experiment")

    return Rates(
        {one.name: rate(seconds) for one in plan.run_tasks},
        {one.model.name: rate(load) for one in plan.run_tasks},
        {},
    )


def of(plan: ResolvedPlan, samples: int = 3600, **rates: float) -> Estimate:
    return estimate(plan, hashed(*plan.run_tasks, samples=samples), known(plan, **rates))


def test_gpu_hours_are_work_and_loads_times_gpus() -> None:
    found = of(on_slurm(run_task(model={"gpus": 2}), parallelism=4))
    assert found.gpu_hours.value == pytest.approx(2 * (3600 + 4 * 60) / 3600)
    assert found.cpu_hours.value == 0
    assert found.wall_seconds.value == pytest.approx(3600 / 4 + 60)
    assert found.jobs == 4 + 1
    assert found.worst_gpu_hours == 4 * 2 * 2


def test_without_gpus_hours_are_of_cpus() -> None:
    task = run_task(model={"gpus": 0}, resources={"cpus": 3})
    found = of(on_slurm(task))
    assert (found.gpu_hours.value, found.worst_gpu_hours) == (0, 0)
    assert found.cpu_hours.value == pytest.approx(3 * (3600 + 60) / 3600)


def test_the_interval_comes_from_the_spread_of_history_and_without_history_there_is_none() -> None:
    plan = on_slurm(run_task())
    found = of(plan, spread=0.25)
    assert found.measured
    assert found.gpu_hours.low == pytest.approx(found.gpu_hours.value * 0.75)
    assert found.gpu_hours.high == pytest.approx(found.gpu_hours.value * 1.25)
    default = Rate(2, 2, 2)
    unknown = estimate(plan, hashed(run_task()), Rates({"rt": default}, {"m": default}, {}))
    assert not unknown.measured
    assert unknown.gpu_hours.low == unknown.gpu_hours.high == unknown.gpu_hours.value


def test_what_comes_after_something_else_takes_its_time_after_it() -> None:
    first, then = run_task("first"), run_task("then", after=["first"])
    found = of(on_slurm(first, then))
    assert found.wall_seconds.value == pytest.approx(2 * (3600 + 60))


def test_groups_of_one_level_share_the_parallelism() -> None:
    small = run_task("small")
    large = run_task("large", model={"name": "n", "gpus": 4})
    found = of(on_slurm(small, large, parallelism=2))
    assert [group.at_once for group in found.groups] == [1, 1]
    assert found.wall_seconds.value == pytest.approx(3660)
    assert found.gpu_hours.value == pytest.approx(3660 * 5 / 3600)


def test_hours_are_of_what_is_left_to_ask() -> None:
    plan = on_slurm(
        run_task("some"), run_task("none", model={"name": "n", "gpus": 4}), parallelism=4
    )
    measured, rates = hashed(*plan.run_tasks, samples=3600), known(plan)
    whole = estimate(plan, measured, rates)
    (some, none) = whole.groups
    left = {"some": RemainingSamples(360, 2), "none": RemainingSamples(0, 0)}
    found = estimate(plan, measured, rates, left=left)
    (group,) = found.groups
    assert (group.models, group.jobs) == (some.models, 2)
    assert group.work_seconds.value == pytest.approx(some.work_seconds.value / 10)
    assert found.gpu_hours.value == pytest.approx((360 + 2 * 60) / 3600)
    assert found.worst_gpu_hours < whole.worst_gpu_hours
    assert found.jobs == 2 + 1 < whole.jobs
    assert found.files < whole.files
    assert none.models == ("n",)


def test_the_last_job_and_the_images_that_it_scores_in_are_reported(tmp_path: Path) -> None:
    mine = Metric(name="mine", plugin="anls", image="reg/scorer:1")
    task = run_task().model_copy(update={"metrics": (mine,)})
    plan = on_slurm(task, last_job={"cpus": 4, "time_limit": "00:30:00"})
    found = of(plan)
    assert found.scoring == {"reg/scorer:1": ("mine",)}
    assert found.last_cpu_hours == 2
    disk = disk_of(look(plan, Cache(tmp_path, plan.site)), hashed(task), known(plan), tmp_path)
    assert disk.unbuilt == ("reg/scorer:1",)
    only = on_slurm(task, stages=["inference"])
    assert of(only).scoring == {}


def test_work_that_does_not_fit_into_its_jobs_takes_further_rounds() -> None:
    plan = on_slurm(run_task(resources={"time_limit": "01:00:00"}))
    assert of(plan, samples=360).groups[0].more_rounds == 0
    assert of(plan, samples=36000).groups[0].more_rounds == 10


def test_shorter_jobs_are_more_jobs_and_more_loads() -> None:
    found = of(on_slurm(run_task(resources={"time_limit": "08:00:00"})), samples=20000)
    reported = {one.minutes: one for one in found.shorter}
    assert list(reported) == [30, 60, 120, 240]
    assert reported[30].jobs > reported[240].jobs
    assert reported[30].gpu_hours > reported[240].gpu_hours >= found.gpu_hours.value - 1e-9


def test_a_job_too_short_for_a_load_is_reported() -> None:
    found = of(on_slurm(run_task(resources={"time_limit": "08:00:00"})), load=1700)
    assert [one.too_short for one in found.shorter] == [("m",), (), (), ()]


@settings(max_examples=examples(60))
@given(
    samples=st.integers(1, 5000),
    parallelism=st.integers(1, 64),
    seconds=st.floats(0.01, 50),
    load=st.floats(0, 3000),
    gpus=st.integers(1, 8),
    limit=st.sampled_from(["00:30:00", "02:00:00", "1-00:00:00"]),
)
def test_no_estimate_is_below_the_bare_work(
    samples: int, parallelism: int, seconds: float, load: float, gpus: int, limit: str
) -> None:
    task = run_task(model={"gpus": gpus}, resources={"time_limit": limit})
    found = of(on_slurm(task, parallelism=parallelism), samples, seconds=seconds, load=load)
    work = samples * seconds
    assert found.gpu_hours.value >= gpus * (work + load) / 3600 * (1 - 1e-9)
    assert found.wall_seconds.value >= (work / parallelism + load) * (1 - 1e-9)
    assert found.wall_seconds.value <= (work + load * found.groups[0].loads) * (1 + 1e-9)
    assert found.groups[0].at_once <= parallelism


def test_disk_is_answers_and_what_is_here_and_names_what_is_not(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "models/x").mkdir(parents=True)
    (cache / "models/x/weights").write_bytes(b"x" * 1000)
    sif = tmp_path / "a.sif"
    sif.write_bytes(b"s" * 500)
    plan = on_slurm(
        run_task("a", model={"source": str(cache / "models/x"), "image": str(sif)}),
        run_task("b", model={"name": "n", "image": "docker://nowhere/engine:1"}),
    )
    facts = look(plan, Cache(cache, plan.site))
    found = disk_of(facts, hashed(*plan.run_tasks, samples=10), known(plan), cache)
    assert found.responses == 20 * ANSWER_BYTES
    assert (found.cached, found.images) == (1000, 500)
    assert found.unbuilt == ("docker://nowhere/engine:1",)


A100 = Partition(
    time_limit="04:00:00", cpus=32, memory_gb=128, gpus={"a100": 4}, gpu_memory_gb={"a100": 40}
)


def large(gpu_memory_gb: float) -> Model:
    """A model that needs GPUs of this memory."""
    return Model(name="m", source="m", engine="vllm", gpu_memory_gb=gpu_memory_gb)


def test_a_card_sold_as_80_gb_is_enough_for_80_gb() -> None:
    """It reports 81,559 MiB."""
    assert large(80).fits_gpu(79.6)
    assert not large(80).fits_gpu(48)


NEED = JobResources(cpus=2, memory_gb=8.0, time_limit="02:00:00")


@pytest.mark.parametrize(
    ("resources", "shape", "why"),
    [
        ({}, {}, []),
        ({"time_limit": "05:00:00"}, {}, ["its time limit is 04:00:00, a job needs 05:00:00"]),
        ({"cpus": 64}, {}, ["32 CPUs per node, a job needs 64"]),
        ({"memory_gb": 200}, {}, ["128 GiB of memory per node, a job needs 200 GiB"]),
        ({}, {"gpus": 8}, ["4 GPUs per node, a job needs 8"]),
        ({}, {"gpu_type": "h100"}, ["no GPU of type h100 (it has: a100)"]),
        ({}, {"models": [large(16), large(80)]}, ["its GPUs have less than 80 GB of memory"]),
        ({}, {"gpu_type": "a100", "models": [large(40)]}, []),
    ],
)
def test_a_shape_fits_or_every_reason_is_named(
    resources: dict[str, Any], shape: dict[str, Any], why: list[str]
) -> None:
    asked = {"gpus": 1, **shape}
    assert shape_fits(A100, replace(NEED, **resources), **asked) == why


def test_what_the_profile_does_not_know_is_no_misfit() -> None:
    assert shape_fits(Partition(), replace(NEED, cpus=999), 8, "h100", [large(80)]) == []
    assert shape_fits(Partition(gpus={}), NEED, 0) == []
    assert shape_fits(Partition(gpus={}), NEED, 1) == ["no GPUs"]


def test_a_start_is_read_in_both_of_slurms_ways_to_write_it() -> None:
    text = "sbatch: Job 254 to start at {} using 1 processors on nodes n1 in partition main"
    assert parse_test_only(text.format("1795315888")) == 1795315888
    at = parse_test_only(text.format("2026-11-22T10:30:00"))
    assert at is not None
    assert time.strftime("%H:%M", time.localtime(at)) == "10:30"
    assert parse_test_only("allocation failure: Invalid partition name specified") is None
    assert parse_test_only(text.format("Unknown")) is None


def test_partitions_that_fit_are_asked_for_their_earliest_start_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fake sbatch: `busy` starts later, `shut` refuses; its arguments are in a file.
    fake = tmp_path / "sbatch"
    fake.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/asked; cat > {tmp_path}/script\n'
        'case "$*" in\n'
        '  *=shut) echo "sbatch: error: Batch job submission failed: no" >&2\n'
        '    echo "allocation failure: no" >&2; exit 1;;\n'
        '  *) echo "sbatch: Job 1 to start at 1800000000 using 1 processors" >&2;;\n'
        "esac\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    plan = on_slurm(run_task(model={"gpus": 2}))
    parts = {
        "small": Partition(gpus={"t4": 1}),
        "busy": Partition(gpus={"a100": 4}),
        "shut": Partition(),
    }
    slurm = plan.site.slurm.model_copy(update={"partitions": parts, "partition": "busy"})
    plan = plan.model_copy(update={"site": plan.site.model_copy(update={"slurm": slurm})})
    work = plan_work(plan, hashed(*plan.run_tasks))
    found = {one.partition: one for one in queues(plan, work.groups)["g0"]}
    assert found["small"].misfits == ("1 GPUs per node, a job needs 2",)
    assert found["busy"].start == 1800000000
    assert found["shut"].refused == "Batch job submission failed: no"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["--test-only --partition=busy", "--test-only --partition=shut"]
    assert "#SBATCH --gres=gpu:2" in (tmp_path / "script").read_text()


def test_a_slurm_that_does_not_answer_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fake sbatch that hangs.
    fake = tmp_path / "sbatch"
    fake.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(estimating, "ASK_SECONDS", 0.5)
    plan = on_slurm(run_task())
    parts = {"one": Partition(), "two": Partition(gpus={})}
    slurm = plan.site.slurm.model_copy(update={"partitions": {**parts, "three": Partition()}})
    plan = plan.model_copy(update={"site": plan.site.model_copy(update={"slurm": slurm})})
    found = queues(plan, plan_work(plan, hashed(*plan.run_tasks)).groups)["g0"]
    assert [(one.misfits, one.start, one.refused) for one in found] == [
        ((), None, ""), (("no GPUs",), None, ""), ((), None, ""),
    ]  # fmt: skip
    assert (tmp_path / "asked").read_text() == "asked\n"


PLAN = """\
name: speed
executor: local
parallelism: 4
run_tasks:
  - {name: vqa, ml_task: vqa, model: tiny, dataset: pages, prompt: ask}
"""


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan over 100 samples whose model is an empty folder: an estimate looks no further."""
    return plan_without_weights(tmp_path, monkeypatch, PLAN)


@pytest.mark.long
def test_the_command_prints_an_estimate_and_writes_nothing(plan_file: Path, cli: Cli) -> None:
    before = sorted(plan_file.parent.rglob("*"))
    text = cli("submit", plan_file, "--estimate")
    assert "speed: 100 samples, parallelism 4" in text
    fewer = "tiny: 2 workers instead of 4: one engine processes 64 of its 100 samples at once"
    assert fewer in " ".join(text.split())
    assert "vqa: 0.25 s (default, not measured)" in text
    assert "tiny: 120 s (default, not measured)" in text
    assert "jobs       3" in text
    assert "last job   scores and reports; a process of this machine" in text
    data = cli.json("submit", plan_file, "--estimate", "--json")
    assert data["gpu_hours"]["value"] == pytest.approx((25 + 2 * 120) / 3600)
    assert (data["measured"], data["jobs"]) == (False, 3)
    assert [(one["workers"], one["instead_of"]) for one in data["fewer"]] == [(2, 4)]
    assert "jobs       5" in cli("submit", plan_file, "--estimate", "--set", "workers=all")
    assert sorted(plan_file.parent.rglob("*")) == before


def test_spans_and_sizes_are_written_as_people_say_them() -> None:
    assert [span(one) for one in (45, 600, 7500, 3 * 86400 + 3600)] == [
        "45 s", "10 min", "2 h 5 min", "3 d 1 h",
    ]  # fmt: skip
    assert [size(one) for one in (12, 4e3, 3.42e9)] == ["12 B", "4 kB", "3.42 GB"]
