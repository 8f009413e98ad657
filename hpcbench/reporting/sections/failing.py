"""Samples that went wrong: failed, unreadable, not scored, with a bad score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpcbench.evaluation import number_format as form
from hpcbench.experiment.counts import DEFINITIONS, OUTCOMES, outcomes_in_words
from hpcbench.reporting import charts
from hpcbench.reporting.blocks import (
    Block,
    Part,
    Plot,
    Section,
    Shown,
    Table,
    Text,
)
from hpcbench.reporting.report_tables import Tables

COUNTS = ("asked", "responded", "ok", "unreadable", "failed", "skipped")
"""Counts in the order of the table."""

POLICY = {"zero": "count as the worst value the metric knows", "exclude": "are left out"}
"""Policy → what it does to samples, in words."""

MOST_SHOWN = 60
"""Worst samples in all: of many run tasks fewer each, one at least."""


def failures(tables: Tables) -> Section | None:
    run_tasks: Mapping[str, Any] = tables["metrics"]["run_tasks"]
    imperfect = {
        name: table
        for name, table in run_tasks.items()
        if set(table["outcomes"]) - {"ok"} or table["invalid"] or table["faults"]
    }
    if not imperfect:
        return None
    rows = tuple(
        (
            name, *(form.count(table[count]) for count in COUNTS),
            form.share(table["coverage"]), outcomes_in_words(table["outcomes"]),
            POLICY[table["on_failed"]], POLICY[table["on_invalid"]],
        )
        for name, table in imperfect.items()
    )  # fmt: skip
    heads = (
        "run task", *COUNTS, "coverage", "how requests ended", "failed samples", "unreadable answers",
    )  # fmt: skip
    texts = frozenset(range(len(COUNTS) + 2, len(heads)))
    note = "; ".join(f"{count}: {DEFINITIONS[count]}" for count in COUNTS[1:])
    causes = tuple(row for name, table in imperfect.items() for row in _causes(name, table))
    blocks: list[Block] = [Plot(one, with_table=False) for one in charts.outcomes(run_tasks)]
    blocks.append(Table("What became of the samples", heads, rows, texts=texts))
    blocks.append(Text(f"{note[0].upper()}{note[1:]}.", "note"))
    if causes:
        columns = ("run task", "what", "cause", "count", "for instance")
        caption = "The commonest causes"
        blocks.append(Table(caption, columns, causes, texts=frozenset({1, 2, 4})))
    either = tuple(row for name, table in imperfect.items() for row in _either(name, table))
    if either:
        metrics = ("run task", "metric", "without unreadable answers", "if they count as the worst")
        blocks.append(Table("What unreadable answers change", metrics, either, 2))
    title = "Samples that failed, were unreadable or not scored"
    return Section("failures", title, tuple(blocks))


def _causes(name: str, table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for one in table["errors"]:
        yield (
            name,
            OUTCOMES[one["outcome"]],
            one["message"],
            form.count(one["count"]),
            one["sample"],
        )
    for one in table["invalid_reasons"]:
        yield name, "unreadable", one["reason"], form.count(one["count"]), one["sample"]
    for one in table["faults"]:
        what = f"not scored by {one['metric']}"
        yield name, what, one["message"], form.count(one["count"]), one["sample"]


def _either(name: str, table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for metric, entry in table["metrics"].items():
        if entry and entry["value_if"]:
            both = entry["value_if"]
            yield name, metric, form.value(both["exclude"]), form.value(both["zero"])


def worst(tables: Tables, count: int) -> Section | None:
    flawed = {name: some for name, some in tables["worst"].items() if some}
    count = min(count, max(1, MOST_SHOWN // max(1, len(flawed))))
    parts = tuple(
        Part(name, tuple(Shown(name, dict(one)) for one in some[:count]))
        for name, some in flawed.items()
        if some[:count]
    )
    if not parts:
        return None
    note = Text(
        f"{count} of each run task that its first metric likes least; none that are perfect.",
        "note",
    )
    return Section("worst", "Worst samples", (note,), parts)
