"""Send an experiment to a database: the parts that it lacks, a transaction each.

A kill or a lost connection loses the transaction under way; the next call goes on after the last part that is
there. Writers of one experiment wait for each other, part by part, and look again what is there: rows are
never there twice. Rows of a part go in whole, by COPY on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from io import BytesIO
from typing import Any, TypeVar

from sqlalchemy import Table, and_, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from hpcbench.database.increments import Batch, Part, batches, identity, run_task_rows, summary
from hpcbench.database.place import check, lock, opened
from hpcbench.database.tables import EXPERIMENTS, PARTS, RUN_TASKS
from hpcbench.database.values import words_of
from hpcbench.errors import UserError
from hpcbench.experiment.layout import Experiment
from hpcbench.registry.database_address import Address

ItemT = TypeVar("ItemT")

NAMES_AT_ONCE = 500
"""Most names in one condition."""


@dataclass(slots=True)
class Synced:
    """Amounts that a sync has sent."""

    parts: int = 0
    """Parts that were new or had changed."""
    rows: int = 0
    """Rows of all tables in them."""


async def sync(
    experiment: Experiment, address: Address, tell: Callable[[Synced], None] = lambda synced: None
) -> Synced:
    """Send what a database lacks of an experiment; it may run.

    Args:
        experiment: the experiment.
        address: the database.
        tell: is called after every transaction.

    Raises:
        EnvironmentFault: the database does not answer, refuses, or has no tables of this version.
        UserError: it has another experiment under this id.
        OSError: the experiment cannot be read.
    """
    synced = Synced()
    async with opened(address) as engine:
        await check(address, engine)
        known = await _known(engine, experiment)
        rows = summary(experiment), run_task_rows(experiment)
        head = json.dumps(rows, sort_keys=True, default=str)
        async with contextlib.aclosing(_ahead(batches(experiment, known))) as found:
            async for batch in found:
                if not synced.parts:
                    await _write_head(engine, rows, None)
                synced.rows += await _write(engine, experiment.id, batch)
                synced.parts += len(batch.parts)
                tell(synced)
        if synced.parts or known.get("experiment") != _stamp(head):
            await _write_head(engine, rows, _stamp(head))
            synced.rows += 1 + len(rows[1])
            synced.parts += 1
            tell(synced)
    return synced


def _stamp(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def _known(engine: AsyncEngine, experiment: Experiment) -> dict[str, str]:
    """Part → stamp, as the database has them.

    Raises:
        UserError: it has another experiment under this id.
    """
    own = EXPERIMENTS.c
    async with engine.connect() as connection:
        there = await connection.execute(
            select(own.manifest, own.home).where(own.id == experiment.id)
        )
        if (row := there.first()) is not None and row.manifest != identity(experiment):
            raise UserError(
                f"the database has another experiment {experiment.id}, of {row.home}",
                remedy="rename this experiment's folder, or use another database",
            )
        stamps = await connection.execute(
            select(PARTS.c.part, PARTS.c.stamp).where(PARTS.c.experiment == experiment.id)
        )
        return {part: stamp for part, stamp in stamps}


async def _ahead(items: Iterator[ItemT]) -> AsyncGenerator[ItemT, None]:
    """Items of a slow iterator, the next one made in a thread while the present one is used."""
    end = object()
    coming = asyncio.create_task(asyncio.to_thread(next, items, end))
    try:
        while (item := await coming) is not end:
            coming = asyncio.create_task(asyncio.to_thread(next, items, end))
            yield item  # type: ignore[misc]
    finally:
        with contextlib.suppress(Exception):  # its files are read no more
            await coming


async def _write_head(
    engine: AsyncEngine,
    rows: tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]],
    stamp: str | None,
) -> None:
    """The rows of the experiment and its run tasks; with a stamp: all other rows are there."""
    own, run_tasks = rows
    identifier = own["id"]
    synced = datetime.now(timezone.utc) if stamp is not None else None
    async with engine.begin() as connection:
        await lock(connection, identifier)
        await connection.execute(delete(EXPERIMENTS).where(EXPERIMENTS.c.id == identifier))
        await connection.execute(delete(RUN_TASKS).where(RUN_TASKS.c.experiment == identifier))
        words = words_of(own, run_tasks)
        await connection.execute(EXPERIMENTS.insert().values(**own, synced_at=synced, words=words))
        await connection.execute(RUN_TASKS.insert(), list(run_tasks))
        await _note(
            connection, identifier, [Part("experiment", stamp, range(0), 1 + len(run_tasks))]
        )


async def _write(engine: AsyncEngine, experiment: str, batch: Batch) -> int:
    """Send a batch in one transaction, unless another writer did; returns its rows."""
    names = [part.name for part in batch.parts]
    async with engine.begin() as connection:
        await lock(connection, experiment)
        there: dict[str, str] = {}
        for some in _pieces(names):
            mine = and_(PARTS.c.experiment == experiment, PARTS.c.part.in_(some))
            found = await connection.execute(select(PARTS.c.part, PARTS.c.stamp).where(mine))
            there |= {part: stamp for part, stamp in found}
        if all(there.get(part.name) == part.stamp for part in batch.parts):
            return 0
        await _remove(
            connection, experiment, batch, [one for one in batch.parts if one.name in there]
        )
        rows = 0
        for table, frame in batch.frames.items():
            if frame.height:
                await _fill(connection, table, frame)
                rows += frame.height
        await _note(connection, experiment, batch.parts)
    return rows


async def _remove(
    connection: AsyncConnection, experiment: str, batch: Batch, parts: Sequence[Part]
) -> None:
    """Remove the rows of parts that are there."""
    ranges: list[range] = []
    for values in sorted((part.values for part in parts), key=lambda one: one.start):
        if ranges and ranges[-1].stop >= values.start:
            ranges[-1] = range(ranges[-1].start, max(values.stop, ranges[-1].stop))
        else:
            ranges.append(values)
    lead, *others = batch.tables
    of = [lead.c.experiment == experiment]
    of += [] if batch.run_task is None else [lead.c.run_task == batch.run_task]
    column = lead.c[batch.column]
    for some in _pieces(ranges):
        inside = or_(*(and_(column >= one.start, column < one.stop) for one in some))
        for table in others:
            own, samples = table.c, select(lead.c.sample).where(*of, inside)
            mine = (own.experiment == experiment, own.run_task == batch.run_task)
            await connection.execute(delete(table).where(*mine, own.sample.in_(samples)))
        await connection.execute(delete(lead).where(*of, inside))


async def _fill(connection: AsyncConnection, table: Table, frame: Any) -> None:
    """Put the rows of a frame into a table."""
    names = [column.name for column in table.columns]
    if connection.dialect.name == "postgresql":
        # Texts are quoted and missing values are not: so an empty text stays one.
        data = frame.write_csv(include_header=False, quote_style="non_numeric").encode()
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        await raw.copy_to_table(table.name, source=BytesIO(data), columns=names, format="csv")
        return
    import polars

    times = polars.col(polars.Datetime).dt.strftime("%Y-%m-%d %H:%M:%S.%6f")
    listed, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
    statement = f"INSERT INTO {table.name} ({listed}) VALUES ({marks})"
    await connection.exec_driver_sql(statement, frame.with_columns(times).rows())


async def _note(connection: AsyncConnection, experiment: str, parts: Sequence[Part]) -> None:
    """Write down which parts are there now."""
    for some in _pieces(parts):
        names = [part.name for part in some]
        mine = and_(PARTS.c.experiment == experiment, PARTS.c.part.in_(names))
        await connection.execute(delete(PARTS).where(mine))
        rows = [
            {"experiment": experiment, "part": part.name, "stamp": part.stamp, "rows": part.rows}
            for part in some
            if part.stamp is not None
        ]
        if rows:
            await connection.execute(PARTS.insert(), rows)


def _pieces(items: Sequence[ItemT]) -> Iterator[Sequence[ItemT]]:
    for start in range(0, len(items), NAMES_AT_ONCE):
        yield items[start : start + NAMES_AT_ONCE]
