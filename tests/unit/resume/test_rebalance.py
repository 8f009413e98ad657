"""Changes to jobs while they run, with a Slurm that only listens."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hpcbench import slurm
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.resume.rebalance import keep_off_failed_nodes, release_unlaunched, share_workers
from hpcbench.slurm import Job, unlaunched
from hpcbench.status.liveness import remaining
from tests.unit.past import past, works
from tests.unit.small import run_task


@pytest.fixture
def two_groups(tmp_path: Path) -> Experiment:
    """Run tasks of two images, an array each, of four workers that may work at once one has two."""
    tasks = [run_task("a"), run_task("b", model={"name": "m2"})]
    here = past(tmp_path, "20261120-1432-plan-aaaa", *tasks, ended=False, plan={"parallelism": 4})
    (planned,) = here.work.groups
    with EventLog(here.submission_file) as log:
        groups = [
            replace(planned, id=f"g{place}", run_tasks=(name,), workers=4, throttle=2)
            for place, name in enumerate("ab")
        ]
        log.write("round", round=0, groups=[asdict(group) for group in groups])
        for group, job in zip(groups, ("7", "8"), strict=True):
            log.write("intent", step=group.id, group=group.id, workers=4)
            log.write("submitted", step=group.id, job=job)
    return here


def test_an_array_that_is_alone_gets_all_workers_once(
    two_groups: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[tuple[str, int]] = []
    cancelled: list[str] = []
    monkeypatch.setattr(slurm, "set_throttle", lambda *one: set_to.append(one) or True)
    monkeypatch.setattr(slurm, "cancel_waiting", cancelled.extend)
    first, second = (
        Job("7_0", "hpcbench:x:g0.0", "RUNNING"),
        Job("8_0", "hpcbench:x:g1.0", "RUNNING"),
    )
    left = remaining(two_groups)
    share_workers(two_groups, [first, second], left)
    assert set_to == []
    for _ in range(2):
        share_workers(two_groups, [first], left)
    assert (set_to, cancelled) == ([("7", 4)], [])
    assert rounds(two_groups)[-1].steps["g0"].throttle == 4
    share_workers(two_groups, [first, second], left)
    assert len(set_to) == 1, "none is taken from it again"


@pytest.mark.parametrize(
    ("reason", "set_to"), [("Dependency", [("7", 4)]), ("Priority", []), ("Resources", [])]
)
def test_an_array_that_waits_for_another_needs_no_workers_yet(
    two_groups: Experiment,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    set_to: list[tuple[str, int]],
) -> None:
    found: list[tuple[str, int]] = []
    monkeypatch.setattr(slurm, "set_throttle", lambda *one: found.append(one) or True)
    monkeypatch.setattr(slurm, "cancel_waiting", lambda jobs: None)
    busy = [
        Job("7_0", "hpcbench:x:g0.0", "RUNNING"),
        Job("8_0", "hpcbench:x:g1.0", "PENDING", reason=reason),
    ]
    share_workers(two_groups, busy, remaining(two_groups))
    assert found == set_to


def test_workers_are_shared_by_the_work_and_the_size_of_arrays(
    two_groups: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[tuple[str, int]] = []
    monkeypatch.setattr(slurm, "set_throttle", lambda *one: set_to.append(one) or True)
    monkeypatch.setattr(slurm, "cancel_waiting", lambda jobs: None)
    with EventLog(two_groups.submission_file) as log:
        log.write("shrunk", step="g1", workers=1)
    busy = [Job(f"{job}_0", "hpcbench:x:g0.0", "RUNNING") for job in "78"]
    share_workers(two_groups, busy, remaining(two_groups))
    assert set_to == [("7", 3)]


def test_an_array_whose_work_is_done_gives_its_workers_away_and_starts_no_more(
    two_groups: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[tuple[str, int]] = []
    cancelled: list[str] = []
    monkeypatch.setattr(slurm, "set_throttle", lambda *one: set_to.append(one) or True)
    monkeypatch.setattr(slurm, "cancel_waiting", cancelled.extend)
    busy = [Job(f"{job}_0", "hpcbench:x:g0.0", "RUNNING") for job in "78"]
    share_workers(
        two_groups, busy, [one for one in remaining(two_groups) if one.shard.run_task == "b"]
    )
    assert (set_to, cancelled) == ([("8", 4)], ["7"])


def test_a_job_that_died_without_a_word_is_kept_off_its_node_if_there_is_another(
    two_groups: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    excluded: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(slurm, "exclude_nodes", lambda job, nodes: excluded.append((job, nodes)))
    waiting = [Job(f"7_{task}", "hpcbench:x:g0.0", "PENDING", restarts=1) for task in (0, 1)]

    def run(job: str, restart: int, node: str, *last: tuple[float, str]) -> None:
        owner = {"job": job, "restart": restart, "host": node, "pid": 1, "node": node}
        works(two_groups, (job, restart), [(0.0, "started", {"owner": owner}), *last])

    run("7_0", 0, "n1")
    keep_off_failed_nodes(two_groups, waiting)
    assert excluded == [], "there may be no other node"
    run("7_1", 0, "n2", (9.0, "finished"))
    run("7_2", 0, "n2")
    running = Job("7_2", "hpcbench:x:g0.0", "RUNNING", restarts=1)
    keep_off_failed_nodes(two_groups, [*waiting, running])
    assert excluded == [("7_0", ["n1"])]
    keep_off_failed_nodes(two_groups, [Job("7_0", "hpcbench:x:g0.0", "PENDING", restarts=2)])
    assert len(excluded) == 1, "that node is of the run before the last"
    run("7_0", 1, "n3")
    keep_off_failed_nodes(two_groups, [Job("7_0", "hpcbench:x:g0.0", "PENDING", restarts=2)])
    assert excluded[1:] == [("7_0", ["n3"])]


def test_a_job_that_its_node_could_not_launch_is_released_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[list[str]] = []
    monkeypatch.setattr(slurm, "release_hold", lambda jobs: reported.append(list(jobs)))
    jobs = [
        Job("7_0", "hpcbench:x:g0.0", "PENDING", reason="launch failed requeued held"),
        Job("7_1", "hpcbench:x:g0.0", "PENDING", reason="JobHeldUser"),
        Job("7_2", "hpcbench:x:g0.0", "RUNNING"),
    ]
    release_unlaunched(jobs)
    release_unlaunched(jobs[1:])
    assert reported == [["7_0"]]


@pytest.mark.parametrize(
    ("reason", "held"),
    [
        ("launch failed requeued held", True),
        ("launch_failed_requeued_held", True),
        ("JobHeldAdmin", False),
        ("", False),
    ],
)
def test_only_a_failed_launch_is_one(reason: str, held: bool) -> None:
    assert unlaunched(reason) is held
