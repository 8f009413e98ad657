"""An experiment as parts of rows, for a database that has some of them already.

A part has a name and a stamp: equal stamps mean equal rows. Parts are shards (`answers/RUN_TASK/00003`),
blocks of a run task's samples in the dataset's order (`scores/RUN_TASK/5000`) and blocks of numbered rows
(`metrics/0`, `events/20000`). A batch is some parts of one kind that one transaction sends.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Table

from hpcbench.database.tables import ANSWERS, EVENTS, METRICS, SAMPLES, SCORES, TIMINGS
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.outcome import ended, outcome
from hpcbench.experiment.view.answers import answer_frames, shard_sizes
from hpcbench.experiment.view.metrics_json import scores as sound_scores
from hpcbench.experiment.view.scores import Keys, ScoresFiles, frames_of, read_keys, shape_of
from hpcbench.files.hashing import hash_file
from hpcbench.interchange.columns import META, What
from hpcbench.interchange.measurements import event_rows
from hpcbench.interchange.result_tables import BATCH, Wanted, open_table
from hpcbench.schema.plan import ResolvedRunTask

ROWS, BYTES = 20_000, 16 << 20
"""Most rows, and about the most bytes of answers, that one transaction sends."""

SCORED = 5_000
"""Samples in a block of scores; each has a row for each metric."""

ALL_LATER = 1 << 62
"""End of a range that has no end."""


class Part(NamedTuple):
    """A part of the rows of an experiment."""

    name: str
    """Its name, unique in the experiment."""
    stamp: str | None
    """Stamp of its source; None: the database has it, and the experiment no longer."""
    values: range
    """Its values in the batch's column."""
    rows: int
    """Its rows of all tables."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Parts that one transaction sends."""

    parts: Sequence[Part]
    """The parts."""
    run_task: str | None
    """Run task of all rows; None: of the whole experiment."""
    column: str
    """Column that tells the parts apart: `shard`, `place` or `number`."""
    tables: Sequence[Table]
    """Tables with rows of these parts. The first one has an index on the column; the others have a row only
    where it has one."""
    frames: Mapping[Table, Any]
    """Table → its rows: a polars frame with the columns of the table, lists and objects as JSON text."""


def batches(experiment: Experiment, known: Mapping[str, str]) -> Iterator[Batch]:
    """The parts of an experiment that a database lacks, or has with other stamps.

    Args:
        experiment: the experiment; it may run.
        known: part → stamp, as the database has them.
    """
    for run_task in experiment.resolved.run_tasks:
        yield from _answers(experiment, run_task, known)
        yield from _scores(experiment, run_task, known)
    yield from _metrics(experiment, known)
    yield from _events(experiment, known)


# --- answers -------------------------------------------------------------------------------------------


def _answers(
    experiment: Experiment, run_task: ResolvedRunTask, known: Mapping[str, str]
) -> Iterator[Batch]:
    name = run_task.name
    # Sizes before answers: what a worker adds in between has another size at the next sync.
    sizes = shard_sizes(experiment, name)
    some: list[Part] = []
    rows = size = 0
    for shard in experiment.work.shards_of((name,)):
        if shard.index not in sizes:
            continue
        found = sizes[shard.index]
        part = f"answers/{name}/{shard.index:05d}"
        stamp = f"{found.attempt}:{found.bytes}"
        if known.get(part) == stamp:
            continue
        some.append(Part(part, stamp, range(shard.index, shard.index + 1), 0))
        rows += shard.stop - shard.start
        size += found.bytes
        if rows >= ROWS or size >= BYTES:
            yield _answer_batch(experiment, name, some)
            some, rows, size = [], 0, 0
    if some:
        yield _answer_batch(experiment, name, some)


def _answer_batch(experiment: Experiment, run_task: str, parts: Sequence[Part]) -> Batch:
    import polars

    col = polars.col
    shards = {part.values.start for part in parts}
    frames = list(answer_frames(experiment, run_task, shards=shards))
    if not frames:
        return Batch(parts, run_task, "shard", (ANSWERS, TIMINGS), {})
    whole = polars.concat(frames).with_columns(
        col("image_sha256").list.eval('"' + polars.element() + '"').list.join(",")
    )
    whole = whole.with_columns(
        ("[" + col("image_sha256").fill_null("") + "]").alias("image_sha256")
    )
    timed = whole.filter(col("tries") > 0)
    counts = Counter([*whole["shard"], *timed["shard"]])
    return Batch(
        [part._replace(rows=counts[part.values.start]) for part in parts],
        run_task,
        "shard",
        (ANSWERS, TIMINGS),
        {
            ANSWERS: _shaped(ANSWERS, experiment, whole, run_task),
            TIMINGS: _shaped(TIMINGS, experiment, timed, run_task),
        },
    )


