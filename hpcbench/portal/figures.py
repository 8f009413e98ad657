"""Figures of an experiment or a run task, drawn by `reporting.charts` from the measurements, and capped.

A browser gets no more than it can draw: the extremes of a long series, the first of many names. A note names
the omitted part. Each figure has a table and a description of the same data.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from hpcbench.errors import DamagedFile
from hpcbench.evaluation.score_distributions import distributions
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import Scores
from hpcbench.experiment.view.performance_json import Performance, Speed
from hpcbench.experiment.view.scores import ScoresFiles
from hpcbench.experiment.view.usage import Hours, Usage
from hpcbench.portal.downsample import extremes
from hpcbench.portal.lru import LruCache, Stamp, stamp_of
from hpcbench.portal.models import experiments, run_tasks
from hpcbench.portal.request_times import histogram, over_time
from hpcbench.portal.results_cache import Results
from hpcbench.reporting import charts
from hpcbench.reporting.charts.figure_names import stem
from hpcbench.reporting.figures import (
    Axis,
    Figure,
    Matrix,
    Series,
    Theme,
    described,
    plotly,
    table,
)
from hpcbench.reporting.gather import matrices, shown
from hpcbench.reporting.printed_tables import first_metric, metric_rows
from hpcbench.reporting.usage_rows import WASTE

MOST_POINTS = 5_000
"""Most points of a trace, and most cells of a heatmap."""

MOST_NAMES = 400
"""Most names on a category axis: no screen shows more."""

MOST_ROWS = 5_000
"""Most rows of a figure's table."""

KEPT = 200
"""Most figures in memory."""

KEPT_ROWS = 20_000
"""Most table rows of all sent figures in memory: a row takes about 500 bytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An available figure."""

    group: str
    """quality, agents, speed, resources, failures."""
    name: str
    """Its name."""
    title: str
    """Text above the figure."""
    make: Callable[[], Figure | None]
    """Draws the figure, which may read scores or answers; None: there is nothing to show."""


_entries: LruCache[tuple[Entry, ...]] = LruCache(KEPT, lambda entries: 1 + len(entries))
_figures: LruCache[Figure | None] = LruCache(KEPT)
_sent: LruCache[run_tasks.Figure | None] = LruCache(
    KEPT_ROWS, lambda one: 20 + len(one.rows) if one else 1
)


def names(
    experiment: Experiment, results: Results, run_task: str | None = None
) -> tuple[experiments.FigureName, ...]:
    """Available figures of an experiment, or of one of its run tasks; no figure is drawn."""
    return tuple(
        experiments.FigureName(name=one.name, title=one.title, group=one.group)
        for one in _found(experiment, results, run_task)
    )


def figure(
    experiment: Experiment, name: str, results: Results, theme: Theme, run_task: str | None = None
) -> run_tasks.Figure | None:
    """A figure of an experiment or of a run task; None: no figure has this name.

    Args:
        experiment: the experiment.
        name: a name from `names`.
        results: reads the evaluation's files.
        theme: theme of the page.
        run_task: the run task; None: a figure of the experiment.
    """
    entry = next((one for one in _found(experiment, results, run_task) if one.name == name), None)
    if entry is None:
        return None
    key, stamp = (experiment.path, run_task, name), _stamp(experiment, run_task)

    def make() -> run_tasks.Figure | None:
        made = _figures.of(key, stamp, entry.make)
        return None if made is None else sent(made, theme)

    return _sent.of((*key, theme), stamp, make)


def _found(experiment: Experiment, results: Results, run_task: str | None) -> tuple[Entry, ...]:
    def make() -> tuple[Entry, ...]:
        found = (
            _of_experiment(experiment, results)
            if run_task is None
            else _of_run_task(experiment, run_task, results)
        )
        # Clients could not distinguish two figures of one name.
        return tuple({one.name: one for one in reversed(list(found))}.values())[::-1]

    return _entries.of((experiment.path, run_task), _stamp(experiment, run_task), make)


def _stamp(experiment: Experiment, run_task: str | None) -> tuple[Stamp, ...]:
    paths = [experiment.metrics_file, experiment.performance_file, experiment.usage_file]
    if run_task is not None:
        paths.append(experiment.scores_file(run_task))
    return tuple(map(stamp_of, paths))


def sent(figure: Figure, theme: Theme) -> run_tasks.Figure:
    """A figure in the form for clients."""
    drawn = capped(figure)
    heads, rows = table(drawn)
    notes = list(drawn.notes)
    if len(rows) > MOST_ROWS:
        notes.append(f"The table has the first {MOST_ROWS} of {len(rows)} rows.")
    return run_tasks.Figure(
        name=drawn.name,
        title=drawn.title,
        described=described(drawn),
        plotly=plotly(drawn, theme),
        columns=tuple(heads),
        rows=tuple(tuple(row) for row in rows[:MOST_ROWS]),
        notes=tuple(notes),
    )


