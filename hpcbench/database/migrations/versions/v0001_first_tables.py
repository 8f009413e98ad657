"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_REAL = sa.Float(53)
_TIME = sa.DateTime(timezone=True)


def _key(*names: str) -> tuple[sa.Column[Any], ...]:
    return tuple(sa.Column(name, _KEY, nullable=False) for name in names)


def _columns(kind: Any, *names: str) -> tuple[sa.Column[Any], ...]:
    return tuple(sa.Column(name, kind) for name in names)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "experiments",
        *_key("id"),
        sa.Column("manifest", sa.Text(), nullable=False),
        *_columns(sa.Text(), "name", "description", "owner", "home"),
        *_columns(_TIME, "created_at"),
        *_columns(sa.Text(), "status", "reason", "hpcbench"),
        *_columns(sa.BigInteger(), "seed"),
        *_columns(sa.JSON(), "config", "results_summary"),
        *_columns(_TIME, "synced_at"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("experiments_by_time", "experiments", ["created_at"])
    op.create_table(
        "run_tasks",
        *_key("experiment", "name"),
        *_columns(sa.BigInteger(), "place"),
        *_columns(
            sa.Text(),
            "ml_task",
            "model",
            "dataset",
            "split",
            "prompt",
            "engine",
            "status",
            "reason",
        ),
        *_columns(sa.BigInteger(), "asked", "answered"),
        *_columns(_REAL, "coverage"),
        *_columns(sa.JSON(), "parameters"),
        sa.PrimaryKeyConstraint("experiment", "name"),
    )
    op.create_index("run_tasks_by_dataset", "run_tasks", ["dataset"])
    op.create_index("run_tasks_by_model", "run_tasks", ["model"])
    op.create_table(
        "samples",
        *_key("experiment", "run_task", "sample"),
        sa.Column("place", sa.BigInteger(), nullable=False),
        *_columns(sa.Text(), "document", "outcome"),
        *_columns(sa.BigInteger(), "images"),
        *_columns(sa.JSON(), "reference_answers", "metadata"),
        *_columns(sa.Text(), "prediction"),
        *_columns(sa.Boolean(), "invalid", "truncated"),
        *_columns(sa.Text(), "reason", "form", "repairs", "faults", "mistake"),
        sa.PrimaryKeyConstraint("experiment", "run_task", "sample"),
    )
    op.create_index("samples_by_place", "samples", ["experiment", "run_task", "place"])
    op.create_table(
        "answers",
        *_key("experiment", "run_task", "sample"),
        sa.Column("shard", sa.BigInteger(), nullable=False),
        *_columns(sa.BigInteger(), "attempt"),
        *_columns(sa.Text(), "outcome", "answer", "reasoning", "error", "finish_reason", "prompt"),
        *_columns(
            sa.BigInteger(), "tries", "prompt_tokens", "completion_tokens", "recount", "images"
        ),
        *_columns(sa.JSON(), "image_sha256"),
        sa.PrimaryKeyConstraint("experiment", "run_task", "sample"),
    )
    op.create_index("answers_by_shard", "answers", ["experiment", "run_task", "shard"])
    op.create_table(
        "timings",
        *_key("experiment", "run_task", "sample"),
        sa.Column("shard", sa.BigInteger(), nullable=False),
        *_columns(sa.BigInteger(), "attempt", "chunks"),
        *_columns(
            _REAL,
            "ttft_ms",
            "tpot_ms",
            "e2e_ms",
            "ttft_due_ms",
            "e2e_due_ms",
            "queue_ms",
            "prepare_ms",
            "headers_ms",
            "done_ms",
        ),
        *_columns(sa.BigInteger(), "start_ns", "send_ns"),
        sa.PrimaryKeyConstraint("experiment", "run_task", "sample"),
    )
    op.create_table(
        "scores",
        *_key("experiment", "run_task", "sample", "metric"),
        sa.Column("place", sa.BigInteger(), nullable=False),
        *_columns(_REAL, "value", "numerator", "denominator"),
        *_columns(sa.Text(), "fault"),
        sa.PrimaryKeyConstraint("experiment", "run_task", "sample", "metric"),
    )
    op.create_table(
        "metrics",
        *_key("experiment"),
        sa.Column("number", sa.BigInteger(), nullable=False),
        *_columns(sa.Text(), "run_task", "kind", "metric", "statistic", "grouped_by"),
        *_columns(sa.JSON(), "group_values"),
        *_columns(_REAL, "value", "low", "high"),
        *_columns(sa.BigInteger(), "n", "documents", "asked", "answered"),
        *_columns(_REAL, "coverage"),
        *_columns(sa.BigInteger(), "invalid", "faults"),
        *_columns(sa.Text(), "method", "average", "signature"),
        *_columns(sa.Boolean(), "higher_is_better", "valid"),
        sa.PrimaryKeyConstraint("experiment", "number"),
    )
    op.create_index("metrics_by_name", "metrics", ["metric", "experiment"])
    op.create_table(
        "events",
        *_key("experiment"),
        sa.Column("number", sa.BigInteger(), nullable=False),
        *_columns(sa.Text(), "source"),
        *_columns(sa.BigInteger(), "seq"),
        *_columns(_TIME, "time"),
        *_columns(sa.Text(), "kind", "sort", "run_task"),
        *_columns(sa.BigInteger(), "shard", "attempt"),
        *_columns(sa.Text(), "worker_group", "worker"),
        *_columns(sa.JSON(), "details"),
        sa.PrimaryKeyConstraint("experiment", "number"),
    )
    op.create_index("events_by_time", "events", ["experiment", "time"])
    op.create_table(
        "parts",
        *_key("experiment", "part"),
        sa.Column("stamp", sa.Text(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("experiment", "part"),
    )
