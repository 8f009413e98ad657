"""Workers that compare two arms: one worker a pair, turn about, whatever order the workers come in."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.experiment.claims import Owner, ShardState
from hpcbench.experiment.paired_scheduler import PairedScheduler
from hpcbench.experiment.scheduler import Candidate, ShardScheduler
from hpcbench.schema.plan import Cut
from tests.campaign import examples
from tests.unit.memory_ledger import Memory

ARMS = ("x.a", "x.b")


def cut(name: str, shards: int, seconds: float = 60.0) -> Cut:
    return Cut(run_task=name, samples=10 * shards, size=10, seconds_per_sample=seconds / 10)


def board(
    memory: Memory,
    shards: int = 12,
    number: int = 0,
    workers: int = 1,
    *,
    models: Mapping[str, str] | None = None,
    pairs: Sequence[tuple[str, str]] = (ARMS,),
    of_round: int = 0,
    restart: int = 0,
    seed: int = 7,
    load: float = 0.0,
    rests: Callable[[str], bool] = lambda run_task: False,
) -> ShardScheduler:
    names = [name for arms in pairs for name in arms]
    own = models or {name: f"m{name[-2:]}" for name in names}
    owner = Owner(f"1_{number}", restart, "host", 1, round=of_round)
    return PairedScheduler(
        [cut(name, shards) for name in names],
        own,
        memory.of(owner),
        owner,
        pairs=pairs,
        seed=seed,
        place=number / workers,
        workers=workers,
        load_seconds=dict.fromkeys(own.values(), load),
        rests=rests,
        chance=random.Random(number),
    )


@pytest.mark.parametrize(
    ("loaded", "pace", "least"),
    [(None, 1.0, 380), ("m.a", 1.0, 280), (None, 2.0, 560)],
)
def test_a_pair_is_started_if_both_halves_and_their_loads_fit_the_time_left(
    loaded: str | None, pace: float, least: float
) -> None:
    one = board(Memory(), load=100.0)
    one.took(expected=100, actual=100 * pace)
    assert one.next(loaded, least - 1) is None
    assert one.next(loaded, least) is not None


def test_the_second_of_two_workers_begins_in_the_middle_of_the_pairs() -> None:
    whole = board(Memory())
    order = []
    while (found := whole.next(None)) is not None:
        assert whole.claim(found) is not None
        order.append(found.shard.index)
    second = board(Memory(), number=1, workers=2).next(None)
    assert second is not None and second.shard.index == order[12]


def test_the_other_half_of_a_pair_rests_while_its_run_task_does() -> None:
    resting: set[str] = set()
    one = board(Memory(), 3, rests=resting.__contains__)
    first = one.next(None)
    assert first is not None and one.claim(first) is not None
    other = next(arm for arm in ARMS if arm != first.shard.run_task)
    resting.add(other)
    found = one.next(first.model)
    assert found is None or found.shard.run_task != other


def play(
    memory: Memory, boards: Sequence[ShardScheduler], chance: random.Random
) -> dict[int, list[Candidate]]:
    """Let workers work in any order until none finds anything; a step is a claim or a shard's end."""
    taken: dict[int, list[Candidate]] = defaultdict(list)
    loaded: dict[int, str | None] = dict.fromkeys(range(len(boards)))
    held: dict[int, Candidate] = {}
    ended: set[int] = set()
    while len(ended) < len(boards):
        number = chance.choice([one for one in range(len(boards)) if one not in ended])
        if number in held:
            shard = held.pop(number).shard
            memory.end(shard, "done")
            boards[number].done(shard)
            continue
        found = boards[number].next(loaded[number])
        if isinstance(found, Candidate):
            loaded[number] = found.model
            if boards[number].claim(found) is not None:
                held[number] = found
                taken[number].append(found)
        else:
            ended.add(number)
    return taken


def arms_of(taken: Sequence[Candidate]) -> str:
    return "".join(one.shard.run_task[-1] for one in taken)


def test_one_worker_takes_turns_and_loads_once_a_pair() -> None:
    memory = Memory()
    taken = play(memory, [board(memory, 6)], random.Random(0))[0]
    assert arms_of(taken) == "abbaabbaabba"
    assert [one.shard.index for one in taken[::2]] == [one.shard.index for one in taken[1::2]]
    models = [one.model for one in taken]
    assert sum(one != other for one, other in zip(models, models[1:], strict=False)) == 6


def test_arms_of_one_load_take_turns_alike() -> None:
    memory = Memory()
    one = board(memory, 6, models=dict.fromkeys(ARMS, "m"))
    assert arms_of(play(memory, [one], random.Random(0))[0]) == "abbaabbaabba"


