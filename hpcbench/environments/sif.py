"""Apptainer, or Singularity, on this machine: builds SIF files and asks them what they are.

It is called directly: spython hard-codes the program's name and its `pull` takes a failure for done.
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
from hpcbench.environments.oci import Reference, download_size
from hpcbench.environments.packages import Probe, last_words, probed_once
from hpcbench.environments.packages import probe as ask_python
from hpcbench.environments.sources import LABEL, Source
from hpcbench.errors import EnvironmentFault
from hpcbench.schema.documents import ContainerSite

Say = Callable[[str], None]
"""Told what is going on, a line at a time."""

COMPRESSION = "-comp zstd -Xcompression-level 3"
"""A third quicker to build than gzip, quicker to read, 4 % larger."""

FROM = "org.label-schema.usage.singularity.deffile.from"
"""Label that every build gives: what the image was made from, by digest if it was named so."""

OLDEST = {"apptainer": (1, 1), "singularity": (3, 8)}
"""Versions before these lack what we ask of them; SingularityCE counts as Singularity does."""

UNPACKED = 3
"""An image's files take about so many times the room of its compressed layers."""

_KEPT = ("CACHEDIR", "TMPDIR", "CONFIGDIR", "KEYSDIR", "SYPGPDIR")

_EXPANDED_THERE = (
    "import os, sys; os.environ['APPTAINER_TMPDIR'] = os.environ['SINGULARITY_TMPDIR'] = "
    "os.path.expandvars(sys.argv[1]); os.makedirs(os.environ['APPTAINER_TMPDIR'], exist_ok=True); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)
"""Where a build runs, a variable such as $TMPDIR may stand for another folder."""


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
        """The one the site names.

        Raises:
            EnvironmentFault: there is none, it does not start, or it is too old.
        """
        path = found(site.program)
        # What the site's module sets on purpose (a local TMPDIR) stays; $HOME is never filled.
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
        """What beside its source makes a SIF what it is."""
        text = json.dumps([Source("", "", "").definition("", ""), self.version, COMPRESSION])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def build(self, source: Source, target: Path, say: Say) -> None:
        """Build and verify; the log stays if it fails.

        Raises:
            EnvironmentFault: it failed, with the reason and the remedy where they are known.
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
        """Command lines of a build, of which the next is taken where the first's compression is unknown."""
        verb = "pull" if source.transport == "oras" else "build"
        words = [self.path, verb, *(["--no-https"] if source.insecure else [])]
        if verb == "pull" or (self.is_singularity and source.transport != "recipe"):
            # Singularity takes an address from everybody, a definition file from root or by subordinate ids.
            return [[*words, str(target), source.address]]
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        definition.write_text(source.definition(self.version, now))
        if source.transport == "recipe":
            words += self._as_root()
            words += [word for bind in self.site.build_binds for word in ("--bind", bind)]
        plain = [*words, str(target), str(definition)]
        if self.is_singularity:  # it knows no zstd, neither to write nor to read it
            return [plain]
        return [[*words, "--mksquashfs-args", COMPRESSION, *plain[-2:]], plain]

    def _as_root(self) -> list[str]:
        """How the commands of a recipe are run as root by who is not."""
        if not os.getuid():
            return []
        # Singularity takes proot by itself: sites offer it that give nobody subordinate ids.
        by_proot = self.is_singularity and shutil.which("proot") and not has_subordinate_ids()
        return [] if by_proot else ["--fakeroot"]

    def _check(self, source: Source, target: Path) -> None:
        if source.transport == "oras":  # somebody else's SIF, whose bytes the digest vouches for
            return
        label = self.label(target)
        if label is None and self.is_singularity and "@" not in source.origin:
            return  # from an archive, whose file was hashed just now
        if label != source.digest:
            raise EnvironmentFault(f"the image built from {source.origin} is labelled {label}")

    def _follow(
        self, argv: Sequence[str], env: Mapping[str, str], folder: Path | None, log: Path, say: Say
    ) -> tuple[int, str]:
        """Run a build where the site wants builds; its output goes to a log as it comes."""
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
                process.terminate()  # it removes what it unpacked
                process.wait()

    def _check_room(self, source: Source, target: Path) -> None:
        """See that there is room, before an hour is spent."""
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
                    f"building {source.origin} ({size_text(size)}) takes about {size_text(need)}, "
                    f"{place} has {size_text(free)}",
                    remedy="`hpcbench images prune`, `container.build_tmp: $TMPDIR`, or another `home`",
                )

    def _insecure(self, source: Source) -> tuple[str, ...]:
        return (source.origin.partition("/")[0],) if source.insecure else ()

    def probe(self, sif: Path, stored: Path) -> Probe:
        """Ask the image's Python about itself, once an image."""
        options = start_options(self.path, self.version)
        python = [self.path, "--quiet", "exec", "--containall", *options, str(sif)]
        return probed_once(stored, lambda: ask_python([*python, "python3"], str(sif), self.env))

    def label(self, sif: Path) -> str | None:
        """The digest that a SIF says it was built from; None: it says none."""
        done = _run([self.path, "inspect", "--json", sif], self.env)
        try:
            labels: Mapping[str, Any] = json.loads(done.stdout)["data"]["attributes"]["labels"]
        except (ValueError, KeyError):
            return None
        named = str(labels.get(FROM, "")).partition("@")[2]
        return labels.get(LABEL) or (named if named.startswith("sha256:") else None)

    def opens(self, sif: Path) -> bool:
        """Whether it can read an image that another program made: Singularity cannot, if that is zstd."""
        return _run([self.path, "inspect", sif], self.env).returncode == 0

    def check_signature(self, sif: Path) -> None:
        """See that somebody whose key is in the user's keyring has signed it.

        Raises:
            EnvironmentFault: nobody has.
        """
        done = _run([self.path, "verify", "--local", sif], self.env)
        if done.returncode:
            raise EnvironmentFault(
                f"{sif} is not signed by a key you have: {last_words(done.stdout + done.stderr)}",
                remedy=f"`{Path(self.path).name} key import FILE` with its maker's key, "
                "or container.signed: false",
            )


