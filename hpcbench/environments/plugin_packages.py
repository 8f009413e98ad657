"""Packages that a plan uses and this machine lacks: locked by hash, built once, put where they run.

A folder or a git repository becomes a wheel, cached by the hash of its source; a package of an index is
identified by its version. Packages that run on the host (datasets, prompts, metrics, reports …) go into one
folder for hpcbench's own Python; packages that serve a model go beside the engine (`packages.packages_for`).
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit, urlunsplit

from packaging.requirements import InvalidRequirement, Requirement

from hpcbench import secret
from hpcbench.environments.packages import INDEX, TORCH, build_wheel, folder_for_host, why
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.access import own_place, owner_writes
from hpcbench.files.lease import make_once
from hpcbench.registry.source import Source, read
from hpcbench.schema.package import GitSource, Package, PypiSource, RequirementSource

Say = Callable[[str], None]

_IGNORED = {".git", "__pycache__", ".venv", "build", "dist", ".pytest_cache", ".mypy_cache"}
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Locked:
    """A package with every byte fixed."""

    name: str
    """Name of the package's definition."""
    identity: str
    """Its source, for the manifest: a commit, a hash, a version."""
    requirements: tuple[str, ...]
    """Requirement lines for pip."""
    editable: Path | None = None
    """Its folder, if changes there take effect at once."""


def lock(
    package: Package,
    cache: Path,
    *,
    dev: bool,
    say: Say = lambda line: None,
    kept: Path | None = None,
    copied: bool = False,
) -> Locked:
    """Resolve a package's definition to exact files.

    Args:
        package: the definition, paths absolute.
        cache: for wheels.
        dev: RUN_MODE; local folders may be editable, branches may move.
        say: receives messages about slow steps.
        kept: current location of its local folder's files, if they moved; the identity stays the same.
        copied: whether a copy of it runs elsewhere than in this Python, beside an engine or as a scorer: all
            files of an editable folder count then, as a later change does not reach the copy.

    Raises:
        UserError: there is no such package, commit or tag, or `prod` does not allow it.
        EnvironmentFault: it cannot be fetched or built.
    """
    source = package.source
    if isinstance(source, RequirementSource):
        return Locked(package.name, source.line, (source.line,))
    if isinstance(source, PypiSource):
        line = _pypi_line(package, source)
        index = (f"{INDEX}{source.index}",) if source.index else ()
        return Locked(package.name, line, (line, *index))
    if isinstance(source, GitSource):
        commit = _commit(package, source, dev)
        below = f"#subdirectory={source.subdirectory}" if source.subdirectory else ""
        identity = f"{source.url}@{commit}{below}"
        wheel = _wheel(package, identity, cache, lambda room: _checkout(source, commit, room), say)
        return Locked(package.name, identity, (_line(package, wheel),))
    folder = kept or Path(source.path)
    if not (folder / "pyproject.toml").is_file():
        raise UserError(Problem(f"package '{package.name}' has no pyproject.toml", str(folder)))
    editable = source.editable and dev
    live = editable and not copied
    content = _hash(folder, ["pyproject.toml"] if live else package_files(folder))
    identity = f"{source.path} {'editable' if live else content}"
    wheel = _wheel(package, f"{source.path} {content}", cache, lambda room: folder, say)
    return Locked(package.name, identity, (_line(package, wheel),), folder if editable else None)


def known_identity(package: Package) -> str | None:
    """`Locked.identity` of a package whose definition says it; None: its files decide, or its repository."""
    source = package.source
    if isinstance(source, RequirementSource):
        return source.line
    return _pypi_line(package, source) if isinstance(source, PypiSource) else None


def _pypi_line(package: Package, source: PypiSource) -> str:
    version = f"=={source.version}" if source.version else ""
    return f"{source.name}{_extras(package)}{version}"


def host_folder(locked: Sequence[Locked], cache: Path, say: Say = lambda line: None) -> Path:
    """The folder with these packages for hpcbench's own Python.

    Args:
        locked: the packages.
        cache: for folders and downloads.
        say: receives a line if they must be installed.

    Raises:
        UserError: a package conflicts with an installed one; names both versions.
        EnvironmentFault: a dependency cannot be fetched.
    """
    requirements = for_cpus([line for one in locked for line in one.requirements])
    editable = [one.editable for one in locked if one.editable is not None]
    names = ", ".join(one.name for one in locked)
    return folder_for_host(
        cache,
        requirements,
        editable,
        lambda: say(f"installing what this Python lacks of {names}, with dependencies"),
    )


def for_cpus(requirements: Sequence[str]) -> list[str]:
    """The requirements of a Python that has no GPU: torch comes without CUDA's libraries, 6 GB."""
    return [*requirements, f"{TORCH}cpu"] if requirements else []


def check_provides(
    folder: Path,
    packages: Mapping[str, Package],
    origins: Mapping[str, str],
    installed: Mapping[str, Locked] = MappingProxyType({}),
) -> None:
    """Compare the plugins that packages declare with their entry points.

    Args:
        folder: where the packages are installed.
        packages: name → definition.
        origins: where each definition was read.
        installed: packages that this Python may have already: then the folder does not have them.

    Raises:
        UserError: a declared entry point is missing.
    """
    found = [*distributions(path=[str(folder)])]
    for locked in installed.values():
        with suppress(InvalidRequirement):  # an address alone names no distribution
            found += distributions(name=Requirement(locked.requirements[0]).name)
    there = {(point.group, point.name) for one in found for point in one.entry_points}
    problems = [
        _place(origins.get(f"packages/{name}"), kind, plugin).problem(
            ("provides", kind, number),
            f"package '{name}' provides no {kind} plugin '{plugin}': it has no such entry point",
            f'add [project.entry-points."hpcbench.{kind}"] {plugin} = … to its pyproject.toml',
        )
        for name, package in packages.items()
        for kind, plugins in package.provides.items()
        for number, plugin in enumerate(plugins)
        if (f"hpcbench.{kind}", plugin) not in there
    ]
    if problems:
        raise UserError(*problems)


