"""Figures of an experiment and of a run task: what `reporting.pictures` makes of what was measured, capped.

A browser is sent no more than it can draw: of a long series its extremes, of many names the first. What is
left out is told in a note. Each figure comes with its table and its words, made of the same data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from hpcbench.evaluation.score_distributions import distributions
from hpcbench.evaluation.scores import Place
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.usage import Hours, Usage
from hpcbench.portal.downsample import extremes
from hpcbench.portal.lru import Kept, Stamp, stamp_of
from hpcbench.portal.models import experiments, run_tasks
from hpcbench.portal.request_times import histogram, over_time
from hpcbench.portal.results_cache import Results, Table
from hpcbench.reporting import charts
from hpcbench.reporting.charts.names import stem
from hpcbench.reporting.context import matrices, shown
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
from hpcbench.reporting.tables import metric_rows
from hpcbench.reporting.usage_rows import WASTE

MOST_POINTS = 5_000
"""Points of a trace, and cells of a heatmap."""

MOST_NAMES = 400
"""Names on an axis of categories: no screen shows more."""

MOST_ROWS = 5_000
"""Rows of a figure's table."""

KEPT = 200
"""Figures that are kept."""

KEPT_ROWS = 20_000
"""Rows of all figures together that are kept as they were sent: a row takes about 500 bytes."""


_OF_RUN_TASK = {
    "ml_task", "model", "dataset", "split", "prompt", "asked", "coverage", "outcomes", "errors", "invalid",
    "metrics", "groups",
}  # fmt: skip
"""What figures need of a run task in `metrics.json`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A figure that can be had."""

    group: str
    """quality, speed, resources, failures."""
    name: str
    """Its name."""
    title: str
    """What stands above it."""
    make: Callable[[], Figure | None]
    """Makes it, which may mean to read scores or answers; None: there is nothing to show after all."""


_entries: Kept[tuple[Entry, ...]] = Kept(KEPT, lambda entries: 1 + len(entries))
_figures: Kept[Figure | None] = Kept(KEPT)
_sent: Kept[run_tasks.Figure | None] = Kept(KEPT_ROWS, lambda one: 20 + len(one.rows) if one else 1)


def names(
    experiment: Experiment, results: Results, run_task: str | None = None
) -> tuple[experiments.FigureName, ...]:
    """Figures there are of an experiment, or of one of its run tasks; nothing is drawn for this."""
    return tuple(
        experiments.FigureName(name=one.name, title=one.title, group=one.group)
        for one in _found(experiment, results, run_task)
    )


