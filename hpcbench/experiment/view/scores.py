"""Scores files, one row a sample: their columns, the keys of their inputs, and their rows.

    FOLDER/RUN_TASK.parquet         a row a sample: how it was read, and each metric's result
    FOLDER/RUN_TASK.fields.parquet  a row a field of a sample, where a metric scores fields

`evaluation/scores.py` writes them. Their metadata identifies their inputs: a key for the samples and a key
for each metric.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hpcbench.errors import DamagedFile, first_line
from hpcbench.experiment.view.answer import MISSING
from hpcbench.schema.names import id_of
from hpcbench.schema.records import ANSWERED

VERSION = 3
"""Version of the scores files."""

KEYS = "hpcbench.keys"
"""Entry of a Parquet file's metadata: keys of its inputs, as JSON; the same in both files of a run task."""

SMALL = 256 << 10
"""Largest scores file, in bytes, that is read whole: opening it takes as long as reading all its columns."""

HELD = 8
"""Small files kept in memory: most readers of a file make about three queries."""

META = "meta."
"""Prefix of the columns with a sample's metadata."""

TEXTS = (
    "sample", "document", "outcome", "prompt", "error", "answer", "prediction", "reason", "form",
    "repairs", "faults", "mistake", "exit",
)  # fmt: skip
"""Text columns of every sample."""

OF_SAMPLES = (
    *TEXTS, "images", "truncated", "invalid", "e2e_ms", "completion_tokens", "agent_turns",
    "agent_calls", "references",
)  # fmt: skip
"""Columns of every sample, besides metadata and metrics."""

ENDINGS = (".numerator", ".denominator", ".counts", ".fault")
"""Suffixes of a metric's columns besides the value itself."""

OF_FIELDS = ("sample", "document", "metric", "field", "numerator", "denominator")
"""Columns of the file of fields."""


