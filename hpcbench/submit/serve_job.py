"""Models that are served by a job of their own: a job of Slurm, or a process where the site has no Slurm.

`HOME/serving/ID/` is a job's folder, for the user alone: `job.json`, its log, and `failed` with the reason if
it could not serve. Once the model is ready, the job announces it under the same ID (`wrapper/served_models`).
The job removes its folder when it ends as it should.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hpcbench import slurm
from hpcbench.errors import EnvironmentFault, HpcbenchError, UserError
from hpcbench.experiment import process_identity
from hpcbench.files.atomic import read_json, write_atomic, write_private
from hpcbench.files.tail import last_bytes
from hpcbench.planning import clock
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.model import Model
from hpcbench.schema.plan import Group, ResolvedPlan
from hpcbench.schema.shared_types import seconds
from hpcbench.schema.site import Site
from hpcbench.schema.work import JobResources
from hpcbench.slurm.commands import ask
from hpcbench.submit.sbatch import clean_environment, parameters, plain_env, script
from hpcbench.wrapper.served_models import forget, served_models

State = Literal["waiting", "starting", "ready", "failed"]
"""State of a job: Slurm has not started it; its model is being loaded; it serves; it ended too early."""

END_SECONDS = 30
"""So long before its time limit Slurm asks a job to end: its engine and its files go."""

FORGET_SECONDS = 86_400
"""Age from which the folder of a failed job goes when another job starts, seconds."""

TAIL_BYTES = 4_096
"""Bytes of a log's end that are shown."""

# With `-m`, Python would import modules from the working directory, the user's folder of plans.
_START = "import sys; sys.path[:1] = []; from hpcbench.cli.main import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class ServeJob:
    """A job that serves a model."""

    id: str
    """Identifies it; its model is announced by the same id."""
    model: str
    """Name of the model's definition."""
    engine: str
    """Engine of the model."""
    time_limit: int
    """Seconds from its start to its end."""
    submitted: float
    """When it was submitted, seconds since the epoch."""
    job: str = ""
    """Slurm's id of it; empty: it is a process, or Slurm's answer was never read."""
    process: Mapping[str, Any] | None = None
    """Identity of the process; None: it is a job of Slurm."""

    @property
    def name(self) -> str:
        """Name of the job of Slurm."""
        return f"hpcbench-serve:{self.id}"


def folder_of(home: Path, job_id: str) -> Path:
    """Folder of a job."""
    return home / "serving" / job_id


def serve_jobs(home: Path) -> list[ServeJob]:
    """All jobs that have a folder, the newest first."""
    found = []
    for path in (home / "serving").glob("*/job.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append(ServeJob(**read_json(path)))
    return sorted(found, key=lambda one: -one.submitted)


def start(home: Path, site: Site, model: Model, words: Sequence[str], time_limit: str) -> ServeJob:
    """Start a job that serves a model.

    Args:
        home: folder of experiments and caches.
        site: the site's profile.
        model: what is served.
        words: arguments of `hpcbench serve` in the job.
        time_limit: from its start to its end, `[D-]HH:MM:SS`.

    Raises:
        UserError: the site's profile or its template makes no job script.
        EnvironmentFault: Slurm refuses the job.
    """
    _forget_old(home)
    limit = seconds(time_limit)
    job = ServeJob(secrets.token_hex(6), model.name, model.engine, limit, time.time())
    folder = folder_of(home, job.id)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
    argv = [sys.executable, "-u", "-c", _START, "serve", *words, "--as-job", job.id]
    argv += ["--time-limit", time_limit]
    try:
        if site.executor == "slurm":
            # Written before: if this process dies meanwhile, the job can still be found by its name.
            _write(folder, job)
            job = replace(job, job=_submitted(folder, job, site, model, argv))
        else:
            job = replace(job, process=_process(folder, site, argv))
        _write(folder, job)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return job


def find(home: Path, wanted: str) -> list[ServeJob]:
    """Jobs with this id, or that serve the model of this name.

    Raises:
        UserError: there is none.
    """
    known = serve_jobs(home)
    found = [one for one in known if one.id == wanted] or [
        one for one in known if one.model == wanted
    ]
    if not found:
        said = ", ".join(f"{one.id} ({one.model})" for one in known) or "none"
        raise UserError(f"no job serves '{wanted}'", remedy=f"jobs of yours: {said}")
    return found


def stop(home: Path, job: ServeJob) -> None:
    """End a job, whatever its state; its model is announced no longer.

    Raises:
        EnvironmentFault: Slurm does not answer, or the process runs on another host.
    """
    if job.process is not None:
        alive = process_identity.lives(job.process)
        if alive is None:
            raise EnvironmentFault(
                f"{job.model} is served on {job.process['host']}", remedy="run the command there"
            )
        if alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(job.process["pid"]), signal.SIGTERM)
    else:
        slurm.cancel(
            [job.job] if job.job else [one.id for one in slurm.queue() if one.name == job.name]
        )
    forget(home, job.id)
    shutil.rmtree(folder_of(home, job.id), ignore_errors=True)


