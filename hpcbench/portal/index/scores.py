"""Values of experiments, from the values of their run tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hpcbench.portal.models.experiments import DatasetScore, RunTaskRow, Score


def by_dataset(rows: Sequence[RunTaskRow]) -> Iterator[DatasetScore]:
    """Values by dataset and metric: of the only run task that has one, or means of several."""
    found: dict[tuple[str, str], list[Score]] = {}
    for row in rows:
        for score in row.scores:
            if score.value is not None:
                found.setdefault((row.dataset, score.metric), []).append(score)
    for (dataset, _), scores in found.items():
        if (whole := mean(scores, len(scores))) is not None:
            yield DatasetScore(**dict(whole), dataset=dataset, run_tasks=len(scores))


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
    )