@dataclass(frozen=True, slots=True)
class ScoresFiles:
    """Files with the scores of a run task."""

    folder: Path
    """The folder."""
    name: str
    """The run task's name."""

    @property
    def scores(self) -> Path:
        """The file with a row a sample."""
        return self.folder / f"{id_of(self.name)}.parquet"

    @property
    def fields(self) -> Path:
        """The file with a row a field of a sample; missing where no metric scores fields."""
        return self.folder / f"{id_of(self.name)}.fields.parquet"


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of the inputs of scores."""

    samples: str
    """Key of answers, dataset and reading of the answers."""
    columns: tuple[str, ...]
    """Names of the kept metadata."""
    metrics: Mapping[str, str]
    """Metric → key."""
    rows: int = 0
    """Number of samples."""
    fields: int = 0
    """Rows of the file of fields; 0: no such file."""
    reading: str = ""
    """Parser and version, as `reading_of`; empty: version 1, as in files that do not name it."""
    signatures: Mapping[str, str] = field(default_factory=dict)
    """Metric → its signature; empty in files of earlier versions of hpcbench."""

    def to_json(self) -> dict[str, Any]:
        """As plain data, as written."""
        return {
            "version": VERSION,
            "samples": self.samples,
            "columns": list(self.columns),
            "metrics": dict(self.metrics),
            "rows": self.rows,
            "fields": self.fields,
            "reading": self.reading,
            "signatures": dict(self.signatures),
        }


def metric_of(column: str, metrics: Sequence[str]) -> str | None:
    """The metric of a column; None: the column belongs to no metric."""
    for metric in metrics:
        if column == metric or column in {metric + ending for ending in ENDINGS}:
            return metric
    return None


def read_keys(place: ScoresFiles) -> Keys | None:
    """Keys of the scores files' inputs; None: there are no files, or they do not belong together."""
    import polars

    try:
        text = polars.read_parquet_metadata(place.scores)[KEYS]
        data = json.loads(text)
        if data["version"] != VERSION:
            return None
        if data["fields"] and polars.read_parquet_metadata(place.fields)[KEYS] != text:
            return None
        return Keys(
            data["samples"], tuple(data["columns"]), data["metrics"], data["rows"], data["fields"],
            data.get("reading", ""), data.get("signatures", {}),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, polars.exceptions.PolarsError):
        return None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the scores file that is damaged."""
    import polars

    try:
        yield
    except polars.exceptions.PolarsError as error:
        remedy = "`hpcbench score EXPERIMENT` writes it again"
        raise DamagedFile(path, first_line(error), remedy) from None


def _checked(frame: Any) -> Any:
    """A frame of a scores file, with the columns of every sample and their types.

    Raises:
        PolarsError: a column is missing, or of another type.
    """
    import polars

    schema, text = frame.collect_schema(), polars.String
    needed = {**dict.fromkeys(("sample", "document", "outcome"), text), "invalid": polars.Boolean}
    known = {**dict.fromkeys(TEXTS, text), "references": polars.List(text)}
    for name, kind in {**known, **needed}.items():
        if schema.get(name, None if name in needed else kind) != kind:
            raise polars.exceptions.SchemaError(f"column {name}: {schema.get(name)}, not {kind}")
    for name, kind in schema.items():
        if f"{name}.fault" in schema and not kind.is_numeric():
            raise polars.exceptions.SchemaError(f"column {name}: {kind}, not a number")
    return frame


def scan(path: Path) -> Any:
    """A scores file as a lazy frame of polars.

    Raises:
        OSError, DamagedFile: it cannot be read; in a large file, `collect` finds damaged values.
    """
    import polars

    whole = held(path)
    if whole is not None:
        return whole.lazy()
    with reading(path):
        return _checked(polars.scan_parquet(path, glob=False))


def held(path: Path) -> Any:
    """A small scores file as a frame in memory; None: it is large. A query takes longer than its columns.

    Raises:
        OSError, DamagedFile: it cannot be read.
    """
    stat = path.stat()
    if stat.st_size > SMALL:
        return None
    with reading(path):
        return _whole(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns))


@lru_cache(maxsize=HELD)
def _whole(path: Path, _stamp: tuple[int, int, int]) -> Any:
    import polars

    return _checked(polars.read_parquet(path, glob=False))


def rows_of(path: Path, columns: Sequence[str], only: Sequence[str] | None = None) -> Any:
    """The given columns of a scores file, as far as present; for all samples, or for some by their ids."""
    import polars

    if only is None and (whole := held(path)) is not None:
        there = frozenset(whole.columns)
        return polars.DataFrame([whole.get_column(name) for name in columns if name in there])
    rows = scan(path)
    known = set(rows.collect_schema().names())
    if only is not None:
        rows = rows.filter(polars.col("sample").is_in(list(only)))
    with reading(path):
        return rows.select([name for name in columns if name in known]).collect()


@dataclass(frozen=True, slots=True)
class Shape:
    """Size and columns of a scores file."""

    rows: int
    """Samples."""
    columns: Mapping[str, Any]
    """Column → its polars type."""


def shape_of(path: Path) -> Shape | None:
    """Rows and columns of a scores file; None: the file is missing or damaged."""
    import polars

    try:
        if (whole := held(path)) is not None:
            return Shape(whole.height, dict(whole.schema))
        rows = scan(path)
        with reading(path):
            count = int(rows.select(polars.len()).collect().item())
        return Shape(count, dict(rows.collect_schema()))
    except (OSError, DamagedFile):
        return None


def wrong(values: Any = None, best: float | None = None, *, higher_is_better: bool = True) -> Any:
    """Wrong samples: below the best value of a metric, unreadable, or failed; none without a request.

    Args:
        values: the metric's column, a polars series; None: only unreadable and failed samples are wrong.
        best: its best possible value; None: there is no limit.
        higher_is_better: whether a higher value is better.

    Returns:
        A polars expression over the columns `outcome`, `invalid` and the metric's, with no missing value.
    """
    import polars

    col = polars.col
    failed = ~col("outcome").is_in([*ANSWERED, MISSING])
    found = failed | col("invalid").fill_null(value=False)
    if values is not None:
        if best is None:  # without a limit, the greatest value counts as right
            best = max(1.0, float(values.max() or 0.0)) if higher_is_better else 0.0
        below = col(values.name) < best if higher_is_better else col(values.name) > best
        found = found | ((col("outcome") != MISSING) & below.fill_null(value=False))
    return found.fill_null(value=False)


def frames_of(path: Path, shape: Shape, size: int) -> Iterator[Any]:
    """A scores file as frames of `size` rows, in the dataset's order."""
    import polars

    rows = polars.scan_parquet(path, glob=False)
    for start in range(0, shape.rows, size):
        with reading(path):
            frame = rows.slice(start, size).collect()
        yield frame


def fields_of(place: ScoresFiles, samples: Sequence[str] | None = None, most: int = 0) -> Any:
    """Rows of a run task's fields, as a frame of `OF_FIELDS`; no rows where no metric scores fields.

    Args:
        place: place of its scores.
        samples: ids of the samples to read; None: all.
        most: most rows of each of these samples.
    """
    import polars

    if not place.fields.exists():
        texts, numbers = OF_FIELDS[:4], OF_FIELDS[4:]
        return polars.DataFrame(
            schema=dict.fromkeys(texts, polars.String) | dict.fromkeys(numbers, polars.Float64)
        )
    with reading(place.fields):
        if samples is None:
            return polars.read_parquet(place.fields, glob=False)
        rows = polars.scan_parquet(place.fields, glob=False)
        wanted = rows.filter(polars.col("sample").is_in(list(samples)))
        return wanted.group_by("sample", maintain_order=True).head(most).collect()
