"""The index's database: opens it, creates its tables, and repairs it if it is damaged or missing.

SQLite and PostgreSQL get the same statements, by SQLAlchemy.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DataError,
    DBAPIError,
    IntegrityError,
    SQLAlchemyError,
)

from hpcbench.errors import EnvironmentFault
from hpcbench.files.mounts import is_local
from hpcbench.installed import install_hint
from hpcbench.portal.index import IndexFault
from hpcbench.portal.index.disk import default_file
from hpcbench.portal.index.schema import (
    HOMES,
    META,
    METADATA,
    SCHEMA,
    VERSION,
    insert_new,
)
from hpcbench.secret import mask

ResultT = TypeVar("ResultT")

BUSY_SECONDS = 5.0
"""How long a writer waits for another writer."""

_PRAGMAS = (
    "journal_mode=WAL", "synchronous=NORMAL", "cache_size=-4096", "temp_store=MEMORY",
    "case_sensitive_like=ON",
)  # fmt: skip
"""Settings of each connection. Search texts are already in lower case."""

CONNECTIONS = 6
"""Most open connections: requests run in a pool of about as many threads."""


class Store:
    """A database with the index's tables.

    Args:
        url: `postgresql://…`, `sqlite:///PATH`, or None: SQLite on a local disk.
        home: folder of experiments and caches.

    Raises:
        IndexFault: the database cannot be used.
    """

    def __init__(self, url: str | None, home: Path) -> None:
        self._url = _url(url, home)
        self._lock = threading.Lock()
        self._inode: int | None = None
        try:
            self._engine = self._open()
        except (SQLAlchemyError, OSError) as error:
            if self._file is None:
                raise _fault(error) from None
            with contextlib.suppress(OSError):
                self._discard()
            try:
                self._engine = self._open()
            except (SQLAlchemyError, OSError) as again:
                raise _fault(again) from None

    @property
    def _file(self) -> Path | None:
        """SQLite's file; None: another database."""
        own = self._url.get_backend_name() == "sqlite" and self._url.database
        return Path(self._url.database) if own and self._url.database else None

    def read(self, work: Callable[[Connection], ResultT]) -> ResultT:
        """Read from the database.

        Raises:
            IndexFault: the database does not answer.
        """
        return self._do(lambda engine: _reading(engine, work))

    def write(self, home: str, work: Callable[[Connection, int], bool]) -> None:
        """Write to a home; other writers of the home wait.

        Args:
            home: the home.
            work: gets the number of the change; returns whether it changed anything. It may be called again
                after a repair of the database.

        Raises:
            IndexFault: the database does not answer.
        """
        self._do(lambda engine: _writing(engine, home, work))

    def check(self) -> None:
        """Check that the file is still in its place; if not, start a new file."""
        if self._file is not None and _inode(self._file) != self._inode:
            self._mend(self._engine)

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def _do(self, ask: Callable[[Engine], ResultT]) -> ResultT:
        engine = self._engine
        try:
            return ask(engine)
        except SQLAlchemyError as error:
            if not _can_be_mended(error):
                raise _fault(error) from error
            try:
                self._mend(engine)
                return ask(self._engine)
            except (SQLAlchemyError, OSError) as again:
                raise _fault(again) from again

    def _mend(self, broken: Engine) -> None:
        """Create the tables again, unless another thread has already done so."""
        with self._lock:
            if self._engine is not broken:
                return
            broken.dispose()
            if self._file is not None and _inode(self._file) == self._inode:
                self._discard()
            self._engine = self._open()

    def _discard(self) -> None:
        for ending in ("", "-wal", "-shm", "-journal"):
            Path(f"{self._file}{ending}").unlink(missing_ok=True)

    def _open(self) -> Engine:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            engine = _sqlite(self._url)
        else:
            engine = _postgresql(self._url)
        try:
            with engine.begin() as connection:
                _begin(connection)
                _make_tables(connection)
        except BaseException:
            engine.dispose()
            raise
        if self._file is not None:
            self._inode = _inode(self._file)
            with contextlib.suppress(OSError):
                self._file.chmod(0o600)
        return engine


