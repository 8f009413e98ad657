"""Tables of the index. Every change of this module's tables needs another VERSION.

Both databases compare text by code points: SQLite by default, PostgreSQL by collation `C`. Values for sorting
and filtering have columns of their own; the column `body` has the whole row as JSON.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.dialects import postgresql, sqlite

VERSION = 6
"""Version of the tables; an index of another version stays, or is built again if it is in the way."""

SCHEMA = f"hpcbench_portal_{VERSION}"
"""PostgreSQL's schema, so that portals of two versions can share a database."""

METADATA = MetaData()

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_REAL = Float(53)  # double precision in both databases

EXPERIMENT_NUMBERS = ("created", "updated", "progress", "rate", "score", "gpu_hours")
EXPERIMENT_COUNTS = ("run_tasks", "samples", "answered", "failures", "baselines")
RUN_TASK_NUMBERS = (
    "progress", "rate", "coverage", "score", "latency_p50", "latency_p95", "tokens_per_second",
    "peak_memory_gb",
)  # fmt: skip
RUN_TASK_COUNTS = ("samples", "answered", "invalid")

META = Table("meta", METADATA, Column("version", Integer, nullable=False))
"""One row: the version of the tables."""

HOMES = Table(
    "homes",
    METADATA,
    Column("home", _TEXT, primary_key=True),
    Column("version", BigInteger, nullable=False),
)
"""A home, and a number that grows with every change. A writer locks the home's row."""

EXPERIMENTS = Table(
    "experiments",
    METADATA,
    Column("home", _TEXT, primary_key=True),
    Column("id", _TEXT, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("stamp", _TEXT, nullable=False),
    Column("plan", _TEXT, nullable=False),
    Column("state", _TEXT, nullable=False),
    Column("owner", _TEXT, nullable=False),
    Column("verdict", _TEXT),
    Column("metric", _TEXT),
    *(Column(name, _REAL) for name in EXPERIMENT_NUMBERS),
    *(Column(name, BigInteger) for name in EXPERIMENT_COUNTS),
    Column("words", _TEXT, nullable=False),
    Column("body", _TEXT, nullable=False),
    Column("account", _TEXT, nullable=False),
)

RUN_TASKS = Table(
    "run_tasks",
    METADATA,
    Column("home", _TEXT, primary_key=True),
    Column("experiment", _TEXT, primary_key=True),
    Column("name", _TEXT, primary_key=True),
    Column("place", Integer, nullable=False),
    Column("ml_task", _TEXT, nullable=False),
    Column("model", _TEXT, nullable=False),
    Column("dataset", _TEXT, nullable=False),
    Column("prompt", _TEXT, nullable=False),
    Column("state", _TEXT, nullable=False),
    *(Column(name, _REAL) for name in RUN_TASK_NUMBERS),
    *(Column(name, BigInteger) for name in RUN_TASK_COUNTS),
    Column("words", _TEXT, nullable=False),
    Column("body", _TEXT, nullable=False),
)

MEMBERS = Table(
    "members",
    METADATA,
    Column("home", _TEXT, primary_key=True),
    Column("kind", _TEXT, primary_key=True),
    Column("value", _TEXT, primary_key=True),
    Column("experiment", _TEXT, primary_key=True),
)
"""Models and datasets of experiments."""

TERMS = Table(
    "terms",
    METADATA,
    Column("home", _TEXT, primary_key=True),
    Column("kind", _TEXT, primary_key=True),
    Column("word", _TEXT, primary_key=True),
    Column("name", _TEXT, primary_key=True),
)
"""Texts from each word of a name on, in lower case, for the palette. Names outlive their experiments."""

SCORES = Table(
    "scores",
    METADATA,
    Column("home", _TEXT, primary_key=True),
    Column("experiment", _TEXT, primary_key=True),
    Column("dataset", _TEXT, primary_key=True),
    Column("metric", _TEXT, primary_key=True),
    Column("place", Integer, nullable=False),
    Column("value", _REAL, nullable=False),
    Column("higher_is_better", Integer, nullable=False),
    Column("body", _TEXT, nullable=False),
)
"""Values of experiments by dataset and metric; `place` is 0 for a run task's leading metric, then 1 …"""

FILES = Table(
    "files",
    METADATA,
    Column("home", _TEXT, primary_key=True),
    Column("experiment", _TEXT, primary_key=True),
    Column("name", _TEXT, primary_key=True),
    Column("body", _TEXT, nullable=False),
)
"""Where run tasks are in an experiment's large files: a page of one run task reads only its parts."""

KNOWN = Table(
    "known",
    METADATA,
    Column("home", _TEXT, primary_key=True),
    Column("experiment", _TEXT, primary_key=True),
    Column("stamp", _TEXT, nullable=False),
    Column("body", _TEXT, nullable=False),
)

for _name in ("plan", "state", "owner", "verdict", *EXPERIMENT_NUMBERS, *EXPERIMENT_COUNTS):
    Index(f"experiments_{_name}", EXPERIMENTS.c.home, EXPERIMENTS.c[_name], EXPERIMENTS.c.id)
Index(
    "experiments_trend", EXPERIMENTS.c.home, EXPERIMENTS.c.plan, EXPERIMENTS.c.created,
    EXPERIMENTS.c.id, EXPERIMENTS.c.metric, EXPERIMENTS.c.score,
)  # fmt: skip
Index(
    "scores_value", SCORES.c.home, SCORES.c.dataset, SCORES.c.metric, SCORES.c.value,
    SCORES.c.experiment,
)  # fmt: skip
Index("members_experiment", MEMBERS.c.home, MEMBERS.c.experiment)
for _name in (
    "name", "model", "dataset", "state", "prompt", "ml_task", *RUN_TASK_NUMBERS, *RUN_TASK_COUNTS
):  # fmt: skip
    _column = RUN_TASKS.c[_name]
    _ties = (
        (RUN_TASKS.c.experiment,) if _name == "name" else (RUN_TASKS.c.experiment, RUN_TASKS.c.name)
    )
    Index(f"run_tasks_{_name}", RUN_TASKS.c.home, _column, *_ties)
Index("run_tasks_words", RUN_TASKS.c.home, RUN_TASKS.c.words)


def insert_new(connection: Connection, table: Table) -> Any:
    """A statement that inserts rows, except those that exist."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing()
