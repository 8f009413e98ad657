"""Results in a database, PostgreSQL or SQLite. The experiment's directory stays the truth.

    tables      the tables and their columns
    migrations  the tables of each version, for Alembic
    place       a connection: who answers, and whether its tables fit this version
    parts       an experiment as parts with stamps, each a frame of rows
    sync        sends the parts that the database lacks, a transaction each
    values      a metric over all experiments, in pages
    later       who sends what was left: the end of an experiment, and later commands

Nothing is only there: `hpcbench database sync` makes all rows again from the experiments' directories.
"""

from __future__ import annotations

from importlib.util import find_spec

from hpcbench.errors import EnvironmentFault
from hpcbench.installed import install_hint


def need() -> None:
    """Check that the packages of the extra `database` are installed; call it before any other module is used.

    Raises:
        EnvironmentFault: one is missing.
    """
    names = ("sqlalchemy", "greenlet", "alembic", "asyncpg", "aiosqlite")
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        what = f"a database of results needs {', '.join(missing)}"
        raise EnvironmentFault(what, remedy=install_hint("database"))
