"""Scores files (`experiment/view/scores.py`), kept up to date a column at a time.

A key is a hash of all that determines a column. Same key, no work: only a changed metric is scored, and the
columns of the others are copied from the file. The file of samples is written last and counts
the fields: after a kill at any moment old and new scores can be distinguished, and scores that do not belong
together are computed again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import hpcbench
from hpcbench.evaluation.image_scoring import ImageScorer
from hpcbench.evaluation.scoring import (
    Answered,
    Batch,
    Policy,
    batches,
)
from hpcbench.experiment.view.scores import (
    KEYS,
    META,
    OF_FIELDS,
    OF_SAMPLES,
    TEXTS,
    VERSION,
    Keys,
    ScoresFiles,
    fields_of,
    metric_of,
    read_keys,
    scan,
)
from hpcbench.files.atomic import open_beside, replacing
from hpcbench.parsers import reader, reading_of
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.scorer.isolate import Guard
from hpcbench.scorer.one import is_ours

ROW_GROUP = 25_000
"""Rows that a reader of a few scores has to decode, where a column is a list."""

SPILL = 256 << 20
"""Bytes of scores in memory above which scores move to the disk."""


@dataclass(frozen=True)
class Subject:
    """The answers of a run task to score, from any source."""

    run_task: ResolvedRunTask
    """The run task: how answers are read, and how they count."""
    metrics: Mapping[str, Any]
    """Metrics, by the names of their definitions."""
    answered: Answered
    """Its samples with their answers, always in the same order; each iteration reads them again."""
    source: str = ""
    """Hash of answers and samples; empty: unknown, and no column is ever reused."""
    more_columns: tuple[str, ...] = ()
    """Metadata or fields to keep beside the dataset's `group_by`."""
    images: tuple[ImageScorer, ...] = ()
    """Images in which some of the metrics score."""

    @property
    def policy(self) -> Policy:
        """How samples without a value count."""
        return Policy(self.run_task.task.on_failed, self.run_task.task.on_invalid)


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of an update of scores files."""

    scored: tuple[str, ...]
    """Metrics by which samples are scored again."""
    kept: tuple[str, ...]
    """Metrics whose columns stay."""
    written: bool
    """Whether files are written at all."""
    failed: tuple[str, ...] = ()
    """Metrics that could score nothing in their image, a line each; the next update tries them again."""


def keys_of(subject: Subject) -> Keys:
    """The keys that the scores of a subject will have."""
    run_task = subject.run_task
    ml_task = run_task.ml_task.model_dump(mode="json", exclude=_NOT_READING)
    reading = reading_of(run_task.ml_task)
    made = [VERSION, hpcbench.__version__, subject.source, ml_task, *([reading] if reading else [])]
    samples = _hash(made)
    policy = [subject.policy.on_failed, subject.policy.on_invalid, run_task.task.score_timeout]
    plugins = {definition.name: definition.plugin for definition in run_task.metrics}
    images = {name: one.identity for one in subject.images for name in one.metrics}
    metrics = {
        name: _hash(
            [samples, policy, plugins.get(name), metric.signature]
            + [*_code_of(metric), *images.get(name, ())]
        )
        for name, metric in subject.metrics.items()
    }
    columns = dict.fromkeys((*run_task.dataset.group_by, *subject.more_columns))
    signatures = {name: metric.signature for name, metric in subject.metrics.items()}
    return Keys(samples, tuple(columns), metrics, reading=reading, signatures=signatures)


def _code_of(metric: Any) -> list[str]:
    """Hash of the file with a metric's class; empty for ours, whose signature has a version that we raise.

    The author of a metric corrects it and scores again: the signature seldom changes with it.
    """
    if is_ours(metric):
        return []
    try:
        return [hashlib.sha256(Path(inspect.getfile(type(metric))).read_bytes()).hexdigest()]
    except (OSError, TypeError):  # made by a program, or inside an archive
        return []


def what_is_due(subject: Subject, place: ScoresFiles, other: ScoresFiles | None = None) -> Change:
    """The change that `update` would make."""
    wanted = keys_of(subject)
    old = _usable(subject, place, other)
    return _change(wanted, old, place)


def update(
    subject: Subject, place: ScoresFiles, other: ScoresFiles | None = None, *, again: bool = False
) -> Change:
    """Bring scores files up to date.

    Args:
        subject: the answers to score.
        place: place of the scores.
        other: scores to copy columns from, where `place` has none.
        again: score by every metric, even where columns exist.

    Raises:
        OSError: the disk is full, or the folder cannot be written; the old files are unchanged.
    """
    wanted = keys_of(subject)
    old = None if again else _usable(subject, place, other)
    change = _change(wanted, old, place)
    if not change.written:
        return change
    place.folder.mkdir(parents=True, exist_ok=True)
    todo = {name: subject.metrics[name] for name in change.scored}
    guard = Guard(subject.run_task.task.score_timeout)
    images = [one.only(change.scored) for one in subject.images]
    images = [one for one in images if one.wanted]
    found = batches(
        subject.answered,
        reader(subject.run_task.ml_task),
        todo,
        subject.policy,
        wanted.columns,
        guard,
        images,
    )
    with _FrameBuffer(place.scores) as rows, _FrameBuffer(place.fields) as fields:
        at = 0
        if old is not None and change.kept:
            fields.add(_old_fields(old, change.kept))
        for batch in found:
            frame = _frame(batch, subject.metrics, todo)
            if old is not None and change.kept:
                frame = _beside(frame, old, change.kept, at, tuple(subject.metrics), wanted.columns)
            rows.add(frame)
            fields.add(_fields_frame(batch))
            at += batch.size
        failed = {name: why for one in images for name, why in one.failed.items()}
        metrics = {name: key for name, key in wanted.metrics.items() if name not in failed}
        keys = replace(wanted, metrics=metrics, rows=at, fields=fields.height)
        _write(place, keys, rows, fields)
    return replace(change, failed=tuple(failed.values()))


_NOT_READING = {
    "name", "version", "description", "notes", "metadata", "metrics", "default_metrics", "module", "prompt",
    "prompts", "engines", "reports", "iterator", "image", "required_packages", "sample_fields",
    "schema_version",
}  # fmt: skip
"""Fields of an ML task that do not affect how an answer is read."""


@dataclass(frozen=True, slots=True)
class _Old:
    """Scores files that belong together."""

    place: ScoresFiles
    keys: Keys


def _usable(subject: Subject, place: ScoresFiles, other: ScoresFiles | None) -> _Old | None:
    if not subject.source:
        return None
    for one in (place, other):
        keys = read_keys(one) if one is not None else None
        if one is not None and keys is not None:
            return _Old(one, keys)
    return None


def _is_whole(old: _Old) -> bool:
    """Whether a scores file has all columns of samples: those of earlier versions lack some."""
    known = scan(old.place.scores).collect_schema().names() if old.keys.rows else OF_SAMPLES
    return set(OF_SAMPLES) <= set(known)


def _change(wanted: Keys, old: _Old | None, place: ScoresFiles) -> Change:
    kept = tuple(
        name
        for name, key in wanted.metrics.items()
        if old is not None and old.keys.metrics.get(name) == key
    )
    scored = tuple(name for name in wanted.metrics if name not in kept)
    there = old is not None and old.place == place and set(wanted.columns) <= set(old.keys.columns)
    there = there and old is not None and _is_whole(old)
    same = there and old is not None and set(old.keys.metrics) == set(wanted.metrics) and not scored
    return Change(scored, kept, not same)


def _frame(batch: Batch, metrics: Mapping[str, Any], todo: Mapping[str, Any]) -> Any:
    """A batch as a polars frame; columns of metrics in the order of the plan."""
    import polars

    columns = [
        _references(values) if name == "references" else _series(name, values)
        for name, values in batch.samples.items()
    ]
    for name in metrics:
        if name in todo:
            columns += [_series(key, cells) for key, cells in batch.metrics[name].items()]
    return polars.DataFrame(columns)


def _series(name: str, values: Sequence[Any]) -> Any:
    import polars

    if name in ("truncated", "invalid"):
        return polars.Series(name, values, dtype=polars.Boolean)
    if name == "images":
        return polars.Series(name, values, dtype=polars.Int32)
    if name in ("completion_tokens", "agent_turns", "agent_calls"):
        return polars.Series(name, values, dtype=polars.Int64)
    if name in TEXTS or name.startswith(META) or name.endswith((".counts", ".fault")):
        return _texts(name, values)
    return polars.Series(name, values, dtype=polars.Float64)


def _texts(name: str, values: Sequence[str | None]) -> Any:
    """A column of text. Half a surrogate pair, which engines send now and then, is written as an escape."""
    import polars

    try:
        return polars.Series(name, values, dtype=polars.String)
    except UnicodeEncodeError:
        whole = [one and one.encode("utf-8", "backslashreplace").decode() for one in values]
        return polars.Series(name, whole, dtype=polars.String)


def _references(values: Sequence[Sequence[str | None]]) -> Any:
    """Lists of texts. Built from a flat column: polars takes a hundred times as long for Python's lists."""
    import polars

    flat = _texts("references", [one for some in values for one in some])
    if all(len(some) == 1 for some in values):
        return polars.select(polars.concat_list(flat)).to_series().alias("references")
    rows = polars.Series("row", [row for row, some in enumerate(values) for _ in some])
    listed = polars.DataFrame([rows, flat]).group_by("row", maintain_order=True).agg("references")
    every = polars.DataFrame({"row": range(len(values))}, schema={"row": rows.dtype})
    return every.join(listed, on="row", how="left", maintain_order="left")["references"]


