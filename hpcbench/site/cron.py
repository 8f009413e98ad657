"""`hpcbench submit PLAN --if-idle`: repeated calls, by cron or by hand, never overlap.

Every run of a plan is a file `HOME/cron/NAME-HASH/NNNNN.jsonl`, created exclusively: the process that
creates it submits the run. Its lines record the progress: `claimed`, `experiment` (prepared; from here on
the next call knows the experiment), `collected` (its outcome was printed). After a kill at any point the
next call continues from these records.
"""

from __future__ import annotations

import hashlib
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.experiment.layout import Experiment, experiments_dir, home
from hpcbench.files.atomic import Appender, create_exclusive, read_lines
from hpcbench.files.lease import abandoned, beating, this_process
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.status import (
    ENDED,
    ExperimentStatus,
    due,
    status,
)
from hpcbench.submit.fingerprint import interpreter

KEPT = 20
"""Number of records of a plan's runs that are kept."""


def cron_dir(root: Path) -> Path:
    """Folder of records, scripts and logs below a home."""
    return root / "cron"


@dataclass(frozen=True, slots=True)
class Idle:
    """Functions that the caller of `if_idle` provides."""

    prepare: Callable[[], Experiment]
    """Makes the next experiment, ready to submit."""
    submit: Callable[[Experiment], Any]
    """Submits an experiment, or its missing part."""
    tell: Callable[[ExperimentStatus], None]
    """Prints the outcome of the last experiment; once."""
    say: Callable[[str], None]
    """Prints a line."""


def if_idle(plan: Path, resolved: ResolvedPlan, ask: Idle) -> Experiment | None:
    """Submit the plan's next run if the last one has ended; otherwise do the last one's due work.

    Args:
        plan: the plan's file; file and plan name decide which runs belong together.
        resolved: the plan.
        ask: functions of the caller.

    Returns:
        The submitted experiment; None if there is none.

    Raises:
        HpcbenchError: an error of preparing or submitting; the next call tries again.
    """
    runs = Runs(home(resolved.site), plan, resolved.plan.name)
    newest = runs.newest
    if newest is not None and newest.busy:
        ask.say(f"{newest.holder} submits {plan.name} at the moment: nothing submitted")
        return None
    last = runs.last_with_experiment()
    ended = None
    if last is not None and last.experiment is not None:
        ended = looked_after(last.experiment, ask.submit, ask.say)
        if ended is None:
            return None
    mine = runs.claim(newest.number + 1 if newest is not None else 1)
    if mine is None:
        ask.say(f"another process submits {plan.name} at the moment: nothing submitted")
        return None
    with beating(mine.path):
        try:
            if last is not None and ended is not None and not last.collected:
                ask.tell(ended)
                last.note("collected")
            experiment = ask.prepare()
        except BaseException:
            mine.path.unlink(missing_ok=True)  # so that the next call need not wait for us
            raise
        now = runs.newest
        if now is None or now.number != mine.number:  # another call took over, as we slept too long
            ask.say(f"another process took over {plan.name}: nothing submitted")
            return None
        mine.note("experiment", experiment=experiment.id)
    runs.forget_old(mine.number)
    ask.submit(experiment)
    return experiment


def looked_after(
    last: Experiment, submit: Callable[[Experiment], Any], say: Callable[[str], None]
) -> ExperimentStatus | None:
    """Do and print a run's due work; returns its status if it has ended, else None."""
    now = status(last)
    if due(last, now):
        _finalise(last)
        now = status(last)
    if now.state == "interrupted":
        submit(last)
        say(f"{last.id}: completed its interrupted submission")
        return None
    if now.state not in ENDED:
        say(f"{last.id} is {now.state}: nothing submitted")
        return None
    return now


def _finalise(experiment: Experiment) -> None:
    """Do on this login node the work that jobs of the experiment cannot do, or can no longer do."""
    # A separate process: it imports evaluation and reports, and runs in the experiment's Python.
    subprocess.run(
        [*interpreter(experiment), "-m", "hpcbench.finalise", str(experiment.path)],
        stdin=subprocess.DEVNULL,
        check=False,
    )


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a plan, as its file says."""

    path: Path
    """The file."""
    number: int
    """1 for the first."""
    holder: str
    """Process that created the file."""
    experiment: Experiment | None
    """Its experiment; None: not prepared yet."""
    collected: bool
    """Whether its outcome was printed."""

    @property
    def busy(self) -> bool:
        """Whether a process is still preparing its experiment."""
        return self.experiment is None and not abandoned(self.path)

    def note(self, event: str, **details: str) -> None:
        """Append progress to the file, for this process and for the next call."""
        with Appender(self.path) as log:
            log.write({"event": event, "time": time.time(), **details})


class Runs:
    """The runs of one plan file.

    Args:
        root: the home of experiments.
        plan: the plan's file.
        name: the plan's name.
        folder: folder of the records of all plans' runs; None: the folder of `submit --if-idle`.
    """

    def __init__(self, root: Path, plan: Path, name: str, folder: Path | None = None) -> None:
        self._root = root
        path = str(plan.resolve())
        key = hashlib.sha256(path.encode()).hexdigest()[:8]
        self.folder = (folder or cron_dir(root)) / f"{name}-{key}"
        self._plan = path

    @property
    def newest(self) -> Run | None:
        """The newest run."""
        numbers = self._numbers()
        return self._read(numbers[-1]) if numbers else None

    def last_with_experiment(self) -> Run | None:
        """The newest run that has an experiment; None if that experiment no longer exists."""
        for number in reversed(self._numbers()):
            run = self._read(number)
            if run.experiment is not None:
                return run if run.experiment.manifest_file.exists() else None
        return None

    @property
    def with_experiments(self) -> list[Run]:
        """Runs that have an experiment, oldest first."""
        found = map(self._read, self._numbers())
        return [run for run in found if run.experiment is not None]

    def claim(self, number: int) -> Run | None:
        """Create this run's file; None if another process has created it."""
        record: Mapping[str, Any] = {
            "event": "claimed",
            "time": time.time(),
            **this_process(),
            "token": secrets.token_hex(4),
            "plan": self._plan,
        }
        path = self._path(number)
        return self._read(number) if create_exclusive(path, record) else None

    def forget_old(self, number: int) -> None:
        """Remove old records."""
        for old in self._numbers():
            if old <= number - KEPT:
                self._path(old).unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        found = [path.stem for path in self.folder.glob("*.jsonl")]
        return sorted(int(stem) for stem in found if stem.isdecimal())

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.jsonl"

    def _read(self, number: int) -> Run:
        said = {line["event"]: line for line in read_lines(self._path(number))}
        first = said.get("claimed", {})
        name = said.get("experiment", {}).get("experiment")
        return Run(
            self._path(number),
            number,
            f"process {first.get('pid')} on {first.get('host')}",
            Experiment(experiments_dir(self._root) / name) if name is not None else None,
            "collected" in said,
        )
