"""State of an experiment, in one sentence."""

from __future__ import annotations

import time
from collections.abc import Iterator

from hpcbench.number_format import duration
from hpcbench.portal.models.experiments import ExperimentRow
from hpcbench.status import Eta, ExperimentStatus

_STATES = {
    "submitting": "submission is running",
    "interrupted": "its submission was interrupted",
    "pending": "waiting for Slurm",
    "paused": "paused",
    "evaluating": "all answers are there, evaluation is running",
    "stalled": "waiting for a command on the login node",
    "incomplete": "incomplete",
    "failed": "failed",
    "cancelled": "cancelled",
    "lost": "all its jobs have disappeared",
}
"""States that need a word beside the counts."""


def sentence(row: ExperimentRow, status: ExperimentStatus | None, now: float | None = None) -> str:
    """The counts, problems, the expected end, the use of its GPUs.

    Args:
        row: the experiment.
        status: its status; None: unknown.
        now: seconds since the epoch.
    """
    if row.state == "unreadable":
        return "It cannot be read: another version of hpcbench wrote it, or it is damaged."
    parts = [_done(row), *_others(row)]
    if row.state in _STATES:
        why = f": {status.reason}" if status is not None and status.reason else ""
        parts.append(_STATES[row.state] + why)
    if status is not None and row.state in ("running", "pending"):
        parts += _live(status, time.time() if now is None else now)
    said = ", ".join(parts)
    return said if said.endswith("…") else f"{said}."


def _done(row: ExperimentRow) -> str:
    done = row.tasks_by_state.get("done", 0)
    tasks = f"run task{'s' if row.run_tasks != 1 else ''}"
    if row.run_tasks and done == row.run_tasks:
        return f"All {done:,} {tasks} done" if done > 1 else f"Its {tasks} is done"
    return f"{done:,} of {row.run_tasks:,} {tasks} done"


def _others(row: ExperimentRow) -> Iterator[str]:
    for state in ("failed", "incomplete", "stopped", "cancelled"):
        if (count := row.tasks_by_state.get(state, 0)) and state != row.state:
            yield f"{count:,} {state}"


def _live(status: ExperimentStatus, now: float) -> Iterator[str]:
    if status.eta is not None:
        yield _when(status.eta, now)
    gpus = [gpu.utilisation for worker in status.workers for gpu in worker.gpus]
    known = [percent for percent in gpus if percent is not None]
    if known:
        busy = f"{sum(known) / len(known):.0f} % busy"
        yield f"{len(gpus)} GPU{'s' if len(gpus) != 1 else ''} {busy}"


def _when(eta: Eta, now: float) -> str:
    here, there = time.localtime(now), time.localtime(eta.likely)
    form = "%H:%M" if here[:3] == there[:3] else f"{there.tm_mday} %b %H:%M"
    wide = max(eta.high - eta.likely, eta.likely - eta.low)
    waits = " after its jobs start" if eta.waits else ""
    return f"done about {time.strftime(form, there)} ± {duration(max(90.0, wide))}{waits}"
