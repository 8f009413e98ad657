"""Why a job waits, in plain words; other users' jobs come from a FAKE Slurm."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.schema.site import Partition, Site, SlurmSite
from hpcbench.slurm import Job, Snapshot, parse_queue, why_pending
from hpcbench.slurm.jobs import FIELD, RECORD
from hpcbench.slurm.pending_reason import QUEUE_AGE, REASONS, count_ahead, jobs_ahead
from tests.unit.slurm.fake_slurm import Fake

DATA = Path(__file__).parent.parent / "data"
NOON = time.mktime((2026, 11, 22, 12, 0, 0, 0, 0, -1))
SITE = Site(
    name="here",
    slurm=SlurmSite(gpu_gres="gpu:a100", partitions={"gpu": Partition(time_limit="1-00:00:00")}),
)
EMPTY = Snapshot()


def waiting(reason: str, **fields: object) -> Job:
    return Job("4711", "ours", "PENDING", reason, partition="gpu", priority=100, **fields)  # type: ignore[arg-type]


def line(job: str, priority: int, reason: str = "Priority", partition: str = "gpu") -> str:
    return f"{job}{FIELD}{priority}{FIELD}{reason}{FIELD}{partition}{RECORD}\n"


def test_gpus_partition_jobs_ahead_and_earliest_start_are_said(fake: Fake, folder: Path) -> None:
    fake.says(
        "squeue", line("12_[0-12]", 500) + line("13", 101) + line("9999", 99) + line("4711", 100)
    )
    job = waiting("Priority", gpus=2, gpu_type="a100", start=NOON + 8400)
    assert why_pending(job, EMPTY, SITE, folder=folder, now=NOON) == (
        "waits for 2 × A100 in partition gpu; 14 jobs ahead; earliest start 14:20"
    )
    for _ in range(3):
        why_pending(job, EMPTY, SITE, folder=folder, now=NOON)
    assert len(fake.calls("squeue")) == 1


def test_all_partitions_share_one_question_that_is_rarely_asked(fake: Fake, folder: Path) -> None:
    """slurmctld sends the whole queue for it: a user with jobs in many partitions must not multiply that."""
    fake.says(
        "squeue",
        line("12", 500) + line("13", 500, partition="cpu,gpu") + line("14", 500, partition="cpu"),
    )
    for partition, ahead in (("gpu", 2), ("cpu", 2), ("gpu,cpu", 3), ("other", 0), ("", 3)):
        job = Job("4711", "ours", "PENDING", "Priority", partition=partition, priority=100)
        assert jobs_ahead(job, folder=folder) == ahead
    assert len(fake.calls("squeue")) == 1
    (file,) = folder.glob("*.json")
    for age, calls in ((QUEUE_AGE - 60, 1), (QUEUE_AGE + 60, 2)):
        known = json.loads(file.read_text())
        moment = time.time() - age
        file.write_text(json.dumps({**known, "time": moment, "tried": moment}))
        jobs_ahead(job, folder=folder)
        assert len(fake.calls("squeue")) == calls
    assert jobs_ahead(Job("1", "ours", "PENDING", priority=0), folder=folder / "held") is None
    assert len(fake.calls("squeue")) == 2, "a held job needs no question"


def test_what_is_not_known_is_left_out(fake: Fake, folder: Path) -> None:
    fake.fails("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
    said = why_pending(waiting("Resources", gpus=1), EMPTY, None, folder=folder, now=NOON)
    assert said == "waits for 1 GPU in partition gpu"
    job = waiting("None", tres="cpu=4,mem=16G,node=1")
    assert why_pending(job, EMPTY, SITE, folder=folder) == "waits for 4 CPUs in partition gpu"
    job = waiting("Priority", gpus=2)
    assert why_pending(job, EMPTY, SITE, folder=folder) == "waits for 2 × A100 in partition gpu"


def test_only_jobs_that_stand_before_it_are_counted() -> None:
    job = Job("4711_3", "ours", "PENDING", priority=100)
    text = (
        line("1", 900)
        + line("2_[0-9%2]", 100)  # as high and older: before it
        + line("3", 50)
        + line("5000", 100)  # as high and younger
        + line("4711_[4-90]", 900)  # its own array
        + line("6", 900, "JobHeldUser")
        + line("7", 900, "Dependency")
        + line("8", 900, "BeginTime")
        + line("9", 900, "QOSMaxGRESPerUser")
        + line("10", 900, "AssocGrpCpuLimit")
        + "\n\n"
    )
    assert count_ahead(text, job) == 11


def test_a_start_on_another_day_says_which(fake: Fake, folder: Path) -> None:
    for after, word in ((86400, "Mon 12:00"), (20 * 86400, "2026-12-12 12:00")):
        said = why_pending(waiting("BeginTime", start=NOON + after), EMPTY, now=NOON, folder=folder)
        assert said.endswith(f"earliest start {word}")
    assert "start" not in why_pending(waiting("BeginTime", start=NOON - 9), EMPTY, now=NOON)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("JobHeldUser", "is held by you (run `hpcbench resume`, or `scontrol release 4711`)"),
        ("PartitionTimeLimit",
         "requests more time than partition gpu allows, 1-00:00:00 (set a lower time_limit)"),
        ("ReqNodeNotAvail, UnavailableNodes:n2",
         "nodes that it needs are down, drained or reserved (UnavailableNodes:n2)"),
        (
            "launch_failed_requeued_held",
            "is held: its node could not launch it "
            "(run `scontrol release 4711`; report the node to your support)",
        ),
        ("QOSMaxGRESPerUser",
         "the QOS's limit of GPUs per user is reached, 2 of your jobs run (QOSMaxGRESPerUser)"),
        ("AssocGrpCPURunMinutesLimit",
         "your account's limit of CPU minutes is reached, 2 of your jobs run (AssocGrpCPURunMinutesLimit)"),
        ("AssocMaxJobsLimit",
         "your account's limit of running jobs is reached, 2 of your jobs run (AssocMaxJobsLimit)"),
        ("QOSMaxWallDurationPerJobLimit",
         "the QOS's limit of wall time per job is reached (QOSMaxWallDurationPerJobLimit)"),
        ("QOSGrpTapeDrives",
         "the QOS's limit of TapeDrives is reached, 2 of your jobs run (QOSGrpTapeDrives)"),
        ("MoonIsFull", "Slurm says: MoonIsFull"),
    ],
)  # fmt: skip
def test_reasons_are_said_in_words_and_unknown_ones_as_they_are(reason: str, said: str) -> None:
    jobs = [Job("1", "a", "RUNNING"), Job("2", "a", "RUNNING"), Job("3", "a", "PENDING")]
    assert why_pending(waiting(reason), jobs, SITE) == said


def test_an_array_s_own_limit_and_a_requeue_are_distinguished_from_others() -> None:
    assert why_pending(waiting("JobArrayTaskLimit", task_ids="3-9%2"), EMPTY) == (
        "waits for other tasks of its array: at most 2 may run at once"
    )
    assert "requeued" in why_pending(waiting("BeginTime", restarts=1), EMPTY)
    assert "requeued" not in why_pending(waiting("BeginTime"), EMPTY)


@pytest.mark.parametrize("file", ["slurm-22.05/squeue.txt", "slurm-24.11/squeue.txt"])
def test_no_reason_that_real_slurms_gave_is_left_in_slurm_s_words(
    fake: Fake, folder: Path, file: str
) -> None:
    jobs = parse_queue((DATA / file).read_text())
    for job in jobs:
        if job.state == "PENDING":
            said = why_pending(job, jobs, None, folder=folder)
            assert "Slurm says" not in said
            assert "  " not in said
    assert REASONS.keys() >= {
        job.reason.partition(",")[0] for job in jobs if job.reason == "Dependency"
    }


@given(st.text(max_size=40), st.text(max_size=10))
def test_any_reason_has_words(reason: str, partition: str) -> None:
    job = Job("1", "n", "PENDING", reason, partition=partition)  # priority 0: no question is asked
    if " ".join(reason.replace("_", " ").split()) not in ("", "None", "Resources", "Priority"):
        assert why_pending(job, [], SITE)
