"""Images in a rented pod of RunPod: only the keys of the pod are on this machine.

    container:
      manager: runpod
      options: {gpu_types: [NVIDIA L40S], max_cost: 5}

A wrapped command is a *runner* here (`runpod_run`): it rents the pod, runs the command in it, and deletes
the pod, however the command ends. The image needs root, and `sshd` and `rsync`, or apt to install them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from getpass import getuser
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from hpcbench import plugins, secret
from hpcbench.environments.inside import Bind, words
from hpcbench.environments.oci import resolve
from hpcbench.environments.runpod_api import CONSOLE, Api, ApiFault
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment import process_identity
from hpcbench.files.atomic import read_json, write_json
from hpcbench.files.lease import boot_id
from hpcbench.plugins import Command, Environment
from hpcbench.schema.definitions import ContainerSite
from hpcbench.schema.image_reference import Reference

SPEC = "HPCBENCH_RUNPOD"
"""Variable with the runner's instructions."""


START_SECONDS = 3600.0
"""Longest wait for a command: the pod is rented and its data copied first; each step has its own limit."""

KEPT_SECONDS = 14 * 86400.0
"""Seconds for which the cost of another machine's pod is kept."""


class RunPod:
    """`docker://…`, as in the other environments."""

    api: ClassVar[int] = 1

    class Options(BaseModel, extra="forbid", frozen=True):
        """The rented machine, and its highest price."""

        max_cost: float = Field(gt=0)
        """Most that the pods of one worker may cost together, USD; it has one at a time."""
        max_hours: float | None = Field(default=None, gt=0)
        """Longest life of a pod; one that could cost more than `max_cost` by then is refused. None: it is
        deleted when it has cost `max_cost`."""
        gpu_types: tuple[str, ...] = ()
        """GPUs by RunPod's names, e.g. `NVIDIA L40S`; the first that is available."""
        api_key: str = "${env:RUNPOD_API_KEY}"
        """A reference."""
        cloud: Literal["secure", "community"] = "secure"
        """Whose machines: of data centres, or of any provider."""
        disk_gb: int = Field(default=100, gt=0)
        """Room for image, model and results."""
        registry_login: str | None = None
        """ID of the login stored at RunPod for a private registry."""
        ssh_key: str | None = None
        """File of a private key without password, its `.pub` beside it; none: one is made for each pod."""
        start_minutes: float = Field(default=20, gt=0)
        """Longest wait until a pod can be reached; it costs money from the beginning."""
        endpoint: str = "https://rest.runpod.io/v1"
        """Address of the API."""

        @field_validator("api_key")
        @classmethod
        def _by_reference(cls, value: str) -> str:
            if not secret.REFERENCE.fullmatch(value):
                raise ValueError("must be a reference, ${env:NAME} or ${file:PATH}")
            return value

        @field_validator("endpoint")
        @classmethod
        def _encrypted(cls, value: str) -> str:
            if not value.startswith(("https://", "http://127.0.0.1:")):
                raise ValueError("must begin with https://: hpcbench sends the key there")
            return value

    def prepare(
        self,
        reference: str,
        cache: Path,
        container: ContainerSite,
        requirements: Sequence[str],
        say: Callable[[str], None],
    ) -> Environment:
        """Check options, key and image; delete leftover pods of earlier runs.

        Only a pod can report the image's Python: the packages are built when the first pod runs.

        Raises:
            UserError: the options are wrong, or the reference names no image of a registry.
            EnvironmentFault: RunPod or the registry refuses, or a program is missing.
        """
        if not reference.startswith("docker://"):
            raise UserError(
                Problem(
                    f"'{reference}' cannot run at RunPod",
                    remedy="use an image of a registry, docker://HOST/NAME",
                )
            )
        options = _options(container)
        _check_machine(options)
        sweep(Api(options.endpoint, secret.reveal(options.api_key)), cache, say)
        named = Reference.parse(reference)
        digest = resolve(named, container.insecure_registries)
        return Environment(
            kind="runpod",
            path=named.at(digest),
            digest=digest,
            details={
                "reference": reference,
                "cache": str(cache),
                "requirements": json.dumps(list(requirements)),
            },
            start_seconds=START_SECONDS,
        )

    def wrap(
        self,
        environment: Environment,
        argv: Sequence[str],
        mounts: Sequence[str],
        env: Mapping[str, str],
        gpus: int,
        container: ContainerSite,
    ) -> Command:
        """The runner, instructed by a variable: every user can read an argument list.

        Read-only mounts are copied into the pod. Writable mounts start empty there and are copied back; files
        that already exist here are appended to.
        """
        options = _options(container)
        if gpus and not options.gpu_types:
            raise EnvironmentFault(
                "container.options names no gpu_types, but the model needs a GPU",
                remedy="name some in RunPod's spelling, e.g. `gpu_types: [NVIDIA L40S]`",
            )
        folders = tuple(Bind.parse(mount) for mount in (*mounts, *container.binds))
        for folder in folders:
            if not Path(folder.source).exists():
                raise EnvironmentFault(
                    f"cannot copy {folder.source} to the pod: it is not on this machine"
                )
        spec = Spec(
            options=options,
            image=environment.path,
            argv=tuple(words(argv)),
            env=dict(env),
            mounts=folders,
            gpus=gpus,
            cache=environment.details["cache"],
            requirements=tuple(json.loads(environment.details["requirements"])),
        )
        return Command(
            [sys.executable, "-m", "hpcbench.environments.runpod_run"],
            {SPEC: spec.model_dump_json()},
        )


class Spec(BaseModel, extra="forbid", frozen=True):
    """A runner's task. Holds references, no secrets except in `env`."""

    options: RunPod.Options
    image: str
    argv: tuple[str, ...]
    env: dict[str, str]
    mounts: tuple[Bind, ...]
    gpus: int
    cache: str
    requirements: tuple[str, ...]


