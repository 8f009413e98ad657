"""Checks of this machine and of the site profile for a run, each with a remedy."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hpcbench import installed, secret, slurm
from hpcbench.environments import docker_run
from hpcbench.environments.docker import Docker
from hpcbench.environments.sif import check_version, has_subordinate_ids
from hpcbench.environments.skypilot import SkyPilot
from hpcbench.errors import EnvironmentFault, HpcbenchError, UserError
from hpcbench.experiment.access import group_id
from hpcbench.experiment.layout import home
from hpcbench.number_format import many
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.plan import Group, ResolvedPlan
from hpcbench.schema.site import Site
from hpcbench.schema.work import JobResources
from hpcbench.site.profile import NodeGpus, gpus_here, parse_smi
from hpcbench.submit.sbatch import (
    FIND_MODULES,
    clean_environment,
    load_module,
    sbatch_text,
)
from hpcbench.subprocesses import Ended, last_line, run

PATIENCE = 60.0
"""Limit for each program, s: sbatch waits for slurmctld, and modules for a file system."""

MIN_SLURM = (22, 5)
"""Oldest Slurm version that is tested."""

MIN_FREE_FILES = 20_000
"""Files that the packages beside a few images and an experiment's shards need."""

MIN_FREE_GB = 5
"""Disk space that a few images and experiments need."""


@dataclass(frozen=True, slots=True)
class Check:
    """One required or recommended condition."""

    name: str
    """Subject of the check."""
    state: str
    """`ok`, `warning` or `failed`."""
    detail: str
    """The finding."""
    remedy: str | None = None
    """The remedy; None: the state is ok."""


def checks(site: Site, *, real_run: bool = False) -> Iterator[Check]:
    """Check all requirements of a run, cheapest first.

    Args:
        site: the site profile.
        real_run: a real job follows, which answers what only a node knows.
    """
    yield _machine(site)
    yield _python(site)
    yield from _distribution()
    yield _home(site)
    yield _socket_folder(site)
    yield from _sharing(site)
    yield from _secrets(site)
    if site.executor == "slurm":
        yield from _slurm_checks(site)
        if site.modules:
            yield _modules(site)
        yield from _scripts(site)
    yield from _gpus(site, real_run=real_run)
    if site.container.manager == "docker":
        yield _docker(site)
    elif site.container.manager == "skypilot":
        yield _skypilot(site)
    elif site.container.manager == "apptainer":
        yield _container(site)
        if shutil.which(site.container.program):
            yield from _container_needs(site)
    yield _engine()


def _machine(site: Site) -> Check:
    """Where plans run that do not say it."""
    if _is_cluster(site):
        return Check("executor", "ok", "slurm: engines run in jobs, on compute nodes")
    cpus = os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    here = f"this machine ({many(cpus, 'CPU')}, {memory:.0f} GB of memory)"
    if "executor" not in site.model_fields_set and slurm.on_cluster():
        return Check(
            "executor", "warning", "this machine submits to a Slurm cluster, and no site profile says it",
            "`hpcbench init` writes a site profile",
        )  # fmt: skip
    return Check("executor", "ok", f"local: engines run on {here}")


def _is_cluster(site: Site) -> bool:
    return site.executor == "slurm"


def _support(site: Site) -> str:
    """The people who can change settings that a user cannot."""
    return "ask your cluster's support" if _is_cluster(site) else "ask this machine's administrator"


def _python(site: Site) -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    shared = not sys.prefix.startswith(("/tmp", "/var/tmp"))
    if shared:
        return Check("python", "ok", f"{version} in {sys.prefix}")
    remedy = "install it in another folder: this one is emptied when the machine restarts"
    if _is_cluster(site):
        remedy = "compute nodes need it: install hpcbench on the shared file system"
    return Check("python", "warning", f"{version} in {sys.prefix}", remedy)


def _distribution() -> Iterator[Check]:
    """PyPI's `hpcbench` belongs to another project, whose files would replace ours."""
    try:
        own, others = installed.own(), list(installed.in_the_way())
    except EnvironmentFault as fault:
        yield Check("installed", "failed", fault.message, fault.remedy)
        return
    state = "warning" if own.name == installed.OLD_NAME else "failed"
    yield from (Check("installed", state, what, remedy) for what, remedy in others)
    if not others:
        yield Check("installed", "ok", f"{own.name} {own.version}")