def test_the_order_of_pairs_is_shuffled_and_the_same_for_one_seed() -> None:
    def order(seed: int) -> list[int]:
        memory = Memory()
        taken = play(memory, [board(memory, 20, seed=seed)], random.Random(0))[0]
        return [one.shard.index for one in taken[::2]]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(20)) != order(1)


@settings(deadline=None, max_examples=examples(60))
@given(
    shards=st.integers(1, 40),
    workers=st.integers(1, 9),
    shared=st.booleans(),
    tasks=st.integers(1, 3),
    chance=st.randoms(use_true_random=False),
)
def test_every_pair_is_asked_by_one_worker_and_arms_are_balanced_on_each(
    shards: int, workers: int, shared: bool, tasks: int, chance: random.Random
) -> None:
    memory = Memory()
    pairs = [(f"t{number}.a", f"t{number}.b") for number in range(tasks)]
    names = [name for arms in pairs for name in arms]
    models = dict.fromkeys(names, "m") if shared else {name: f"m{name[-2:]}" for name in names}
    boards = [
        board(memory, shards, number, workers, models=models, pairs=pairs)
        for number in range(workers)
    ]
    taken = play(memory, boards, chance)
    done = [one.shard.id for own in taken.values() for one in own]
    assert sorted(done) == sorted(
        f"{name}/{index:05d}" for name in names for index in range(shards)
    )
    for own in taken.values():
        first, second = own[::2], own[1::2]
        assert [one.shard.index for one in first] == [one.shard.index for one in second]
        # As many of either arm, and either arm as often first as second, give or take one.
        assert Counter(arms_of(own))["a"] == Counter(arms_of(own))["b"]
        started = Counter(arms_of(first))
        assert abs(started["a"] - started["b"]) <= 1


def test_workers_begin_at_places_of_their_own_and_with_different_arms() -> None:
    memory = Memory()
    order = [one.shard.index for one in play(memory, [board(memory)], random.Random(0))[0][::2]]
    found = [board(Memory(), number=number, workers=4).next(None) for number in range(4)]
    assert [
        (one.shard.run_task[-1], one.shard.index) for one in found if isinstance(one, Candidate)
    ] == [("a", order[0]), ("b", order[3]), ("a", order[6]), ("b", order[9])]


def test_a_half_that_another_worker_has_yet_to_ask_is_left_to_her() -> None:
    memory = Memory()
    first, second = board(memory, 1, 0, 2), board(memory, 1, 1, 2)
    half = first.next(None)
    assert isinstance(half, Candidate)
    assert first.claim(half) is not None
    assert second.next(None) is None
    memory.end(half.shard, "done")
    other = first.next(half.model)
    assert isinstance(other, Candidate)
    assert (other.shard.index, other.shard.run_task) == (half.shard.index, "x.b")


@pytest.mark.parametrize(
    ("of_round", "restart", "words"),
    [(1, 0, {"round": 0}), (0, 1, {"round": 0}), (0, 0, {})],
    ids=["a-later-round", "a-later-run", "a-record-without-a-round"],
)
def test_halves_of_the_gone_are_taken_over(
    of_round: int, restart: int, words: Mapping[str, int]
) -> None:
    """By a worker of a later round, or by the worker's own later run."""
    memory = Memory()
    half = board(memory, 1).next(None)
    assert isinstance(half, Candidate)
    owner = {"job": "1_0", "restart": 0, **words}
    memory.claims["x.a"] = {0: ShardState(half.shard, 1, 0, "done", owner)}
    number = 0 if restart else 3
    later = board(memory, 1, number, 4, of_round=of_round, restart=restart)
    found = later.next(None)
    assert isinstance(found, Candidate)
    assert found.shard.run_task == "x.b"


def test_what_was_handed_back_goes_first_and_brings_its_other_arm() -> None:
    memory = Memory()
    one = board(memory, 3)
    half = one.next(None)
    assert isinstance(half, Candidate)
    assert one.claim(half) is not None
    memory.end(half.shard, "drained")
    again = board(memory, 3, 1, 2, of_round=1)
    found = again.next(None)
    assert isinstance(found, Candidate)
    assert (found.shard.id, found.attempt) == (half.shard.id, 2)
    assert again.claim(found) is not None
    other = again.next(found.model)
    assert isinstance(other, Candidate)
    assert (other.shard.index, other.shard.run_task) == (half.shard.index, "x.b")


def test_no_pair_is_started_that_the_job_has_no_time_for() -> None:
    """Two blocks of 60 s and one load of 100 s, with the board's margin of 1.5, take 280 s."""
    one = board(Memory(), load=100.0)
    assert one.next("m.a", 279.0) is None
    assert isinstance(one.next("m.a", 281.0), Candidate)


def test_an_arm_that_cannot_be_loaded_leaves_the_other_unasked() -> None:
    one = board(Memory())
    one.given_up.add("m.b")
    assert one.next("m.a") is None
