"""Without room a process says so at last: the worker, and the one that finalises."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench import finalise
from hpcbench.experiment import last_word
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import worker_runs
from hpcbench.files import atomic
from hpcbench.files.archive import Folder, fold_files
from hpcbench.files.atomic import read_json, read_lines, write_json
from tests.unit import small

KINDS = pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "no space left"), (errno.EDQUOT, "quota exceeded")],
    ids=["ENOSPC", "EDQUOT"],
)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    made = small.experiment(tmp_path, [small.record(1)])
    made.workers_dir.mkdir(exist_ok=True)
    last_word.keep_room(last_word.finalisers_ballast(made))
    return made


def no_room(number: int) -> OSError:
    return OSError(number, os.strerror(number))


# --- who finalises ----------------------------------------------------------------------------------------


@KINDS
def test_who_finalises_gives_up_the_ballast_to_say_it(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def meets(*_: Any, **__: Any) -> str:
        raise no_room(number)

    monkeypatch.setattr(finalise, "advance", meets)
    with pytest.raises(SystemExit) as end:
        finalise.main([str(experiment.path)])
    assert end.value.code == 28
    (run,) = worker_runs(experiment)
    assert run.last_words == "disk_full"
    (trouble,) = run.troubles
    assert trouble.message == f"disk full: {said} below {experiment.path}"
    assert not last_word.finalisers_ballast(experiment).exists()


def test_another_error_of_who_finalises_is_no_lack_of_room(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meets(*_: Any, **__: Any) -> str:
        raise no_room(errno.EIO)

    monkeypatch.setattr(finalise, "advance", meets)
    with pytest.raises(OSError, match="Input/output error"):
        finalise.main([str(experiment.path)])
    assert list(worker_runs(experiment)) == []


# --- the last word ----------------------------------------------------------------------------------------


def test_the_last_word_is_tried_until_the_room_of_the_ballast_is_seen(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_word.time, "sleep", lambda seconds: None)
    tries = []

    def opens() -> EventLog:
        tries.append(last_word.finalisers_ballast(experiment).exists())
        if len(tries) < 4:
            raise no_room(errno.EDQUOT)
        return EventLog(experiment.worker_events("g0", "17_0-0"))

    ballast = last_word.finalisers_ballast(experiment)
    assert last_word.say_no_room(experiment, ballast, no_room(errno.EDQUOT), opens) == 28
    assert tries == [False] * 4
    (event,) = read_lines(experiment.worker_events("g0", "17_0-0"))
    assert event["event"] == "disk_full"


def test_where_it_cannot_be_said_the_exit_code_says_it(
    experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_word, "ROOM_SECONDS", 0.0)

    def opens() -> EventLog:
        raise no_room(errno.ENOSPC)

    ballast = last_word.finalisers_ballast(experiment)
    assert last_word.say_no_room(experiment, ballast, no_room(errno.ENOSPC), opens) == 28


# --- readers ------------------------------------------------------------------------------------------------


def failing(times: int, number: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """A call that fails so often first."""
    left = [times]

    def call(*arguments: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise no_room(number)
        return real(*arguments, **named)

    return call


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC, errno.ESTALE])
def test_who_reads_what_another_process_had_no_room_for_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """GlusterFS tells readers of a file that what this node held back of it could not be written."""
    path = tmp_path / "x.events.jsonl"
    path.write_bytes(b'{"a":1}\n{"a":2}\n')
    write_json(tmp_path / "y.json", {"b": 1})
    folder = Folder(tmp_path)
    monkeypatch.setattr(Path, "open", failing(3, number, Path.open))
    assert [one["a"] for one in read_lines(path)] == [1, 2]
    monkeypatch.setattr(Path, "read_bytes", failing(3, number, Path.read_bytes))
    assert read_json(tmp_path / "y.json") == {"b": 1}
    monkeypatch.setattr(os, "pread", failing(3, number, os.pread))
    assert b"".join(folder.blocks(path.name)) == path.read_bytes()
    monkeypatch.setattr(os, "read", failing(3, number, os.read))
    assert folder.read(path.name) == path.read_bytes()


def test_a_name_that_means_a_removed_file_for_a_while_is_read_until_it_means_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GlusterFS opens a file only when it is read, so that a mount does not ask what its name means now."""
    (tmp_path / "00000.1.events.jsonl").write_bytes(b'{"a":1}\n')
    assert fold_files(tmp_path, ["00000.1.events.jsonl"])
    pread, until = os.pread, time.monotonic() + 0.5

    def stale(*arguments: int) -> bytes:
        if time.monotonic() < until:
            raise OSError(errno.ESTALE, "Stale file handle")
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", stale)
    assert Folder(tmp_path).read("00000.1.events.jsonl") == b'{"a":1}\n'


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EIO])
def test_who_reads_does_not_look_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(atomic, "LOOK_SECONDS", 0.2)
    path = tmp_path / "x.events.jsonl"
    path.write_bytes(b'{"a":1}\n')
    folder = Folder(tmp_path)
    for name in ("read", "pread"):
        monkeypatch.setattr(os, name, failing(1000, number, getattr(os, name)))
    for read in (lambda: folder.read(path.name), lambda: b"".join(folder.blocks(path.name))):
        with pytest.raises(OSError, match=os.strerror(number)):
            read()
