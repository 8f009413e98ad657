"""A virtual environment on the host, for clusters without containers and for the developer's machine."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.plugins import Command, Environment
from hpcbench.schema.site import ContainerSite

if (
    TYPE_CHECKING
):  # a worker only wraps: importing the package resolver takes as long as reading the plan
    from hpcbench.environments.packages import Probe


class Venv:
    """`venv:DIR`, or an empty reference for hpcbench's own Python."""

    api: ClassVar[int] = 1

    def prepare(
        self,
        reference: str,
        cache: Path,
        container: ContainerSite,
        requirements: Sequence[str],
        say: Callable[[str], None],
    ) -> Environment:
        """Check the interpreter; add the wrapper's missing requirements.

        Raises:
            UserError: there is no interpreter in that folder.
            EnvironmentFault: it does not run.
        """
        from hpcbench.environments.packages import packages_for

        python, probed = probed_python(reference)
        listed = sorted(f"{name}=={version}" for name, version in probed.distributions.items())
        digest = (
            "sha256:" + hashlib.sha256(json.dumps([probed.python, listed]).encode()).hexdigest()
        )
        return Environment(
            kind="venv",
            path=str(python),
            digest=digest,
            packages=None
            if not requirements and _complete(python, probed)
            else str(packages_for(probed, cache, requirements)),
            details={"reference": reference, **probed.details()},
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
        """The command with that interpreter; on the host no mount is needed.

        The packages mounted just in time go before the environment's own, because our hpcbench must win over
        an older one there; all their other packages are missing in the environment. Files of the current
        folder are not imported (Python 3.11 and newer).
        """
        python = Path(environment.path)
        if not python.exists():
            raise EnvironmentFault(
                f"{python} is not on this machine",
                remedy="put the virtual environment on a file system that all nodes see",
            )
        paths = [str(python.parent), os.environ.get("PATH", os.defpath)]
        added = {
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONSAFEPATH": "1",
            "PATH": os.pathsep.join(paths),
            **env,
        }
        if environment.packages is not None:
            inherited = [path for path in (os.environ.get("PYTHONPATH"),) if path]
            added["PYTHONPATH"] = os.pathsep.join([environment.packages, *inherited])
        if gpus == 0:
            added.setdefault("CUDA_VISIBLE_DEVICES", "")
        first, *rest = argv
        return Command([str(python) if first == "python" else first, *rest], added)


def probed_python(reference: str) -> tuple[Path, Probe]:
    """The interpreter of a virtual environment, and what it reports of itself.

    Raises:
        UserError: there is no interpreter in that folder.
        EnvironmentFault: it does not run.
    """
    from hpcbench.environments.packages import probe

    python = _interpreter(reference)
    return python, probe([str(python)], reference or "hpcbench")


def _interpreter(reference: str) -> Path:
    if not reference:
        return Path(sys.executable)
    # Not resolved: the link's own path makes it the virtual environment's Python.
    folder = Path(reference.removeprefix("venv:")).expanduser().absolute()
    python = folder / "bin" / "python"
    if not python.exists():
        raise UserError(
            Problem(f"{folder} is not a virtual environment: {python} is missing")
        )  # fmt: skip
    return python


def _complete(python: Path, probed: Probe) -> bool:
    """Whether it is our own Python with all requirements of the wrapper: then nothing is added."""
    from hpcbench.environments.packages import wrapper_requirements

    return python == Path(sys.executable) and all(
        probed.satisfies(one) for one in wrapper_requirements()
    )
