"""Folding: many files become one, no reader notices, and no kill loses or doubles an answer."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.experiment.archiving import fold, fold_workers
from hpcbench.experiment.claims import (
    Claim,
    Fenced,
    Owner,
    answers_of,
    claim,
    damaged,
    pieces_of,
    release,
    responses_of,
    shard_states,
)
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.files import archive as folded_module
from hpcbench.files.archive import FOLDED, Folder, fold_files
from hpcbench.files.atomic import Appender, create_exclusive, write_all
from tests.campaign import examples
from tests.unit import small
from tests.unit.dying import Dying

OWNER = Owner("4711_0", 0, "n1", 1)
SHARDS, SIZE = 3, 3


@dataclass(frozen=True)
class Try:
    """Files that one attempt at a shard left."""

    answers: tuple[int, ...]
    """Places of the samples it answered."""
    end: str
    """Its last event; `killed`: none, and the next attempt released the shard."""
    torn: bool
    """Whether its answers end with half a line."""


TRIES = st.builds(
    Try,
    st.lists(st.integers(0, SIZE - 1), max_size=4).map(tuple),
    st.sampled_from(["drained", "failed", "killed", "done"]),
    st.booleans(),
)
HISTORIES = st.lists(st.lists(TRIES, max_size=3), min_size=SHARDS, max_size=SHARDS)

BUSY = [
    [Try((0,), "killed", True), Try((0, 1, 2), "done", False)],
    [Try((1,), "drained", False)],
    [],
]
"""A history with a bit of everything."""


def fresh(folder: Path) -> Experiment:
    records = [small.record(number) for number in range(SHARDS * SIZE)]
    return small.experiment(folder, records, SIZE)


def write(here: Experiment, history: Sequence[Sequence[Try]]) -> None:
    for index, tries in enumerate(history):
        attempt = 0
        for one in tries:
            attempt += 1
            events = here.shard_events("rt", index, attempt)
            create_exclusive(events, {"event": "claimed", "time": attempt, "owner": {"job": "1"}})
            responses = here.shard_responses("rt", index, attempt)
            with Appender(responses) as file:
                for place in one.answers:
                    text = f"attempt {attempt}\n{{"
                    file.write(small.response(f"s{index * SIZE + place}", text).to_json())
            if one.torn:
                with responses.open("ab") as torn:
                    torn.write(b'{"sample_id":"s1","outc')
            if one.end == "killed":
                release(here, shard_states(here, ["rt"])[index], "its worker is gone")
                attempt += 1
            else:
                with EventLog(events) as log:
                    log.write(one.end, answered=len(set(one.answers)))  # type: ignore[arg-type]


def seen(here: Experiment) -> tuple[Any, ...]:
    """All that readers see of a run task."""
    states = shard_states(here, ["rt"])
    return (
        [
            (one._replace(folder=None), one.answered, one.seconds, one.reason, one.claimable)
            for one in states
        ],
        dict(answers_of(here, "rt")),
        [list(responses_of(here, one.shard)) for one in states],
        list(pieces_of(here, "rt")),
        here.attempts("rt"),
    )


def files(here: Experiment) -> list[str]:
    """Files of the run task, but for what is not whole."""
    folder = here.shards_dir("rt")
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(name for name in names if name[0] != ".")


def taken(here: Experiment, index: int) -> Claim:
    mine = claim(here, shard_states(here, ["rt"])[index], OWNER)
    assert mine is not None
    return mine


# --- readers ------------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(history=HISTORIES)
def test_readers_see_the_same_before_and_after_whatever_happened(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[Try]]
) -> None:
    here = fresh(tmp_path_factory.mktemp("fold"))
    write(here, history)
    before = seen(here)
    assert fold(here, "rt")
    assert seen(here) == before
    assert files(here) == ([FOLDED] if any(history) else [])
    assert fold(here, "rt")
    assert seen(here) == before


@settings(max_examples=examples(25))
@given(history=HISTORIES)
def test_a_resumed_experiment_goes_on_with_what_is_folded_and_folds_again(
    tmp_path_factory: pytest.TempPathFactory, history: list[list[Try]]
) -> None:
    here = fresh(tmp_path_factory.mktemp("fold"))
    write(here, history)
    assert fold(here, "rt")
    for index, state in enumerate(shard_states(here, ["rt"])):
        if not state.claimable:
            continue
        mine = taken(here, index)
        assert mine.attempt == state.attempt + 1
        assert mine.answered == {one.sample_id for one in responses_of(here, state.shard)}
        for place in range(SIZE):
            if f"s{index * SIZE + place}" not in mine.answered:
                mine.record(small.response(f"s{index * SIZE + place}", "resumed"))
        mine.acknowledge()
        mine.end("done")
    before = seen(here)
    assert fold(here, "rt")
    assert seen(here) == before
    assert files(here) == [FOLDED]


def test_a_look_made_before_a_fold_still_reads_everything_after_it(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    folder = here.shards("rt")
    whole = {name: folder.read(name) for name in folder.loose}
    old = here.shards("rt")
    streams = {name: old.blocks(name) for name in old.loose}
    assert fold(here, "rt")
    assert {name: b"".join(stream) for name, stream in streams.items()} == whole
    assert {name: old.read(name) for name in whole} == whole


def test_a_stream_goes_on_in_the_next_generation_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over NFS a file that another node replaced cannot be read any more: ESTALE."""
    monkeypatch.setattr(folded_module, "BLOCK", 100)
    here = fresh(tmp_path)
    write(here, BUSY)
    name = here.shard_responses("rt", 0, 3).name
    whole = here.shards("rt").read(name)
    fold(here, "rt")
    folder = here.shards("rt")
    stream = folder.blocks(name)
    first = next(stream)
    mine = taken(here, 2)
    mine.end("drained")
    fold(here, "rt")
    pread = os.pread
    gone = {"left": 1}

    def stale(*arguments: int) -> bytes:
        if gone["left"]:
            gone["left"] -= 1
            raise OSError(116, "Stale file handle")
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", stale)
    assert first + b"".join(stream) == whole