class Rented(BaseModel, frozen=True):
    """Record of a pod, kept while the pod may exist, so that another process can check it."""

    name: str
    """`hpcbench-USER-HOST-PID-TOKEN`."""
    host: str
    boot: str
    """Boot id of that host: after a reboot, all its earlier processes are gone."""
    pid: int
    """Process id of the runner."""
    started: str
    """Start time of the runner in the kernel's format: process ids are reused."""
    worker: tuple[int, str]
    """Process id and start time of the process that started the runner."""
    begun: float
    """Start of the lease, Unix time."""
    price: float = 0.0
    """USD an hour."""
    id: str | None = None
    """None: the pod was requested, and no response has come yet."""
    deadline: float | None = None
    """Unix time."""
    ended: float | None = None
    """Unix time; the record stays while its worker lives: the pod's cost reduces the worker's budget."""

    @classmethod
    def by_me(cls) -> Rented:
        """A record for a pod that this process will rent."""
        host, pid, worker = _host(), os.getpid(), os.getppid()
        return cls(
            name=f"{_prefix()}{host}-{pid}-{os.urandom(4).hex()}",
            host=host,
            boot=boot_id(),
            pid=pid,
            started=process_identity.started(pid) or "",
            worker=(worker, process_identity.started(worker) or ""),
            begun=time.time(),
        )

    def write(self, cache: Path) -> None:
        """Write the record: before the pod is requested, and at each change."""
        write_json(self._file(cache), self.model_dump())

    def close(self, cache: Path) -> None:
        """Mark the pod as deleted, after that was verified."""
        self.model_copy(update={"ended": self.ended or time.time()}).write(cache)

    def forget(self, cache: Path) -> None:
        """Delete the record: there was no pod, or no process needs it any more."""
        self._file(cache).unlink(missing_ok=True)

    def same_worker(self, other: Rented) -> bool:
        """Whether one process started both runners."""
        return (self.host, self.boot, self.worker) == (other.host, other.boot, other.worker)

    @property
    def cost(self) -> float:
        """USD until now, or until its end."""
        return self.price * ((self.ended or time.time()) - self.begun) / 3600

    @property
    def left(self) -> str | None:
        """Reason why no process needs the pod any more; None: a process may need it."""
        if self.deadline is not None and time.time() > self.deadline:
            return "its time is used up"
        if self._gone(self.pid, self.started):
            return f"its process {self.pid} has ended"
        return None

    @property
    def settled(self) -> bool:
        """Whether its worker is gone, too."""
        return time.time() - self.begun > KEPT_SECONDS or self._gone(*self.worker)

    def _gone(self, pid: int, started: str) -> bool:
        """Whether that process has ended; False for another machine, whose processes are invisible here."""
        return self.host == _host() and (
            self.boot != boot_id() or process_identity.started(pid) != started
        )

    def _file(self, cache: Path) -> Path:
        return cache / "runpod" / f"{self.name}.json"


def sweep(api: Api, cache: Path, say: Callable[[str], None]) -> None:
    """Delete pods whose runner has ended or whose time is used up.

    Only pods in this cache: processes of other machines are invisible here.
    """
    try:
        there = {str(pod.get("name")): str(pod["id"]) for pod in api.pods()}
    except ApiFault as fault:
        if fault.status:
            raise
        raise EnvironmentFault(f"cannot query RunPod: {fault.message}", fault.remedy) from fault
    known = {rented.name: rented for rented in _rented(cache)}
    for rented in known.values():
        why, pod = rented.left, there.get(rented.name)
        if why is not None and pod is not None:
            api.give_back(pod)
            say(f"deleted pod {pod} ({rented.name}) of an earlier run: {why}")
        if rented.settled and (why is not None or rented.ended is not None):
            rented.forget(cache)
        elif why is not None:
            rented.close(cache)
    for name in there:
        if name.startswith(_prefix()) and name not in known:
            say(
                f"pod {there[name]} ({name}) is of another cache: if no run needs it, delete it at {CONSOLE}"
            )


def spent(cache: Path, by: Rented) -> float:
    """USD that the worker of a pod has spent on its other pods."""
    others = (one for one in _rented(cache) if one.name != by.name)
    return sum(one.cost for one in others if one.same_worker(by))


def _rented(cache: Path) -> Iterator[Rented]:
    for file in sorted((cache / "runpod").glob("hpcbench-*.json")):
        with contextlib.suppress(
            FileNotFoundError, ValueError
        ):  # removed meanwhile, or another version's
            yield Rented.model_validate(read_json(file))


def _options(container: ContainerSite) -> RunPod.Options:
    wrong = plugins.check_options(RunPod, container.options)
    if wrong:
        raise UserError(*(Problem(f"container of the site: {message}") for _, message in wrong))
    return RunPod.Options.model_validate(dict(container.options))


def _check_machine(options: RunPod.Options) -> None:
    """Check the runner's programs and files before the pod costs money."""
    for program, package in (("ssh", "openssh-client"), ("rsync", "rsync")):
        if shutil.which(program) is None:
            raise EnvironmentFault(
                f"there is no {program} on this machine", remedy=f"install {package}"
            )
    if options.ssh_key is not None:
        for file in (
            Path(options.ssh_key).expanduser(),
            Path(f"{options.ssh_key}.pub").expanduser(),
        ):
            if not file.is_file():
                raise EnvironmentFault(f"container.options.ssh_key: there is no file {file}")


def _prefix() -> str:
    return f"hpcbench-{getuser()}-"


def _host() -> str:
    return socket.gethostname().partition(".")[0]
