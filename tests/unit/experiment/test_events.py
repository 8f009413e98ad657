"""Events of an experiment as one stream: every event once, in order, whatever is done to its files."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.errors import UserError
from hpcbench.experiment.archiving import fold_workers
from hpcbench.experiment.claims import Owner, claim, release, shard_states
from hpcbench.experiment.control import control_request
from hpcbench.experiment.event_cursor import decode, encode
from hpcbench.experiment.event_log import EventLog, Kind, sort_of
from hpcbench.experiment.events import Event, EventTail
from hpcbench.experiment.layout import Experiment
from hpcbench.files import atomic
from hpcbench.files.archive import fold_files
from hpcbench.files.atomic import write_json
from tests.campaign import examples
from tests.conftest import ROOT
from tests.syntax import parsed
from tests.unit import small

OWNER = Owner("4711_0", 0, "n1", 1, "n1")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def brief(events: list[Event]) -> list[tuple[str, int, str]]:
    return [(one.source, one.seq, one.kind) for one in events]


def here_in(folder: Path, samples: int = 8, shard_size: int = 4) -> Experiment:
    return small.experiment(folder, [small.record(n) for n in range(samples)], shard_size)


class Clock:
    """A clock that stops until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


# --- logs ---------------------------------------------------------------------------------------------


def test_events_are_numbered_on_after_a_log_was_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "a.events.jsonl"
    with EventLog(path) as log:
        log.write("started")
        log.write("progress", answered=3)
    with EventLog(path) as log:
        log.write("finished", sync=True)
    assert [(one["seq"], one["event"]) for one in lines(path)] == [
        (1, "started"), (2, "progress"), (3, "finished"),
    ]  # fmt: skip
    assert all(one["time"] > 1.7e9 for one in lines(path))


