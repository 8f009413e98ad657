"""Container images as SIF files: built once by the digest of their source, run without root."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from hpcbench.environments.images import note, same_source
from hpcbench.environments.packages import packages_for
from hpcbench.environments.sif import Program, Say, foreign, found, must_unpack
from hpcbench.environments.sources import Source
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.once import make_once
from hpcbench.plugins import Command, Environment
from hpcbench.schema.documents import ContainerSite

PACKAGES = "/opt/hpcbench/packages"
"""Where the packages mounted just in time lie in a container."""

PASSED = (
    "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK", "SLURM_JOB_ID", "SLURM_GPUS_ON_NODE",
)  # fmt: skip
"""Variables of the job that a container sees; of the host's others it sees none."""

GPU_OPTION = {"nvidia": "--nv", "amd": "--rocm"}


class Apptainer:
    """Runs what `sources` can name: images of registries and archives, recipes, SIF files."""

    api: ClassVar[int] = 1

    def prepare(
        self,
        reference: str,
        cache: Path,
        container: ContainerSite,
        requirements: Sequence[str],
        say: Say,
    ) -> Environment:
        """Have the SIF in the cache and the wrapper's packages beside it.

        Raises:
            UserError: the reference is not one, or names no file.
            EnvironmentFault: Apptainer, the registry or the disk does not let us.
        """
        program = Program.find(container, cache)
        source = Source.of(reference, cache, container)
        images = cache / "images"
        images.mkdir(parents=True, exist_ok=True)
        if source.sif is not None:
            sif, facts = source.sif, {}
        else:
            sif = images / f"{source.digest.removeprefix('sha256:')}-{program.key}.sif"
            if not sif.exists():
                sif = same_source(cache, source.digest, source.transport) or sif
            begun = time.monotonic()
            make_once(sif, lambda path: program.build(source, path, say))
            took = time.monotonic() - begun
            told = (source.transport, source.origin, source.digest, program.version)
            # Identity of the file: two builds of one digest differ in their bytes.
            facts = {"sif_sha256": f"sha256:{note(sif, reference, *told, took).sha256}"}
        if container.signed and source.transport in ("sif", "oras"):
            program.check_signature(sif)
        name = source.digest.removeprefix("sha256:") if source.sif else sif.stem
        probed = program.probe(sif, images / f"{name}.probe.json")
        packages = packages_for(probed, cache, requirements, squash=container.squash_packages)
        return Environment(
            kind="apptainer",
            path=str(sif),
            digest=source.digest,
            packages=str(packages),
            details={
                "reference": reference,
                "transport": source.transport,
                "apptainer": program.version,
                "pythonpath": probed.pythonpath,
                **facts,
                **probed.details(),
            },
            versions=probed.versions,
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
        program = found(container.program)
        for bind in binds:
            bind.check()
        inside = _environment(environment, env)
        words = [*_scrubbed(inside), program, "--quiet", "exec", "--containall"]
        words += _private([_Bind.parse(mount) for mount in mounts])
        words += [GPU_OPTION[container.gpu_maker]] if gpus else []
        words += ["--net", "--network", "none"] if container.network == "none" else []
        words += ["--unsquash"] if must_unpack(program) else []
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
    return Program.find(container, cache).label


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
        if self.source.endswith(".sqsh"):
            return f"{self.source}:{self.target}:image-src=/"
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
    # Singularity does not know Apptainer's prefix; Apptainer takes the other one, with a warning.
    tool = environment.details.get("apptainer", "")
    prefix = "SINGULARITYENV" if tool.startswith("singularity") else "APPTAINERENV"
    return {f"{prefix}_{name}": value for name, value in inside.items()}


def _scrubbed(added: Mapping[str, str]) -> list[str]:
    names = sorted(set(foreign()) - set(added))
    return ["env", *(word for name in names for word in ("-u", name))] if names else []