def _home(site: Site) -> Check:
    folder = home(site)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder) as first:
            second = Path(first.name + ".link")
            os.link(first.name, second)
            second.unlink()
    except OSError as error:
        kind = "shared folder" if _is_cluster(site) else "folder of yours"
        return Check(
            "home", "failed", f"{folder}: {error.strerror}",
            f"set HPCBENCH_HOME, or `home` in the site profile, to a {kind} that supports hard links",
        )  # fmt: skip
    if (folder / "pyproject.toml").exists():
        return Check(
            "home", "warning", f"{folder} is a folder of source code",
            "experiments and caches come into it: set `home` in the site profile to another folder",
        )  # fmt: skip
    free = shutil.disk_usage(folder).free / 1e9
    if free < MIN_FREE_GB:
        return Check(
            "home",
            "warning",
            f"{folder}: {free:.1f} GB free",
            "free disk space, or move the folder",
        )
    left = os.statvfs(folder)
    if left.f_files and left.f_favail < MIN_FREE_FILES:
        return Check(
            "home", "warning", f"{folder}: {left.f_favail} more files possible",
            "packages need thousands of files: run `hpcbench data prune`, or ask for a larger file quota",
        )  # fmt: skip
    return Check("home", "ok", f"{folder}: {free:.0f} GB free")


def _socket_folder(site: Site) -> Check:
    folder = os.path.expandvars(site.scratch or "/tmp")
    if "$" in folder:
        return Check("scratch", "ok", f"{folder}: set by the job")
    if not os.access(folder, os.W_OK):
        return Check(
            "scratch", "failed", f"{folder} is not writable", "set `scratch` in the site profile"
        )
    if len(folder) > 60:
        return Check(
            "scratch",
            "failed",
            f"{folder}: path too long for a Unix socket",
            "set `scratch` to a shorter path",
        )
    return Check("scratch", "ok", folder)


def _slurm_checks(site: Site) -> Iterator[Check]:
    try:
        version = slurm.version()
    except HpcbenchError as error:
        yield Check("slurm", "failed", str(error), "run on a login node")
        return
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    old = numbers < MIN_SLURM
    yield Check(
        "slurm",
        "warning" if old else "ok",
        version,
        "hpcbench is tested with 22.05 and newer" if old else None,
    )
    try:
        jobs = [job for job in slurm.queue() if job.alive]
        yield Check("queue", "ok", f"{len(jobs)} jobs of yours")
        names = [one["PartitionName"] for one in slurm.partitions()]
    except HpcbenchError as error:
        yield Check("queue", "failed", str(error), "ask your cluster's support")
        return
    wanted = site.slurm.partition
    if wanted is not None and wanted not in names:
        yield Check(
            "partition", "failed", f"no partition '{wanted}'", f"set one of {', '.join(names)}"
        )
    else:
        yield Check("partition", "ok", wanted or "the cluster's default")


def _sharing(site: Site) -> Iterator[Check]:
    """The group of experiments, and the umask."""
    if site.group is not None:
        try:
            number = group_id(site.group)
        except EnvironmentFault as fault:
            yield Check("group", "failed", fault.message, fault.remedy)
            return
        if number not in (os.getgid(), *os.getgroups()) and os.geteuid():
            yield Check(
                "group",
                "failed",
                f"you are not in group '{site.group}'",
                "`groups` lists your groups",
            )
        elif site.umask is not None and int(site.umask, 8) & 0o050:
            yield Check(
                "group", "warning", f"umask {site.umask} denies group '{site.group}' access",
                "set umask 027 to let the group read, 007 to let it resume as well",
            )  # fmt: skip
        else:
            yield Check("group", "ok", site.group)
    if site.umask is not None and not int(site.umask, 8) & 0o002:
        yield Check(
            "umask",
            "warning",
            f"{site.umask}: every user can change your experiments",
            "set umask 027",
        )
    elif site.umask is not None:
        yield Check("umask", "ok", site.umask)


def _secrets(site: Site) -> Iterator[Check]:
    for name, value in site.env.items():
        for message, remedy in secret.missing(value):
            yield Check("env", "failed", f"{name}: {message}", remedy)
    for message, remedy in secret.missing(site.database.url) if site.database is not None else ():
        yield Check("database", "failed", message, remedy)


def _modules(site: Site) -> Check:
    """Load the modules here as a job does; a compute node may have others."""
    lines = [FIND_MODULES, *site.setup, *map(load_module, site.modules)]
    ended = run(["bash", "-c", "\n".join(lines)], PATIENCE)
    listed = ", ".join(site.modules)
    if not ended.failed:
        return Check("modules", "ok", listed)
    said = _said(ended, ended.messages.strip() or ended.text)
    return Check("modules", "failed", f"{listed}: {said}", "`module avail` lists what there is")


