"""Giving back what ended experiments take: files folded, left-overs removed, old experiments deleted.

Nothing is touched of an experiment that runs, or of which nobody can tell. Nothing outside its directory is
touched, and links are not followed.
"""

from __future__ import annotations

import shutil
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault, RunFailed
from hpcbench.experiment.archiving import fold, fold_workers
from hpcbench.experiment.baselines import baselines
from hpcbench.experiment.layout import Experiment, all_experiments, experiments_dir
from hpcbench.experiment.submission import rounds
from hpcbench.experiment.submission_lock import alone, submitting
from hpcbench.files.atomic import LEFT_OVER
from hpcbench.status.liveness import supervisors
from hpcbench.submit import secrets_file

DEAD_SECONDS = 3600.0
"""A file that is not whole and was not written to for so long has lost its writer."""

DELETED = ".deleted-"
"""What a directory is called while it is deleted: no experiment any more."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a directory takes."""

    files: int
    """Files and links, not folders."""
    bytes: int
    """Bytes allocated to them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What there is to clear of an experiment."""

    experiment: Experiment
    """The experiment."""
    busy: str
    """Why it has to be left alone; empty: it need not be."""
    before: Room
    """What it takes."""
    loose: int
    """Files that can be folded."""
    leftovers: tuple[Path, ...]
    """Files that nobody needs."""
    changed: float
    """When something last happened to it, seconds since the epoch."""


def living_jobs(experiments: Collection[Experiment]) -> frozenset[str] | str:
    """Ids of this user's array jobs that live, from one look at Slurm; or why nobody can tell."""
    if not any(one.resolved.executor == "slurm" for one in experiments):
        return frozenset()
    try:
        return frozenset(job.array_job for job in slurm.queue() if job.alive)
    except EnvironmentFault as fault:
        return str(fault)


def look(experiment: Experiment, jobs: frozenset[str] | str) -> Finding:
    """What there is to clear of an experiment; changes nothing.

    Args:
        experiment: the experiment.
        jobs: what `living_jobs` said.
    """
    busy = _busy(experiment, jobs)
    names = [run_task.name for run_task in experiment.resolved.run_tasks]
    folders = [*map(experiment.shards, names), experiment.workers()]
    loose = sum(
        name.endswith((".events.jsonl", ".responses.jsonl", ".monitor.jsonl"))
        for folder in folders
        for name in folder.loose
    )
    # Of files, not of folders: those change when something is removed.
    own = (path.lstat() for path in experiment.path.iterdir())
    changed = max((one.st_mtime for one in own if stat.S_ISREG(one.st_mode)), default=0.0)
    leftovers = tuple(_leftovers(experiment)) if not busy else ()
    return Finding(experiment, busy, room(experiment.path), loose, leftovers, changed)


def clear(finding: Finding) -> Finding:
    """Fold and remove what was found; returns what there is after that.

    Raises:
        OSError: the disk is full or gone; nothing is lost.
    """
    experiment = finding.experiment
    try:
        with alone(experiment):
            for run_task in experiment.resolved.run_tasks:
                fold(experiment, run_task.name)
            fold_workers(experiment, all_ended=True)
            for path in finding.leftovers:
                path.unlink(missing_ok=True)
    except RunFailed:  # somebody resumes it just now
        pass
    return look(experiment, frozenset())


def clear_home(root: Path, busy: Collection[str]) -> list[Path]:
    """What lies in a home and belongs to no experiment that runs; the caller removes it.

    Args:
        root: the home.
        busy: ids of experiments that have not ended.
    """
    halves = [path for path in _folders(experiments_dir(root)) if path.name.startswith(DELETED)]
    return [*halves, *secrets_file.leftovers(root, lambda one: one.id not in busy)]


def deletable(findings: Sequence[Finding], root: Path, days: float) -> list[Finding]:
    """Experiments of a home that ended so long ago and that no other one is compared with, by a baseline's
    name neither."""
    named = {str(baseline.experiment) for baseline in baselines(root)} | {
        str(experiment.manifest["baseline"])
        for experiment in all_experiments(root)
        if experiment.manifest.get("baseline")
    }
    home = experiments_dir(root).resolve()
    return [
        one
        for one in findings
        if not one.busy
        and time.time() - one.changed > days * 86400
        and one.experiment.path.parent.resolve() == home
        and not one.experiment.path.is_symlink()
        and not any(_is_meant(one.experiment, text) for text in named)
    ]


def delete(experiment: Experiment) -> None:
    """Delete an experiment as a whole: killed halfway, it is none any more, and the next `gc` ends it.

    Raises:
        RunFailed: somebody resumes it just now.
        OSError: part of it cannot be removed.
    """
    with alone(experiment):
        doomed = experiment.path.with_name(DELETED + experiment.id)
        experiment.path.rename(doomed)
    shutil.rmtree(doomed)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it.

    Raises:
        OSError: part of it cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def room(folder: Path) -> Room:
    """What a directory takes; links count as links."""
    files = size = 0
    for path in _walk(folder):
        files += 1
        try:
            size += path.lstat().st_blocks * 512
        except FileNotFoundError:
            files -= 1
    return Room(files, size)


def _busy(experiment: Experiment, jobs: frozenset[str] | str) -> str:
    """Why an experiment has to be left alone; empty: it need not be."""
    passes = rounds(experiment)
    if submitting(experiment):
        return "it is being submitted"
    if not passes or passes[-1].intents:
        return f"its submission was interrupted: `hpcbench resume {experiment.id}` goes on"
    if experiment.resolved.executor != "slurm":
        own, unseen = supervisors(experiment, passes)
        return "it runs" if own else f"it was started on {unseen}: look there" if unseen else ""
    if isinstance(jobs, str):
        return jobs
    return "it runs" if any(jobs.intersection(one.jobs.values()) for one in passes) else ""


def _leftovers(experiment: Experiment) -> Iterator[Path]:
    """Files that nobody needs any more, now that no job of the experiment lives."""
    for path in _walk(experiment.path):
        if (
            _is_of_submitit(path)
            if path.parent == experiment.jobs_dir
            else path.name.endswith(".ballast")
            or (LEFT_OVER.fullmatch(path.name) and _age(path) > DEAD_SECONDS)
        ):
            yield path


def _is_of_submitit(path: Path) -> bool:
    """Whether it is a pickle, or a log in which nothing stands."""
    empty = path.suffix in (".out", ".err", ".log") and not path.lstat().st_size
    return path.suffix == ".pkl" or empty


def _age(path: Path) -> float:
    return time.time() - path.lstat().st_mtime


def _is_meant(experiment: Experiment, text: str) -> bool:
    """Whether somebody who writes this may mean the experiment."""
    return experiment.id.startswith(text) or ("/" in text and Path(text) == experiment.path)


def _walk(folder: Path) -> Iterator[Path]:
    """Every file below a folder, and every link, which is not followed."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except FileNotFoundError:
        return []
