"""The entry of a run task in `metrics.json`: counts, reasons, and every metric as a whole and by group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpcbench.evaluation.mistakes import MISTAKES
from hpcbench.evaluation.score_tables import (
    FIELD,
    Row,
    Scored,
    reason_of,
    table,
)
from hpcbench.experiment.counts import Counts
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.experiment.view.scores import META, fields_of, rows_of, wrong
from hpcbench.schema.records import ANSWERED
from hpcbench.scorer.one import takes_measurement

EXAMPLES = 5
"""Kinds of errors, reasons and faults that the metrics file describes."""

MOST_GROUPS = 200
"""Most groups of a level; for a level with more, only their number is written."""


def tabulate(scored: Scored, unusable: int = 0) -> Scores:
    """The entry of a run task in `metrics.json`.

    Args:
        scored: its scores.
        unusable: all samples of its dataset that could not be used.
    """
    run_task = scored.run_task
    names = (name for name, one in scored.metrics.items() if not takes_measurement(one))
    leading = next(names, None)
    columns = ["sample", "document", "outcome", "error", "reason", "invalid", "mistake"]
    if leading is not None:
        columns.append(leading)
    frame = rows_of(scored.place.scores, columns)
    outcomes = dict(sorted(frame["outcome"].value_counts().iter_rows()))
    counts = counts_of(scored)
    rows = {row.metric: row for row in table([scored])}
    measured = _measured(scored, rows)
    metrics = {
        name: _entry(rows.get(name), "" if name in measured else scored.reading)
        for name in (*scored.metrics, *scored.figures)
    }
    entry = {
        "ml_task": run_task.ml_task.name,
        "model": run_task.model.name,
        "dataset": run_task.dataset.name,
        "split": run_task.dataset.split,
        "prompt": run_task.prompt.name,
        "on_failed": scored.policy.on_failed,
        "on_invalid": scored.policy.on_invalid,
        **counts.to_json(),
        "answered": counts.responded,
        "documents": _documents(frame),
        "invalid": counts.unreadable,
        "invalid_reasons": _reasons(frame),
        **_wrong(scored, frame, leading),
        "unusable": unusable,
        "outcomes": outcomes,
        "errors": _errors(frame),
        "metrics": metrics,
        **({"measured": measured} if measured else {}),
        "faults": [*refusals(rows.values()), *faults_of(scored)],
        "groups": list(_levels(scored)),
    }
    return Scores.model_validate(entry)


def counts_of(scored: Scored) -> Counts:
    """Counts of the samples of a run task."""
    frame = rows_of(scored.place.scores, ["outcome", "invalid"])
    outcomes = dict(frame["outcome"].value_counts().iter_rows())
    answered = sum(outcomes.get(outcome, 0) for outcome in ANSWERED)
    unasked = int(outcomes.get("missing", 0))
    invalid = int(frame["invalid"].sum())
    return Counts(frame.height, answered, invalid, scored.skipped, unasked)


def faults_of(scored: Scored) -> list[dict[str, Any]]:
    """The most frequent reasons why each metric lost samples; what was not measured is not lost."""
    names = [name for name, metric in scored.metrics.items() if not takes_measurement(metric)]
    frame = rows_of(scored.place.scores, ["sample", *(f"{name}.fault" for name in names)])
    return [fault for name in names for fault in _faults(frame, name)]


def refusals(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """A fault for each value that is outside its metric's bounds."""
    for row in rows:
        if row.refused and not row.faults:
            yield {"metric": row.metric, "message": row.refused, "count": row.ok, "sample": None}


def levels_of(scored: Scored) -> list[tuple[str, ...]]:
    """Default groupings of a run task: each column of `group_by`, and all together."""
    columns = scored.run_task.dataset.group_by
    levels: list[tuple[str, ...]] = [(column,) for column in columns]
    if len(columns) > 1:
        levels.append(tuple(columns))
    if any(hasattr(metric, "score_fields") for metric in scored.metrics.values()):
        levels.append((FIELD,))
    return levels


def _levels(scored: Scored) -> Iterator[dict[str, Any]]:
    for level in levels_of(scored):
        count = _groups(scored, level)
        fields: dict[str, Any] = {"by": list(level), "groups": count}
        if count > MOST_GROUPS:
            yield {**fields, "rows": []}
            continue
        rows = table([scored], level)
        yield {**fields, "rows": [_group(row) for row in rows]}


def _groups(scored: Scored, level: Sequence[str]) -> int:
    if level == (FIELD,):
        return int(fields_of(scored.place)[FIELD].n_unique())
    columns = [META + name for name in level]
    return int(rows_of(scored.place.scores, columns).n_unique())


