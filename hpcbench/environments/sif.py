"""Apptainer, or Singularity, on this machine: builds and inspects SIF files.

We call the program directly: spython hard-codes the program's name and its `pull` hides failures.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hpcbench.data.progress import size_text
from hpcbench.environments.failures import recognise
from hpcbench.environments.oci import download_size
from hpcbench.environments.packages import Probe, last_words, probed_once
from hpcbench.environments.packages import probe as ask_python
from hpcbench.environments.sources import LABEL, Source
from hpcbench.errors import EnvironmentFault
from hpcbench.schema.image_reference import Reference
from hpcbench.schema.site import ContainerSite

Say = Callable[[str], None]
"""Receives progress messages, a line at a time."""

COMPRESSION = "-comp zstd -Xcompression-level 3"
"""Builds a third faster than gzip, reads faster, 4 % larger."""

FROM = "org.label-schema.usage.singularity.deffile.from"
"""Label of every build: the source of the image, by digest if the reference had one."""

OLDEST = {"apptainer": (1, 1), "singularity": (3, 8)}
"""Older versions lack options that we need; SingularityCE counts as Singularity."""

UNPACKED = 3
"""An image's files need about this many times the space of its compressed layers."""

_KEPT = ("CACHEDIR", "TMPDIR", "CONFIGDIR", "KEYSDIR", "SYPGPDIR")

