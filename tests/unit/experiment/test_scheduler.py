"""Which shard a worker takes next: its own first, priorities, the loaded model, what pays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.experiment.claims import Owner
from hpcbench.experiment.scheduler import EXAMINED, Candidate, ShardScheduler, Task
from hpcbench.schema.plan import Cut, Shard
from tests.campaign import examples
from tests.unit.memory_ledger import Memory


def cut(name: str, shards: int = 4, seconds: float = 60.0) -> Cut:
    """A run task of so many shards of ten samples."""
    return Cut(run_task=name, samples=10 * shards, size=10, seconds_per_sample=seconds / 10)


def board(
    memory: Memory, cuts: Sequence[Cut], job: str = "1_0", restart: int = 0, **how: Any
) -> ShardScheduler:
    """A worker's board; every run task is of its own model by default."""
    models = how.pop("models", {one.run_task: f"m-{one.run_task}" for one in cuts})
    owner = Owner(job, restart, "host", 1)
    return ShardScheduler(cuts, models, memory.of(owner), owner, chance=random.Random(job), **how)


def take(one: ShardScheduler, loaded: str | None = None, seconds_left: float = 1e9) -> Candidate:
    """Claim what it chooses."""
    found = one.next(loaded, seconds_left)
    assert isinstance(found, Candidate), found
    assert one.claim(found) is not None
    return found


@settings(deadline=None, max_examples=examples(60))
@given(
    shards=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    workers=st.integers(1, 9),
    chance=st.randoms(use_true_random=False),
)
def test_every_shard_is_done_once_whatever_the_order_of_the_workers(
    shards: list[int], workers: int, chance: random.Random
) -> None:
    memory = Memory()
    cuts = [cut(f"t{place}", count) for place, count in enumerate(shards)]
    boards = [
        board(memory, cuts, f"1_{number}", place=number / workers, workers=workers)
        for number in range(workers)
    ]
    loaded: dict[int, str | None] = dict.fromkeys(range(workers))
    done: list[str] = []
    held: dict[int, Candidate] = {}
    ended: set[int] = set()
    while len(ended) < workers:
        number = chance.choice([one for one in range(workers) if one not in ended])
        if number in held:
            shard = held.pop(number).shard
            memory.end(shard, "done")
            boards[number].done(shard)
            done.append(shard.id)
            continue
        found = boards[number].next(loaded[number])
        if isinstance(found, Candidate):
            memory.loaded[f"1_{number}-0"] = loaded[number] = found.model
            if boards[number].claim(found) is not None:
                held[number] = found
        elif found is None:
            memory.loaded[f"1_{number}-0"] = None
            ended.add(number)
    assert sorted(done) == sorted(shard.id for one in cuts for shard in one.shards())


def test_workers_begin_with_different_models_in_proportion_to_the_work() -> None:
    memory = Memory()
    cuts = [cut("a", 60), cut("b", 20)]
    first = [
        take(board(memory, cuts, f"1_{number}", place=number / 8, workers=8)).model
        for number in range(8)
    ]
    assert first == ["m-a"] * 6 + ["m-b"] * 2


def test_a_worker_begins_at_its_own_place_and_goes_on_from_there_and_round() -> None:
    one = board(Memory(), [cut("a", 4)], place=0.5, workers=2)
    assert [take(one).shard.index for _ in range(4)] == [2, 3, 0, 1]


def test_the_place_of_a_worker_may_lie_in_a_later_run_task_of_its_model() -> None:
    models = {"a": "m", "b": "m"}
    one = board(Memory(), [cut("a", 2), cut("b", 4)], models=models, place=0.7, workers=2)
    taken = [take(one).shard for _ in range(6)]
    assert [f"{shard.run_task}{shard.index}" for shard in taken] == [
        "b2", "b3", "b0", "b1", "a0", "a1",
    ]  # fmt: skip


def test_where_nothing_of_the_first_model_fits_the_time_left_another_is_started() -> None:
    cuts = [cut("a", 9, seconds=100), cut("b", 1, seconds=10)]
    one = board(Memory(), cuts, workers=2)
    assert take(one, seconds_left=50).model == "m-b"


def test_a_worker_stays_with_the_model_it_has_loaded() -> None:
    one = board(Memory(), [cut("a", 3), cut("b", 3)])
    assert [take(one, "m-b").model for _ in range(3)] == ["m-b"] * 3


