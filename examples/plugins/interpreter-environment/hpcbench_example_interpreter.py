"""Engines in any Python interpreter of the host: image reference `interpreter:/path/to/python`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

OLDEST = (3, 10)
"""Oldest Python an engine's wrapper runs in."""

NEEDED = ("hpcbench", "uvicorn", "pydantic", "aiohttp", "prometheus_client")
"""Packages that the wrapper imports."""

REPORTED = ("torch", "transformers", "tokenizers", "vllm", "sglang", "lmdeploy", "pillow")
"""Distributions whose versions may change an answer; the manifest keeps them."""

TIMEOUT = 300.0
"""Longest wait for an interpreter to tell of itself, seconds: the first import off a busy file system."""

# Read by whatever Python is named, so it is written for all of them: an old one is to tell its version.
_ASK = r"""
import json, re, sys
told = {"version": list(sys.version_info[:3]), "missing": {}, "installed": {}}
if sys.version_info >= (3, 8):
    from importlib import import_module, metadata
    for name in sys.argv[1:]:
        try:
            import_module(name)
        except Exception as error:
            told["missing"][name] = "%s: %s" % (type(error).__name__, error)
    for one in metadata.distributions():
        if one.metadata["Name"]:
            name = re.sub("[-_.]+", "-", one.metadata["Name"]).lower()
            told["installed"].setdefault(name, str(one.version))
print("\n@told " + json.dumps(told))
"""


def ask(python: str, needed: Sequence[str] = NEEDED) -> dict[str, Any]:
    """Let an interpreter tell of itself.

    Args:
        python: its path.
        needed: modules to import there.

    Returns:
        `version` (three numbers), `missing` (module → why it cannot be imported), `installed`
        (normalised name of a distribution → version).

    Raises:
        OSError: it does not run.
    """
    try:
        # From `/`, so that a folder called like a module is not taken for it because we stand beside it.
        done = subprocess.run(
            [python, "-c", _ASK, *needed], cwd="/", stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", check=False, timeout=TIMEOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{python} does not run: no answer in {TIMEOUT:g} s") from error
    try:
        # A marked line: sites, and modules that are imported, print at start and at the end.
        (line,) = re.findall(r"^@told (.*)$", done.stdout, re.MULTILINE)
        found: dict[str, Any] = json.loads(line)
    except ValueError as error:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise OSError(f"{python} does not run: {said[:200]}") from error
    return found


def identity(found: Mapping[str, Any]) -> str:
    """`sha256:…` over the version and all that is installed: the same for equal interpreters."""
    installed = sorted(f"{name}=={version}" for name, version in found["installed"].items())
    reported = json.dumps([found["version"], installed])
    return f"sha256:{hashlib.sha256(reported.encode()).hexdigest()}"


def unfit(found: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why engines cannot run there, and what to do; None if they can."""
    if tuple(found["version"][:2]) < OLDEST:
        version = ".".join(map(str, found["version"]))
        return f"is Python {version}", f"name a Python {'.'.join(map(str, OLDEST))} or newer"
    if found["missing"]:
        reasons = "; ".join(f"{name} ({why})" for name, why in found["missing"].items())
        return f"cannot import {reasons}", "install there hpcbench-vlm with its extra 'wrapper'"
    return None


class Interpreter:
    """The environment for hpcbench."""

    api: ClassVar[int] = 1

    def prepare(
        self,
        reference: str,
        cache: Path,
        container: Any,
        requirements: Sequence[str],
        say: Callable[[str], None],
    ) -> Any:
        """Check that the interpreter has all that is needed; nothing is made.

        Raises:
            EnvironmentFault: it does not run, is too old, or lacks something.
        """
        from hpcbench.errors import EnvironmentFault
        from hpcbench.plugins import Environment

        # Not resolved: a link's own place is what makes it the Python of a virtual environment.
        path = Path(reference.removeprefix("interpreter:")).expanduser()
        if not path.is_absolute():
            raise EnvironmentFault(
                f"'{reference}' names no interpreter", remedy="interpreter:/path/to/python"
            )
        try:
            found = ask(str(path))
        except OSError as error:
            raise EnvironmentFault(str(error), remedy="name a Python that all nodes see") from error
        if problem := unfit(found):
            raise EnvironmentFault(f"{path} {problem[0]}", remedy=problem[1])
        own, there = _own_version(), found["installed"].get("hpcbench-vlm")
        if own and there and own != there:
            raise EnvironmentFault(
                f"{path} has hpcbench {there}, and this is {own}",
                remedy=f"install there hpcbench-vlm {own} with its extra 'wrapper'",
            )
        if requirements:
            named = ", ".join(map(_name, (one for one in requirements if one[:1] != "-")))
            raise EnvironmentFault(
                f"packages are not added to {path}, and the plan wants {named or 'some'} beside its engine",
                remedy="install them there, and name no package for them",
            )
        kept = {name: found["installed"][name] for name in REPORTED if name in found["installed"]}
        version = ".".join(map(str, found["version"]))
        return Environment(
            kind="interpreter",
            path=str(path),
            digest=identity(found),
            details={"reference": reference, "python": version, **kept},
        )

    def wrap(
        self,
        environment: Any,
        argv: Sequence[str],
        mounts: Sequence[str],
        env: Mapping[str, str],
        gpus: int,
        container: Any,
    ) -> Any:
        """The command with that interpreter; on the host everything is mounted already.

        Raises:
            EnvironmentFault: the interpreter is not on this machine.
        """
        from hpcbench.errors import EnvironmentFault
        from hpcbench.plugins import Command

        python = Path(environment.path)
        if not python.exists():
            raise EnvironmentFault(
                f"{python} is not on this machine", remedy="name a Python that all nodes see"
            )
        return Command(*command(python, argv, env, gpus, os.environ))


def command(
    python: Path,
    argv: Sequence[str],
    env: Mapping[str, str],
    gpus: int,
    inherited: Mapping[str, str],
) -> tuple[list[str], dict[str, str]]:
    """The words to run and what to add to the environment; a first word `python` becomes the interpreter.

    Its own programs are found first; with 0 GPUs none is seen.
    """
    path = os.pathsep.join([str(python.parent), inherited.get("PATH", os.defpath)])
    added = {"PYTHONDONTWRITEBYTECODE": "1", "PATH": path, **env}
    if gpus == 0:
        added.setdefault("CUDA_VISIBLE_DEVICES", "")
    first, *rest = argv
    return [str(python) if first == "python" else first, *rest], added


def _name(requirement: str) -> str:
    """Name of a requirement, without the URL it may have: that may hold a password."""
    return re.split(r"[^A-Za-z0-9._-]", requirement.strip())[0]


def _own_version() -> str | None:
    try:
        return metadata.version("hpcbench-vlm")
    except metadata.PackageNotFoundError:
        return None
