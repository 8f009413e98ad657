"""Tables of one or all experiments, as a sequence of frames: rows stay on the disk until their frame is read.

    table = open_table(experiments, Wanted("scores", where="anls < 0.5"), note)
    for frame in table.frames(): …        every frame has the columns of table.schema, in that order

Missing and damaged data of an experiment is reported through `note`, a line each, and does not affect the
other experiments.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.data.datasets import compile_where
from hpcbench.errors import HpcbenchError, Problem, RunFailed, UserError, first_line, unknown
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.answers import answer_frames
from hpcbench.experiment.view.scores import Shape, frames_of, shape_of
from hpcbench.interchange import measurements
from hpcbench.interchange.columns import META, PARTS, TABLES, What, dtype, fixed, is_pattern
from hpcbench.schema.plan import ResolvedRunTask

Note = Callable[[str], None]
"""Receives a line about each omission."""

BATCH = 20_000
"""Rows of scores in a frame."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requested rows and columns."""

    what: What
    """The table."""
    run_tasks: Sequence[str] = ()
    """Only rows of these run tasks; empty: all."""
    where: str | None = None
    """Only rows that satisfy this: a Jinja2 expression over the columns, see docs/exports.md."""
    columns: Sequence[str] = ()
    """Only these, in this order, `*` and `?` as in file names; empty: all columns but those exported only on
    request.
    """


@dataclass(frozen=True)
class Table:
    """A table that can be read once."""

    schema: Mapping[str, Any]
    """Column → its polars type."""
    frames: Callable[[], Iterator[Any]]
    """Produces the rows."""
    total: int | None = None
    """Most rows, before any filter; None: unknown."""
    damaged: Counter[str] = field(default_factory=Counter)
    """File → its lines that were left out, complete after the table has been read."""


def open_table(experiments: Sequence[Experiment], wanted: Wanted, note: Note) -> Table:
    """A table over experiments.

    Args:
        experiments: in this order.
        wanted: the requested rows and columns.
        note: receives an experiment's missing data, where there are several experiments.

    Raises:
        UserError: no such run task or column, or the filter is no expression.
        RunFailed, EnvironmentFault: the only experiment has no such data.
    """
    damaged = Counter[str]()
    sources = list(_sources(experiments, wanted, note, damaged))
    if not sources:
        names = ", ".join(one.id for one in experiments[:3]) or "this home"
        raise RunFailed(f"nothing to export: no {wanted.what} in {names}")
    known, asked = _columns(wanted.what, sources)
    schema = {name: known[name] for name in _chosen(wanted.columns, known, asked)}
    holds = _Filter(wanted.where, note) if wanted.where is not None else None

    def frames() -> Iterator[Any]:
        for source in sources:
            for frame in source.frames():
                whole = _aligned(frame, known)
                if holds is not None:
                    whole = whole.filter(holds.mask(whole))
                if whole.height:
                    yield whole.select(list(schema))
        if holds is not None:
            holds.tell()

    totals = [source.total for source in sources]
    total = sum(one or 0 for one in totals) if None not in totals else None
    return Table(schema, frames, total, damaged)


def _columns(what: What, sources: Sequence[_Source]) -> tuple[dict[str, Any], set[str]]:
    """All columns with their types, and the columns that are exported only on request."""
    known = {column.name: dtype(column.kind) for column in fixed(what)}
    for source in sources:
        known |= {name: kind for name, kind in source.more.items() if name not in known}
    more = {one.name: dtype(one.kind) for one in TABLES[what] if one.asked and not is_pattern(one)}
    parts = {name for name in known if what == "scores" and name.endswith(PARTS)}
    return {**known, **more}, {*parts, *more}


def _chosen(patterns: Sequence[str], known: Mapping[str, Any], asked: set[str]) -> list[str]:
    """The requested columns.

    Raises:
        UserError: no column has that name.
    """
    if not patterns:
        return [name for name in known if name not in asked]
    found: dict[str, None] = {}
    for pattern in patterns:
        names = [pattern] if pattern in known else fnmatch.filter(known, pattern)
        if not names:
            raise UserError(Problem(unknown("column", pattern, known)))
        found |= dict.fromkeys(names)
    return list(found)


@dataclass(frozen=True, slots=True)
class _Source:
    """Rows of one experiment, or of one of its run tasks."""

    frames: Callable[[], Iterator[Any]]
    more: Mapping[str, Any] = field(default_factory=dict)
    """Columns beside the fixed ones, with their types."""
    total: int | None = None


def _sources(
    experiments: Sequence[Experiment], wanted: Wanted, note: Note, damaged: Counter[str]
) -> Iterator[_Source]:
    found = False
    for experiment in experiments:
        try:
            names = [one.name for one in experiment.resolved.run_tasks]
            if wanted.run_tasks and not set(wanted.run_tasks) & set(names):
                continue
            found = True
            yield from _of(experiment, wanted, note, damaged)
        except (HpcbenchError, OSError, ValueError, KeyError) as error:
            # A single experiment must be complete; of several, an incomplete one is left out.
            if len(experiments) == 1:
                raise
            note(f"{experiment.id} is left out: {first_line(error)}")
    if wanted.run_tasks and not found:
        known = [one.name for here in experiments[:1] for one in here.resolved.run_tasks]
        raise UserError(Problem(unknown("run task", wanted.run_tasks[0], known)))


