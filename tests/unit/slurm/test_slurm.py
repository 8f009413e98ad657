"""Slurm's answers, recorded from a real 22.05 and a real 24.11, and written after the form of others."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.errors import EnvironmentFault
from hpcbench.slurm import (
    Job,
    Nodes,
    parse_key_values,
    parse_queue,
    parse_runs,
    parse_sinfo,
    parse_squeue,
)
from hpcbench.slurm.jobs import FIELD, QUEUE_FIELDS, RECORD, clock_seconds, gpus_of, task_numbers

DATA = Path(__file__).parent.parent / "data"
OLD = (DATA / "slurm-22.05" / "squeue.json").read_text()
NEW = (DATA / "squeue-24.05-written-after-the-documentation.json").read_text()


def by_id(jobs: list[Job]) -> dict[str, Job]:
    return {job.id: job for job in jobs}


@pytest.mark.parametrize("answer", [OLD, NEW])
def test_array_tasks_pending_arrays_and_single_jobs_are_distinguished(answer: str) -> None:
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


def test_partitions_are_read_from_one_line_each() -> None:
    text = (DATA / "slurm-22.05" / "scontrol-partition.txt").read_text()
    partitions = parse_key_values(text)
    assert [one["PartitionName"] for one in partitions] == ["main", "low", "high"]
    assert partitions[0]["Default"] == "YES"
    assert partitions[0]["MaxTime"] == "1-00:00:00"


def test_nodes_of_partitions_are_read_from_old_and_new_sinfo() -> None:
    old = parse_sinfo((DATA / "slurm-22.05" / "sinfo.json").read_text())
    assert old == {
        name: Nodes(frozenset({"gpu:fake:2"}), 4, 62.5, 4) for name in ("main", "low", "high")
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


TEXT = (DATA / "slurm-22.05" / "squeue.txt").read_text()
LATER = DATA / "slurm-24.11"


def test_text_of_22_05_tells_what_status_needs() -> None:
    jobs = by_id(parse_queue(TEXT))
    array = jobs["257"]
    assert (array.state, array.tasks, array.throttle) == ("PENDING", 7, 1)
    assert (array.gpus, array.gpu_type, array.comment) == (1, "fake", "hpcbench:t:g0")
    running = jobs["257_0"]
    assert (running.node, running.array_job, running.tasks) == ("n1", "257", 1)
    assert (running.start, running.submitted) == (1795315915, 1795315914)
    assert jobs["259"].restarts == 1
    assert jobs["256"].exit_code == 3
    assert not jobs["256"].alive, "it is in memory still, and has ended"
    assert jobs["264"].time_limit == 2 * 86400
    assert (jobs["258"].tasks, jobs["258"].throttle, jobs["258"].priority) == (3, None, 0)
    assert jobs["263"].start == 1795319515, "Slurm's estimate"
    assert jobs["262"].reason == "ReqNodeNotAvail, UnavailableNodes:n2"


def test_text_and_json_of_24_11_say_the_same() -> None:
    text = by_id(parse_queue((LATER / "squeue.txt").read_text()))
    reported = by_id(parse_queue((LATER / "squeue.json").read_text()))
    assert text.keys() == reported.keys()
    assert text["1"].exit_code == 3, "text says `3:0` now, not a wait status"
    for job_id, job in text.items():
        other = reported[job_id]
        if job_id != "6":  # the text gives the sentence, JSON the word behind it
            assert job.reason == other.reason
        same = (
            "name", "state", "node", "restarts", "exit_code", "partition", "comment", "priority",
        )  # fmt: skip
        more = ("submitted", "start", "end", "time_limit", "gpus", "gpu_type", "task_ids", "tasks")
        for name in (*same, *more):
            assert getattr(job, name) == getattr(other, name), (job_id, name)


@pytest.mark.parametrize(
    ("state", "number"),
    [
        ("PENDING", 30),
        (["PENDING"], {"set": True, "infinite": False, "number": 30}),
    ],
)
def test_json_of_23_02_and_23_11_written_after_their_published_form(
    state: object, number: object
) -> None:
    # By hand: data_parser/v0.0.39 (23.02) has plain states and numbers, v0.0.40 (23.11) neither.
    job = {
        "job_id": 9, "array_job_id": number, "array_task_id": {"set": False, "infinite": False, "number": 0},
        "array_task_string": "0-4%2", "name": "n", "job_state": state, "state_reason": "Priority",
        "time_limit": {"set": False, "infinite": True, "number": 0}, "start_time": number,
        "exit_code": {"status": "SUCCESS", "return_code": 0, "signal": {"signal_id": 9}},
        "tres_req_str": "cpu=4,node=1,gres/gpu=2", "tres_per_node": "gres:gpu:a100:2", "user_name": "u",
    }  # fmt: skip
    found = parse_queue(json.dumps({"jobs": [job], "errors": [], "warnings": []}))[0]
    assert (found.id, found.state, found.tasks) == ("30", "PENDING", 5)
    assert (found.gpus, found.gpu_type, found.start) == (2, "a100", 30)
    assert found.time_limit is None, "infinite is no number"
    assert found.exit_code == 128 + 9


@pytest.mark.parametrize("answer", ["\n\n\n", "no jobs{", "[1]", '{"jobs": 3}', "a\x1fb\x1e\n"])
def test_an_answer_of_another_form_is_an_error_and_never_an_empty_queue(answer: str) -> None:
    # An unknown field makes squeue print one blank line a job and exit with 0.
    with pytest.raises(EnvironmentFault, match="squeue"):
        parse_queue(answer)


def test_no_jobs_are_no_error() -> None:
    assert parse_queue("") == []


def test_names_and_comments_may_hold_separators_and_lines() -> None:
    row = ["7", "a|b", "RUNNING", *["N/A"] * (len(QUEUE_FIELDS) - 4), "one\ntwo|three"]
    found = parse_queue(FIELD.join(row) + RECORD + "\n")[0]
    assert (found.name, found.comment) == ("a|b", "one\ntwo|three")


@given(st.lists(st.integers(0, 4_000_000), max_size=50, unique=True), st.integers(0, 100))
def test_task_numbers_read_what_slurm_writes_for_any_array(tasks: list[int], throttle: int) -> None:
    written = ",".join(map(str, sorted(tasks))) + (f"%{throttle}" if throttle else "")
    assert task_numbers(written) == sorted(tasks)
    job = Job("1", "n", "PENDING", task_ids=written)
    assert job.throttle == (throttle or None)
    assert task_numbers("3-9,20-28:4%2") == [3, 4, 5, 6, 7, 8, 9, 20, 24, 28]


@pytest.mark.parametrize(
    ("held", "of_job", "of_node", "found"),
    [
        ("cpu=1,node=1,gres/gpu=2", "", "gres:gpu:a100:2", (2, "a100")),
        ("cpu=1,node=1,gres/gpu:h100=4,gres/gpu=4", "", "", (4, "h100")),
        ("cpu=2,node=2", "", "gres/gpu:4", (8, "")),
        ("cpu=1,node=1", "gres/gpu:nvidia_a100_80gb:2", "", (2, "nvidia_a100_80gb")),
        ("cpu=1,node=1", "", "gres:gpu", (1, "")),
        ("cpu=1,node=1,gres/gpumem=4G,gres/nic=2", "", "", (0, "")),
        ("", "", "", (0, "")),
    ],
)
def test_gpus_are_counted_however_they_were_asked_for(
    held: str, of_job: str, of_node: str, found: tuple[int, str]
) -> None:
    assert gpus_of(held, of_job, of_node) == found


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2:00", 120),
        ("30:00", 1800),
        ("1:00:00", 3600),
        ("2-00:00:00", 172800),
        ("UNLIMITED", None),
    ],
)
def test_time_limits_are_read(text: str, seconds: int | None) -> None:
    assert clock_seconds(text) == seconds


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    parse_runs(text)
    task_numbers(text)
    clock_seconds(text)
    gpus_of(text, text, text)
    with contextlib.suppress(EnvironmentFault):
        parse_queue(text)


def test_runs_of_accounting_carry_times_gpus_and_energy() -> None:
    runs = parse_runs((DATA / "slurm-22.05" / "sacct-runs.txt").read_text())
    requeued = [run for run in runs if run.id == "259"]
    assert [run.state for run in requeued] == ["REQUEUED", "COMPLETED"]
    assert (requeued[1].elapsed, requeued[1].gpus, requeued[1].energy) == (2, 1, None)
    assert by_id(runs)["258"].tasks == 3, "three tasks cancelled before they started are one row"
    # By hand: Slurm adds the joules to AllocTRES where AcctGatherEnergyType is set.
    row = [
        "9", "n", "COMPLETED", "0:0", "n1", "100", "200", "100", "cpu=1,energy=4711,gres/gpu=1",
        "", "p", "1",
    ]  # fmt: skip
    assert parse_runs(FIELD.join(row))[0].energy == 4711
    row[8], row[9] = "cpu=1", "18446744073709551614"
    assert parse_runs(FIELD.join(row))[0].energy is None


def test_nodes_of_24_11_are_read() -> None:
    assert parse_sinfo((LATER / "sinfo.json").read_text()) == {
        "main": Nodes(frozenset({"gpu:fake:2"}), 4, 62.5, 2)
    }
