"""What goes wrong with images and drivers on clusters, recognised by what the programs say.

The texts are those of Apptainer, registries, PyTorch and the NVIDIA driver; examples stand in the tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcbench.sanitize import sanitize

APPTAINER_FAILED = 255
"""Apptainer's own exit code when it could not start what it was to run; a program may end so, too."""

STARTER_FAILED = 1
"""That of the part of it that makes the namespaces."""


@dataclass(frozen=True, slots=True)
class Known:
    """A failure that people meet."""

    pattern: re.Pattern[str]
    what: str
    """In a few words."""
    remedy: str
    """What to do."""


def _known(pattern: str, what: str, remedy: str) -> Known:
    return Known(re.compile(pattern, re.IGNORECASE), what, remedy)


OF_MACHINES = (
    _known(
        r"no space left on device",
        "no space left",
        "make room: building needs about three times the image's size below the cache and in its TMPDIR; "
        "`hpcbench images prune` removes what is not used",
    ),
    _known(
        r"disk quota exceeded",
        "your quota is used up",
        "bytes or files: `quota -s`, `lfs quota`; `hpcbench images prune`, `hpcbench data prune`",
    ),
    _known(
        r"architecture \((\w+)\) could not run on the host|exec format error"
        r"|no (image|child|manifest) .{0,60}(platform|architecture)",
        "the image is for another architecture",
        "take the image's variant for this machine (`uname -m`)",
    ),
    _known(
        r"create user namespace|user namespaces? (is |are )?(disabled|not enabled)"
        r"|unprivileged_userns|max_user_namespaces|unshare.*(operation not permitted|no space)",
        "user namespaces are switched off on this machine",
        "ask your cluster's support to enable them (user.max_user_namespaces), or for a setuid Apptainer",
    ),
    _known(
        r"unknown compression algorithm",
        "Singularity cannot read the image: it is compressed by zstd, as Apptainer's can be",
        "build it with Singularity, or with `apptainer build --mksquashfs-args '-comp gzip' NEW.sif OLD.sif`",
    ),
    _known(
        r"transport endpoint is not connected",
        "an image is still mounted by a process that was killed",
        "on that node: `fusermount3 -u` the folder it names, or `pkill -u $USER squashfuse`",
    ),
    _known(
        r"/dev/fuse|fuse: (device|mount|failed)|fusermount|squashfuse.*(not found|failed|exited)"
        r"|failed to mount squashfs|image driver mount failure",
        "images cannot be mounted: FUSE is missing or closed on this machine",
        "ask your cluster's support for /dev/fuse and squashfuse on that machine",
    ),
    _known(
        r"driver on your system is too old|driver version is insufficient"
        r"|forward compatibility was attempted|unsupported (display driver|toolchain)"
        r"|cuda error: no kernel image",
        "the GPU's driver is too old for the image, or the image not built for this GPU",
        "`nvidia-smi` on that node tells the newest CUDA its driver takes: choose an image of that one",
    ),
    _known(
        r"found no nvidia driver|no cuda gpus are available|libcuda\.so\.1: cannot open",
        "no GPU is to be seen in the container",
        "does the job get one (`resources`, `gpu_gres` of the site), and does the node's `nvidia-smi` work?",
    ),
)


OF_REGISTRIES = (
    _known(
        r"manifest[_ ]unknown|manifest .{0,120}not found|reading manifest .{0,160}not found",
        "the registry has no such image any more",
        "check repository and tag; a digest may have been deleted: `hpcbench images lock` asks for today's",
    ),
    _known(
        r"toomanyrequests|too many requests|rate limit",
        "the registry has answered too many requests from here",
        "log in (`apptainer registry login`), or wait some hours",
    ),
    _known(
        r"unauthorized|authentication required|requested access to the resource is denied",
        "the registry refuses",
        "`apptainer registry login docker://HOST`, or `docker login`, `podman login`",
    ),
)


def recognise(output: str, *, building: bool = False) -> Known | None:
    """The failure that a program's output tells of; the first known, if it tells of several.

    Args:
        output: what it printed, or the end of that.
        building: whether it spoke with a registry.
    """
    known = (*OF_MACHINES, *OF_REGISTRIES) if building else OF_MACHINES
    return next((one for one in known if one.pattern.search(output)), None)


def is_apptainers_own(code: int | None, output: str) -> bool:
    """Whether Apptainer itself failed, and not the program in the container.

    Both may end with 255 or 1; only Apptainer then ends its log with a line that begins in its way.
    """
    # What makes the namespaces writes in colours, even into a file.
    last = [line for line in map(sanitize, output.splitlines()) if line.strip()][-3:]
    begins = {APPTAINER_FAILED: "FATAL:", STARTER_FAILED: "ERROR  : "}.get(code or 0)
    return begins is not None and any(line.startswith(begins) for line in last)
