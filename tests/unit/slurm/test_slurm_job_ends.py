"""Ends of jobs that squeue no longer shows, by an accounting that may lie. On a FAKE Slurm."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.errors import EnvironmentFault
from hpcbench.slurm import Job, JobEnd, Snapshot, accounting, job_ends, judge, parse_runs
from tests.unit.slurm.fake_slurm import Fake

DATA = Path(__file__).parent.parent / "data" / "slurm-22.05"
RAN = {"NodeList": "n1", "Start": "1000", "End": "1600", "ElapsedRaw": "600", "ExitCode": "0:0"}
GPUS = {"AllocTRES": "cpu=4,gres/gpu=2,energy=9000"}


def test_one_sacct_call_tells_of_all_jobs_with_times_gpus_and_energy(
    fake: Fake, folder: Path
) -> None:
    fake.job("9", "other")
    fake.run("4711_0", state="COMPLETED", **RAN, **GPUS)
    fake.run("4711_1", state="NODE_FAIL", **RAN)
    fake.run("4712", state="CANCELLED by 1000", **RAN | {"ExitCode": "0:15"})
    found = job_ends(["4711_0", "4711_1", "4712"], ["ours"], folder=folder)
    assert len(fake.calls("sacct")) == 1
    done = found["4711_0"]
    assert (done.state, done.node, done.start, done.end, done.elapsed) == (
        "COMPLETED", "n1", 1000, 1600, 600,
    )  # fmt: skip
    assert (done.gpus, done.elapsed, done.energy, done.alive) == (2, 600, 9000, False)
    assert found["4711_1"].state == "NODE_FAIL"
    assert found["4711_1"].text == "its node failed (on n1)"
    assert (found["4712"].state, found["4712"].exit_code) == ("CANCELLED", 128 + 15)


def test_a_reused_job_id_is_never_taken_for_ours(fake: Fake, folder: Path) -> None:
    fake.job("4711", "somebody's", state="RUNNING")
    fake.run("4711", "somebody's", state="COMPLETED", **RAN)
    assert job_ends(["4711"], ["ours"], folder=folder)["4711"].state == "LOST"


def test_accounting_that_says_running_of_what_is_gone_is_not_believed(
    fake: Fake, folder: Path
) -> None:
    fake.run("4711", state="RUNNING", NodeList="n7", Start="1000", End="Unknown")
    end = job_ends(["4711"], ["ours"], folder=folder)["4711"]
    assert (end.state, end.node, end.alive, end.end) == ("LOST", "n7", False, None)


def test_a_job_that_accounting_calls_done_and_slurm_runs_again_lives(
    fake: Fake, folder: Path
) -> None:
    fake.run("4711_2", state="NODE_FAIL", **RAN)
    fake.job("4711_2", state="PENDING", Reason="BeginTime", RestartCnt="1")
    end = job_ends(["4711_2"], ["ours"], folder=folder)["4711_2"]
    assert (end.state, end.alive, end.restarts) == ("PENDING", True, 1)
    assert [run.state for run in end.runs] == ["NODE_FAIL"]


@pytest.mark.parametrize("trouble", ["none", "empty", "failing"])
def test_without_accounting_memory_tells_and_the_rest_is_lost(
    fake: Fake, folder: Path, trouble: str
) -> None:
    if trouble == "none":
        fake.lacks("sacct")
    elif trouble == "failing":
        fake.fails(
            "sacct", "sacct: error: slurm_persist_conn_open_without_init: Connection refused"
        )
    fake.job("1", state="FAILED", exit_code="768", NodeList="n1", StartTime="100", EndTime="160")
    found = job_ends(["1", "2"], ["ours"], folder=folder)
    assert (found["1"].state, found["1"].exit_code, found["1"].elapsed) == ("FAILED", 3, 60)
    assert found["2"].state == "LOST"
    assert "no record" in found["2"].text


def test_while_slurmctld_is_silent_nothing_is_called_gone(fake: Fake, folder: Path) -> None:
    fake.run("1", state="NODE_FAIL", **RAN)
    fake.fails("squeue", "slurm_load_jobs error: Socket timed out on send/recv operation")
    with pytest.raises(EnvironmentFault, match="Socket timed out"):
        job_ends(["1"], ["ours"], folder=folder)
    fake.works("squeue")
    assert job_ends(["1"], ["ours"], folder=folder)["1"].state == "NODE_FAIL"


def test_a_job_younger_than_the_snapshot_is_not_lost(fake: Fake, folder: Path) -> None:
    job_ends(["1"], ["ours"], folder=folder)
    fake.job("4711_0")
    assert job_ends(["4711_0"], ["ours"], folder=folder)["4711_0"].alive
    fake.forget()
    fake.job("4712_0")
    found = job_ends(["4712_0"], ["ours"], since=time.time(), folder=folder)
    assert found["4712_0"].alive


def test_who_says_since_when_asks_no_more_than_others(fake: Fake, folder: Path) -> None:
    before = time.time()
    for _ in range(4):
        assert job_ends(["1"], ["ours"], since=before - 60, folder=folder)["1"].state == "LOST"
    assert len(fake.calls("squeue")) == 1
    assert len(fake.calls("sacct")) == 1


def test_an_array_has_the_fate_of_the_task_that_tells_most() -> None:
    runs = [
        Job("7_0", "ours", "COMPLETED", start=1.0, end=2.0),
        Job("7_1", "ours", "OUT_OF_MEMORY", start=1.0, end=2.0),
        Job("7", "ours", "CANCELLED", end=2.0, task_ids="2-4"),
    ]
    found = judge(["7"], ["ours"], Snapshot(), runs)
    assert {job: end.state for job, end in found.items()} == {
        "7_0": "COMPLETED",
        "7_1": "OUT_OF_MEMORY",
        "7_2": "CANCELLED",
        "7_3": "CANCELLED",
        "7_4": "CANCELLED",
        "7": "OUT_OF_MEMORY",
    }
    now = Snapshot((Job("7_9", "ours", "RUNNING"), Job("8", "ours", "PENDING", task_ids="0-1")))
    found = judge(["7", "8"], ["ours"], now, runs)
    assert found["7"].alive
    assert found["7_9"].state == "RUNNING"
    assert (found["8_1"].state, found["8_1"].runs) == ("PENDING", ())


def gpu_seconds(end: JobEnd) -> float:
    return sum(run.gpus * run.elapsed for run in end.runs)


def test_each_run_of_a_requeued_job_counts() -> None:
    runs = parse_runs((DATA / "sacct-runs.txt").read_text())
    found = judge(["259", "257", "258_6", "256"], {run.name for run in runs}, Snapshot(), runs)
    assert (found["259"].state, found["259"].restarts, gpu_seconds(found["259"])) == (
        "COMPLETED",
        1,
        2,
    )
    assert [run.state for run in found["259"].runs] == ["REQUEUED", "COMPLETED"]
    assert sum(gpu_seconds(found[f"257_{task}"]) for task in (0, 1, 3, 4, 5, 6)) == 24
    assert found["258_6"].state == "CANCELLED", "it never ran, and is in accounting as one of three"
    assert found["256"].exit_code == 3
    preempted = [Job("1", "n", "PREEMPTED", start=1.0, end=5.0)]
    assert judge(["1"], ["n"], Snapshot(), preempted)["1"].state == "PREEMPTED"
    assert not judge(["1"], ["n"], Snapshot(), preempted)["1"].alive
    requeued = [Job("1", "n", "REQUEUED", start=1.0, end=5.0)]
    assert judge(["1"], ["n"], Snapshot(), requeued)["1"].state == "LOST"


IDS = st.sampled_from(["1", "1_0", "1_1", "2", "2_7"])
STATES = st.sampled_from(["RUNNING", "PENDING", "COMPLETED", "FAILED", "REQUEUED", "NODE_FAIL"])
JOBS = st.lists(
    st.builds(
        Job, IDS, st.sampled_from(["ours", "other"]), STATES,
        start=st.none() | st.floats(1, 9), end=st.none() | st.floats(1, 9),
    )
)  # fmt: skip


@given(JOBS, JOBS, st.lists(IDS))
def test_whatever_slurm_says_every_job_has_one_fate_and_only_squeue_makes_it_live(
    held: list[Job], runs: list[Job], ids: list[str]
) -> None:
    found = judge(ids, ["ours"], Snapshot(tuple(held)), runs)
    assert set(ids) <= set(found)
    living = {job.id for job in held if job.alive and job.name == "ours"}
    for job, end in found.items():
        assert end.state not in ("", "UNKNOWN")
        if end.alive:
            assert job in living or any(one.startswith(f"{job}_") for one in living)
        assert all(run.name == "ours" for run in end.runs)


def test_accounting_by_name_is_empty_where_there_is_none(fake: Fake) -> None:
    fake.run("1", state="OUT_OF_MEMORY", **RAN)
    assert [job.state for job in accounting(["ours"])] == ["OUT_OF_MEMORY"]
    assert accounting([]) == []
    fake.fails("sacct", "sacct: error: Problem talking to the database: Connection refused")
    assert accounting(["ours"]) == []
    fake.lacks("sacct")
    assert accounting(["ours"]) == []
