"""`hpcbench events` and `hpcbench logs`, as a user types them."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.cli import follow
from hpcbench.cli.follow import WORDS, words
from hpcbench.cli.main import main
from hpcbench.experiment.control import control_request
from hpcbench.experiment.event_log import EventLog, Kind
from hpcbench.experiment.events import Event
from hpcbench.experiment.layout import Experiment
from hpcbench.files import atomic
from hpcbench.files.atomic import write_json
from hpcbench.sanitize import sanitize
from tests.conftest import ROOT
from tests.unit import small
from tests.unit.command import Cli


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """An experiment of one round: a worker on node `nid7` that has taken a shard."""
    monkeypatch.setattr(follow, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(follow, "LIST_SECONDS", 0.05)
    found = small.experiment(tmp_path, [small.record(n) for n in range(4)])
    with EventLog(found.submission_file) as log:
        log.write("round", round=0, groups=[])
        log.write("submitted", step="g0", job="4711")
    with EventLog(found.worker_events("g0", "4711_0-0")) as log:
        log.write("started", owner={"job": "4711_0", "host": "h", "node": "nid7"})
        log.write("shard_claimed", shard="rt/00000", attempt=1)
        log.write("alarm", kind="disk_nearly_full", message="2 GiB left")
    with EventLog(found.worker_events("g0", "4711_1-0")) as log:
        log.write("started", owner={"job": "4711_1", "host": "h", "node": "nid8"})
    for task in (0, 1):
        lines = "".join(f"engine {task} line {number}\n" for number in range(100))
        found.worker_log("g0", f"4711_{task}-0").write_text(lines)
    found.jobs_dir.mkdir()
    (found.jobs_dir / "4711_0_0_log.out").write_text("job of task 0\n")
    (found.jobs_dir / "4712_0_log.out").write_text("finalise\n")
    return found


def end(here: Experiment) -> None:
    write_json(here.path / "outcome.json", {"version": 1, "round": 0, "state": "done"})


def records(cli: Cli, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli(*words).splitlines()]


# --- events -------------------------------------------------------------------------------------------


def test_events_are_a_line_each_with_time_source_and_words(here: Experiment, cli: Cli) -> None:
    control_request(here, "pause", ["rt"], "lunch")
    lines = cli("events").splitlines()
    assert len(lines) == 7
    assert any(line.endswith("g0.4711_0         takes rt/00000") for line in lines)
    assert any(line.endswith("pauses rt: lunch") for line in lines)
    assert any(line.endswith("worker 4711_0 on nid7 started") for line in lines)


def test_events_as_json_end_with_a_cursor_to_go_on_from(here: Experiment, cli: Cli) -> None:
    *reported, last = records(cli, "events", "--json")
    assert {frozenset(one) for one in reported} == {
        frozenset(["source", "seq", "time", "kind", "data"])
    }
    (alarm,) = [one for one in reported if one["kind"] == "alarm"]
    assert alarm["data"]["kind"] == "disk_nearly_full"
    assert [list(one) for one in records(cli, "events", "--json", "--since", last["cursor"])] == [
        ["cursor"]
    ]
    control_request(here, "cancel")
    assert [
        one["kind"] for one in records(cli, "events", "--json", "--since", last["cursor"])[:-1]
    ] == ["cancel"]


def test_kinds_and_sorts_choose_events(here: Experiment, cli: Cli) -> None:
    here.worker_monitor("g0", "4711_0-0").write_text('{"time":5.0,"phase":"rt","held":7}\n')
    for asked, kinds in (
        ("alarm", ["alarm"]), ("warning", ["alarm"]), ("submitted, round", ["round", "submitted"]),
        ("resources", ["resources"]),
    ):  # fmt: skip
        assert [
            one["kind"] for one in records(cli, "events", "--json", "--kind", asked)[:-1]
        ] == kinds
    assert "resources" not in {one.get("kind") for one in records(cli, "events", "--json")}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["events", "--kind", "alarms"],
            "--kind: no events have the kind 'alarms' (did you mean 'alarm'?)",
        ),
        (["events", "--since", "xyz"], "this is not a cursor of events"),
        (["logs", "--grep", "a(b"], "--grep: 'a(b' is not a regular expression"),
        (["logs", "@last", "-n", "-3"], "-n -3 is negative (give 0 or more)"),
        (["logs", "@last", "4713"], "no log of '4713'"),
    ],
)
def test_what_cannot_be_meant_is_one_clear_line(
    here: Experiment, cli: Cli, arguments: list[str], said: str
) -> None:
    (line,) = cli.err(*arguments).splitlines()
    assert line.startswith(said)
    assert line.endswith(")")


def at_first_pause(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act once what follows has looked for the first time."""
    sleep, acted = time.sleep, False

    def pause(seconds: float) -> None:
        nonlocal acted
        if not acted:
            acted = True
            act()
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", pause)


