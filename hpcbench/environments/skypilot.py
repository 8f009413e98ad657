"""Images on machines that SkyPilot rents: virtual machines of a cloud, or pods of a Kubernetes.

    container:
      manager: skypilot
      options: {program: ~/sky/bin/sky, gpu_types: [L40S], max_cost: 5, max_hours: 4}

hpcbench calls the program `sky` of an environment of its own, with the API server that this program uses.
The image needs root, Python, and what SkyPilot needs to log in.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from hpcbench import secret
from hpcbench.environments import rented
from hpcbench.environments.oci import resolve
from hpcbench.environments.rented import Order
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.files.atomic import write_json
from hpcbench.plugins import Environment
from hpcbench.schema.image_reference import Reference
from hpcbench.schema.site import ContainerSite
from hpcbench.ssh.login import Host

ANSWER_SECONDS = 300.0
"""Longest wait for a command of `sky` that rents nothing."""

ONLY_CLUSTERS = ("--no-show-managed-jobs", "--no-show-services", "--no-show-pools")

LAUNCHES = ("sky.launch", "launch")
"""Names of the requests that rent."""

NO_IMAGE = "skypilot:"
"""Reference of no image: the files of the machine itself."""

INSTALL = "install it into an environment of its own, `python3 -m venv sky && sky/bin/pip install skypilot`"


class SkyPilot(rented.RentedEnvironment):
    """`docker://…`, as in the other environments, or `skypilot:`, the machine's own Python."""

    class Options(BaseModel, extra="forbid", frozen=True):
        """The rented machine, and its highest price."""

        max_cost: float = Field(gt=0)
        """Most that the machines of one worker may cost together, USD; it has one at a time."""
        max_hours: float = Field(gt=0)
        """Longest life of its machines together. One that costs more than `max_cost` / `max_hours` an hour is
        not rented."""
        gpu_types: tuple[str, ...] = ()
        """GPUs by SkyPilot's names, e.g. `L40S`; the first that is available."""
        infra: str | None = None
        """Where, as `sky launch --infra` takes it: `k8s`, `aws/us-east-1`; none: the cheapest place."""
        spot: bool = False
        """Whether the machine may be preempted, for a lower price."""
        disk_gb: int = Field(default=100, gt=0)
        """Room for image, model and results."""
        start_minutes: float = Field(default=30, gt=0)
        """Longest wait until a machine can be reached; it costs money from the beginning."""
        program: str = "sky"
        """SkyPilot's program, or its path."""

    def prepare(
        self,
        reference: str,
        cache: Path,
        container: ContainerSite,
        requirements: Sequence[str],
        say: Callable[[str], None],
    ) -> Environment:
        """Check options and image; delete leftover machines; let SkyPilot plan one, without renting it.

        Only a machine can report the image's Python: the packages are built when the first one runs.

        Raises:
            UserError: the options are wrong, or the reference names no image of a registry.
            EnvironmentFault: SkyPilot or the registry refuses, or a program is missing.
        """
        if not reference.startswith("docker://") and reference != NO_IMAGE:
            raise UserError(
                Problem(
                    f"'{reference}' cannot run with SkyPilot",
                    remedy="use an image of a registry, docker://HOST/NAME, or "
                    f"`{NO_IMAGE}` for the files of the machine itself",
                )
            )
        rented.check_programs({"ssh": "openssh-client", "rsync": "rsync"})
        clusters = self.machines_of(container.options)
        clusters.check()
        rented.sweep(clusters, "skypilot", cache, say)
        image, digest = "", None
        if reference != NO_IMAGE:
            named = Reference.parse(reference)
            digest = resolve(named, container.insecure_registries)
            image = named.at(digest)
        clusters.plan(image, cache)
        return rented.environment("skypilot", reference, image, digest, cache, requirements)

    @staticmethod
    def machines_of(options: Mapping[str, Any]) -> Clusters:
        """The machines that SkyPilot rents with these options."""
        return Clusters(rented.checked(SkyPilot, SkyPilot.Options, options))

    @staticmethod
    def machines_at(account: Mapping[str, str]) -> Clusters:
        """The machines, as far as deleting them needs it."""
        return Clusters(SkyPilot.Options(max_cost=1, max_hours=1, program=account["program"]))


