"""The user's plans and the registries around them: found, read, written.

Plans are YAML files of one folder and definitions of its `registries/`; only these may be written. Other
registries (shipped, the site's, the user's) are only read. A client names a definition by an id, which leads
to a file only if this module found the file: no path comes from a request, and no link below a registry is
followed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hpcbench import secret
from hpcbench.files.atomic import write_all
from hpcbench.portal.faults import PortalFault, missing, refused
from hpcbench.portal.models.plans import DefinitionKind, DefinitionRow
from hpcbench.portal.safe_open import FOLDER, open_beneath
from hpcbench.registry.catalog import Catalog
from hpcbench.registry.source import MAX_BYTES
from hpcbench.registry.upgrade import FOLDERS as OLD_FOLDERS
from hpcbench.schema.kinds import KINDS

MOST = 5_000
"""Most definitions of a list."""

EXAMINED = 20_000
"""Most entries of the plans' folder that are examined: the folder may be a whole home directory."""

DEPTH = 3
"""Greatest depth of folders of plans."""

FRESH_SECONDS = 2.0
"""Seconds for which a list is reused."""

HEAD = 65_536
"""Bytes of a file's beginning that decide whether it is a plan."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*){0,3}")
_PLAN = re.compile(rb"^(?:run_tasks|matrix|tasks) *:", re.MULTILINE)
_SETTING = re.compile(r"^(\s*(?:- )?)([A-Za-z0-9_]+)( *: *)(\S.*)$", re.MULTILINE)
_ORIGINS = {"shipped": "shipped", "site": "site", "user": "user"}


@dataclass(frozen=True, slots=True)
class File:
    """A definition's file."""

    kind: DefinitionKind
    """Its kind."""
    name: str
    """Its name; an overlay's ends in `.dev`."""
    root: Path
    """Trusted folder: the folder of plans, or a registry."""
    parts: tuple[str, ...]
    """Its path below `root`, as names."""
    origin: str
    """`own`, `shipped`, `site` or `user`."""
    updated: float
    """Modification time."""
    counts: bool = True
    """Whether no later registry hides it."""

    @property
    def id(self) -> str:
        """Its id in requests."""
        text = "\0".join((str(self.root), *self.parts))
        return hashlib.sha256(os.fsencode(text)).hexdigest()[:20]

    @property
    def path(self) -> Path:
        """Its path; for messages, never for opening."""
        return self.root.joinpath(*self.parts)

    @property
    def folder_kind(self) -> str:
        """Its kind as registries name it."""
        return "experiments" if self.kind == "plans" else self.kind