def test_following_shows_what_comes_and_ends_with_the_experiment(
    here: Experiment, cli: Cli
) -> None:
    def goes_on() -> None:
        with EventLog(here.worker_events("g0", "4711_0-0")) as log:
            for number in range(3):
                time.sleep(0.05)
                log.write("progress", shard="rt/00000", answered=number)
        end(here)

    other = threading.Thread(target=goes_on)
    other.start()
    *reported, last = records(cli, "events", "--follow", "--json")
    other.join()
    assert [one["data"]["answered"] for one in reported if one["kind"] == "progress"] == [0, 1, 2]
    assert reported[-1]["kind"] == "ended"
    assert "cursor" in last


def test_following_ends_when_no_process_is_left_to_end_the_experiment(
    here: Experiment, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(follow, "over", lambda experiment: "lost")
    assert "is lost" in cli.err("events", "--follow", code=0)
    assert main(["logs", "--follow"]) == 0


def test_a_slow_directory_is_reported_once_and_followed_on(
    here: Experiment, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "SLOW_SECONDS", 0.0)
    at_first_pause(monkeypatch, lambda: end(here))
    out, err = cli.both("events", "--follow")
    assert err.count("the experiment's folder is slow") == 1
    assert out.splitlines()[-1].endswith("the experiment is done")


def test_a_file_that_cannot_be_read_for_a_while_is_reported_once_and_followed_on(
    here: Experiment, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    end(here)
    monkeypatch.setattr(atomic, "LOOK_SECONDS", 0.0)
    real = os.pread

    def stale(*_: object) -> bytes:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "pread", stale)
    at_first_pause(monkeypatch, lambda: monkeypatch.setattr(os, "pread", real))
    out, err = cli.both("events", "--follow")
    assert err.count("Stale file handle; trying again") == 1
    assert len(out.splitlines()) == 7
    monkeypatch.setattr(os, "pread", stale)
    assert main(["events"]) == 3


def test_an_experiment_that_was_removed_ends_following_with_a_clear_line(
    here: Experiment, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "QUIET_SECONDS", 0.1)
    at_first_pause(monkeypatch, lambda: shutil.rmtree(here.path))
    assert f"{here.path} is gone" in cli.err("events", "--follow", code=3)


def following(arguments: list[str], here: Experiment) -> subprocess.Popen[bytes]:
    """`hpcbench` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "hpcbench.cli.main", *arguments], cwd=ROOT,
        env={**os.environ, "HPCBENCH_HOME": str(here.path.parents[1])},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("verb", ["events", "logs"])
def test_ctrl_c_ends_following_with_130(here: Experiment, verb: str) -> None:
    process = following([verb, "--follow"], here)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.decode().splitlines() == ["interrupted"]


def test_a_damaged_event_is_reported_and_the_rest_is_shown(here: Experiment, cli: Cli) -> None:
    path = here.worker_events("g0", "4711_1-0")
    path.write_bytes(path.read_bytes() + b"{damaged\n")
    with EventLog(path) as log:
        log.write("finished")
    lines = cli("events").splitlines()
    assert any(line.endswith(f"line 2 of {path} is damaged") for line in lines)
    assert any(line.endswith("worker finished: no shard is left for it") for line in lines)


def test_every_kind_has_a_sentence() -> None:
    assert set(WORDS) == set(get_args(Kind))


@given(
    kind=st.sampled_from([*get_args(Kind), "of_a_later_version"]),
    data=st.dictionaries(
        st.sampled_from(["message", "owner", "run_tasks", "shard", "answered", "x"]),
        st.one_of(st.none(), st.integers(), st.text(), st.dictionaries(st.text(), st.integers())),
    ),
)
def test_whatever_an_event_says_is_one_harmless_line(kind: str, data: dict[str, Any]) -> None:
    line = sanitize(words(Event("workers/g0.1_0-0", 1, 0.0, kind, data)))
    assert "\n" not in line
    assert "\x1b" not in line


# --- logs ---------------------------------------------------------------------------------------------


def heads(lines: list[str]) -> list[str]:
    return [line[4:-4] for line in lines if line.startswith("==> ")]


def test_logs_are_listed_with_their_last_line(here: Experiment, cli: Cli) -> None:
    assert [line.split("  ")[::2] for line in cli("logs").splitlines()] == [
        ["jobs/4711_0_0_log.out", "job of task 0"], ["jobs/4712_0_log.out", "finalise"],
        ["workers/g0.4711_0-0.log", "engine 0 line 99"],
        ["workers/g0.4711_1-0.log", "engine 1 line 99"],
    ]  # fmt: skip
    engines = cli.json("logs", "--engine", "--json")
    assert [Path(one["path"]).name for one in engines] == ["g0.4711_0-0.log", "g0.4711_1-0.log"]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("rt", ["4711_0_0_log.out", "g0.4711_0-0.log"]),
        ("nid7", ["4711_0_0_log.out", "g0.4711_0-0.log"]),
        ("4711_0", ["4711_0_0_log.out", "g0.4711_0-0.log"]),
        ("4711", ["4711_0_0_log.out", "g0.4711_0-0.log", "g0.4711_1-0.log"]),
        ("g0", ["g0.4711_0-0.log", "g0.4711_1-0.log"]),
    ],
)
def test_a_log_is_named_by_run_task_worker_node_or_job(
    here: Experiment, cli: Cli, name: str, files: list[str]
) -> None:
    assert heads(cli("logs", "@last", name).splitlines()) == files


def test_the_end_of_one_log_is_shown_alone(here: Experiment, cli: Cli) -> None:
    assert cli("logs", "@last", "workers/g0.4711_1-0.log", "-n", "2").splitlines() == [
        "engine 1 line 98",
        "engine 1 line 99",
    ]
    assert len(cli("logs", "@last", "g0.4711_1").splitlines()) == 40


def test_lines_are_found_in_all_chosen_logs(here: Experiment, cli: Cli) -> None:
    lines = cli("logs", "--engine", "--grep", r"line \d$").splitlines()
    assert len(lines) == 22
    assert heads(lines) == ["g0.4711_0-0.log", "g0.4711_1-0.log"]
    assert cli("logs", "--grep", r"^final", "-n", "1").splitlines() == [
        "==> 4712_0_log.out <==",
        "finalise",
    ]


def test_following_logs_puts_their_names_before_new_lines(
    here: Experiment, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def goes_on() -> None:
        with here.worker_log("g0", "4711_0-0").open("a") as log:
            log.write("half a line, ")
            log.flush()
            time.sleep(0.05)
            log.write("whole now\n")
        here.worker_log("g0", "4711_2-0").write_text("from its first line on\n")
        time.sleep(0.2)
        end(here)

    other = threading.Thread(target=goes_on)
    at_first_pause(monkeypatch, other.start)
    lines = cli("logs", "--follow", "--engine", "-n", "1").splitlines()
    other.join()
    assert sorted(lines[:2]) == [
        "g0.4711_0-0 | engine 0 line 99", "g0.4711_1-0 | engine 1 line 99",
    ]  # fmt: skip
    assert sorted(lines[2:]) == [
        "g0.4711_0-0 | half a line, whole now", "g0.4711_2-0 | from its first line on",
    ]  # fmt: skip


HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \x08\x07 10%\r 99%\r100% \u202etxt\n"


@pytest.mark.long
def test_on_a_terminal_a_log_commands_nothing(here: Experiment) -> None:
    log = here.worker_log("g0", "4711_0-0")
    log.write_text(HOSTILE)
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "hpcbench.cli.main", "logs", "@last", log.name], cwd=ROOT,
        env={**os.environ, "HPCBENCH_HOME": str(here.path.parents[1])}, stdout=theirs, check=True,
    )  # fmt: skip
    assert os.read(ours, 4096).decode() == "100% ⟨U+202E⟩txt\r\n"
    os.close(ours)
    os.close(theirs)


def test_a_pipe_gets_a_log_as_it_is(here: Experiment, cli: Cli) -> None:
    log = here.worker_log("g0", "4711_0-0")
    log.write_text(HOSTILE)
    assert cli("logs", "@last", log.name) == HOSTILE


@given(st.text())
def test_nothing_that_terminals_obey_is_left(line: str) -> None:
    assert not any(char in sanitize(line) for char in "\x1b\x07\x08\x9b\r\n\u202e")


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"])))
def test_plain_text_stays_as_it_is(line: str) -> None:
    assert sanitize(line) == line