def _said(ended: Ended, messages: str) -> str:
    """The last message of a program that failed."""
    return f"no answer in {PATIENCE:g} s" if ended.late else last_line(messages)


def _scripts(site: Site) -> Iterator[Check]:
    """The complete job scripts, checked by Slurm's own test; this submits no job."""
    slurm_site = site.slurm
    gives = slurm_site.partition_of()
    gpus = 1 if gives is not None and gives.gpus else 0
    resources = JobResources(cpus=1, memory_gb=1, time_limit="00:05:00")
    group = Group(
        id="g0", image=None, gpus=gpus, resources=resources, run_tasks=(), workers=1, throttle=1
    )
    resolved = ResolvedPlan(plan=ExperimentPlan(name="doctor"), site=site, run_tasks=())
    wanted: tuple[tuple[str, Group | None], ...] = (("worker job", group), ("last job", None))
    for name, one in wanted:
        try:
            text = sbatch_text(home(site), resolved, one)
        except UserError as error:
            first = error.problems[0]
            yield Check(
                "job script", "failed", str(first), first.remedy or "see docs/cluster-guide.md"
            )
            return
        yield _accepted(name, text, bool(one and gpus))


def _accepted(name: str, text: str, gpu: bool) -> Check:
    """Slurm's answer to a job script: partition, account, QOS, constraint, reservation, GPUs."""
    with clean_environment():
        ended = run(["sbatch", "--test-only"], PATIENCE, given=text)
    if not ended.failed:
        return Check(name, "ok", "Slurm accepts it" + (", with a GPU" if gpu else ""))
    last = re.sub(r"^(sbatch|allocation failure): *(error: *)?", "", _said(ended, ended.messages))
    return Check(
        name, "failed", f"Slurm refuses it: {last}",
        "check partition, account, qos, constraint, reservation and gpu_gres in the site profile",
    )  # fmt: skip


def _container(site: Site) -> Check:
    program = site.container.program
    if shutil.which(program) is None:
        how = f"install {program}, or set `container: {{manager: docker}}`"
        if _is_cluster(site):
            how = "run `module load apptainer`, or set container.program"
        return Check(
            "container",
            "warning",
            f"no {program} on PATH",
            f"{how}; models without an image still run",
        )
    ended = run([program, "--version"], PATIENCE)
    if ended.failed:
        return Check("container", "failed", _said(ended, ended.messages), _support(site))
    version = ended.text.strip()
    try:
        check_version(version)
    except EnvironmentFault as fault:
        return Check("container", "failed", str(fault))
    return Check("container", "ok", version)


def _gpus(site: Site, *, real_run: bool) -> Iterator[Check]:
    """Whether the profile has the CUDA version of the nodes' driver, with which images are compared."""
    if site.container.gpu_maker != "nvidia":
        return
    said, driver = site.container.cuda, site.container.driver
    words = f"CUDA {said}" + (f", driver {driver}" if driver else "")
    here = gpus_here() if site.executor == "local" else None
    if here is not None and said is not None and here.cuda not in (said, None):
        yield Check(
            "gpus", "warning", f"the driver here supports CUDA {here.cuda}, but the site profile says {said}",
            f"set `container: {{cuda: \"{here.cuda}\"}}` in the site profile",
        )  # fmt: skip
    elif here is not None:
        yield Check("gpus", "ok", str(here))
    elif said is not None:
        yield Check("gpus", "ok", f"{words}, from the site profile")
    elif not _is_cluster(site):
        yield Check(
            "gpus",
            "ok",
            "none: no NVIDIA driver answers on this machine, so models run on its CPUs",
        )
    elif (
        site.executor == "slurm"
        and any(one.gpus for one in site.slurm.partitions.values())
        and not real_run
    ):
        yield Check(
            "gpus", "warning", "the site profile does not say which CUDA version the nodes' driver supports",
            "`hpcbench doctor --run` asks a node; until then hpcbench does not check the CUDA of images",
        )  # fmt: skip


def _docker(site: Site) -> Check:
    try:
        place = docker_run.find_socket(Docker.Options(**site.container.options).socket)  # type: ignore[arg-type]
        name, version = docker_run.engine(docker_run.connect(place))
    except EnvironmentFault as fault:
        return Check("container", "failed", str(fault))
    except ValueError as error:
        return Check("container", "failed", f"container.options: {error}", "see docs/images.md")
    return Check("container", "ok", f"{name} {version} at {place}")