def _url(url: str | None, home: Path) -> URL:
    if url is None:
        try:
            return URL.create("sqlite+pysqlite", database=str(default_file(home)))
        except (OSError, EnvironmentFault) as error:
            raise IndexFault(f"no folder for the index: {error}") from None
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        raise IndexFault(
            "`--index` is no address of a database", "give postgresql://… or sqlite:///PATH"
        ) from None
    drivers = {
        "sqlite": "sqlite+pysqlite",
        "postgresql": "postgresql+psycopg",
        "postgres": "postgresql+psycopg",
    }
    driver = drivers.get(found.drivername.partition("+")[0])
    if driver is None or (driver.startswith("sqlite") and not found.database):
        raise IndexFault(
            "`--index` has an unknown kind of database", "give postgresql://… or sqlite:///PATH"
        )
    if driver.startswith("sqlite") and not is_local(Path(str(found.database)).absolute().parent):
        raise IndexFault(
            "the index cannot be on a network file system", "name a folder on a local disk"
        )
    return found.set(drivername=driver)


def _sqlite(url: URL) -> Engine:
    engine = create_engine(
        url,
        pool_size=CONNECTIONS,
        max_overflow=2,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # `_begin` starts transactions
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _postgresql(url: URL) -> Engine:
    try:
        return create_engine(
            url,
            pool_size=CONNECTIONS,
            max_overflow=2,
            pool_pre_ping=True,
            connect_args={"connect_timeout": 5, "application_name": "hpcbench portal"},
            execution_options={"schema_translate_map": {None: SCHEMA}},
        )
    except ImportError:
        raise IndexFault("PostgreSQL needs a driver", remedy=install_hint("postgresql")) from None


def _make_tables(connection: Connection) -> None:
    """Ensure that the tables exist and have this version."""
    schema = None
    if connection.dialect.name == "postgresql":
        schema = SCHEMA
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": SCHEMA})
        connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    have = set(inspect(connection).get_table_names(schema=schema))
    wanted = {table.name for table in METADATA.sorted_tables}
    if wanted <= have and connection.execute(select(META.c.version)).scalar() == VERSION:
        return
    METADATA.drop_all(connection)
    METADATA.create_all(connection)
    connection.execute(META.insert().values(version=VERSION))


def _begin(connection: Connection) -> None:
    """Start a transaction that writes."""
    if connection.dialect.name == "sqlite":
        # Take the write lock first: of two transactions that have both read, only one could continue.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _reading(engine: Engine, work: Callable[[Connection], ResultT]) -> ResultT:
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
        return work(connection)


def _writing(engine: Engine, home: str, work: Callable[[Connection, int], bool]) -> None:
    with engine.connect() as connection, connection.begin() as transaction:
        _begin(connection)
        number = _take(connection, home)
        if not work(connection, number):
            transaction.rollback()
            return
        connection.execute(HOMES.update().where(HOMES.c.home == home).values(version=number))


def _take(connection: Connection, home: str) -> int:
    """Lock a home's row, and return the number of its next change."""
    statement = select(HOMES.c.version).where(HOMES.c.home == home).with_for_update()
    found = connection.execute(statement).scalar()
    if found is None:
        # From the clock: clients with answers of an earlier index must see another number.
        number = int(time.time() * 1000)
        connection.execute(insert_new(connection, HOMES), {"home": home, "version": number})
        found = connection.execute(statement).scalar()
    assert found is not None
    return int(found) + 1


def _can_be_mended(error: SQLAlchemyError) -> bool:
    """Whether new tables or a new connection may help."""
    if not isinstance(error, DatabaseError) or isinstance(error, (IntegrityError, DataError)):
        return False
    message = str(error.orig).lower()
    return "locked" not in message and "disk is full" not in message


def _fault(error: Exception) -> IndexFault:
    message = str(error.orig if isinstance(error, DBAPIError) else error).strip().partition("\n")[0]
    remedy = "restart the portal, which makes the index again; with --index, check that the database runs"
    return IndexFault(f"the index's database does not answer: {mask(message)[:300]}", remedy)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
