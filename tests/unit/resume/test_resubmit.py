"""Whether an experiment goes on after a round, and in what shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hpcbench import slurm
from hpcbench.experiment.claims import ShardState
from hpcbench.experiment.control import control_state
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.files.atomic import Appender
from hpcbench.resume.resubmit import bad_nodes, may_go_on, next_groups
from hpcbench.schema.plan import Group
from hpcbench.status.liveness import remaining
from tests.unit.past import past
from tests.unit.small import run_task


def experiment(folder: Path, model: Mapping[str, Any] | None = None, **plan: Any) -> Experiment:
    """An experiment of two run tasks of two models, after its first round."""
    tasks = [run_task("a", model=model), run_task("b", model={"name": "m2"})]
    here = past(folder, "20261120-1432-plan-aaaa", *tasks, ended=False, plan=plan)
    begin_round(here)
    return here


def begin_round(here: Experiment, answered: int = 0, groups: Sequence[Group] | None = None) -> None:
    own = here.work.groups if groups is None else groups
    with Appender(here.submission_file) as log:
        number = len(rounds(here))
        log.write(
            {
                "event": "round", "round": number, "time": 0.0, "answered": answered,
                "groups": [asdict(group) for group in own],
            }
        )  # fmt: skip
        log.write({"event": "handed", "time": 0.0})


BEGIN = 1000.0


def worker(
    here: Experiment, *events: Mapping[str, Any], group: str = "g0", job: str = "1_0"
) -> None:
    """A worker's file, from second `BEGIN` on."""
    owner = {"job": job, "restart": 0, "host": "h", "pid": 1, "node": "n1"}
    with Appender(here.worker_events(group, f"{job}-0")) as file:
        for event in ({"event": "started", "owner": owner}, *events):
            file.write({"time": BEGIN, **event})


def left(here: Experiment, state: str = "free") -> list[ShardState]:
    """Its shards, all in one state."""
    return [
        ShardState(one.shard, one.attempt, one.failed_attempts, state, None)
        for one in remaining(here)
    ]


def test_work_that_was_handed_back_in_order_always_goes_on(tmp_path: Path) -> None:
    here = experiment(tmp_path, max_resubmits=0)
    assert may_go_on(here, left(here, "drained"), answered=3)
    assert not may_go_on(here, left(here, "released"), answered=3)


def test_lost_work_goes_on_while_rounds_bring_answers(tmp_path: Path) -> None:
    here = experiment(tmp_path, max_resubmits=2)
    lost = left(here, "released")
    assert may_go_on(here, lost, answered=1)
    for _ in range(10):
        begin_round(here, answered=len(rounds(here)))
        assert may_go_on(here, lost, answered=len(rounds(here)))


def test_after_as_many_fruitless_rounds_as_the_plan_allows_it_ends(tmp_path: Path) -> None:
    here = experiment(tmp_path, max_resubmits=2)
    lost = left(here, "failed")
    found = [may_go_on(here, lost, answered=0)]
    for _ in range(2):
        begin_round(here, answered=0)
        found.append(may_go_on(here, lost, answered=0))
    assert found == [True, False, False]


def test_an_experiment_ends_after_more_rounds_than_any_needs(tmp_path: Path) -> None:
    here = experiment(tmp_path)
    with Appender(here.submission_file) as log:
        for number in range(1, 200):
            log.write({"event": "round", "round": number, "time": 0.0, "answered": 0, "groups": []})
    assert len(rounds(here)) == 200
    assert not may_go_on(here, left(here, "drained"), answered=5)
    begin_round(here)
    assert not may_go_on(here, left(here, "drained"), answered=5)


def test_even_free_work_does_not_go_on_for_ever_without_an_answer(tmp_path: Path) -> None:
    here = experiment(tmp_path, max_resubmits=1)
    begin_round(here)
    assert not may_go_on(here, left(here), answered=0)


def test_the_next_round_holds_what_is_left_with_no_more_workers_than_that(tmp_path: Path) -> None:
    here = experiment(tmp_path, parallelism=4)
    for count in (1, 2):
        some = [state for state in left(here) if state.shard.run_task == "b"][:count]
        (group,) = next_groups(here, some)
        assert (group.run_tasks, group.workers) == (("b",), count)


def test_a_model_that_never_loaded_is_not_tried_again_by_itself(tmp_path: Path) -> None:
    here = experiment(tmp_path)
    worker(here, {"event": "model_failed", "model": "m", "message": "no", "cause": "bad_option"})
    (group,) = next_groups(here, left(here))
    assert group.run_tasks == ("b",)
    (group,) = next_groups(here, left(here), again=True)
    assert group.run_tasks == ("a", "b")


def test_a_model_that_loaded_once_is_tried_again(tmp_path: Path) -> None:
    here = experiment(tmp_path)
    worker(here, {"event": "model_ready", "model": "m"})
    worker(
        here, {"event": "model_failed", "model": "m", "message": "x", "cause": "unknown"}, job="1_1"
    )
    assert [group.run_tasks for group in next_groups(here, left(here))] == [("a", "b")]


@pytest.mark.parametrize("cause", ["out_of_memory", "unknown"])
def test_a_model_whose_engine_died_is_loaded_again_in_the_same_shape_if_there_is_no_larger(
    tmp_path: Path, cause: str
) -> None:
    here = experiment(tmp_path)
    worker(here, {"event": "engine_died", "model": "m", "message": "x", "cause": cause})
    (group,) = next_groups(here, left(here))
    assert (group.run_tasks, group.level) == (("a", "b"), 0)


