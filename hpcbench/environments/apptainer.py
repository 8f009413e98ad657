"""Container images as SIF files: built once per digest of their source, run without root."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from hpcbench.environments.images import note, same_source
from hpcbench.environments.inside import Bind, checked, private, variables, words
from hpcbench.environments.packages import packages_for
from hpcbench.environments.sif import (
    Program,
    Say,
    foreign,
    found,
    is_singularity,
    knows_no_eval,
    start_options,
)
from hpcbench.environments.sources import Source
from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.access import owner_writes
from hpcbench.files.lease import make_once
from hpcbench.plugins import Command, Environment
from hpcbench.schema.site import ContainerSite

PASSED = (
    "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_JOB_ID", "SLURM_GPUS_ON_NODE",
)  # fmt: skip
"""The only variables of the host that a container sees, beside those of `inside.FABRIC`."""

GPU_OPTION = {"nvidia": "--nv", "amd": "--rocm"}


class Apptainer:
    """Runs every kind of image in `sources`: images of registries and archives, recipes, SIF files."""

    api: ClassVar[int] = 1

    def prepare(
        self,
        reference: str,
        cache: Path,
        container: ContainerSite,
        requirements: Sequence[str],
        say: Say,
    ) -> Environment:
        """Put the SIF into the cache and the wrapper's packages beside it.

        Raises:
            UserError: the reference is invalid, or names no file.
            EnvironmentFault: Apptainer, the registry or the disk prevents it.
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
                sif = self._of_another(program, source, cache, say) or sif
            started = time.monotonic()
            with owner_writes():
                make_once(sif, lambda path: program.build(source, path, say))
            took = time.monotonic() - started
            fields = (source.transport, source.origin, source.digest, program.version)
            # Identifies the file: two builds of one digest differ in their bytes.
            facts = {"sif_sha256": f"sha256:{note(sif, reference, *fields, took).sha256}"}
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

    def _of_another(self, program: Program, source: Source, cache: Path, say: Say) -> Path | None:
        """An image of that source, built by another program and readable by this one."""
        other = same_source(cache, source.digest, source.transport)
        if other is None or program.opens(other):
            return other
        say(f"{program.version} cannot read {other.name}, which another program built")
        return None

    def wrap(
        self,
        environment: Environment,
        argv: Sequence[str],
        mounts: Sequence[str],
        env: Mapping[str, str],
        gpus: int,
        container: ContainerSite,
    ) -> Command:
        """`apptainer exec` of the command, isolated from the host except for the mounts.

        The container's environment goes through APPTAINERENV_*, so no value appears in an argument list.
        `env -u` removes the variables that the caller's own environment would add: a Command can only add.
        """
        sif = Path(environment.path)
        if not sif.exists():
            raise EnvironmentFault(
                f"the image {sif} is not on this machine",
                remedy="put HPCBENCH_HOME on a file system that all nodes see",
            )
        binds = checked((*mounts, *container.binds), environment.packages)
        program = found(container.program)
        tool = environment.details.get("apptainer", "")
        inside = _environment(tool, variables(environment, env, PASSED))
        options = ["--containall"]
        # Without it, a shell in the container would evaluate `$HOME` and `$(…)` in a value.
        options += ["--no-eval"] if knows_no_eval(tool) else []
        if (own := private([Bind.parse(mount) for mount in mounts])) is not None:
            # /tmp and home in the run's own folder: by default both are 64 MB of memory.
            options += ["--workdir", own.source, "--pwd", own.target]
        options += [GPU_OPTION[container.gpu_maker]] if gpus else []
        options += ["--net", "--network", "none"] if container.network == "none" else []
        options += start_options(program, tool)
        for bind in binds:
            options += ["--bind", _option(bind)]
        start = [*_scrubbed(inside), program, "--quiet", "exec", *options, str(sif)]
        return Command([*start, *words(argv)], inside)


def labels(container: ContainerSite, cache: Path) -> Callable[[Path], str | None]:
    """A function that reads the source digest from a SIF's label.

    Raises:
        EnvironmentFault: Apptainer is not installed here.
    """
    return Program.find(container, cache).label


def _option(bind: Bind) -> str:
    if {",", ":"} & set(bind.source + bind.target):
        raise EnvironmentFault(
            f"Apptainer cannot mount {bind.source}: `,` and `:` are separators",
            remedy="rename the file or folder",
        )
    if bind.source.endswith(".sqsh"):
        return f"{bind.source}:{bind.target}:image-src=/"
    return f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")


def _environment(tool: str, inside: Mapping[str, str]) -> dict[str, str]:
    # Singularity ignores Apptainer's prefix; Apptainer accepts Singularity's, with a warning.
    prefix = "SINGULARITYENV" if is_singularity(tool) else "APPTAINERENV"
    return {f"{prefix}_{name}": value for name, value in inside.items()}


def _scrubbed(added: Mapping[str, str]) -> list[str]:
    names = sorted(set(foreign()) - set(added))
    return ["env", *(word for name in names for word in ("-u", name))] if names else []