def figure(
    experiment: Experiment, name: str, results: Results, theme: Theme, run_task: str | None = None
) -> run_tasks.Figure | None:
    """A figure of an experiment or of a run task; None: there is none of that name.

    Args:
        experiment: the experiment.
        name: as `names` tells it.
        results: reads what evaluation wrote.
        theme: of the page.
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
        # Two of one name could not be told apart.
        return tuple({one.name: one for one in reversed(list(found))}.values())[::-1]

    return _entries.of((experiment.path, run_task), _stamp(experiment, run_task), make)


def _stamp(experiment: Experiment, run_task: str | None) -> tuple[Stamp, ...]:
    paths = [experiment.metrics_file, experiment.performance_file, experiment.usage_file]
    if run_task is not None:
        paths.append(experiment.scores_file(run_task))
    return tuple(map(stamp_of, paths))


def sent(figure: Figure, theme: Theme) -> run_tasks.Figure:
    """A figure as clients get it."""
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
        data_hash=hashlib.sha256(repr(drawn).encode("utf-8", "replace")).hexdigest()[:16],
    )


# --- caps ---------------------------------------------------------------------------------------------


def capped(figure: Figure) -> Figure:
    """A figure with no more points than a page can draw; a note says what is left out."""
    notes: list[str] = []
    series = tuple(_capped(figure, one, notes) for one in figure.series)
    matrix = figure.matrix
    if matrix is not None and len(matrix.rows) * len(matrix.columns) > MOST_POINTS:
        columns = min(len(matrix.columns), MOST_NAMES)
        rows = max(1, min(len(matrix.rows), MOST_POINTS // columns))
        notes.append(
            f"{rows} of {len(matrix.rows)} rows and {columns} of {len(matrix.columns)} columns are drawn."
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
        notes.append(f"{MOST_NAMES} of {count} names are drawn.")
        return _only(one, range(MOST_NAMES))
    if count <= MOST_POINTS or figure.kind == "histogram":
        return one
    notes.append(f"{MOST_POINTS} of {count} points are drawn, the extremes among them.")
    return _only(one, extremes(one.y, MOST_POINTS))


def _only(one: Series, places: Sequence[int]) -> Series:
    """Points at these places."""

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
        run_tasks: Table = metrics["run_tasks"]
        seen = list(run_tasks) if performance is None else shown(performance, run_tasks)
        own = {name: run_tasks[name] for name in seen if _sound(run_tasks.get(name))}
        yield from _in("quality", lambda: _matrices(own))
        yield from _in("quality", lambda: charts.metrics(list(metric_rows({"run_tasks": own}))))
        yield from _in("quality", lambda: charts.categories(own))
        yield from _distributions(experiment, own)
        yield from _in("failures", lambda: charts.outcomes(own))
        yield from _in("failures", lambda: _causes(own))
    if metrics is not None and performance is not None:
        yield from _in("speed", lambda: charts.tradeoffs(metrics, performance))
    if performance is not None:
        tables: Table = performance["run_tasks"]
        yield from _in("speed", lambda: charts.latencies(performance, list(tables)))
        yield from _in("speed", lambda: charts.tokens(performance))
        yield from _in("speed", lambda: _sweeps(performance))
        yield from _in("resources", lambda: _memory(performance))
    if usage is not None:
        yield from _in("resources", lambda: _hours(usage))


def _sound(table: object) -> bool:
    """Whether it is what this version writes of a run task."""
    return isinstance(table, dict) and table.keys() >= _OF_RUN_TASK


def _in(group: str, made: Callable[[], Iterator[Figure]]) -> Iterator[Entry]:
    """Figures with their group; one that cannot be made of what was read is left out, the others stay."""
    found: list[Figure] = []
    # What another version wrote may lack anything.
    with contextlib.suppress(KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError):
        for one in made():
            found.append(one)
    for one in found:
        yield Entry(group, one.name, one.title, lambda one=one: one)  # type: ignore[misc]


def _sweeps(performance: Table) -> Iterator[Figure]:
    for name, swept in performance["sweeps"].items():
        if (one := charts.sweep(name, swept, performance["run_tasks"])) is not None:
            yield one


def _memory(performance: Table) -> Iterator[Figure]:
    if (one := charts.memory(performance)) is not None:
        yield one


def _matrices(run_tasks: Table) -> Iterator[Figure]:
    """Models down, datasets across: the first metric of each ML task."""
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


def _distributions(experiment: Experiment, run_tasks: Table) -> Iterator[Entry]:
    """Of the first metric of each run task, a figure a metric."""
    places: dict[str, dict[str, Place]] = {}
    for name, one in run_tasks.items():
        metric = next((key for key, entry in one["metrics"].items() if entry), None)
        if metric is not None:
            places.setdefault(metric, {})[name] = Place(experiment.scores_dir, name)
    for metric, some in places.items():
        yield _distribution(some, metric)


def _distribution(places: Mapping[str, Place], metric: str) -> Entry:
    def make() -> Figure | None:
        import polars

        try:
            found = distributions(places, metric)
        except (OSError, polars.exceptions.PolarsError):
            return None  # damaged, or being written anew
        if not found:
            return None
        low, high, _ = next(iter(found.values()))
        counts = {name: counts for name, (_, _, counts) in found.items()}
        return charts.distribution(counts, metric, low, high)

    title = f"How {metric} of samples is distributed"
    return Entry("quality", stem("distribution", metric), title, make)


def _causes(run_tasks: Table) -> Iterator[Figure]:
    """Samples without an answer by cause, the most frequent first."""
    counts: dict[str, int] = {}
    for one in run_tasks.values():
        for error in one["errors"]:
            cause = f"{error['outcome']}: {error['message']}"[:200]
            counts[cause] = counts.get(cause, 0) + int(error["count"])
    if counts:
        yield _counted("causes", "Samples without an answer, by cause", counts, "samples")


def _counted(name: str, title: str, counts: Mapping[str, int], what: str) -> Figure:
    order = sorted(counts, key=lambda cause: -counts[cause])
    return Figure(
        name, title, "bar", Axis("cause", scale="category"), Axis(what, low=0.0),
        (Series(what, tuple(order), tuple(float(counts[cause]) for cause in order)),),
    )  # fmt: skip


def _hours(usage: Usage) -> Iterator[Figure]:
    """Where GPU-hours went, a bar a cause for each run task; of many run tasks all together."""
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
    found, table = results.of_run_task(experiment, name)
    own = {name: found} if _sound(found) else {}
    scored = [metric for metric, entry in (own[name]["metrics"] if own else {}).items() if entry]
    for metric in scored:
        yield _distribution({name: Place(experiment.scores_dir, name)}, metric)
    for metric in scored:
        yield from _in("quality", lambda metric=metric: charts.categories(own, metric))  # type: ignore[misc]
    yield from _in("failures", lambda: _causes(own))
    if not table:
        return
    alone = {"run_tasks": {name: table}, "sweeps": {}}
    yield from _in("speed", lambda: charts.latencies(alone, [name]))
    yield from _in("speed", lambda: charts.tokens(alone))
    if table.get("e2e_ms"):
        yield Entry(
            "speed", "latency-histogram", "E2E of requests", lambda: histogram(experiment, name)
        )
        yield Entry(
            "speed", "over-time", "Time of each request over the run",
            lambda: over_time(experiment, name),
        )  # fmt: skip
