"""Exports of lists: the rows of a list, with its filter and order, as CSV, JSON or Parquet.

Rows pass in batches, so memory does not grow with the list. CSV and JSON are streamed; a Parquet file has its
index at its end, so the whole file is first written to an unnamed temporary file.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fastapi.responses import StreamingResponse

from hpcbench.comparison.flips import SampleChanges
from hpcbench.experiment.view.scores import META
from hpcbench.interchange.result_tables import Table
from hpcbench.interchange.table_files import pieces, write
from hpcbench.portal.faults import missing
from hpcbench.portal.flip_pages import flip_rows
from hpcbench.portal.index import ScoreKey
from hpcbench.portal.models.base import Page
from hpcbench.portal.models.comparisons import Comparison
from hpcbench.portal.models.experiments import ExperimentRow, RunTaskRow, SampleCounts
from hpcbench.portal.sample_table import SampleTable
from hpcbench.portal.samples import OrderedSamples, SampleFilter, SampleOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray

Form = Literal["csv", "json", "parquet"]

BATCH = 5_000
"""Rows in memory at a time."""

PIECE = 256 << 10
"""Bytes sent at a time."""

LONGEST = 250
"""Most pages that an export requests from the index: 50,000 rows."""

_KINDS: Mapping[Form, str] = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}

RowT = TypeVar("RowT")


def sent(table: Table, form: Form, name: str) -> StreamingResponse:
    """A table as a response that a browser saves.

    Args:
        table: the rows.
        form: the file format.
        name: name of the file without its suffix; characters that a file system may refuse are replaced.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:120] or "export"
    body = _parquet(table) if form == "parquet" else _cut(pieces(table, form))
    headers = {"Content-Disposition": f'attachment; filename="{safe}.{form}"'}
    return StreamingResponse(body, media_type=_KINDS[form], headers=headers)


def _cut(parts: Iterator[bytes]) -> Iterator[bytes]:
    for part in parts:
        for at in range(0, len(part), PIECE):
            yield part[at : at + PIECE]