def test_another_model_is_loaded_only_if_that_pays() -> None:
    loads = {"m-a": 100.0, "m-b": 100.0}
    for shards, expected in ((20, "m-b"), (2, None)):
        memory = Memory()
        memory.loaded["1_1-0"] = "m-b"
        one = board(memory, [cut("b", shards)], load_seconds=loads, workers=2)
        found = one.next("m-a")
        assert (found.model if isinstance(found, Candidate) else found) == expected


def test_the_work_of_a_model_is_shared_with_those_that_have_it_loaded() -> None:
    for shards, expected in ((8, None), (9, "m-b")):
        memory = Memory()
        memory.loaded |= {"1_1-0": "m-b", "1_2-0": "m-b"}
        one = board(memory, [cut("b", shards)], load_seconds={"m-b": 100.0}, workers=3)
        found = one.next("m-a")
        assert (found.model if found else None) == expected


def test_a_model_whose_load_is_unknown_is_expected_to_load_at_once() -> None:
    one = board(Memory(), [cut("a", seconds=60)])
    assert one.next(None, seconds_left=89) is None
    assert one.next(None, seconds_left=90) is not None


def test_of_other_models_the_one_with_most_work_is_loaded() -> None:
    one = board(Memory(), [cut("a", 2), cut("b", 4), cut("c", 3)])
    assert [take(one, "m-x").model for _ in range(3)] == ["m-b", "m-b", "m-c"]


def test_work_without_a_worker_is_always_worth_a_load() -> None:
    one = board(Memory(), [cut("b", 1, seconds=1.0)], load_seconds={"m-b": 1000.0}, workers=2)
    assert isinstance(one.next("m-a"), Candidate)


def test_the_higher_priority_goes_first() -> None:
    one = board(Memory(), [cut("a"), cut("b")], priorities={"b": 5})
    assert {take(one).shard.run_task for _ in range(4)} == {"b"}
    assert take(one).shard.run_task == "a"


def test_what_rests_is_left_alone() -> None:
    resting = {"a"}
    one = board(Memory(), [cut("a"), cut("b")], rests=resting.__contains__)
    assert {take(one).shard.run_task for _ in range(4)} == {"b"}
    assert one.next(None) is None
    resting.clear()
    assert take(one).shard.run_task == "a"


def test_what_is_handed_back_is_taken_by_another_worker() -> None:
    memory = Memory()
    cuts = [cut("a", 1)]
    first = take(board(memory, cuts, "1_0"))
    other = board(memory, cuts, "1_1")
    assert other.next(None) is None
    memory.end(first.shard, "drained")
    again = take(other)
    assert (again.shard, again.attempt) == (first.shard, 2)


def test_a_requeued_worker_takes_up_its_own_first() -> None:
    memory = Memory()
    cuts = [cut("a", 40), cut("b", 40)]
    mine = take(board(memory, cuts, "1_0", place=0.9, workers=2))
    take(board(memory, cuts, "1_1"))
    again = take(board(memory, cuts, "1_0", restart=1))
    assert (again.shard, again.attempt) == (mine.shard, 2)


def test_a_worker_that_was_requeued_again_opens_the_next_attempt() -> None:
    memory = Memory()
    take(board(memory, [cut("a", 2)], "1_0"))
    for restart in (1, 2, 3):
        again = take(board(memory, [cut("a", 2)], "1_0", restart=restart))
        assert (again.shard.index, again.attempt) == (0, restart + 1)


def test_after_two_lost_claims_a_worker_looks_which_shards_are_taken() -> None:
    memory = Memory()
    cuts = [cut("a", 100)]
    one = board(memory, cuts)
    others = memory.of(Owner("2_0", 0, "host", 1))
    take(one)
    for shard in list(cuts[0].shards())[1:50]:
        others.claim(shard, 1)
    for index in (1, 2):
        missed = one.next(None)
        assert missed is not None and missed.shard.index == index
        assert one.claim(missed) is None
    assert take(one).shard.index >= 50
    assert memory.collisions == 2


def test_a_worker_that_is_through_with_a_run_task_takes_the_next_from_its_first_shard() -> None:
    models = dict.fromkeys("abc", "m")
    one = board(Memory(), [cut(name, 3) for name in "abc"], models=models, place=0.4, workers=2)
    taken = [take(one, "m").shard for _ in range(9)]
    assert [f"{shard.run_task}{shard.index}" for shard in taken] == [
        *("b0", "b1", "b2", "a0", "a1", "a2", "c0", "c1", "c2")
    ]


