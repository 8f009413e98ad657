"""Container images as SIF files: built once by the digest of their source, run without root.

Apptainer is called directly: spython hard-codes the program's name and its `pull` takes a failure for done.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from hpcbench.environments.credentials import login_for
from hpcbench.environments.failures import recognise
from hpcbench.environments.images import file_digest, note, same_source
from hpcbench.environments.oci import Reference, resolve
from hpcbench.environments.packages import Probe, last_words, packages_for
from hpcbench.environments.packages import probe as ask_python
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.files import read_json, write_json
from hpcbench.experiment.once import make_once
from hpcbench.plugins import Command, Environment
from hpcbench.schema.documents import ContainerSite

PACKAGES = "/opt/hpcbench/packages"
"""Where the packages mounted just in time lie in a container."""

LABEL = "hpcbench.source.digest"
"""Label of a SIF we built: the digest of what it was built from."""

PASSED = (
    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_ID", "SLURM_GPUS_ON_NODE",
)  # fmt: skip
"""Variables of the job that a container sees; of the host's others it sees none."""

COMPRESSION = "-comp zstd -Xcompression-level 3"
"""A third quicker to build than gzip, quicker to read, 4 % larger."""

_KEPT = ("CACHEDIR", "TMPDIR", "CONFIGDIR")


class Apptainer:
    """`docker://…`, `oci-archive:FILE`, `docker-archive:FILE` or `FILE.sif`."""

    api: ClassVar[int] = 1

    def prepare(
        self, reference: str, cache: Path, container: ContainerSite, requirements: Sequence[str]
    ) -> Environment:
        """Have the SIF in the cache and the wrapper's packages beside it.

        Raises:
            UserError: the reference is not one, or names no file.
            EnvironmentFault: Apptainer, the registry or the disk does not let us.
        """
        program = _Program.find(container, cache)
        source = _Source.of(reference, cache, container.insecure_registries)
        images = cache / "images"
        images.mkdir(parents=True, exist_ok=True)
        if source.sif is not None:
            sif, facts = source.sif, {}
        else:
            sif = images / f"{source.digest.removeprefix('sha256:')}-{program.key}.sif"
            if not sif.exists():
                sif = same_source(cache, source.digest, source.transport) or sif
            begun = time.monotonic()
            make_once(sif, lambda path: program.build(source, path))
            took = time.monotonic() - begun
            told = (source.transport, source.origin, source.digest, program.version)
            # Identity of the file: two builds of one digest differ in their bytes.
            facts = {"sif_sha256": f"sha256:{note(sif, reference, *told, took).sha256}"}
        name = source.digest.removeprefix("sha256:") if source.sif else sif.stem
        probed = program.probe(sif, images / f"{name}.probe.json")
        return Environment(
            kind="apptainer",
            path=str(sif),
            digest=source.digest,
            packages=str(packages_for(probed, cache, requirements)),
            details={
                "reference": reference,
                "transport": source.transport,
                "apptainer": program.version,
                "pythonpath": probed.pythonpath,
                **facts,
                **probed.details(),
            },
        )

    def wrap(
        self,
        environment: Environment,
        argv: Sequence[str],
        mounts: Sequence[str],
        env: Mapping[str, str],
        gpus: int,
        container: ContainerSite,
    ) -> Command:
        """`apptainer exec` of the command, cut off from the host but for what is mounted.

        The container's environment goes through APPTAINERENV_*, so no value stands in an argument list.
        What the caller's own environment would add is taken away by `env -u`: a Command can only add.
        """
        sif = Path(environment.path)
        if not sif.exists():
            raise EnvironmentFault(
                f"the image {sif} is not on this machine",
                remedy="put HPCBENCH_HOME on a file system that all nodes see",
            )
        binds = [_Bind.parse(mount) for mount in (*mounts, *container.binds)]
        if environment.packages is not None:
            binds.append(_Bind(environment.packages, PACKAGES, read_only=True))
        for bind in binds:
            bind.check()
        inside = _environment(environment, env)
        words = [*_scrubbed(inside), _found(container.program), "--quiet", "exec", "--containall"]
        words += _private([_Bind.parse(mount) for mount in mounts])
        words += ["--nv"] if gpus else []
        links = [link for bind in binds for link in bind.links()]
        for bind in dict.fromkeys([*binds, *links]):
            words += ["--bind", str(bind)]
        first, *rest = argv
        return Command([*words, str(sif), "python3" if first == "python" else first, *rest], inside)


