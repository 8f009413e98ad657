"""The first samples that a worker asks of a run task: what would fail throughout ends there, and says why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.experiment.claims import Claim, Owner
from hpcbench.experiment.control import control_request, control_state, said
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.worker.pilot import Pilot
from hpcbench.worker.process import Worker
from tests.unit.small import experiment, record, response, run_task, sample


def piloted(size: int, taken: int, task: ResolvedRunTask | None = None) -> Pilot:
    """A pilot under which samples `s0`, `s1`, … are in flight."""
    pilot = Pilot(task or run_task(), size)
    pilot.begin()
    for number in range(taken):
        pilot.takes(sample(id=f"s{number}"))
    return pilot


def test_a_run_task_fails_once_every_sample_of_its_pilot_has_failed() -> None:
    pilot = piloted(3, taken=3)
    reported = [pilot.judge(response(f"s{number}", None)) for number in (2, 0, 1)]
    assert reported == [
        None,
        None,
        "its pilot failed, none of the first 3 samples has a readable answer: "
        "3 × failed: the engine hung up",
    ]
    assert pilot.over


def test_one_readable_answer_is_enough_to_go_on() -> None:
    pilot = piloted(3, taken=3)
    assert pilot.judge(response("s0", None)) is None
    assert pilot.judge(response("s1", "42")) is None
    assert pilot.over
    assert pilot.judge(response("s2", None)) is None


def test_what_fails_at_once_does_not_outrun_a_good_answer_that_takes_longer() -> None:
    pilot = piloted(2, taken=4)
    assert pilot.judge(response("s2", None)) is None
    assert pilot.judge(response("s3", None)) is None, "neither is a sample of the pilot"
    assert pilot.judge(response("s0", "42")) is None
    assert pilot.over


@given(
    good=st.lists(st.booleans(), min_size=1, max_size=12),
    size=st.integers(1, 6),
    order=st.randoms(use_true_random=False),
)
def test_it_fails_only_if_nothing_has_been_readable(
    good: list[bool], size: int, order: object
) -> None:
    pilot = piloted(size, taken=len(good))
    numbers = list(range(len(good)))
    order.shuffle(numbers)  # type: ignore[attr-defined]
    seen: set[int] = set()
    for number in numbers:
        reported = pilot.judge(response(f"s{number}", "1" if good[number] else None))
        seen.add(number)
        if reported is not None:
            assert seen.issuperset(range(size)), "all of the pilot are answered"
            assert not any(good[one] for one in seen)
            return
    assert any(good) or len(good) < size


def test_the_most_frequent_reason_is_reported_whatever_its_numbers() -> None:
    pilot = piloted(4, taken=4)
    errors = ["400: 812 tokens", "connection refused", "400: 90 tokens", "400: 7 tokens"]
    (reported,) = filter(
        None,
        [
            pilot.judge(response(f"s{number}", None, outcome="invalid", error=error))
            for number, error in enumerate(errors)
        ],
    )
    assert reported.endswith("readable answer: 3 × invalid: 400: 812 tokens")


def test_unreadable_answers_are_as_bad_as_none() -> None:
    pilot = piloted(2, taken=2, task=run_task(plugin="kie", metrics=["kie_f1"]))
    assert pilot.judge(response("s0", "I see a page.")) is None
    reported = pilot.judge(response("s1", "I see a page.", outcome="truncated"))
    assert (
        reported is not None
        and "none of the first 2 samples" in reported
        and "unreadable: " in reported
    )


def test_answers_without_a_text_are_as_bad_as_none() -> None:
    pilot = piloted(2, taken=2)
    assert pilot.judge(response("s0", "")) is None
    reported = pilot.judge(response("s1", " \n"))
    assert reported is not None
    assert reported.endswith("a readable answer: 2 × empty: the answer has no text")
    pilot = piloted(2, taken=2)
    assert pilot.judge(response("s0", "")) is None
    assert pilot.judge(response("s1", "42")) is None
    assert pilot.over


def test_a_good_json_answer_is_read_as_evaluation_reads_it() -> None:
    pilot = piloted(1, taken=1, task=run_task(plugin="kie", metrics=["kie_f1"]))
    assert pilot.judge(response("s0", '```json\n{"total": "1"}\n```')) is None


def test_samples_that_never_got_an_answer_are_no_part_of_the_pilot() -> None:
    pilot = piloted(2, taken=2)
    pilot.judge(response("s0", None))
    pilot.begin()  # the engine died, or another shard comes
    pilot.takes(sample(id="s9"))
    reported = pilot.judge(response("s9", None))
    assert reported is not None and "first 2 samples" in reported


def test_without_a_pilot_nothing_ends_early() -> None:
    pilot = piloted(0, taken=3)
    assert [pilot.judge(response(f"s{number}", None)) for number in range(3)] == [None] * 3


def piloting(folder: Path, samples: int = 8, **task: object) -> tuple[Worker, ResolvedRunTask]:
    """A worker that has nothing loaded."""
    here = experiment(folder, [record(number) for number in range(samples)], **task)  # type: ignore[arg-type]
    return Worker(here, here.work.groups[0], Owner.here()), here.run_task("rt")


async def ask(worker: Worker, task: ResolvedRunTask, shard: int = 0) -> None:
    """Get no answer to any sample of a shard."""
    claim = Claim(worker.experiment, worker.experiment.work.shards[shard], 1)
    asking = await worker._asking(task)
    for request in asking.left(claim):
        got = response(request.sample_id, None)
        claim.record(got)
        await worker._judge(task, claim, got)


async def test_a_failed_pilot_is_written_down_once_for_all_workers(tmp_path: Path) -> None:
    worker, task = piloting(tmp_path)
    other = Worker(worker.experiment, worker.group, Owner("other", 0, "host", 1))
    await asyncio.gather(*(ask(one, task, number) for number, one in enumerate((worker, other))))
    assert not worker.control.failed_tasks, "four samples each, and a pilot is of eight"
    control_request(worker.experiment, "resume", pilot=4)
    for number, one in enumerate((worker, other)):
        await one._look_at_wishes()
        await ask(one, task, number)
    assert worker.halt.is_set()
    assert worker.control.rests("rt") and other.control.rests("rt")
    assert [one["event"] for one in said(worker.experiment)] == ["resume", "fail"]
    reason = control_state(worker.experiment).failed_tasks["rt"]
    assert reason.startswith("its pilot failed, none of the first 4 samples")
    assert f"`hpcbench resume {worker.experiment.id} --pilot 0`" in reason


def test_a_pilot_has_no_more_samples_than_its_run_task(tmp_path: Path) -> None:
    worker, task = piloting(tmp_path, samples=4)
    asyncio.run(ask(worker, task))
    assert "none of the first 4 samples" in worker.control.failed_tasks["rt"]


@pytest.mark.parametrize(("wanted", "fails"), [(None, True), (0, False)])
async def test_after_a_failed_pilot_resume_has_another_or_goes_on_regardless(
    tmp_path: Path, wanted: int | None, fails: bool
) -> None:
    worker, task = piloting(tmp_path, samples=4)
    await ask(worker, task)
    control_request(worker.experiment, "resume", pilot=wanted)
    await worker._look_at_wishes()
    assert not worker.control.rests("rt")
    claim = worker.experiment.shard_responses("rt", 0, 1)
    claim.unlink()  # as if they had never been asked
    await ask(worker, task)
    assert bool(worker.control.failed_tasks) == fails
