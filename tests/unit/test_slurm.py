"""Slurm's answers, recorded from a real 22.05 and written after the documentation of 24.05."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.slurm import Job, Nodes, parse_key_values, parse_sacct, parse_sinfo, parse_squeue

DATA = Path(__file__).parent / "data"
OLD = (DATA / "slurm-22.05" / "squeue.json").read_text()
NEW = (DATA / "squeue-24.05-written-after-the-documentation.json").read_text()


def by_id(jobs: list[Job]) -> dict[str, Job]:
    return {job.id: job for job in jobs}


@pytest.mark.parametrize("answer", [OLD, NEW])
def test_array_tasks_pending_arrays_and_single_jobs_are_told_apart(answer: str) -> None:
    jobs = by_id(parse_squeue(answer))
    assert jobs["45_0"].state == "RUNNING"
    assert jobs["45_0"].array_job == "45"
    assert jobs["45_0"].node == "n1"
    assert jobs["45"].state == "PENDING"
    assert jobs["45"].reason == "JobArrayTaskLimit"
    assert jobs["46"].reason == "JobHeldUser"
    assert jobs["27"].restarts == 1


@pytest.mark.parametrize("answer", [OLD, NEW])
def test_a_job_that_still_completes_is_alive_however_it_ended(answer: str) -> None:
    assert by_id(parse_squeue(answer))["44"].alive


def test_jobs_of_other_users_are_left_out_though_22_05_ignores_the_option() -> None:
    assert "38" in by_id(parse_squeue(OLD))
    assert "38" not in by_id(parse_squeue(OLD, "root"))


def test_an_error_inside_the_json_is_an_error() -> None:
    answer = json.dumps({"jobs": [], "errors": [{"description": "Failed while looking for jobs"}]})
    with pytest.raises(EnvironmentFault, match="Failed while looking"):
        parse_squeue(answer)


def test_accounting_tells_every_run_with_state_and_exit_code() -> None:
    jobs = parse_sacct((DATA / "slurm-22.05" / "sacct.txt").read_text())
    assert [job.state for job in jobs if job.id == "27"] == ["REQUEUED", "COMPLETED"]
    assert by_id(jobs)["19"].exit_code == 3
    assert by_id(jobs)["28"].exit_code == 128 + 15
    assert by_id(jobs)["44"].state == "CANCELLED", "`CANCELLED by 0` says who, too"
    assert by_id(jobs)["17_7"].array_job == "17"


def test_partitions_are_read_from_one_line_each() -> None:
    text = (DATA / "slurm-22.05" / "scontrol-partition.txt").read_text()
    partitions = parse_key_values(text)
    assert [one["PartitionName"] for one in partitions] == ["main", "low", "high"]
    assert partitions[0]["Default"] == "YES"
    assert partitions[0]["MaxTime"] == "1-00:00:00"


def test_nodes_of_partitions_are_read_from_old_and_new_sinfo() -> None:
    old = parse_sinfo((DATA / "slurm-22.05" / "sinfo.json").read_text())
    assert old == {
        name: Nodes(frozenset({"gpu:fake:2"}), 4, 62.5) for name in ("main", "low", "high")
    }
    assert old["main"].gpus == {"fake": 2}
    rows = [
        {
            "partition": {"name": "gpu"}, "gres": {"total": "gpu:a100:8"},
            "cpus": {"maximum": 64}, "memory": {"maximum": 1_024_000},
        },
        {"partition": {"name": "gpu"}, "gres": {"total": "gpu:a100:4,gpu:h100:4"}},
        {"partition": {"name": "cpu"}, "gres": {"total": ""}},
    ]  # fmt: skip
    new = parse_sinfo(json.dumps({"sinfo": rows, "errors": []}))
    assert new["gpu"].gpus == {"a100": 8, "h100": 4}
    assert (new["gpu"].cpus, new["gpu"].memory_gb) == (64, 1000.0)
    assert new["cpu"] == Nodes(frozenset({""}), None, None)
