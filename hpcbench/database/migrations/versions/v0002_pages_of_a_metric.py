"""Words of an experiment, and an index by which a value is found from its run task: for pages of a metric."""

from __future__ import annotations

from collections import defaultdict

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, fill it, and make the index again."""
    op.add_column("experiments", sa.Column("words", sa.Text()))
    _fill()
    op.drop_index("metrics_by_name", "metrics")
    if op.get_context().dialect.name == "postgresql":
        # As the names of run tasks: an index serves only comparisons by its own order.
        op.execute('ALTER TABLE metrics ALTER COLUMN run_task TYPE text COLLATE "C"')
    op.create_index("metrics_by_name", "metrics", ["metric", "experiment", "run_task"])


def _fill() -> None:
    at = sa.table("experiments", *map(sa.column, ("id", "name", "owner", "words")))
    of = sa.table("run_tasks", *map(sa.column, ("experiment", "model", "dataset")))
    bind = op.get_bind()
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for column in (of.c.model, of.c.dataset):
        rows = bind.execute(
            sa.select(of.c.experiment, column).distinct().order_by(of.c.experiment, column)
        )
        for experiment, name in rows:
            found[experiment][name or ""] = None
    for identity, name, owner in bind.execute(sa.select(at.c.id, at.c.name, at.c.owner)).all():
        texts = dict.fromkeys((name or "", owner or "", identity, *found[identity]))
        words = " ".join(texts).lower()
        bind.execute(sa.update(at).where(at.c.id == identity).values(words=words))
