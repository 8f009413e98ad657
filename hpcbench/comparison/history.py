"""Results of concluded experiments, over months: the history that trends and change points are read from.

Each experiment has one small Parquet file in `HOME/results/`, written by rename. So any number of processes
may write at once and a reader never sees half a file. Many files are merged into one; a reader loses nothing,
because the newest row of a figure counts. The history is a copy: `rebuild` writes it from the experiments
that still exist. Rows of deleted experiments are kept, because no other file records them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcbench import statistics
from hpcbench.comparison.gate.sides import runs_of
from hpcbench.comparison.gate.speed_checks import measured
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.access import readable_like
from hpcbench.experiment.layout import Experiment, all_experiments
from hpcbench.experiment.outcome import state_of
from hpcbench.experiment.view.metrics_json import metrics_of
from hpcbench.files.atomic import log_damage, replacing
from hpcbench.schema.gate import MEMORY_FIGURES
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.statistics.changes import Change

if TYPE_CHECKING:
    import polars

LOOSE = 200
"""More files than this are merged into one."""

AT_ONCE = 100
"""Experiments that one `catch_up` adds; `rebuild` adds all."""

COLUMNS = {
    "experiment": "String", "plan": "String", "created": "Float64", "state": "String",
    "run_task": "String", "model": "String", "dataset": "String", "prompt": "String",
    "kind": "String", "name": "String", "value": "Float64", "low": "Float64", "high": "Float64",
    "n": "Int64", "higher_is_better": "Boolean", "signature": "String", "hpcbench": "String",
    "recorded": "Float64", "reading": "String",
}  # fmt: skip
"""Columns of the files and their types in polars; described in docs/gate.md."""


_FILLED = ("experiment", "plan", "created", "state", "run_task", "kind", "name", "recorded")
"""Columns with a value in each row."""

_OF_VALUES = ("model", "dataset", "signature", "higher_is_better")
"""Further columns with a value in each row that has a figure."""

SAME = ("plan", "run_task", "name", "signature", "reading")
"""Columns that identify a trend: a row that differs in one of them belongs to another trend."""


def results_dir(root: Path) -> Path:
    """Folder of the history below a home."""
    return root / "results"


def record(experiment: Experiment) -> Path:
    """Write an experiment's results to the history, or replace them there.

    An experiment without any score adds nothing; rows that it wrote before no longer count.

    Raises:
        EnvironmentFault: it has no scores that can be read.
        OSError: the file cannot be written.
    """
    rows = list(_rows(experiment))
    root = experiment.path.parent.parent
    folder = results_dir(root)
    path = folder / f"{experiment.id}.parquet"
    if not rows:
        frame = table(root)
        if frame is None or experiment.id not in frame["experiment"]:
            return path
        rows = [{**_of_all(experiment), "kind": "coverage", "name": "coverage", "run_task": ""}]
    _write(path, rows, experiment.path)
    if len(_files(folder)) > LOOSE:
        put_together(folder)
    return path


def rebuild(root: Path, tell: Callable[[str], None] = lambda line: None) -> int:
    """Write the history of a home again from its experiments; returns the number of experiments.

    Args:
        root: the home.
        tell: receives a line for each experiment that cannot be read.
    """
    count = 0
    for experiment in all_experiments(root):
        if not experiment.metrics_file.exists():
            continue
        try:
            record(experiment)
            count += 1
        except (EnvironmentFault, ValueError, KeyError, OSError) as error:
            tell(f"{experiment.id}: {error}")
    folder = results_dir(root)
    for path in _files(folder):
        if _read(path) is None and os.access(path, os.R_OK):
            tell(f"removed {path}: the file is damaged")
            path.unlink(missing_ok=True)
    put_together(folder)
    _drop_replaced(folder)
    return count


def _drop_replaced(folder: Path) -> None:
    """Remove files whose rows all count no longer: others may read them who may not read the experiments."""
    files = _files(folder)
    frames = {path: frame for path in files if (frame := _read(path)) is not None}
    newest: dict[str, float] = {}
    for frame in frames.values():
        for experiment, recorded in frame.select("experiment", "recorded").iter_rows():
            newest[experiment] = max(recorded, newest.get(experiment, recorded))
    for path, frame in frames.items():
        rows = frame.select("experiment", "recorded").iter_rows()
        if all(recorded < newest[experiment] for experiment, recorded in rows):
            path.unlink(missing_ok=True)


def catch_up(root: Path) -> None:
    """Add ended experiments that are missing, as after a kill; at most the newest `AT_ONCE`."""
    frame = table(root)
    there = set() if frame is None else set(frame["experiment"].to_list())
    left = [
        one
        for one in all_experiments(root)
        if one.id not in there and one.metrics_file.exists() and state_of(one) not in ("", "failed")
    ]
    for experiment in left[-AT_ONCE:]:
        with contextlib.suppress(EnvironmentFault, ValueError, KeyError, OSError):
            record(experiment)


def put_together(folder: Path) -> None:
    """Merge many files into one, apart for each group of readers.

    After a kill or two merges at once, duplicate rows exist, and count once.
    """
    alike: dict[tuple[int, int], list[tuple[Path, os.stat_result]]] = {}
    for path in _files(folder):
        with contextlib.suppress(OSError):  # merged meanwhile
            state = path.stat()
            alike.setdefault((state.st_gid, state.st_mode & 0o077), []).append((path, state))
    for found in alike.values():
        _merge(folder, [path for path, _ in found], found[0][1])


def _merge(folder: Path, files: Sequence[Path], like: os.stat_result) -> None:
    files = [
        path for path in files if _read(path) is not None
    ]  # others may be whole on another node
    frame = _all(files)
    if frame is None or len(files) < 2:
        return
    with replacing(folder / f"together-{secrets.token_hex(4)}.parquet") as temporary:
        readable_like(temporary, like)
        frame.write_parquet(temporary)
    for path in files:
        path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Point:
    """One experiment's value."""

    experiment: str
    """Its id."""
    time: float
    """When it was created, seconds since the epoch."""
    value: float
    """The value."""
    low: float | None
    """Lower end of its interval; None: there is none."""
    high: float | None
    """Upper end."""


