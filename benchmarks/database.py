"""Rows a second into PostgreSQL, beside a bare COPY of the same rows, and the times of pages from it.

Makes an ended experiment of many samples with two metrics, and sends it as `hpcbench database sync` does: it
reads the experiment's directory and sends a transaction a part. Then the floor: the same rows by COPY alone,
from files of CSV that are there, through the same driver, into tables with the same keys. Then 60 pages of
each kind, at places all over the tables. Prints rows a second of both, their ratio, and the median and the
slowest page. Goals: at least 20,000 rows a second, pages below 100 ms.

    python benchmarks/database.py [--rows 10000000] [--url postgresql://…]
    python benchmarks/database.py --values 5000 [--alone]

With --values it measures the portal's page Metrics instead, on so many experiments of 100 run tasks with 20
figures each, of which 4 are metrics: 25 pages of each kind, one after the other.

With --alone, for root, client and server have a processor to themselves while pages are read (the scheduling
class SCHED_RR), however much else runs: the times are then those of a machine without other work.

Without --url it starts a PostgreSQL (Debian: postgresql), with fsync off. With --url it uses one that is
there, and removes its schemas `hpcbench` and `bare` first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import asyncpg  # noqa: E402
import polars  # noqa: E402
from sqlalchemy.ext.asyncio import AsyncConnection  # noqa: E402

from hpcbench.database import place, sync  # noqa: E402
from hpcbench.database import values as stored  # noqa: E402
from hpcbench.database.stored import head, run_tasks, scores  # noqa: E402
from hpcbench.database.stored import samples as stored_samples  # noqa: E402
from hpcbench.database.tables import ANSWERS, SAMPLES, SCORES, TIMINGS  # noqa: E402
from hpcbench.experiment.archiving import fold  # noqa: E402
from hpcbench.experiment.layout import Experiment  # noqa: E402
from hpcbench.experiment.view.scores import KEYS, Keys  # noqa: E402
from hpcbench.registry.database_address import Address  # noqa: E402
from tests.unit.portal.postgres import postgresql  # noqa: E402
from tests.unit.small import resolved, run_task, submitted  # noqa: E402

SHARD = 500
EACH = 5
"""Rows of a sample: its answer, its timing, itself and two scores."""

GOAL_ROWS, GOAL_MS = 20_000, 100.0

EXAMPLES = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/database.md").read_text(), re.DOTALL)
"""The examples of docs/database.md."""

KEY = "(experiment, run_task, sample)"

PAGES: Mapping[str, str] = {
    "experiments": "SELECT id, name, status, created_at, results_summary FROM experiments "
    "WHERE (created_at, id) < ($1, $2) ORDER BY created_at DESC, id DESC LIMIT 50",
    "answers": f"SELECT a.*, t.ttft_ms, t.e2e_ms FROM answers a LEFT JOIN timings t USING {KEY} "
    "WHERE a.experiment = $1 AND a.run_task = $2 AND a.sample > $3 ORDER BY a.sample LIMIT 50",
    "sample": f"SELECT * FROM samples x JOIN answers a USING {KEY} JOIN timings t USING {KEY} "
    "WHERE x.experiment = $1 AND x.run_task = $2 AND x.sample = $3",
    "metric": "SELECT e.created_at, m.value FROM metrics m JOIN experiments e ON e.id = m.experiment "
    "WHERE m.metric = $1 ORDER BY e.created_at DESC LIMIT 50",
}


@dataclass
class Found:
    """Result of a measurement."""

    rows: int
    answers: int
    seconds: float
    cpu: float
    """CPU time of this process in `seconds`."""
    bare: float
    pages: dict[str, tuple[float, float]]


def campaign(folder: Path, rows: int, address: Address) -> Found:
    """Send an experiment of so many rows, the same rows by COPY alone, and read pages."""
    samples = -(-rows // EACH)
    here = ended(folder, samples)
    began, worked = time.monotonic(), time.process_time()
    synced = asyncio.run(sync.sync(here, address))
    seconds, cpu = time.monotonic() - began, time.process_time() - worked
    bare, pages = asyncio.run(_rest(folder, here, samples, address))
    return Found(synced.rows, samples, seconds, cpu, bare, pages)


def ended(folder: Path, samples: int) -> Experiment:
    """An experiment of so many samples, answered and scored, its files folded."""
    plan = resolved(run_task(metrics=("anls", "cer")), shard_size=SHARD)
    here = submitted(folder, plan, samples)
    text = "Total amount due including tax: 1,234.56 EUR, payable by 2026-12-31 "
    shards = here.work.shards_of(("rt",))
    here.shards_dir("rt").mkdir(parents=True)
    for shard in shards:
        lines = []
        for number in range(shard.start, shard.stop):
            start = number * 1_000_000
            lines.append(
                f'{{"sample_id":"s{number:08d}","outcome":"ok","text":"{text}{number}","finish_reason":"stop",'
                f'"usage":{{"prompt_tokens":812,"completion_tokens":24}},"times":{{"start":{start},'
                f'"send":{start + 400_000},"headers":{start + 900_000},"chunks":[{start + 90_000_000},'
                f'{start + 110_000_000},{start + 130_000_000}],"done":{start + 131_000_000}}},"tries":1,'
                f'"image_sha256":["{number:064x}"],"error":null}}\n'
            )
        here.shard_responses("rt", shard.index, 1).write_text("".join(lines))
        here.shard_events("rt", shard.index, 1).write_text(
            '{"event":"claimed","seq":1,"time":1,"owner":{"job":"1_0"}}\n'
            f'{{"event":"done","seq":2,"time":2,"answered":{shard.stop - shard.start}}}\n'
        )
    fold(here, "rt")
    number = polars.int_range(samples, eager=True)
    answer, one = text + number.cast(polars.String), polars.repeat(1, samples, eager=True)
    frame = polars.DataFrame({
        "sample": "s" + number.cast(polars.String).str.zfill(8),
        "document": "d" + (number // 4).cast(polars.String),
        "outcome": polars.repeat("ok", samples, eager=True),
        "form": polars.repeat("text", samples, eager=True),
        "prediction": answer, "invalid": one == 0, "truncated": one == 0, "images": one,
        "references": answer.reshape((samples, 1)).arr.to_list(),
        "meta.doc_type": (number % 7).cast(polars.String),
        "anls": (number % 101) / 100, "anls.numerator": (number % 101) / 100, "anls.denominator": one + 0.0,
        "cer": (number % 37) / 36, "cer.numerator": number % 37 + 0.0, "cer.denominator": one * 36.0,
    })  # fmt: skip
    keys = Keys("made", ("doc_type",), {"anls": "a", "cer": "c"}, samples)
    here.scores_dir.mkdir()
    frame.write_parquet(here.scores_file("rt"), metadata={KEYS: json.dumps(keys.to_json())})
    return Experiment(here.path)


async def _rest(
    folder: Path, here: Experiment, samples: int, address: Address
) -> tuple[float, dict[str, tuple[float, float]]]:
    async with place.opened(address) as engine, engine.connect() as connection:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        bare, pages = await _bare(raw, folder), await _pages(raw, here.id, samples)
        return bare, pages | await _stored_pages(connection, here.id, samples)


async def _stored_pages(
    connection: AsyncConnection, experiment: str, samples: int
) -> dict[str, tuple[float, float]]:
    """The portal's pages of an experiment of another home → median and slowest time, ms."""
    seed, found = random.Random(1), {}
    for name in ("an experiment", "its samples"):
        times = []
        for _ in range(60):
            began = time.perf_counter()
            if name == "an experiment":
                rows = [await one(connection, experiment) for one in (head, run_tasks, scores)]
            else:
                at = seed.randrange(samples - 51)
                rows = list(await stored_samples(connection, experiment, "rt", at, 51))
            times.append((time.perf_counter() - began) * 1000)
            assert all(rows[:1]), name
        found[name] = statistics.median(times), max(times)
    return found


