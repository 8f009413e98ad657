"""Models × datasets of an experiment, from the rows of its run tasks."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.experiment.view.metrics_json import variants
from hpcbench.portal.models.experiments import Matrix, MatrixCell, MatrixRow, RunTaskRow, Score

MOST = 2_000
"""Most run tasks in matrices; the list has all run tasks."""


def matrices(run_tasks: Sequence[RunTaskRow]) -> tuple[Matrix, ...]:
    """One matrix per ML task.

    Args:
        run_tasks: rows in the order of the plan.
    """
    kinds: dict[str, list[RunTaskRow]] = {}
    for row in run_tasks[:MOST]:
        kinds.setdefault(row.ml_task, []).append(row)
    return tuple(_matrix(ml_task, rows) for ml_task, rows in kinds.items())


def _matrix(ml_task: str, rows: Sequence[RunTaskRow]) -> Matrix:
    first = next((row.scores[0] for row in rows if row.scores), None)
    metric = first.metric if first else None
    columns = {name: place for place, name in enumerate(dict.fromkeys(row.dataset for row in rows))}
    scores = {row.name: _score(row, metric) for row in rows}
    best = _best(rows, scores, up=first.higher_is_better if first else True)
    found: dict[tuple[str, str], list[MatrixCell | None]] = {}
    labels = variants([((row.model, row.dataset), row.prompt, row.name) for row in rows])
    for row, variant in zip(rows, labels, strict=True):
        score = scores[row.name]
        cells = found.setdefault((row.model, variant), [None] * len(columns))
        cells[columns[row.dataset]] = MatrixCell(
            run_task=row.name,
            state=row.state,
            reason=row.reason,
            answered=row.answered,
            samples=row.samples,
            coverage=row.coverage,
            score=score,
            leads=score is not None and score.value == best.get(row.dataset),
        )
    return Matrix(
        ml_task=ml_task,
        metric=metric,
        higher_is_better=first.higher_is_better if first else True,
        columns=tuple(columns),
        rows=tuple(
            MatrixRow(model=model, variant=variant, cells=tuple(cells))
            for (model, variant), cells in found.items()
        ),
    )


def _score(row: RunTaskRow, metric: str | None) -> Score | None:
    found = next((score for score in row.scores if score.metric == metric), None)
    return found if found is not None and found.value is not None else None


def _best(
    rows: Sequence[RunTaskRow], scores: dict[str, Score | None], *, up: bool
) -> dict[str, float]:
    """Dataset → its best value; only datasets with more than one value."""
    values: dict[str, list[float]] = {}
    for row in rows:
        score = scores[row.name]
        if score is not None and score.value is not None:
            values.setdefault(row.dataset, []).append(score.value)
    pick = max if up else min
    return {dataset: pick(some) for dataset, some in values.items() if len(some) > 1}