@dataclass(frozen=True, slots=True)
class Trend:
    """One figure of one run task over time. Another value in a column of `SAME` makes another trend."""

    plan: str
    """Name of the plan."""
    run_task: str
    """The run task."""
    name: str
    """Metric or figure."""
    kind: str
    """quality, speed, memory or coverage."""
    signature: str
    """The metric with its options and version; for speed and memory the hardware, and how many
    requests `concurrency: auto` had in flight; empty: not known."""
    model: str
    """Name of the newest point's model."""
    higher_is_better: bool
    """Whether a higher figure is better."""
    points: tuple[Point, ...]
    """In order of time."""
    changes: tuple[Change, ...] = field(default=())
    """Where the level changed."""
    reading: str = ""
    """For quality, the parser and its version that read the answers; empty: version 1."""

    @property
    def made_by(self) -> str:
        """Signature, and the parser that read the answers unless it is the first version."""
        return f"{self.signature}, read by {self.reading}" if self.reading else self.signature

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def trends(
    root: Path,
    name: str,
    *,
    plan: str = "*",
    run_task: str = "*",
    since: float = 0.0,
) -> list[Trend]:
    """Every trend of a figure, with its change points.

    Only experiments that ended `done` count: others lack samples. All of them decide
    where the level changed, also experiments before `since`: a later start must not show other changes.

    Args:
        root: the home.
        name: metric or figure, with `*` and `?`.
        plan: only plans of this name or pattern.
        run_task: only run tasks of this name or pattern.
        since: points only of experiments created then or later, seconds since the epoch.
    """
    whole = table(root)
    if whole is None:
        return []
    found = series(whole, name, plan=plan, run_task=run_task)
    judged = (_from(replace(one, changes=changes_of(one)), since) for one in found)
    return [one for one in judged if one.points]


def _from(trend: Trend, since: float) -> Trend:
    """A trend without the points before a time, and without the changes that start at one of those points."""
    first = sum(point.time < since for point in trend.points)
    changes = tuple(
        replace(one, at=one.at - first, seen=one.seen - first)
        for one in trend.changes
        if one.at >= first
    )
    return replace(trend, points=trend.points[first:], changes=changes)


def changes_of(trend: Trend) -> tuple[Change, ...]:
    """Where the level of a trend changed; only its points decide. A year of nights takes about 15 ms."""
    return tuple(statistics.changes([one.value for one in trend.points]))


def table(root: Path) -> polars.DataFrame | None:
    """All rows of a home's history, columns as `COLUMNS`; None: there are none."""
    return _all(_files(results_dir(root)))