def states(home: Path, jobs: Sequence[ServeJob]) -> dict[str, tuple[State, str]]:
    """Id of each job → its state, and why it waits or has failed.

    Slurm is queried at most every 30 s, by all readers together, and only if a job of it does not serve yet.
    """
    ready = {one.id for one in served_models(home)}
    unknown = [one for one in jobs if one.id not in ready]
    newest = max((one.submitted for one in unknown if one.process is None), default=None)
    found = slurm.snapshot(newer_than=newest) if newest is not None else slurm.Snapshot()
    known: dict[str, tuple[State, str]] = {one.id: ("ready", "") for one in jobs if one.id in ready}
    return known | {one.id: _state(home, one, found) for one in unknown}


def tail(home: Path, job_id: str) -> tuple[str, ...]:
    """The last 20 lines that a job wrote, engine's messages among them."""
    for path in sorted(folder_of(home, job_id).glob("*.out"), reverse=True):
        with contextlib.suppress(OSError):
            text = last_bytes(path, TAIL_BYTES).decode("utf-8", "replace")
            return tuple(line for line in text.splitlines() if line.strip())[-20:]
    return ()


@contextlib.contextmanager
def ending(home: Path, job_id: str) -> Iterator[None]:
    """Inside of a job: its folder goes at a good end, and gets the reason of a bad one."""
    folder = folder_of(home, job_id)
    try:
        yield
    except HpcbenchError as error:
        with contextlib.suppress(OSError):  # the user has stopped it
            write_atomic(folder / "failed", str(error))
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _state(home: Path, job: ServeJob, found: slurm.Snapshot) -> tuple[State, str]:
    with contextlib.suppress(OSError):
        return "failed", (folder_of(home, job.id) / "failed").read_text().strip()
    if job.process is not None:
        late = time.time() > job.submitted + job.time_limit
        alive = process_identity.lives(job.process)
        gone = late if alive is None else not alive
        return ("failed", "its process has ended") if gone else ("starting", "")
    mine = [one for one in found.jobs if job.job == one.id or one.name == job.name]
    if not mine:
        if found.time < job.submitted:
            return "waiting", found.fault or "Slurm has not answered yet"
        return "failed", "Slurm has no such job any more"
    (last,) = mine[-1:]
    if last.state == "PENDING":
        return "waiting", slurm.why_pending(last, found)
    return ("starting", f"on {last.node}") if last.alive else ("failed", f"Slurm: {last.state}")


def _submitted(folder: Path, job: ServeJob, site: Site, model: Model, argv: Sequence[str]) -> str:
    """Submit the job; returns Slurm's id of it."""
    resources = JobResources(
        cpus=max(4, 2 * model.gpus),
        memory_gb=8 + _weights_gib(model),
        # Slurm counts in minutes, and its TERM comes up to a minute before the limit.
        time_limit=clock(max(job.time_limit, 120)),
    )
    group = Group(
        id="serve", image=model.image, gpus=model.gpus, resources=resources,
        run_tasks=(), workers=1, throttle=1,
    )  # fmt: skip
    resolved = ResolvedPlan(
        plan=ExperimentPlan(name=f"serve {model.name}"), site=site, run_tasks=()
    )
    options = parameters(resolved, resources, model.gpus, job.name, group=group)
    more = options["additional_parameters"]
    more |= {"signal": f"B:TERM@{END_SECONDS}", "requeue": False}
    options["additional_parameters"] = {
        name: value for name, value in more.items() if value is not False
    }
    path = folder / "job.sh"
    # A site may let no variable of the submitter into its jobs.
    command = ["env", f"HPCBENCH_HOME={folder.parent.parent}", *argv]
    path.write_text(script(f"exec {shlex.join(command)}", folder, options))
    with clean_environment():
        said = ask("sbatch", "--parsable", str(path), patient=True)
    return said.strip().splitlines()[-1].partition(";")[0]


def _weights_gib(model: Model) -> float:
    """Memory for the weights on their way to the GPUs, GiB."""
    size = model.size_gb or 2 * (model.parameters_b or 0)
    return round(size / 1.073741824, 1)


def _process(folder: Path, site: Site, argv: Sequence[str]) -> dict[str, Any]:
    """Start it as a process that outlives this one; returns its identity."""
    with (folder / f"{socket.gethostname()}.out").open("ab") as log:
        process = subprocess.Popen(
            argv,
            env={**os.environ, **plain_env(site)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return process_identity.identity(process.pid)


def _write(folder: Path, job: ServeJob) -> None:
    write_private(folder / "job.json", json.dumps(asdict(job)))


def _forget_old(home: Path) -> None:
    """Remove the folders of jobs that failed long ago."""
    old = [one for one in serve_jobs(home) if time.time() - one.submitted > FORGET_SECONDS]
    for identity, (state, _) in states(home, old).items():
        if state == "failed":
            shutil.rmtree(folder_of(home, identity), ignore_errors=True)
