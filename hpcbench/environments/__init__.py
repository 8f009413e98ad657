"""Where an engine runs: a container image, or a virtual environment on the host.

`prepare` once on the login node, `wrap` on the compute node for each command:

    environment = prepare("docker://registry.example/vllm:1", cache, site.container)
    command = wrap(environment, ["python", "-m", "hpcbench.wrapper", …], mounts, env, gpus, site.container)

The literal `python` at the start of the command becomes the Python of the image or of the virtual
environment. A mount is `SRC[:DST[:ro]]`. The first writable mount must be private to this run: it holds
a container's /tmp and home.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hpcbench import plugins
from hpcbench.plugins import Command, Environment, EnvManager
from hpcbench.schema.site import ContainerSite

__all__ = ["ELSEWHERE", "kind_of", "prepare", "wrap"]

ELSEWHERE = frozenset({"runpod", "skypilot"})
"""Environments on another machine, whose memory and GPUs differ from this machine's."""


def kind_of(reference: str | None, manager: str = "apptainer") -> str:
    """Name of the plugin for an image reference.

    The prefix of the reference, `NAME:…`, or else the site's manager; `docker://` only names the location of
    an image, not the program that runs it.
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
    """Prepare the environment, with a plan's packages beside the engine; does nothing if it is ready.

    Raises:
        UserError: the reference is invalid or names nothing; a package conflicts with an installed one.
        EnvironmentFault: the machine cannot prepare it: no Apptainer, no registry, no space.
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

    The result is valid on this machine and now: it depends on the current variables and mounts.

    Raises:
        EnvironmentFault: the image, or a folder to mount, is not on this machine.
    """
    manager: EnvManager = plugins.load("environments", environment.kind)()
    return manager.wrap(environment, argv, mounts, env, gpus, container)