def test_status_reads_no_answers_of_what_is_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = fresh(tmp_path)
    write(here, [[Try((0,), "killed", False)], *BUSY[1:]])
    fold(here, "rt")
    monkeypatch.setattr(Folder, "blocks", None)
    assert [state.answered for state in shard_states(here, ["rt"])] == [1, 1, 0]


# --- kills --------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("again", [False, True])
def test_killed_between_any_two_steps_it_loses_and_doubles_nothing_and_can_be_run_again(
    tmp_path: Path, again: bool
) -> None:
    origin = fresh(tmp_path / "origin")
    write(origin, BUSY)
    if again:
        assert fold(origin, "rt")
        taken(origin, 2).end("drained")
    before = seen(origin)
    steps = Dying()
    shutil.copytree(origin.path, tmp_path / "count")
    with steps():
        assert fold(Experiment(tmp_path / "count"), "rt")
    assert len(steps.calls) > 30
    for at in range(len(steps.calls)):
        here = Experiment(tmp_path / f"killed-{at}")
        shutil.copytree(origin.path, here.path)
        dying = Dying(at)
        with dying():
            fold(here, "rt")
        assert dying.dead
        assert seen(here) == before, f"killed before step {at}, {steps.calls[at]}"
        assert fold(here, "rt")
        assert files(here) == [FOLDED]
        assert seen(here) == before
        shutil.rmtree(here.path)