@settings(max_examples=examples(50))
@given(kept=st.integers(0, 200), count=st.integers(0, 4))
def test_numbers_have_no_gap_and_no_repeat_after_a_torn_tail(
    tmp_path_factory: pytest.TempPathFactory, kept: int, count: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "torn.events.jsonl"
    path.unlink(missing_ok=True)
    with EventLog(path) as log:
        for _ in range(count):
            log.write("progress")
    path.write_bytes(path.read_bytes()[:kept])
    with EventLog(path) as log:
        log.write("finished")
    assert [one["seq"] for one in lines(path)] == list(range(1, len(lines(path)) + 1))


def test_an_event_that_found_no_room_gives_its_number_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EventLog(tmp_path / "full.jsonl") as log:
        log.write("started")
        with monkeypatch.context() as broken:
            broken.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
            with pytest.raises(OSError, match="full"):
                log.write("alarm")
        log.write("disk_full")
    assert [one["seq"] for one in lines(tmp_path / "full.jsonl")] == [1, 2]


def test_every_file_of_events_has_numbers_and_responses_have_none(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    taken = claim(here, shard_states(here, ["rt"])[0], OWNER)
    assert taken is not None
    taken.record(small.response("s0"))
    taken.end("drained")
    release(here, shard_states(here, ["rt"])[0], "gone")
    from hpcbench.worker.event_log import WorkerEvents

    news = WorkerEvents(here, here.work.groups[0], OWNER)
    news.open()
    news.close("finished")
    control_request(here, "pause")
    control_request(here, "resume")
    logs = sorted(here.path.rglob("*.events.jsonl"))
    assert len(logs) == 3
    for path in logs:
        assert [one["seq"] for one in lines(path)] == list(range(1, len(lines(path)) + 1))
    assert [lines(path)[0]["seq"] for path in sorted(here.control_dir.iterdir())] == [1, 2]
    assert all("seq" not in one for one in lines(here.shard_responses("rt", 0, 1)))


def test_events_of_a_worker_hold_no_secret_however_deep(tmp_path: Path) -> None:
    from hpcbench import secret
    from hpcbench.worker.event_log import WorkerEvents

    here = here_in(tmp_path)
    secret.remember("s3cr3t-of-the-events")
    news = WorkerEvents(here, here.work.groups[0], OWNER)
    news.open()
    news.write(
        "monitor", memory={"why": ["s3cr3t-of-the-events", 1]}, message="s3cr3t-of-the-events"
    )
    news.close("finished")
    (reported,) = (
        one
        for path in here.path.rglob("*.events.jsonl")
        for one in lines(path)
        if one["event"] == "monitor"
    )
    assert (reported["memory"], reported["message"]) == ({"why": ["***", 1]}, "***")


# --- the tail -----------------------------------------------------------------------------------------


def test_the_story_of_an_experiment_comes_from_all_its_files(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[])
    tail = EventTail(here)
    assert brief(tail.poll()) == [("submission", 1, "round")]
    news = EventLog(here.worker_events("g0", "4711_0-0"))
    news.write("started")
    taken = claim(here, shard_states(here, ["rt"])[0], OWNER)
    assert taken is not None
    news.write("shard_claimed", shard="rt/00000", attempt=1)
    news.write("progress", shard="rt/00000", answered=1)
    control_request(here, "pause", ["rt"], "lunch")
    later = EventTail(here, tail.cursor)
    found = later.poll()
    assert {one.source for one in found} == {
        "control", "shards/rt/00000.1", "workers/g0.4711_0-0",
    }  # fmt: skip
    (paused,) = [one for one in found if one.kind == "pause"]
    assert paused.data["run_tasks"] == ["rt"]
    taken.end("done")
    news.write("finished")
    news.close()
    write_json(here.path / "outcome.json", {"version": 1, "round": 0, "state": "done"})
    *rest, last = brief(EventTail(here, later.cursor).poll())
    assert last == ("outcome", 1, "ended")
    assert sorted(rest) == [
        ("shards/rt/00000.1", 2, "done"),
        ("workers/g0.4711_0-0", 4, "finished"),
    ]


def test_a_shard_is_followed_because_its_worker_spoke_of_it(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    now = 0.0
    tail = EventTail(here, clock=lambda: now)
    news = EventLog(here.worker_events("g0", "4711_0-0"))
    news.write("started")
    now += 20  # the folder of workers is listed again
    assert [one.kind for one in tail.poll()] == ["started"]
    now += 0.5  # no folder of shards is
    taken = claim(here, shard_states(here, ["rt"])[1], OWNER)
    assert taken is not None
    news.write("shard_claimed", shard="rt/00001", attempt=1)
    assert {one.kind for one in tail.poll()} == {"shard_claimed", "claimed"}
    now += 0.5
    taken.end("done")
    news.write("shard_claimed", shard="rt/00000", attempt=1)
    now += 0.5
    kinds = [one.kind for one in [*tail.poll(), *tail.poll()]]
    assert sorted(kinds) == ["done", "shard_claimed"]
    news.write("finished")
    news.close()


def test_what_no_worker_spoke_of_is_found_after_a_while(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    now = 0.0
    tail = EventTail(here, clock=lambda: now)
    assert tail.poll() == []
    assert release(here, shard_states(here, ["rt"])[0], "its worker is gone")
    now += 1
    assert tail.poll() == []
    now += 60
    assert brief(tail.poll()) == [("shards/rt/00000.1", 1, "released")]


def test_what_has_ended_is_never_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = here_in(tmp_path)
    small.write_attempt(here, 0, 1, [small.response("s0")])
    with EventLog(here.worker_events("g0", "4711_0-0")) as news:
        news.write("started")
        news.write("finished")
    now = 0.0
    tail = EventTail(here, clock=lambda: now)
    assert len(tail.poll()) == 4
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda path, *how, **more: (opened.append(str(path)), real(path, *how, **more))[1],
    )
    for _ in range(50):
        now += 5
        tail.poll()
    assert set(opened) == {str(here.submission_file)}


def test_a_silent_file_is_read_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = here_in(tmp_path)
    news = EventLog(here.worker_events("g0", "4711_0-0"))
    news.write("started")
    now = 0.0
    tail = EventTail(here, clock=lambda: now)
    tail.poll()
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda path, *how, **more: (opened.append(str(path)), real(path, *how, **more))[1],
    )
    for _ in range(600):
        now += 1
        tail.poll()
    assert 60 < sum("workers" in path for path in opened) < 120
    news.write("progress", shard="rt/00000", answered=1)
    now += 10
    assert [one.kind for one in tail.poll()] == ["progress"]
    news.write("finished")
    news.close()


def test_a_new_worker_and_a_wish_are_found_at_once_however_quiet_it_was(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    now = 0.0
    tail = EventTail(here, clock=lambda: now)
    for _ in range(100):
        now += 1
        assert tail.poll() == []
    with EventLog(here.worker_events("g0", "4711_0-0")) as news:
        news.write("started")
        now += 0.5
        assert [one.kind for one in tail.poll()] == ["started"]
    control_request(here, "pause")
    now += 0.5
    assert [one.source for one in tail.poll()] == ["control"]


def test_readings_of_the_monitor_come_on_request(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    with EventLog(here.worker_events("g0", "1_0-0")) as log:
        log.write("started")
    here.worker_monitor("g0", "1_0-0").write_text('{"time":5.0,"host":1}\n{"time":6.0,"host":2}\n')
    assert [one.kind for one in EventTail(here).poll()] == ["started"]
    found = EventTail(here, resources=True).poll()
    assert brief(found)[:2] == [
        ("monitor/g0.1_0-0", 1, "resources"), ("monitor/g0.1_0-0", 2, "resources"),
    ]  # fmt: skip
    assert found[1].data == {"host": 2}
    assert found[1].sort == "resources"


def test_the_end_comes_last_and_a_resumed_experiment_goes_on(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    outcome = here.path / "outcome.json"
    log = EventLog(here.submission_file)
    log.write("round", round=0, groups=[])
    write_json(outcome, {"version": 1, "round": 0, "state": "incomplete"})
    with EventLog(here.worker_events("g0", "1_0-0")) as worker:
        worker.write("started")
        worker.write("finished")
    tail = EventTail(here)
    assert [one.kind for one in tail.poll()] == ["round", "started", "finished", "ended"]
    assert tail.ended
    log.write("round", round=1, groups=[])
    assert [one.kind for one in tail.poll()] == ["round"]
    assert not tail.ended
    write_json(outcome, {"version": 1, "round": 1, "state": "done"})
    assert [(one.seq, one.data["state"]) for one in tail.poll()] == [(2, "done")]
    assert tail.ended
    assert tail.poll() == []
    log.close()


def test_following_stops_at_the_end(tmp_path: Path) -> None:
    here = here_in(tmp_path)

    def ends(_: float) -> None:
        write_json(here.path / "outcome.json", {"version": 1, "round": 0, "state": "done"})

    assert [[one.kind for one in events] for events in EventTail(here).follow(1.0, ends)] == [
        [], ["ended"],
    ]  # fmt: skip


def test_a_line_that_is_no_json_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    path = here.worker_events("g0", "1_0-0")
    with EventLog(path) as log:
        log.write("started")
        log.write("progress")
        log.write("finished")
    whole = path.read_bytes()
    first, second, third = whole.splitlines(keepends=True)
    path.write_bytes(first + b"\0" * (len(second) - 1) + b"\n" + third)  # as NFS may show it
    now = 0.0
    tail = EventTail(here, clock=lambda: now)
    assert [one.kind for one in tail.poll()] == ["started"]
    with path.open("r+b") as file:
        file.write(whole)
    now += 5
    assert [one.kind for one in tail.poll()] == ["progress", "finished"]
    path.write_bytes(first + b"{broken\n" + third)
    tail = EventTail(here, clock=lambda: now)
    assert [one.kind for one in tail.poll()] == ["started"]
    now += 30
    found = tail.poll()
    assert [one.kind for one in found] == ["unreadable", "finished"]
    assert found[0].data == {"file": str(path), "line": 2}


def test_a_line_longer_than_a_block_is_one_event(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    with EventLog(here.worker_events("g0", "1_0-0")) as log:
        log.write("started")
        tail = EventTail(here)
        assert len(tail.poll()) == 1
        for _ in range(3):
            log.write("alarm", message="x" * 3_000_000)
        log.write("finished")
    found = EventTail(here).poll()
    assert [one.kind for one in found] == ["started", *["alarm"] * 3, "finished"]
    assert [one.kind for one in tail.poll()] == ["alarm", "alarm", "alarm", "finished"]


def test_a_folder_that_cannot_be_read_is_reported_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = here_in(tmp_path)
    with EventLog(here.worker_events("g0", "1_0-0")) as log:
        log.write("started")
    write_json(here.path / "outcome.json", {"version": 1, "round": 0, "state": "done"})
    tail = EventTail(here)
    with monkeypatch.context() as stale:
        stale.setattr(atomic, "LOOK_SECONDS", 0.0)
        stale.setattr(
            os, "pread", lambda *_: (_ for _ in ()).throw(OSError(116, "Stale file handle"))
        )
        assert tail.poll() == []
    assert tail.fault is not None
    assert "Stale" in tail.fault
    assert not tail.ended
    assert [one.kind for one in tail.poll()] == ["started", "ended"]
    assert tail.fault is None


# --- the tail, by properties --------------------------------------------------------------------------

WORKERS = [f"g0.{number}_0-0" for number in range(3)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "tear", "reopen", "replace", "poll", "restart"]),
        st.integers(0, len(WORKERS) - 1),
        st.integers(1, 60),
    ),
    max_size=40,
)


@settings(max_examples=examples(150))
@given(steps=STEPS)
def test_every_event_comes_once_and_in_order_whatever_is_done_to_the_files(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    here = Experiment(tmp_path_factory.mktemp("x") / "experiment")
    paths = [here.workers_dir / f"{name}.events.jsonl" for name in WORKERS]
    logs: dict[int, EventLog] = {}
    written: list[list[int]] = [[] for _ in paths]
    came: list[list[int]] = [[] for _ in paths]
    clock, value = Clock(), 0
    tail = EventTail(here, clock=clock)

    def look() -> None:
        for one in tail.poll():
            number = WORKERS.index(one.source.partition("/")[2])
            came[number].append(one.data["value"])
            assert one.seq == len(came[number])

    for what, which, amount in steps:
        clock.now += amount / 10
        path = paths[which]
        if what == "write":
            for _ in range(amount % 4 + 1):
                value += 1
                logs.setdefault(which, EventLog(path)).write(
                    "progress", value=value, time_spent="é"
                )
                written[which].append(value)
        elif what == "tear" and which not in logs and path.exists():
            with path.open("ab") as file:  # what a kill leaves: part of a line
                file.write(b'{"event":"progress","seq":99,"value":"\xc3\xa9'[:amount])
        elif what == "reopen" and which in logs:
            logs.pop(which).close()
        elif what == "replace" and which not in logs and path.exists():
            copy = path.with_suffix(".copy")
            copy.write_bytes(path.read_bytes())
            copy.replace(path)
        elif what == "poll":
            look()
        elif what == "restart":
            tail = EventTail(here, tail.cursor, clock=clock)
    for log in logs.values():
        log.close()
    for _ in range(3):
        clock.now += 20
        look()
    assert came == written


@settings(max_examples=examples(100))
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["claim", "claim", "end", "end", "fold", "poll", "restart"]),
            st.integers(0, 3),
        ),
        max_size=30,
    )
)
def test_folding_hides_no_event_and_repeats_none(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    here = Experiment(tmp_path_factory.mktemp("x") / "experiment")
    clock = Clock()
    tail = EventTail(here, clock=clock)
    attempts = [0, 0, 0, 0]
    open_now: set[int] = set()
    written: list[tuple[str, int, str]] = []
    came: list[tuple[str, int, str]] = []

    def reported(kind: Kind, shard: int) -> None:
        with EventLog(here.shard_events("rt", shard, attempts[shard])) as log:
            line = log.write(kind)
        written.append((f"shards/rt/{shard:05d}.{attempts[shard]}", line["seq"], kind))

    for what, shard in steps:
        clock.now += 7
        if what == "claim" and shard not in open_now:
            attempts[shard] += 1
            open_now.add(shard)
            reported("claimed", shard)
        elif what == "end" and shard in open_now:
            open_now.remove(shard)
            reported("drained", shard)
        elif what == "fold" and any(attempts):
            names = [
                here.shard_events("rt", one, attempt).name
                for one, last in enumerate(attempts)
                for attempt in range(1, last + (one not in open_now))
            ]
            assert fold_files(here.shards_dir("rt"), names)
        elif what == "poll":
            came += brief(tail.poll())
        elif what == "restart":
            tail = EventTail(here, tail.cursor, clock=clock)
    for _ in range(3):
        clock.now += 40
        came += brief(tail.poll())
    assert sorted(came) == sorted(written)
    for source in {source for source, *_ in came}:
        seqs = [seq for one, seq, _ in came if one == source]
        assert seqs == sorted(seqs)


def test_what_a_worker_said_last_is_read_where_it_was_folded(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    clock = Clock()
    tail = EventTail(here, resources=True, clock=clock)
    log = EventLog(here.worker_events("g0", "1_0-0"))
    monitor = here.worker_monitor("g0", "1_0-0")
    log.write("started")
    monitor.write_text('{"time":1.0}\n')
    assert brief(tail.poll()) == [
        ("monitor/g0.1_0-0", 1, "resources"), ("workers/g0.1_0-0", 1, "started"),
    ]  # fmt: skip
    monitor.write_text('{"time":1.0}\n{"time":2.0}\n')
    log.write("finished")
    log.close()
    assert fold_workers(here)
    clock.now += 20
    came = [*tail.poll(), *tail.poll()]
    assert brief(came) == [
        ("monitor/g0.1_0-0", 2, "resources"), ("workers/g0.1_0-0", 2, "finished"),
    ]  # fmt: skip
    assert len(EventTail(here, resources=True).poll()) == 4


def test_a_shard_folded_between_the_list_and_the_look_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = here_in(tmp_path)
    small.write_attempt(here, 0, 1, [small.response("s0")])
    write_json(here.path / "outcome.json", {"version": 1, "round": 0, "state": "done"})
    folder, name = here.shards_dir("rt"), "00000.1.events.jsonl"
    real = os.open

    def folds_first(path: Any, *how: Any, **where: Any) -> int:
        if str(path).endswith(name) and not (folder / "folded.jsonl").exists():
            monkeypatch.setattr(os, "open", real)
            assert fold_files(folder, [name])
        return real(path, *how, **where)

    monkeypatch.setattr(os, "open", folds_first)
    assert [one.kind for one in EventTail(here).poll()] == ["claimed", "done", "ended"]
    assert not (folder / name).exists()


PLACES = st.dictionaries(
    st.one_of(
        st.sampled_from(["submission", "control", "outcome", "workers/g0.1_0-0"]),
        st.builds(
            "shards/{}/{:05d}.{}".format, st.sampled_from(["rt", "a.b@c-1"]), st.integers(0, 30),
            st.integers(1, 3),
        ),
    ),
    st.integers(1, 5),
)  # fmt: skip


@given(seqs=PLACES)
def test_a_cursor_gives_back_the_place_it_was_made_of(seqs: dict[str, int]) -> None:
    cursor = encode(seqs, "20261120-1432-plan-aaaa")
    assert re.fullmatch(r"[A-Za-z0-9_-]+", cursor)
    assert decode(cursor, "20261120-1432-plan-aaaa") == seqs


def test_a_cursor_over_ten_thousand_shards_is_short() -> None:
    seqs = {f"shards/rt/{index:05d}.1": 2 for index in range(10_000)}
    seqs |= {f"shards/rt/{index:05d}.1": 1 for index in range(7, 10_000, 50)}
    assert len(encode(seqs, "x")) < 2000


@given(text=st.one_of(st.text(max_size=40), st.from_regex(r"\A[A-Za-z0-9_-]{0,60}\Z")))
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError) as refused:
        decode(text, "x")
    assert len(str(refused.value).splitlines()) == 1


def test_a_cursor_of_another_experiment_is_refused(tmp_path: Path) -> None:
    here = here_in(tmp_path)
    with pytest.raises(UserError, match="belongs to experiment 'other'"):
        EventTail(here, encode({"submission": 1}, "other"))


# --- the vocabulary -----------------------------------------------------------------------------------


def table() -> dict[str, str]:
    """Kind → sort, as docs/events.md has it."""
    text = (ROOT / "docs" / "events.md").read_text()
    return dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", text, re.MULTILINE))


def code(*words: str) -> Iterator[tuple[Path, ast.AST]]:
    """Every part of every file of hpcbench that has one of these words between quotation marks."""
    for path in sorted((ROOT / "hpcbench").rglob("*.py")):
        if not {*words}.isdisjoint(re.findall(r"[\"'](\w+)[\"']", text := path.read_text())):
            for node in ast.walk(parsed(text)):
                yield path, node


def test_the_events_page_has_every_kind_with_its_sort_and_no_other() -> None:
    assert table() == {kind: sort_of(kind) for kind in get_args(Kind)}


@pytest.mark.long
def test_every_kind_in_the_table_is_written_by_some_code() -> None:
    elsewhere = {"event_log.py", "follow.py"}  # where kinds are listed, and put into words
    said = {
        node.value
        for path, node in code(*get_args(Kind))
        if path.name not in elsewhere and isinstance(node, ast.Constant)
    }
    assert set(get_args(Kind)) <= said


@pytest.mark.long
def test_events_are_written_by_event_logs_alone() -> None:
    # cron keeps a book of its own, outside of experiments; so do trackers and notifiers, of what they sent;
    # Inspect's log has events of its own
    others = {"event_log.py", "cron.py", "dispatch.py", "inspect_turns.py"}
    for path, node in code("event"):
        if isinstance(node, ast.Dict) and path.name not in others:
            keys = [one.value for one in node.keys if isinstance(one, ast.Constant)]
            assert "event" not in keys, f"{path}:{node.lineno}"
