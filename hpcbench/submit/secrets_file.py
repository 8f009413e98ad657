"""Secrets for jobs that do not inherit the submitting environment.

Under `--export=NONE` a job starts without the variables that `${env:NAME}` refers to, and values of a site
profile's `env` that come from a reference must not be in a job script. Both go through one file for each
experiment, `HOME/secrets/EXPERIMENT.json`, which only its owner can read. It is written when jobs are
submitted, read first by each process on a node, and removed when the experiment ends. No argument list, no
job script, no output of scontrol and no file of the experiment has a secret.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpcbench import secret
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.layout import Experiment, all_experiments
from hpcbench.files.atomic import write_private
from hpcbench.schema.plan import ResolvedPlan

FOLDER = "secrets"
"""Folder below the home of experiments; `secrets-UID` if `secrets` belongs to another user."""

ENDING = ".json"


def names(resolved: ResolvedPlan) -> tuple[str, ...]:
    """Variables of the environment that jobs of a plan refer to, sorted."""
    return tuple(sorted({*secret.names(_seen_by_jobs(resolved))}))


def inherits(resolved: ResolvedPlan) -> bool:
    """Whether jobs start with the environment of the submitting shell."""
    if resolved.executor == "local":
        return True
    export = resolved.site.slurm.options.get("export") or os.environ.get("SBATCH_EXPORT") or "ALL"
    return "ALL" in str(export).upper().split(",")


def require(resolved: ResolvedPlan) -> None:
    """Check that every secret that jobs need is available here.

    Raises:
        UserError: the missing secrets, and the places that refer to them; never a secret's value.
    """
    problems = [
        Problem(f"{place}: {message}", remedy=remedy)
        for place, data in _seen_by_jobs(resolved)
        for text in _texts(data)
        for message, remedy in secret.missing(text)
    ]
    if problems:
        raise UserError(*dict.fromkeys(problems))


def keep(experiment: Experiment) -> tuple[str, ...]:
    """Write the file of an experiment, if its jobs need it; call it before jobs are submitted or resumed.

    Variables that this process lacks are taken from the existing file: a job that submits further jobs, or a
    shell that resumes, need not have every variable.

    Returns:
        Names of the variables in the file.

    Raises:
        UserError: a secret is missing.
        EnvironmentFault: the folder is not private to its owner, or cannot be written.
    """
    resolved = experiment.resolved
    wanted = {} if inherits(resolved) else {name: f"${{env:{name}}}" for name in names(resolved)}
    wanted |= {key: text for key, text in resolved.site.env.items() if _refers(text)}
    if not wanted:
        return ()
    held = _held(experiment)
    for key, text in wanted.items():
        lacking = list(secret.missing(text))
        if not lacking:
            held[key] = secret.reveal(text)
        elif key not in held:
            raise UserError(*(Problem(message, remedy=remedy) for message, remedy in lacking))
    with _folder(experiment, make=True) as folder:
        assert folder is not None
        kept = {key: held[key] for key in wanted}
        data = {"version": 1, "variables": kept}
        write_private(experiment.id + ENDING, json.dumps(data), folder=folder)
    return tuple(sorted(kept))


def lend(experiment: Experiment) -> None:
    """Put those variables of an experiment's file into this process's environment that it lacks."""
    for name, value in _held(experiment).items():
        secret.remember(value)
        os.environ.setdefault(name, value)


def load(experiment: Experiment) -> tuple[str, ...]:
    """Put the variables of an experiment's file, if there is one, into this process's environment.

    Raises:
        EnvironmentFault: file or folder are not private to their owner, or are a link.
    """
    held = _held(experiment)
    for name, value in held.items():
        secret.remember(value)
        os.environ[name] = value
    return tuple(sorted(held))


def forget(experiment: Experiment) -> bool:
    """Remove the file of an ended experiment; returns whether it existed."""
    with _folder(experiment) as folder:
        if folder is None:
            return False
        try:
            os.unlink(experiment.id + ENDING, dir_fd=folder)
        except FileNotFoundError:
            return False
    return True


def leftovers(root: Path, ended: Callable[[Experiment], bool]) -> list[Path]:
    """Files of experiments that have ended or are gone, and of killed writers.

    Args:
        root: the home of experiments.
        ended: returns whether an experiment has ended.
    """
    needed = {one.id for one in all_experiments(root) if not ended(one)}
    place = _place(root)
    try:
        found = sorted(place.iterdir())
    except (FileNotFoundError, PermissionError):
        return []
    return [path for path in found if path.name.removesuffix(ENDING) not in needed]


def _seen_by_jobs(resolved: ResolvedPlan) -> list[tuple[str, Any]]:
    """Parts of a plan and a site whose secrets jobs reveal: place and data.

    Storages of datasets and models, sources of packages and build arguments are only for the login node.
    """
    site, plan = resolved.site, resolved.plan
    schemes = {one.url.partition("://")[0] for one in plan.upload}
    storages = {name: dict(one) for name, one in site.storage.items() if name in schemes}
    models = {task.model.name: task.model for task in resolved.run_tasks}
    return [
        *((f"env of model {name}", dict(model.env)) for name, model in models.items()),
        *(
            (f"engine_options of model {name}", dict(model.engine_options))
            for name, model in models.items()
        ),
        ("plan", plan.model_dump(mode="json")),
        ("env of the site", dict(site.env)),
        ("storage of the site", storages),
        ("container.options of the site", dict(site.container.options)),
        ("database of the site", site.database.url if site.database else ""),
    ]


def _held(experiment: Experiment) -> dict[str, str]:
    """Variables in the file of an experiment; empty without a file."""
    with _folder(experiment) as folder:
        if folder is None:
            return {}
        found: dict[str, str] = _read(folder, experiment.id + ENDING).get("variables", {})
    return found


def _refers(text: str) -> bool:
    return secret.REFERENCE.search(text) is not None


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        yield from _texts(list(data.values()))
    elif isinstance(data, (list, tuple)):
        for inner in data:
            yield from _texts(inner)


def _place(root: Path) -> Path:
    """The folder of secrets; in a shared home, another user's folder is not used."""
    folder = root / FOLDER
    try:
        foreign = folder.lstat().st_uid != os.geteuid()
    except FileNotFoundError:
        foreign = False
    return root / f"{FOLDER}-{os.geteuid()}" if foreign else folder