def _parquet(table: Table) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory(prefix="hpcbench-export-") as folder:
        path = Path(folder) / "rows.parquet"
        write(table, "parquet", path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        path.unlink()
    try:
        while part := os.read(descriptor, PIECE):
            yield part
    finally:
        os.close(descriptor)


# --- samples --------------------------------------------------------------------------------------------


def samples(table: SampleTable, chosen: SampleFilter, ordered: SampleOrder) -> Table:
    """Samples of a run task as a table: uncut texts, metrics, times, metadata, the user's marks.

    Raises:
        PortalFault: the column or metric does not exist.
        NotYet: a part of the table is not computed yet.
    """
    import polars

    found = OrderedSamples(table, chosen, ordered)
    notes = table.cache.flags.of(table.experiment.id, table.name)
    text, number = polars.String, polars.Float64
    metas = {META + name: text for name in table.metadata}
    columns: dict[str, Any] = {
        "place": polars.UInt32, "sample": text, "document": text, "outcome": text, "reason": text,
        **dict.fromkeys(table.metrics, number), "answer": text, "prediction": text,
        "references": polars.List(text), "error": text, **metas,
        "latency": number, "output_tokens": polars.Int64,
    }  # fmt: skip
    schema = {**columns, "note": text}

    def frames() -> Iterator[Any]:
        for begin in range(0, found.total, BATCH):
            places = found.places(begin, begin + BATCH)
            rows = table.rows_at(places, list(columns), whole=True)
            cells: dict[str, Any] = {
                name: _series(name, [row.get(name) for row in rows], kind)
                for name, kind in columns.items()
                if name != "place"
            }
            frame = polars.DataFrame({"place": polars.Series(places, dtype=polars.UInt32), **cells})
            marks = polars.Series("note", [notes.get(row["sample"]) for row in rows], dtype=text)
            yield frame.hstack([marks]).select(list(schema))

    return Table(schema, frames, found.total)


def _series(name: str, values: Sequence[Any], kind: Any) -> Any:
    """A column; an unpaired surrogate is written as its escape."""
    import polars

    try:
        return polars.Series(name, values, dtype=kind)
    except UnicodeEncodeError:
        whole = [
            one.encode("utf-8", "backslashreplace").decode() if isinstance(one, str) else one
            for one in values
        ]
        return polars.Series(name, whole, dtype=kind)


# --- lists of the index ---------------------------------------------------------------------------------


def listed(
    ask: Callable[[str | None], Page[RowT]], flat: Callable[[RowT], Mapping[str, Any]]
) -> Table:
    """A list of the index as a table.

    Args:
        ask: returns the page after a cursor.
        flat: returns a row as cells.
    """
    first = ask(None)
    names = list(dict.fromkeys(name for row in first.items for name in flat(row)))

    def frames() -> Iterator[Any]:
        page, count = first, 1
        while True:
            yield _framed([flat(row) for row in page.items], schema)
            if page.next is None or count >= LONGEST:
                return
            page, count = ask(page.next), count + 1

    schema = _schema(names, [flat(row) for row in first.items])
    return Table(schema, frames)


def _schema(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Types of columns by name: numbers if the column is in `_NUMBERS` or the first page has only numbers."""
    import polars

    found = {}
    for name in names:
        known = [row[name] for row in rows if row.get(name) is not None]
        numbers = known and all(isinstance(one, (int, float)) for one in known)
        found[name] = polars.Float64 if numbers or name in _NUMBERS else polars.String
    return found


_NUMBERS = frozenset((
    "created", "updated", "run_tasks", "samples", "answered", "rate", "score", "score_low", "score_high",
    "gpu_hours", "failures", "invalid", *SampleCounts.model_fields, "latency_p50", "latency_p95",
    "tokens_per_second", "peak_memory_gb", "baseline_value", "candidate_value", "difference", "low", "high",
    "p", "n", "documents", "won", "lost", "tied", "both_right", "both_partly", "both_wrong",
    "baseline_score", "candidate_score", "baseline_place", "candidate_place",
))  # fmt: skip
"""Columns that are numbers even if no row has a value."""


def _framed(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> Any:
    import polars

    return polars.DataFrame(
        [
            polars.Series(name, [_cell(row.get(name), kind) for row in rows], dtype=kind)
            for name, kind in schema.items()
        ]
    )


def _cell(value: Any, kind: Any) -> Any:
    import polars

    if value is None:
        return None
    if kind == polars.String:
        return str(value).encode("utf-8", "backslashreplace").decode()
    return float(value) if isinstance(value, (int, float)) else None


def _counts(counts: SampleCounts | None) -> dict[str, Any]:
    names = SampleCounts.model_fields
    return dict.fromkeys(names) if counts is None else counts.model_dump()


def experiment_cells(row: ExperimentRow, columns: Sequence[ScoreKey]) -> dict[str, Any]:
    """An experiment's row as cells, and one `DATASET:METRIC` for each of the columns."""
    score = row.score
    known = {(one.dataset, one.metric): one.value for one in row.scores}
    return {
        "id": row.id, "plan": row.plan, "state": row.state, "created": row.created, "updated": row.updated,
        "owner": row.owner, "models": ", ".join(row.models), "datasets": ", ".join(row.datasets),
        "run_tasks": row.run_tasks, "samples": row.samples, "answered": row.answered,
        **_counts(row.counts), "rate": row.rate,
        "metric": score.metric if score else None, "score": score.value if score else None,
        "score_low": score.low if score else None, "score_high": score.high if score else None,
        "gpu_hours": row.gpu_hours, "failures": row.failures, "verdict": row.verdict,
        "baselines": ", ".join(row.baselines),
        **{":".join(column): known.get(column) for column in columns},
    }  # fmt: skip


def run_task_cells(row: RunTaskRow) -> dict[str, Any]:
    """A run task's row as cells: its leading metric with the interval, and all metrics as JSON."""
    leading = row.scores[0] if row.scores else None
    return {
        "experiment": row.experiment, "name": row.name, "ml_task": row.ml_task, "model": row.model,
        "dataset": row.dataset, "prompt": row.prompt, "state": row.state, "reason": row.reason,
        "samples": row.samples, "answered": row.answered, "rate": row.rate, **_counts(row.counts),
        "invalid": row.invalid, "metric": leading.metric if leading else None,
        "score": leading.value if leading else None, "score_low": leading.low if leading else None,
        "score_high": leading.high if leading else None, "latency_p50": row.latency_p50,
        "latency_p95": row.latency_p95, "tokens_per_second": row.tokens_per_second,
        "speed_valid": row.speed_valid, "peak_memory_gb": row.peak_memory_gb,
        "scores": json.dumps({one.metric: one.value for one in row.scores}, ensure_ascii=False),
    }  # fmt: skip


# --- comparison -----------------------------------------------------------------------------------------


def comparison(result: Comparison) -> Table:
    """Metrics of all candidates as a table."""
    rows = [
        {
            "baseline": result.baseline.run, "candidate": candidate.side.run,
            "baseline_task": one.baseline, "candidate_task": one.candidate,
            "metric": one.metric, "signature": one.signature,
            "baseline_value": one.values[0], "candidate_value": one.values[1],
            "difference": one.difference, "low": one.low, "high": one.high, "p": one.p,
            "verdict": one.verdict, "n": one.n, "documents": one.documents, "won": one.won,
            "lost": one.lost, "tied": one.tied, "both_right": one.both_right,
            "both_partly": one.both_partly, "both_wrong": one.both_wrong,
        }
        for candidate in result.candidates
        for one in candidate.metrics
    ]  # fmt: skip
    if not rows:
        raise missing("the runs have nothing to compare")
    schema = _schema(list(rows[0]), rows)
    return Table(schema, lambda: iter([_framed(rows, schema)]), len(rows))


def flips(changes: SampleChanges, chosen: NDArray[Any]) -> Table:
    """Samples of a comparison by their numbers, as a table."""
    names = (
        "change", "sample", "document", "baseline_score", "candidate_score", "baseline_answer",
        "candidate_answer", "references", "baseline_place", "candidate_place",
    )  # fmt: skip
    schema = _schema(names, [])

    def frames() -> Iterator[Any]:
        for begin in range(0, len(chosen), BATCH):
            rows = [
                {
                    "change": one.change, "sample": one.sample, "document": one.document,
                    "baseline_score": one.scores[0], "candidate_score": one.scores[1],
                    "baseline_answer": one.answers[0], "candidate_answer": one.answers[1],
                    "references": " | ".join(one.references), "baseline_place": one.places[0],
                    "candidate_place": one.places[1],
                }
                for one in flip_rows(changes, chosen[begin : begin + BATCH])
            ]  # fmt: skip
            yield _framed(rows, schema)

    return Table(schema, frames, len(chosen))
