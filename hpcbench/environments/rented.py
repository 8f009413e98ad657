"""Machines that hpcbench rents: what all providers of them share.

A wrapped command is a *runner* here (`rented_run`): it rents a machine, runs the command in it, and deletes
the machine, however the command ends. A provider says how: the `Machines` of an account.
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
from contextlib import AbstractContextManager
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import BaseModel

from hpcbench import plugins
from hpcbench.environments.inside import Bind, words
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment import process_identity
from hpcbench.files.atomic import read_json, write_json
from hpcbench.files.lease import boot_id
from hpcbench.plugins import Command, Environment
from hpcbench.schema.site import ContainerSite
from hpcbench.ssh.login import Host

SPEC = "HPCBENCH_RENTED"
"""Variable with the runner's instructions."""

TAKEN = 254
"""Exit code of a runner whose machine was taken away: preempted, or deleted by another program."""

START_SECONDS = 3600.0
"""Longest wait for a command: a machine is rented and data copied first; each step has its own limit."""

KEPT_SECONDS = 14 * 86400.0
"""Seconds for which the cost of another computer's machine is kept."""

GIVE_BACK_SECONDS = 60.0
"""Seconds of attempts to delete a machine, before the user is asked to delete it by hand."""


class NotRented(EnvironmentFault):
    """The provider refused: there is no machine to delete."""


class Spec(BaseModel, extra="forbid", frozen=True):
    """A runner's task. Holds references, no secrets except in `env`."""

    kind: str
    """Name of the environment."""
    options: dict[str, Any]
    image: str
    argv: tuple[str, ...]
    env: dict[str, str]
    mounts: tuple[Bind, ...]
    gpus: int
    cache: str
    requirements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """A machine to rent."""

    image: str
    gpus: int
    name: str
    asked_at: float
    """Unix time; the machine's time is counted from here."""
    left: float
    """USD that it may cost."""
    folder: Path
    """Private folder of the run."""
    know: Callable[..., None]
    """Keeps a fact as soon as it is known: `id`, `price` (USD an hour), `deadline` (Unix time)."""
    waiting: Callable[[], AbstractContextManager[None]]
    """Signals wait inside this block: a response with the machine's id must not be lost."""


class Machines(Protocol):
    """The rented machines of an account."""

    image_environment: str
    """Shell commands that give a session the image's variables."""

    def account(self) -> Mapping[str, str]:
        """The account, for the guard; secrets included."""

    def existing(self) -> Mapping[str, str]:
        """Name → id of all machines."""

    def lives(self, machine: str) -> bool:
        """Whether it runs."""

    def rent(self, order: Order) -> Host:
        """Rent one; returns how to log in.

        Raises:
            NotRented: the provider has none.
            EnvironmentFault: it failed, and there may be a machine.
        """

    def end_at(self, seconds: int) -> str:
        """Shell commands by which the machine deletes itself; empty if the provider does that."""

    def give_back(self, machine: str, patience: float = GIVE_BACK_SECONDS) -> None:
        """Delete one, and verify that it is gone.

        Raises:
            EnvironmentFault: the deletion is unverified; says how to delete it by hand.
        """


class Rented(BaseModel, frozen=True):
    """Record of a machine, kept while it may exist, so that another process can check it."""

    kind: str = "runpod"
    """Name of its environment."""
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
    """Id at its provider; None: it was requested, and no response has come yet."""
    deadline: float | None = None
    """Unix time."""
    ended: float | None = None
    """Unix time; the record stays while its worker lives: its cost reduces the worker's budget."""

    @classmethod
    def by_me(cls, kind: str) -> Rented:
        """A record for a machine that this process will rent."""
        host, pid, worker = _host(), os.getpid(), os.getppid()
        return cls(
            kind=kind,
            name=f"{_prefix()}{host}-{pid}-{os.urandom(4).hex()}",
            host=host,
            boot=boot_id(),
            pid=pid,
            started=process_identity.started(pid) or "",
            worker=(worker, process_identity.started(worker) or ""),
            begun=time.time(),
        )

    def write(self, cache: Path) -> None:
        """Write the record: before the machine is requested, and at each change."""
        write_json(self._file(cache), self.model_dump())

    def close(self, cache: Path) -> None:
        """Mark the machine as deleted, after that was verified."""
        self.model_copy(update={"ended": self.ended or time.time()}).write(cache)

    def forget(self, cache: Path) -> None:
        """Delete the record: there was no machine, or no process needs it any more."""
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
        """Reason why no process needs the machine any more; None: a process may need it."""
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
        return cache / self.kind / f"{self.name}.json"


