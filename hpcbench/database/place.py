"""A connection to a database of results: who answers, and whether its tables fit this version of hpcbench."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event, func, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from hpcbench import secret
from hpcbench.database.tables import EXPERIMENTS, PARTS
from hpcbench.errors import EnvironmentFault
from hpcbench.registry.database_address import Address

SCHEMA = "hpcbench"
"""PostgreSQL's schema of our tables, so that they may lie beside those of others."""

CONNECT_SECONDS = 10.0
"""Longest wait for a server to answer."""

BUSY_SECONDS = 60.0
"""How long a writer of SQLite waits for another writer."""

_VERSIONS = Path(__file__).parent / "migrations"
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"


@contextlib.asynccontextmanager
async def opened(address: Address) -> AsyncIterator[AsyncEngine]:
    """The database of an address; it is closed in the end.

    Raises:
        EnvironmentFault: it does not answer, or refuses; the message has no secret.
    """
    with faults(address):
        if address.path is not None and not address.path.exists():
            raise EnvironmentFault(
                f"database {address} is not on this machine",
                remedy="run `hpcbench database init` on the machine that has this disk",
            )
        engine = _sqlite(address.path) if address.path is not None else _postgresql(address)
        try:
            yield engine
        finally:
            await engine.dispose()


@contextlib.contextmanager
def faults(address: Address) -> Iterator[None]:
    """Errors of a database as a line without secrets.

    Raises:
        EnvironmentFault: it does not answer, or refuses.
    """
    try:
        yield
    except asyncio.TimeoutError:
        raise _fault(address, f"no answer in {CONNECT_SECONDS:g} s") from None
    except (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.Error) as error:
        origin = error.orig if isinstance(error, DBAPIError) else error
        raise _fault(address, str(origin)) from None
    except (ConnectionError, OSError) as error:
        raise _fault(address, str(error)) from None


def _fault(address: Address, why: str) -> EnvironmentFault:
    line = " ".join(why.split())[:300]
    return EnvironmentFault(
        secret.mask(f"database {address}: {line}"),
        remedy="check `database` in the plan or the site profile, and that the database runs; "
        "`hpcbench database sync` sends what is missing",
    )


def _postgresql(address: Address) -> AsyncEngine:
    async def connect() -> Any:
        # Options by themselves: `sslmode` and its like are words of addresses only.
        return await asyncpg.connect(
            f"postgresql://?{address.options}" if address.options else None,
            host=address.host or None,
            port=address.port,
            user=address.user or None,
            password=address.password or None,
            database=address.name,
            timeout=CONNECT_SECONDS,
            server_settings={"application_name": "hpcbench", "search_path": SCHEMA},
        )

    return create_async_engine("postgresql+asyncpg://", async_creator=connect, pool_size=1)


def _sqlite(path: Path) -> AsyncEngine:
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}", connect_args={"timeout": BUSY_SECONDS}
    )

    @event.listens_for(engine.sync_engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # `_begin` starts transactions
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Connection) -> None:
        # Take the write lock first: of two transactions that have both read, only one could go on.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


async def lock(connection: Any, name: str) -> None:
    """Keep other writers of one name out until the transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text(_LOCK), {"name": f"hpcbench {name}"})


# --- versions of the tables ----------------------------------------------------------------------------


async def init(address: Address) -> tuple[str | None, str]:
    """Make the tables, or bring tables of an earlier version to this one.

    Returns:
        The version before, None: there were no tables; and the version now.

    Raises:
        EnvironmentFault: the database does not answer, refuses, or has tables of a later version.
    """
    if address.path is not None:
        with faults(address):
            address.path.parent.mkdir(parents=True, exist_ok=True)
            address.path.touch(mode=0o600, exist_ok=True)
    async with opened(address) as engine, engine.begin() as connection:
        if address.path is None:
            await lock(connection, "tables")
            # A group's database may give an account the schema, and no right to make one.
            there = text("SELECT 1 FROM pg_namespace WHERE nspname = :name")
            if (await connection.execute(there, {"name": SCHEMA})).first() is None:
                await connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        before = await connection.run_sync(_version)
        _refuse_later(address, before)
        await connection.run_sync(_upgrade)
        return before, newest()


async def check(address: Address, engine: AsyncEngine) -> None:
    """Check that the tables are there, of this version.

    Raises:
        EnvironmentFault: they are not.
    """
    async with engine.connect() as connection:
        found = await connection.run_sync(_version)
    _refuse_later(address, found)
    if found != newest():
        what = "has no tables yet" if found is None else f"has tables of version {found}"
        raise EnvironmentFault(f"database {address} {what}", remedy="run `hpcbench database init`")


def _refuse_later(address: Address, found: str | None) -> None:
    if found is not None and found > newest():
        raise EnvironmentFault(
            f"database {address} has tables of version {found}, and this hpcbench knows {newest()}",
            remedy="upgrade hpcbench",
        )


def newest() -> str:
    """This hpcbench's version of the tables."""
    head = ScriptDirectory(str(_VERSIONS)).get_current_head()
    assert head is not None
    return head


def _version(connection: Connection) -> str | None:
    found = MigrationContext.configure(connection).get_current_heads()
    return found[0] if found else None


def _upgrade(connection: Connection) -> None:
    script = ScriptDirectory(str(_VERSIONS))

    def steps(revision: Any, _: Any) -> Any:
        return script._upgrade_revs("head", revision)

    with EnvironmentContext(Config(), script, fn=steps) as environment:
        environment.configure(connection=connection, transactional_ddl=True)
        environment.run_migrations()


async def held(
    address: Address, experiments: Sequence[str]
) -> tuple[str, dict[str, tuple[datetime | None, int]]]:
    """Parts of some experiments that a database has.

    Returns:
        The version of its tables; and experiment → when all of it was there (None: not all is), and how many
        of its rows are.

    Raises:
        EnvironmentFault: the database does not answer, or has no tables of this version.
    """
    async with opened(address) as engine:
        await check(address, engine)
        own, parts = EXPERIMENTS.c, PARTS.c
        counts = (
            select(parts.experiment, func.sum(parts.rows).label("rows"))
            .where(parts.experiment.in_(experiments))
            .group_by(parts.experiment)
            .subquery()
        )
        statement = (
            select(own.id, own.synced_at, counts.c.rows)
            .outerjoin(counts, counts.c.experiment == own.id)
            .where(own.id.in_(experiments))
        )
        async with engine.connect() as connection:
            found = await connection.execute(statement)
            return newest(), {name: (at, int(rows or 0)) for name, at, rows in found}
