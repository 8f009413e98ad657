"""Lines that a power cut or a broken disk has damaged are left out and reported, in every kind of file."""

from __future__ import annotations

import errno
import gc
import io
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.claims import answers_of, damaged, pieces_of, release, shard_states
from hpcbench.experiment.control import control_request, control_state
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.experiment.view.attempts import Attempts
from hpcbench.files import atomic
from hpcbench.files.atomic import Appender, line_of, parse_line, read_lines
from hpcbench.status.liveness import release_dead
from hpcbench.status.observer import status
from hpcbench.usage.gpu_hours import usage_of
from tests.campaign import FULL, examples
from tests.unit import small

JUNK = st.sampled_from(
    [b"\0" * 7, b"\0" * 300, b"\xff\xfe", "é".encode()[:1], b"\n\xf0\n", b"\x1b[0m", b"["]
)
"""NULs, half a UTF-8 character, garbage, a line's end where none was."""

PLACE = st.floats(0, 1)


def damage(path: Path, place: float, junk: bytes) -> None:
    """Write junk over a place of a file."""
    whole = path.read_bytes()
    at = round(place * max(0, len(whole) - len(junk)))
    path.write_bytes(whole[:at] + junk + whole[at + len(junk) :])


def fresh(folder: Path) -> Experiment:
    here = small.experiment(folder, [small.record(number) for number in range(8)])
    small.write_attempt(here, 0, 1, [small.response("s0")], end="drained")
    small.write_attempt(here, 0, 2, [small.response(f"s{number}") for number in (1, 2, 3)])
    return here


@settings(max_examples=examples(150))
@given(place=PLACE, junk=JUNK, number=st.integers(1, 12))
def test_what_is_not_damaged_is_read_in_order_and_what_is_damaged_is_reported(
    tmp_path_factory: pytest.TempPathFactory, place: float, junk: bytes, number: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    path.unlink(missing_ok=True)
    records = [{"n": n, "text": "é" * n} for n in range(number)]
    with Appender(path) as file:
        for record in records:
            file.write(record)
    damage(path, place, junk)
    reported: list[int] = []
    kept = list(read_lines(path, lambda where, line: reported.append(line)))
    assert [one for one in kept if one in records] == [one for one in records if one in kept]
    assert len([one for one in kept if one in records]) >= number - 2 - len(junk) // 10
    assert reported == sorted(reported)
    whole = [line for line in path.read_bytes().split(b"\n")[:-1]]
    assert len(kept) + len(reported) == len(whole)


@pytest.mark.parametrize(
    "line",
    [
        b"\0\0\0", b"null", b"[1]", b'"a"', b"{", b'{"a":1}{"b":2}', b'{"a":"\xc3"}', b"[" * 5000, b"",
        b'\0{"a":1}', b'{"a":' + b"9" * 5000 + b"}", b"\xef\xbb\xbf{}", b'{"a":"\0"}', b"\xff\xfe{\0}\0",
    ],
)  # fmt: skip
def test_a_line_that_is_no_record_is_left_out(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"first":1}\n' + line + b'\n{"last":2}\n')
    reported: list[int] = []
    kept = list(read_lines(path, lambda where, number: reported.append(number)))
    assert (kept, reported) == ([{"first": 1}, {"last": 2}], [2])


def test_damage_is_logged_once_for_each_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "_logged", set())
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(b"\0\n\0\n{}\n")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            for name in ("a.jsonl", "b.jsonl"):
                assert list(read_lines(tmp_path / name)) == [{}]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / name}: line 1 is damaged and left out; there may be more"
        for name in ("a.jsonl", "b.jsonl")
    ]


class _Flushed(io.BufferedReader):
    """A file of a network file system that is full: closing it tells of another process's failed write."""

    def close(self) -> None:
        if not self.closed:
            super().close()
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


