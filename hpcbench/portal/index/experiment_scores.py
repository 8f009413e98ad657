"""Values of experiments, from the values of their run tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hpcbench.portal.models.experiments import DatasetScore, RunTaskRow, Score


def by_dataset(rows: Sequence[RunTaskRow]) -> Iterator[tuple[int, DatasetScore]]:
    """Values by dataset and metric: of the only run task that has one, or means of several.

    Yields:
        The place of the metric among those of its first run task, from 0; the value.
    """
    found: dict[tuple[str, str], list[Score]] = {}
    places: dict[tuple[str, str], int] = {}
    for row in rows:
        for place, score in enumerate(row.scores):
            if score.value is not None:
                key = row.dataset, score.metric
                found.setdefault(key, []).append(score)
                places.setdefault(key, place)
    for key, scores in found.items():
        if (whole := mean(scores, len(scores))) is not None:
            yield places[key], DatasetScore(**dict(whole), dataset=key[0], run_tasks=len(scores))


def mean(scores: Sequence[Score], run_tasks: int) -> Score | None:
    """The value of the only run task, or the mean if all scored run tasks share the metric.

    Args:
        scores: values of the scored run tasks.
        run_tasks: number of all run tasks.
    """
    if run_tasks == 1 and scores:
        return scores[0]
    known = [(score, score.value) for score in scores if score.value is not None]
    if not known or len({score.metric for score in scores}) != 1:
        return None
    return Score(
        metric=known[0][0].metric,
        value=math.fsum(value for _, value in known) / len(known),
        n=sum(score.n for score, _ in known),
        documents=sum(score.documents for score, _ in known),
        higher_is_better=known[0][0].higher_is_better,
        unit=known[0][0].unit,
        standing=known[0][0].standing,
    )
