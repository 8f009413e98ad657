"""Checks of what a run needs of this machine and of the site profile, each with a remedy."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shlex
import shutil
import subprocess
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
from hpcbench.errors import EnvironmentFault, HpcbenchError, UserError
from hpcbench.experiment.access import group_id
from hpcbench.experiment.layout import home
from hpcbench.schema.documents import ExperimentPlan, Resources, Site
from hpcbench.schema.plan import Group, ResolvedPlan
from hpcbench.site.profile import NodeGpus, gpus_here, parse_smi
from hpcbench.submit.sbatch import (
    FIND_MODULES,
    clean_environment,
    load_module,
    sbatch_text,
)

MIN_SLURM = (22, 5)
"""Oldest Slurm this is tested with."""

MIN_FREE_FILES = 20_000
"""Files that the packages beside a few images and the shards of an experiment need."""

MIN_FREE_GB = 5
"""Room that a few images and experiments need."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold, or should."""

    name: str
    """What was looked at."""
    state: str
    """`ok`, `warning` or `failed`."""
    detail: str
    """What was found."""
    remedy: str | None = None
    """What to do, where it is not ok."""


def checks(site: Site) -> Iterator[Check]:
    """Look at everything a run needs, cheapest first."""
    yield _python()
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
    yield from _gpus(site)
    if site.container.manager == "docker":
        yield _docker(site)
    elif site.container.manager == "apptainer":
        yield _container(site)
        if shutil.which(site.container.program):
            yield from _container_needs()
    yield _engine()


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    shared = not sys.prefix.startswith(("/tmp", "/var/tmp"))
    if shared:
        return Check("python", "ok", f"{version} in {sys.prefix}")
    return Check(
        "python", "warning", f"{version} in {sys.prefix}",
        "compute nodes must see it: install hpcbench on the shared file system",
    )  # fmt: skip


def _distribution() -> Iterator[Check]:
    """Another project has the name `hpcbench` on PyPI, and its files would replace ours."""
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
        return Check(
            "home", "failed", f"{folder}: {error.strerror}",
            "set HPCBENCH_HOME, or `home` in the site profile, to a shared folder with hard links",
        )  # fmt: skip
    free = shutil.disk_usage(folder).free / 1e9
    if free < MIN_FREE_GB:
        return Check("home", "warning", f"{folder}: {free:.1f} GB free", "make room or move it")
    left = os.statvfs(folder)
    if left.f_files and left.f_favail < MIN_FREE_FILES:
        return Check(
            "home", "warning", f"{folder}: room for {left.f_favail} more files",
            "packages beside images need thousands: `hpcbench data prune`, or a larger quota of files",
        )  # fmt: skip
    return Check("home", "ok", f"{folder}: {free:.0f} GB free")


def _socket_folder(site: Site) -> Check:
    folder = os.path.expandvars(site.scratch or "/tmp")
    if "$" in folder:
        return Check("scratch", "ok", f"{folder}: set by the job")
    if not os.access(folder, os.W_OK):
        return Check("scratch", "failed", f"{folder} is not writable", "set `scratch`")
    if len(folder) > 60:
        return Check("scratch", "failed", f"{folder}: too long for a Unix socket", "a shorter one")
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
        "slurm", "warning" if old else "ok", version, "22.05 or newer is tested" if old else None
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
        yield Check("partition", "failed", f"no partition '{wanted}'", f"one of {', '.join(names)}")
    else:
        yield Check("partition", "ok", wanted or "the cluster's default")


def _sharing(site: Site) -> Iterator[Check]:
    """The group that experiments are to belong to, and the umask."""
    if site.group is not None:
        try:
            number = group_id(site.group)
        except EnvironmentFault as fault:
            yield Check("group", "failed", fault.message, fault.remedy)
            return
        if number not in (os.getgid(), *os.getgroups()) and os.geteuid():
            yield Check(
                "group", "failed", f"you are not in group '{site.group}'", "`groups` lists yours"
            )
        elif site.umask is not None and int(site.umask, 8) & 0o050:
            yield Check(
                "group", "warning", f"umask {site.umask} keeps group '{site.group}' out",
                "umask 027 lets it read, 007 also resume",
            )  # fmt: skip
        else:
            yield Check("group", "ok", site.group)
    if site.umask is not None and not int(site.umask, 8) & 0o002:
        yield Check(
            "umask", "warning", f"{site.umask}: everybody may change your experiments", "umask 027"
        )
    elif site.umask is not None:
        yield Check("umask", "ok", site.umask)


def _secrets(site: Site) -> Iterator[Check]:
    for name, value in site.env.items():
        for message, remedy in secret.missing(value):
            yield Check("env", "failed", f"{name}: {message}", remedy)


def _modules(site: Site) -> Check:
    """Modules are loaded here as a job loads them; a compute node may have others."""
    lines = [FIND_MODULES, *site.setup, *map(load_module, site.modules)]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, errors="replace",
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    listed = ", ".join(site.modules)
    if done.returncode == 0:
        return Check("modules", "ok", listed)
    said = (done.stderr.strip() or done.stdout.strip() or "no word why").splitlines()[-1]
    return Check("modules", "failed", f"{listed}: {said}", "`module avail` lists what there is")


