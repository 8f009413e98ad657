"""Commands to Slurm and how its refusals are read: real messages of 22.05.8 and 24.11.5, on a FAKE Slurm."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault
from hpcbench.slurm import commands as asking
from tests.unit.slurm.fake_slurm import Fake

POLICY = (
    "sbatch: error: Batch job submission failed: "
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)
DOWN = "slurm_update error: Unable to contact slurm controller (connect failure)"


def test_scontrol_gets_its_orders_without_a_shell(fake: Fake) -> None:
    assert slurm.set_throttle("4711", 3)
    assert slurm.release_hold(["1", "2_3"])
    assert slurm.depend_on("9", ["7", "8"])
    assert fake.calls("scontrol") == [
        "update JobId=4711 ArrayTaskThrottle=3",
        "release 1,2_3",
        "update JobId=9 Dependency=afterany:7:8",
    ]
    slurm.cancel(["1", "2"])
    slurm.cancel([])
    assert fake.calls("scancel") == ["--quiet 1 2"]


@pytest.mark.parametrize(
    ("known", "reported"),
    [
        ("(null)", "update JobId=7 ExcNodeList=n1,n2"),
        ("n1", "update JobId=7 ExcNodeList=n1,n2"),
        ("m[1-4]", "update JobId=7 ExcNodeList=m[1-4],n1,n2"),
        ("n2,n1", None),
    ],
)
def test_nodes_are_excluded_beside_those_that_are_already(
    fake: Fake, known: str, reported: str | None
) -> None:
    fake.says("scontrol", f"JobId=7 JobName=a ReqNodeList=(null) ExcNodeList={known} NodeList=n3\n")
    assert slurm.exclude_nodes("7", ["n1", "n2", "n1"])
    assert fake.calls("scontrol")[1:] == ([reported] if reported else [])


@pytest.mark.parametrize(
    ("said", "in_time"),
    [
        ("Invalid job id specified for job 99999", False),
        (
            "Invalid job id specified for job 99999\nslurm_suspend error: Invalid job id specified",
            False,
        ),
        ("Job has already finished for job 221", False),
        ("Job is no longer pending execution for job 4", False),
        ("245_0-2: Job has already finished\n245_3: No error", True),
        ("2_0-3: Job has already finished\n2_4-7: No error\nslurm_suspend error: No error", True),
    ],
)
def test_a_job_that_has_ended_is_no_error_nor_are_some_tasks_of_an_array(
    fake: Fake, said: str, in_time: bool
) -> None:
    fake.fails("scontrol", said)
    assert slurm.set_throttle("4711", 3) is in_time
    assert slurm.release_hold(["4711"]) is in_time
    assert slurm.exclude_nodes("4711", ["n1"]) is in_time


def test_whatever_else_is_wrong_is_reported_in_slurm_s_last_line(fake: Fake) -> None:
    fake.fails("scontrol", "Access/permission denied for job 7\nslurm_suspend error: No error")
    with pytest.raises(EnvironmentFault, match=r"^scontrol: Access/permission denied for job 7$"):
        slurm.release_hold(["7"])
    fake.lacks("scontrol")
    with pytest.raises(EnvironmentFault, match="no `scontrol` on PATH"):
        slurm.release_hold(["7"])


def test_a_slurmctld_that_restarts_is_waited_for_where_asked(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(asking, "time", SimpleNamespace(sleep=slept.append))
    fake.fails("scontrol", DOWN, times=3)
    with pytest.raises(EnvironmentFault, match="Unable to contact"):
        asking.ask("scontrol", "ping")
    assert asking.ask("scontrol", "ping", patient=True) == ""
    assert len(fake.calls("scontrol")) == 4
    assert slept == [1, 2]
    fake.fails("scontrol", DOWN)
    with pytest.raises(EnvironmentFault, match="Unable to contact"):
        asking.ask("scontrol", "ping", patient=True)
    assert 45 <= sum(slept[2:]) <= 75
    assert len(asking.PAUSES) == len(slept) - 2
    fake.fails("scontrol", "Access/permission denied for job 7")
    before = len(slept)
    with pytest.raises(EnvironmentFault):
        asking.ask("scontrol", "hold", "7", patient=True)
    assert len(slept) == before, "waiting does not cure it"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        # From the lab (22.05.8), word for word.
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{POLICY}", "limit"),
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", "limit"),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", "time"),
        (f"sbatch: error: QOSMaxGRESPerUser\n{POLICY}", "other"),
        (POLICY, "limit"),
        ("sbatch: error: Batch job submission failed: Invalid job array specification", "array_size"),
        (
            "sbatch: error: Batch job submission failed: "
            "Unable to contact slurm controller (connect failure)",
            "gone",
        ),
        (
            "sbatch: error: invalid partition specified: nosuch\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            "other",
        ),
        (
            "sbatch: error: Batch job submission failed: "
            "Invalid account or account/partition combination specified",
            "other",
        ),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            "other",
        ),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", "other"),
        # After Slurm's own list of errors; not provoked here.
        (
            "sbatch: error: Batch job submission failed: "
            "Requested time limit is invalid (missing or exceeds some limit)",
            "time",
        ),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", "gone"),
        (
            "sbatch: error: Batch job submission failed: Transport endpoint is not connected", "gone",
        ),
        (
            "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", "limit",
        ),
        ("sbatch: error: QOSGrpSubmitJobsLimit\n" + POLICY, "limit"),
        ("", "other"),
    ],
)  # fmt: skip
def test_refusals_of_sbatch_are_distinguished(message: str, kind: str) -> None:
    assert slurm.classify_refusal(message) == kind
