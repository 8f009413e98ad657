"""Images in Docker, or in podman, which answers the same requests.

Docker keeps images in a store of its own, on every machine another: `prepare` fetches the image to find out
what is in it, and a node that has not got it fetches it when a program is started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from hpcbench import plugins
from hpcbench.environments import docker_run
from hpcbench.environments.binds import PACKAGES, Bind, checked
from hpcbench.environments.docker_run import Spec
from hpcbench.environments.images import file_digest
from hpcbench.environments.oci import Reference, resolve
from hpcbench.environments.packages import Probe, packages_for
from hpcbench.environments.packages import probe as ask_python
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.files import read_json, write_json
from hpcbench.plugins import Command, Environment
from hpcbench.schema.documents import ContainerSite

PASSED = (
    "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_ID", "SLURM_GPUS_ON_NODE",
)  # fmt: skip
"""Variables of the job that a container sees; NVIDIA's devices are counted anew in it."""

RUNNER = (sys.executable, "-m", "hpcbench.environments.docker_run")


class Docker:
    """`docker://…` or `docker-archive:FILE`."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """`container.options` of a site."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        socket: str | None = None
        """Path of Docker's socket; none: DOCKER_HOST, Docker's usual one, or the user's podman."""

    def prepare(
        self,
        reference: str,
        cache: Path,
        container: ContainerSite,
        requirements: Sequence[str],
        say: Callable[[str], None],
    ) -> Environment:
        """Have the image in Docker's store, and the wrapper's packages in the cache.

        Raises:
            UserError: the reference is not one, or names no file; the site's options are wrong.
            EnvironmentFault: Docker, the registry or the disk does not let us.
        """
        socket = docker_run.find_socket(_options(container).socket)
        client = docker_run.connect(socket)
        docker_run.sweep(client)
        images = cache / "images"
        images.mkdir(parents=True, exist_ok=True)
        if reference.startswith("docker://"):
            named = Reference.parse(reference)
            digest = resolve(named, container.insecure_registries)
            origin, image = reference, named.at(digest)
        elif reference.startswith("docker-archive:"):
            file = Path(reference.partition(":")[2].removeprefix("//")).expanduser().absolute()
            if not file.is_file():
                raise UserError(Problem(f"image '{reference}': there is no file {file}"))
            digest = file_digest(file, cache)
            stored = images / f"{digest.removeprefix('sha256:')}.docker.json"
            if not stored.exists():
                say(f"loading {file}")
                write_json(stored, {"image": docker_run.load(socket, file)})
            origin, image = f"docker-archive:{file}", str(read_json(stored)["image"])
        else:
            raise UserError(
                Problem(
                    f"'{reference}' is no image for Docker",
                    remedy="write docker://… or docker-archive:FILE",
                )
            )
        say(f"looking for {image} in Docker")
        if docker_run.have_image(socket, image, origin):
            say(f"fetched {image}")
        probed = _probe(
            Spec(socket, image, origin, (), ()),
            images / f"{digest.removeprefix('sha256:')}.probe.json",
        )
        return Environment(
            kind="docker",
            path=image,
            digest=digest,
            packages=str(packages_for(probed, cache, requirements)),
            details={
                "reference": reference,
                "origin": origin,
                "engine": " ".join(docker_run.engine(client)),
                "image_id": str(client.images.get(image).id),
                "pythonpath": probed.pythonpath,
                **probed.details(),
            },
            versions=probed.versions,
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
        """The runner that stands in for the program, see `docker_run`.

        The program's words are the runner's, so that `ps` tells what runs; the values of variables go
        through the runner's environment.
        """
        binds = checked((*mounts, *container.binds), environment.packages)
        home = next((bind.target for bind in map(Bind.parse, mounts) if bind.is_private), None)
        inside = {name: os.environ[name] for name in PASSED if name in os.environ}
        # Nobody in the image has our number, so nobody has a home there.
        inside |= {"PYTHONDONTWRITEBYTECODE": "1", "HOME": home or "/tmp", **env}
        if environment.packages is not None:
            image = environment.details.get("pythonpath")
            inside["PYTHONPATH"] = f"{PACKAGES}:{image}" if image else PACKAGES
        spec = Spec(
            socket=docker_run.find_socket(_options(container).socket),
            image=environment.path,
            reference=environment.details["origin"],
            mounts=[(one.source, one.target, one.read_only) for one in binds],
            names=sorted(inside),
            workdir=home,
            network=container.network,
            gpus=_gpu_ids(gpus),
            gpu_maker=container.gpu_maker,
        )
        first, *rest = argv
        program = "python3" if first == "python" else first
        return Command([*RUNNER, program, *rest], spec.environment(inside))


def _options(container: ContainerSite) -> Docker.Options:
    if wrong := plugins.check_options(Docker, container.options):
        raise UserError(
            *(Problem(f"container.options.{'.'.join(at)}: {what}") for at, what in wrong)
        )
    return Docker.Options.model_validate(dict(container.options))


def _probe(spec: Spec, stored: Path) -> Probe:
    """Ask the image's Python about itself, once an image."""
    if stored.exists():
        return Probe(**read_json(stored))
    env = {**os.environ, **spec.environment({})}
    probed = ask_python([*RUNNER, "python3"], spec.image, env)
    write_json(stored, asdict(probed))
    return probed


def _gpu_ids(count: int) -> list[str]:
    """Which GPUs of the machine are the job's, as the daemon counts them, which is not in the job.

    Slurm counts CUDA_VISIBLE_DEVICES from nought where it hides the other GPUs from a job.
    """
    names = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
    given = next((os.environ[name] for name in names if os.environ.get(name)), None)
    ids = given.split(",") if given else [str(number) for number in range(count)]
    return ids[:count]
