"""Free the space of ended experiments: fold files, remove leftovers, delete old experiments.

An experiment that runs, or whose state is unknown, stays as it is. Files outside its directory stay as
they are, and links are not followed.
"""

from __future__ import annotations

import shutil
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcbench import slurm
from hpcbench.errors import DamagedFile, EnvironmentFault, RunFailed
from hpcbench.experiment import answer_index
from hpcbench.experiment.archiving import fold, fold_workers, loose
from hpcbench.experiment.baselines import baselines
from hpcbench.experiment.layout import Experiment, all_experiments, experiments_dir
from hpcbench.experiment.reused import reused_of
from hpcbench.experiment.submission import rounds
from hpcbench.experiment.submission_lock import alone, submitting
from hpcbench.files.atomic import LEFT_OVER
from hpcbench.status.liveness import supervisors
from hpcbench.submit import secrets_file

DEAD_SECONDS = 3600.0
"""An incomplete file that has not changed for this long has lost its writer."""

DELETED = ".deleted-"
"""Prefix of a directory's name during its deletion: the directory is no longer an experiment."""


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Disk usage of a directory."""

    files: int
    """Files and links, not folders."""
    bytes: int
    """Bytes allocated to them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Files of an experiment that can be removed or folded."""

    experiment: Experiment
    """The experiment."""
    busy: str
    """Why the experiment must stay as it is; empty: it need not."""
    before: DiskUsage
    """Its disk usage."""
    loose: int
    """Files that can be folded."""
    leftovers: tuple[Path, ...]
    """Unneeded files."""
    changed: float
    """Time of its last change, seconds since the epoch."""


def living_jobs(experiments: Collection[Experiment]) -> frozenset[str] | str:
    """Ids of this user's living array jobs, from one query of Slurm; or why they are unknown."""
    if not any(map(_is_of_slurm, experiments)):
        return frozenset()
    try:
        return frozenset(job.array_job for job in slurm.queue() if job.alive)
    except EnvironmentFault as fault:
        return str(fault)


def look(experiment: Experiment, jobs: frozenset[str] | str) -> Finding:
    """Files of an experiment that can be removed or folded; changes nothing.

    Args:
        experiment: the experiment.
        jobs: result of `living_jobs`.
    """
    try:
        busy, files = _busy(experiment, jobs), loose(experiment)
    except DamagedFile as fault:  # whether it has ended is not known
        busy, files = fault.message, 0
    # Only files count: a removal changes the time of its folder.
    own = (path.lstat() for path in experiment.path.iterdir())
    changed = max((one.st_mtime for one in own if stat.S_ISREG(one.st_mode)), default=0.0)
    leftovers = tuple(_leftovers(experiment)) if not busy else ()
    return Finding(experiment, busy, folder_usage(experiment.path), files, leftovers, changed)


def clear(finding: Finding) -> Finding:
    """Fold and remove the files of a finding; returns the finding after that.

    Raises:
        OSError: the disk is full or gone; no file is lost.
    """
    experiment = finding.experiment
    try:
        with alone(experiment):
            for run_task in experiment.resolved.run_tasks:
                fold(experiment, run_task.name)
            fold_workers(experiment, all_ended=True)
            answer_index.write_index(experiment)
            for path in finding.leftovers:
                path.unlink(missing_ok=True)
    except RunFailed:  # another process resumes it now
        pass
    return look(experiment, frozenset())


def clear_home(root: Path, busy: Collection[str]) -> list[Path]:
    """Paths in a home that belong to no running experiment; the caller removes them.

    Args:
        root: the home.
        busy: ids of experiments that have not ended.
    """
    halves = [path for path in _folders(experiments_dir(root)) if path.name.startswith(DELETED)]
    halves += answer_index.unused(root)
    return [*halves, *secrets_file.leftovers(root, lambda one: one.id not in busy)]