def _of(
    experiment: Experiment, wanted: Wanted, note: Note, damaged: Counter[str]
) -> Iterator[_Source]:
    what = wanted.what

    def damage(path: Path, lines: int) -> None:
        damaged[str(path)] += lines

    chosen = [
        one
        for one in experiment.resolved.run_tasks
        if not wanted.run_tasks or one.name in wanted.run_tasks
    ]
    if what == "responses":
        cuts = {cut.run_task: cut.samples for cut in experiment.work.cuts}
        for run_task in chosen:
            yield _Source(_answers(experiment, run_task, damage), total=cuts[run_task.name])
    elif what == "scores":
        yield from _scores(experiment, chosen, note)
    else:
        makers = {
            "metrics": measurements.metric_rows,
            "events": measurements.event_rows,
            "resources": measurements.resource_rows,
            "token_refresh_metrics": measurements.token_rows,
        }
        names = [one.name for one in chosen]
        maker = makers[what]
        if what != "events":
            made = list(maker(experiment, names, note, damage))
            yield _Source(lambda: _framed(iter(made), what), total=len(made))
        else:
            yield _Source(lambda: _framed(maker(experiment, names, note, damage), what))


def _answers(
    experiment: Experiment, run_task: ResolvedRunTask, damage: Callable[[Path, int], None]
) -> Callable[[], Iterator[Any]]:
    constants = _constant_columns(experiment, run_task)

    def frames() -> Iterator[Any]:
        for frame in answer_frames(experiment, run_task.name, damage):
            yield frame.with_columns(**constants)

    return frames


def _scores(
    experiment: Experiment, run_tasks: Sequence[ResolvedRunTask], note: Note
) -> Iterator[_Source]:
    lacking: list[str] = []
    for run_task in run_tasks:
        path = experiment.scores_file(run_task.name)
        shape = shape_of(path)
        if shape is None:
            lacking.append(run_task.name)
            continue
        schema = shape.columns
        common = {column.name for column in fixed("scores")}
        metas = {name: kind for name, kind in schema.items() if name.startswith(META)}
        others = {name: kind for name, kind in schema.items() if name not in {*metas, *common}}
        constants = _constant_columns(experiment, run_task)
        yield _Source(_rows_of(path, shape, constants), {**metas, **others}, shape.rows)
    if lacking:
        what = f"{experiment.id} has no scores of {', '.join(lacking)}"
        if len(lacking) == len(run_tasks):
            raise RunFailed(f"{what}: `hpcbench score {experiment.id}`")
        note(what)


def _rows_of(path: Path, shape: Shape, constants: Mapping[str, Any]) -> Callable[[], Iterator[Any]]:
    def frames() -> Iterator[Any]:
        for frame in frames_of(path, shape, BATCH):
            yield frame.with_columns(**constants)

    return frames


def _constant_columns(experiment: Experiment, run_task: ResolvedRunTask) -> dict[str, Any]:
    """Columns with one value for all rows of a run task."""
    import polars

    values = measurements.of_run_task(experiment, run_task)
    return {name: polars.lit(value, dtype=polars.String) for name, value in values.items()}


def _framed(made: Iterator[Mapping[str, Any]], what: What) -> Iterator[Any]:
    import itertools

    import polars

    schema = {column.name: dtype(column.kind) for column in fixed(what)}
    while some := list(itertools.islice(made, BATCH)):
        columns = {
            name: polars.Series(name, [row.get(name) for row in some], dtype=kind)
            for name, kind in schema.items()
        }
        yield polars.DataFrame(columns)


def _aligned(frame: Any, schema: Mapping[str, Any]) -> Any:
    """A frame with all columns of the schema; columns that it lacks are None."""
    import polars

    there = set(frame.columns)
    return frame.select(
        [
            polars.col(name).cast(kind) if name in there else polars.lit(None, kind).alias(name)
            for name, kind in schema.items()
        ]
    )


class _Filter:
    """Selects the rows for which an expression holds.

    A comparison with a missing value holds for no row, as in SQL; the number of such rows is reported at the
    end.
    """

    def __init__(self, expression: str, note: Note) -> None:
        self._holds, self._note = compile_where(expression), note
        self._lost, self._why = 0, ""

    def mask(self, frame: Any) -> Any:
        """The selected rows."""
        import polars

        return polars.Series(
            [self._of(row) for row in frame.iter_rows(named=True)], dtype=polars.Boolean
        )

    def _of(self, row: Mapping[str, Any]) -> bool:
        known = {name: value for name, value in row.items() if "." not in name}
        metas = {name[len(META) :]: value for name, value in row.items() if name.startswith(META)}
        known = {**metas, **known}
        if metas:
            known["meta"] = metas
        try:
            return bool(self._holds(known))
        except UserError as error:
            if not isinstance(error.__cause__, TypeError) or "NoneType" not in str(error.__cause__):
                raise
            self._lost, self._why = self._lost + 1, str(error)
            return False

    def tell(self) -> None:
        """Report how many rows lacked a compared value."""
        if self._lost:
            self._note(
                f"{self._lost:,} rows lack a value that the filter compares, and are left out: {self._why}"
            )