_EXPANDED_THERE = (
    "import os, sys; os.environ['APPTAINER_TMPDIR'] = os.environ['SINGULARITY_TMPDIR'] = "
    "os.path.expandvars(sys.argv[1]); os.makedirs(os.environ['APPTAINER_TMPDIR'], exist_ok=True); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)
"""A variable such as $TMPDIR may name another folder on the machine of the build."""


@dataclass(frozen=True, slots=True)
class Program:
    """Apptainer or Singularity, with its caches below ours."""

    path: str
    version: str
    """`apptainer version 1.4.5`."""
    env: Mapping[str, str]
    site: ContainerSite

    @classmethod
    def find(cls, site: ContainerSite, cache: Path) -> Program:
        """The program that the site names.

        Raises:
            EnvironmentFault: it is missing, does not start, or is too old.
        """
        path = found(site.program)
        # Settings of the site's module (a local TMPDIR) stay; $HOME is never filled.
        env = {
            "APPTAINER_CACHEDIR": str(cache / "apptainer"),
            "APPTAINER_TMPDIR": str(cache / "tmp"),
        }
        env |= {name: value for name, value in os.environ.items() if name not in foreign()}
        for name in ("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR"):
            Path(env[name]).mkdir(parents=True, exist_ok=True)
            env.setdefault(name.replace("APPTAINER", "SINGULARITY"), env[name])
        return cls(path, _version(path), env, site)

    @property
    def is_singularity(self) -> bool:
        """Whether it is Singularity or SingularityCE, not Apptainer."""
        return is_singularity(self.version)

    @property
    def key(self) -> str:
        """Hash of everything but the source that determines a SIF."""
        text = json.dumps([Source("", "", "").definition("", ""), self.version, COMPRESSION])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def build(self, source: Source, target: Path, say: Say) -> None:
        """Build and verify; the log stays after a failure.

        Raises:
            EnvironmentFault: it failed, with the reason and the remedy if they are known.
        """
        say(f"building {source.origin}")
        self._check_room(source, target)
        log = target.parent / f"{source.digest.removeprefix('sha256:')}.log"
        definition = target.with_suffix(".def")
        tries = self._tries(source, target, definition)
        env = {**self.env, **source.login()}
        for name, value in self.site.build_env.items():
            env |= {f"APPTAINERENV_{name}": value, f"SINGULARITYENV_{name}": value}
        try:
            for argv in tries:
                code, output = self._follow(argv, env, source.folder, log, say)
                if code == 0 or not _cannot_zstd(output):
                    break
        finally:
            definition.unlink(missing_ok=True)
        if code or not target.exists():
            raise _build_failed(source, output, log)
        log.unlink(missing_ok=True)
        self._check(source, target)
        target.chmod(0o644)

    def _tries(self, source: Source, target: Path, definition: Path) -> list[list[str]]:
        """Command lines of a build; the next one is used if the first one's compression is unsupported."""
        verb = "pull" if source.transport == "oras" else "build"
        words = [self.path, verb, *(["--no-https"] if source.insecure else [])]
        if verb == "pull" or (self.is_singularity and source.transport != "recipe"):
            # Singularity builds from an address for every user, from a definition file only for root or
            # with subordinate ids.
            return [[*words, str(target), source.address]]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        definition.write_text(source.definition(self.version, now))
        if source.transport == "recipe":
            words += self._as_root()
            words += [word for bind in self.site.build_binds for word in ("--bind", bind)]
        plain = [*words, str(target), str(definition)]
        if self.is_singularity:  # it can neither write nor read zstd
            return [plain]
        return [[*words, "--mksquashfs-args", COMPRESSION, *plain[-2:]], plain]

    def _as_root(self) -> list[str]:
        """Options that run a recipe's commands as root for another user."""
        if not os.getuid():
            return []
        # Singularity uses proot by itself: sites without subordinate ids offer it.
        by_proot = self.is_singularity and shutil.which("proot") and not has_subordinate_ids()
        return [] if by_proot else ["--fakeroot"]

    def _check(self, source: Source, target: Path) -> None:
        if source.transport == "oras":  # a downloaded SIF, verified by its digest
            return
        label = self.label(target)
        if label is None and self.is_singularity and "@" not in source.origin:
            return  # from an archive, whose file was just hashed
        if label != source.digest:
            raise EnvironmentFault(f"the image built from {source.origin} is labelled {label}")

    def _follow(
        self, argv: Sequence[str], env: Mapping[str, str], folder: Path | None, log: Path, say: Say
    ) -> tuple[int, str]:
        """Run a build on the machine that the site sets; its output goes to a log as it arrives."""
        if self.site.build_tmp is not None:
            argv = [sys.executable, "-c", _EXPANDED_THERE, self.site.build_tmp, *argv]
        kept: collections.deque[str] = collections.deque(maxlen=400)
        process = subprocess.Popen(
            [*self.site.build_with, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", env=env, cwd=folder,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            with contextlib.ExitStack() as stack:
                file: IO[str] | None = None
                with contextlib.suppress(OSError):  # the disk is full: the build will say so
                    file = stack.enter_context(log.open("w", encoding="utf-8", buffering=1))
                for line in stack.enter_context(process.stdout):
                    kept.append(line)
                    if file is not None:
                        with contextlib.suppress(OSError):
                            file.write(line)
                    if line.startswith("INFO:"):
                        say(line.removeprefix("INFO:").strip())
            return process.wait(), "".join(kept)
        finally:
            if process.poll() is None:
                process.terminate()  # it removes its unpacked files
                process.wait()

    def _check_room(self, source: Source, target: Path) -> None:
        """Check the free space before an hour is spent."""
        if source.transport != "docker":
            return
        size = download_size(Reference.parse(f"docker://{source.origin}"), self._insecure(source))
        places = [(target.parent, size), (Path(self.env["APPTAINER_CACHEDIR"]), size)]
        if self.site.build_tmp is None:
            places.append((Path(self.env["APPTAINER_TMPDIR"]), UNPACKED * size))
        wanted: dict[int, tuple[Path, int]] = {}  # by file system
        for place, need in places:
            device = place.stat().st_dev
            wanted[device] = (place, wanted.get(device, (place, 0))[1] + need)
        for place, need in wanted.values():
            if (free := shutil.disk_usage(place).free) < need:
                raise EnvironmentFault(
                    f"building {source.origin} ({size_text(size)}) needs about {size_text(need)} "
                    f"of disk space, {place} has {size_text(free)}",
                    remedy="run `hpcbench images prune`, or set `container.build_tmp: $TMPDIR` or another "
                    "`home`",
                )

    def _insecure(self, source: Source) -> tuple[str, ...]:
        return (source.origin.partition("/")[0],) if source.insecure else ()

    def probe(self, sif: Path, stored: Path) -> Probe:
        """Probe the image's Python, once per image."""
        options = start_options(self.path, self.version)
        python = [self.path, "--quiet", "exec", "--containall", *options, str(sif)]
        return probed_once(stored, lambda: ask_python([*python, "python3"], str(sif), self.env))

    def label(self, sif: Path) -> str | None:
        """The source digest in a SIF's label; None: it has no label."""
        done = _run([self.path, "inspect", "--json", sif], self.env)
        try:
            labels: Mapping[str, Any] = json.loads(done.stdout)["data"]["attributes"]["labels"]
        except (ValueError, KeyError):
            return None
        named = str(labels.get(FROM, "")).partition("@")[2]
        return labels.get(LABEL) or (named if named.startswith("sha256:") else None)

    def opens(self, sif: Path) -> bool:
        """Whether it can read another program's image: Singularity cannot if the compression is zstd."""
        return _run([self.path, "inspect", sif], self.env).returncode == 0

    def check_signature(self, sif: Path) -> None:
        """Check that the image has a signature by a key in the user's keyring.

        Raises:
            EnvironmentFault: it has none.
        """
        done = _run([self.path, "verify", "--local", sif], self.env)
        if done.returncode:
            raise EnvironmentFault(
                f"{sif} is not signed by a key you have: {last_words(done.stdout + done.stderr)}",
                remedy=f"run `{Path(self.path).name} key import FILE` with its maker's key, "
                "or set container.signed: false",
            )


@functools.cache
def _version(path: str) -> str:
    """The program's version line; queried once, since a plan may have twenty images."""
    done = _run([path, "--version"], os.environ)
    if done.returncode:
        raise EnvironmentFault(f"{path} does not start: {last_words(done.stderr)}")
    version = done.stdout.strip()
    check_version(version)
    return version


def check_version(text: str) -> None:
    """Check that the output of `--version` names a supported version.

    Raises:
        EnvironmentFault: it is too old.
    """
    name, version = _parsed(text)
    if version < OLDEST[name]:
        oldest = ".".join(map(str, OLDEST[name]))
        raise EnvironmentFault(
            f"{text} is too old: hpcbench needs {name} {oldest} or newer",
            remedy="`module avail apptainer singularity` may show a newer one: set container.program",
        )


def is_singularity(version: str) -> bool:
    """Whether the version line is one of Singularity or SingularityCE."""
    return _parsed(version)[0] == "singularity"


def knows_no_eval(version: str) -> bool:
    """Whether that version accepts `--no-eval`: every Apptainer, and Singularity since 3.10."""
    name, numbers = _parsed(version)
    return name == "apptainer" or numbers >= (3, 10)


def _parsed(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and version of a program; an unreadable version counts as a new Apptainer."""
    match = re.search(r"(apptainer|singularity)\S*(?: version)? v?(\d+)\.(\d+)", text)
    return (match[1], (int(match[2]), int(match[3]))) if match else ("apptainer", (99,))


def start_options(program: str, version: str) -> list[str]:
    """Extra options to start an image on this machine.

    Singularity unpacks by itself an image that it cannot mount, and has no such option.
    """
    return ["--unsquash"] if not is_singularity(version) and _must_unpack(program) else []


def _must_unpack(program: str) -> bool:
    """Whether an image must be unpacked to start here: no FUSE, and no setuid program to mount it."""
    if os.access("/dev/fuse", os.R_OK | os.W_OK) or os.getuid() == 0:
        return False
    done = _run([program, "buildcfg", "LIBEXECDIR"], os.environ)
    folder = Path(done.stdout.strip().rpartition("=")[2])
    starter = folder / "apptainer/bin/starter-suid"
    return not (starter.exists() and starter.stat().st_mode & 0o4000)


def found(program: str) -> str:
    """Path of a program.

    Raises:
        EnvironmentFault: it is not installed here.
    """
    path = shutil.which(program)
    if path is None:
        raise EnvironmentFault(
            f"there is no {program} on this machine",
            remedy="run `module load apptainer`, or set container.program in the site profile",
        )
    return path


def foreign() -> list[str]:
    """Variables of the caller that would change a container: binds, environment."""
    return [
        name
        for name in os.environ
        if name.startswith(("APPTAINER", "SINGULARITY")) and name.partition("_")[2] not in _KEPT
    ]


def _run(argv: Sequence[str | Path], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in argv],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=env,
    )  # fmt: skip


def has_subordinate_ids() -> bool:
    """Whether this user has a line in /etc/subuid, by name or number."""
    names = {str(os.getuid())}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    try:
        lines = Path("/etc/subuid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition(":")[0] in names for line in lines)


def _cannot_zstd(output: str) -> bool:
    """Whether the compression failed: an old Apptainer, or a mksquashfs without zstd."""
    return any(word in output for word in ("unknown flag", "Compressor", "zstd", "mksquashfs"))


def _build_failed(source: Source, output: str, log: Path) -> EnvironmentFault:
    known = recognise(output, building=True)
    what = f"{known.what}: {last_words(output)}" if known else last_words(output)
    remedy = known.remedy if known else f"see its whole output in {log}"
    return EnvironmentFault(f"cannot build {source.origin}: {what}", remedy=remedy)
