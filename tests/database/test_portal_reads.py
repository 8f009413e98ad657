"""The portal reads a real PostgreSQL for what spans homes, and goes on from files when it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest

from hpcbench.database import place
from hpcbench.registry.database_address import address_of
from hpcbench.schema.outputs import Database
from tests.unit.portal import postgres
from tests.unit.portal.test_portal_metric_values import METRIC, homes, pages, portal_of, send
from tests.unit.portal.unguarded import Answer, unguarded


@pytest.fixture
def server() -> Iterator[str]:
    """A PostgreSQL that the test may kill."""
    yield from postgres.served()


def kill(url: str) -> None:
    """Kill the server as a crash of its machine would."""

    async def pid() -> int:
        connection = await asyncpg.connect(url)
        folder = Path(str(await connection.fetchval("SHOW data_directory")))
        await connection.close()
        return int((folder / "postmaster.pid").read_text().split()[0])

    os.kill(asyncio.run(pid()), signal.SIGQUIT)


def test_reading_goes_on_from_files_when_the_server_is_killed(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, _, where = server.partition("@")
    scheme, _, password = head.rpartition(":")
    monkeypatch.setenv("READING_PASSWORD", password)
    database = Database(type="postgresql", url=f"{scheme}:${{env:READING_PASSWORD}}@{where}")
    asyncio.run(place.init(address_of(database)))
    found = homes(tmp_path, {"mine": 3, "other": 3})
    send(database, [*found["mine"], *found["other"]])
    ids = {name: [one.id for one in some][::-1] for name, some in found.items()}
    with unguarded(portal_of(tmp_path / "mine", database)) as api:
        for limit in (1, 4):
            items = [one for page in pages(api, limit) for one in page["items"]]
            pairs = zip(ids["other"], ids["mine"], strict=True)
            assert [one["experiment"] for one in items] == [one for pair in pairs for one in pair]
            assert not any(one["only_files"] for one in items)
        first = api.ask("GET", f"values?metric={METRIC}&limit=2").body
        stored = f"stored/{ids['other'][0]}"
        (run_task,) = api.ask("GET", stored).body["run_tasks"]
        assert METRIC in {one["metric"] for one in run_task["scores"]}
        items = api.ask("GET", f"{stored}/samples?run_task={run_task['name']}").body["items"]
        assert [one["place"] for one in items] == [0, 1, 2, 3]
        assert all(one["reference_answers"] and METRIC in one["scores"] for one in items)

        answers: list[Answer] = []
        over = threading.Event()

        def read() -> None:
            while not over.is_set():
                answers.append(api.ask("GET", f"values?metric={METRIC}"))

        readers = [threading.Thread(target=read) for _ in range(4)]
        for one in readers:
            one.start()
        time.sleep(0.3)
        kill(server)
        until = time.monotonic() + 60
        while not (answers and answers[-1].body.get("fault")) and time.monotonic() < until:
            time.sleep(0.05)
        over.set()
        for one in readers:
            one.join()

        assert {one.status for one in answers} == {200}
        seen = {(len(one.body["items"]), one.body["fault"] is None) for one in answers}
        assert seen == {(6, True), (3, False)}, "all of both homes, or this home and the reason"
        reported = answers[-1].body
        assert [one["experiment"] for one in reported["items"]] == ids["mine"]
        assert password not in reported["fault"]
        went_on = api.ask("GET", f"values?metric={METRIC}&limit=2&after={quote(first['next'])}")
        assert (went_on.status, went_on.body["code"]) == (503, "busy")
        assert api.ask("GET", stored).status == 503