def test_a_shard_that_is_taken_leaves_the_others_that_were_handed_back() -> None:
    memory = Memory()
    cuts = [cut("a", 400)]
    other = memory.of(Owner("2_0", 0, "host", 1))
    for shard in cuts[0].shards():
        other.claim(shard, 1)
        memory.end(shard, "drained" if shard.index in (5, 300, 301, 350) else "done")
    one = board(memory, cuts)
    assert sorted(take(one).shard.index for _ in range(4)) == [5, 300, 301, 350]
    assert one.next(None) is None


def test_what_is_left_of_a_run_task_is_expected_to_take_its_part_of_the_whole() -> None:
    task = Task(Cut(run_task="a", samples=10, size=4, seconds_per_sample=0.5))
    assert (task.open, task.seconds) == (3, 5.0)
    task.take(0)
    assert task.seconds == pytest.approx(10 / 3)


def test_a_requeued_worker_finds_its_own_among_more_shards_than_it_looks_into() -> None:
    memory = Memory()
    cuts = [cut("a", 4 * EXAMINED)]
    mine = take(board(memory, cuts, "1_0", place=0.7, workers=2))
    for shard in cuts[0].shards():
        memory.of(Owner("2_0", 0, "host", 1)).claim(shard, 1)
    again = take(board(memory, cuts, "1_0", restart=1))
    assert (again.shard, again.attempt) == (mine.shard, 2)


def test_before_another_model_is_loaded_it_is_seen_what_others_took_of_it_meanwhile() -> None:
    memory = Memory()
    cuts = [cut("a", 1), cut("b", 3)]
    one = board(memory, cuts)
    assert take(one, "m-a").model == "m-a"
    for shard in cuts[1].shards():
        memory.of(Owner("2_0", 0, "host", 1)).claim(shard, 1)
    assert one.next("m-a") is None


def test_a_worker_stops_when_the_time_left_is_shorter_than_a_load_and_a_shard() -> None:
    one = board(Memory(), [cut("a", seconds=100)], load_seconds={"m-a": 100.0})
    assert one.next(None, seconds_left=240) is None
    assert isinstance(one.next(None, seconds_left=260), Candidate)
    assert isinstance(one.next("m-a", seconds_left=160), Candidate)
    one.took(expected=100, actual=300)
    assert one.next("m-a", seconds_left=160) is None, "it has learnt that shards take longer here"


def test_a_quick_shard_halves_what_was_learnt_at_most() -> None:
    one = board(Memory(), [cut("a")])
    one.took(expected=100, actual=150)
    assert one.pace == 1.5
    one.took(expected=100, actual=400)
    one.took(expected=100, actual=100)
    assert one.pace == 2.0
    one.took(expected=0, actual=100)
    assert one.pace == 2.0, "of what was not expected nothing is learnt"


def test_models_that_were_given_up_are_not_tried_again() -> None:
    one = board(Memory(), [cut("a"), cut("b")])
    one.given_up.add("m-a")
    assert {take(one).model for _ in range(4)} == {"m-b"}
    assert one.next(None) is None


def looking(cuts: Sequence[Cut]) -> tuple[ShardScheduler, list[Shard]]:
    """A worker of its first run that finds all shards claimed but the last one's, and what it looks into."""
    memory, owner = Memory(), Owner("1_0", 0, "host", 1)
    *claimed, _ = [shard for one in cuts for shard in one.shards()]
    for shard in claimed:
        memory.of(Owner("2_0", 0, "host", 1)).claim(shard, 1)
    ledger, looked = memory.of(owner), list[Shard]()
    states = ledger.states
    ledger.states = lambda shards: (looked.extend(shards), states(shards))[1]  # type: ignore[method-assign]
    return ShardScheduler(cuts, {one.run_task: "m" for one in cuts}, ledger, owner), looked


def test_a_first_run_of_a_worker_looks_into_no_shard_while_one_is_open() -> None:
    one, looked = looking([cut("a", 4)])
    assert isinstance(one.next(None), Candidate)
    assert looked == []


def test_of_a_hundred_thousand_shards_only_some_are_looked_into() -> None:
    one, looked = looking([cut("a", EXAMINED - 1000), cut("b", 2000), cut("c", 2000)])
    take(one)
    assert one.next(None) is None
    assert len(looked) == EXAMINED, "of all run tasks together"