@functools.cache
def _version(path: str) -> str:
    """What it calls itself; asked once, for a plan may have twenty images."""
    done = _run([path, "--version"], os.environ)
    if done.returncode:
        raise EnvironmentFault(f"{path} does not start: {last_words(done.stderr)}")
    version = done.stdout.strip()
    check_version(version)
    return version


def check_version(text: str) -> None:
    """See that what `--version` says is new enough.

    Raises:
        EnvironmentFault: it is too old.
    """
    name, version = _parsed(text)
    if version < OLDEST[name]:
        oldest = ".".join(map(str, OLDEST[name]))
        raise EnvironmentFault(
            f"{text} is too old: {name} {oldest} is needed",
            remedy="`module avail apptainer singularity` may show a newer one: container.program",
        )


def is_singularity(version: str) -> bool:
    """Whether that is what Singularity or SingularityCE call themselves."""
    return _parsed(version)[0] == "singularity"


def knows_no_eval(version: str) -> bool:
    """Whether a program of that version takes `--no-eval`: Apptainer always did, Singularity since 3.10."""
    name, numbers = _parsed(version)
    return name == "apptainer" or numbers >= (3, 10)


def _parsed(text: str) -> tuple[str, tuple[int, ...]]:
    """Name and version of a program; one that cannot be read counts as a new Apptainer."""
    match = re.search(r"(apptainer|singularity)\S*(?: version)? v?(\d+)\.(\d+)", text)
    return (match[1], (int(match[2]), int(match[3]))) if match else ("apptainer", (99,))


def start_options(program: str, version: str) -> list[str]:
    """What starting an image on this machine takes beside the usual.

    Singularity unpacks by itself what it cannot mount, and has no such option.
    """
    return ["--unsquash"] if not is_singularity(version) and _must_unpack(program) else []


def _must_unpack(program: str) -> bool:
    """Whether an image must be unpacked to be started here: no FUSE, and nothing setuid to mount it."""
    if os.access("/dev/fuse", os.R_OK | os.W_OK) or os.getuid() == 0:
        return False
    done = _run([program, "buildcfg", "LIBEXECDIR"], os.environ)
    folder = Path(done.stdout.strip().rpartition("=")[2])
    starter = folder / "apptainer/bin/starter-suid"
    return not (starter.exists() and starter.stat().st_mode & 0o4000)


def found(program: str) -> str:
    """Where a program is.

    Raises:
        EnvironmentFault: it is not here.
    """
    path = shutil.which(program)
    if path is None:
        raise EnvironmentFault(
            f"there is no {program} on this machine",
            remedy="`module load apptainer`, or name it as container.program in the site profile",
        )
    return path


def foreign() -> list[str]:
    """Variables by which the caller's surroundings would change a container: binds, environment."""
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
    """Whether it was the compression: an old Apptainer or a mksquashfs without zstd."""
    return any(word in output for word in ("unknown flag", "Compressor", "zstd", "mksquashfs"))


def _build_failed(source: Source, output: str, log: Path) -> EnvironmentFault:
    known = recognise(output, building=True)
    what = f"{known.what}: {last_words(output)}" if known else last_words(output)
    remedy = known.remedy if known else f"all it said is in {log}"
    return EnvironmentFault(f"cannot build {source.origin}: {what}", remedy=remedy)
