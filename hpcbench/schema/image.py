"""Container images with engines."""

from __future__ import annotations

from pydantic import Field

from hpcbench.schema.definition import Definition, Name


class Image(Definition):
    """A container image with an engine."""

    reference: str | None = None
    """`docker://…`, `oci-archive:FILE`, `docker-archive:FILE` or `FILE.sif`; a file is relative to this
    one."""
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Digest of a `docker://` reference when it was locked; `RUN_MODE=prod` requires it."""
    recipe: str | None = None
    """Dockerfile or Apptainer definition file to build it from, relative to this file."""
    engines: tuple[str, ...] = ()
    """Engines that it contains. Without them: unknown."""
    cuda: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    """CUDA version that its programs are built for; hpcbench compares it with the site's before it downloads
    the image."""
    for_older_drivers: Name | None = None
    """Image definition to use instead where `container.cuda` of the site says that its drivers are too old
    for this one."""
    size_gb: float | None = Field(default=None, gt=0)
    """Size of the download, GB (10^9 bytes): the compressed layers, or the file."""
