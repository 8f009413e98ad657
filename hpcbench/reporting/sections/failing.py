"""Samples that went wrong: failed, unreadable, not scored, with a bad score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpcbench import number_format as form
from hpcbench.evaluation.mistakes import MISTAKES
from hpcbench.experiment.counts import DEFINITIONS, OUTCOMES, outcomes_in_words
from hpcbench.experiment.view.metrics_json import Scores
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
from hpcbench.reporting.sections.shared import scores_in

COUNTS = ("asked", "responded", "ok", "unreadable", "failed", "skipped")
"""Counts in the order of the table."""

POLICY: Mapping[str, str] = {
    "zero": "count as the worst value of the metric",
    "exclude": "are left out",
}
"""Policy → its effect on samples, in words."""

MOST_SHOWN = 60
"""Most worst samples in total: many run tasks have fewer each, at least one."""


def failures(tables: Tables) -> Section | None:
    run_tasks = scores_in(tables)
    imperfect = {
        name: table
        for name, table in run_tasks.items()
        if set(table.outcomes) - {"ok"} or table.unreadable or table.faults
    }
    if not imperfect:
        return None
    rows = tuple(
        (
            name, *(form.count(getattr(table.counts, count)) for count in COUNTS),
            form.share(table.coverage), outcomes_in_words(table.outcomes),
            POLICY[table.on_failed], POLICY[table.on_invalid],
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
    blocks.append(Table("Outcomes of the samples", heads, rows, texts=texts))
    blocks.append(Text(f"{note[0].upper()}{note[1:]}.", "note"))
    if causes:
        columns = ("run task", "what", "cause", "count", "example")
        caption = "The most frequent causes"
        blocks.append(Table(caption, columns, causes, texts=frozenset({1, 2, 4})))
    either = tuple(row for name, table in imperfect.items() for row in _either(name, table))
    if either:
        metrics = ("run task", "metric", "without unreadable answers", "if they count as the worst")
        blocks.append(Table("Metrics with and without unreadable answers", metrics, either, 2))
    title = "Samples that failed, are unreadable or have no score"
    return Section("failures", title, tuple(blocks))


def _causes(name: str, table: Scores) -> Iterator[tuple[str, ...]]:
    for lost in table.errors:
        what = OUTCOMES[lost.outcome]
        yield name, what, lost.message, form.count(lost.count), lost.sample or ""
    for unread in table.invalid_reasons:
        yield name, "unreadable", unread.reason, form.count(unread.count), unread.sample or ""
    for fault in table.faults:
        what = f"not scored by {fault.metric}"
        yield name, what, fault.message, form.count(fault.count), fault.sample or ""


def _either(name: str, table: Scores) -> Iterator[tuple[str, ...]]:
    for metric, entry in table.values.items():
        if both := entry.value_if:
            yield name, metric, form.value(both["exclude"]), form.value(both["zero"])


def mistakes(tables: Tables) -> Section | None:
    """Kinds of mistakes in wrong answers, a column a kind that occurs."""
    named = {name: one for name, one in scores_in(tables).items() if one.mistakes and one.wrong}
    kinds = [
        kind for kind in MISTAKES if any(kind in (one.mistakes or {}) for one in named.values())
    ]
    if not kinds:
        return None
    rows = tuple(
        (
            name, form.count(one.wrong), form.count(one.failed),
            *(form.count((one.mistakes or {}).get(kind, 0)) for kind in kinds),
            form.count(one.unnamed),
        )
        for name, one in named.items()
    )  # fmt: skip
    note = Text(
        "A sample is wrong if its value of the first metric is below the best, its answer is unreadable, or "
        "its request failed. Rules that know no metric name the kind: docs/scores.md.",
        "note",
    )
    heads = ("run task", "wrong", "no answer", *kinds, "no rule applies")
    table = Table("Wrong samples by kind", heads, rows)
    return Section("mistakes", "Mistakes in wrong answers", (table, note))


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
        f"Up to {count} samples of each run task with the worst scores by its first metric; samples with "
        "the best possible score are left out.",
        "note",
    )
    return Section("worst", "Worst samples", (note,), parts)
