"""A metric's scores of single samples: their distribution, and the worst samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcbench.experiment.view.scores import ScoresFiles, rows_of

TEXTS = ("sample", "document", "outcome", "answer", "prediction", "references")
"""Columns of a scores file that describe a sample."""

BINS = 20
"""Bins of a distribution."""


def distributions(
    places: Mapping[str, ScoresFiles], metric: str
) -> dict[str, tuple[float, float, list[int]]]:
    """Distributions of the scores of run tasks' samples, all in the same bins.

    Args:
        places: run task → place of its scores.
        metric: a metric that they share.

    Returns:
        Run task → start of the first bin, end of the last bin, samples in each of `BINS` equal bins. The bins
        span 0 to 1, and further where values do. A run task without scores of the metric is left out.
    """
    import numpy

    found = {}
    for name, place in places.items():
        frame = rows_of(place.scores, [metric]) if place.scores.exists() else None
        if frame is not None and metric in frame.columns:
            values = frame[metric].drop_nulls().to_numpy()
            if len(values):
                found[name] = values
    low = min([0.0, *(float(values.min()) for values in found.values())])
    high = max([1.0, *(float(values.max()) for values in found.values())])
    return {
        name: (low, high, [int(n) for n in numpy.histogram(values, BINS, (low, high))[0]])
        for name, values in found.items()
    }


def worst(
    place: ScoresFiles, metric: str, count: int, *, higher_is_better: bool
) -> list[dict[str, Any]]:
    """The worst samples of a run task, worst first; without samples of the best possible score.

    Args:
        place: place of its scores.
        metric: one of its metrics.
        count: the most samples to return.
        higher_is_better: the direction of the metric.

    Returns:
        For each sample: `place` (its number among the samples asked, from 0), `sample`, `document`, `score`,
        `outcome`, `answer`, `prediction`, `references`; empty where there are no scores of this metric.
    """
    import polars

    if not place.scores.exists():
        return []
    # Read texts only of the few samples shown: a million answers would not fit into memory.
    known = rows_of(place.scores, ["sample", metric]).with_row_index("place")
    if metric not in known.columns:
        return []
    known = known.filter(polars.col(metric).is_not_null())
    best = max(1.0, known[metric].max() or 0.0) if higher_is_better else 0.0
    flawed = polars.col(metric) < best if higher_is_better else polars.col(metric) > best
    chosen = (
        known.filter(flawed)
        .sort([metric, "sample"], descending=[not higher_is_better, False])
        .head(count)
        .rename({metric: "score"})
    )
    if not chosen.height:
        return []
    texts = rows_of(
        place.scores,
        TEXTS,
        only=chosen["sample"].to_list(),
    ).unique("sample", keep="first")
    found = chosen.join(texts, on="sample", how="left", maintain_order="left")
    rows: list[dict[str, Any]] = found.to_dicts()
    return rows
