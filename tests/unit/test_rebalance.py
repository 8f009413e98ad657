"""What is done for jobs while they run, with a Slurm that only listens."""

from __future__ import annotations

import pytest

from hpcbench import slurm
from hpcbench.resume.rebalance import release_unlaunched, unlaunched
from hpcbench.slurm import Job


def test_a_job_that_its_node_could_not_launch_is_released_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[list[str]] = []
    monkeypatch.setattr(slurm, "release_hold", lambda jobs: told.append(list(jobs)))
    jobs = [
        Job("7_0", "hpcbench:x:g0.0", "PENDING", reason="launch failed requeued held"),
        Job("7_1", "hpcbench:x:g0.0", "PENDING", reason="JobHeldUser"),
        Job("7_2", "hpcbench:x:g0.0", "RUNNING"),
    ]

    release_unlaunched(jobs)
    release_unlaunched(jobs[1:])

    assert told == [["7_0"]]


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