def _group(row: Row) -> dict[str, Any]:
    """A row without the fields that the run task's own entry has."""
    whole = row.to_json()
    for name in ("signature", "higher_is_better", "weight", "unit"):
        whole.pop(name, None)
    whole["by"].pop("run_task", None)
    return whole


def _entry(row: Row | None, reading: str) -> dict[str, Any] | None:
    """A metric over the whole run task; None when no sample is scored."""
    if row is None or row.value is None:
        return None
    fields = {
        "value": row.value,
        "low": row.low,
        "high": row.high,
        "level": 0.95 if row.low is not None or row.documents else None,
        "n": row.n,
        "clusters": row.documents,
        "method": row.method,
        "average": row.average,
        "signature": row.signature,
        "reading": reading,
        "higher_is_better": row.higher_is_better,
        "invalid": row.invalid,
        "faults": row.faults,
    }
    return {**fields, "value_if": None if row.value_if is None else dict(row.value_if)}


def _measured(scored: Scored, rows: Mapping[str, Row]) -> dict[str, dict[str, Any]]:
    """Facts in `metrics.json` about resource metrics beside their values."""
    metrics = {name: one for name, one in scored.metrics.items() if takes_measurement(one)}
    metrics |= {name: one.metric for name, one in scored.figures.items()}
    found = {}
    for name, metric in metrics.items():
        row = rows.get(name)
        found[name] = {
            "unit": metric.unit if row is None else row.unit,
            "basis": metric.basis,
            "higher_is_better": metric.higher_is_better,
            "why": "no sample was asked"
            if row is None
            else row.method
            if row.value is None
            else "",
            "without": 0 if row is None else row.without,
            "reason": reason_of(rows_of(scored.place.scores, [f"{name}.fault"]).to_series())
            if row is not None and row.without
            else "",
        }
    return found


def _documents(frame: Any) -> int:
    """Documents with an answer."""
    return int(frame.filter(frame["outcome"].is_in(list(ANSWERED)))["document"].n_unique())


def _errors(frame: Any) -> list[dict[str, Any]]:
    """The most frequent reasons for samples without an answer, with their counts and one sample."""
    import polars

    asked = ~polars.col("outcome").is_in([*ANSWERED, "missing"])
    lost = frame.filter(asked).with_columns(polars.col("error").fill_null("no reason given"))
    return [
        {"outcome": outcome, "message": message, "count": count, "sample": sample}
        for outcome, message, count, sample in _commonest(lost, ["outcome", "error"])
    ]


def _reasons(frame: Any) -> list[dict[str, Any]]:
    """The most frequent reasons why an answer has no value."""
    import polars

    unread = frame.filter("invalid").with_columns(polars.col("reason").fill_null("no reason given"))
    return [
        {"reason": reason, "count": count, "sample": sample}
        for reason, count, sample in _commonest(unread, ["reason"])
    ]


def _wrong(scored: Scored, frame: Any, leading: str | None) -> dict[str, Any]:
    """Number of wrong samples by the first metric, and of each kind of mistake in them."""
    if "mistake" not in frame.columns:
        return {}
    if leading is None:
        is_wrong = wrong()
    else:
        metric = scored.metrics[leading]
        up = bool(metric.higher_is_better)
        best = metric.bounds[1] if up else metric.bounds[0]
        is_wrong = wrong(frame[leading], best, higher_is_better=up)
    found = frame.filter(is_wrong)
    kinds = dict(found["mistake"].drop_nulls().value_counts().iter_rows())
    return {
        "wrong": found.height,
        "mistakes": {kind: kinds[kind] for kind in MISTAKES if kind in kinds},
    }


def _faults(frame: Any, metric: str) -> list[dict[str, Any]]:
    """The most frequent reasons why a metric lost a sample."""
    column = f"{metric}.fault"
    return [
        {"metric": metric, "message": message, "count": count, "sample": sample}
        for message, count, sample in _commonest(
            frame.filter(frame[column].is_not_null()), [column]
        )
    ]


def _commonest(frame: Any, by: Sequence[str]) -> list[tuple[Any, ...]]:
    import polars

    counted = frame.group_by(by).agg(
        polars.len().cast(polars.Int64).alias("#count"),
        polars.col("sample").first().alias("#sample"),
    )
    order = counted.sort(["#count", *by], descending=[True, *(False for _ in by)])
    found: list[tuple[Any, ...]] = order.head(EXAMPLES).rows()
    return found