# --- samples and scores --------------------------------------------------------------------------------


def _scores(
    experiment: Experiment, run_task: ResolvedRunTask, known: Mapping[str, str]
) -> Iterator[Batch]:
    place = ScoresFiles(experiment.scores_dir, run_task.name)
    keys, shape = read_keys(place), shape_of(place.scores)
    if keys is None or shape is None:  # not evaluated yet, or being written
        return
    made_of = json.dumps([keys.to_json(), *sorted(shape.columns)], sort_keys=True)
    stamp = hashlib.sha256(made_of.encode()).hexdigest()[:16]
    prefix = f"scores/{run_task.name}/"
    starts = range(0, shape.rows, SCORED)
    if any(known.get(f"{prefix}{start}") != stamp for start in starts):
        frames = frames_of(place.scores, shape, SCORED)
        # A file that is replaced meanwhile may have other rows, and has another stamp at the next sync.
        for start, frame in zip(starts, frames, strict=False):
            name = f"{prefix}{start}"
            if known.get(name) != stamp:
                tables = _score_frames(experiment, run_task.name, keys, frame, start)
                rows = sum(one.height for one in tables.values())
                part = Part(name, stamp, range(start, start + SCORED), rows)
                yield Batch([part], run_task.name, "place", (SAMPLES, SCORES), tables)
    yield from _gone(prefix, starts, known, run_task.name, "place", (SAMPLES, SCORES))


def _score_frames(
    experiment: Experiment, run_task: str, keys: Keys, frame: Any, start: int
) -> dict[Table, Any]:
    import polars

    col = polars.col
    frame = frame.with_columns(
        place=polars.int_range(start, start + frame.height, dtype=polars.Int64)
    )
    metas = [name for name in frame.columns if name.startswith(META)]
    texts = frame.select(
        polars.Series("reference_answers", _json_of(frame["references"]), dtype=polars.String),
        polars.Series(
            "metadata",
            [
                _json({key.removeprefix(META): one for key, one in row.items() if one is not None})
                for row in frame.select(metas).iter_rows(named=True)
            ]
            if metas
            else ["{}"] * frame.height,
            dtype=polars.String,
        ),
    )
    scored = []
    for metric in keys.metrics:
        if metric in frame.columns:
            parts = {
                name: col(f"{metric}.{name}")
                if f"{metric}.{name}" in frame.columns
                else polars.lit(None)
                for name in ("numerator", "denominator", "fault")
            }
            scored.append(
                frame.select(
                    "sample",
                    "place",
                    metric=polars.lit(metric),
                    value=col(metric).cast(polars.Float64),
                    **{
                        name: one.cast(polars.String if name == "fault" else polars.Float64)
                        for name, one in parts.items()
                    },
                )  # fmt: skip
            )
    tables = {SAMPLES: _shaped(SAMPLES, experiment, frame.hstack(texts), run_task)}
    if scored:
        tables[SCORES] = _shaped(SCORES, experiment, polars.concat(scored), run_task)
    return tables


def _json_of(values: Any) -> list[str | None]:
    return [None if one is None else _json(one) for one in values.to_list()]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


# --- numbered rows -------------------------------------------------------------------------------------


def _metrics(experiment: Experiment, known: Mapping[str, str]) -> Iterator[Batch]:
    if not experiment.metrics_file.exists():
        return
    try:
        frames = list(_exported(experiment, "metrics"))
    except EnvironmentFault:  # being written, or damaged: `hpcbench report` says so
        return
    yield from _numbered(METRICS, experiment, frames, known)


def _exported(experiment: Experiment, what: What) -> Iterator[Any]:
    table = open_table([experiment], Wanted(what), lambda note: None)
    for frame in table.frames():
        yield frame.rename({"by": "grouped_by", "group": "group_values"})


def _events(experiment: Experiment, known: Mapping[str, str]) -> Iterator[Batch]:
    import polars

    names = [one.name for one in experiment.resolved.run_tasks]
    rows = event_rows(experiment, names, lambda note: None, lambda path, lines: None)
    kinds = dict.fromkeys(
        ("source", "kind", "sort", "run_task", "group", "worker", "details"), polars.String
    )
    schema: dict[str, Any] = {
        **kinds, **dict.fromkeys(("seq", "shard", "attempt"), polars.Int64),
        "time": polars.Datetime("ms", "UTC"),
    }  # fmt: skip

    def frames() -> Iterator[Any]:
        while some := list(itertools.islice(rows, BATCH)):
            columns = [
                polars.Series(name, [row.get(name) for row in some], dtype=kind)
                for name, kind in schema.items()
            ]
            yield polars.DataFrame(columns).rename({"group": "worker_group"})

    yield from _numbered(EVENTS, experiment, frames(), known)


