"""hpcbench with its dependencies, and the wrapper's packages of an image, for a machine without internet."""

from __future__ import annotations

import base64
import hashlib
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import hpcbench
from hpcbench import installed
from hpcbench.environments.packages import (
    SUMS,
    Probe,
    find_uv,
    last_words,
    lock_wrapper,
    newest_glibc,
)
from hpcbench.errors import EnvironmentFault
from hpcbench.files.hashing import hash_file

INSTALL = """\
#!/bin/sh
# Installs hpcbench from the wheels beside this file: sh install.sh FOLDER [PYTHON]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: sh install.sh FOLDER [PYTHON]}
python=${2:-python3}
if [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" != VERSION ]; then
    echo "these wheels are for Python VERSION, and $python is $("$python" --version 2>&1)" >&2
    echo "name a Python VERSION: sh $0 $folder pythonVERSION" >&2
    exit 1
fi
echo "installing hpcbench into $folder: a minute, or several on a slow file system"
"$python" -m venv "$folder"
# uv, one of the wheels, installs in a fifth of pip's time; where it does not run, pip does. Modules are
# compiled now: others who use the folder may not write there.
set -- --quiet --no-index --find-links "$here/wheels" "NAME[EXTRAS]" BUILDERS
"$folder/bin/python" -m pip install --quiet --no-index --find-links "$here/wheels" uv
export UV_COMPILE_BYTECODE="${UV_COMPILE_BYTECODE:-1}" UV_CACHE_DIR="$folder/.uv"
"$folder/bin/uv" pip install --no-config --offline --python "$folder/bin/python" "$@" ||
    "$folder/bin/python" -m pip install "$@"
rm -rf "$folder/.uv"
"$folder/bin/hpcbench" --version
"""

EXTRAS = "s3,http,pdf,excel,portal"
"""Extras that a login node may need."""

BUILDERS = ("hatchling>=1.25", "editables>=0.5")
"""Packages that build a package which `hpcbench plugins new` wrote."""

NEWEST_GLIBC, OLDEST_GLIBC = 28, 5
"""Minor versions of glibc 2 whose wheels are taken: of Red Hat 8 and older systems."""


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
    pins = _pins(own, python)
    wanted = ["--no-deps", *pins] if pins else [f"{own}[{EXTRAS}]", *BUILDERS]
    _download(wanted, wheels, python, platform.machine(), NEWEST_GLIBC, "hpcbench's dependencies")
    script = INSTALL.replace("NAME", installed.own().name).replace("EXTRAS", EXTRAS)
    builders = " ".join(f"'{one}'" for one in BUILDERS)
    script = script.replace("BUILDERS", builders).replace("VERSION", python)
    (folder / "install.sh").write_text(script, encoding="utf-8")


def wheels_for(probed: Probe, folder: Path, cache: Path) -> bool:
    """Fill a folder with the wheels that the wrapper needs beside an image's Python, and their hashes.

    Args:
        probed: the image's Python.
        folder: created here, if the image lacks a package; its parent exists.
        cache: for downloads.

    Returns:
        Whether the image lacks a package.

    Raises:
        EnvironmentFault: a needed package is not available.
    """
    with tempfile.TemporaryDirectory() as room:
        pins = lock_wrapper(probed, Path(room), cache)
        if not pins:
            return False
        lock = Path(room, "lock.txt")
        lock.write_text("".join(pins), encoding="utf-8")
        folder.mkdir()
        wanted = ["--no-deps", "--requirement", str(lock)]
        newest = newest_glibc(probed)
        _download(wanted, folder, probed.minor, probed.machine, newest, "the wrapper's packages")
    sums = [f"{hash_file(wheel)}  {wheel.name}\n" for wheel in sorted(folder.glob("*.whl"))]
    (folder / SUMS).write_text("".join(sums), encoding="utf-8")
    return True


def _download(
    wanted: Sequence[str], folder: Path, python: str, machine: str, newest: int, what: str
) -> None:
    """Download wheels for a Python whose C library is glibc 2.`newest` or newer."""
    if find_spec("pip") is None:
        raise EnvironmentFault(
            "this Python has no pip, which fetches the wheels",
            remedy="add it: `uv pip install pip`",
        )
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    argv += ["--only-binary", ":all:", "--python-version", python]
    for glibc in range(newest, OLDEST_GLIBC - 1, -1):
        argv += ["--platform", f"manylinux_2_{glibc}_{machine}"]
    argv += ["--platform", f"manylinux2014_{machine}"]
    done = subprocess.run([*argv, *wanted], capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentFault(
            f"cannot fetch {what}: {last_words(done.stderr)}",
            remedy="check the index of pip: `pip config list`",
        )


def _pins(own: Path, python: str) -> list[str]:
    """`name==version` of all dependencies for a Python; empty: uv reaches no index, and pip may.

    pip evaluates markers such as `python_version < "3.11"` with the Python that runs it.
    """
    uv = find_uv()
    if uv is None:
        return []
    argv = [uv, "pip", "compile", "-q", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    argv += ["--python-version", python]
    argv += ["--python-platform", f"{platform.machine()}-manylinux_2_{NEWEST_GLIBC}", "-"]
    wanted = "\n".join([f"{installed.own().name}[{EXTRAS}] @ {own.as_uri()}", *BUILDERS])
    done = subprocess.run(argv, input=wanted, capture_output=True, text=True, check=False)
    found = done.stdout.splitlines() if done.returncode == 0 else []
    return [line for line in found if "==" in line]


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
