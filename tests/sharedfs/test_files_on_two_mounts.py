"""Claims, fences, locks, events and folds seen from two nodes: nothing twice, lost or out of order.

Node B has another host name than A, and its mount believes for half a minute what it has seen of a file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.experiment.archiving import fold, fold_workers
from hpcbench.experiment.claims import Owner, answers_of, claim, pieces_of, release, shard_states
from hpcbench.experiment.control import control_request
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from tests.sharedfs.actors import Actor
from tests.sharedfs.volume import Volume
from tests.unit import small

SAMPLES, SIZE = 48, 4

pytestmark = pytest.mark.timeout(300)


def fresh(folder: Path, samples: int = SAMPLES) -> Experiment:
    return small.experiment(folder, [small.record(n) for n in range(samples)], SIZE)


def answers(here: Experiment) -> dict[str, str]:
    """The answers that count."""
    return {name: one.text for _, own in answers_of(here, "rt") for name, one in own.items()}


def written(here: Experiment) -> Counter[str]:
    """Sample → answers to it that were written, in whatever attempt."""
    return Counter(one.sample_id for piece in pieces_of(here, "rt") for one in piece)


def reported(lines: list[str], word: str) -> list[str]:
    """Output after a word."""
    return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


# --- claims -------------------------------------------------------------------------------------------


def test_workers_of_two_nodes_take_every_shard_once_and_answer_every_sample_once(
    shared: Volume, folder: Path
) -> None:
    here = fresh(folder)
    there = shared.there(here.path)
    workers = [
        Actor("work", here.path, "a1"),
        Actor("work", here.path, "a2"),
        Actor("work", there, "b1", host="b"),
        Actor("work", there, "b2", host="b"),
    ]
    for worker in workers:
        assert worker.hears() == "ready"
    for worker in workers:
        worker.tell()
    first = [worker.hears() for worker in workers]
    for worker in workers:
        worker.tell("answer")
    lines = [[line, *worker.rest()] for line, worker in zip(first, workers, strict=True)]
    claims = Counter(line.split()[0] for own in lines for line in reported(own, "claimed"))
    assert claims == dict.fromkeys(map(str, range(SAMPLES // SIZE)), 1)
    assert written(here) == dict.fromkeys((f"s{n}" for n in range(SAMPLES)), 1)
    assert answers(here) == answers(Experiment(there))


def test_a_worker_killed_on_one_node_is_taken_over_on_the_other_and_nothing_safe_is_lost(
    shared: Volume, folder: Path
) -> None:
    here = fresh(folder)
    there = Experiment(shared.there(here.path))
    most = 2 * SIZE + 2
    killed = Actor("work", here.path, "a", most)
    assert killed.hears() == "ready"
    killed.tell("claim")
    killed.tell("answer")
    safe: list[str] = []
    while len(safe) < most:
        # The other node looks all the time, and so remembers files as they were.
        answers(there), shard_states(there, ["rt"])
        safe += reported([killed.hears()], "safe")
    safe += reported(killed.kill(), "safe")
    (held,) = [one for one in shard_states(here, ["rt"]) if one.state == "claimed"]
    assert release(there, held, "its worker is gone")
    other = Actor("work", there.path, "b", host="b")
    assert other.hears() == "ready"
    other.tell()
    other.rest()
    found = answers(here)
    assert len(found) == SAMPLES
    assert {name for name in safe if found[name] != "by a"} == set()


# --- fences -------------------------------------------------------------------------------------------


def test_an_attempt_is_fenced_by_the_other_node_before_its_next_answer_is_acknowledged(
    shared: Volume, folder: Path
) -> None:
    here = fresh(folder)
    there = Experiment(shared.there(here.path))
    old = Actor("hold", here.path, 0)
    assert old.hears() == "claimed 1"
    for sample in ("s0", "s1"):
        old.tell(sample)
        assert old.hears() == f"acknowledged {sample}"
    assert release(there, shard_states(there, ["rt"])[0], "thought to be gone")
    new = Actor("hold", there.path, 0, host="b")
    assert new.hears() == "claimed 3 s0 s1"
    old.tell("s2")
    assert old.hears() == "fenced: shard rt/00000: attempt 2 took over"
    new.tell("s3")
    assert new.hears() == "acknowledged s3"
    old.rest(), new.rest()
    assert {name: answers(here)[name] for name in ("s0", "s1", "s3")} == dict.fromkeys(
        ("s0", "s1", "s3"), "by holder"
    )


def test_an_attempt_whose_files_the_other_node_folded_is_fenced_not_broken(
    shared: Volume, folder: Path
) -> None:
    """NFS says ESTALE of a file that was removed elsewhere while it is open."""
    here = fresh(folder, SIZE)
    there = Experiment(shared.there(here.path))
    old = Actor("hold", here.path, 0)
    assert old.hears() == "claimed 1"
    old.tell("s0")
    assert old.hears() == "acknowledged s0"
    assert release(there, shard_states(there, ["rt"])[0], "thought to be gone")
    assert fold(there, "rt")
    old.tell("s1")
    assert old.hears() == "fenced: shard rt/00000: attempt 1 was folded"
    old.rest()
    assert answers(there) == {"s0": "by holder"}


# --- locks --------------------------------------------------------------------------------------------


def test_a_lease_lets_one_in_at_a_time_whatever_node_they_are_on(
    shared: Volume, folder: Path
) -> None:
    there = shared.there(folder)
    many = [
        Actor("enter", place / "x.lock", place / "inside", 6, host=host)
        for place, host in ((folder, ""), (there, "b"), (folder, ""), (there, "b"))
    ]
    assert [one.rest() for one in many] == [["done"]] * 4
    assert list(folder.iterdir()) == []


def test_what_is_made_once_is_made_by_one_node_and_whole_on_all(
    shared: Volume, folder: Path
) -> None:
    there = shared.there(folder)
    many = [
        Actor("make", place / "target", host=host)
        for place, host in ((folder, ""), (there, "b"), (folder, ""), (there, "b"))
    ]
    for one in many:
        assert one.hears() == "ready"
    for one in many:
        one.tell()
    found = Counter(line for one in many for line in one.rest())
    assert found == {"made whole": 1, "waited whole": 3}
    assert [path.name for path in folder.iterdir()] == ["target"]


def test_the_lease_of_a_killed_holder_is_taken_through_the_other_mount(
    shared: Volume, folder: Path
) -> None:
    there = shared.there(folder)
    holder = Actor("keep", folder / "x.lock")
    assert holder.hears() == "alone"
    assert Actor("keep", there / "x.lock", host="b").rest() == ["not alone"]
    holder.kill()
    # No process of another host sees that it is dead: there its lock holds until it shows no beat for long.
    assert Actor("keep", there / "x.lock", host="b").rest() == ["not alone"]
    heir = Actor("keep", there / "x.lock")
    assert heir.hears() == "alone"
    assert Actor("keep", folder / "x.lock").rest() == ["not alone"]
    heir.rest()
    assert list(folder.iterdir()) == []


def test_one_node_submits_an_experiment_at_a_time_and_a_kill_leaves_it_to_others(
    shared: Volume, folder: Path
) -> None:
    here = fresh(folder)
    there = shared.there(here.path)
    refused = f"refused: {here.id}: another hpcbench is submitting it right now (wait until it has finished)"
    first = Actor("submit", here.path)
    assert first.hears() == "alone"
    assert Actor("submit", there, host="b").rest() == [refused]
    first.tell()
    assert first.rest() == []
    second = Actor("submit", there)
    assert second.hears() == "alone"
    assert Actor("submit", here.path).rest() == [refused]
    second.kill()
    assert Actor("submit", there, host="b").rest() == [refused]
    third = Actor("submit", here.path)
    assert third.hears() == "alone"
    third.rest()
    assert not (here.path / "submission.lock").exists()


# --- events -------------------------------------------------------------------------------------------


def _keep(here: Experiment) -> None:
    """Leave files as they are."""


def _fold(here: Experiment) -> None:
    assert fold(here, "rt")
    assert fold_workers(here)


@pytest.mark.parametrize("tidy", [_keep, _fold], ids=["loose", "folded"])
def test_who_follows_on_another_node_hears_every_event_once_and_in_order(
    shared: Volume, folder: Path, tidy: Callable[[Experiment], None]
) -> None:
    here = fresh(folder)
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[])
    follower = Actor("follow", shared.there(here.path), host="b")
    assert follower.hears() == "ready"
    heard = [follower.hears()]
    assert heard == ["submission 1 round"]
    news = EventLog(here.worker_events("g0", "17_0-0"))
    news.write("started")
    for state in shard_states(here, ["rt"]):
        mine = claim(here, state, Owner("17_0", 0, "a", 1))
        assert mine is not None
        news.write("shard_claimed", shard=state.shard.id, attempt=1)
        while f"shards/{state.shard.id}.1 1 claimed" not in heard:
            heard.append(follower.hears())  # so it has opened the file, and remembers its size
        for number in range(state.shard.start, state.shard.stop):
            mine.record(small.response(f"s{number}"))
        mine.end("done")
        control_request(here, "pause" if state.shard.index % 2 else "resume")
    news.write("finished")
    news.close()
    wishes = [json.loads(path.read_text()) for path in sorted(here.control_dir.iterdir())]
    wrote = [
        *_in(here.submission_file, "submission"),
        *(f"control {number} {one['event']}" for number, one in enumerate(wishes, 1)),
        *_in(here.worker_events("g0", "17_0-0"), "workers/g0.17_0-0"),
        "outcome 1 ended",
    ]
    for index in range(SAMPLES // SIZE):
        wrote += _in(here.shard_events("rt", index, 1), f"shards/rt/{index:05d}.1")
    tidy(here)
    write_json(here.outcome_file, {"version": 1, "round": 0, "state": "done"})
    heard += follower.rest()
    assert Counter(heard) == Counter(wrote)
    for source in {line.split()[0] for line in wrote}:
        assert [line for line in heard if line.split()[0] == source] == [
            line for line in wrote if line.split()[0] == source
        ]


def _in(path: Path, source: str) -> list[str]:
    """The events of a file, as a follower says them."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [f"{source} {one['seq']} {one['event']}" for one in lines]


# --- folds --------------------------------------------------------------------------------------------


def test_who_reads_on_one_node_while_the_other_folds_again_and_again_sees_every_answer(
    shared: Volume, folder: Path
) -> None:
    here = fresh(folder)
    for state in shard_states(here, ["rt"]):
        mine = claim(here, state, Owner("17_0", 0, "a", 1))
        assert mine is not None
        for number in range(state.shard.start, state.shard.stop):
            mine.record(small.response(f"s{number}"))
        mine.end("done")
    readers = [Actor("read", shared.there(here.path), host="b") for _ in range(2)]
    for reader in readers:
        assert reader.hears() == "ready"
        reader.tell()
    for index in range(SAMPLES // SIZE):
        assert fold(here, "rt")
        assert release(here, shard_states(here, ["rt"])[index], "asked again", reopen=True)
        mine = claim(here, shard_states(here, ["rt"])[index], Owner("18_0", 0, "a", 1))
        assert mine is not None
        mine.end("done")
    assert fold(here, "rt")
    (here.path / "stop").touch()
    for reader in readers:
        (last,) = reader.rest()
        assert int(last.removeprefix("looked ")) > 2
