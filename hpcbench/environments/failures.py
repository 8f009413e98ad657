"""Known failures of images and drivers on clusters, recognised by the programs' messages.

The texts are messages of Apptainer, registries, PyTorch and the NVIDIA driver; the tests have examples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcbench.sanitize import sanitize

APPTAINER_FAILED = 255
"""Apptainer's own exit code when it could not start the program; a program may use 255, too."""

STARTER_FAILED = 1
"""Exit code of Apptainer's starter, the part that creates the namespaces."""


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A common failure."""

    pattern: re.Pattern[str]
    what: str
    """The failure in a few words."""
    remedy: str
    """The action for the user."""


def _known(pattern: str, what: str, remedy: str) -> KnownFailure:
    return KnownFailure(re.compile(pattern, re.IGNORECASE), what, remedy)


OF_MACHINES = (
    _known(
        r"no space left on device",
        "no space left",
        "free space: building needs about three times the image's size in the cache and in its TMPDIR; "
        "`hpcbench images prune` removes unused images",
    ),
    _known(
        r"disk quota exceeded",
        "your quota is used up",
        "check bytes and files by `quota -s` or `lfs quota`; run `hpcbench images prune` or `data prune`",
    ),
    _known(
        r"architecture \((\w+)\) could not run on the host|exec format error"
        r"|no (image|child|manifest) .{0,60}(platform|architecture)",
        "the image is for another architecture",
        "use the image's variant for this machine (`uname -m`)",
    ),
    _known(
        r"create user namespace|user namespaces? (is |are )?(disabled|not enabled)"
        r"|unprivileged_userns|max_user_namespaces|unshare.*(operation not permitted|no space)",
        "user namespaces are disabled on this machine",
        "ask your cluster's support to enable them (user.max_user_namespaces), or for a setuid Apptainer",
    ),
    _known(
        r"unknown compression algorithm",
        "Singularity cannot read the image: Apptainer compressed it with zstd",
        "build it with Singularity, or with `apptainer build --mksquashfs-args '-comp gzip' NEW.sif OLD.sif`",
    ),
    _known(
        r"transport endpoint is not connected",
        "an image is still mounted by a process that was killed",
        "on that node, run `fusermount3 -u` on the folder it names, or `pkill -u $USER squashfuse`",
    ),
    _known(
        r"/dev/fuse|fuse: (device|mount|failed)|fusermount|squashfuse.*(not found|failed|exited)"
        r"|failed to mount squashfs|image driver mount failure",
        "images cannot be mounted: FUSE is missing or not accessible on this machine",
        "ask your cluster's support for /dev/fuse and squashfuse on that machine",
    ),
    _known(
        r"driver on your system is too old|driver version is insufficient"
        r"|forward compatibility was attempted|unsupported (display driver|toolchain)"
        r"|cuda error: no kernel image",
        "the GPU's driver is too old for the image, or the image is not built for this GPU",
        "`nvidia-smi` on that node shows the newest CUDA that its driver supports: choose an image for it",
    ),
    _known(
        r"found no nvidia driver|no cuda gpus are available|libcuda\.so\.1: cannot open",
        "the container has no visible GPU",
        "check that the job requests one (`resources`, `gpu_gres` of the site) and that `nvidia-smi` works "
        "on the node",
    ),
)


OF_REGISTRIES = (
    _known(
        r"manifest[_ ]unknown|manifest .{0,120}not found|reading manifest .{0,160}not found",
        "the registry does not have this image",
        "check repository and tag; for a deleted digest, `hpcbench images lock` gets the current one",
    ),
    _known(
        r"toomanyrequests|too many requests|rate limit",
        "the registry has answered too many requests from here",
        "log in (`apptainer registry login`), or wait some hours",
    ),
    _known(
        r"unauthorized|authentication required|requested access to the resource is denied",
        "the registry refuses access",
        "run `apptainer registry login docker://HOST`, `docker login` or `podman login`",
    ),
    _known(
        r"no matching distribution found for",
        "the package index does not have a package that the recipe locks",
        "name an index that has it (`container.build_env: {PIP_INDEX_URL: …}` of the site profile), or lock "
        "another release in a copy of the recipe",
    ),
    _known(
        r"these packages do not match the hashes",
        "a package is not the one that the recipe locks: its hash is another",
        "check the index; if it is right, lock the package again in a copy of the recipe",
    ),
)


def recognise(output: str, *, building: bool = False) -> KnownFailure | None:
    """The first known failure that a program's output reports.

    Args:
        output: the program's output, or its end.
        building: whether the program contacted a registry.
    """
    known = (*OF_MACHINES, *OF_REGISTRIES) if building else OF_MACHINES
    return next((one for one in known if one.pattern.search(output)), None)


def is_apptainers_own(code: int | None, output: str) -> bool:
    """Whether Apptainer itself failed, and not the program in the container.

    Both may end with 255 or 1; a last log line in Apptainer's format shows that Apptainer failed.
    """
    # The starter writes colours, even into a file.
    last = [line for line in map(sanitize, output.splitlines()) if line.strip()][-3:]
    begins = {APPTAINER_FAILED: "FATAL:", STARTER_FAILED: "ERROR  : "}.get(code or 0)
    return begins is not None and any(line.startswith(begins) for line in last)
