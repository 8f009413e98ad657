"""The end of an experiment reaches its database: at once, or with a later command, once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from hpcbench import finalise
from hpcbench.cli.due import tell_what_is_owed
from hpcbench.database import later, place
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.registry.database_address import Address
from hpcbench.schema.outputs import Database
from tests.unit.command import Cli
from tests.unit.small import describe
from tests.unit.tracked import answer, started


def scene(root: Path, url: str, kind: str = "sqlite") -> Experiment:
    """An answered experiment with a database, whose round is over."""
    here = started(root, 6)
    describe(here)
    plan = json.loads(here.resolved_file.read_text())
    plan["plan"]["database"] = {"type": kind, "url": url}
    plan["plan"]["stages"] = ["inference", "evaluation"]
    here.resolved_file.write_text(json.dumps(plan))
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[], excluded=[], answered=0)
        log.write("handed", sync=True)
    answer(here, *range(len(here.work.shards_of(("rt",)))))
    return Experiment(here.path)


def made(path: Path) -> Path:
    asyncio.run(place.init(Address("sqlite", path=path)))
    return path


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


@pytest.mark.long
def test_the_end_sends_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path / "results.sqlite")
    here = scene(tmp_path, str(path))
    finalise.conclude(here)
    assert rows(path, "answers") == rows(path, "scores") == 6
    assert list(later.debts(here)) == []
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT status, synced_at IS NULL FROM experiments").fetchall()
    assert found == [("incomplete", 0)]
    assert "database" not in capsys.readouterr().err


@pytest.mark.long
def test_what_the_end_cannot_send_a_later_command_sends_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "disk" / "results.sqlite"
    here = scene(tmp_path, str(path))
    finalise.conclude(here)
    assert "no database" in capsys.readouterr().err
    assert [debt.failures for debt in later.debts(here)] == [0]
    assert not path.exists()
    made(path)
    tell_what_is_owed(here)
    assert rows(path, "answers") == 6
    assert list(later.debts(here)) == []

    def fail(*_: object) -> None:
        raise AssertionError("nothing is owed")

    monkeypatch.setattr(later, "_in_a_process", fail)
    tell_what_is_owed(here)


@pytest.mark.long
def test_a_server_that_is_gone_is_asked_again_after_growing_pauses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PW", "a-secret-word")
    here = scene(tmp_path, "postgresql://ada:${env:PW}@127.0.0.1:1/results", "postgresql")
    finalise.conclude(here)
    said = capsys.readouterr().err
    assert "postgresql://ada@127.0.0.1:1/results" in said
    assert "a-secret-word" not in said
    (debt,) = later.debts(here)
    assert debt.failures == 1
    assert not debt.due(debt.at + later.WAITS[0] - 1)
    assert debt.due(debt.at + later.WAITS[0])
    tell_what_is_owed(here)  # too early: silent
    assert capsys.readouterr().err == ""
    now = time.time()
    for tries in range(1, later.MOST + 2):
        monkeypatch.setattr(time, "time", partial(float, now + 10_000 * tries))
        monkeypatch.setattr(later, "_in_a_process", lambda *_: (0, "no route"))
        tell_what_is_owed(here)
    (debt,) = later.debts(here)
    assert (debt.failures, debt.why) == (later.MOST, "no route")
    assert "a-secret-word" not in "".join(
        one.read_text() for one in here.tracked_dir.glob("*.jsonl")
    )


def test_progress_starts_the_pauses_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path / "results.sqlite")
    here = scene(tmp_path, str(path))
    later.owe(here)
    monkeypatch.setattr(later, "_in_a_process", lambda *_: (0, "no route"))
    assert later.pay(here, 1) == "no route"
    (debt,) = later.debts(here)
    assert debt.failures == 1
    now = debt.at + later.WAITS[0]
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(later, "_in_a_process", lambda *_: (3, "late"))
    assert later.pay(here, 1) == "late"
    (debt,) = later.debts(here)
    assert debt.failures == 0
    assert not debt.due(debt.at + later.WAITS[0] - 1)
    assert debt.due(debt.at + later.WAITS[0])


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    home(tmp_path, Database(type="sqlite", url=str(tmp_path / "results.sqlite")))
    monkeypatch.setattr(
        "hpcbench.database.find_spec", lambda name: None if name == "asyncpg" else name
    )
    for verb in ("init", "sync", "status"):
        said = cli.err("database", verb, code=3)
        assert "needs asyncpg" in said
        assert "pip install" in said


@pytest.mark.long
def test_scores_of_later_are_owed_again(tmp_path: Path) -> None:
    path = made(tmp_path / "results.sqlite")
    here = scene(tmp_path, str(path))
    finalise.conclude(here)
    finalise.scored_again(here)
    assert len(list(later.debts(here))) == 1


def test_without_a_database_nothing_is_owed(tmp_path: Path) -> None:
    here = started(tmp_path, 4)
    later.owe(here)
    assert not here.tracked_dir.exists()
    assert list(later.debts(here)) == []
    assert later.pay(here, 1) is None


# --- the verbs -----------------------------------------------------------------------------------------


def home(tmp_path: Path, database: Database | None) -> None:
    """A user's home with a site profile."""
    profile = tmp_path / "config/hpcbench/sites/default.yaml"
    profile.parent.mkdir(parents=True)
    text = "name: default\n"
    if database is not None:
        text += f"database: {{type: {database.type}, url: '{database.url}'}}\n"
    profile.write_text(text)


def test_the_verbs_make_fill_and_show_a_database(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "results.sqlite"
    home(tmp_path, Database(type="sqlite", url=str(path)))
    here = started(tmp_path, 6)
    describe(here)
    answer(here, 0)
    assert "hpcbench database init" in cli.err("database", "sync", code=3)
    assert "has its tables now" in cli("database", "init")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "already" in cli("database", "init")
    (before,) = cli.json("database", "status", "--json")["experiments"]
    assert (before["synced"], before["rows"]) == (None, 0)
    assert "rows sent" in cli("database", "sync", "--all")
    assert cli.json("database", "sync", "@last", "--json")[0]["parts"] == 0
    assert here.id in cli("database", "status")
    assert rows(path, "answers") == 4


def test_verbs_without_a_database_say_where_it_is_set(tmp_path: Path, cli: Cli) -> None:
    home(tmp_path, None)
    started(tmp_path, 4)
    for verb in ("init", "sync", "status"):
        assert "docs/database.md" in cli.err("database", verb)


def test_a_profile_with_a_password_is_refused(tmp_path: Path, cli: Cli) -> None:
    home(tmp_path, Database(type="postgresql", url="postgresql://a:hunter22@db/x"))
    said = cli.err("database", "init")
    assert "password in plain text" in said
    assert "hunter22" not in said


def test_a_sync_by_request_pays_what_is_owed(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "results.sqlite"
    home(tmp_path, None)
    here = scene(tmp_path, str(path))
    later.owe(here)
    made(path)
    printed = cli("database", "sync", here.id)
    assert list(later.debts(here)) == []
    assert "rows sent" in printed