def stamp(root: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of the history's files: differs as soon as the history does."""
    found = []
    for path in _files(results_dir(root)):
        with contextlib.suppress(OSError):  # merged meanwhile
            stat = path.stat()
            found.append((path.name, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def series(
    whole: polars.DataFrame,
    name: str = "*",
    *,
    plan: str = "*",
    run_task: str = "*",
) -> list[Trend]:
    """Trends of a `table` with all their points, without changes, which take more work."""
    import polars

    counted = whole.filter(polars.col("state") == "done", polars.col("value").is_not_null())
    found = {}
    for key, rows in counted.sort("created", "experiment").partition_by(SAME, as_dict=True).items():
        wanted = ((key[2], name), (key[0], plan), (key[1], run_task))
        if all(fnmatchcase(one, pattern) for one, pattern in wanted):
            found[key] = _trend(rows)
    return [found[key] for key in sorted(found, key=lambda key: [part or "" for part in key])]


def known(root: Path) -> list[str]:
    """Names of all figures in the history."""
    frame = table(root)
    return [] if frame is None else sorted(frame["name"].unique().to_list())


def _trend(rows: polars.DataFrame) -> Trend:
    last = rows.row(-1, named=True)
    kept = rows.select("experiment", "created", "value", "low", "high")
    points = tuple(Point(*row) for row in kept.iter_rows())
    return Trend(
        plan=last["plan"],
        run_task=last["run_task"],
        name=last["name"],
        kind=last["kind"],
        signature=last["signature"],
        reading=last["reading"],
        model=last["model"],
        higher_is_better=last["higher_is_better"],
        points=points,
    )


# --- files ---------------------------------------------------------------------------------------------


def _rows(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Rows to remember, one for each figure; none for run tasks without any score."""
    metrics_of(experiment)  # raises if it cannot be read
    whole = _of_all(experiment)
    for run in runs_of(experiment):
        run_task, table = run.run_task, run.scores
        if table is None or not table.is_scored:
            continue
        of = {
            **whole, "run_task": run_task.name, "model": run_task.model.name,
            "dataset": run_task.dataset.name, "prompt": run_task.prompt.name,
        }  # fmt: skip
        hardware, figures = measured(run)
        machine = ", ".join(filter(None, (hardware, _batched(run_task))))
        for name, entry in table.values.items():
            basis = table.measured[name].basis if name in table.measured else "answers"
            kind, signature = "quality", entry.signature
            if name in figures:
                continue  # the same figure, measured of every run
            if basis != "answers":
                kind = "memory" if basis == "memory" else "speed"
                signature = ", ".join(filter(None, (signature, machine)))
            yield {
                **of, "kind": kind, "name": name, "value": entry.value, "low": entry.low,
                "high": entry.high, "n": entry.n, "higher_is_better": entry.higher_is_better,
                "signature": signature, "reading": entry.reading,
            }  # fmt: skip
        yield {
            **of, "kind": "coverage", "name": "coverage", "value": table.coverage,
            "n": table.asked, "higher_is_better": True, "signature": "",
        }  # fmt: skip
        for name, figure in figures.items():
            yield {
                **of, "kind": "memory" if name in MEMORY_FIGURES else "speed", "name": name,
                "value": figure.value, "low": figure.low, "high": figure.high,
                "higher_is_better": name.endswith("_per_s"), "signature": machine,
            }  # fmt: skip


def _of_all(experiment: Experiment) -> dict[str, Any]:
    """Values that all rows of an experiment share."""
    return {
        "experiment": experiment.id,
        "plan": experiment.resolved.plan.name,
        "created": experiment.created.timestamp(),
        "state": state_of(experiment),
        "hpcbench": experiment.manifest.hpcbench,
        "recorded": time.time(),
    }


def _batched(run_task: ResolvedRunTask) -> str:
    """Number of requests `concurrency: auto` kept in flight; empty where it was one, as before it batched."""
    count = run_task.at_once
    return f"{count} at once" if count is not None and count > 1 else ""


def _files(folder: Path) -> list[Path]:
    """Complete files; names of files whose writers were killed start with a dot."""
    try:
        return sorted(
            path for path in folder.iterdir() if path.suffix == ".parquet" and path.name[0] != "."
        )
    except FileNotFoundError:
        return []


def _write(path: Path, rows: Sequence[Mapping[str, Any]], of: Path) -> None:
    """Write an experiment's rows for those who may read its folder."""
    import polars

    schema = {name: getattr(polars, kind) for name, kind in COLUMNS.items()}
    with replacing(path) as temporary:
        readable_like(temporary, of.stat())
        polars.DataFrame(list(rows), schema=schema).write_parquet(temporary)


def _read(path: Path) -> polars.DataFrame | None:
    """A file's known columns; None: the file is gone or damaged."""
    import polars

    try:
        read = polars.read_parquet(path)
        frame = read.select(
            polars.col(name).cast(getattr(polars, kind))
            if name in read.columns
            else polars.lit(None, dtype=getattr(polars, kind)).alias(name)
            for name, kind in COLUMNS.items()
        ).with_columns(polars.col("reading").fill_null(""))
    except OSError:
        return None
    except polars.exceptions.PolarsError:
        frame = None
    if frame is None or frame.filter(_lacks_values()).height:
        log_damage(path, f"{path} is damaged and left out of the history")
        return None
    return frame


def _lacks_values() -> polars.Expr:
    """Whether a row lacks a value that each row has."""
    import polars

    lacking = polars.any_horizontal(polars.col(_FILLED).is_null())
    of_values = polars.any_horizontal(polars.col(_OF_VALUES).is_null())
    return lacking | (polars.col("value").is_not_null() & of_values)


def _all(files: Sequence[Path]) -> polars.DataFrame | None:
    """All rows, the newest of each figure of an experiment; None: there are none."""
    import polars

    frames = [frame for path in files if (frame := _read(path)) is not None]
    if not frames:
        return None
    whole = polars.concat(frames)
    newest = whole.group_by("experiment").agg(polars.col("recorded").max())
    kept = whole.join(newest, on=["experiment", "recorded"], how="semi")
    return kept.unique(["experiment", "run_task", "name"], keep="last", maintain_order=True)
