"""Input of sbatch for a job: options by submitit's names, and the environment of the call.

A job script is short on purpose: the umask, modules, the site's own lines, its environment, the lines of its
template, and then `exec python`, so that Slurm's signals reach Python and not a shell.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.errors import Problem, UserError
from hpcbench.experiment.submission import FINALISE, Step
from hpcbench.registry.sites import find_template, findings, one_line, template_environment
from hpcbench.resume import last_job
from hpcbench.schema.plan import Group, ResolvedPlan
from hpcbench.schema.shared_types import seconds
from hpcbench.schema.site import Site
from hpcbench.schema.work import JobResources
from hpcbench.secret import REFERENCE
from hpcbench.slurm.gpu_request import gpu_options
from hpcbench.subprocesses import run

FIND_MODULES = """\
if ! command -v module >/dev/null 2>&1; then
  for file in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/bash" "${MODULESHOME:-/usr/share/modules}/init/bash" \\
    /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh \\
    /usr/share/Modules/init/bash /usr/local/Modules/init/bash; do
    if [ -r "$file" ]; then . "$file"; break; fi
  done
  unset file
fi"""
"""Defines `module` from Lmod or Environment Modules: a job's shell is no login shell and may lack it."""


def sbatch_text(
    experiment_dir: Path, resolved: ResolvedPlan, group: Group | None, array: Step | None = None
) -> str:
    """The batch script of a group's array, or of the finalising job, as `submit` would pass it to sbatch.

    Args:
        experiment_dir: folder of the experiment.
        resolved: the plan, with its site.
        group: the group; None: the finalising job.
        array: one of several arrays of a large group; None: the group has only one.

    Raises:
        UserError: see `parameters`.
    """
    step = array or Step(group.id if group else FINALISE, workers=group.workers if group else 1)
    resources = group.resources if group else last_job.resources(resolved)
    name = f"hpcbench:ID:{step.name}.0"
    options = parameters(resolved, resources, group.gpus if group else 0, name, group=group)
    if group is not None:
        at_once = step.throttle or group.throttle
        options |= {"array_parallelism": at_once, "map_count": step.workers}
    command = f"{python()} -u -m submitit.core._submit {shlex.quote(str(experiment_dir / 'jobs'))}"
    return script(command, experiment_dir / "jobs", options)


def script(command: str, folder: Path, options: Mapping[str, Any]) -> str:
    """A batch script.

    Args:
        command: its last line.
        folder: where its output goes.
        options: see `parameters`.
    """
    from submitit.slurm import slurm as submitit_slurm

    text: str = submitit_slurm._make_sbatch_string(command=command, folder=folder, **options)
    return text


def parameters(
    resolved: ResolvedPlan,
    resources: JobResources,
    gpus: int,
    name: str,
    after: list[str] | None = None,
    *,
    group: Group | None = None,
) -> dict[str, Any]:
    """sbatch options by submitit's names; options without such a name become additional parameters.

    Args:
        resolved: the plan, with its site.
        resources: CPUs, memory, time limit of the job; of a group's job: those of each of its workers.
        gpus: GPUs on each node; of a group's job: those of each of its workers.
        name: name and comment of the job.
        after: jobs that must have ended before.
        group: the worker's group; None: a job that needs no GPU and runs in the CPU partition.

    Raises:
        UserError: a value is not allowed in a job script, or the site's template is wrong.
    """
    site = resolved.site
    slurm = site.slurm
    # Reservation and constraint are meant for workers; in another partition they may fit no node at all.
    nodes = group.nodes if group else 1
    if group is not None:
        resources, gpus = group.job_resources, group.node_gpus
    elsewhere = group is None and slurm.cpu_partition not in (None, slurm.partition)
    partition = slurm.cpu_partition if elsewhere else resources.partition or slurm.partition
    extra: dict[str, Any] = {
        # Workers drain; another job would only end earlier. The batch script `exec`s Python, so the signal
        # has to go to the batch shell itself.
        "signal": f"B:USR2@{slurm.drain_seconds}" if group is not None else None,
        "requeue": True,
        "reservation": None if elsewhere else slurm.reservation,
        "constraint": None if elsewhere else slurm.constraint,
        **gpu_options(slurm, resources, gpus, nodes),
        # sbatch is called without SBATCH_*; this variable is the user's choice for every job.
        "export": os.environ.get("SBATCH_EXPORT") or None,
        **{_word(option): value for option, value in slurm.options.items()},
    }
    chosen: dict[str, Any] = {
        "job_name": name,
        "comment": name,
        "partition": partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "time": max(1, seconds(resources.time_limit) // 60),
        "nodes": nodes,
        "ntasks_per_node": 1,
        "cpus_per_task": resources.cpus,
        "mem": f"{int(resources.memory_gb * 1024)}M",
        "dependency": f"afterany:{':'.join(after)}" if after else None,
        "setup": setup(resolved, group) or None,
        "stderr_to_stdout": True,
        "use_srun": False,
        # `false` removes an option.
        "additional_parameters": {key: value for key, value in _said(extra) if value is not False},
    }
    _refuse_lines(chosen, extra)
    return dict(_said(chosen))


def setup(resolved: ResolvedPlan, group: Group | None = None) -> list[str]:
    """Shell lines of a job before Python: umask, modules, the site's own lines, environment, template.

    Values that refer to a secret are left out: they reach a job in a separate file.

    Raises:
        UserError: a line is not allowed in a job script, or the lines are no valid shell text.
    """
    site = resolved.site
    wrong = [
        Problem(f"site profile: {'.'.join(map(str, loc))}: {message}", remedy=remedy)
        for loc, message, remedy in findings(site)
    ]
    if wrong:
        raise UserError(*wrong)
    lines = [f"umask {site.umask}"] if site.umask is not None else []
    lines += [FIND_MODULES] if site.modules else []
    lines += site.setup
    lines += [load_module(module) for module in site.modules]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in plain_env(site).items()]
    lines += _template_lines(resolved, group)
    if lines and (why := _no_shell("\n".join(lines))):
        where = "correct `setup` or the template of the site profile"
        raise UserError(f"the job script is not valid shell code: {why}", remedy=where)
    return lines


