"""The local executor gives GPUs away: real submitit processes, pretended GPUs."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench.experiment.manifest import Manifest
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.submit import local
from hpcbench.submit.array_task import ArrayTask
from hpcbench.submit.local import Part, Supervisor
from hpcbench.submit.plan_packages import on_all_gpus
from tests.conftest import ROOT
from tests.fake_nvml import FakeGpu, FakeNvml
from tests.unit.past import past
from tests.unit.small import resolved, run_task

pytestmark = pytest.mark.long


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Runs elements through a supervisor; what each was given, in the order of their beginning."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def start(
        count: int, pool: list[str], gpus: int, most: int = 8, together: int = 1
    ) -> list[dict[str, Any]]:
        reported = tmp_path / "told"
        reported.mkdir()
        made = past(tmp_path, "20261120-1432-plan-aaaa", ended=False)
        element = ("tests.unit.monitor.gpu_element", str(made.path), str(reported), str(together))
        supervisor = Supervisor(tmp_path / "jobs", pool, most)
        elements = [ArrayTask(*element) for _ in range(count)]
        supervisor.run(*(Part(f"g{place}", [one], gpus) for place, one in enumerate(elements)))
        found = [json.loads(file.read_text()) for file in reported.glob("*.json")]
        assert len(found) == count
        return sorted(found, key=lambda one: one["started"])

    return start


def test_workers_wait_for_gpus_that_others_have_and_never_share_one(
    run: Callable[..., list[dict[str, Any]]],
) -> None:
    reported = run(3, ["4", "6"], 1, together=2)
    assert {one["gpus"] for one in reported} == {"4", "6"}
    for one in reported:
        sharing = [
            other
            for other in reported
            if other["gpus"] == one["gpus"]
            and other["started"] < one["ended"]
            and one["started"] < other["ended"]
        ]
        assert sharing == [one]


def test_a_worker_that_needs_two_gpus_has_two_and_an_odd_one_is_left(
    run: Callable[..., list[dict[str, Any]]],
) -> None:
    reported = run(2, ["0", "1", "2"], 2)
    assert sorted(reported[0]["gpus"].split(",")) == ["0", "1"]
    assert len(set(reported[1]["gpus"].split(","))) == 2
    assert reported[0]["ended"] <= reported[1]["started"]


def test_no_more_run_at_once_than_the_plan_says(run: Callable[..., list[dict[str, Any]]]) -> None:
    reported = run(3, ["0", "1", "2"], 1, most=1)
    assert all(one["ended"] <= after["started"] for one, after in itertools.pairwise(reported))


def test_what_comes_after_waits_and_what_does_not_takes_the_gpus_that_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made = past(tmp_path, "20261120-1432-plan-aaaa", ended=False)

    def part(name: str, gpus: int, after: tuple[str, ...] = ()) -> Part:
        (tmp_path / name).mkdir()
        element = ("tests.unit.monitor.gpu_element", str(made.path), str(tmp_path / name), "2")
        return Part(name, [ArrayTask(*element)], gpus, after)

    parts = part("first", 1), part("second", 1, ("first",)), part("third", 1)
    Supervisor(tmp_path / "jobs", ["0", "1"], 4).run(*parts)
    first, second, third = (
        json.loads(next((tmp_path / one.id).glob("*.json")).read_text()) for one in parts
    )
    assert third["started"] < first["ended"] <= second["started"]
    assert first["gpus"] != third["gpus"]


def test_a_plan_that_does_not_say_how_parallel_it_is_has_a_worker_for_each_share_of_the_gpus(
    machine: Callable[..., FakeNvml],
) -> None:
    two, four = (run_task(name, model={"gpus": gpus}) for name, gpus in (("a", 2), ("b", 4)))
    rented = run_task("c", model={"gpus": 1, "image": "runpod:org/image@sha256:0"})

    def workers(*tasks: ResolvedRunTask, **plan: Any) -> int:
        return on_all_gpus(resolved(*tasks, executor="local", **plan)).plan.parallelism

    assert workers(two, four) == 1  # there is no GPU at all
    machine(*(FakeGpu(f"GPU-{number}") for number in range(5)))
    assert workers(two, four) == 2
    assert workers(two, four, parallelism=1) == 1
    assert workers(rented) == 1
    assert workers(run_task(model={"gpus": 0})) == 1
    assert on_all_gpus(resolved(two, executor="slurm")).plan.parallelism == 1


def test_workers_without_gpus_see_none(
    run: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    (worker,) = run(1, ["3"], 0)
    assert worker["gpus"] == ""


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], list[Any]]:
    """Runs a round of one group with two workers; what would have been started: elements and GPUs."""

    def start(kind: str, gpus: int) -> list[Any]:
        group = SimpleNamespace(id="g0", job_gpus=gpus, environment="e", workers=2, after=())
        made = SimpleNamespace(
            path=tmp_path, jobs_dir=tmp_path / "jobs", manifest=Manifest(environments={"e": {"kind": kind}}),
            resolved=SimpleNamespace(plan=SimpleNamespace(parallelism=2)),
        )  # fmt: skip
        started: list[Any] = []

        def run(self: Supervisor, part: Part) -> None:
            reported = [one.module for one in part.waiting]
            started.append((reported, part.gpus, list(self._free)))

        monkeypatch.setattr(local, "Experiment", lambda path: made)
        monkeypatch.setattr(local, "rounds", lambda _: [SimpleNamespace(groups=[group])])
        monkeypatch.setattr(local.signal, "signal", lambda number, handler: None)
        monkeypatch.setattr(Supervisor, "run", run)
        local.main([str(tmp_path), "0"])
        return started

    return start


LAST = [(["hpcbench.finalise"], 0)]


def test_a_group_that_wants_more_gpus_than_there_are_starts_nothing(
    experiment: Callable[[str, int], list[Any]], machine: Callable[..., FakeNvml]
) -> None:
    with pytest.raises(SystemExit) as none:
        experiment("venv", 1)
    machine(FakeGpu("GPU-a"))
    with pytest.raises(SystemExit) as few:
        experiment("venv", 2)
    start = "group g0 cannot run on this machine: the model needs"
    assert str(none.value) == f"{start} 1 GPU, this worker has none (check `gpus` of its model)"
    assert str(few.value).startswith(f"{start} 2 GPUs, this worker has 1 (NVIDIA A100")


def test_a_group_is_given_the_gpus_of_the_machine_in_an_order_that_is_certain(
    experiment: Callable[[str, int], list[Any]],
    machine: Callable[..., FakeNvml],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")  # so that it is put back
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    machine(FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    first, *last = experiment("venv", 1)
    assert first == (["hpcbench.worker"] * 2, 1, ["0", "1"])
    assert [one[:2] for one in last] == LAST
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(("kind", "gpus"), [("venv", 0), ("runpod", 4)])
def test_a_group_whose_engines_need_no_gpu_of_this_machine_runs_without(
    experiment: Callable[[str, int], list[Any]], kind: str, gpus: int
) -> None:
    first, *last = experiment(kind, gpus)
    assert first == (["hpcbench.worker"] * 2, 0, [])
    assert [one[:2] for one in last] == LAST