class Clusters:
    """SkyPilot's clusters of one machine, through its program; a machine's id is the cluster's name.

    SkyPilot logs in without a check of the host's key, since it knows none; neither do we, and keep the key
    of the first contact for this run.
    """

    image_environment = (
        "test ! -r /etc/profile.d/container_env_var.sh || . /etc/profile.d/container_env_var.sh; "
    )

    def __init__(self, options: SkyPilot.Options) -> None:
        self._options = options
        self._program = str(Path(options.program).expanduser())

    def account(self) -> Mapping[str, str]:
        """The program; SkyPilot keeps credentials itself."""
        return {"program": self._program}

    def check(self) -> str:
        """SkyPilot's version and server.

        Raises:
            EnvironmentFault: there is no SkyPilot, or its server does not answer.
        """
        said = self._answer(["api", "info"], "ask SkyPilot's API server")
        server = re.search(r"API server[^:]*: (\S+)", said)
        version = re.search(r"client version: ([^\s,]+)", said)
        if server is None or not re.search(r"\bHEALTHY\b", said):
            line = re.search(r"^.*API server.*$", said, re.MULTILINE)
            raise EnvironmentFault(
                f"SkyPilot has no API server: {line[0] if line else said.strip()[:200]}",
                remedy=f"run `{self._program} api start`, or `api login` for a server elsewhere",
            )
        return f"SkyPilot {version[1] if version else '?'}, server {server[1]}"

    def plan(self, image: str, folder: Path) -> None:
        """Let SkyPilot choose a machine, without renting it.

        Raises:
            EnvironmentFault: it has no cloud, or none with such a machine at this price.
        """
        folder.mkdir(parents=True, exist_ok=True)
        task = folder / f".skypilot-{os.getpid()}.json"
        try:
            write_json(task, self._task(image, gpus=1 if self._options.gpu_types else 0))
            self._answer(
                ["launch", "--yes", "--dryrun", "--cluster", "hpcbench-plan", str(task)],
                "plan a machine",
            )
        finally:
            task.unlink(missing_ok=True)

    def existing(self) -> Mapping[str, str]:
        """Names of all clusters of this user."""
        return {name: name for name in self._states()}

    def lives(self, machine: str) -> bool:
        """Whether the cloud says that it runs."""
        return self._states("--refresh", machine).get(machine) == "UP"

    def end_at(self, seconds: int) -> str:
        """Nothing: SkyPilot's autostop deletes it, which `rent` sets."""
        return ""

    def rent(self, order: Order) -> Host:
        """Launch the cluster; SkyPilot refuses a price above the limit."""
        options = self._options
        price = options.max_cost / options.max_hours  # at most; so the deadline is known in advance
        hours = order.left / price
        deadline = order.asked_at + 3600 * hours
        order.know(id=order.name, price=price, deadline=deadline)
        task = order.folder / "task.json"
        write_json(task, self._task(order.image, order.gpus))
        # Counted from the end of the launch, whether it is idle or not: after the deadline in any case.
        end = ["--idle-minutes-to-autostop", str(math.ceil(60 * hours) + 1), "--down"]
        self._answer(
            ["launch", "--yes", "--detach-run", "--cluster", order.name]
            + [*end, "--wait-for", "none", str(task)],
            "rent a machine",
            seconds=60 * options.start_minutes,
        )
        kept = Path("~/.sky/generated").expanduser()
        return Host(
            order.name,
            identity=str(kept / f"ssh-keys/{order.name}.key"),
            settings=kept / "ssh" / order.name,
            first_contact=order.folder / "known",
        )

    def give_back(self, machine: str, patience: float = rented.GIVE_BACK_SECONDS) -> None:
        """Delete a cluster, and verify that it is gone."""
        until, wait = time.monotonic() + patience, 1.0
        while True:
            try:
                self._answer(["down", "--yes", machine], f"delete {machine}")
                if machine in self._states():
                    why = "it still exists"
                elif self._cancelled(machine):
                    why = "it was still being rented"
                else:
                    return
            except EnvironmentFault as fault:
                why = fault.message
            wait = min(2 * wait, 30.0)
            if time.monotonic() + wait > until:
                raise EnvironmentFault(
                    f"MACHINE {machine} MAY STILL COST MONEY: it could not be deleted ({why})",
                    remedy=f"run `{self._program} down {machine}`",
                )
            time.sleep(wait)

    def _cancelled(self, machine: str) -> bool:
        """Cancel the launch of a machine that the server does not list yet; whether there was one."""
        what = "list the requests for a machine"
        said = self._answer(["api", "status", "--cluster", machine, "--output", "json"], what)
        requests = [str(one["request_id"]) for one in _listed(said) if one.get("name") in LAUNCHES]
        if requests:
            self._answer(["api", "cancel", "--yes", *requests], "cancel a launch")
        return bool(requests)

    def _task(self, image: str, gpus: int) -> dict[str, Any]:
        """SkyPilot's task file: a machine, and nothing to run."""
        options = self._options
        resources: dict[str, Any] = {
            "max_hourly_cost": options.max_cost / options.max_hours,
            "disk_size": options.disk_gb,
            "use_spot": options.spot,
        }
        if options.infra is not None:
            resources["infra"] = options.infra
        if image:
            resources["image_id"] = f"docker:{image}"
        if gpus:
            resources["accelerators"] = [f"{name}:{gpus}" for name in options.gpu_types]
        return {"resources": resources}

    def _states(self, *words: str) -> dict[str, str]:
        """Name → status of clusters."""
        said = self._answer(
            ["status", "--output", "json", *ONLY_CLUSTERS, *words], "list its machines"
        )
        return {str(one.get("name")): str(one.get("status")) for one in _listed(said)}

    def _answer(self, words: Sequence[str], what: str, seconds: float = ANSWER_SECONDS) -> str:
        """Output of a command of `sky`."""
        try:
            done = subprocess.run(
                [self._program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors="replace", check=False, timeout=seconds,
            )  # fmt: skip
        except OSError as error:
            raise EnvironmentFault(
                f"there is no SkyPilot: {self._program}: {error.strerror}",
                remedy=f"{INSTALL}, and name its `sky` in container.options.program",
            ) from error
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFault(
                f"SkyPilot cannot {what}: no answer in {seconds / 60:g} minutes",
                remedy="raise container.options.start_minutes"
                if seconds != ANSWER_SECONDS
                else f"see `{self._program} api status`",
            ) from error
        if done.returncode:
            why = reason(done.stdout, done.stderr)
            raise EnvironmentFault(f"SkyPilot cannot {what}: {why}", remedy=_remedy(why))
        return done.stdout


def _listed(said: str) -> list[dict[str, Any]]:
    """A list in an output; a line of text comes before it where a name is unknown."""
    begin = re.search(r"^\[", said, re.MULTILINE)
    try:
        listed: list[dict[str, Any]] = json.loads(said[begin.start() :] if begin else "")
    except ValueError as error:
        raise EnvironmentFault(
            f"SkyPilot's list cannot be read: {said.strip()[:200] or 'it is empty'}",
            remedy="hpcbench was tested with SkyPilot 0.14.1",
        ) from error
    return listed


def reason(output: str, errors: str) -> str:
    """One line for a refusal of `sky`: from its last exception on, without colours and columns."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", f"{output}\n{errors}").strip()
    found = list(re.finditer(r"^(?:\w+\.)*(?=\w+(?:Error|Exception)\b)", text, re.MULTILINE))
    said = text[found[-1].end() :] if found else text.rpartition("\n")[2]
    return secret.mask(" ".join(said.split()))[:300] or "it printed no message"


def _remedy(why: str) -> str | None:
    if "NoCloudAccess" in why:
        return "give SkyPilot a cloud or a Kubernetes; `sky check` says what each lacks"
    if "ResourcesUnavailable" in why:
        return "name more gpu_types or another infra, raise max_cost, ask for a quota, or try later"
    return None
