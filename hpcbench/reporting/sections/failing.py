"""Samples that went wrong: without an answer, without a score, with a bad one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpcbench.evaluation import format as form
from hpcbench.reporting import pictures
from hpcbench.reporting.artefact import Tables
from hpcbench.reporting.blocks import (
    Block,
    Part,
    Plot,
    Section,
    Shown,
    Table,
    Text,
)

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
    outcomes = list(dict.fromkeys(key for table in run_tasks.values() for key in table["outcomes"]))
    counts = tuple(
        (
            name, *(form.count(table["outcomes"].get(key, 0)) for key in outcomes),
            form.count(table["invalid"]), form.share(table["coverage"]),
            POLICY[table["on_failed"]], POLICY[table["on_invalid"]],
        )
        for name, table in imperfect.items()
    )  # fmt: skip
    last = len(outcomes) + 3
    heads = (
        "run task", *outcomes, "no value", "coverage", "without an answer", "without a value",
    )  # fmt: skip
    causes = tuple(row for name, table in imperfect.items() for row in _causes(name, table))
    blocks: list[Block] = [Plot(one, with_table=False) for one in pictures.outcomes(run_tasks)]
    blocks.append(Table("How requests ended", heads, counts, texts=frozenset({last, last + 1})))
    if causes:
        heads = ("run task", "what", "cause", "count", "for instance")
        caption = "The commonest causes"
        blocks.append(Table(caption, heads, causes, texts=frozenset({1, 2, 4})))
    either = tuple(row for name, table in imperfect.items() for row in _either(name, table))
    if either:
        heads = ("run task", "metric", "without invalid answers", "if they count as the worst")
        blocks.append(Table("What invalid answers change", heads, either, 2))
    title = "Samples without an answer, or without a score"
    return Section("failures", title, tuple(blocks))


def _causes(name: str, table: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for one in table["errors"]:
        yield name, one["outcome"], one["message"], form.count(one["count"]), one["sample"]
    for one in table["invalid_reasons"]:
        yield name, "invalid", one["reason"], form.count(one["count"]), one["sample"]
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