class Renting(Protocol):
    """An environment on rented machines."""

    @staticmethod
    def machines_of(options: Mapping[str, Any]) -> Machines:
        """The machines, by the options of a site."""

    @staticmethod
    def machines_at(account: Mapping[str, str]) -> Machines:
        """The machines, by what `Machines.account` gave."""


def renting(kind: str) -> type[Renting]:
    """The environment of that name."""
    found: type[Renting] = plugins.load("environments", kind)
    return found


def environment(
    kind: str,
    reference: str,
    image: str,
    digest: str | None,
    cache: Path,
    requirements: Sequence[str],
) -> Environment:
    """An image for `wrap`, which reads these details."""
    return Environment(
        kind=kind,
        path=image,
        digest=digest,
        details={
            "reference": reference,
            "cache": str(cache),
            "requirements": json.dumps(list(requirements)),
        },
        start_seconds=START_SECONDS,
    )


class RentedEnvironment:
    """The base class of environments on rented machines."""

    api: ClassVar[int] = 1

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

        Read-only mounts are copied into the machine. Writable mounts start empty there and are copied back;
        files that already exist here are appended to.
        """
        if gpus and not container.options.get("gpu_types"):
            raise EnvironmentFault(
                "container.options names no gpu_types, but the model needs a GPU",
                remedy="name some in the provider's spelling, e.g. `gpu_types: [NVIDIA L40S]` at RunPod, "
                "`gpu_types: [L40S]` with SkyPilot",
            )
        folders = tuple(Bind.parse(mount) for mount in (*mounts, *container.binds))
        for folder in folders:
            if not Path(folder.source).exists():
                raise EnvironmentFault(
                    f"cannot copy {folder.source} to the rented machine: it is not on this machine"
                )
        spec = Spec(
            kind=environment.kind,
            options=dict(container.options),
            image=environment.path,
            argv=tuple(words(argv)),
            env=dict(env),
            mounts=folders,
            gpus=gpus,
            cache=environment.details["cache"],
            requirements=tuple(json.loads(environment.details["requirements"])),
        )
        return Command(
            [sys.executable, "-m", "hpcbench.environments.rented_run"],
            {SPEC: spec.model_dump_json()},
        )


def sweep(machines: Machines, kind: str, cache: Path, say: Callable[[str], None]) -> None:
    """Delete machines whose runner has ended or whose time is used up.

    Only machines in this cache: processes of other computers are invisible here.
    """
    there = machines.existing()
    known = {rented.name: rented for rented in _rented(kind, cache)}
    for rented in known.values():
        why, machine = rented.left, there.get(rented.name)
        if why is not None and machine is not None:
            machines.give_back(machine)
            say(f"deleted {kind} machine {machine} ({rented.name}) of an earlier run: {why}")
        if rented.settled and (why is not None or rented.ended is not None):
            rented.forget(cache)
        elif why is not None:
            rented.close(cache)
    for name in there:
        if name.startswith(_prefix()) and name not in known:
            say(
                f"{kind} machine {there[name]} ({name}) is of another cache: if no run needs it, delete it"
            )


def spent(cache: Path, by: Rented) -> float:
    """USD that the worker of a machine has spent on its other machines."""
    others = (one for one in _rented(by.kind, cache) if one.name != by.name)
    return sum(one.cost for one in others if one.same_worker(by))


def _rented(kind: str, cache: Path) -> Iterator[Rented]:
    for file in sorted((cache / kind).glob("hpcbench-*.json")):
        with contextlib.suppress(
            FileNotFoundError, ValueError
        ):  # removed meanwhile, or another version's
            yield Rented.model_validate(read_json(file))


Options = TypeVar("Options", bound=BaseModel)


def checked(manager: type, options: type[Options], given: Mapping[str, Any]) -> Options:
    """The options of a site.

    Raises:
        UserError: some are wrong.
    """
    if wrong := plugins.check_options(manager, given):
        raise UserError(*(Problem(f"container of the site: {message}") for _, message in wrong))
    return options.model_validate(dict(given))


def check_programs(programs: Mapping[str, str]) -> None:
    """Check programs before a machine costs money: program → package that has it."""
    for program, package in programs.items():
        if shutil.which(program) is None:
            raise EnvironmentFault(
                f"there is no {program} on this machine", remedy=f"install {package}"
            )


def _prefix() -> str:
    return f"hpcbench-{getuser()}-"


def _host() -> str:
    return socket.gethostname().partition(".")[0]