def _scripts(site: Site) -> Iterator[Check]:
    """The job scripts as they would be, held against Slurm's own test; nothing is submitted."""
    slurm_site = site.slurm
    gives = slurm_site.partitions.get(slurm_site.partition or "")
    gpus = 1 if gives is not None and gives.gpus else 0
    resources = Resources(cpus=1, memory_gb=1, time_limit="00:05:00")
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
    """What Slurm says of a job script: partition, account, QOS, constraint, reservation, GPUs."""
    with clean_environment():
        done = subprocess.run(
            ["sbatch", "--test-only"], input=text, capture_output=True, text=True,
            errors="replace", check=False,
        )  # fmt: skip
    said = [line for line in done.stderr.strip().splitlines() if line.strip()]
    last = (
        re.sub(r"^(sbatch|allocation failure): *(error: *)?", "", said[-1]) if said else "no word"
    )
    if done.returncode == 0:
        return Check(name, "ok", "Slurm would take it" + (", with a GPU" if gpu else ""))
    return Check(
        name, "failed", f"Slurm would not take it: {last}",
        "partition, account, qos, constraint, reservation or gpu_gres of the site profile",
    )  # fmt: skip


def _container(site: Site) -> Check:
    program = site.container.program
    if shutil.which(program) is None:
        return Check(
            "container", "warning", f"no {program} on PATH",
            "`module load apptainer`, or set container.program; models without an image still run",
        )  # fmt: skip
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return Check("container", "failed", done.stderr.strip()[:200], "ask your cluster's support")
    try:
        check_version(done.stdout.strip())
    except EnvironmentFault as fault:
        return Check("container", "failed", str(fault))
    return Check("container", "ok", done.stdout.strip())


def _gpus(site: Site) -> Iterator[Check]:
    """Whether the profile says what images are compared with: the CUDA that the nodes' driver takes."""
    if site.container.gpu_maker != "nvidia":
        return
    said, driver = site.container.cuda, site.container.driver
    words = f"CUDA {said}" + (f", driver {driver}" if driver else "")
    here = gpus_here() if site.executor == "local" else None
    if here is not None and said is not None and here.cuda not in (said, None):
        yield Check(
            "gpus", "warning", f"the driver here takes CUDA {here.cuda}, the profile says {said}",
            f"`container: {{cuda: \"{here.cuda}\"}}` in the site profile",
        )  # fmt: skip
    elif here is not None:
        yield Check("gpus", "ok", str(here))
    elif said is not None:
        yield Check("gpus", "ok", f"{words}, as the profile says")
    elif site.executor == "slurm" and any(one.gpus for one in site.slurm.partitions.values()):
        yield Check(
            "gpus", "warning", "the profile does not say which CUDA the nodes' driver takes",
            "`hpcbench doctor --run` looks on a node; until then images are not compared with it",
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


def _container_needs() -> Iterator[Check]:
    """What an ordinary user's containers need of the kernel, on this machine; compute nodes may differ."""
    done = subprocess.run(
        ["unshare", "--user", "true"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        yield Check(
            "namespaces", "warning", done.stderr.strip()[:200] or "unshare failed",
            "without user namespaces images run only under a setuid Apptainer: ask your cluster's support",
        )  # fmt: skip
    else:
        yield Check("namespaces", "ok", "user namespaces are open")
    if os.access("/dev/fuse", os.R_OK | os.W_OK):
        yield Check("fuse", "ok", "/dev/fuse is open")
    else:
        yield Check(
            "fuse", "warning", "/dev/fuse is missing or closed here",
            "unless Apptainer is setuid, images are unpacked at each start: ask your cluster's support",
        )  # fmt: skip
    if shutil.which("newuidmap") and has_subordinate_ids():
        yield Check("recipes", "ok", "Dockerfiles can be built here (subuid, newuidmap)")
    else:
        yield Check(
            "recipes", "warning", f"no line for {getpass.getuser()} in /etc/subuid, or no newuidmap",
            "only Dockerfiles and .def files need it: build those elsewhere, `hpcbench images save`",
        )  # fmt: skip


def _engine() -> Check:
    missing = [
        name for name in ("aiohttp", "uvicorn", "torch", "transformers") if not find_spec(name)
    ]
    if missing:
        return Check(
            "engine", "warning", f"this Python has no {', '.join(missing)}",
            f"needed only without an image: {installed.install_hint('hf')}",
        )  # fmt: skip
    return Check("engine", "ok", "this Python can serve Hugging Face models")


# --- whether nodes may call sbatch, and what GPUs they have: only a job can tell ----------------------

_ANSWER = "doctor-submits"
"""Files below home in which jobs say it, one each."""

_GPUS = "doctor-gpus"
"""Files below home in which jobs write what `nvidia-smi -q` says on their node."""


def asking_job(site: Site) -> Site:
    """The site, with a line in its jobs that tries what jobs need of Slurm and writes down how that ended."""
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
    """What the jobs of `asking_job` found; None: none of them said anything."""
    said = []
    for file in home(site).glob(f"{_ANSWER}.*"):
        with contextlib.suppress(OSError):
            said.append(file.read_text(encoding="utf-8").strip() == "0")
            file.unlink()
    return all(said) if said else None


def gpus_of_nodes(site: Site) -> NodeGpus | None:
    """What the jobs of `asking_job` saw of their nodes' GPUs; None: no driver answered."""
    found: NodeGpus | None = None
    for file in home(site).glob(f"{_GPUS}.*"):
        with contextlib.suppress(OSError):
            found = parse_smi(file.read_text(encoding="utf-8", errors="replace")) or found
            file.unlink()
    return found


def _known(site: Site) -> tuple[tuple[str, str | None], ...]:
    own = site.slurm
    return (("partition", own.partition), ("account", own.account), ("qos", own.qos))