def test_nothing_is_removed_before_what_replaces_it_is_on_the_disk(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    steps = Dying()
    with steps():
        fold(here, "rt")
    calls = steps.calls
    # The copy is on the disk before it has a name, and its name before anything goes.
    assert calls.index("fsync") < calls.index("link")
    renamed = calls.index("rename")
    removed = [place for place, name in enumerate(calls) if name == "unlink"]
    originals = removed[-len(here.shards("rt").names) :]
    assert "fsync" in calls[renamed : originals[0]]


@pytest.mark.parametrize("error", [28, 122, 5])
def test_a_full_disk_leaves_everything_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    before, names = seen(here), files(here)
    write_once = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 100:
            raise OSError(error, os.strerror(error))
        return write_once(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=os.strerror(error)):
        fold(here, "rt")
    monkeypatch.undo()
    assert (seen(here), files(here)) == (before, names)
    assert not [path for path in here.shards_dir("rt").iterdir() if path.name[0] == "."]


# --- others at the same time ------------------------------------------------------------------------------


def test_many_fold_and_read_at_once_and_all_see_the_same(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    for _ in range(5):
        shutil.rmtree(here.shards_dir("rt"), ignore_errors=True)
        write(here, BUSY)
        before = seen(here)

        def work(number: int, before: tuple[Any, ...] = before) -> bool:
            if number % 2:
                fold(here, "rt")
                return True
            return all(seen(here) == before for _ in range(5))

        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(work, range(6)))
        assert fold(here, "rt")
        assert seen(here) == before
        assert files(here) == [FOLDED]


def test_a_fold_that_comes_too_late_changes_nothing(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    slow = here.shards("rt")
    fold(here, "rt")
    whole = (here.shards_dir("rt") / FOLDED).read_bytes()
    late = folded_module._Writer(slow, sorted(slow.loose), lambda name, data: None)
    assert not late.write()
    assert (here.shards_dir("rt") / FOLDED).read_bytes() == whole
    assert files(here) == [FOLDED]


def test_what_a_killed_fold_left_is_removed_only_if_it_is_what_was_folded(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    shutil.copytree(here.shards_dir("rt"), tmp_path / "copy")
    assert fold(here, "rt")
    before = seen(here)
    shutil.copytree(tmp_path / "copy", here.shards_dir("rt"), dirs_exist_ok=True)
    same, grown, other = (here.shard_responses("rt", *place) for place in ((0, 1), (0, 3), (1, 1)))
    with grown.open("ab") as file:
        file.write(b"an answer that nobody was told to be safe\n")
    other.write_bytes(b"something else\n")
    assert not fold(here, "rt")
    assert (same.exists(), grown.exists(), other.exists()) == (False, False, True)
    assert files(here) == [other.name, FOLDED]
    assert seen(here) == before


def test_a_file_that_a_process_writes_to_is_not_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    path = here.shard_responses("rt", 0, 1)
    link = os.link

    def grows(*arguments: Any) -> None:
        link(*arguments)

    def written(descriptor: int, data: bytes) -> None:
        write_all(descriptor, data)
        if b'"index"' in data[:10]:
            with path.open("ab") as file:
                file.write(b"{}\n")

    monkeypatch.setattr(folded_module, "write_all", written)
    monkeypatch.setattr(os, "link", grows)
    assert not fold(here, "rt")
    assert path.exists()
    assert FOLDED not in files(here)
    monkeypatch.undo()
    assert fold(here, "rt")


def test_a_shard_that_a_worker_holds_keeps_its_run_task_as_it_is(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    mine = taken(here, 2)
    names = files(here)
    assert not fold(here, "rt")
    assert files(here) == names
    mine.end("drained")
    assert fold(here, "rt")


def test_a_worker_whose_shard_was_folded_is_fenced_at_its_next_answer(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    old = taken(here, 0)
    old.record(small.response("s0"))
    old.acknowledge()
    release(here, shard_states(here, ["rt"])[0], "its worker is thought to be gone")
    assert fold(here, "rt")
    old.record(small.response("s1"))
    with pytest.raises(Fenced, match="rt/00000: attempt 1 was folded"):
        old.acknowledge()
    old.abandon()
    assert set(dict(answers_of(here, "rt"))[shard_states(here, ["rt"])[0].shard]) == {"s0"}


def test_no_moment_of_a_fold_lets_a_worker_that_was_taken_over_acknowledge(tmp_path: Path) -> None:
    """Killed anywhere, the fold has removed the later attempt's claim only after the lower one's files."""
    origin = fresh(tmp_path / "origin")
    taken(origin, 0).abandon()
    release(origin, shard_states(origin, ["rt"])[0], "gone")
    for at in range(120):
        here = Experiment(tmp_path / f"killed-{at}")
        shutil.copytree(origin.path, here.path)
        old = Claim(here, shard_states(here, ["rt"])[0].shard, 1)
        dying = Dying(at)
        with dying():
            fold(here, "rt")
        with pytest.raises(Fenced):
            old.acknowledge()
        old.abandon()
        if not dying.dead:
            return
    pytest.fail("never came to its end")


def test_a_claim_of_an_attempt_that_was_made_and_folded_meanwhile_is_refused(
    tmp_path: Path,
) -> None:
    here = fresh(tmp_path)
    stale = shard_states(here, ["rt"])[0]
    write(here, BUSY)
    assert fold(here, "rt")
    before = seen(here)
    assert claim(here, stale, OWNER) is None
    assert files(here) == [FOLDED]
    assert seen(here) == before


def test_what_is_not_an_attempt_stays_where_it_is(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    (here.shards_dir("rt") / "notes.txt").write_text("mine")
    assert fold(here, "rt")
    assert files(here) == [FOLDED, "notes.txt"]


# --- damage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["footer", "index"])
def test_a_damaged_index_is_found_again(tmp_path: Path, where: str) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    fold(here, "rt")
    before = seen(here)
    path = here.shards_dir("rt") / FOLDED
    data = bytearray(path.read_bytes())
    place = len(data) - 10 if where == "footer" else data.rindex(b'{"index":') + 30
    data[place : place + 4] = b"\0\0\0\0"
    path.write_bytes(data)
    assert seen(here) == before
    taken(here, 2).end("drained")
    before = seen(here)
    assert fold(here, "rt")
    assert seen(here) == before


@settings(max_examples=examples(80))
@given(
    place=st.floats(0, 1),
    junk=st.sampled_from([b"\0\0\0\0\0", b"\xff\xfe", "é".encode()[:1], b"\n\0"]),
)
def test_a_damaged_folded_file_gives_all_that_is_left_of_it(
    tmp_path_factory: pytest.TempPathFactory, place: float, junk: bytes
) -> None:
    here = fresh(tmp_path_factory.mktemp("fold"))
    write(here, BUSY)
    true = dict(answers_of(here, "rt"))
    fold(here, "rt")
    path = here.shards_dir("rt") / FOLDED
    whole = path.read_bytes()
    at = round(place * (len(whole) - len(junk)))
    path.write_bytes(whole[:at] + junk + whole[at + len(junk) :])
    shard_states(here, ["rt"])
    lost = 0
    for shard, answers in answers_of(here, "rt"):
        for name, one in answers.items():
            assert true[shard][name].sample_id == one.sample_id
        lost += len(true[shard]) - len(answers)
    assert lost <= 2


def test_bytes_that_a_folded_file_lost_cost_no_other_file_and_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    fold(here, "rt")
    folder = here.shards("rt")
    before = {name: folder.read(name) for name in folder.names}
    path = here.shards_dir("rt") / FOLDED
    first = next(name for name in folder.folded if before[name].count(b"\n") > 1)
    line, end, _ = before[first].partition(b"\n")
    path.write_bytes(path.read_bytes().replace(line + end, b"", 1))
    with caplog.at_level(logging.WARNING):
        damaged = here.shards("rt")
        left = {name: damaged.read(name) for name in damaged.names}
    del before[first], left[first]
    assert left == before
    assert f"{path} is damaged" in caplog.text


def test_an_acknowledged_answer_that_the_disk_lost_is_asked_again(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    write(here, BUSY)
    assert damaged(here, ["rt"]) == []
    path = here.shard_responses("rt", 0, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * len(lines[1]) + lines[2])
    (state,) = damaged(here, ["rt"])
    assert state.shard.id == "rt/00000"
    assert release(here, state, "an answer is damaged", reopen=True)
    assert not release(here, state, "an answer is damaged", reopen=True)
    assert fold(here, "rt")
    mine = taken(here, 0)
    # NULs and the line after them are one line, and damaged.
    assert mine.answered == {"s0"}
    for name in ("s1", "s2"):
        mine.record(small.response(name))
    mine.acknowledge()
    mine.end("done")
    assert damaged(here, ["rt"]) == []
    assert fold(here, "rt")
    assert shard_states(here, ["rt"])[0].state == "done"


# --- any folder ---------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(contents=st.dictionaries(st.sampled_from("abcdef"), st.binary(max_size=300), max_size=6))
def test_every_byte_of_every_file_is_kept(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("folder")
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    for names in (sorted(contents)[:3], sorted(contents)):
        assert fold_files(folder, names)
        now = Folder(folder)
        assert {name: now.read(name) for name in now.names} == contents
        assert {name: now.lines_of(name) for name in now.names} == {
            name: data.count(b"\n") for name, data in contents.items()
        }


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "nowhere")
    assert (folder.names, folder.read("a"), list(folder.records("a"))) == (set(), b"", [])


# --- workers ------------------------------------------------------------------------------------------


def worker(here: Experiment, owner: str, *kinds: str) -> None:
    here.workers_dir.mkdir(exist_ok=True)
    with EventLog(here.worker_events("g0", owner)) as log:
        for kind in kinds:
            log.write(kind)  # type: ignore[arg-type]
    here.worker_log("g0", owner).write_text("INFO ready\n")
    here.worker_monitor("g0", owner).write_text("{}\n")


def test_events_of_ended_workers_become_one_file_and_logs_stay(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    worker(here, "1_0-0", "started", "finished")
    worker(here, "1_1-0", "started", "model_failed", "failed")
    worker(here, "1_2-0", "started")
    here.worker_monitor("g0", "1_0-0.rank1").write_text("{}\n")
    before = {path: list(records) for path, records in here.worker_records()}
    assert fold_workers(here)
    names = {path.name for path in here.workers_dir.iterdir()}
    logs = {f"g0.1_{number}-0.log" for number in range(3)}
    assert names == {FOLDED, *logs, "g0.1_2-0.events.jsonl", "g0.1_2-0.monitor.jsonl"}
    assert {path: list(records) for path, records in here.worker_records()} == before
    assert here.workers().read("g0.1_0-0.monitor.jsonl") == b"{}\n"
    assert fold_workers(here, all_ended=True)
    assert {path.name for path in here.workers_dir.iterdir()} == {FOLDED, *logs}
    assert {path: list(records) for path, records in here.worker_records()} == before