def test_a_model_that_ran_out_of_memory_gets_the_next_larger_shape(tmp_path: Path) -> None:
    larger = [{"memory_gb": 32}, {"gpus": 2, "gpu_type": "h100"}]
    here = experiment(tmp_path, model={"larger": larger})
    starved = {"event": "engine_died", "model": "m", "message": "x", "cause": "gpu_out_of_memory"}
    worker(here, starved)
    planned, grown = next_groups(here, left(here))
    assert (planned.run_tasks, planned.level) == (("b",), 0)
    assert (grown.id, grown.run_tasks, grown.resources.memory_gb) == ("g0L1", ("a",), 32)
    begin_round(here, groups=[grown])
    worker(here, starved, group="g0L1", job="2_0")
    grown = next(group for group in next_groups(here, left(here)) if group.level)
    assert (grown.id, grown.gpus, grown.resources.gpu_type) == ("g0L2", 2, "h100")
    begin_round(here, groups=[grown])
    given_up = {**starved, "event": "model_failed"}
    worker(here, starved, given_up, group="g0L2", job="3_0")
    assert [group.run_tasks for group in next_groups(here, left(here))] == [("b",)]


def test_workers_of_a_larger_shape_are_fewer_so_that_their_job_still_fits(tmp_path: Path) -> None:
    larger = [{"memory_gb": 16}, {"gpus": 4}]
    here = experiment(tmp_path, model={"gpus": 2, "replicas_per_node": 4, "larger": larger})
    starved = {"event": "engine_died", "model": "m", "message": "x", "cause": "gpu_out_of_memory"}
    worker(here, starved)
    grown = next(group for group in next_groups(here, left(here)) if group.level)
    assert (grown.replicas, grown.job_resources.memory_gb, grown.job_gpus) == (2, 32, 4)


@pytest.mark.parametrize(("gpus", "fit"), [(3, 2), (4, 2), (8, 1), (16, 1)])
def test_workers_of_more_gpus_are_as_many_as_had_room_before(
    tmp_path: Path, gpus: int, fit: int
) -> None:
    model = {"gpus": 2, "replicas_per_node": 4, "larger": [{"gpus": gpus}]}
    here = experiment(tmp_path, model=model)
    worker(here, {"event": "engine_died", "model": "m", "message": "x", "cause": "out_of_memory"})
    grown = next(group for group in next_groups(here, left(here)) if group.level)
    assert (grown.gpus, grown.replicas) == (gpus, fit)


def test_work_waits_for_a_larger_shape_as_it_was_planned_to_wait(tmp_path: Path) -> None:
    larger = {"larger": [{"memory_gb": 32}]}
    tasks = [run_task("a", model=larger), run_task("b", model={"name": "m2"}, after=["a"])]
    here = past(tmp_path, "20261120-1432-plan-aaaa", *tasks, ended=False)
    begin_round(here)
    worker(here, {"event": "engine_died", "model": "m", "message": "x", "cause": "out_of_memory"})
    grown, other = next_groups(here, left(here))
    assert (grown.id, other.run_tasks, other.after) == ("g0L1", ("b",), ("g0L1",))
    (alone,) = next_groups(here, [one for one in left(here) if one.shard.run_task == "b"])
    assert alone.after == ()


def test_a_job_that_slurm_ended_for_its_memory_starved_the_model_it_loaded_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = experiment(tmp_path, model={"larger": [{"memory_gb": 32}]}, executor="slurm")
    loads = [{"event": "model_loading", "model": model} for model in ("m2", "m")]
    worker(here, *loads, job="1_0")
    worker(here, *reversed(loads), job="1_1")
    ended = [slurm.Job("1_0", "n", "OUT_OF_MEMORY"), slurm.Job("1_1", "n", "TIMEOUT")]
    monkeypatch.setattr(slurm, "accounting", lambda names: ended)
    found = {group.run_tasks: group.level for group in next_groups(here, left(here))}
    assert found == {("a",): 1, ("b",): 0}


def test_without_a_larger_shape_it_is_not_tried_again(tmp_path: Path) -> None:
    here = experiment(tmp_path)
    worker(here, {"event": "model_failed", "model": "m", "message": "x", "cause": "out_of_memory"})
    assert [group.run_tasks for group in next_groups(here, left(here))] == [("b",)]


def test_what_would_exceed_the_gpu_hours_is_stopped_and_says_so(tmp_path: Path) -> None:
    here = experiment(tmp_path, model={"gpus": 2}, max_gpu_hours=2.0)
    group = next(one for one in here.work.groups if "a" in one.run_tasks)
    assert group.gpus == 2
    worker(here, {"event": "stopped", "time": BEGIN + 3500.0}, group=group.id)
    assert next_groups(here, [one for one in left(here) if one.shard.run_task == "a"]) == ()
    assert "max_gpu_hours: 1.94 of 2" in control_state(here).stopped_tasks["a"]


@pytest.mark.parametrize(("nodes", "expected"), [(["n1"], []), (["n1", "n2"], ["n1"])])
def test_a_node_where_nothing_loads_is_left_out_if_there_is_another(
    tmp_path: Path, nodes: list[str], expected: list[str]
) -> None:
    here = experiment(tmp_path)
    failed = {"event": "model_failed", "model": "m", "message": "x", "cause": "unknown"}
    worker(here, {"event": "bad_node", "node": "n1", "message": "x"}, failed)
    for number, node in enumerate(nodes):
        owner = {"job": f"9_{number}", "restart": 0, "host": "h", "pid": 1, "node": node}
        with Appender(here.worker_events("g0", f"9_{number}-0")) as file:
            file.write({"event": "started", "owner": owner, "time": 0.0})
    assert bad_nodes(here) == expected