def labels(container: ContainerSite, cache: Path) -> Callable[[Path], str | None]:
    """What asks a SIF for the digest it is labelled with.

    Raises:
        EnvironmentFault: there is no Apptainer here.
    """
    return _Program.find(container, cache).label


@dataclass(frozen=True, slots=True)
class _Source:
    """What an image is made from."""

    transport: str
    """docker, oci-archive, docker-archive or sif; the same image has another digest by each."""
    origin: str
    """What a definition file names as `From`."""
    digest: str
    insecure: bool = False
    sif: Path | None = None

    @classmethod
    def of(cls, reference: str, cache: Path, insecure: Sequence[str]) -> _Source:
        if reference.startswith("docker://"):
            named = Reference.parse(reference)
            digest = resolve(named, insecure)
            return cls("docker", named.at(digest), digest, named.host in insecure)
        transport, colon, rest = reference.partition(":")
        if colon and transport in ("oci-archive", "docker-archive"):
            path = _file(rest.removeprefix("//"), reference)
            return cls(transport, str(path), file_digest(path, cache))
        if reference.endswith(".sif"):
            path = _file(reference, reference)
            return cls("sif", str(path), file_digest(path, cache), sif=path)
        raise UserError(
            Problem(
                f"'{reference}' is no image",
                remedy="write docker://…, oci-archive:FILE, docker-archive:FILE, FILE.sif or venv:DIR",
            )
        )

    def login(self) -> dict[str, str]:
        """Variables by which Apptainer is told the registry's login; identity tokens it finds itself."""
        if self.transport != "docker":
            return {}
        host, _, repository = self.origin.partition("@")[0].partition("/")
        found = login_for(host, repository)
        if found is None or found.is_token:
            return {}
        return {
            f"{name}_DOCKER_{key}": value
            for name in ("APPTAINER", "SINGULARITY")
            for key, value in (("USERNAME", found.username), ("PASSWORD", found.password))
        }

    def definition(self, tool: str, time: str) -> str:
        """The definition file: nothing is run, so no fakeroot is needed."""
        labels = {LABEL: self.digest, "hpcbench.build.tool": tool, "hpcbench.build.time": time}
        lines = "".join(f"    {name} {value}\n" for name, value in labels.items() if value)
        return f"Bootstrap: {self.transport}\nFrom: {self.origin}\n%labels\n{lines}"


@dataclass(frozen=True, slots=True)
class _Program:
    """Apptainer on this machine, with its caches below ours."""

    path: str
    version: str
    env: Mapping[str, str]

    @classmethod
    def find(cls, container: ContainerSite, cache: Path) -> _Program:
        path = _found(container.program)
        # What the site's module sets on purpose (a local TMPDIR) stays; $HOME is never filled.
        env = {
            "APPTAINER_CACHEDIR": str(cache / "apptainer"),
            "APPTAINER_TMPDIR": str(cache / "tmp"),
        }
        env |= {name: value for name, value in os.environ.items() if name not in _foreign()}
        for name in ("APPTAINER_CACHEDIR", "APPTAINER_TMPDIR"):
            Path(env[name]).mkdir(parents=True, exist_ok=True)
            env.setdefault(name.replace("APPTAINER", "SINGULARITY"), env[name])
        done = _run([path, "--version"], env)
        if done.returncode:
            raise EnvironmentFault(f"{path} does not start: {last_words(done.stderr)}")
        return cls(path, done.stdout.strip(), env)

    @property
    def key(self) -> str:
        """What beside its source makes a SIF what it is."""
        text = json.dumps([_Source("", "", "").definition("", ""), self.version, COMPRESSION])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def build(self, source: _Source, target: Path) -> None:
        """Build and verify; the log stays if it fails."""
        definition = target.with_suffix(".def")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        definition.write_text(source.definition(self.version, now))
        words = [self.path, "build", *(["--no-https"] if source.insecure else [])]
        env = {**self.env, **source.login()}
        try:
            done = _run([*words, "--mksquashfs-args", COMPRESSION, target, definition], env)
            if done.returncode and _cannot_zstd(done.stderr):
                done = _run([*words, target, definition], env)
        finally:
            definition.unlink()
        if done.returncode or not target.exists():
            raise _build_failed(source, done.stdout + done.stderr, target.parent)
        label = self.label(target)
        if label != source.digest:
            raise EnvironmentFault(f"the image built from {source.origin} is labelled {label}")
        target.chmod(0o644)

    def probe(self, sif: Path, stored: Path) -> Probe:
        """Ask the image's Python about itself, once an image."""
        if stored.exists():
            return Probe(**read_json(stored))
        python = [self.path, "--quiet", "exec", "--containall", str(sif), "python3"]
        probed = ask_python(python, str(sif), self.env)
        write_json(stored, asdict(probed))
        return probed

    def label(self, sif: Path) -> str | None:
        """The digest that a SIF says it was built from."""
        done = _run([self.path, "inspect", "--json", sif], self.env)
        try:
            labels: Mapping[str, Any] = json.loads(done.stdout)["data"]["attributes"]["labels"]
        except (ValueError, KeyError):
            return None
        return labels.get(LABEL)


