"""Control requests to a running experiment: pause, cancel, resume. Workers read these files; no signals.

A request is a file `control/NNNNN.json`, created exclusively: two concurrent shells write two requests in one
order, and no request is ever rewritten. A request addresses a whole experiment or single run tasks.
hpcbench itself writes three commands, each with a reason: `stop` (the GPU-hours or the budget are used up),
`fail` (a pilot failed, so the rest would fail, too) and `enough` (a comparison of two arms has its result;
their remaining shards are not needed).
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcbench.experiment.event_log import event
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import create_exclusive, log_damage, read_lines
from hpcbench.schema.decoding import decoded_part

Command = Literal["pause", "resume", "cancel", "stop", "fail", "enough"]
"""A requested command."""


@dataclass(frozen=True, slots=True)
class ControlState:
    """The combined effect of all requests."""

    cancelled: bool = False
    """The experiment shall end."""
    paused: bool = False
    """The experiment shall rest until it is resumed."""
    cancelled_tasks: frozenset[str] = frozenset()
    """Run tasks that shall end."""
    paused_tasks: frozenset[str] = frozenset()
    """Run tasks that shall rest."""
    stopped_tasks: Mapping[str, str] = field(default_factory=dict)
    """Run tasks that hpcbench ended → why."""
    failed_tasks: Mapping[str, str] = field(default_factory=dict)
    """Run tasks whose pilot failed → why."""
    enough_tasks: Mapping[str, str] = field(default_factory=dict)
    """Run tasks with enough answers → why: their remaining shards are not needed."""
    pilot: int | None = None
    """Samples of a pilot, set by the last `resume`; None: as the plan says."""
    budget: Mapping[str, float] = field(default_factory=dict)
    """Parts of the budget that users gave to `resume`, see `budget.py`; all others are the plan's."""

    def rests(self, run_task: str) -> bool:
        """Whether no worker may work on this run task now."""
        return (
            self.cancelled or self.paused or self.ended(run_task) or run_task in self.paused_tasks
        )

    def ended(self, run_task: str) -> bool:
        """Whether no worker may work on this run task any more, while other run tasks go on."""
        return (
            run_task in self.cancelled_tasks
            or run_task in self.stopped_tasks
            or run_task in self.failed_tasks
            or run_task in self.enough_tasks
        )


def control_request(
    experiment: Experiment,
    command: Command,
    run_tasks: Sequence[str] = (),
    reason: str = "",
    pilot: int | None = None,
    budget: Mapping[str, float] | None = None,
) -> None:
    """Request a command for an experiment or some of its run tasks.

    Args:
        experiment: the experiment.
        command: the command.
        run_tasks: names; none: the experiment.
        reason: why hpcbench itself requests it.
        pilot: samples of later pilots.
        budget: parts of the budget from now on.
    """
    details: dict[str, Any] = {
        "by": getpass.getuser(), "run_tasks": list(run_tasks), "reason": reason,
        **({} if pilot is None else {"pilot": pilot}), **({"budget": dict(budget)} if budget else {}),
    }  # fmt: skip
    number = max(_numbers(experiment.control_dir), default=0) + 1
    while not create_exclusive(
        experiment.control_dir / f"{number:05d}.json", event(command, number, **details)
    ):
        number += 1


@dataclass(frozen=True, slots=True)
class _Request:
    """The form of a request."""

    event: str
    run_tasks: tuple[str, ...]
    reason: str = ""
    pilot: int | None = None
    budget: Mapping[str, float] = field(default_factory=dict)


def control_state(experiment: Experiment) -> ControlState:
    """The current effect of all requests."""
    now = ControlState()
    for one in said(experiment):
        now = _after(now, one)
    return now


def said(experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Every request, oldest first; a damaged one is logged and left out."""
    for number in sorted(_numbers(experiment.control_dir)):
        path = experiment.control_dir / f"{number:05d}.json"
        line = next(read_lines(path, lambda *_: None), {})
        try:
            decoded_part(_Request, line)
        except ValueError as error:
            log_damage(path, f"{path} is damaged, so its request does not count: {error}")
        else:
            yield line


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(path.stem) for path in folder.iterdir() if path.stem.isdigit()]
    except FileNotFoundError:
        return []


def _after(now: ControlState, one: Mapping[str, Any]) -> ControlState:
    command, names = one["event"], frozenset(one["run_tasks"])
    cancelled, paused = now.cancelled_tasks, now.paused_tasks
    stopped, enough = dict(now.stopped_tasks), dict(now.enough_tasks)
    failed = dict(now.failed_tasks)
    if command == "resume":
        # Resume of the whole: run tasks that people ended stay ended; if hpcbench ended them, retry.
        lifted = names or frozenset({**stopped, **failed})
        return ControlState(
            cancelled=now.cancelled and bool(names),
            paused=now.paused and bool(names),
            cancelled_tasks=cancelled - names,
            paused_tasks=paused - names if names else frozenset(),
            stopped_tasks={name: why for name, why in stopped.items() if name not in lifted},
            failed_tasks={name: why for name, why in failed.items() if name not in lifted},
            enough_tasks={name: why for name, why in enough.items() if name not in names},
            pilot=one.get("pilot"),
            budget={**now.budget, **one.get("budget", {})},
        )
    if command == "stop":
        stopped |= dict.fromkeys(names, one["reason"])
    elif command == "fail":
        failed |= dict.fromkeys(names, one["reason"])
    elif command == "enough":
        enough |= dict.fromkeys(names, one["reason"])
    return ControlState(
        cancelled=now.cancelled or (command == "cancel" and not names),
        paused=now.paused or (command == "pause" and not names),
        cancelled_tasks=cancelled | names if command == "cancel" else cancelled,
        paused_tasks=paused | names if command == "pause" else paused,
        stopped_tasks=stopped,
        failed_tasks=failed,
        enough_tasks=enough,
        pilot=now.pilot,
        budget=now.budget,
    )
