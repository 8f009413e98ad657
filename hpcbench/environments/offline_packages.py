"""hpcbench itself with all its dependencies, as files for a machine without internet."""

from __future__ import annotations

import base64
import hashlib
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import hpcbench
from hpcbench import installed
from hpcbench.environments.packages import last_words
from hpcbench.errors import EnvironmentFault

INSTALL = """\
#!/bin/sh
# Installs hpcbench from the wheels beside this file: sh install.sh FOLDER [PYTHON]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
"${2:-python3}" -m venv "${1:?usage: sh install.sh FOLDER [PYTHON]}"
"$1/bin/python" -m pip install --quiet --no-index --find-links "$here/wheels" "NAME[EXTRAS]"
"$1/bin/hpcbench" --version
"""

EXTRAS = "s3,http"
"""Extras that a login node may need."""


def collect(folder: Path, python: str) -> None:
    """Fill a folder with wheels for a Python on this kind of machine, and the script that installs them.

    Args:
        folder: created here; its parent exists.
        python: `3.11`.

    Raises:
        EnvironmentFault: a needed package is not available.
    """
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    own = own_wheel(wheels)
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels)]
    argv += ["--only-binary", ":all:", "--python-version", python]
    for glibc in ("2_28", "2_27", "2_17"):
        argv += ["--platform", f"manylinux_{glibc}_{platform.machine()}"]
    done = subprocess.run([*argv, f"{own}[{EXTRAS}]"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentFault(
            f"cannot fetch hpcbench's dependencies: {last_words(done.stderr)}",
            remedy="check the index of pip: `pip config list`",
        )
    script = INSTALL.replace("NAME", installed.own().name).replace("EXTRAS", EXTRAS)
    (folder / "install.sh").write_text(script, encoding="utf-8")


def own_wheel(folder: Path) -> Path:
    """The running hpcbench as a wheel, also out of a checkout (PEP 427)."""
    dist, package = installed.own(), Path(hpcbench.__file__).parent
    info = f"{installed.stem()}.dist-info"
    files = {
        f"hpcbench/{path.relative_to(package)}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    if not (package / "share").is_dir():  # a checkout has them beside the code
        for source in ("registries", "slurm_templates", "ci_templates", "examples/demo"):
            for path in sorted((package.parent / source).rglob("*")):
                if path.is_file():
                    place = path.relative_to(package.parent)
                    files[f"hpcbench/share/{place}"] = path.read_bytes()
    command = package.parent / "hpcbench_vlm.py"
    files[command.name] = command.read_bytes()
    for name in ("METADATA", "entry_points.txt"):
        files[f"{info}/{name}"] = (dist.read_text(name) or "").encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: hpcbench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(f"{name},{_record(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = folder / f"{installed.stem()}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def _record(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(data)}"
