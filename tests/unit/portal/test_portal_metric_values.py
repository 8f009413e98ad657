"""A metric over all experiments: of this home from files, of others from the database while it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.comparison import history
from hpcbench.database import place, sync
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from hpcbench.portal import results_database
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.index.sql_index import Index
from hpcbench.portal.metric_values import Cursor, page_of
from hpcbench.portal.models.values import MetricValue
from hpcbench.portal.results_database import ResultsDatabase
from hpcbench.registry.database_address import address_of
from hpcbench.schema.outputs import Database
from tests.unit.portal.unguarded import Unguarded, unguarded
from tests.unit.tracked import ended

METRIC = "exact_match"


def homes(folder: Path, counts: dict[str, int]) -> dict[str, list[Experiment]]:
    """Homes with ended experiments, an hour apart, the homes in turns."""
    found: dict[str, list[Experiment]] = {}
    for name, count in counts.items():
        for number in range(count):
            here = ended(folder / name, 4)
            created = f"2026-01-{10 + number:02d}T{list(counts).index(name):02d}:00:00+0300"
            write_json(here.manifest_file, {**read_json(here.manifest_file), "created": created})
            there = here.path.with_name(f"20260101-0000-{name}-{number:04d}")
            here.path.rename(there)
            with EventLog(Experiment(there).submission_file) as log:
                log.write("round", round=0, groups=[], excluded=[], answered=0)
            found.setdefault(name, []).append(Experiment(there))
            history.record(Experiment(there))
    return found


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """An empty SQLite with tables."""
    made = Database(type="sqlite", url=str(tmp_path / "results.sqlite"))
    asyncio.run(place.init(address_of(made)))
    return made


def send(database: Database, experiments: Sequence[Experiment]) -> None:
    for one in experiments:
        asyncio.run(sync.sync(one, address_of(database)))


def portal_of(home: Path, database: Database | None) -> Portal:
    return Portal(home, Options(home), cast(Index, None), Hub(), database=database)


@pytest.fixture
def scene(tmp_path: Path, database: Database) -> Iterator[tuple[Unguarded, dict[str, list[str]]]]:
    """Two homes in a database; the newest experiment of the own one is not there."""
    found = homes(tmp_path, {"mine": 3, "other": 3})
    send(database, [*found["mine"][:2], *found["other"]])
    with unguarded(portal_of(tmp_path / "mine", database)) as api:
        yield api, {name: [one.id for one in some] for name, some in found.items()}


def pages(api: Unguarded, limit: int, **query: str) -> list[dict[str, Any]]:
    """All pages of the list."""
    found, after = list[dict[str, Any]](), ""
    more = "".join(f"&{name}={quote(value)}" for name, value in query.items())
    while True:
        answer = api.ask("GET", f"values?metric={METRIC}&limit={limit}{after}{more}")
        assert answer.status == 200, answer.body
        found.append(answer.body)
        if answer.body["next"] is None:
            return found
        after = f"&after={quote(answer.body['next'])}"


@pytest.mark.long
@pytest.mark.parametrize("limit", [1, 2, 100])
def test_values_of_all_homes_come_newest_first_each_once(
    scene: tuple[Unguarded, dict[str, list[str]]], limit: int
) -> None:
    api, ids = scene
    found = pages(api, limit)
    items = [one for page in found for one in page["items"]]
    pairs = zip(ids["other"][::-1], ids["mine"][::-1], strict=True)
    assert [one["experiment"] for one in items] == [one for pair in pairs for one in pair]
    assert {page["fault"] for page in found} == {None}
    marks = {
        one["experiment"]: (one["here"], bool(one["owner"]), one["only_files"]) for one in items
    }
    assert [marks[one] for one in ids["mine"]] == [(True, False, False)] * 2 + [(True, False, True)]
    assert [marks[one] for one in ids["other"]] == [(False, True, False)] * 3
    assert items[0]["n"] == 4
    assert items[0]["low"] <= items[0]["value"] <= items[0]["high"]
    values = {
        name: {one["value"] for one in items if one["experiment"] in some}
        for name, some in ids.items()
    }
    assert values["mine"] == values["other"]


@pytest.mark.long
def test_words_are_of_either_source(scene: tuple[Unguarded, dict[str, list[str]]]) -> None:
    api, ids = scene
    (page,) = pages(api, 100, text="OTHER m")
    assert {one["experiment"] for one in page["items"]} == set(ids["other"])
    (page,) = pages(api, 100, text=ids["mine"][0])
    assert [one["experiment"] for one in page["items"]] == ids["mine"][:1]
    assert pages(api, 100, text="100%")[0]["items"] == []
    assert METRIC in api.ask("GET", "values/metrics").body["names"]


def test_without_a_database_the_files_are_all(tmp_path: Path) -> None:
    found = homes(tmp_path, {"mine": 2})
    with unguarded(portal_of(tmp_path / "mine", None)) as api:
        (page,) = pages(api, 100)
        assert [one["experiment"] for one in page["items"]] == [one.id for one in found["mine"]][
            ::-1
        ]
        assert (page["database"], page["fault"]) == (False, None)
        wrong = api.ask("GET", f"values?metric={METRIC}&after=x")
        assert wrong.status == 400


def test_a_database_that_is_not_there_is_reported_and_files_go_on(tmp_path: Path) -> None:
    homes(tmp_path, {"mine": 2})
    gone = Database(type="sqlite", url=str(tmp_path / "gone.sqlite"))
    with unguarded(portal_of(tmp_path / "mine", gone)) as api:
        found = pages(api, 1)
        assert [len(page["items"]) for page in found] == [1, 1]
        assert "is not on this machine" in found[0]["fault"]
        assert api.ask("GET", "values/metrics").status == 200
        # Half of a list with others is none.
        after = quote(str(Cursor((1e10, "z", "z"), with_others=True)))
        answer = api.ask("GET", f"values?metric={METRIC}&after={after}")
        assert (answer.status, answer.body["code"]) == (503, "busy")


def test_a_secret_that_is_missing_is_a_reason(tmp_path: Path) -> None:
    homes(tmp_path, {"mine": 1})
    made = Database(type="postgresql", url="postgresql://a:${env:NOT_THERE}@localhost/x")
    with unguarded(portal_of(tmp_path / "mine", made)) as api:
        (page,) = pages(api, 10)
        assert "NOT_THERE" in page["fault"]
        assert len(page["items"]) == 1


async def test_a_slow_answer_is_not_waited_for_and_not_asked_for_again_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def slow(connection: Any) -> int:
        nonlocal asked
        asked += 1
        await asyncio.sleep(60)
        return 1

    async def quick(connection: Any) -> int:
        return 2

    reader = ResultsDatabase(database)
    assert await reader.ask(quick) == 2
    monkeypatch.setattr(results_database, "SECONDS", 0.2)
    assert await reader.ask(slow) == await reader.ask(slow) == "it gave no answer in 0.2 s"
    monkeypatch.setattr(results_database, "SECONDS", 60.0)
    monkeypatch.setattr(reader, "_until", 0.0)
    assert await reader.ask(quick) == 2
    await reader.close()
    assert asked == 1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=12), st.integers(1, 4)
)
def test_pages_of_two_lists_are_the_sorted_whole(rows: list[tuple[int, str]], limit: int) -> None:
    whole = [
        MetricValue(
            experiment=f"e{number}", run_task=name, created=float(time), plan="p", owner=name, model="m",
            dataset="d", value=1.0,
        )
        for number, (time, name) in enumerate(rows)
    ]  # fmt: skip

    def key(one: MetricValue) -> tuple[float, str, str]:
        return one.created, one.experiment, one.run_task

    ordered = sorted(whole, key=key, reverse=True)
    shown, after = list[MetricValue](), None
    while True:
        left = [one for one in ordered if after is None or key(one) < after]
        lists = [
            [one for one in left if (one.owner == "a") is own][: limit + 1] for own in (True, False)
        ]
        items, cursor = page_of(*lists, limit)
        shown += items
        if cursor is None:
            break
        created, experiment, run_task, others = json.loads(cursor)
        assert others
        after = created, experiment, run_task
    assert shown == ordered