def _numbered(
    table: Table, experiment: Experiment, frames: Any, known: Mapping[str, str]
) -> Iterator[Batch]:
    """Blocks of rows in their order; a block's stamp is the hash of its rows."""
    import polars

    prefix = f"{table.name}/"
    starts = []
    start = 0
    for frame in frames:
        stop = start + frame.height
        rows = frame.with_columns(number=polars.int_range(start, stop, dtype=polars.Int64))
        shaped = _shaped(table, experiment, rows)
        stamp = hashlib.sha256(shaped.write_csv().encode()).hexdigest()[:16]
        part = Part(f"{prefix}{start}", stamp, range(start, start + BATCH), frame.height)
        if known.get(part.name) != stamp:
            yield Batch([part], None, "number", (table,), {table: shaped})
        starts.append(start)
        start += BATCH
    yield from _gone(prefix, starts, known, None, "number", (table,))


def _gone(
    prefix: str,
    starts: Sequence[int],
    known: Mapping[str, str],
    run_task: str | None,
    column: str,
    tables: Sequence[Table],
) -> Iterator[Batch]:
    """Blocks that the database has beyond the last one of the experiment."""
    left = {f"{prefix}{start}" for start in starts}
    gone = [
        Part(name, None, range(int(name.removeprefix(prefix)), ALL_LATER), 0)
        for name in known
        if name.startswith(prefix) and name not in left
    ]
    if gone:
        yield Batch(gone, run_task, column, tables, {})


def _shaped(table: Table, experiment: Experiment, frame: Any, run_task: str | None = None) -> Any:
    """A frame with all columns of a table, in its order, and texts that databases take."""
    import polars

    given = {"experiment": experiment.id, **({} if run_task is None else {"run_task": run_task})}
    there = set(frame.columns)
    shaped = frame.select(
        [
            polars.lit(given[column.name]).alias(column.name)
            if column.name in given
            else polars.col(column.name)
            if column.name in there
            else polars.lit(None).alias(column.name)
            for column in table.columns
        ]
    )
    # PostgreSQL's texts have no NUL.
    return shaped.with_columns(
        polars.col(polars.String).str.replace_all("\0", "\ufffd", literal=True)
    )


# --- the experiment itself -----------------------------------------------------------------------------


def summary(experiment: Experiment) -> dict[str, Any]:
    """The experiment's own row, without `synced_at`."""
    known = outcome(experiment) if ended(experiment) else None
    plan = experiment.resolved.plan
    return {
        "id": experiment.id,
        "manifest": identity(experiment),
        "name": plan.name,
        "description": plan.description,
        "owner": _owner(experiment.path),
        "home": str(experiment.path.parent.parent),
        "created_at": experiment.created.astimezone(timezone.utc),  # SQLite keeps no zone
        "status": known.state if known is not None else "running",
        "reason": known.reason if known is not None else "",
        "hpcbench": experiment.manifest.hpcbench or None,
        "seed": plan.seed,
        "config": plan.model_dump(mode="json"),
        "results_summary": {
            name: {metric: one.value for metric, one in table.values.items()}
            for name, table in sound_scores(experiment).items()
        },
    }


def run_task_rows(experiment: Experiment) -> list[dict[str, Any]]:
    """A row for each run task of the plan."""
    from hpcbench.tracking.experiment_content import parameters_of  # slow import: it reads datasets

    tables = sound_scores(experiment)
    known = outcome(experiment) if ended(experiment) else None
    endings = known.run_tasks if known is not None else {}
    rows = []
    for place, run_task in enumerate(experiment.resolved.run_tasks):
        table, ending = tables.get(run_task.name), endings.get(run_task.name, {})
        rows.append({
            "experiment": experiment.id, "name": run_task.name, "place": place,
            "ml_task": run_task.ml_task.name, "model": run_task.model.name,
            "dataset": run_task.dataset.name, "split": run_task.dataset.split,
            "prompt": run_task.prompt.name, "engine": run_task.model.engine,
            "status": ending.get("state"), "reason": ending.get("reason"),
            "asked": table.asked if table else None, "answered": table.answered if table else None,
            "coverage": float(table.coverage) if table else None,
            "parameters": parameters_of(experiment, run_task),
        })  # fmt: skip
    return rows


def identity(experiment: Experiment) -> str:
    """SHA-256 of the manifest, which submit writes once: two experiments of one id differ in it."""
    return hash_file(experiment.manifest_file)


def _owner(path: Path) -> str:
    try:
        return path.owner()
    except (KeyError, OSError):
        return str(path.stat().st_uid)
