"""Run tasks of a baseline and of a candidate, with all runs there are of each.

A run task may have been asked several times: as `repeats` of one plan (run tasks `NAME-r1`, `NAME-r2`,
…), and again by `hpcbench regress` to confirm a failure. All of those are runs of one run task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.comparison.differences import same_prompt
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.results import metrics_of, performance_of, tables_if_any
from hpcbench.schema.documents import SameInBoth
from hpcbench.schema.plan import ResolvedRunTask

_REPEAT = re.compile(r"-r[0-9]+(?=$|-c[0-9]+$|-r[0-9.]+$)")
"""The mark of a repeat in a run task's name; the point of a sweep comes after it."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a run task."""

    experiment: Experiment
    """Where."""
    run_task: ResolvedRunTask
    """As what."""
    scores: Mapping[str, Any]
    """What `metrics.json` says of it; empty: it cannot be read."""
    speed: Mapping[str, Any]
    """What `performance.json` says of it; empty: it cannot be read."""


Side = Mapping[str, Sequence[Run]]
"""Run task, without the mark of its repeats → its runs."""


def runs_of(experiment: Experiment) -> list[Run]:
    """All run tasks of an experiment, with what evaluation wrote of them."""
    scores, speed = (tables_if_any(read, experiment) for read in (metrics_of, performance_of))
    return [
        Run(experiment, one, scores.get(one.name) or {}, speed.get(one.name) or {})
        for one in experiment.resolved.run_tasks
    ]


def side_of(experiments: Sequence[Experiment]) -> dict[str, list[Run]]:
    """All runs of experiments by run task; the first experiment's come first, in its plan's order."""
    found: dict[str, list[Run]] = {}
    for run in (run for experiment in experiments for run in runs_of(experiment)):
        found.setdefault(base_of(run.run_task.name), []).append(run)
    return found


def base_of(run_task: str) -> str:
    """A run task's name without the mark of its repeat: `vqa-r2` is a run of `vqa`, `vqa-r2-c8` of
    `vqa-c8`."""
    return _REPEAT.sub("", run_task)


def not_same(one: Run, other: Run, asked: Sequence[SameInBoth]) -> Iterator[str]:
    """What differs of that which has to be the same, in words."""
    first, second = one.run_task, other.run_task
    if "dataset" in asked and _measured(one, "dataset_hashes") != _measured(
        other, "dataset_hashes"
    ):
        yield "the dataset's files differ"
    if "ml_task" in asked and _said(first.ml_task) != _said(second.ml_task):
        yield f"answers are read otherwise: {first.ml_task.name}, {second.ml_task.name}"
    if "prompt" in asked and not same_prompt(one.experiment, first, other.experiment, second):
        yield f"prompts differ: {first.prompt.name}, {second.prompt.name}"
    if "model" in asked and (
        _said(first.model) != _said(second.model)
        or _measured(one, "model_hashes", first.model.name)
        != _measured(other, "model_hashes", second.model.name)
    ):
        yield f"models differ: {first.model.name}, {second.model.name}"


def _said(document: Any) -> Any:
    """A document without what is for people only."""
    words = {"version", "description", "notes", "metadata", "schema_version"}
    return document.model_dump(exclude=words)


def _measured(run: Run, what: str, name: str | None = None) -> Any:
    measured: Any = run.experiment.manifest.get("measured", {})
    return measured.get(what, {}).get(name or run.run_task.name)
