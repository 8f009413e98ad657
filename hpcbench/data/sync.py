"""SmartSync: what lies elsewhere is here once, whole, and provably the same.

    cache/datasets/
      KEY/            a version of a source (`tree.Version`)
      KEY.….partial/  one that is being brought; the next one goes on where this one broke off
      KEY.lock        whoever brings it
      of-SOURCE.json  the newest version of a source

KEY is a hash of the URL and of all that the source listed (paths, sizes, marks). So a source that did not
change costs one listing; one that did becomes another version, in which only what changed is transferred and
the rest is linked; an experiment that reads the older version is never disturbed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcbench.data.pack import end_pack, write_member
from hpcbench.data.progress import Moved, Progress, silent, size_text
from hpcbench.data.storage import open_storage
from hpcbench.data.transfer import Transfer, broken_off, pieces, told
from hpcbench.data.tree import Kept, Version
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.files import read_json, write_json
from hpcbench.experiment.once import leftovers, make_once
from hpcbench.plugins import Storage, StoredFile


@dataclass
class SmartSync:
    """Brings sources into one folder of a cache."""

    folder: Path
    """Where versions are kept: `cache/datasets`, `cache/models`."""
    shared: Sequence[Path] = ()
    """Such folders of others, only read: a version found there is used in place."""
    limit: int | None = None
    """Most bytes kept; what was used longest ago goes first. None: no limit."""
    in_use: Callable[[], Collection[str]] = frozenset
    """Keys of versions that must stay."""
    progress: Progress = field(default=silent)
    """Told how far it is."""

    def bring(
        self, url: str, options: Mapping[str, Any] | None = None, *, pack: bool = False
    ) -> Version:
        """The version of a source as it is now; transferred if it is not here yet, mended if it is damaged.

        A source that cannot be reached, and was brought before, is used as it was then: the version's own
        hash, which every experiment records, says which bytes these are.

        Args:
            url: `SCHEME://…`.
            options: of the storage.
            pack: whether many small files may be packed.

        Raises:
            UserError: nothing lies there, or it may not be read, or it lists what cannot be a file.
            EnvironmentFault: the connection broke for good, the disk is full; what came is kept.
        """
        storage = open_storage(url, options or {})
        try:
            self.progress(Moved(f"listing {url}"))
            listed = _sound(url, storage.list(url))
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            raise UserError(Problem(told(error).removeprefix(f"{url}: "), url)) from error
        except OSError as error:
            if (last := self.newest(url)) is not None:
                self.progress(Moved(f"{url} cannot be reached: using what came before"))
                return self._used(last)
            raise EnvironmentFault(
                f"cannot list {url}: {told(error).removeprefix(f'{url}: ')}",
                remedy="try again when it can be reached",
            ) from error
        key = _key(url, listed, pack=pack)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            version = self._shared(key) or self._own(key, storage, url, listed, pack=pack)
            write_json(self._pointer(url), {"url": url, "key": key})
        except OSError as error:
            raise broken_off(url, error) from error
        return self._used(version)

    def _own(
        self, key: str, storage: Storage, url: str, listed: Sequence[StoredFile], *, pack: bool
    ) -> Version:
        target = self.folder / key
        if target.exists():
            self._mend(target, storage)
        else:
            transfer = Transfer(
                storage,
                url,
                listed,
                pack=pack,
                newest=self.newest(url),
                make_room=self.make_room,
                progress=self.progress,
            )
            make_once(target, transfer.run, resume=True)
        version = Version.read(target)
        if version is None:
            raise EnvironmentFault(f"{target} has no manifest", remedy="remove that folder")
        return version

    def _shared(self, key: str) -> Version | None:
        found = (Version.read(folder / key) for folder in self.shared)
        return next((version for version in found if version is not None), None)

    def _used(self, version: Version) -> Version:
        """Note that it is used; what is others' is only read."""
        return version.touch() if version.folder.parent == self.folder else version

    def newest(self, url: str) -> Version | None:
        """The newest version of a source that is here, without asking the source."""
        for folder in (self.folder, *self.shared):
            try:
                key = str(read_json(self._pointer(url, folder))["key"])
            except (OSError, ValueError, KeyError):
                continue
            if (found := Version.read(self.folder / key) or self._shared(key)) is not None:
                return found
        return None

    def versions(self) -> list[Version]:
        """All versions, the one used last first."""
        if not self.folder.is_dir():
            return []
        whole = (path for path in self.folder.iterdir() if _is_key(path.name))
        found = [version for path in whole if (version := Version.read(path)) is not None]
        return sorted(found, key=lambda version: -version.used)

    def verify(self, version: Version) -> list[str]:
        """Read every byte of a version again; returns the paths that are not what they were."""
        done = 0
        lock = threading.Lock()

        def count(size: int) -> None:
            nonlocal done
            with lock:
                done += size
                self.progress(Moved("verifying", done, version.bytes, 0, version.count))

        return [kept.path for kept in version.damaged(thorough=True, progress=count)]

    def repair(
        self, version: Version, paths: Collection[str], options: Mapping[str, Any] | None = None
    ) -> None:
        """Bring files of a version again.

        Raises:
            EnvironmentFault: the source no longer has them as they were.
        """
        storage = open_storage(version.url, options or {})
        _repair(version, storage, [kept for kept in version.kept() if kept.path in paths])

    def evict(self, free: int, keep: Collection[str] = ()) -> list[Version]:
        """Remove versions, the one used longest ago first, until so many bytes are gone.

        Versions in use and those in `keep` stay. Returns what was removed.
        """
        stay = {*self.in_use(), *keep}
        gone: list[Version] = []
        for version in reversed(self.versions()):
            if sum(one.bytes for one in gone) >= free:
                break
            if version.folder.name not in stay:
                self.remove(version)
                gone.append(version)
        return gone

    def remove(self, version: Version) -> None:
        """Remove a version: gone from its name at once, from the disk soon after."""
        doomed = self.folder / f"tmp-{secrets.token_hex(4)}-{version.folder.name}"
        version.folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def leftovers(self) -> list[Path]:
        """What broken transfers and removals left, unless somebody is at work on it."""
        return leftovers(self.folder)

    def make_room(self, need: int, files: int, keep: Collection[str]) -> None:
        """See that there is room for a version, by removing others where the limit says so.

        Args:
            need: bytes.
            files: how many.
            keep: keys of versions that must stay.

        Raises:
            EnvironmentFault: there is none.
        """
        if self.limit is not None:
            over = sum(version.bytes for version in self.versions()) + need - self.limit
            if over > 0:
                self.evict(over, keep)
        free = shutil.disk_usage(self.folder).free
        if need > free:
            raise EnvironmentFault(
                f"{size_text(need)} are needed, {self.folder} has {size_text(free)}",
                remedy="`hpcbench data prune` removes what was used longest ago; or another `home`",
            )
        room = os.statvfs(self.folder)
        if room.f_files and files > room.f_favail:
            raise EnvironmentFault(
                f"{files} files are needed, {self.folder} has room for {room.f_favail}",
                remedy="`hpcbench data prune` removes what was used longest ago; or another `home`",
            )

    def _pointer(self, url: str, folder: Path | None = None) -> Path:
        return (folder or self.folder) / f"of-{hashlib.sha256(url.encode()).hexdigest()[:24]}.json"

    def _mend(self, target: Path, storage: Storage) -> None:
        version = Version.read(target)
        if version is not None and (damaged := version.damaged(thorough=False)):
            names = ", ".join(kept.path for kept in damaged[:3])
            self.progress(Moved(f"repairing {names}{', …' if len(damaged) > 3 else ''}"))
            _repair(version, storage, damaged)


