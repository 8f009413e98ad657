"""The images built here: `HOME/cache/images`.

DIGEST-KEY.sif          built from the source with that digest; KEY names tool and compression
DIGEST-KEY.json         its source, build time and tool; touched at each use
DIGEST-KEY.probe.json   answers of its Python, see `packages.Probe`
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

from hpcbench.environments.packages import SUMS, Probe
from hpcbench.errors import Problem, UserError
from hpcbench.experiment.access import owner_writes
from hpcbench.files.atomic import derived, replacing, write_json
from hpcbench.files.hashing import hash_file
from hpcbench.files.lease import alone, leftovers

_NAME = re.compile(r"[0-9a-f]{64}-[0-9a-f]{12}\.(sif|json|probe\.json)")
_WHEEL = re.compile(rf"wheelhouse/([0-9a-f]{{24}})/([A-Za-z0-9_][A-Za-z0-9_.+!-]*\.whl|{SUMS})")


INSTALLER = "hpcbench-install"
"""Folder of a bundle with hpcbench's own wheels. Users unpack and remove it: never the name of a home."""


@dataclass(frozen=True, slots=True)
class Record:
    """Facts of a built image."""

    reference: str
    """The requested reference."""
    transport: str
    """docker, oci-archive or docker-archive."""
    origin: str
    """Source of the build, by digest or path."""
    digest: str
    """Digest of the source, `sha256:…`."""
    tool: str
    """`apptainer version 1.4.5`."""
    built: float
    """Time of the build, seconds since the epoch."""
    seconds: float
    """Duration of the build."""
    sha256: str
    """Hash of the SIF, different for each build."""

    @property
    def pinned(self) -> str:
        """The reference with its digest, which needs no registry where the image is in the cache."""
        has_registry = self.transport in ("docker", "oras")
        return (
            self.reference
            if not has_registry or "@" in self.reference
            else f"{self.reference}@{self.digest}"
        )


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A SIF in the cache."""

    path: Path
    record: Record | None
    """None: an old hpcbench built it and wrote no record, or the record is not written yet."""

    @property
    def name(self) -> str:
        """`DIGEST-KEY`."""
        return self.path.stem

    @property
    def bytes(self) -> int:
        """Size of the SIF."""
        return self.path.stat().st_size

    @property
    def used(self) -> float:
        """Time of its last preparation for an experiment, seconds since the epoch."""
        noted = _record_file(self.path)
        return (noted if noted.exists() else self.path).stat().st_mtime

    @property
    def probe(self) -> Probe | None:
        """Answers of its Python."""
        return derived(_probe_file(self.path), lambda noted: Probe(**noted))

    def damage(self, label: Callable[[Path], str | None]) -> str | None:
        """The damage of the image; None: it is intact. Reads the whole SIF; without a record, only its label.

        Args:
            label: reads the source digest from a SIF's label.
        """
        if self.record is not None and hash_file(self.path) != self.record.sha256:
            return "its bytes differ from the image that was built"
        digest = f"sha256:{self.name.partition('-')[0]}"
        found = label(self.path)
        if found is None and self.record is not None:
            return None  # Singularity sets no label when it builds from an archive
        if found != digest:
            return f"its label is {found}, not {digest}"
        return None

    def remove(self) -> None:
        """Remove it: the SIF last, because the other files are useless without it."""
        for path in (_record_file(self.path), _probe_file(self.path), self.path):
            path.unlink(missing_ok=True)


def built_images(cache: Path) -> list[BuiltImage]:
    """All images, the most recently used first."""
    found = [
        BuiltImage(path, _read(path))
        for path in (cache / "images").glob("*.sif")
        if not path.name.startswith("tmp-")
    ]
    return sorted(found, key=lambda image: -image.used)


def unfinished(cache: Path) -> list[Path]:
    """Files that interrupted builds left."""
    old = time.time() - 86400  # a build takes minutes, a slow one hours
    working = [path for path in (cache / "tmp").glob("*") if path.lstat().st_mtime < old]
    return [*leftovers(cache / "images"), *sorted(working)]


def note(
    sif: Path, reference: str, transport: str, origin: str, digest: str, tool: str, seconds: float
) -> Record:
    """Write the record of a SIF once, and mark the SIF as used."""
    record = _read(sif)
    if record is None:
        record = Record(
            reference, transport, origin, digest, tool, sif.stat().st_mtime, seconds, hash_file(sif)
        )
        write_json(_record_file(sif), asdict(record))
    else:
        with contextlib.suppress(OSError):  # another user's cache
            os.utime(_record_file(sif))
    return record


def same_source(cache: Path, digest: str, transport: str) -> Path | None:
    """An image of that source, built by another tool or on another machine."""
    for image in built_images(cache):
        record = image.record
        if record is not None and (record.digest, record.transport) == (digest, transport):
            return image.path
    return None


def save(
    images: Iterable[BuiltImage],
    bundle: Path,
    beside: Path | None = None,
    wheels: Mapping[str, Path] = MappingProxyType({}),
) -> None:
    """Write images with their records into one tar file, for a cluster without a registry.

    Args:
        images: the images to write.
        bundle: the tar file.
        beside: a folder to add as `INSTALLER`.
        wheels: name of a folder of wheels, see `packages.saved_wheels` → the folder.

    Raises:
        OSError: the disk is full, or an image is gone.
    """
    with (
        replacing(bundle) as temporary,
        tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar,
    ):
        if beside is not None:
            tar.add(beside, INSTALLER)
        for wheelhouse, folder in wheels.items():
            tar.add(folder, f"wheelhouse/{wheelhouse}")
        for image in images:
            for path in (_record_file(image.path), _probe_file(image.path), image.path):
                if path.exists():
                    tar.add(path, path.name)


def restore(bundle: Path, cache: Path) -> list[BuiltImage]:
    """Copy the images of a tar file into the cache, with the wheels beside them; only if all hashes match.

    Raises:
        UserError: it is no such file, or is damaged.
        OSError: the disk is full.
    """
    folder = cache / "images"
    folder.mkdir(parents=True, exist_ok=True)
    mark = f"restore-{secrets.token_hex(4)}"  # its lock marks the restore as running
    with (
        owner_writes(),  # images and wheels are code
        alone(folder / f"{mark}.lock"),
        tempfile.TemporaryDirectory(dir=folder, prefix="tmp-", suffix=f"-{mark}") as name,
    ):
        try:
            with tarfile.open(bundle, "r:") as tar:
                for member in tar:
                    known = _NAME.fullmatch(member.name) or _WHEEL.fullmatch(member.name)
                    if member.isfile() and known:
                        path = Path(name, member.name)
                        path.parent.mkdir(parents=True, exist_ok=True)
                        with path.open("wb") as file:
                            shutil.copyfileobj(_opened(tar, member), file, 1 << 20)
        except (tarfile.TarError, EOFError) as error:
            raise UserError(Problem(f"is not a bundle of images: {error}", str(bundle))) from error
        found = [BuiltImage(path, _read(path)) for path in sorted(Path(name).glob("*.sif"))]
        if not found:
            raise UserError(Problem("holds no images", str(bundle)))
        for image in found:
            if image.record is None or hash_file(image.path) != image.record.sha256:
                what = f"{image.name[:12]} differs from the saved image"
                raise UserError(Problem(what, str(bundle), remedy="copy it again"))
        for wheels in sorted(Path(name, "wheelhouse").glob("*")):
            _take_wheels(wheels, cache / "wheelhouse", bundle)
        kept = []
        for image in found:
            kept.append(BuiltImage(folder / image.path.name, image.record))
            for path in (_record_file(image.path), _probe_file(image.path), image.path):
                if path.exists():
                    path.replace(folder / path.name)
    return kept


def _take_wheels(wheels: Path, into: Path, bundle: Path) -> None:
    """Move a folder of wheels into the cache, in place of an older one for the same Python."""
    try:
        lines = (wheels / SUMS).read_text(encoding="utf-8").splitlines()
        there = {path.name: hash_file(path) for path in wheels.glob("*.whl")}
    except (OSError, ValueError):
        lines, there = ["no hashes  "], {}
    if there != {name: value for value, name in (line.split("  ", 1) for line in lines)}:
        what = f"the Python packages {wheels.name} differ from the saved ones"
        raise UserError(Problem(what, str(bundle), remedy="copy it again"))
    into.mkdir(parents=True, exist_ok=True)
    target = into / wheels.name
    if target.exists():
        target.rename(wheels.with_name(f"old-{wheels.name}"))  # goes with the temporary folder
    wheels.rename(target)


def _opened(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(member)
    assert file is not None  # a regular file
    return file


def file_digest(path: Path, cache: Path) -> str:
    """Hash of a file, cached while its size and times are the same."""
    known = known_file_digest(path, cache)
    if known is not None:
        return known
    digest = f"sha256:{hash_file(path)}"
    write_json(_digest_file(path, cache), {"file": str(path), "digest": digest})
    return digest


def known_file_digest(path: Path, cache: Path) -> str | None:
    """`file_digest` of a file that was hashed before; None: it has to be read."""
    return derived(_digest_file(path, cache), lambda noted: str(noted["digest"]))


def _digest_file(path: Path, cache: Path) -> Path:
    state = path.stat()
    text = json.dumps([str(path), state.st_size, state.st_mtime_ns, state.st_ino])
    return cache / "images" / f"file-{hashlib.sha256(text.encode()).hexdigest()[:24]}.json"


def _record_file(sif: Path) -> Path:
    return sif.with_suffix(".json")


def _probe_file(sif: Path) -> Path:
    return sif.with_suffix(".probe.json")


def _read(sif: Path) -> Record | None:
    return derived(_record_file(sif), lambda noted: Record(**noted))
