"""Scores, as matrices and by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from hpcbench import number_format as form
from hpcbench.experiment.counts import DEFINITIONS
from hpcbench.experiment.ending import remarks
from hpcbench.experiment.view.metrics_json import standing
from hpcbench.reporting import charts
from hpcbench.reporting.blocks import (
    Block,
    Part,
    Plot,
    Section,
    Strong,
    Table,
    Text,
)
from hpcbench.reporting.charts.figure_names import stem
from hpcbench.reporting.figures import Figure
from hpcbench.reporting.printed_tables import (
    MetricRow,
    group_tables,
    metric_cells,
    metric_rows,
)
from hpcbench.reporting.report_tables import Matrix, Tables
from hpcbench.reporting.sections.shared import MOST_PLOTS, dataset_of, scores_in

MOST_OPEN = 8
"""Most tables of groups that are shown unfolded; if there are more, all are folded."""


def scores(tables: Tables) -> Section:
    parts = []
    read = scores_in(tables)
    rows = list(metric_rows(read))
    for ml_task in dict.fromkeys(one["ml_task"] for one in tables["matrix"]):
        matrices = [one for one in tables["matrix"] if one["ml_task"] == ml_task]
        own = [row for row in rows if row.ml_task == ml_task]
        blocks: list[Block] = [*map(_matrix, matrices), *_dots(own, ml_task)]
        parts.append(Part(f"Models × datasets: {ml_task}", tuple(blocks)))
    every = Table(
        "Scores of all run tasks",
        ("run task", "metric", "value", "95 % interval", "n", "documents", "coverage"),
        tuple(map(metric_cells, rows)),
        2,
    )
    note = Text(
        f"↑ higher is better, ↓ lower is better. [ ]: 95 % interval. Coverage: {DEFINITIONS['coverage']}, "
        f"where ok is {DEFINITIONS['ok']}; a matrix shows it where it is below 100 %. Bold: the best of its "
        "column.",
        "note",
    )
    dashes = (Text(f"{line}.", "note") for line in remarks(read))
    parts.append(Part("Every score", (every, *dashes)))
    if spread := tuple(Plot(one) for one in _distributions(tables)):
        parts.append(Part("Distribution of sample scores", spread))
    return Section("scores", "Scores", (note,), tuple(parts))


def _dots(rows: Sequence[MetricRow], ml_task: str) -> Iterator[Plot]:
    """Plots of the scores of one ML task; only its metrics are side by side, others would leave gaps."""
    if len([row for row in rows if row.value is not None]) > 1:
        for one in charts.metrics(rows):
            name = stem(one.name, ml_task)
            title = one.title if ml_task in one.title else f"{one.title}: {ml_task}"
            yield Plot(replace(one, name=name, title=title), with_table=False)


def _distributions(tables: Tables) -> Iterator[Figure]:
    """One figure for each metric that ranks models."""
    found: dict[str, dict[str, Any]] = {}
    for name, one in tables["distribution"].items():
        found.setdefault(one["metric"], {})[name] = one
    for metric, some in found.items():
        first = next(iter(some.values()))
        counts = {name: one["counts"] for name, one in some.items()}
        figure = charts.distribution(counts, metric, first["low"], first["high"])
        if figure is not None:
            yield figure


def _matrix(one: Matrix) -> Table:
    heads = ("model", *(dataset_of(column) for column in one["columns"]))
    rows = []
    for row in one["rows"]:
        name = f"{row['model']} ({row['variant']})" if row["variant"] else row["model"]
        rows.append((name, *(_cell(cell) for cell in row["cells"])))
    caption = form.metric(one["metric"], one["unit"], higher_is_better=one["higher_is_better"])
    return Table(caption, heads, tuple(rows), title="" if one["primary"] else caption)


def _cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    text = form.value_with_interval(cell["value"], cell["low"], cell["high"])
    if cell.get("calibration"):
        text += f" {standing(cell['calibration'])}"
    if cell["coverage"] < 1:
        text += f" at {form.share(cell['coverage'])}"
    return Strong(text) if cell["leads"] else text


def groups(tables: Tables) -> Section | None:
    read = scores_in(tables)
    parts: dict[str, list[Block]] = {}
    for one in group_tables(read):
        more = f" ({one.left_out} more groups are not shown)" if one.left_out else ""
        rows = tuple((group, count, share, *values) for group, count, share, values in one.lines)
        heads = (one.by, "samples", "coverage", *one.heads)
        table = Table(f"{one.run_task} by {one.by}{more}", heads, rows)
        parts.setdefault(one.run_task, []).append(table)
    if not parts:
        return None
    if sum(len(blocks) for blocks in parts.values()) > MOST_OPEN:
        parts = {name: [_folded(block) for block in blocks] for name, blocks in parts.items()}
    subsections = tuple(Part(name, tuple(blocks)) for name, blocks in parts.items())
    # Several columns together give too many bars to read; their tables follow.
    plain = {
        name: table.model_copy(
            update={"groups": tuple(level for level in table.groups if len(level.by) == 1)}
        )
        for name, table in read.items()
    }
    drawn = islice(charts.categories(plain), MOST_PLOTS)
    plots = tuple(Plot(one, with_table=False) for one in drawn)
    return Section("groups", "Scores by group", plots, subsections)


def _folded(block: Block) -> Block:
    return replace(block, title=block.caption) if isinstance(block, Table) else block