def plain_env(site: Site) -> dict[str, str]:
    """The site's environment without values that refer to a secret."""
    return {name: value for name, value in site.env.items() if not REFERENCE.search(value)}


def load_module(module: str) -> str:
    """A shell line that loads a module, or ends the job with a message in its log."""
    text = f"hpcbench: cannot load module {module} on this node"
    return f"module load {shlex.quote(module)} || {{ echo {shlex.quote(text)} >&2; exit 3; }}"


def prefixed(parameters: dict[str, Any]) -> dict[str, Any]:
    """The same options by the names of submitit's AutoExecutor."""
    return {f"slurm_{key}": value for key, value in parameters.items()}


def python(interpreter: Sequence[str] = (sys.executable,)) -> str:
    """`exec PYTHON …`: no shell is between Slurm's signals and the worker; see `job_start`."""
    return f"exec {shlex.join(interpreter)} -u -m hpcbench.submit.job_start"


@contextlib.contextmanager
def clean_environment() -> Iterator[None]:
    """Remove SLURM_* and SBATCH_* variables of an outer job, which sbatch would read as options."""
    inherited = {
        name: os.environ.pop(name)
        for name in list(os.environ)
        if name.startswith(("SLURM_", "SBATCH_", "SUBMITIT_")) and name != "SLURM_CONF"
    }
    try:
        yield
    finally:
        os.environ.update(inherited)


def _word(option: str) -> str:
    """An option in submitit's spelling, so that the user's value replaces it instead of a second option."""
    return option.replace("-", "_")


def _said(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Options that have a value."""
    return [(key, value) for key, value in options.items() if value is not None and value != ""]


def _refuse_lines(*options: Mapping[str, Any]) -> None:
    """Refuse options with a line break, whose rest would run as a command of the script."""
    for name, value in (pair for some in options for pair in some.items()):
        if isinstance(value, str) and (why := one_line(value)):
            raise UserError(f"--{name.replace('_', '-')}: {why}")


def _template_lines(resolved: ResolvedPlan, group: Group | None) -> list[str]:
    """Lines of the site's template; empty lines and shell comments stay."""
    name = resolved.site.slurm.template
    if name is None:
        return []
    path = find_template(name)
    try:
        template = template_environment(path).get_template(path.name)
        text = template.render(site=resolved.site, group=group, plan=resolved.plan)
    except Exception as error:  # noqa: BLE001 - a template may raise any exception: report its place
        raise UserError(_at(path, error)) from error
    for number, line in enumerate(text.split("\n"), 1):
        if why := one_line(line):
            raise UserError(Problem(f"line {number} of its output: {why}", str(path)))
        if line.startswith("#SBATCH"):
            raise UserError(
                Problem(
                    f"line {number} of its output is an sbatch option, and sbatch reads none after commands",
                    str(path),
                    remedy="set it as `slurm.options` in the site profile",
                )
            )
    return text.rstrip("\n").split("\n") if text.strip() else []


def _at(path: Path, error: Exception) -> Problem:
    """The error of a template at its file and line."""
    said = str(error).splitlines()
    message = said[0] if said else type(error).__name__
    file, line = getattr(error, "filename", None), getattr(error, "lineno", None)
    if line is None:
        frames = [
            one for one in traceback.extract_tb(error.__traceback__) if one.filename[-3:] == ".j2"
        ]
        if frames:
            file, line = frames[-1].filename, frames[-1].lineno
    return Problem(f"template: {message}", str(file or path), line, remedy=_SEES)


_SEES = "a template can use `site`, `group` (none in jobs without a group) and `plan`"


@functools.lru_cache(maxsize=64)
def _no_shell(text: str) -> str | None:
    """Why bash would not read a text to its end: an open quote would swallow the next command."""
    if text.rstrip("\n").endswith("\\"):
        return "its last line ends with a backslash"
    try:
        ended = run(["bash", "-n"], 20, given=text + "\n")
    except OSError:
        return None  # no bash here: the node's bash will report errors
    said = ended.messages.strip().splitlines()
    return said[0].removeprefix("bash: ") if said else None
