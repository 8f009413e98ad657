"""Run tasks of a baseline and of a candidate, with all runs of each.

A run task may have been asked several times: as `repeats` of one plan (run tasks `NAME-r1`, `NAME-r2`,
…), and again by `hpcbench regress` to confirm a failure. All of these are runs of one run task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcbench.comparison.differences import meant, same_prompt
from hpcbench.evaluation.repeats import base_of
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import Scores, scores
from hpcbench.experiment.view.performance_json import Speed, speeds
from hpcbench.schema.gate import SameInBoth
from hpcbench.schema.plan import ResolvedRunTask


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a run task."""

    experiment: Experiment
    """The experiment of the run."""
    run_task: ResolvedRunTask
    """Its run task there."""
    scores: Scores | None
    """Its scores in `metrics.json`; None: they cannot be read."""
    speed: Speed | None
    """Its table in `performance.json`; None: it cannot be read."""


Side = Mapping[str, Sequence[Run]]
"""Run task, without the mark of its repeats → its runs."""


def runs_of(experiment: Experiment) -> list[Run]:
    """All run tasks of an experiment, with their evaluated scores and speed."""
    known, timed = scores(experiment), speeds(experiment)
    return [
        Run(experiment, one, known.get(one.name), timed.get(one.name))
        for one in experiment.resolved.run_tasks
    ]


def side_of(experiments: Sequence[Experiment]) -> dict[str, list[Run]]:
    """All runs of experiments by run task; runs of the first experiment come first, in its plan's order."""
    found: dict[str, list[Run]] = {}
    for run in (run for experiment in experiments for run in runs_of(experiment)):
        found.setdefault(base_of(run.run_task.name), []).append(run)
    return found


def not_same(one: Run, other: Run, asked: Sequence[SameInBoth]) -> Iterator[str]:
    """Differences in properties that the policy requires to be the same, in words."""
    first, second = one.run_task, other.run_task
    here, there = one.experiment.measured, other.experiment.measured
    data = here.dataset_hashes.get(first.name), there.dataset_hashes.get(second.name)
    if "dataset" in asked and data[0] != data[1]:
        yield "the dataset's files differ"
    if "ml_task" in asked and meant(first.ml_task) != meant(second.ml_task):
        yield f"answers are read differently: {first.ml_task.name}, {second.ml_task.name}"
    if "prompt" in asked and not same_prompt(one.experiment, first, other.experiment, second):
        yield f"prompts differ: {first.prompt.name}, {second.prompt.name}"
    if "model" in asked and (
        meant(first.model) != meant(second.model)
        or here.model_hashes.get(first.model.name) != there.model_hashes.get(second.model.name)
    ):
        yield f"models differ: {first.model.name}, {second.model.name}"