def _place(file: str | None, kind: str, plugin: str) -> Source:
    """The definition that declares a plugin; a definition inside a plan has no file of its own."""
    try:
        return read(Path(file or ""))
    except UserError:
        return Source(Path(file or f"{kind}/{plugin}"), None)


def _line(package: Package, wheel: Path) -> str:
    name = wheel.name.split("-")[0].replace("_", "-")
    return f"{name}{_extras(package)} @ {wheel.as_uri()}"


def _extras(package: Package) -> str:
    return f"[{','.join(package.install_args.extras)}]" if package.install_args.extras else ""


def _wheel(
    package: Package, identity: str, cache: Path, source: Callable[[Path], Path], say: Say
) -> Path:
    """The wheel of a package; it is built if the cache has none."""
    key = hashlib.sha256(f"{sys.version_info[:2]} {identity}".encode()).hexdigest()[:24]
    target = own_place(cache / "wheels" / key)
    target.parent.mkdir(parents=True, exist_ok=True)

    def build(folder: Path) -> None:
        say(f"building package {package.name}")
        with owner_writes(), tempfile.TemporaryDirectory() as room:
            folder.mkdir()
            _build(package, source(Path(room)), folder, cache)

    make_once(target, build)
    return next(target.glob("*.whl"))


def _build(package: Package, source: Path, target: Path, cache: Path) -> None:
    try:
        build_wheel(source, target, cache)
    except EnvironmentFault as fault:
        raise EnvironmentFault(
            f"package '{package.name}' cannot be built: {fault.message}", remedy=fault.remedy
        ) from fault
    wheels = list(target.glob("*.whl"))
    whole = False
    if len(wheels) == 1:
        with zipfile.ZipFile(wheels[0]) as archive:
            whole = any(name.endswith(".dist-info/METADATA") for name in archive.namelist())
    if not whole:
        raise EnvironmentFault(f"the build of package '{package.name}' made no valid wheel")


def _commit(package: Package, source: GitSource, dev: bool) -> str:
    """The current commit of a ref; `prod` takes no branch."""
    ref = source.ref or "HEAD"
    if _COMMIT.fullmatch(ref):
        return ref
    listed = _git(source, "ls-remote", _plain(source.url), ref, f"refs/tags/{ref}^{{}}")
    found = {name: commit for commit, name in (line.split("\t") for line in listed.splitlines())}
    # An annotated tag is an object of its own; the commit is the one it peels to.
    for name in (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}"):
        if name in found:
            return found[name]
    for name in (f"refs/heads/{ref}", ref):
        if name in found:
            if not dev:
                raise UserError(
                    Problem(
                        f"package '{package.name}': {ref} is a branch of {_plain(source.url)}, which "
                        "can change",
                        remedy=f"set ref: {found[name]}, or RUN_MODE=dev",
                    )
                )
            return found[name]
    raise UserError(
        Problem(
            f"package '{package.name}': {_plain(source.url)} has no commit, tag or branch '{ref}'",
            remedy="write all 40 digits of a commit",
        )
    )


def _checkout(source: GitSource, commit: str, room: Path) -> Path:
    """The repository's files at a commit."""
    where = ["-C", str(room)]
    _git(source, *where, "init", "-q")
    try:
        _git(source, *where, "fetch", "-q", "--depth", "1", _plain(source.url), commit)
    except EnvironmentFault:  # an old server does not serve single commits
        _git(source, *where, "fetch", "-q", _plain(source.url), "+refs/*:refs/remotes/all/*")
    _git(source, *where, "checkout", "-q", commit)
    return room / source.subdirectory if source.subdirectory else room


def _git(source: GitSource, *arguments: str) -> str:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environ |= {"GIT_TERMINAL_PROMPT": "0", **_credentials(source.url)}
    done = subprocess.run(
        ["git", *arguments],
        capture_output=True, text=True, check=False, env=environ, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise EnvironmentFault(
            f"git cannot reach {_plain(source.url)}: {secret.mask(why(done.stderr))}",
            remedy="fetch packages once, on a machine with network",
        )
    return done.stdout


def _plain(url: str) -> str:
    """The URL without user and password."""
    parts = urlsplit(url)
    if "://" not in url or "@" not in parts.netloc or parts.scheme == "ssh":
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _credentials(url: str) -> dict[str, str]:
    """User and password of a URL as a header in the environment: no argument list shows them."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return {}
    user = secret.reveal(parts.netloc.rpartition("@")[0])
    token = base64.b64encode((user if ":" in user else f"{user}:").encode()).decode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {token}",
    }


def package_files(folder: Path) -> list[str]:
    """The files of a package's folder, relative to it, without caches and build outputs."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(
        path.as_posix()
        for path in found
        if not _IGNORED & set(path.parts) and not path.name.endswith(".pyc")
    )


def _hash(folder: Path, files: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name in files:
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"