@contextlib.contextmanager
def _folder(experiment: Experiment, *, make: bool = False) -> Iterator[int | None]:
    """Descriptor of the folder, after a check that it is private to its owner; None: there is no folder.

    Later calls use the descriptor: no process can replace the folder in between.
    """
    place = _place(experiment.path.parent.parent)
    if make:
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise _not_ours(place, error.strerror or "cannot be opened") from error
    try:
        seen = os.fstat(descriptor)
        if seen.st_uid != os.geteuid():
            raise _not_ours(place, "belongs to another user")
        if seen.st_mode & 0o077:
            if not make:
                raise _not_ours(place, f"has mode {stat.S_IMODE(seen.st_mode):04o}")
            os.fchmod(descriptor, 0o700)
        yield descriptor
    finally:
        os.close(descriptor)


def _read(folder: int, name: str) -> dict[str, Any]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _not_ours(Path(name), error.strerror or "cannot be opened") from error
    with os.fdopen(descriptor, encoding="utf-8") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode):
            raise _not_ours(Path(name), "is not a regular file")
        if seen.st_uid != os.geteuid() or seen.st_mode & 0o077:
            raise _not_ours(Path(name), "is open to other users, or belongs to one")
        data: dict[str, Any] = json.load(file)
    return data


def _not_ours(path: Path, why: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"secrets of jobs: {path} {why}",
        remedy=f"remove it, then run `hpcbench resume`; {FOLDER}/ must be your folder with mode 0700",
    )