def _skypilot(site: Site) -> Check:
    """Whether its program and server answer; `submit` learns which machines there are."""
    try:
        found = SkyPilot.machines_of(site.container.options).check()
    except HpcbenchError as error:
        return Check("container", "failed", str(error), "see docs/images.md")
    return Check("container", "ok", found)


def _container_needs(site: Site) -> Iterator[Check]:
    """Kernel features that an ordinary user's containers need, on this machine; compute nodes may differ."""
    ended = run(["unshare", "--user", "true"], PATIENCE)
    if ended.failed:
        yield Check(
            "namespaces", "warning", _said(ended, ended.messages),
            f"without user namespaces, images need a setuid Apptainer: {_support(site)}",
        )  # fmt: skip
    else:
        yield Check("namespaces", "ok", "user namespaces are enabled")
    if os.access("/dev/fuse", os.R_OK | os.W_OK):
        yield Check("fuse", "ok", "/dev/fuse is accessible")
    else:
        yield Check(
            "fuse", "warning", "/dev/fuse is missing or not accessible",
            f"unless Apptainer is setuid, it unpacks images at each start: {_support(site)}",
        )  # fmt: skip
    if shutil.which("newuidmap") and has_subordinate_ids():
        yield Check("recipes", "ok", "this machine can build Dockerfiles (subuid, newuidmap)")
    else:
        yield Check(
            "recipes", "warning", f"no line for {getpass.getuser()} in /etc/subuid, or no newuidmap",
            "only Dockerfiles and .def files need it: build them elsewhere, then `hpcbench images save`",
        )  # fmt: skip


def _engine() -> Check:
    missing = [
        name for name in ("aiohttp", "uvicorn", "torch", "transformers") if not find_spec(name)
    ]
    if missing:
        return Check(
            "engine", "warning", f"this Python has no {', '.join(missing)}",
            "needed only without an image, as for `doctor --run` without `--image REF`: "
            f"{installed.install_hint('hf')}",
        )  # fmt: skip
    return Check("engine", "ok", "this Python can serve Hugging Face models")


# --- whether nodes may call sbatch, and which GPUs they have: only a job can find out ----------------

_ANSWER = "doctor-submits"
"""Prefix of the files below home that jobs write about sbatch, one each."""

_GPUS = "doctor-gpus"
"""Prefix of the files below home for the output of `nvidia-smi -q` on the jobs' nodes."""


def asking_job(site: Site) -> Site:
    """The site, whose jobs also run a line that tries the jobs' use of Slurm and writes down the result."""
    for name in (_ANSWER, _GPUS):
        for old in home(site).glob(f"{name}.*"):
            old.unlink(missing_ok=True)
    options = [f"--{name}={value}" for name, value in _known(site) if value]
    words = shlex.join(["sbatch", "--test-only", "--time=1", "--ntasks=1", *options, "--wrap=true"])
    file = shlex.quote(str(home(site) / _ANSWER))
    line = f"(timeout 60 {words} && timeout 60 scontrol ping) >/dev/null 2>&1; "
    line += f"echo $? >{file}.${{SLURM_JOB_ID}}; "
    file = shlex.quote(str(home(site) / _GPUS))
    line += f"timeout 60 nvidia-smi -q >{file}.${{SLURM_JOB_ID}} 2>/dev/null || true"
    return site.model_copy(update={"setup": (*site.setup, line)})


def may_submit(site: Site) -> bool | None:
    """Whether the jobs of `asking_job` could use Slurm; None: no job wrote a result."""
    said = []
    for file in home(site).glob(f"{_ANSWER}.*"):
        with contextlib.suppress(OSError):
            said.append(file.read_text(encoding="utf-8").strip() == "0")
            file.unlink()
    return all(said) if said else None


def gpus_of_nodes(site: Site) -> NodeGpus | None:
    """GPUs that the jobs of `asking_job` found on their nodes; None: no driver answered."""
    found: NodeGpus | None = None
    for file in home(site).glob(f"{_GPUS}.*"):
        with contextlib.suppress(OSError):
            found = parse_smi(file.read_text(encoding="utf-8", errors="replace")) or found
            file.unlink()
    return found


def _known(site: Site) -> tuple[tuple[str, str | None], ...]:
    own = site.slurm
    return (("partition", own.partition), ("account", own.account), ("qos", own.qos))
