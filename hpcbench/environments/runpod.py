"""Images in a rented pod of RunPod: only the keys of the pod are on this machine.

    container:
      manager: runpod
      options: {gpu_types: [NVIDIA L40S], max_cost: 5}

The image needs root, and `sshd` and `rsync`, or apt to install them.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, field_validator

from hpcbench import secret
from hpcbench.environments import rented
from hpcbench.environments.oci import resolve
from hpcbench.environments.rented import NotRented, Order
from hpcbench.environments.runpod_api import Api, ApiFault
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.plugins import Environment
from hpcbench.schema.image_reference import Reference
from hpcbench.schema.site import ContainerSite
from hpcbench.ssh.login import Host

FOUND_SECONDS = 30.0
"""Seconds in which a new pod may be unknown to the API."""

START = """
(umask 077; export -p > /run/hpcbench.env; mkdir -p /root/.ssh
printf '%s\\n' "$PUBLIC_KEY" >> /root/.ssh/authorized_keys)
if ! command -v rsync >/dev/null || ! [ -x /usr/sbin/sshd ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update && apt-get install -y --no-install-recommends openssh-server rsync
fi
mkdir -p /run/sshd
test -f /run/hpcbench.host || ssh-keygen -q -t ed25519 -N '' -f /run/hpcbench.host
exec /usr/sbin/sshd -D -e -h /run/hpcbench.host -o PermitRootLogin=prohibit-password \\
    -o PasswordAuthentication=no -o UsePAM=no -o AllowStreamLocalForwarding=yes \\
    -o AllowTcpForwarding=yes -o MaxSessions=50
"""
"""Replaces the entry point of the image in a pod. Sessions of sshd lack the image's environment, so a file
keeps it; a host key in the image would be public, so a new one is generated."""


class RunPod(rented.RentedEnvironment):
    """`docker://…`, as in the other environments."""

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
        options = rented.checked(RunPod, RunPod.Options, container.options)
        _check_files(options)
        rented.sweep(self.machines_of(container.options), "runpod", cache, say)
        named = Reference.parse(reference)
        digest = resolve(named, container.insecure_registries)
        image = named.at(digest)
        return rented.environment("runpod", reference, image, digest, cache, requirements)

    @staticmethod
    def machines_of(options: Mapping[str, Any]) -> Pods:
        """The pods of the account that the options name."""
        read = rented.checked(RunPod, RunPod.Options, options)
        return Pods(Api(read.endpoint, secret.reveal(read.api_key)), read)

    @staticmethod
    def machines_at(account: Mapping[str, str]) -> Pods:
        """The pods of an account."""
        return Pods(Api(account["endpoint"], account["key"]), RunPod.Options(max_cost=1))


class Pods:
    """The pods of an account.

    A pod makes its host key when it starts, and RunPod's API does not report it. So the key is accepted at
    first contact, into a file of this run alone. The address comes from the API over TLS; an attacker who
    redirects packets to it could still pose as the pod, and would get the model and the data.
    """

    image_environment = ". /run/hpcbench.env; unset PUBLIC_KEY SSH_PUBLIC_KEY RUNPOD_API_KEY; "

    def __init__(self, api: Api, options: RunPod.Options) -> None:
        self._api, self._options = api, options

    def account(self) -> Mapping[str, str]:
        """Address and key of the API."""
        return {"endpoint": self._api.endpoint, "key": self._api.key}

    def existing(self) -> Mapping[str, str]:
        """Name → id of all pods."""
        try:
            return {str(pod.get("name")): str(pod["id"]) for pod in self._api.pods()}
        except ApiFault as fault:
            if fault.status:
                raise
            raise EnvironmentFault(f"cannot query RunPod: {fault.message}", fault.remedy) from fault

    def lives(self, machine: str) -> bool:
        """Whether the pod runs."""
        found = self._api.find(machine)
        return found is not None and found.get("desiredStatus") == "RUNNING"

    def end_at(self, seconds: int) -> str:
        """Every pod has `runpodctl` and a key for it."""
        return f'. /run/hpcbench.env; sleep {seconds}; runpodctl remove pod "$RUNPOD_POD_ID"'

    def give_back(self, machine: str, patience: float = rented.GIVE_BACK_SECONDS) -> None:
        """Delete a pod, and verify that it is gone."""
        self._api.give_back(machine, patience)

    def rent(self, order: Order) -> Host:
        """Request the pod, refuse it if it costs too much, wait for its address."""
        options = self._options
        key = _key(options, order.folder)
        public = key.with_name(f"{key.name}.pub").read_text(encoding="utf-8").strip()
        body: dict[str, Any] = {
            "name": order.name,
            "imageName": order.image,
            "cloudType": options.cloud.upper(),
            "computeType": "GPU" if order.gpus else "CPU",
            "containerDiskInGb": options.disk_gb,
            "volumeInGb": 0,
            "ports": ["22/tcp"],
            "supportPublicIp": True,
            "interruptible": False,
            "env": {"PUBLIC_KEY": public},
            "dockerEntrypoint": ["sh", "-c"],
            "dockerStartCmd": [START],
        }
        if order.gpus:
            body |= {"gpuCount": order.gpus, "gpuTypeIds": list(options.gpu_types)}
            body |= {"gpuTypePriority": "custom"}
        if options.registry_login is not None:
            body["containerRegistryAuthId"] = options.registry_login
        with order.waiting():
            try:
                pod = self._api.create(body)
            except ApiFault as fault:
                if not fault.passing:
                    raise NotRented(fault.message, fault.remedy) from fault
                raise
            order.know(id=str(pod["id"]))
        price = _price(pod) or _price(self._api.find(str(pod["id"])) or {})
        deadline = order.asked_at + 3600 * _hours(price, options, order.left)
        order.know(price=price, deadline=deadline)
        until = min(deadline, order.asked_at + 60 * options.start_minutes)
        host, port = self._address(str(pod["id"]), order.asked_at, until)
        return Host(host, "root", port, identity=str(key), first_contact=order.folder / "known")

    def _address(self, pod: str, asked_at: float, until: float) -> tuple[str, int]:
        """Address of the pod's sshd, as soon as it is known.

        Raises:
            EnvironmentFault: that takes too long, or the pod disappeared.
        """
        pause = 0.5
        while True:
            # A new pod may be missing in some of the API's replies.
            new = time.time() - asked_at < FOUND_SECONDS
            found = self._api.find(pod) or ({} if new else {"desiredStatus": "gone"})
            state = found.get("desiredStatus")
            if state in ("gone", "EXITED"):
                raise EnvironmentFault(f"pod {pod} ended before it could be used: {state}")
            host, port = found.get("publicIp"), (found.get("portMappings") or {}).get("22")
            if state == "RUNNING" and host and port:
                return str(host), int(port)
            if time.time() > until:
                raise EnvironmentFault(
                    f"pod {pod} had no address after {self._options.start_minutes:g} minutes",
                    remedy="a large image needs time: raise container.options.start_minutes of the site",
                )
            time.sleep(pause)
            pause = min(1.5 * pause, 5.0)


def _check_files(options: RunPod.Options) -> None:
    """Check the runner's programs and files before the pod costs money."""
    rented.check_programs({"ssh": "openssh-client", "rsync": "rsync"})
    if options.ssh_key is not None:
        for file in (
            Path(options.ssh_key).expanduser(),
            Path(f"{options.ssh_key}.pub").expanduser(),
        ):
            if not file.is_file():
                raise EnvironmentFault(f"container.options.ssh_key: there is no file {file}")


def _key(options: RunPod.Options, folder: Path) -> Path:
    """The private key file, generated if the user names none."""
    if options.ssh_key is not None:
        return Path(options.ssh_key).expanduser()
    key = folder / "key"
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hpcbench", "-f", str(key)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return key


def _price(pod: Mapping[str, Any]) -> float:
    """USD an hour; the API gives it as text."""
    try:
        return float(pod.get("costPerHr") or 0)
    except ValueError:
        return 0.0


def _hours(price: float, options: RunPod.Options, left: float) -> float:
    """Allowed hours of a pod at that price, with `left` USD remaining."""
    max_cost, max_hours = options.max_cost, options.max_hours
    if price <= 0:
        raise EnvironmentFault(
            "RunPod names no price for the pod, so hpcbench cannot keep max_cost"
        )
    if max_hours is not None and price * max_hours > max_cost:
        raise EnvironmentFault(
            f"the pod costs {price:.2f} USD an hour: max_hours = {max_hours:g} would cost "
            f"{price * max_hours:.2f} USD, but max_cost is {max_cost:g} USD",
            remedy="raise max_cost, lower max_hours, or name cheaper gpu_types",
        )
    return min(max_hours or left / price, left / price)