def _fields_frame(batch: Batch) -> Any:
    import polars

    cells = batch.fields
    return polars.DataFrame(
        [_texts(name, cells[name]) for name in OF_FIELDS[:4]]
        + [polars.Series(name, cells[name], dtype=polars.Float64) for name in OF_FIELDS[4:]]
    )


def _old_fields(old: _Old, kept: Sequence[str]) -> Any:
    import polars

    frame = fields_of(old.place)
    return frame.filter(polars.col("metric").is_in(list(kept)))


def _beside(
    frame: Any,
    old: _Old,
    kept: Sequence[str],
    at: int,
    order: Sequence[str],
    columns: Sequence[str],
) -> Any:
    """A batch with the kept columns of metrics, copied from the rows of the old file."""
    import polars

    rows = scan(old.place.scores)
    names = [name for name in rows.collect_schema().names() if metric_of(name, kept)]
    whole = polars.concat(
        [frame, rows.select(names).slice(at, frame.height).collect()], how="horizontal"
    )
    first = [*OF_SAMPLES, *(META + one for one in columns)]
    found = [name for metric in order for name in whole.columns if metric_of(name, (metric,))]
    return whole.select([*first, *found])


def _write(place: ScoresFiles, keys: Keys, rows: _FrameBuffer, fields: _FrameBuffer) -> None:
    """Write in this order: a reader then detects the files that a kill leaves between two writes."""
    metadata = {KEYS: json.dumps(keys.to_json(), sort_keys=True, ensure_ascii=False)}
    if keys.fields:
        fields.write(metadata)
    rows.write(metadata)
    if not keys.fields:
        place.fields.unlink(missing_ok=True)


