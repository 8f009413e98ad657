"""Figures of scores: intervals, categories, distributions, and samples that did not end well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpcbench import number_format as form
from hpcbench.experiment.counts import DEFINITIONS, OUTCOMES
from hpcbench.experiment.view.metrics_json import GroupRow, Level, Scores
from hpcbench.reporting.charts.figure_names import stem
from hpcbench.reporting.figures import Axis, Figure, Matrix, Series
from hpcbench.reporting.figures.style import outcome_rank
from hpcbench.reporting.printed_tables import MetricRow, first_metric

OUTLINES = 5
"""Most histograms drawn over each other; more become rows of a heatmap."""

METRICS = 8
"""Metrics side by side in one figure."""

ROWS = 60
"""Run tasks in one figure of scores."""

MOST = 12
"""Figures of one kind in a report."""


def metrics(rows: Sequence[MetricRow]) -> Iterator[Figure]:
    """Every metric with its interval, a row for each run task; with many run tasks a figure for each ML task.

    A metric that exceeds 1 has its own figure: on one scale it would hide the shares.
    """
    known = [row for row in rows if row.value is not None]
    several = len({row.run_task for row in known}) > ROWS
    for kind in dict.fromkeys(row.ml_task if several else "" for row in known):
        some = [row for row in known if not several or row.ml_task == kind]
        beyond = [name for name in _names(some) if _beyond([r for r in some if r.metric == name])]
        shares = [row for row in some if row.metric not in beyond]
        if shares:
            yield _dots(shares, kind, "")
        for name in beyond:
            yield _dots([row for row in some if row.metric == name], kind, name)


def _names(rows: Sequence[MetricRow]) -> list[str]:
    return list(dict.fromkeys(row.metric for row in rows))


def _beyond(rows: Sequence[MetricRow]) -> bool:
    return any((row.value or 0.0) > 1 or (row.value or 0.0) < -1 for row in rows)


def _dots(rows: Sequence[MetricRow], kind: str, alone: str) -> Figure:
    names = _names(rows)
    notes = []
    if len(names) > METRICS:
        notes.append(f"{METRICS} of {len(names)} metrics are drawn; the table of scores has all.")
    series = []
    for place, name in enumerate(names[:METRICS]):
        some = [row for row in rows if row.metric == name]
        series.append(
            Series(
                f"{name} {form.arrow(higher_is_better=some[0].higher_is_better)}",
                tuple(row.run_task for row in some),
                tuple(row.value for row in some),
                tuple(row.low for row in some),
                tuple(row.high for row in some),
                None if place else tuple(_covered(row) for row in some),
            )
        )
    ends = [end for row in rows for end in (row.low, row.value, row.high) if end is not None]
    value = Axis("value with 95 % interval", low=min(0.0, *ends), high=max(1.0, *ends))
    if alone:
        value = Axis(f"{alone} with 95 % interval", low=min(0.0, *ends))
    title = f"{alone or 'Scores'} with 95 % intervals"
    return Figure(
        stem("scores", kind, alone),
        f"{title}: {kind}" if kind else title,
        "interval",
        Axis("run task", scale="category"),
        value,
        tuple(series),
        notes=tuple(notes),
    )


def _covered(row: MetricRow) -> str:
    """Label beside the first metric of a run task whose coverage is not complete."""
    return "" if row.coverage >= 1 else f"coverage {form.share(row.coverage)}"


def categories(run_tasks: Mapping[str, Scores], metric: str | None = None) -> Iterator[Figure]:
    """The value of each category, one bar for each run task with the same samples and metric.

    Args:
        run_tasks: their scores in `metrics.json`; only run tasks with `groups` have categories.
        metric: its name; None: the first of each run task.
    """
    found: dict[tuple[str, str | None, tuple[str, ...], str], dict[str, Level]] = {}
    for name, table in run_tasks.items():
        chosen = metric or first_metric(table)
        for level in table.groups:
            if chosen and level.groups > 1 and any(row.metric == chosen for row in level.rows):
                key = table.dataset, table.split, level.by, chosen
                found.setdefault(key, {})[name] = level
    for (dataset, split, by, chosen), levels in list(found.items())[:MOST]:
        where = f"{dataset}, {split}" if split else dataset
        entry = run_tasks[next(iter(levels))].metrics.get(chosen)
        better = form.arrow(higher_is_better=entry is None or entry.higher_is_better)
        series = [_bars(name, level, chosen) for name, level in levels.items()]
        low = min((v for one in series for v in one.low or () if v is not None), default=0.0)
        yield Figure(
            stem("categories", where, *by, chosen),
            f"{chosen} by {' × '.join(by)} on {where}",
            "bar",
            Axis(" × ".join(by), scale="category"),
            Axis(f"{chosen} {better} with 95 % interval", low=min(0.0, low)),
            tuple(series),
        )


def _bars(name: str, level: Level, metric: str) -> Series:
    rows = [row for row in level.rows if row.metric == metric]
    names = [", ".join(row.by[one] or "–" for one in level.by) for row in rows]
    return Series(
        name,
        tuple(names),
        tuple(row.value for row in rows),
        tuple(row.low for row in rows),
        tuple(row.high for row in rows),
        tuple(_counted(row) for row in rows),
    )


def _counted(row: GroupRow) -> str:
    text = f"n {row.asked}"
    return text if row.coverage >= 1 else f"{text}, coverage {form.share(row.coverage)}"


def distribution(
    counts: Mapping[str, Sequence[int]],
    metric: str,
    low: float = 0.0,
    high: float = 1.0,
) -> Figure | None:
    """The distribution of samples' scores: a histogram; for many run tasks a heatmap with one row for each.

    A pie would show the sizes of shares, but neither their order nor a gap between right and wrong.
    The gap distinguishes a metric that gives all or nothing from a metric that gives parts.

    Args:
        counts: run task → how many of its scores are in each bin.
        metric: its name, optionally with its arrow.
        low: of the first bin.
        high: of the last bin.
    """
    there = {name: tuple(some) for name, some in counts.items() if any(some)}
    if not there:
        return None
    count = len(next(iter(there.values())))
    edges = tuple(low + (high - low) * place / count for place in range(count + 1))
    shares = {name: tuple(n / sum(some) for n in some) for name, some in there.items()}
    x = Axis(metric)
    title = f"Distribution of {metric} over samples"
    if len(there) > OUTLINES:
        spans = tuple(
            f"{edge:.3g}–{upper:.3g}" for edge, upper in zip(edges, edges[1:], strict=False)
        )
        cells = tuple(shares.values())
        most = max(max(row) for row in cells)
        shade = Axis("share of samples", low=0.0, high=most)
        matrix = Matrix(tuple(shares), spans, cells)
        return Figure(stem("distribution", metric), title, "heatmap", x, shade, matrix=matrix)
    if len(there) == 1:
        (only,) = there.values()
        alone = Series(next(iter(there)), edges, tuple(float(n) for n in only))
        return Figure(
            stem("distribution", metric), title, "histogram", x, Axis("samples", low=0.0), (alone,)
        )
    series = tuple(Series(name, edges, some) for name, some in shares.items())
    up = Axis("share of samples", low=0.0)
    return Figure(stem("distribution", metric), title, "histogram", x, up, series)


def outcomes(run_tasks: Mapping[str, Scores]) -> Iterator[Figure]:
    """Samples without an answer that counts, by outcome; no figure where all went well.

    Args:
        run_tasks: their scores in `metrics.json`.
    """
    wrong: dict[str, dict[str, float]] = {}
    for name, table in run_tasks.items():
        counts = {OUTCOMES[key]: n for key, n in table.outcomes.items() if key != "ok" and n}
        if table.unreadable:
            counts["unreadable"] = table.unreadable
        if counts and table.asked:
            wrong[name] = {key: n / table.asked * 100 for key, n in counts.items()}
    if not wrong:
        return
    kinds = sorted({key for shares in wrong.values() for key in shares}, key=outcome_rank)
    names = sorted(wrong, key=lambda name: -sum(wrong[name].values()))
    series = tuple(
        Series(kind, tuple(names), tuple(wrong[name].get(kind) for name in names)) for kind in kinds
    )
    notes = []
    if "unreadable" in kinds:
        notes.append(f"Unreadable: {DEFINITIONS['unreadable']}.")
    if len(wrong) < len(run_tasks):
        notes.append(f"All samples of {len(run_tasks) - len(wrong)} other run tasks are ok.")
    yield Figure(
        "outcomes", "Samples that are not ok, by outcome", "bar", Axis("run task", scale="category"),
        Axis("share of samples", "%", low=0.0), series, notes=tuple(notes), outcomes=True,
    )  # fmt: skip
