"""Rows and entries of an index, made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpcbench.files.json_places import Places
from hpcbench.portal.index import Account, Entry
from hpcbench.portal.models.experiments import ExperimentRow, RunTaskRow, Score, Usage


def score(value: float | None = 0.5, metric: str = "anls", **more: Any) -> Score:
    """A metric's value."""
    return Score(metric=metric, value=value, n=10, documents=5, **more)


def run_task(name: str = "rt", experiment: str = "e1", **more: Any) -> RunTaskRow:
    """A run task that is done; what is not given has a plain default."""
    values: dict[str, Any] = {
        "ml_task": "vqa", "model": "m", "dataset": "d", "prompt": "p", "state": "done", "samples": 10,
        "answered": 10, **more,
    }  # fmt: skip
    return RunTaskRow(experiment=experiment, name=name, **values)


def entry(
    identity: str = "e1",
    run_tasks: Sequence[RunTaskRow] | None = None,
    stamp: str = "[]",
    files: Mapping[str, Places] | None = None,
    **more: Any,
) -> Entry:
    """An experiment that is done, with one run task unless others are given."""
    tasks = (run_task(experiment=identity),) if run_tasks is None else tuple(run_tasks)
    values: dict[str, Any] = {
        "plan": "nightly", "state": "done", "created": 1000.0, "updated": 2000.0, "owner": "ada",
        "models": tuple(dict.fromkeys(one.model for one in tasks)),
        "datasets": tuple(dict.fromkeys(one.dataset for one in tasks)),
        "run_tasks": len(tasks), "tasks_by_state": {"done": len(tasks)},
        "samples": sum(one.samples for one in tasks), "answered": sum(one.answered for one in tasks), **more,
    }  # fmt: skip
    row, account = ExperimentRow(id=identity, **values), Account(Usage(gpu_hours=1.0))
    return Entry(row, tasks, account, stamp, files or {})