@dataclass
class _FrameBuffer:
    """Frames to be written to a file: in memory, and on the disk beside the file when there are many."""

    path: Path
    """The file."""
    frames: list[Any] = field(default_factory=list)
    size: int = 0
    height: int = 0
    """Rows so far."""
    parts: list[Path] = field(default_factory=list)
    """Files of frames, named as incomplete files: after a kill `hpcbench gc` finds them."""

    def add(self, frame: Any) -> None:
        """Add rows."""
        if not frame.height and self.frames:
            return
        self.frames.append(frame)
        self.height += frame.height
        self.size += frame.estimated_size()
        if self.size > SPILL:
            self._spill()

    def _spill(self) -> None:
        import polars

        descriptor, path = open_beside(self.path)
        os.close(descriptor)
        self.parts.append(path)
        polars.concat(self.frames).write_parquet(path, compression="lz4")
        self.frames, self.size = [], 0

    def write(self, metadata: dict[str, str]) -> None:
        """Write the complete file."""
        import polars

        with replacing(self.path) as temporary:
            if not self.parts:
                frame = polars.concat(self.frames) if self.frames else polars.DataFrame()
                frame.write_parquet(temporary, metadata=metadata, row_group_size=ROW_GROUP)
                return
            if self.frames:
                self._spill()
            polars.scan_parquet(self.parts, glob=False).sink_parquet(
                temporary, metadata=metadata, row_group_size=ROW_GROUP
            )

    def __enter__(self) -> _FrameBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        for path in self.parts:
            path.unlink(missing_ok=True)


def _hash(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
