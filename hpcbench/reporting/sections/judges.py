"""Verdicts of judges: naive beside corrected values, and what a reader must know."""

from __future__ import annotations

from hpcbench import number_format as form
from hpcbench.experiment.view.metrics_json import Chance, Judged, Metrics
from hpcbench.reporting.blocks import Block, Part, Section, Table, Text
from hpcbench.reporting.report_tables import Tables


def judges(tables: Tables) -> Section | None:
    found = Metrics.model_validate(tables["metrics"]).judges
    if not found:
        return None
    note = (
        "Naive: the mean verdict, which has the judge's errors. Corrected: what people would have said, by "
        "the answers that they labelled; prediction-powered, and for right or wrong also by sensitivity and "
        "specificity. [ ]: 95 % interval by document. Answers without a readable verdict are in no value."
    )
    heads = (
        "judge", "rates", "naive", "prediction-powered", "by sensitivity and specificity", "labels", "judged",
        "unreadable",
    )  # fmt: skip
    rows = tuple(_row(name, one) for name, one in found.items())
    blocks: list[Block] = [Text(note, "note"), Table("What judges say", heads, rows)]
    if any(one.sensitivity or one.specificity or one.bias for one in found.values()):
        blocks.append(
            Table(
                "How judges agree with people",
                ("judge", "sensitivity", "specificity", "bias", "likes long answers", "own family"),
                tuple(
                    (
                        name,
                        _value(one.sensitivity),
                        _value(one.specificity),
                        _value(one.bias),
                        _value(one.length),
                        _value(one.family),
                    )
                    for name, one in found.items()
                ),
            )  # fmt: skip
        )
    if any(one.against for one in found.values()):
        blocks.append(
            Table(
                "Preferences in pairs; 0.5: none",
                ("judge", "for the first shown", "the same in both orders", "for the longer"),
                tuple(
                    (
                        name,
                        _value(one.order),
                        form.share(getattr(one.order, "consistent", None) if one.order else None),
                        _value(one.longer),
                    )
                    for name, one in found.items()
                    if one.against
                ),
            )  # fmt: skip
        )
    parts = tuple(
        Part(name, tuple(Text(f"{line[:1].upper()}{line[1:]}.") for line in one.findings))
        for name, one in found.items()
        if one.findings
    )
    return Section("judges", "Judges", tuple(blocks), parts)


def _row(name: str, one: Judged) -> tuple[str, ...]:
    rated = f"{one.of} ({one.rated_model})" + (f" against {one.against}" if one.against else "")
    used = one.labels.get("used", 0)
    labels = f"{used} of {one.labels['given']}" if one.labels else "none"
    naive = f"{_value(one.naive)}{'' if one.state == 'calibrated' else f' {one.state}'}"
    return (
        f"{name}: {one.model}, {one.rubric} {one.rubric_version}".rstrip(), rated, naive, _value(one.powered),
        _value(one.corrected), labels, f"{one.judged} of {one.samples}", form.count(one.unreadable),
    )  # fmt: skip


def _value(one: Chance | None) -> str:
    if one is None:
        return form.DASH
    if one.low is None or one.high is None:
        return one.method.removeprefix("undefined: ") or form.DASH
    return form.value_with_interval(float(one.value), float(one.low), float(one.high))