class Definitions:
    """All definitions that the portal shows.

    Args:
        plans: the user's folder of plans.
        may_edit: whether definitions of this folder may be written.
        umask: umask of new definitions.
    """

    def __init__(self, plans: Path, may_edit: bool, umask: int = 0o077) -> None:
        self.plans, self.may_edit, self._umask = plans.resolve(), may_edit, umask
        self._lock = threading.RLock()
        self._listed: tuple[float, dict[str, File]] = (-1e9, {})
        self._sniffed: dict[tuple[int, int, int], bool] = {}

    def all(self) -> dict[str, File]:
        """Id → definition, of all definitions."""
        with self._lock:
            when, known = self._listed
            if time.monotonic() - when > FRESH_SECONDS:
                known = {one.id: one for one in _counting(self._found())}
                self._listed = time.monotonic(), known
            return known

    def row(self, file: File) -> DefinitionRow:
        """The definition as a row of a list."""
        below = "/".join(file.parts[:-1])
        where = below or "." if file.origin == "own" else f"{file.root}/{below}"
        return DefinitionRow.model_validate(
            {
                **{name: getattr(file, name) for name in ("id", "kind", "name", "origin")},
                **{name: getattr(file, name) for name in ("updated", "counts")},
                "folder": where,
                "writable": self.may_edit and file.origin == "own",
            }
        )

    def find(self, identity: str) -> File:
        """The definition with an id.

        Raises:
            PortalFault: no definition has this id.
        """
        found = self.all().get(identity)
        if found is None:
            raise missing("there is no such file", "go back to the list")
        return found

    def at(self, path: Path) -> File | None:
        """The definition of a file; None: the file is no definition."""
        return next((one for one in self.all().values() if one.path == path), None)

    def read(self, file: File) -> tuple[str, str]:
        """Text and tag of a definition; secrets in plain text are masked where it cannot be written.

        Raises:
            PortalFault: it was removed, cannot be read, or is no text.
        """
        data = self._bytes(file)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise PortalFault(422, "not_text", f"'{file.name}' is not UTF-8 text") from None
        return text if file.origin == "own" else _masked(text), tag(data)

    def create(self, kind: DefinitionKind, name: str, text: str) -> File:
        """Create a definition.

        Raises:
            PortalFault: writing is off, the name is not valid or exists, the text is too long.
        """
        self._allowed()
        parts = self.place(kind, name)
        data = as_bytes(text)
        with self._lock, self._folder(parts[:-1], make=True) as folder:
            temporary = _written(folder, parts[-1], data, 0o666 & ~self._umask)
            try:
                os.link(temporary, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            except FileExistsError:
                what = f"'{name}' exists already"
                raise PortalFault(409, "conflict", what, "choose another name") from None
            finally:
                os.unlink(temporary, dir_fd=folder)
            os.fsync(folder)
            self._forget()
            stamp = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        return File(kind, name, self.plans, parts, "own", stamp.st_mtime)

    def write(self, file: File, text: str, expected: str) -> str:
        """Replace a definition as a whole, if it is unchanged since the writer read it; returns its new tag.

        Raises:
            PortalFault: it may not be written, has changed (412), or the text is too long.
        """
        self._own(file)
        data = as_bytes(text)
        with self._lock, self._folder(file.parts[:-1]) as folder:
            before = self._expected(file, expected)
            name = file.parts[-1]
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if before != data:
                temporary = _written(folder, name, data, stat.S_IMODE(mode))
                try:
                    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                except OSError:
                    os.unlink(temporary, dir_fd=folder)
                    raise
                os.fsync(folder)
            self._forget()
        return tag(data)

    def delete(self, file: File, expected: str) -> None:
        """Remove a definition, if it is unchanged since the user read it.

        Raises:
            PortalFault: it may not be written, or has changed (412).
        """
        self._own(file)
        with self._lock, self._folder(file.parts[:-1]) as folder:
            self._expected(file, expected)
            os.unlink(file.parts[-1], dir_fd=folder)
            os.fsync(folder)
            self._forget()

    def place(self, kind: DefinitionKind, name: str) -> tuple[str, ...]:
        """Path of a definition with a name below the folder of plans, as names.

        Raises:
            PortalFault: the name is not valid.
        """
        if not _NAME.fullmatch(name) or len(name) > 120 or name.endswith((".yaml", ".yml")):
            remedy = "use letters, digits, `._-`, and `/` for folders; leave `.yaml` out"
            raise PortalFault(422, "bad_request", "this name is not valid", remedy)
        below = () if kind == "plans" else ("registries", kind)
        first = name.partition("/")[0]
        if kind == "plans" and first == "registries":
            raise PortalFault(
                422, "bad_request", "a plan cannot be in registries/", "choose another folder"
            )
        return (*below, *f"{name}.yaml".split("/"))

    # --- finding --------------------------------------------------------------------------------------------

    def _found(self) -> Iterator[File]:
        """Lower registries first; a folder in several roles counts once, as the user's own."""
        own = self.plans / "registries"
        for registry in Catalog(project=False).registries:
            if registry.folder.resolve() != own.resolve():
                yield from _definitions(registry.folder.resolve(), (), _ORIGINS[registry.label])
        if own.is_symlink():  # a group's, linked to: read, never written
            yield from _definitions(own.resolve(), (), "site")
        else:
            yield from _definitions(self.plans, ("registries",), "own")
        yield from self._plans()

    def _plans(self) -> Iterator[File]:
        left = EXAMINED
        waiting: list[tuple[str, ...]] = [()]
        while waiting and left > 0:
            below = waiting.pop(0)
            entries = _entries(self.plans.joinpath(*below))
            left -= len(entries)
            if any(entry.name == "manifest.json" for entry in entries):
                continue  # an experiment: its plan is a record
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if len(below) < DEPTH and (below or entry.name != "registries"):
                        waiting.append((*below, entry.name))
                elif entry.name.endswith((".yaml", ".yml")) and self._is_plan(entry):
                    parts = (*below, entry.name)
                    name = "/".join(parts).rpartition(".")[0]
                    when = entry.stat(follow_symlinks=False).st_mtime
                    yield File("plans", name, self.plans, parts, "own", when)

    def _is_plan(self, entry: os.DirEntry[str]) -> bool:
        """Whether a file's words make it a plan: other YAML files exist. Examined once for each content."""
        try:
            found = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
                return False
            key = found.st_ino, found.st_size, found.st_mtime_ns
            if key not in self._sniffed:
                with os.fdopen(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                    head = file.read(HEAD)
                self._sniffed[key] = not head.strip() or _PLAN.search(head) is not None
        except OSError:
            return False
        return self._sniffed[key]

    # --- files ----------------------------------------------------------------------------------------------

    def _bytes(self, file: File) -> bytes:
        try:
            descriptor = open_beneath(file.root, *file.parts)
        except FileNotFoundError:
            self._forget()
            raise missing(f"'{file.name}' does not exist any more") from None
        except OSError as error:
            raise refused(f"'{file.name}' cannot be read: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise PortalFault(413, "too_large", f"'{file.name}' is larger than {MAX_BYTES} bytes")
        return data

    def _allowed(self) -> None:
        if not self.may_edit:
            raise refused("this portal may not write files", "start the portal with --allow-edit")

    def _own(self, file: File) -> None:
        self._allowed()
        if file.origin != "own":
            remedy = "duplicate it into your own registry"
            raise refused(f"'{file.name}' is not in your own folder", remedy)

    def _expected(self, file: File, expected: str) -> bytes:
        data = self._bytes(file)
        if tag(data) != expected:
            what = f"'{file.name}' has changed since you opened it"
            raise PortalFault(412, "conflict", what, "compare both texts, then save again")
        return data

    def _forget(self) -> None:
        self._listed = (-1e9, {})

    @contextlib.contextmanager
    def _folder(self, parts: tuple[str, ...], make: bool = False) -> Iterator[int]:
        """A folder below that of the plans, opened without following links.

        Raises:
            PortalFault: a link or a file is in the path, or the folder cannot be written.
        """
        folder = -1
        try:
            folder = os.open(self.plans, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for part in parts:
                made = make and _made(part, folder)
                below = os.open(part, FOLDER, dir_fd=folder)
                if made:
                    os.fchmod(below, 0o777 & ~self._umask)
                os.close(folder)
                folder = below
            yield folder
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise PortalFault(
                    507,
                    "no_room",
                    "the disk is full, or the quota is used up",
                    "delete files, then save again",
                ) from error
            what = f"the file cannot be written: {error.strerror}"
            raise refused(
                what, "check the permissions; no folder of the path may be a link"
            ) from error
        finally:
            if folder >= 0:
                os.close(folder)


def tag(data: bytes) -> str:
    """Identifies the content of a definition: an entity tag of HTTP."""
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'


def as_bytes(text: str) -> bytes:
    """A text as bytes to write.

    Raises:
        PortalFault: it is too long, or no valid text.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair
        raise PortalFault(422, "not_text", "this text is not valid Unicode") from None
    if len(data) > MAX_BYTES:
        what = f"the text is larger than {MAX_BYTES} bytes"
        raise PortalFault(413, "too_large", what, "put data into a dataset")
    return data


def _written(folder: int, name: str, data: bytes, mode: int) -> str:
    """Write a temporary file beside its target, whole and on the disk; returns its name."""
    temporary = f".{name[:200]}.{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        write_all(descriptor, data)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(descriptor)
    return temporary


def _made(name: str, folder: int) -> bool:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        return False
    return True


def _definitions(root: Path, below: tuple[str, ...], origin: str) -> Iterator[File]:
    """Definitions of a registry, which is at the path `below` under a trusted folder."""
    left = MOST
    for kind in KINDS:
        for folder in (kind, *OLD_FOLDERS.get(kind, ())):
            top = root.joinpath(*below, folder)
            if top.is_symlink():
                continue
            for parent, _, files in os.walk(top):
                inner = Path(parent).relative_to(root).parts
                for name in sorted(files):
                    left -= 1
                    if left < 0:
                        return
                    if not name.endswith(".yaml") or name.startswith("."):
                        continue
                    try:
                        found = os.lstat(os.path.join(parent, name))  # noqa: PTH116, PTH118 - thousands
                    except OSError:
                        continue
                    if not stat.S_ISREG(found.st_mode):
                        continue
                    parts = (*inner, name)
                    called = "/".join(parts[len(below) + 1 :]).removesuffix(".yaml")
                    own: DefinitionKind = "plans" if kind == "experiments" else kind  # type: ignore[assignment]
                    yield File(own, called, root, parts, origin, found.st_mtime)


def _counting(files: Iterator[File]) -> list[File]:
    """Mark the definitions that a plan gets: the last of each kind and name."""
    found = list(files)
    last: dict[tuple[str, str], File] = {
        (one.kind, one.name): one for one in found if one.kind != "plans"
    }
    return [
        one
        if last.get((one.kind, one.name), one) is one
        else File(one.kind, one.name, one.root, one.parts, one.origin, one.updated, counts=False)
        for one in found
    ]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(islice(found, EXAMINED), key=lambda one: one.name)
    except OSError:
        return []


def _masked(text: str) -> str:
    def line(match: re.Match[str]) -> str:
        if secret.written_out(match[2], match[4]):
            return f"{match[1]}{match[2]}{match[3]}{secret.MASK}"
        return match[0]

    return secret.mask(_SETTING.sub(line, text))
