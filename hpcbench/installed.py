"""The installation of hpcbench: its distribution, its extras, and conflicting distributions.

The package and the command are `hpcbench`; the distribution is `hpcbench-vlm`, because the name `hpcbench`
belongs to another project on PyPI.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Collection, Iterator
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import hpcbench
from hpcbench.errors import EnvironmentFault

NAME = hpcbench.DISTRIBUTION
"""Name of the distribution."""

PUBLISHED = False
"""Whether PyPI has the distribution. All messages follow this, and a test compares the docs with it."""

OLD_NAME = "hpcbench"
"""Former name of our distribution, and name of another project's distribution."""

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Index of PyTorch without CUDA's libraries."""


@cache
def own() -> metadata.Distribution:
    """The distribution that this package comes from.

    An environment from before the rename has only the old name, until hpcbench is installed again.

    Raises:
        EnvironmentFault: no distribution is installed, as when a checkout is only on PYTHONPATH.
    """
    for one in metadata.distributions(name=NAME):
        return one
    for one in metadata.distributions(name=OLD_NAME):
        if _is_ours(one):
            return one
    raise EnvironmentFault(
        f"{NAME} is not installed for {sys.executable}",
        remedy=f"in hpcbench's source folder, run {pip('install')} .",
    )


def this_python() -> tuple[str, ...]:
    """Command of this Python for `-m MODULE`: installed packages win over files of the current folder.

    A user may submit from a folder with another `hpcbench`, such as a source folder, or with a `queue.py`.
    Python 3.10 has no option for this; there, jobs start in the experiment's folder.
    """
    if sys.flags.isolated:
        return (sys.executable, "-I")
    return (sys.executable, "-P") if sys.version_info >= (3, 11) else (sys.executable,)


def stem() -> str:
    """Prefix of the names of its wheel and metadata folder, `hpcbench_vlm-0.1.0`."""
    return f"{normal(own().name).replace('-', '_')}-{own().version}"


def in_the_way() -> Iterator[tuple[str, str]]:
    """Conflicts of the installation of hpcbench: problem and remedy."""
    again = f"run {pip('uninstall')} {OLD_NAME} {NAME}, then install {NAME} again"
    if normal(own().name) == OLD_NAME:
        yield f"{OLD_NAME} {own().version} is this project under its name before {NAME}", again
    for one in metadata.distributions(name=OLD_NAME):
        if one.name == own().name:
            continue
        what = "this project under its old name" if _is_ours(one) else "another project"
        yield f"{OLD_NAME} {one.version}, {what}, is installed over the same files as {NAME}", again


def is_superseded(distribution: metadata.Distribution | None) -> bool:
    """Whether a distribution is our own under its old name, and its replacement is installed, too."""
    return (
        distribution is not None
        and normal(distribution.name) == OLD_NAME
        and own().name != distribution.name
        and _is_ours(distribution)
    )


def install_hint(extra: str) -> str:
    """The command that adds an extra's requirements to this Python, `pip install 'boto3>=1.34'`.

    Until the index has hpcbench-vlm, the command names the extra's missing requirements: this works for every
    kind of installation, and does not change hpcbench itself.
    """
    missing = _missing(extra)
    wanted = [f"{NAME}[{extra}]"] if PUBLISHED else missing
    command = f"{pip('install')} {' '.join(map(shlex.quote, wanted))}"
    if any(one.startswith("torch>") for one in missing):
        first = f"{pip('install')} torch --index-url {CPU_INDEX}"
        command += f"; without a GPU run first: {first} (200 MB instead of 6 GB)"
    return command


def pip(verb: Literal["install", "uninstall"]) -> str:
    """Command of this Python's pip with a verb: `pip` on PATH may belong to another Python."""
    python = sys.executable
    if shutil.which("pip") == str(Path(python).with_name("pip")):
        command = f"pip {verb}"
    elif find_spec("pip"):
        command = f"{python} -m pip {verb}"
    else:  # as in environments made by uv; uv itself is one of our requirements
        return f"{python} -m uv pip {verb} --python {python}"
    return f"{command} -y" if verb == "uninstall" else command


def normal(name: str) -> str:
    """A distribution's name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _missing(extra: str) -> list[str]:
    """Unmet requirements of an extra; all its requirements if all are met, because then one is broken."""
    every = list(dict.fromkeys(requirements(extra)))
    return [one for one in every if not is_met(one)] or every


def needed() -> set[str]:
    """Names of the distributions that hpcbench needs without any extra.

    Raises:
        EnvironmentFault: hpcbench is not installed.
    """
    from packaging.requirements import Requirement

    every = map(Requirement, own().requires or [])
    return {
        normal(one.name)
        for one in every
        if one.marker is None or one.marker.evaluate({"extra": ""})
    }


def own_requirements(names: Collection[str]) -> list[str]:
    """Those of its requirements without any extra that have one of these names, as pip writes them.

    Raises:
        EnvironmentFault: hpcbench is not installed.
    """
    from packaging.requirements import Requirement

    every = map(Requirement, own().requires or [])
    return [
        f"{one.name}{one.specifier}"
        for one in every
        if one.marker is None and normal(one.name) in names
    ]


def requirements(extra: str) -> Iterator[str]:
    """Requirements of an extra besides hpcbench, with the requirements of the extras that it names."""
    from packaging.requirements import Requirement

    for one in map(Requirement, own().requires or []):
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            continue
        if one.marker.evaluate({"extra": extra}):
            if normal(one.name) in (NAME, OLD_NAME):
                for name in sorted(one.extras):
                    yield from requirements(name)
            else:
                extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
                yield f"{one.name}{extras}{one.specifier}"


def is_met(requirement: str) -> bool:
    """Whether this Python has what a requirement asks for."""
    from packaging.requirements import Requirement

    wanted = Requirement(requirement)
    try:
        there = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.specifier.contains(there, prereleases=True)


def _is_ours(distribution: metadata.Distribution) -> bool:
    return any(
        point.group == "console_scripts"
        and point.value.startswith(("hpcbench.cli.", "hpcbench_vlm:"))
        for point in distribution.entry_points
        if point.name == "hpcbench"
    )
