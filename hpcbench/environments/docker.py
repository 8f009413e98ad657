"""Images in Docker, or in podman, which has the same API.

Each machine's Docker has its own image store: `prepare` fetches the image to inspect it, and a node without
the image fetches it when a program starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from hpcbench import plugins
from hpcbench.environments import docker_run
from hpcbench.environments.docker_run import Spec
from hpcbench.environments.inside import Bind, checked, private, variables, words
from hpcbench.environments.packages import Probe, packages_for, probed_once
from hpcbench.environments.packages import probe as ask_python
from hpcbench.environments.sources import Source
from hpcbench.errors import Problem, UserError
from hpcbench.files.atomic import derived, write_json
from hpcbench.plugins import Command, Environment
from hpcbench.schema.site import ContainerSite

PASSED = (
    "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK", "SLURM_JOB_ID", "SLURM_GPUS_ON_NODE",
)  # fmt: skip
"""The only variables of the job that a container sees, beside those of `inside.FABRIC`; in the container
NVIDIA devices count from 0."""

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
        """Put the image into Docker's store, and the wrapper's packages into the cache.

        Raises:
            UserError: the reference is invalid, or names no file; the site's options are wrong.
            EnvironmentFault: Docker, the registry or the disk prevents it.
        """
        socket = docker_run.find_socket(_options(container).socket)
        client = docker_run.connect(socket)
        docker_run.sweep(client)
        images = cache / "images"
        images.mkdir(parents=True, exist_ok=True)
        if not reference.startswith(("docker://", "docker-archive:")):
            raise UserError(
                Problem(
                    f"'{reference}' is not an image for Docker",
                    remedy="write docker://… or docker-archive:FILE",
                )
            )
        source = Source.of(reference, cache, container)
        name = source.digest.removeprefix("sha256:")
        if source.transport == "docker":
            origin, image = reference, source.origin
        else:
            stored = images / f"{name}.docker.json"
            origin = f"docker-archive:{source.origin}"
            image = derived(stored, lambda noted: str(noted["image"])) or ""
            if not image:
                say(f"loading {source.origin}")
                image = docker_run.load(socket, Path(source.origin))
                write_json(stored, {"image": image})
        say(f"looking for {image} in Docker")
        if docker_run.have_image(socket, image, origin):
            say(f"fetched {image}")
        probed = probed_once(
            images / f"{name}.probe.json", lambda: _probe(Spec(socket, image, origin, (), ()))
        )
        return Environment(
            kind="docker",
            path=image,
            digest=source.digest,
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
            start_seconds=docker_run.PULL_SECONDS,  # a node fetches the image first
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
        """The runner that represents the program, see `docker_run`.

        The program's arguments are the runner's arguments, so `ps` shows the program; the values of variables
        go through the runner's environment.
        """
        binds = checked((*mounts, *container.binds), environment.packages)
        own = private([Bind.parse(mount) for mount in mounts])
        home = own.target if own is not None else None
        # Our user id does not exist in the image, so it has no home there.
        inside = variables(environment, {"HOME": home or "/tmp", **env}, PASSED)
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
        return Command([*RUNNER, *words(argv)], spec.environment(inside))


def _options(container: ContainerSite) -> Docker.Options:
    if wrong := plugins.check_options(Docker, container.options):
        raise UserError(
            *(Problem(f"container.options.{'.'.join(at)}: {what}") for at, what in wrong)
        )
    return Docker.Options.model_validate(dict(container.options))


def _probe(spec: Spec) -> Probe:
    """Ask the image's Python about itself."""
    env = {**os.environ, **spec.environment({})}
    return ask_python([*RUNNER, "python3"], spec.image, env)


def _gpu_ids(count: int) -> list[str]:
    """The job's GPUs, by the daemon's numbers; the daemon runs outside the job.

    Where Slurm hides the other GPUs from a job, it counts CUDA_VISIBLE_DEVICES from 0.
    """
    names = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
    given = next((os.environ[name] for name in names if os.environ.get(name)), None)
    ids = given.split(",") if given else [str(number) for number in range(count)]
    return ids[:count]
