"""Published scores beside those of the experiment."""

from __future__ import annotations

from hpcbench import number_format as form
from hpcbench.reporting.blocks import Part, Section, Table, Text
from hpcbench.reporting.report_tables import PublishedScore, Tables


def published(tables: Tables) -> Section | None:
    found = tables["published"]
    if not found:
        return None
    rows = tuple(map(_row, found))
    heads = (
        "run task", "metric", "published", "here", "difference", "noise at 95 %", "the difference is",
    )  # fmt: skip
    note = Text(
        "Noise: how large a difference is that chance alone explains, were both runs of different samples. "
        "Runs of the same samples differ less, so `more than noise` holds, and `within noise` says that "
        "these figures show no difference, not that there is none. Conditions can explain a difference, too.",
        "note",
    )
    sides = tuple(Part(_title(one), (_conditions(one), _source(one))) for one in found)
    table = Table("Published scores, and those here", heads, rows, 2, texts=frozenset({6}))
    return Section("published", "Beside published scores", (table, note), sides)


def _row(one: PublishedScore) -> tuple[str, ...]:
    what = f"{one['verdict']}: {one['why']}" if one["why"] else one["verdict"]
    metric = form.metric(one["metric"], "", higher_is_better=one["higher_is_better"])
    return (
        one["run_task"],
        metric if one["of"] == 1 else f"{metric} × {one['of']:g}",
        f"{one['published']:g}",
        form.value_with_interval(one["value"], one["low"], one["high"]),
        form.difference(one["difference"]),
        form.DASH if one["noise"] is None else f"± {form.value(one['noise'])}",
        what,
    )


def _title(one: PublishedScore) -> str:
    return f"{one['run_task']}: {one['metric']} {one['published']:g}"


def _conditions(one: PublishedScore) -> Table:
    rows = tuple(
        (each["what"], each["published"] or "not published", each["here"])
        for each in one["conditions"]
    )
    return Table("Conditions", ("condition", "published", "here"), rows, texts=frozenset({1, 2}))


def _source(one: PublishedScore) -> Text:
    return Text(f"Source: {one['source']}.", "note")
