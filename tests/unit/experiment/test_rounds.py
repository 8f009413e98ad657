"""How the steps of a round are handed to a Slurm that takes no more than so much."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import Step, rounds
from hpcbench.files.atomic import read_lines
from hpcbench.schema.plan import Group
from hpcbench.slurm import Job
from hpcbench.submit.rounds import (
    TRIES,
    _LimitReached,
    _Slurm,
    _Unreachable,
    begin_round,
    hand_over,
)
from tests.unit.past import past


class Scheduler:
    """Stands for sbatch: arrays of at most so many workers, at most so many workers and jobs in all."""

    def __init__(self, largest: int = 1000, most: int = 1000) -> None:
        self.largest, self.most = largest, most
        self.taken: list[tuple[str, int, list[str]]] = []
        """Step, workers and the jobs that it waits for."""
        self.cancelled: list[str] = []

    def sbatch(self, step: Step, group: Group | None, after: Sequence[str]) -> str:
        if step.workers > self.largest or step.workers > self.most:
            raise _LimitReached("QOSMaxSubmitJobPerUserLimit")
        self.most -= step.workers
        self.taken.append((step.name, step.workers, list(after)))
        return str(len(self.taken))

    def cancel(self, jobs: Sequence[str]) -> None:
        self.cancelled += jobs
        self.most += len(jobs)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    own = Scheduler()
    monkeypatch.setattr(_Slurm, "_sbatch", lambda _, *how: own.sbatch(*how))
    monkeypatch.setattr(slurm, "cancel", own.cancel)
    return own


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    return past(tmp_path, "20261120-1432-plan-aaaa", ended=False, plan={"executor": "slurm"})


def groups(here: Experiment, workers: int) -> list[Group]:
    """Two groups, the second of which waits for the first."""
    (planned,) = here.work.groups
    first = replace(planned, id="g0", workers=workers, throttle=workers)
    return [first, replace(first, id="g1", after=("g0",))]


def test_arrays_wait_for_those_of_earlier_groups_and_the_last_job_for_all(
    here: Experiment, scheduler: Scheduler
) -> None:
    begin_round(here, groups(here, 2))
    assert scheduler.taken == [("g0", 2, []), ("g1", 2, ["1"]), ("finalise", 1, ["1", "2"])]
    assert rounds(here)[-1].handed


def test_a_further_round_submits_its_own_groups(here: Experiment, scheduler: Scheduler) -> None:
    first, second = groups(here, 2)
    begin_round(here, [first])
    begin_round(here, [second])
    assert scheduler.taken[2:] == [("g1", 2, []), ("finalise", 1, ["3"])]


def test_an_array_that_is_refused_is_halved_until_slurm_takes_it(
    here: Experiment, scheduler: Scheduler
) -> None:
    scheduler.largest = 3
    begin_round(here, groups(here, 8)[:1])
    arrays = [(name, workers) for name, workers, _ in scheduler.taken[:-1]]
    assert arrays == [("g0", 2), ("g0+1", 2), ("g0+2", 2), ("g0+3", 2)]


def test_a_group_is_kept_back_while_what_it_waits_for_is_not_submitted(
    here: Experiment, scheduler: Scheduler
) -> None:
    scheduler.most = 0
    begin_round(here, groups(here, 2))
    assert scheduler.taken == []
    assert rounds(here)[-1].deferred == 4
    asked = [one["step"] for one in read_lines(here.submission_file) if one["event"] == "intent"]
    assert asked == ["g0", "g0"]


def test_a_group_waits_for_every_array_of_another(here: Experiment, scheduler: Scheduler) -> None:
    scheduler.largest = 2
    begin_round(here, groups(here, 4))
    assert scheduler.taken[2:4] == [("g1", 2, ["1", "2"]), ("g1+1", 2, ["1", "2"])]


def test_a_group_does_not_wait_for_one_that_has_no_work_left(
    here: Experiment, scheduler: Scheduler
) -> None:
    first, second = groups(here, 2)
    begin_round(here, [first, replace(second, id="g2", after=("g1",))])
    assert scheduler.taken[:2] == [("g0", 2, []), ("g2", 2, [])]


def test_the_largest_array_gives_up_a_worker_for_the_job_that_finalises(
    here: Experiment, scheduler: Scheduler
) -> None:
    scheduler.most = 4
    begin_round(here, groups(here, 4)[:1])
    assert scheduler.taken == [("g0", 4, []), ("finalise", 1, ["1"])]
    assert scheduler.cancelled == ["1_3"]
    assert rounds(here)[-1].steps["g0"].workers == 3


def test_the_only_worker_is_not_given_up_for_it(here: Experiment, scheduler: Scheduler) -> None:
    scheduler.most = 1
    begin_round(here, groups(here, 1)[:1])
    assert scheduler.taken == [("g0", 1, [])]


def test_arrays_that_come_later_are_waited_for_by_the_job_that_is_there(
    here: Experiment, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.most = 3
    begin_round(here, groups(here, 2))
    assert [name for name, _, _ in scheduler.taken] == ["g0", "g1", "finalise"]
    waits: list[tuple[str, Sequence[str]]] = []
    monkeypatch.setattr(slurm, "depend_on", lambda *reported: waits.append(reported))
    alive = [Job(job, "n", "RUNNING") for job in ("1_0", "2_0", "3")]
    monkeypatch.setattr("hpcbench.submit.rounds.living", lambda experiment: alive)
    scheduler.most = 1
    hand_over(here, alive[:2])
    assert scheduler.taken[3:] == [("g0+1", 1, [])], "the worker that was given up"
    assert waits == [("3", ["1", "2", "4"])]


def test_a_slurmctld_that_stays_away_is_a_fault_after_growing_pauses(
    here: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def away(*how: object) -> str:
        raise _Unreachable("Unable to contact slurm controller")

    monkeypatch.setattr(_Slurm, "_submitit", away)
    monkeypatch.setattr(slurm, "queue", list)
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(EnvironmentFault, match="slurmctld cannot be reached"):
        begin_round(here, groups(here, 2))
    assert pauses == [2**number for number in range(TRIES - 1)]


def test_a_round_without_groups_is_its_last_job_alone(
    here: Experiment, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"hpcbench:{here.id}:finalise.0"
    monkeypatch.setattr(slurm, "queue", lambda: [Job("1", name, "PENDING")])
    begin_round(here, [], answered=10)
    assert scheduler.taken == [("finalise", 1, [])]
    hand_over(here)
    assert len(scheduler.taken) == 1
    (only,) = rounds(here)
    assert (only.handed, only.groups, only.answered) == (True, (), 10)