@dataclass(frozen=True, slots=True)
class _Bind:
    """`SRC[:DST[:ro]]`, taken apart."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> _Bind:
        source, _, rest = os.path.expandvars(text).partition(":")
        target, _, mode = rest.partition(":")
        return cls(source, target or source, mode == "ro")

    def __str__(self) -> str:
        return f"{self.source}:{self.target}" + (":ro" if self.read_only else "")

    def check(self) -> None:
        """Whether it can be mounted: Apptainer waits long over one that cannot, then says little."""
        if not Path(self.source).exists():
            raise EnvironmentFault(
                f"{self.source} cannot be mounted: it is not on this machine",
                remedy="put it on a file system that all nodes see",
            )
        if {",", ":"} & set(self.source + self.target):
            raise EnvironmentFault(
                f"{self.source} cannot be mounted: Apptainer takes `,` and `:` for separators",
                remedy="rename it",
            )

    def links(self) -> Iterable[_Bind]:
        """Folders that links in a mounted folder lead to, as in Hugging Face's cache of models."""
        source = Path(self.source)
        if not self.read_only or not source.is_dir():
            return
        for entry in source.iterdir():
            if entry.is_symlink():
                place = os.path.normpath(Path(self.target, entry.readlink()))
                folder = entry.resolve().parent
                if folder.is_dir() and not Path(place).is_relative_to(self.target):
                    yield _Bind(str(folder), str(Path(place).parent), read_only=True)


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise EnvironmentFault(
            f"there is no {program} on this machine",
            remedy="`module load apptainer`, or name it as container.program in the site profile",
        )
    return path


def _private(mounts: Sequence[_Bind]) -> list[str]:
    """Have /tmp and home in the run's own folder: else both are 64 MB of memory."""
    for bind in mounts:
        if not bind.read_only and Path(bind.source).is_dir():
            return ["--workdir", bind.source, "--pwd", bind.target]
    return []


def _environment(environment: Environment, env: Mapping[str, str]) -> dict[str, str]:
    inside = {name: os.environ[name] for name in PASSED if name in os.environ}
    inside |= {"PYTHONDONTWRITEBYTECODE": "1", **env}
    if environment.packages is not None:
        image = environment.details.get("pythonpath")
        inside["PYTHONPATH"] = f"{PACKAGES}:{image}" if image else PACKAGES
    return {f"APPTAINERENV_{name}": value for name, value in inside.items()}


def _scrubbed(added: Mapping[str, str]) -> list[str]:
    names = sorted(set(_foreign()) - set(added))
    return ["env", *(word for name in names for word in ("-u", name))] if names else []


def _foreign() -> list[str]:
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


def _cannot_zstd(output: str) -> bool:
    """Whether it was the compression: an old Singularity or a mksquashfs without zstd."""
    return any(word in output for word in ("unknown flag", "Compressor", "zstd", "mksquashfs"))


def _build_failed(source: _Source, output: str, folder: Path) -> EnvironmentFault:
    log = folder / f"{source.digest.removeprefix('sha256:')}.log"
    known = recognise(output, building=True)
    what = f"{known.what}: {last_words(output)}" if known else last_words(output)
    remedy = known.remedy if known else f"all it said is in {log}"
    try:
        log.write_text(output)
    except OSError:  # the disk is full
        log.unlink(missing_ok=True)
    return EnvironmentFault(f"cannot build {source.origin}: {what}", remedy=remedy)


def _file(path: str, reference: str) -> Path:
    found = Path(path).expanduser().absolute()
    if not found.is_file():
        raise UserError(Problem(f"image '{reference}': there is no file {found}"))
    return found