async def _bare(raw: Any, folder: Path) -> float:
    """Seconds for the same rows by COPY alone."""
    await raw.execute("DROP SCHEMA IF EXISTS bare CASCADE; CREATE SCHEMA bare")
    seconds = 0.0
    for table in (ANSWERS, TIMINGS, SAMPLES, SCORES):
        file = folder / f"{table.name}.csv"
        await raw.copy_from_table(table.name, output=file, format="csv")
        await raw.execute(f"CREATE TABLE bare.{table.name} (LIKE {table.name} INCLUDING ALL)")
        began = time.monotonic()
        await raw.copy_to_table(table.name, source=file, schema_name="bare", format="csv")
        seconds += time.monotonic() - began
        await raw.execute(f"DROP TABLE bare.{table.name}")
        file.unlink()
    return seconds


async def _pages(raw: Any, experiment: str, samples: int) -> dict[str, tuple[float, float]]:
    """Page → its median and slowest time, ms."""
    await raw.execute(
        "INSERT INTO experiments (id, manifest, name, status, created_at, results_summary) "
        "SELECT 'old-' || n, 'm', 'nightly', 'done', now() - n * interval '1 hour', '{\"rt\": {}}' "
        "FROM generate_series(1, 5000) n ON CONFLICT DO NOTHING"
    )
    await raw.execute(
        "INSERT INTO metrics (experiment, number, run_task, kind, metric, statistic, value) "
        "SELECT 'old-' || n, 0, 'rt', 'score', 'anls', 'value', 0.5 "
        "FROM generate_series(1, 5000) n ON CONFLICT DO NOTHING"
    )
    await raw.execute("ANALYZE")
    seed, found = random.Random(1), {}
    now = await raw.fetchval("SELECT now()")
    for name, statement in PAGES.items():
        times = []
        for _ in range(60):
            at = seed.randrange(samples)
            values: tuple[Any, ...] = (experiment, "rt", f"s{at:08d}")
            if name == "experiments":
                values = (now, "zzz")
            elif name == "metric":
                values = ("anls",)
            began = time.perf_counter()
            rows = await raw.fetch(statement, *values)
            times.append((time.perf_counter() - began) * 1000)
            assert rows, name
        found[name] = statistics.median(times), max(times)
    return found


