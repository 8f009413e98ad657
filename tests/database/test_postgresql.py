"""A real PostgreSQL takes what several writers send, and misses nothing after a kill or an outage."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import polars
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, text

from benchmarks.database import EXAMPLES, campaign
from hpcbench.cli.main import main
from hpcbench.database import increments, later, place, sync
from hpcbench.database.tables import METADATA
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answers import answer_frames
from hpcbench.registry.database_address import Address, address_of
from hpcbench.schema.outputs import Database
from tests.unit.database.test_database_sync import answered
from tests.unit.database.test_later import scene
from tests.unit.portal import postgres
from tests.unit.tracked import ended, started

WORD = "PASSWORD_OF_RESULTS"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Address of a real PostgreSQL, with its password."""
    yield from postgres.served()


@pytest.fixture
def database(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A fresh database with tables; its password by reference."""
    head, _, where = server.partition("@")
    scheme, _, password = head.rpartition(":")
    monkeypatch.setenv(WORD, password)
    name = f"results_{time.time_ns()}"
    asyncio.run(_execute(server, f"CREATE DATABASE {name}"))
    made = Database(
        type="postgresql", url=f"{scheme}:${{env:{WORD}}}@{where.rpartition('/')[0]}/{name}"
    )
    asyncio.run(place.init(address_of(made)))
    yield made
    asyncio.run(_execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def ask(address: Address, statement: str) -> list[tuple[Any, ...]]:
    async def go() -> list[tuple[Any, ...]]:
        async with place.opened(address) as engine, engine.connect() as connection:
            return [tuple(row) for row in await connection.execute(text(statement))]

    return asyncio.run(go())


def send(here: Experiment, address: Address) -> sync.Synced:
    return asyncio.run(sync.sync(Experiment(here.path), address))


def dump(address: Address) -> dict[str, list[Any]]:
    """All rows, but for when they were sent."""
    found = {
        name: sorted(ask(address, f"SELECT * FROM {name}"), key=repr) for name in METADATA.tables
    }
    without_synced_at = [(*row[:-2], row[-1]) for row in found["experiments"]]
    found["experiments"] = without_synced_at
    return found


def test_migrations_make_the_tables_of_this_version(database: Database) -> None:
    address = address_of(database)
    assert asyncio.run(place.init(address)) == (place.newest(), place.newest())
    engine = create_engine(
        "postgresql+psycopg://",
        connect_args={
            "host": address.host, "port": address.port, "user": address.user,
            "password": address.password, "dbname": address.name,
            "options": f"-csearch_path={place.SCHEMA}",
        },
    )  # fmt: skip
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()


def test_rows_and_odd_texts_come_through_copy(tmp_path: Path, database: Database) -> None:
    texts = ["", "\\.", "a\n\\.\nb", '"', "NULL", "\\N", "a\0b", ",", "\r\n", "'", "é\u2028𝔘"]
    here, address = answered(tmp_path, texts), address_of(database)
    send(here, address)
    found = ask(address, "SELECT answer FROM answers ORDER BY shard, sample")
    frame = polars.concat(answer_frames(here, "rt")).sort("shard", "sample")
    assert [one for (one,) in found] == [one.replace("\0", "\ufffd") for one in frame["answer"]]
    assert ask(address, "SELECT sample, e2e_ms, chunks FROM timings ORDER BY shard, sample") == [
        *frame.select("sample", "e2e_ms", "chunks").iter_rows()
    ]
    assert send(here, address) == sync.Synced()


def test_several_writers_at_once_leave_each_row_once(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increments, "ROWS", 8)
    address = address_of(database)
    here = ended(tmp_path / "a", 80)
    others = [ended(tmp_path / str(number), 12) for number in range(2)]
    for number, other in enumerate(others):
        other.path.rename(moved := other.path.with_name(f"20261120-1432-other-{number}"))
        others[number] = Experiment(moved)
    faults: list[Exception] = []

    def write(one: Experiment) -> None:
        try:
            send(one, address)
        except Exception as fault:  # noqa: BLE001 - the test reads it below
            faults.append(fault)

    writers = [threading.Thread(target=write, args=(one,)) for one in (here, here, here, *others)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert faults == []
    counts = "SELECT experiment, COUNT(*) FROM answers GROUP BY experiment ORDER BY 2 DESC, 1"
    assert ask(address, counts) == [
        (here.id, 80), (others[0].id, 12), (others[1].id, 12),
    ]  # fmt: skip
    assert ask(address, "SELECT COUNT(*) FROM scores") == [(104,)]
    assert ask(address, "SELECT COUNT(*) FROM experiments WHERE synced_at IS NULL") == [(0,)]


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from hpcbench.database import increments, sync
from hpcbench.database.later import database_of
from hpcbench.experiment.layout import Experiment
from hpcbench.registry.database_address import address_of
increments.ROWS = 8
here = Experiment(Path(sys.argv[1]))
fill = sync._fill
left = [int(sys.argv[2])]

async def dying(connection, table, frame):
    await fill(connection, table, frame)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)  # rows are sent, their transaction is open

sync._fill = dying
asyncio.run(sync.sync(here, address_of(database_of(here))))
"""


@pytest.mark.parametrize("copies", [1, 4, 9])
def test_a_killed_sync_goes_on_where_it_stopped(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    monkeypatch.setattr(increments, "ROWS", 8)
    address = address_of(database)
    here = ended(tmp_path, 64)
    plan = json.loads(here.resolved_file.read_text())
    plan["plan"]["database"] = database.model_dump()
    here.resolved_file.write_text(json.dumps(plan))
    done = subprocess.run([sys.executable, "-c", _KILLED, str(here.path), str(copies)], check=False)
    assert done.returncode == -signal.SIGKILL
    there = len(ask(address, "SELECT 1 FROM answers"))
    assert there == 8 * ((copies - 1) // 2)  # whole transactions: answers and their timings
    assert ask(address, "SELECT COUNT(*) FROM experiments WHERE synced_at IS NOT NULL") == [(0,)]
    rest = send(here, address)
    assert ask(address, "SELECT COUNT(*), COUNT(DISTINCT sample) FROM answers") == [(64, 64)]
    assert ask(address, "SELECT COUNT(*) FROM timings") == [(64,)]
    assert rest.parts == (64 - there) // 4 + 4  # shards that were not there, and the four others


def test_a_server_that_goes_away_costs_a_line_and_the_rest_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increments, "ROWS", 8)
    with postgres.postgresql() as url:
        head, _, where = url.partition("@")
        scheme, _, password = head.rpartition(":")
        monkeypatch.setenv(WORD, password)
        database = Database(type="postgresql", url=f"{scheme}:${{env:{WORD}}}@{where}")
        address = address_of(database)
        asyncio.run(place.init(address))
        here = ended(tmp_path, 64)
        reported: list[int] = []

        def cut(synced: sync.Synced) -> None:
            reported.append(synced.parts)
            if len(reported) == 3:  # the server ends all connections, as when it is restarted
                statement = (
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'hpcbench'"
                )
                thread = threading.Thread(target=lambda: asyncio.run(_execute(url, statement)))
                thread.start()
                thread.join()

        with pytest.raises(EnvironmentFault) as raised:
            asyncio.run(sync.sync(here, address, cut))
        assert raised.value.remedy is not None
        assert "hpcbench database sync" in raised.value.remedy
        assert password not in str(raised.value)
        assert ask(address, "SELECT COUNT(*) FROM answers") == [(24,)]
        send(here, address)
        assert ask(address, "SELECT COUNT(*) FROM answers") == [(64,)]
    with pytest.raises(EnvironmentFault) as raised:
        send(here, address)
    assert password not in str(raised.value)


def test_the_end_of_an_experiment_reaches_the_server(
    tmp_path: Path, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    from hpcbench import finalise

    here = scene(tmp_path, database.url, "postgresql")
    finalise.conclude(here)
    assert ask(address_of(database), "SELECT COUNT(*) FROM answers") == [(6,)]
    assert list(later.debts(here)) == []
    assert os.environ[WORD] not in capsys.readouterr().err
    assert os.environ[WORD] not in "".join(
        path.read_text() for path in here.path.rglob("*.json*") if path.is_file()
    )


def test_a_wrong_password_is_said_without_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WORD, "not-the-password")
    with pytest.raises(EnvironmentFault, match="password authentication failed") as raised:
        asyncio.run(place.init(address_of(database)))
    assert "not-the-password" not in str(raised.value)


def test_examples_of_the_docs_run(tmp_path: Path, database: Database) -> None:
    address = address_of(database)
    here = ended(tmp_path, 12)
    send(here, address)
    assert len(EXAMPLES) >= 6
    for statement in EXAMPLES:
        assert ask(address, statement) is not None, statement


def test_a_campaign_of_many_rows_is_read_by_pages(tmp_path: Path, database: Database) -> None:
    address = address_of(database)
    found = campaign(tmp_path, rows=20_000, address=address)
    assert found.rows >= 20_000
    assert ask(address, "SELECT COUNT(*) FROM answers") == [(found.answers,)]
    assert set(found.pages) == {
        "experiments", "answers", "sample", "metric", "an experiment", "its samples",
    }  # fmt: skip


def test_the_verbs_speak_with_a_real_server(
    tmp_path: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    profile = tmp_path / "config/hpcbench/sites/default.yaml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f"name: default\ndatabase:\n  type: postgresql\n  url: {database.url}\n")
    here = started(tmp_path, 6)
    assert main(["database", "sync"]) == 0
    assert main(["database", "status", "--json"]) == 0
    said = capsys.readouterr().out
    assert json.loads(said[said.index("{") :])["experiments"][0]["experiment"] == here.id
    assert os.environ[WORD] not in said