# --- caps ---------------------------------------------------------------------------------------------


def capped(figure: Figure) -> Figure:
    """A figure with no more points than a page can draw; a note names the omitted part."""
    notes: list[str] = []
    series = tuple(_capped(figure, one, notes) for one in figure.series)
    matrix = figure.matrix
    if matrix is not None and len(matrix.rows) * len(matrix.columns) > MOST_POINTS:
        columns = min(len(matrix.columns), MOST_NAMES)
        rows = max(1, min(len(matrix.rows), MOST_POINTS // columns))
        notes.append(
            f"The figure shows {rows} of {len(matrix.rows)} rows and {columns} of "
            f"{len(matrix.columns)} columns."
        )
        matrix = Matrix(
            matrix.rows[:rows],
            matrix.columns[:columns],
            tuple(row[:columns] for row in matrix.values[:rows]),
            None if matrix.texts is None else tuple(row[:columns] for row in matrix.texts[:rows]),
        )
    flows = figure.flows[:MOST_POINTS]
    return dataclasses.replace(
        figure,
        series=series,
        matrix=matrix,
        flows=flows,
        notes=(*figure.notes, *dict.fromkeys(notes)),
    )


def _capped(figure: Figure, one: Series, notes: list[str]) -> Series:
    count = len(one.y)
    if figure.kind in ("bar", "interval"):
        if count <= MOST_NAMES:
            return one
        notes.append(f"The figure shows {MOST_NAMES} of {count} names.")
        return _only(one, range(MOST_NAMES))
    if count <= MOST_POINTS or figure.kind == "histogram":
        return one
    notes.append(f"The figure shows {MOST_POINTS} of {count} points, the extremes included.")
    return _only(one, extremes(one.y, MOST_POINTS))


def _only(one: Series, places: Sequence[int]) -> Series:
    """A series with only the points at these places."""

    def of(values: Any) -> Any:
        return None if values is None else tuple(values[place] for place in places)

    return dataclasses.replace(
        one,
        x=of(one.x), y=of(one.y), low=of(one.low), high=of(one.high), labels=of(one.labels),
        highlight=of(one.highlight), x_low=of(one.x_low), x_high=of(one.x_high),
    )  # fmt: skip


# --- of an experiment ---------------------------------------------------------------------------------


def _of_experiment(experiment: Experiment, results: Results) -> Iterator[Entry]:
    metrics, performance = results.metrics(experiment), results.performance(experiment)
    usage = results.usage(experiment)
    if metrics is not None:
        run_tasks = metrics.run_tasks
        seen = list(run_tasks) if performance is None else shown(performance, run_tasks)
        own = {name: run_tasks[name] for name in seen}
        yield from _in("quality", lambda: _matrices(own))
        yield from _in("quality", lambda: charts.metrics(list(metric_rows(own))))
        yield from _in("quality", lambda: charts.categories(own))
        yield from _distributions(experiment, own)
        yield from _in("failures", lambda: charts.outcomes(own))
        yield from _in("failures", lambda: _causes(own))
    if performance is not None:
        speeds = performance.run_tasks
        if metrics is not None:
            yield from _in("speed", lambda: charts.tradeoffs(metrics.run_tasks, speeds))
        yield from _in("speed", lambda: charts.latencies(speeds))
        yield from _in("speed", lambda: charts.tokens(speeds))
        yield from _in("speed", lambda: _sweeps(performance))
        yield from _in("resources", lambda: _memory(speeds))
    if usage is not None:
        yield from _in("resources", lambda: _hours(usage))


def _in(group: str, made: Callable[[], Iterator[Figure]]) -> Iterator[Entry]:
    """Figures with their group, up to the first figure that the files do not allow."""
    found: list[Figure] = []
    # Files of another version may lack any field.
    with contextlib.suppress(KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError):
        for one in made():
            found.append(one)
    for one in found:
        yield Entry(group, one.name, one.title, lambda one=one: one)  # type: ignore[misc]


def _sweeps(performance: Performance) -> Iterator[Figure]:
    for name, swept in performance.sweeps.items():
        if (one := charts.sweep(name, swept, performance.run_tasks)) is not None:
            yield one


def _memory(speeds: Mapping[str, Speed]) -> Iterator[Figure]:
    if (one := charts.memory(speeds)) is not None:
        yield one


def _matrices(run_tasks: Mapping[str, Scores]) -> Iterator[Figure]:
    """Matrices of models (rows) and datasets (columns) with the first metric of each ML task."""
    for one in matrices(run_tasks, list(run_tasks)):
        if not one["primary"]:
            continue
        columns = tuple(
            f"{head['dataset']}, {head['split']}" if head["split"] else head["dataset"]
            for head in one["columns"]
        )
        rows = tuple(
            f"{row['model']} ({row['variant']})" if row["variant"] else row["model"]
            for row in one["rows"]
        )
        values = tuple(
            tuple(cell["value"] if cell is not None else None for cell in row["cells"])
            for row in one["rows"]
        )
        arrow = "↑" if one["higher_is_better"] else "↓"
        known = [value for row in values for value in row if value is not None]
        within = bool(known) and min(known) >= 0 and max(known) <= 1
        shade = (
            Axis(f"{one['metric']} {arrow}", low=0.0, high=1.0)
            if within
            else Axis(f"{one['metric']} {arrow}")
        )
        yield Figure(
            stem("matrix", one["ml_task"], one["metric"]),
            f"{one['metric']} of models on datasets: {one['ml_task']}",
            "heatmap",
            Axis("dataset"),
            shade,
            matrix=Matrix(rows, columns, values),
        )


def _distributions(experiment: Experiment, run_tasks: Mapping[str, Scores]) -> Iterator[Entry]:
    """Distributions of each run task's first metric, one figure per metric."""
    places: dict[str, dict[str, ScoresFiles]] = {}
    for name, one in run_tasks.items():
        metric = first_metric(one)
        if metric is not None:
            places.setdefault(metric, {})[name] = ScoresFiles(experiment.scores_dir, name)
    for metric, some in places.items():
        yield _distribution(some, metric)


def _distribution(places: Mapping[str, ScoresFiles], metric: str) -> Entry:
    def make() -> Figure | None:
        try:
            found = distributions(places, metric)
        except (OSError, DamagedFile):
            return None  # damaged, or in the middle of a rewrite
        if not found:
            return None
        low, high, _ = next(iter(found.values()))
        counts = {name: counts for name, (_, _, counts) in found.items()}
        return charts.distribution(counts, metric, low, high)

    title = f"Distribution of {metric} over samples"
    return Entry("quality", stem("distribution", metric), title, make)


def _causes(run_tasks: Mapping[str, Scores]) -> Iterator[Figure]:
    """Samples without an answer by cause, the most frequent first."""
    counts: dict[str, int] = {}
    for one in run_tasks.values():
        for error in one.errors:
            cause = error.cause[:200]
            counts[cause] = counts.get(cause, 0) + error.count
    if counts:
        yield _counted("causes", "Samples without an answer, by cause", counts, "samples")


def _counted(name: str, title: str, counts: Mapping[str, int], what: str) -> Figure:
    order = sorted(counts, key=lambda cause: -counts[cause])
    return Figure(
        name, title, "bar", Axis("cause", scale="category"), Axis(what, low=0.0),
        (Series(what, tuple(order), tuple(float(counts[cause]) for cause in order)),),
    )  # fmt: skip


def _hours(usage: Usage) -> Iterator[Figure]:
    """GPU-hours by use and cause of waste, one bar each per run task; many run tasks are added up."""
    titles = {"used": "used", **WASTE}
    for unit in dict.fromkeys(one.unit for one in usage.hours):
        rows = [one for one in usage.hours if one.unit == unit]
        names = tuple(one.run_task for one in rows)
        if len(rows) > MOST_NAMES // len(titles):
            rows, names = [reduce(Hours.plus, rows)], ("all",)
        series = tuple(
            Series(title, names, tuple(getattr(one, key) for one in rows))
            for key, title in titles.items()
            if any(getattr(one, key) for one in rows)
        )
        if series:
            yield Figure(
                stem("hours", unit), f"{unit}-hours, used and wasted", "bar",
                Axis("run task", scale="category"), Axis(f"{unit}-hours", low=0.0), series,
            )  # fmt: skip


# --- of a run task ------------------------------------------------------------------------------------


def _of_run_task(experiment: Experiment, name: str, results: Results) -> Iterator[Entry]:
    scores, speed = results.of_run_task(experiment, name)
    own = {name: scores} if scores is not None else {}
    for metric in scores.values if scores is not None else ():
        yield _distribution({name: ScoresFiles(experiment.scores_dir, name)}, metric)
    for metric in scores.values if scores is not None else ():
        yield from _in("quality", lambda metric=metric: charts.categories(own, metric))  # type: ignore[misc]
    yield from _in("failures", lambda: _causes(own))
    if speed is None:
        return
    alone = {name: speed}
    if (work := speed.trajectories) is not None:
        yield from _in("agents", lambda: iter(charts.of_agent(name, work)))
    yield from _in("speed", lambda: charts.latencies(alone))
    yield from _in("speed", lambda: charts.tokens(alone))
    if speed.e2e_ms is not None:
        yield Entry(
            "speed",
            "latency-histogram",
            "E2E latency of requests",
            lambda: histogram(experiment, name),
        )
        yield Entry(
            "speed", "over-time", "Latency of each request over the run",
            lambda: over_time(experiment, name),
        )  # fmt: skip
