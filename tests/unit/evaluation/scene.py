"""Experiments with strange metrics, and their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.metric import Metric
from tests.unit.small import experiment, record, response, write_attempt

HERE = "tests.unit.evaluation.strange"


def strange(*names: str, **options: Mapping[str, Any]) -> tuple[Metric, ...]:
    """Documents of metrics of `strange`, called like their classes in small letters."""
    return tuple(
        Metric(name=name.lower(), plugin=f"{HERE}.{name}", options=options.get(name, {}))
        for name in names
    )


def with_metrics(here: Experiment, metrics: Sequence[Metric], **ml_task: Any) -> Experiment:
    """The experiment with other metrics in its resolved plan."""
    plan = here.resolved
    (one,) = plan.run_tasks
    changed = one.model_copy(
        update={"metrics": tuple(metrics), "ml_task": one.ml_task.model_copy(update=ml_task)}
    )
    here.resolved_file.write_text(
        plan.model_copy(update={"run_tasks": (changed,)}).model_dump_json()
    )
    return Experiment(here.path)


def asked(
    folder: Path,
    answers: Sequence[str | None],
    metrics: Sequence[Metric],
    records: Sequence[Mapping[str, Any]] | None = None,
    shard_size: int = 100,
    dataset: Mapping[str, Any] | None = None,
    **task: Any,
) -> Experiment:
    """An experiment in which sample n was answered so; the right answer is n."""
    lines = records or [record(number) for number in range(len(answers))]
    here = experiment(folder, lines, shard_size, **task)
    if dataset:
        plan = here.resolved
        (one,) = plan.run_tasks
        changed = one.model_copy(update={"dataset": one.dataset.model_copy(update=dict(dataset))})
        here.resolved_file.write_text(
            plan.model_copy(update={"run_tasks": (changed,)}).model_dump_json()
        )
        here = Experiment(here.path)
    for shard in here.work.shards:
        some = [
            response(f"s{number}", answers[number])
            for number in range(shard.start, min(shard.stop, len(answers)))
        ]
        write_attempt(here, shard.index, 1, some)
    return with_metrics(here, metrics) if metrics else here


def reported(here: Experiment) -> dict[str, Any]:
    """Entry of the one run task in `metrics.json`, after evaluation."""
    found: dict[str, Any] = evaluate(here).to_json()["run_tasks"]["rt"]
    return found