def _repair(version: Version, storage: Storage, damaged: Iterable[Kept]) -> None:
    """Put back what the manifest says, byte for byte.

    Raises:
        EnvironmentFault: the source has it no longer, or cannot be reached.
    """
    try:
        fresh = {file.path: file for file in storage.list(version.url)}
        for kept in damaged:
            file = fresh.get(kept.path)
            if file is None or not _put_back(version, storage, file, kept):
                raise EnvironmentFault(
                    f"{version.files / kept.path} is damaged, and {version.url} has it no longer as it was",
                    remedy=f"remove {version.folder} and sync again: it becomes another version",
                )
        end_pack(version)
        Version.write(version.folder, version.url, _with_times(version))
    except OSError as error:
        raise EnvironmentFault(
            f"{version.folder} is damaged and cannot be repaired from {version.url}: {told(error)}",
            remedy="try again when it can be reached",
        ) from error


def _put_back(version: Version, storage: Storage, file: StoredFile, kept: Kept) -> bool:
    """Bring one file again; False if it is another one by now."""
    if file.size != kept.size:
        return False
    arriving = pieces(storage, version.url, file, 0, file.size)
    if kept.offset is not None:
        data = b"".join(arriving)  # small, as it is packed
        if hashlib.sha256(data).hexdigest() != kept.sha256:
            return False
        pack = os.open(version.folder / "pack.tar", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            write_member(pack, kept, data)
            os.fsync(pack)
        finally:
            os.close(pack)
        return True
    place = version.files / kept.path
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    digest = hashlib.sha256()
    try:
        with temporary.open("xb") as opened:
            for piece in arriving:
                digest.update(piece)
                opened.write(piece)
            opened.flush()
            os.fsync(opened.fileno())
        if digest.hexdigest() != kept.sha256:
            return False
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _with_times(version: Version) -> Iterator[Kept]:
    for kept in version.kept():
        if kept.offset is None:
            yield replace(kept, mtime_ns=(version.files / kept.path).stat().st_mtime_ns)
        else:
            yield kept


def _sound(url: str, listed: Iterable[StoredFile]) -> list[StoredFile]:
    """What a storage lists, sorted, if all of it can be files of one folder.

    Raises:
        UserError: it is nothing, or a name leads elsewhere, or one stands twice.
    """
    files = sorted(listed, key=lambda file: file.path)
    if not files:
        raise UserError(Problem("nothing lies there", url))
    names = {file.path for file in files}
    for file in files:
        parts = file.path.split("/")
        try:
            file.path.encode()
        except UnicodeEncodeError as error:
            what = f"lists a file whose name is not UTF-8: {file.path!r}"
            raise UserError(Problem(what, url, remedy="rename it")) from error
        if {"", ".", ".."} & set(parts) or "\x00" in file.path or file.path.startswith("/"):
            raise UserError(Problem(f"lists a file that leads out of it: {file.path!r}", url))
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if clash := above & names:
            raise UserError(Problem(f"lists {min(clash)!r} as a file and as a folder", url))
    if len(names) < len(files):
        raise UserError(Problem("lists a file twice", url))
    return files


def _key(url: str, listed: Sequence[StoredFile], *, pack: bool) -> str:
    digest = hashlib.sha256(json.dumps([url, pack]).encode())
    for file in listed:
        told = [file.path, file.size, file.mark, file.sha256]
        digest.update(json.dumps(told).encode() + b"\n")
    return digest.hexdigest()[:24]


def _is_key(name: str) -> bool:
    return len(name) == 24 and not set(name) - set("0123456789abcdef")
