"""An experiment of another home, read from the database of results: its run tasks, scores and samples."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from hpcbench.database import place
from hpcbench.database.stored import MOST_CHARACTERS
from hpcbench.registry.database_address import address_of
from hpcbench.schema.outputs import Database
from tests.unit.portal.test_portal_metric_values import METRIC, homes, portal_of, send
from tests.unit.portal.unguarded import unguarded


async def _execute(database: Database, statement: str) -> None:
    async with place.opened(address_of(database)) as engine, engine.begin() as connection:
        await connection.execute(text(statement))


@pytest.mark.long
def test_its_run_tasks_scores_and_samples_come_in_pages(tmp_path: Path) -> None:
    database = Database(type="sqlite", url=str(tmp_path / "results.sqlite"))
    asyncio.run(place.init(address_of(database)))
    (other,) = homes(tmp_path, {"other": 1})["other"]
    send(database, [other])
    long = f"UPDATE answers SET answer = '{'х' * 3000}' WHERE sample = (SELECT MIN(sample) FROM answers)"
    asyncio.run(_execute(database, long))
    with unguarded(portal_of(tmp_path / "mine", database)) as api:
        found = api.ask("GET", f"stored/{other.id}").body
        assert (found["id"], found["status"], found["home"]) == (
            other.id,
            "done",
            str(tmp_path / "other"),
        )
        assert found["created"] < found["synced"]
        (run_task,) = found["run_tasks"]
        (score,) = [one for one in run_task["scores"] if one["metric"] == METRIC]
        assert score["low"] <= score["value"] <= score["high"] and score["n"] == 4

        items: list[dict[str, Any]] = []
        after = -1
        while True:
            address = f"stored/{other.id}/samples?run_task={run_task['name']}&limit=3&after={after}"
            page = api.ask("GET", address).body
            items += page["items"]
            if page["next"] is None:
                break
            after = page["next"]
        assert [one["place"] for one in items] == [0, 1, 2, 3]
        assert sum(one["scores"][METRIC] for one in items) / 4 == pytest.approx(score["value"])
        assert all(isinstance(one["reference_answers"], list) for one in items)
        assert max(len(one["answer"] or "") for one in items) == MOST_CHARACTERS

        none = api.ask("GET", "stored/20990101-0000-none-aaaa")
        assert (none.status, none.body["code"]) == (404, "not_found")
        assert api.ask("GET", f"stored/{other.id}/samples?run_task=none").body["items"] == []
        assert api.ask("GET", f"stored/{other.id}/samples?run_task=x&after=x").status == 422


def test_without_a_database_or_its_answer_there_is_a_reason(tmp_path: Path) -> None:
    gone = Database(type="sqlite", url=str(tmp_path / "gone.sqlite"))
    for database, status, reason in (
        (None, 404, "no database"),
        (gone, 503, "not on this machine"),
    ):
        with unguarded(portal_of(tmp_path, database)) as api:
            answer = api.ask("GET", "stored/20260101-0000-other-0000")
            assert answer.status == status
            assert reason in answer.body["error"]
