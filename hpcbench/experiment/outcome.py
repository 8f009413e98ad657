"""How an experiment ended, as written by the finalising job: `outcome.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcbench.errors import OTHER_FORM, DamagedFile
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.files.atomic import read_json, write_json

VERSION = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an experiment ended."""

    round: int
    """The outcome's round."""
    state: str
    """`done`, `incomplete`, `failed` or `cancelled`."""
    reason: str = ""
    """Why the experiment is not done, if known."""
    run_tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Run task → how it ended, as `ending.Ending.to_json` gives it; earlier versions did not write it."""
    shards_left: tuple[str, ...] = ()
    """Ids of unfinished shards."""
    notify: bool = False
    """Whether notifications are owed: if a process is killed before it sends them, the next look does."""

    @property
    def why(self) -> str:
        """`: REASON`, or empty."""
        return f": {self.reason}" if self.reason else ""

    def write(self, experiment: Experiment) -> None:
        """Write the outcome to the experiment's `outcome.json`.

        Raises:
            OSError: the file cannot be written.
        """
        record: dict[str, Any] = {
            "version": VERSION,
            "round": self.round,
            "state": self.state,
            "reason": self.reason,
            "run_tasks": self.run_tasks,
            "shards_left": list(self.shards_left),
        }
        write_json(experiment.outcome_file, {**record, **({"notify": True} if self.notify else {})})


def outcome(experiment: Experiment) -> Outcome | None:
    """How an experiment ended; None: no outcome is written yet, or it is damaged."""
    try:
        found = read_json(experiment.outcome_file)
        run_tasks, left = found.get("run_tasks"), found.get("shards_left")
        return Outcome(
            int(found["round"]),
            str(found["state"]),
            str(found.get("reason") or ""),
            run_tasks if isinstance(run_tasks, dict) else {},
            tuple(map(str, left)) if isinstance(left, list) else (),
            found.get("notify") is True,
        )
    except (FileNotFoundError, *OTHER_FORM):
        return None


def state_of(experiment: Experiment) -> str:
    """The experiment's final state; empty: it has not ended."""
    known = outcome(experiment)
    return known.state if known is not None else ""


def not_whole(experiment: Experiment) -> str | None:
    """`ID is incomplete: WHY` if the experiment ended badly; None if it ended well, or has not ended."""
    known = outcome(experiment)
    if known is None or known.state == "done":
        return None
    return f"{experiment.id} is {known.state}{known.why}"


def ended(experiment: Experiment) -> bool:
    """Whether the newest round has its outcome; False without a record of rounds, or with a damaged one."""
    try:
        known, submitted = outcome(experiment), rounds(experiment)
    except DamagedFile:
        return False
    return known is not None and bool(submitted and known.round == submitted[-1].number)
