"""Engines in any Python interpreter of the host: image reference `interpreter:/path/to/python`."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

NEEDED = ("hpcbench", "fastapi", "uvicorn", "pydantic", "aiohttp")
_ASK = """
import importlib.util, json, sys
from importlib import metadata
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "missing": [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None],
    "installed": sorted(f"{one.metadata['Name']}=={one.version}" for one in metadata.distributions()),
}))
"""


def ask(python: str) -> dict[str, Any]:
    """Version, missing packages and all distributions of an interpreter.

    Raises:
        OSError: it does not run.
    """
    done = subprocess.run(
        [python, "-c", _ASK, *NEEDED], capture_output=True, text=True, check=False, timeout=120
    )
    if done.returncode:
        raise OSError(f"{python} does not run: {done.stderr.strip()[-200:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Interpreter:
    """The environment for hpcbench."""

    api: ClassVar[int] = 1

    def prepare(
        self, reference: str, cache: Path, container: Any, requirements: Sequence[str]
    ) -> Any:
        from hpcbench.errors import EnvironmentFault
        from hpcbench.plugins import Environment

        python = str(Path(reference.partition(":")[2]).expanduser())
        try:
            found = ask(python)
        except OSError as error:
            raise EnvironmentFault(str(error), remedy="name a Python that all nodes see") from error
        if requirements or found["missing"]:
            lacks = ", ".join([*found["missing"], *requirements])
            raise EnvironmentFault(f"{python} lacks {lacks}", remedy="install it there")
        told = json.dumps([found["version"], found["installed"]])
        digest = f"sha256:{hashlib.sha256(told.encode()).hexdigest()}"
        version = ".".join(map(str, found["version"]))
        return Environment(
            kind="interpreter",
            path=python,
            digest=digest,
            details={"reference": reference, "python": version},
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
        from hpcbench.plugins import Command

        first, *rest = argv
        program = environment.path if first == "python" else first
        added = {
            "PATH": f"{Path(environment.path).parent}:{os.environ.get('PATH', os.defpath)}",
            **env,
        }
        return Command([program, *rest], added)
