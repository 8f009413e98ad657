"""What this machine is: a site profile made by looking, and checks with a remedy each."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hpcbench import slurm
from hpcbench.environments import docker_run
from hpcbench.environments.docker import Docker
from hpcbench.environments.sif import check_version
from hpcbench.errors import EnvironmentFault, HpcbenchError
from hpcbench.experiment.layout import home
from hpcbench.schema.documents import ContainerSite, Partition, Site, SlurmSite

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


def detect() -> tuple[Site, list[str]]:
    """A site profile from what is found here, with remarks on what was chosen."""
    remarks: list[str] = []
    program = next((name for name in ("apptainer", "singularity") if shutil.which(name)), None)
    remarks.append(f"containers: {program or 'neither apptainer nor singularity on PATH'}")
    scratch = next((name for name in ("$SLURM_TMPDIR", "$TMPDIR") if name[1:] in os.environ), None)
    site = Site(
        name="default",
        description=f"made by `hpcbench init` on {socket.gethostname()}",
        home=str(home()),
        scratch=scratch,
        container=ContainerSite(program=program or "apptainer"),
    )
    if not slurm.available():
        remarks.append("executor: local (no sbatch on PATH)")
        return site, remarks
    profile = _slurm_site(remarks)
    remarks.append(f"executor: slurm ({slurm.version()})")
    return site.model_copy(update={"executor": "slurm", "slurm": profile}), remarks


def _slurm_site(remarks: list[str]) -> SlurmSite:
    partitions = slurm.partitions()
    default = next(
        (one["PartitionName"] for one in partitions if one.get("Default") == "YES"), None
    )
    nodes = slurm.nodes_by_partition()
    known: dict[str, Partition] = {}
    for partition in partitions:
        name = partition["PartitionName"]
        own = nodes.get(name)
        gpus = own.gpus if own is not None else {}
        limit = partition.get("MaxTime", "")
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(gpus.items()))
        remarks.append(f"partition {name}: {listed or 'no typed GPUs'}, time limit {limit or '?'}")
        known[name] = Partition(
            time_limit=limit if re.fullmatch(r"(\d+-)?\d{1,2}:\d{2}:\d{2}", limit) else None,
            cpus=own.cpus if own is not None else None,
            memory_gb=own.memory_gb if own is not None else None,
            # GPUs without a type cannot be told from here: then nothing is said of them.
            gpus=gpus if own is not None and (gpus or "gpu" not in ",".join(own.gres)) else None,
        )
    with_gpus = sorted(name for name, one in known.items() if one.gpus)
    chosen = default if not with_gpus or default in with_gpus else with_gpus[0]
    found = sorted(known[chosen].gpus or ()) if chosen else []
    return SlurmSite(
        partition=chosen,
        cpu_partition=default if default != chosen else None,
        gpu_gres=f"gpu:{found[0]}" if len(found) == 1 else "gpu",
        max_array_size=slurm.max_array_size(),
        partitions=known,
    )


def checks(site: Site) -> Iterator[Check]:
    """Look at everything a run needs, cheapest first."""
    yield _python()
    yield _home(site)
    yield _socket_folder(site)
    if site.executor == "slurm":
        yield from _slurm_checks(site)
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
    user = getpass.getuser()
    try:
        granted = Path("/etc/subuid").read_text(encoding="utf-8")
    except OSError:
        granted = ""
    if shutil.which("newuidmap") and re.search(
        rf"^({re.escape(user)}|{os.getuid()}):", granted, re.M
    ):
        yield Check("recipes", "ok", "Dockerfiles can be built here (subuid, newuidmap)")
    else:
        yield Check(
            "recipes", "warning", f"no line for {user} in /etc/subuid, or no newuidmap",
            "only Dockerfiles and .def files need it: build those elsewhere, `hpcbench images save`",
        )  # fmt: skip


def _engine() -> Check:
    missing = [
        name for name in ("fastapi", "uvicorn", "torch", "transformers") if not find_spec(name)
    ]
    if missing:
        return Check(
            "engine", "warning", f"this Python has no {', '.join(missing)}",
            "needed only without an image: pip install 'hpcbench[hf]'",
        )  # fmt: skip
    return Check("engine", "ok", "this Python can serve Hugging Face models")
