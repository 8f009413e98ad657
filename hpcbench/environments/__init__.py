"""Where an engine runs: a container image, or a virtual environment on the host.

`prepare` once on the login node, `wrap` on the compute node for each command:

    environment = prepare("docker://registry.example/vllm:1", cache, site.container)
    command = wrap(environment, ["python", "-m", "hpcbench.wrapper", …], mounts, env, gpus, site.container)

The first word of the command is the literal `python`: it becomes the Python of the image or of the virtual
environment. A mount is `SRC[:DST[:ro]]`. The first mount that may be written must be private to this run:
a container's /tmp and home lie in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hpcbench import plugins
from hpcbench.plugins import Command, Environment, EnvManager
from hpcbench.schema.documents import ContainerSite

__all__ = ["ELSEWHERE", "kind_of", "prepare", "wrap"]

ELSEWHERE = frozenset({"runpod"})
"""Environments of another machine: its memory and GPUs are not this one's."""


def kind_of(reference: str | None, manager: str = "apptainer") -> str:
    """Name of the plugin that an image reference is for.

    The one it begins with, `NAME:…`, or else the site's for images; `docker://` is where an image lies, and
    says nothing of what it runs in.
    """
    scheme, colon, rest = (reference or "venv:").partition(":")
    named = colon and not rest.startswith("//") and scheme in plugins.available("environments")
    return scheme if named else manager


def prepare(
    reference: str | None,
    cache: Path,
    container: ContainerSite,
    requirements: Sequence[str] = (),
    say: Callable[[str], None] = lambda line: None,
) -> Environment:
    """Make the environment ready, or find that it is, with a plan's packages beside the engine.

    Raises:
        UserError: the reference is not one or names nothing; a package conflicts with what is there.
        EnvironmentFault: the machine cannot make it: no Apptainer, no registry, no space.
    """
    manager: EnvManager = plugins.load("environments", kind_of(reference, container.manager))()
    return manager.prepare(reference or "", cache, container, requirements, say)


def wrap(
    environment: Environment,
    argv: Sequence[str],
    mounts: Sequence[str],
    env: Mapping[str, str],
    gpus: int,
    container: ContainerSite,
) -> Command:
    """The command that runs `argv` in the environment.

    It is for this machine, now: it looks at the environment variables it is to keep out, and at the mounts.

    Raises:
        EnvironmentFault: the image, or a folder to be mounted, is not here.
    """
    manager: EnvManager = plugins.load("environments", environment.kind)()
    return manager.wrap(environment, argv, mounts, env, gpus, container)
