"""Runs of one job that Slurm gives the same number: distinguished, and the earlier one fenced."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hpcbench import slurm
from hpcbench.experiment.archiving import fold_workers
from hpcbench.experiment.claim_store import ClaimStore
from hpcbench.experiment.claims import Fenced, Owner, claim, shard_states
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.job_runs import begin_run, living_run
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.scheduler import Candidate, ShardScheduler
from hpcbench.files.atomic import read_lines
from hpcbench.slurm import Job
from hpcbench.status import status
from hpcbench.status.liveness import living, working
from tests.unit import small

FIRST = Owner("17_0", 0, "node", 100, "n1")
"""A process as Slurm names it."""

SECOND = replace(FIRST, pid=200, node="n2")
"""Another process of the same job."""


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """An experiment on Slurm whose array is job 17."""
    made = small.experiment(tmp_path, [small.record(number) for number in range(8)])
    resolved = json.loads(made.resolved_file.read_text())
    resolved["plan"]["executor"] = "slurm"
    made.resolved_file.write_text(json.dumps(resolved))
    with EventLog(made.submission_file) as log:
        group = asdict(made.work.groups[0])
        log.write("round", round=0, groups=[group])
        log.write("intent", step="g0", group="g0", first=0, workers=1)
        log.write("submitted", step="g0", job="17")
        log.write("handed", step="")
    return made


def name(here: Experiment, step: str = "g0") -> str:
    return f"hpcbench:{here.id}:{step}.0"


def board(here: Experiment, owner: Owner) -> ShardScheduler:
    return ShardScheduler(here.work.cuts, {"rt": "m"}, ClaimStore(here, "g0", owner), owner)


def test_a_second_process_of_one_name_is_a_later_run_with_a_file_of_its_own(
    here: Experiment,
) -> None:
    one, first = begin_run(here, "g0", FIRST, gpus="0")
    other, second = begin_run(here, "g0", SECOND)
    first.write("finished")
    first.close()
    second.close()
    assert (one, other) == (FIRST, replace(SECOND, restart=1))
    assert [path.name for path in sorted(here.workers_dir.glob("*.events.jsonl"))] == [
        "g0.17_0-0.events.jsonl", "g0.17_0-1.events.jsonl",
    ]  # fmt: skip
    reported = [list(read_lines(path)) for path in sorted(here.workers_dir.glob("*.events.jsonl"))]
    assert [[one["event"] for one in lines] for lines in reported] == [
        ["started", "finished"], ["started"],
    ]  # fmt: skip
    assert [lines[0]["owner"]["node"] for lines in reported] == ["n1", "n2"]
    assert [[one["seq"] for one in lines] for lines in reported] == [[1, 2], [1]]


def test_of_many_at_once_each_has_its_own_name(here: Experiment) -> None:
    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(lambda _: begin_run(here, "g0", FIRST), range(24)))
    for _, log in started:
        log.close()
    assert sorted(owner.restart for owner, _ in started) == list(range(24))


def test_the_name_of_a_run_that_was_folded_stays_taken(here: Experiment) -> None:
    _, log = begin_run(here, "g0", FIRST)
    with log:
        log.write("finished")
    assert fold_workers(here)
    assert sorted(here.workers_dir.glob("*.events.jsonl")) == []
    owner, log = begin_run(here, "g0", SECOND)
    log.close()
    assert owner.restart == 1
    assert len(list(here.worker_records())) == 2


def test_the_living_run_of_a_process_is_found_by_whatever_number_it_got(here: Experiment) -> None:
    _, log = begin_run(here, "g0", FIRST)
    with log:
        log.write("finished")
    assert fold_workers(here)
    assert living_run(here, "g0", SECOND) is None, "it has not begun"
    owner, log = begin_run(here, "g0", SECOND)
    found = living_run(here, "g0", SECOND)
    assert found == here.worker_events("g0", owner.id) and owner.restart == 1
    with log:
        log.write("finished")
    assert living_run(here, "g0", SECOND) is None, "it has ended"


def test_the_later_takes_up_what_the_earlier_left_which_is_fenced_if_it_lives(
    here: Experiment,
) -> None:
    earlier, log = begin_run(here, "g0", FIRST)
    held = claim(here, shard_states(here, ["rt"])[1], earlier)
    assert held is not None
    log.write("shard_claimed", shard="rt/00001", attempt=1)
    held.record(small.response("s4"))
    held.acknowledge()
    later, _ = begin_run(here, "g0", SECOND)
    chosen = board(here, later).next(None)
    assert isinstance(chosen, Candidate)
    assert (chosen.shard.id, chosen.attempt) == ("rt/00001", 2)
    taken = board(here, later).claim(chosen)
    assert taken is not None
    assert taken.answered == {"s4"}
    held.record(small.response("s5"))
    with pytest.raises(Fenced):
        held.acknowledge()


def test_a_number_that_slurm_gave_to_another_job_since_is_not_ours(
    here: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        Job("17_0", "hpcbench:20261120-1432-plan-bbbb:g0.0", "RUNNING"),
        Job("17", "x", "PENDING"),
    ]
    monkeypatch.setattr(slurm, "queue", lambda: others)
    assert living(here) == []
    own = Job("17_0", name(here), "RUNNING")
    monkeypatch.setattr(slurm, "queue", lambda: [*others, own])
    assert living(here) == [own]


def test_a_job_works_if_its_last_run_does_whatever_slurm_has_counted(here: Experiment) -> None:
    job = Job("17_0", name(here), "RUNNING")
    assert working(here, [job]) == [job], "it has yet to say a word"
    _, first = begin_run(here, "g0", FIRST)
    assert working(here, [job]) == [job]
    first.write("finished")
    assert working(here, [job]) == []
    assert working(here, [replace(job, restarts=1)]) == [replace(job, restarts=1)]
    _, second = begin_run(here, "g0", SECOND)
    assert working(here, [job]) == [job], "it was started a second time"
    second.write("stopped")
    assert working(here, [job]) == []


def test_status_shows_the_later_alone_and_what_became_of_the_earlier(
    here: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_run(here, "g0", FIRST)
    begin_run(here, "g0", SECOND)
    job = Job("17_0", name(here), "RUNNING")
    word = slurm.Snapshot((job,), time=9e9)
    monkeypatch.setattr(slurm, "snapshot", lambda **_: word)
    now = status(here)
    assert [(one.id, one.node) for one in now.workers] == [("17_0-1", "n2")]
    (lost,) = now.failures
    assert "loss of slurmctld's state" in lost.cause
    assert lost.nodes == ("n1",)
