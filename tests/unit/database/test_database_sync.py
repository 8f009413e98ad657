"""An experiment in a database has the rows of its directory: after changes, kills and repeats, too."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine

from hpcbench.database import increments, place, sync
from hpcbench.database.tables import METADATA
from hpcbench.database.values import words_of
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.evaluation import stage
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answers import answer_frames, shard_sizes
from hpcbench.files.atomic import Appender, create_exclusive, read_json, write_json
from hpcbench.registry.database_address import Address
from tests.unit.small import experiment, record, response, write_attempt
from tests.unit.tracked import answer, end, ended, started


@pytest.fixture
def address(tmp_path: Path) -> Address:
    """An empty database with its tables."""
    made = Address("sqlite", path=tmp_path / "results.sqlite")
    asyncio.run(place.init(made))
    return made


def send(here: Experiment, address: Address) -> sync.Synced:
    return asyncio.run(sync.sync(Experiment(here.path), address))


def ask(address: Address, statement: str) -> list[Any]:
    assert address.path is not None
    with closing(sqlite3.connect(address.path)) as connection:
        return connection.execute(statement).fetchall()


def dump(address: Address) -> dict[str, list[Any]]:
    """All rows, but for when they were sent."""
    found = {
        name: sorted(ask(address, f"SELECT * FROM {name}"), key=repr) for name in METADATA.tables
    }
    without_synced_at = [(*row[:-2], row[-1]) for row in found["experiments"]]
    found["experiments"] = without_synced_at
    return found


def test_migrations_make_the_tables_of_this_version(address: Address) -> None:
    engine = create_engine(f"sqlite:///{address.path}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()
    assert asyncio.run(place.init(address)) == (place.newest(), place.newest())


def test_experiments_of_earlier_tables_get_their_words(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.sqlite"
    script = ScriptDirectory(str(place._VERSIONS))
    engine = create_engine(f"sqlite:///{earlier}")
    with (
        engine.begin() as connection,
        EnvironmentContext(
            Config(), script, fn=lambda revision, _: script._upgrade_revs("0001", revision)
        ) as environment,
    ):
        environment.configure(connection=connection)
        environment.run_migrations()
        connection.exec_driver_sql(
            "INSERT INTO experiments (id, manifest, name) VALUES ('e1', 'm', 'Nightly')"
        )
        for name, model in (("rt", "VL"), ("rt2", None)):
            connection.exec_driver_sql(
                "INSERT INTO run_tasks (experiment, name, model, dataset) VALUES ('e1', ?, ?, 'd')",
                (name, model),
            )
    engine.dispose()
    address = Address("sqlite", path=earlier)
    assert asyncio.run(place.init(address)) == ("0001", place.newest())
    ((words,),) = ask(address, "SELECT words FROM experiments")
    assert set(words.split()) == {"nightly", "e1", "vl", "d"}
    row = {"name": "Nightly", "owner": None, "id": "e1"}
    tasks = [{"model": "VL", "dataset": "d"}, {"model": None, "dataset": "d"}]
    assert set(words_of(row, tasks).split()) == set(words.split())


def test_tables_of_another_version_are_refused(tmp_path: Path, address: Address) -> None:
    here = ended(tmp_path, 4)
    assert address.path is not None
    with closing(sqlite3.connect(address.path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(EnvironmentFault, match="9999"):
        send(here, address)
    with pytest.raises(EnvironmentFault) as raised:
        asyncio.run(place.init(address))
    assert raised.value.remedy == "upgrade hpcbench"
    other = tmp_path / "other.sqlite"
    with pytest.raises(EnvironmentFault, match="not on this machine"):
        send(here, Address("sqlite", path=other))
    assert not other.exists()
    other.touch()
    with pytest.raises(EnvironmentFault, match="no tables yet"):
        send(here, Address("sqlite", path=other))


def test_the_rows_are_those_of_the_directory(tmp_path: Path, address: Address) -> None:
    here = ended(tmp_path, 10)
    assert send(here, address).rows > 40
    frame = polars.concat(answer_frames(here, "rt"))
    assert ask(address, "SELECT sample, shard, attempt, outcome, answer, error FROM answers") == [
        *frame.select("sample", "shard", "attempt", "outcome", "answer", "error").iter_rows()
    ]
    assert ask(address, "SELECT sample, e2e_ms, send_ns FROM timings") == [
        *frame.select("sample", "e2e_ms", "send_ns").iter_rows()
    ]
    scores = polars.read_parquet(here.scores_file("rt"))
    assert ask(address, "SELECT sample, value FROM scores ORDER BY place") == [
        *scores.select("sample", "exact_match").iter_rows()
    ]
    rows = ask(address, "SELECT document, reference_answers FROM samples ORDER BY place")
    assert rows == [(f"doc{n}", json.dumps([str(n)])) for n in range(10)]
    value = json.loads(here.metrics_file.read_text())["run_tasks"]["rt"]["metrics"]["exact_match"]
    assert ask(address, "SELECT value, low FROM metrics WHERE kind = 'score'") == [
        (value["value"], value["low"])
    ]
    ((name, summary, synced),) = ask(
        address, "SELECT name, results_summary, synced_at FROM experiments"
    )
    assert (name, json.loads(summary)) == ("plan", {"rt": {"exact_match": value["value"]}})
    assert synced is not None
    assert ask(address, "SELECT answered, model FROM run_tasks") == [(9, "m")]
    assert ask(address, "SELECT kind, COUNT(*) FROM events GROUP BY kind") == [
        ("claimed", 3),
        ("done", 3),
    ]


def test_a_second_sync_sends_nothing(tmp_path: Path, address: Address) -> None:
    here = ended(tmp_path, 10)
    send(here, address)
    before = dump(address)
    assert send(here, address) == sync.Synced()
    assert dump(address) == before


@pytest.mark.long
def test_a_running_experiment_is_sent_as_far_as_it_is(tmp_path: Path, address: Address) -> None:
    here = started(tmp_path, 12)
    send(here, address)
    assert ask(address, "SELECT status FROM experiments") == [("running",)]
    answer(here, 0)
    send(here, address)
    assert ask(address, "SELECT COUNT(*) FROM answers") == [(4,)]
    answer(here, 1, 2)
    end(here)
    send(here, address)
    whole = Address("sqlite", path=tmp_path / "whole.sqlite")
    asyncio.run(place.init(whole))
    send(here, whole)
    assert dump(address) == dump(whole)


def test_answers_that_come_later_in_a_shard_are_sent(tmp_path: Path, address: Address) -> None:
    here = started(tmp_path, 4)
    create_exclusive(
        here.shard_events("rt", 0, 1), {"event": "claimed", "time": 0, "owner": {"job": "1"}}
    )
    for number in range(4):
        with Appender(here.shard_responses("rt", 0, 1)) as file:
            file.write(response(f"s{number}", str(number)).to_json())
        send(here, address)
        assert ask(address, "SELECT COUNT(*) FROM answers") == [(number + 1,)]


@pytest.mark.long
def test_withdrawn_answers_go(tmp_path: Path, address: Address) -> None:
    here = started(tmp_path, 4)
    answer(here, 0)
    send(here, address)
    gone = {
        "event": "released",
        "time": 2,
        "reopened": True,
        "withdrawn": ["s1"],
        "reason": "again",
    }
    create_exclusive(here.shard_events("rt", 0, 2), gone)
    send(here, address)
    assert ask(address, "SELECT sample FROM answers") == [("s0",), ("s2",), ("s3",)]
    write_attempt(here, 0, 3, [response("s1", "1")])
    send(here, address)
    assert ask(address, "SELECT attempt, outcome FROM answers WHERE sample = 's1'") == [(3, "ok")]


@pytest.mark.long
def test_answers_that_were_scored_again_have_their_new_scores(
    tmp_path: Path, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increments, "SCORED", 4)
    here = ended(tmp_path, 10)
    send(here, address)
    plan = json.loads(here.resolved_file.read_text())
    plan["run_tasks"][0]["metrics"] = [{"name": "cer", "plugin": "cer"}]
    here.resolved_file.write_text(json.dumps(plan))
    stage.evaluate(Experiment(here.path))
    send(here, address)
    assert ask(address, "SELECT metric, COUNT(*) FROM scores GROUP BY metric") == [("cer", 10)]
    assert ask(address, "SELECT COUNT(*) FROM samples") == [(10,)]


def test_blocks_beyond_the_end_go(
    tmp_path: Path, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increments, "BATCH", 5)
    here = started(tmp_path, 12)
    for number in range(13):
        with Appender(here.submission_file) as file:
            file.write({"event": "intent", "time": number})
    send(here, address)
    assert ask(address, "SELECT COUNT(*), MAX(number) FROM events") == [(13, 12)]
    here.submission_file.write_text("".join(here.submission_file.read_text().splitlines(True)[:3]))
    send(here, address)
    assert ask(address, "SELECT seq, number FROM events") == [(None, 0), (None, 1), (None, 2)]
    assert ask(address, "SELECT COUNT(*) FROM parts WHERE part LIKE 'events/%'") == [(1,)]


def test_another_experiment_of_one_id_is_refused(tmp_path: Path, address: Address) -> None:
    send(ended(tmp_path / "a", 4), address)
    other = ended(tmp_path / "b", 4)
    write_json(other.manifest_file, {**read_json(other.manifest_file), "seed": 8})
    with pytest.raises(UserError, match="another experiment"):
        send(other, address)


@pytest.mark.long
def test_a_sync_that_stopped_goes_on(
    tmp_path: Path, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(increments, "ROWS", 4)
    here = ended(tmp_path, 40)
    reported: list[int] = []

    class Stop(Exception):
        pass

    def stop(synced: sync.Synced) -> None:
        reported.append(synced.parts)
        if len(reported) == 4:
            raise Stop

    with pytest.raises(Stop):
        asyncio.run(sync.sync(here, address, stop))
    assert ask(address, "SELECT COUNT(*) FROM answers") == [(16,)]
    assert ask(address, "SELECT synced_at FROM experiments") == [(None,)]
    again = send(here, address)
    assert ask(address, "SELECT COUNT(*) FROM answers") == [(40,)]
    assert (
        again.parts == 6 + 1 + 1 + 1 + 1
    )  # shards, scores, metrics, events, the experiment itself


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["", "\\.", "a\n\\.\nb", '"', "NULL", "\\N", "a\0b", ",", "\r\n", "'"]
)


@pytest.mark.long
@settings(max_examples=15)
@given(st.lists(TEXTS, min_size=1, max_size=8))
def test_any_text_comes_through(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("texts")
    here = answered(folder, texts)
    address = Address("sqlite", path=folder / "results.sqlite")
    asyncio.run(place.init(address))
    send(here, address)
    assert ask(address, "SELECT answer FROM answers ORDER BY shard, rowid") == [
        (one.replace("\0", "\ufffd"),) for one in texts
    ]


def answered(folder: Path, texts: Sequence[str]) -> Experiment:
    """An experiment with these answers."""
    here = experiment(folder, [record(number) for number in range(len(texts))])
    for shard in here.work.shards_of(("rt",)):
        numbers = range(shard.start, shard.stop)
        write_attempt(here, shard.index, 1, [response(f"s{n}", texts[n]) for n in numbers])
    return here


def test_sizes_of_shards_are_the_same_folded_or_not(tmp_path: Path) -> None:
    from hpcbench.experiment.archiving import fold

    here = started(tmp_path, 12)
    answer(here, 0, 1, 2)
    before = shard_sizes(here, "rt")
    assert set(before) == {0, 1, 2}
    assert fold(here, "rt")
    assert shard_sizes(here, "rt") == before


def test_only_some_shards_are_read(tmp_path: Path) -> None:
    here = started(tmp_path, 12)
    answer(here, 0, 1, 2)
    found = polars.concat(answer_frames(here, "rt", shards={1}))
    assert found["sample"].to_list() == ["s4", "s5", "s6", "s7"]