VALUES = """
INSERT INTO experiments (id, manifest, name, owner, home, status, created_at, synced_at, words)
SELECT 'e-' || lpad(n::text, 6, '0'), 'm', 'plan' || n % 50, 'user' || n * 7919 % 23, '/home/user' || n % 23,
    'done', now() - n * interval '1 hour', now(), ''
FROM generate_series(1, $1::bigint) n;
INSERT INTO run_tasks (experiment, name, place, ml_task, model, dataset)
SELECT id, 'pages0' || r % 10 || '-vl-0' || r / 10, r, 'vqa', 'vl-0' || r / 10 || '-7b', 'pages0' || r % 10
FROM experiments, generate_series(0, 99) r;
UPDATE experiments e SET words = lower(concat_ws(' ', name, owner, id,
    (SELECT string_agg(DISTINCT model, ' ') || ' ' || string_agg(DISTINCT dataset, ' ')
     FROM run_tasks r WHERE r.experiment = e.id)));
INSERT INTO metrics (experiment, number, run_task, kind, metric, statistic, value, low, high, n, signature)
SELECT experiment, place * 20 + f, name, CASE WHEN f < 4 THEN 'score' ELSE 'speed' END, 'metric' || f,
    CASE WHEN f < 4 THEN 'value' ELSE 'p50' END, random(), 0.1, 0.9, 1000, 'metric|v1'
FROM run_tasks, generate_series(0, 19) f
"""
"""Experiments with values, of 23 owners."""

LISTS: Mapping[str, list[str]] = {
    "the newest": [], "an owner": ["user7"], "an owner and a plan": ["user7", "plan3"],
    "a model": ["vl-03"], "a model and a dataset": ["vl-03", "pages07"], "nothing": ["zzz"],
}  # fmt: skip
"""Page of a metric → words of its search."""


async def metric_pages(
    address: Address, experiments: int, *, alone: bool
) -> dict[str, tuple[float, float]]:
    """Page of a metric → its median and slowest time, ms."""
    found = {}
    async with place.opened(address) as engine, engine.connect() as connection:
        raw: Any = (await connection.get_raw_connection()).driver_connection
        for statement in VALUES.replace("$1", str(experiments)).split(";"):
            await raw.execute(statement)
        await raw.execute("ANALYZE")
        if alone:
            for process in (0, await raw.fetchval("SELECT pg_backend_pid()")):
                os.sched_setscheduler(process, os.SCHED_RR, os.sched_param(1))
        for name, words in LISTS.items():
            times, after = list[float](), None
            for _ in range(25):
                began = time.perf_counter()
                rows = await stored.values(connection, "metric1", words, "/elsewhere", after, 51)
                times.append((time.perf_counter() - began) * 1000)
                after = rows[49].key if len(rows) == 51 else None
            found[name] = statistics.median(times), max(times)
    return found


def main() -> None:
    """Measure, and print."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--url")
    options.add_argument(
        "--values", type=int, help="only pages of a metric, of so many experiments"
    )
    options.add_argument(
        "--alone", action="store_true", help="with --values: a processor of our own"
    )
    given = options.parse_args()
    with (
        nullcontext(given.url) if given.url else postgresql() as url,
        tempfile.TemporaryDirectory(prefix="hpcbench-database-") as folder,
    ):
        at = urlsplit(url)
        address = Address(
            "postgresql", at.hostname or "", at.port, unquote(at.username or ""),
            unquote(at.password or ""), at.path.lstrip("/"),
        )  # fmt: skip
        if given.url:
            asyncio.run(_clear(url))
        asyncio.run(place.init(address))
        if given.values:
            _tell_pages(asyncio.run(metric_pages(address, given.values, alone=given.alone)), 25)
            return
        found = campaign(Path(folder), given.rows, address)
    copied = found.answers * EACH
    rate, floor = found.rows / found.seconds, copied / found.bare
    for what, rows, seconds, pace in (
        ("sync", found.rows, found.seconds, rate),
        ("bare COPY", copied, found.bare, floor),
    ):
        print(
            f"{what:<10} {rows:>12,} rows in {seconds:7.1f} s: {pace:>9,.0f} rows/s (goal {GOAL_ROWS:,})"
        )
    print(f"ratio      {rate / floor:.2f}; this process worked for {found.cpu:.1f} s of the sync")
    _tell_pages(found.pages, 60)


def _tell_pages(pages: Mapping[str, tuple[float, float]], count: int) -> None:
    for name, (median, worst) in pages.items():
        print(
            f"page of {name:<22} {median:6.1f} ms, slowest of {count} {worst:6.1f} ms (goal {GOAL_MS:g})"
        )


async def _clear(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(
            "DROP SCHEMA IF EXISTS hpcbench CASCADE; DROP SCHEMA IF EXISTS bare CASCADE"
        )
    finally:
        await connection.close()


if __name__ == "__main__":
    main()