def deletable(findings: Sequence[Finding], root: Path, days: float) -> list[Finding]:
    """Experiments of a home that ended more than `days` ago and that no other one needs.

    An experiment stays while it is a baseline, by a baseline's name or for another experiment, and while
    another experiment that stays has answers of it: its report names it as their source.

    Raises:
        DamagedFile: a file that says which experiments are needed is damaged.
    """
    named = {str(baseline.experiment) for baseline in baselines(root)} | {
        experiment.manifest.baseline
        for experiment in all_experiments(root)
        if experiment.manifest.baseline
    }
    home = experiments_dir(root).resolve()
    old = [
        one
        for one in findings
        if not one.busy
        and time.time() - one.changed > days * 86400
        and one.experiment.path.parent.resolve() == home
        and not one.experiment.path.is_symlink()
        and not any(_is_meant(one.experiment, text) for text in named)
    ]
    users = {experiment.id: _sources(experiment) for experiment in all_experiments(root)}
    while True:  # one that stays keeps its sources
        deleted = {one.experiment.id for one in old}
        used = {name for user, names in users.items() if user not in deleted for name in names}
        left = [one for one in old if one.experiment.id not in used]
        if len(left) == len(old):
            return left
        old = left


def _sources(experiment: Experiment) -> set[str]:
    """Experiments with answers that an experiment took over.

    Raises:
        DamagedFile: the record of them is damaged.
    """
    taken = reused_of(experiment)
    if taken is None and experiment.reused_file.exists():
        remedy = "restore it from a backup, or delete this experiment first"
        raise DamagedFile(experiment.reused_file, "its sources are not known", remedy)
    return set(taken.experiments) if taken is not None else set()


def delete(experiment: Experiment) -> None:
    """Delete an experiment as a whole. After a killed call it is no experiment; the next `gc` removes it.

    Raises:
        RunFailed: another process resumes it now.
        OSError: part of it cannot be removed.
    """
    with alone(experiment):
        trash = experiment.path.with_name(DELETED + experiment.id)
        experiment.path.rename(trash)
    shutil.rmtree(trash)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its contents.

    Raises:
        OSError: part of the path cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def folder_usage(folder: Path) -> DiskUsage:
    """Disk usage of a directory; a link counts as a link."""
    files = size = 0
    for path in _walk(folder):
        files += 1
        try:
            size += path.lstat().st_blocks * 512
        except FileNotFoundError:
            files -= 1
    return DiskUsage(files, size)


def size(path: Path) -> DiskUsage:
    """Disk usage of a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        return folder_usage(path)
    try:
        return DiskUsage(1, path.lstat().st_blocks * 512)
    except FileNotFoundError:
        return DiskUsage(0, 0)


def _is_of_slurm(experiment: Experiment) -> bool:
    try:
        return experiment.planned.executor == "slurm"
    except DamagedFile:
        return False


def _busy(experiment: Experiment, jobs: frozenset[str] | str) -> str:
    """Why an experiment must stay as it is; empty: it need not."""
    known = rounds(experiment)
    if submitting(experiment):
        return "its submission is still running"
    if not known or known[-1].intents:
        return f"its submission was interrupted: `hpcbench resume {experiment.id}` continues it"
    if experiment.resolved.executor != "slurm":
        own, unseen = supervisors(experiment, known)
        return (
            "it runs"
            if own
            else f"it was started on {unseen}: run the command there"
            if unseen
            else ""
        )
    if isinstance(jobs, str):
        return jobs
    return "it runs" if any(jobs.intersection(one.jobs.values()) for one in known) else ""


def _leftovers(experiment: Experiment) -> Iterator[Path]:
    """Unneeded files of an experiment without living jobs."""
    for path in _walk(experiment.path):
        if (
            _is_of_submitit(path)
            if path.parent == experiment.jobs_dir
            else path.name.endswith(".ballast")
            or (LEFT_OVER.fullmatch(path.name) and _age(path) > DEAD_SECONDS)
        ):
            yield path


def _is_of_submitit(path: Path) -> bool:
    """Whether the path is a pickle or an empty log."""
    empty = path.suffix in (".out", ".err", ".log") and not path.lstat().st_size
    return path.suffix == ".pkl" or empty


def _age(path: Path) -> float:
    return time.time() - path.lstat().st_mtime


def _is_meant(experiment: Experiment, text: str) -> bool:
    """Whether this text may name the experiment."""
    return experiment.id.startswith(text) or ("/" in text and Path(text) == experiment.path)


def _walk(folder: Path) -> Iterator[Path]:
    """Every file and every link below a folder; links are not followed."""
    try:
        inside = list(folder.iterdir())
    except (FileNotFoundError, PermissionError):
        return  # removed just now, or another user's
    for path in inside:
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        else:
            yield path


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except FileNotFoundError:
        return []