def test_a_reader_that_leaves_early_does_not_read_on_where_closing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":2}\n')
    opened = []

    def opening(of: Path, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        opened.append(_Flushed(io.FileIO(of)))
        return opened[-1]

    monkeypatch.setattr(Path, "open", opening)
    lines = read_lines(path)
    assert next(lines) == {"a": 1}
    del lines
    gc.collect()
    assert [file.closed for file in opened] == [True]


def test_a_log_that_ends_in_nuls_is_cut_there_and_goes_on(tmp_path: Path) -> None:
    """As ext4 leaves a file whose size reached the disk before its bytes did."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"a":1}\n' + b"\0" * 5000)
    with Appender(path) as file:
        file.write({"b": 2})
    assert list(read_lines(path)) == [{"a": 1}, {"b": 2}]


@settings(max_examples=examples(80))
@given(place=PLACE, junk=JUNK, which=st.sampled_from(["1.responses", "2.responses"]))
def test_damaged_answers_are_missed_by_their_own_samples_only(
    tmp_path_factory: pytest.TempPathFactory, place: float, junk: bytes, which: str
) -> None:
    here = fresh(tmp_path_factory.mktemp("damage"))
    true = {name: one for _, own in answers_of(here, "rt") for name, one in own.items()}
    damage(here.shards_dir("rt") / f"00000.{which}.jsonl", place, junk)
    kept = {name: one for _, own in answers_of(here, "rt") for name, one in own.items()}
    if not kept.keys() <= true.keys():
        # The name of a sample was hit, and the line is JSON still: no reader can see that.
        assert b"[" in junk
        return
    assert all(true[name].text == one.text for name, one in kept.items() if b"[" not in junk)
    list(pieces_of(here, "rt"))
    lost = true.keys() - kept.keys()
    assert [state.shard.index for state in damaged(here, ["rt"])] == ([0] if lost else [])


@settings(max_examples=examples(80))
@given(place=PLACE, junk=JUNK, attempt=st.sampled_from([1, 2]))
def test_damaged_events_leave_a_shard_that_can_be_claimed_released_or_is_done(
    tmp_path_factory: pytest.TempPathFactory, place: float, junk: bytes, attempt: int
) -> None:
    here = fresh(tmp_path_factory.mktemp("damage"))
    damage(here.shard_events("rt", 0, attempt), place, junk)
    state = shard_states(here, ["rt"])[0]
    assert (state.attempt, state.state in ("done", "claimed")) == (2, True)
    assert state.answered <= 4
    assert state.seconds >= 0
    if state.state == "claimed":
        assert release(here, state, "its worker is gone")
        assert shard_states(here, ["rt"])[0].claimable


def story(here: Experiment) -> Path:
    with EventLog(here.submission_file) as log:
        for number in range(2):
            log.write("round", round=number, groups=[])
            log.write("intent", step="g0", group="g0", first=0, workers=2)
            log.write("submitted", step="g0", job="17")
            log.write("handed")
    return here.submission_file


def news(here: Experiment) -> Path:
    path = here.worker_events("g0", "1_0-0")
    with EventLog(path) as log:
        log.write("started", owner={"job": "1_0", "restart": 0, "host": "n"})
        log.write("model_ready", model="m", seconds=1.0, versions={})
        log.write("client_health", run_task="rt", client_bound=False)
        log.write("finished")
    return path


def requested(here: Experiment) -> Path:
    control_request(here, "pause")
    return here.control_dir / "00001.json"


@pytest.mark.long
@pytest.mark.parametrize(
    ("write", "read"),
    [
        (story, lambda here: rounds(here)),
        (news, lambda here: [list(records) for _, records in here.worker_records()]),
        (news, lambda here: evaluate(here)),
        (requested, lambda here: control_state(here)),
    ],
    ids=["submission", "workers", "evaluation", "wishes"],
)
def test_no_reader_raises_over_damage(
    tmp_path: Path, write: Callable[[Experiment], Path], read: Callable[[Experiment], Any]
) -> None:
    here = fresh(tmp_path)
    path = write(here)
    whole = path.read_bytes()
    for at in range(0, len(whole), 3 if FULL else 11):
        for junk in (b"\0" * 5, b"\xff", b"\n"):
            path.write_bytes(whole[:at] + junk + whole[at + len(junk) :])
            read(here)


TEXT = st.text(st.characters(exclude_categories=()))
"""Half surrogate pairs too, which engines do send."""

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@pytest.mark.long
@given(st.dictionaries(TEXT, JSON))
def test_a_record_is_read_as_json_reads_it(record: dict[str, object]) -> None:
    line = line_of(record)
    assert parse_line(line) == json.loads(line) == record


@given(
    st.binary()
    | st.builds(
        lambda line, at, junk: line[: at % len(line)] + junk + line[at % len(line) :],
        st.builds(line_of, st.dictionaries(TEXT, JSON)),
        st.integers(0),
        st.sampled_from(
            [b"", b"\0", b"\xff", b"}", b'"', b" ", b"NaN", b"1e999", b"\\ud800", b"[" * 300]
        ),
    )
)
def test_a_damaged_line_is_read_as_json_reads_it_or_left_out(line: bytes) -> None:
    try:
        known = json.loads(line.decode())
    except (ValueError, RecursionError):
        known = None
    found = parse_line(line)
    assert repr(found) == repr(known if isinstance(known, dict) else None)


def test_a_file_that_cannot_be_written_is_named_as_the_user_knows_it(tmp_path: Path) -> None:
    """Not by the temporary name beside it."""
    long = tmp_path / ("n" * 250)
    with pytest.raises(OSError, match="too long") as caught:
        atomic.write_atomic(long, "x")
    assert caught.value.filename == str(long)


WHOLE = {"job": "1_0", "restart": 0, "host": "n", "pid": 1}
OWNERS: list[Any] = [
    7, [], {}, {"job": "1_0"}, {**WHOLE, "job": 1}, {**WHOLE, "restart": "0"}, {**WHOLE, "pid": None},
]  # fmt: skip


@pytest.mark.parametrize("owner", OWNERS, ids=repr)
def test_an_owner_of_which_only_a_part_is_there_is_none(tmp_path: Path, owner: Any) -> None:
    here = fresh(tmp_path)
    for path in (here.shard_events("rt", 1, 1), here.worker_events("g0", "1_0-0")):
        with EventLog(path) as log:
            log.write("claimed" if "shards" in path.parts else "started", owner=owner)
    held = status(here).run_tasks[0]
    assert held.state != "done"
    state = shard_states(here, ["rt"])[1]
    assert (state.state, state.owner) == ("claimed", None)
    assert [one.shard.index for one in release_dead(here, ())] == [1]


def test_an_owner_of_a_later_version_is_known(tmp_path: Path) -> None:
    here = fresh(tmp_path)
    with EventLog(here.shard_events("rt", 1, 1)) as log:
        log.write("claimed", owner={**WHOLE, "rack": 7})
    assert shard_states(here, ["rt"])[1].owner == WHOLE
    assert status(here).run_tasks[0].state != "done"


@pytest.mark.parametrize(
    "member", [{"answered": [None]}, {"answered": "8"}, {"time": "now"}, {"time": None}]
)
def test_an_event_of_a_shard_with_a_field_of_another_type_is_left_out(
    tmp_path: Path, member: dict[str, Any]
) -> None:
    here = fresh(tmp_path)
    path = here.shard_events("rt", 0, 2)
    *lines, last = map(json.loads, path.read_text().splitlines())
    path.write_text("".join(json.dumps(one) + "\n" for one in [*lines, {**last, **member}]))
    ((_, attempt),) = Attempts(here, "rt").by_shard()
    assert (attempt.number, attempt.ended, attempt.answered) == (2, "", 0)
    assert usage_of(here).hours == ()


def test_an_answer_of_another_form_is_left_out_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = fresh(tmp_path)
    path = here.shard_responses("rt", 0, 2)
    first, *lines = map(json.loads, path.read_text().splitlines())
    del first["tries"]
    path.write_text("".join(json.dumps(one) + "\n" for one in [first, *lines]))
    (found,) = (answers for _, answers in answers_of(here, "rt") if answers)
    assert set(found) == {"s0", "s2", "s3"}
    assert f"{path}: an answer is damaged and left out" in caplog.text
