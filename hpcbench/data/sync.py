"""SmartSync: a local copy of a remote source, kept once, whole, and verified by hashes.

    cache/datasets/
      KEY/            a version of a source (`tree.Version`)
      KEY.….partial/  an unfinished version; the next transfer continues it
      KEY.lock        the process that transfers it
      of-SOURCE.json  the newest version of a source
      right-….json    changed mtimes of files of a version, ours or others', whose bytes were found right

KEY is a hash of the URL and of the source's listing (paths, sizes, marks). So an unchanged source costs one
listing. A changed source becomes another version: only changed files are transferred, the others are linked.
An experiment that reads the older version is never disturbed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.data.durability import in_doubt, ours, release
from hpcbench.data.pack import end_pack, write_member
from hpcbench.data.progress import Moved, Progress, silent, size_text, verifying
from hpcbench.data.storage import no_answer, open_storage
from hpcbench.data.transfer import Transfer, broken_off, error_text, pieces
from hpcbench.data.tree import Version, VersionFile
from hpcbench.errors import NO_NETWORK, EnvironmentFault, Problem, UserError
from hpcbench.files.atomic import derived, write_json
from hpcbench.files.lease import (
    alone,
    leftovers,
    make_once,
    remove,
)
from hpcbench.plugins import Storage, StoredFile

LEASE = 86400.0
"""Seconds for which a used version stays: an experiment in preparation does not yet appear as in use."""

MANIFEST = "manifest.jsonl"

_log = logging.getLogger(__name__)


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


@dataclass
class SmartSync:
    """Transfers sources into one folder of a cache."""

    folder: Path
    """Folder of the versions: `cache/datasets`, `cache/models`."""
    shared: Sequence[Path] = ()
    """Such folders of other users, only read: a version found there is used in place."""
    limit: int | None = None
    """Most bytes kept; the least recently used version goes first. None: no limit."""
    in_use: Callable[[], Collection[str]] = frozenset
    """Keys of versions that must stay."""
    progress: Progress = field(default=silent)
    """Receives the progress."""
    make_folder: Callable[[Path], None] = _make_folder
    """Creates the folder with the permissions that other users need to read and write it."""

    def bring(
        self, url: str, options: Mapping[str, Any] | None = None, *, pack: bool = False
    ) -> Version:
        """The current version of a source; transferred if it is missing here, repaired if it is damaged.

        If the source cannot be reached, its last transferred version is used: the version's own hash, which
        every experiment records, identifies the bytes.

        Args:
            url: `SCHEME://…`.
            options: of the storage.
            pack: whether many small files may be packed.

        Raises:
            UserError: the source is empty, or may not be read, or lists a name that cannot be a file.
            EnvironmentFault: the connection broke for good, or the disk is full; arrived bytes are kept.
        """
        storage = open_storage(url, options or {})
        try:
            self.progress(Moved(f"listing {url}"))
            listed = _sound(url, storage.list(url))
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            raise UserError(Problem(error_text(error).removeprefix(f"{url}: "), url)) from error
        except OSError as error:
            if (last := self.newest(url, options, pack=pack)) is not None:
                self.progress(Moved(f"{url} cannot be reached: using its last transferred version"))
                return self._used(last)
            why = no_answer(url, options or {}, error)
            raise EnvironmentFault(
                f"cannot list {url}: {why or error_text(error).removeprefix(f'{url}: ')}",
                remedy=f"{NO_NETWORK}; then try again" if why else "try again later",
            ) from error
        key = _key(url, listed, options, pack=pack)
        try:
            self.make_folder(self.folder)
            version = self._shared(key, whole=True)
            if version is None:
                transfer = Transfer(
                    storage,
                    url,
                    listed,
                    pack=pack,
                    # Or of a time when keys had no endpoint: the same mark and size mean the same bytes.
                    newest=self.newest(url, options) or self.newest(url),
                    make_room=self.make_room,
                    progress=self.progress,
                )
                version = self._own(self.folder / key, transfer)
            self._point(url, options, version)
        except OSError as error:
            raise broken_off(url, error) from error
        return self._used(version)

    def _own(self, target: Path, transfer: Transfer) -> Version:
        if (there := Version.read(target)) is not None:
            self._mend(there, transfer)
        else:
            make_once(target, transfer.run, resume=True)
        version = Version.read(target)
        if version is None:
            what = f"{target} has no readable manifest"
            raise EnvironmentFault(what, remedy="remove that folder")
        return version

    def _shared(self, key: str, *, whole: bool = False) -> Version | None:
        """A version in a shared folder; with `whole` it is checked like our own."""
        for folder in self.shared:
            version = Version.read(folder / key)
            if version is None:
                continue
            if not whole or (version.sound() and not self.damaged(version)):
                return version
            self.progress(Moved(f"{version.folder} is damaged: not used"))
        return None

    def _used(self, version: Version) -> Version:
        """Note that a version of ours is used; versions of other users are only read."""
        return version.touch() if version.folder.parent == self.folder else version

    def newest(
        self, url: str, options: Mapping[str, Any] | None = None, *, pack: bool = True
    ) -> Version | None:
        """The newest local version of a source, without a request to the source.

        Args:
            url, options: the source.
            pack: whether the version may have packed files.
        """
        for folder in (self.folder, *self.shared):
            note = _read(folder / _pointer(url, options))
            for key in filter(None, (note.get("key"), note.get("loose"))):
                found = Version.read(self.folder / key) or self._shared(key)
                if found is not None and (pack or found.pack_mtime_ns is None):
                    return found
        return None

    def _point(self, url: str, options: Mapping[str, Any] | None, version: Version) -> None:
        """Note that a version is the newest of its source, and which version is the newest without a pack."""
        place, key = self.folder / _pointer(url, options), version.folder.name
        before = _read(place)
        loose = key if version.pack_mtime_ns is None else before.get("loose", before.get("key"))
        note = {"url": url, "key": key, **({"loose": loose} if loose else {})}
        if note == before:
            return
        try:
            write_json(place, note)
        except OSError as error:  # the version exists without the note
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise

    def versions(self) -> list[Version]:
        """All versions, the most recently used first."""
        if not self.folder.is_dir():
            return []
        whole = (path for path in self.folder.iterdir() if _is_key(path.name))
        found = [version for path in whole if (version := Version.read(path)) is not None]
        return sorted(found, key=lambda version: -version.used)

    def verify(self, version: Version) -> list[str]:
        """Read every byte of a version again; return the paths of damaged files.

        A damaged manifest comes first: files whose lines it lost cannot be checked.
        """
        damaged = [kept.path for kept in self.damaged(version, thorough=True)]
        if not version.sound():
            return [MANIFEST, *damaged]
        if not damaged and version.folder.parent == self.folder:
            release(version)
        return damaged

    def damaged(self, version: Version, *, thorough: bool = False) -> list[VersionFile]:
        """The damaged files of a version, by their sizes and mtimes.

        A file with another mtime is read, once for each mtime: a copy of a cache may have lost the mtimes.

        Args:
            version: ours or another user's.
            thorough: read every byte.
        """
        before = _read(place := self._right(version))
        times = {path: time for path, time in before.items() if isinstance(time, int)}
        found = version.damaged(
            thorough=thorough,
            progress=verifying(version.bytes, version.count, self.progress),
            known=times,
        )
        if times != before:
            with contextlib.suppress(OSError):  # the next check takes longer
                write_json(place, times)
        return found

    def _right(self, version: Version) -> Path:
        """The file that notes changed mtimes of right files of a version."""
        return self.folder / f"right-{_digest(str(version.folder))}.json"

    def repair(
        self, version: Version, paths: Collection[str], options: Mapping[str, Any] | None = None
    ) -> None:
        """Transfer files of a version again.

        Raises:
            EnvironmentFault: the source no longer has the same files.
        """
        storage = open_storage(version.url, options or {})
        if version.sound():
            _repair(version, storage, [kept for kept in version.kept() if kept.path in paths])
            return
        try:
            listed = _sound(version.url, storage.list(version.url))
        except OSError as error:
            raise _unrepairable(version, error) from error
        ways = ((asked, pack) for asked in (options, None) for pack in (True, False))
        for asked, pack in ways:  # older keys have no endpoint
            if _key(version.url, listed, asked, pack=pack) == version.folder.name:
                transfer = Transfer(
                    storage,
                    version.url,
                    listed,
                    pack=pack,
                    newest=None,
                    make_room=self.make_room,
                    progress=self.progress,
                )
                self._remake(version, transfer)
                return
        raise EnvironmentFault(
            f"{version.folder / MANIFEST} is damaged, and {version.url} has changed since",
            remedy=f"remove {version.folder} and sync again, which makes a new version",
        )

    def removable(self, lease: float = LEASE) -> list[Version]:
        """Versions that may be removed, the least recently used first.

        No experiment reads them, and we have the right to remove them.

        Args:
            lease: seconds for which a used version stays, whichever process used it.
        """
        in_use, until = self.in_use(), time.time() - lease
        return [
            version
            for version in reversed(self.versions())
            if version.folder.name not in in_use and version.used <= until and ours(version)
        ]

    def remove(self, version: Version) -> bool:
        """Remove a version: first its name, then its files.

        Returns whether all its files are gone: other users may own folders in it.
        """
        trash = self.folder / f"tmp-{secrets.token_hex(4)}-{version.folder.name}"
        try:
            version.folder.rename(trash)
        except FileNotFoundError:  # another process removed it
            return True
        with contextlib.suppress(OSError):
            self._right(version).unlink()
        remove(trash)
        if trash.exists():
            _log.warning("%s: only other users can remove the rest of it", trash)
        return not trash.exists()

    def leftovers(self) -> list[Path]:
        """Files that broken transfers and removals left, unless a process is still working on them."""
        return leftovers(self.folder)

    def make_room(self, need: int, files: int, keep: Collection[str]) -> None:
        """Ensure that a version fits; remove other versions where the limit requires it.

        Args:
            need: bytes of the version.
            files: number of its files.
            keep: keys of versions that must stay.

        Raises:
            EnvironmentFault: the disk has too little space or too few inodes.
        """
        to_remove, gone = self._over_limit(need, keep)
        free = shutil.disk_usage(self.folder).free + gone.bytes
        if need > free:
            raise EnvironmentFault(
                f"the files need {size_text(need)}, {self.folder} has {size_text(free)} free",
                remedy="`hpcbench data prune` removes old versions; or set another `home`",
            )
        room = os.statvfs(self.folder)
        if room.f_files and files > room.f_favail + gone.files:
            raise EnvironmentFault(
                f"the file system of {self.folder} has room for {room.f_favail} files, {files} are needed",
                remedy="`hpcbench data prune` removes old versions; or set another `home`",
            )
        for version in to_remove:
            self.remove(version)

    def _over_limit(self, need: int, keep: Collection[str]) -> tuple[list[Version], Freed]:
        """The versions to remove so that the limit holds, and the space that this frees.

        Versions in use stay, even above the limit.

        Raises:
            EnvironmentFault: the new version alone exceeds the limit.
        """
        to_remove, gone = list[Version](), Freed()
        if self.limit is None:
            return to_remove, gone
        versions = self.versions()
        if sum(version.bytes for version in versions) + need <= self.limit:
            return to_remove, gone  # shared files make the real sum smaller
        if need > self.limit:
            raise EnvironmentFault(
                f"the files need {size_text(need)}, {self.folder} is limited to {size_text(self.limit)}",
                remedy="set a larger `cache_gb` in the site profile",
            )
        beyond = _held(versions) + need - self.limit
        for version in self.removable() if beyond > 0 else []:
            if beyond > gone.bytes and version.folder.name not in keep:
                to_remove.append(version)
                gone.add(version)
        if beyond > gone.bytes:  # a warning: the run goes on
            message = (
                f"{size_text(beyond - gone.bytes)} above `cache_gb`: all other versions are in use"
            )
            _log.warning("%s: %s", self.folder, message)
        return to_remove, gone

    def _mend(self, version: Version, transfer: Transfer) -> None:
        version.touch()  # so that no process removes it during the check
        if not version.sound():
            self._remake(version, transfer)
            return
        doubtful = ours(version) and in_doubt(version)
        if damaged := self.damaged(version, thorough=doubtful):
            names = ", ".join(kept.path for kept in damaged[:3])
            self.progress(Moved(f"repairing {names}{', …' if len(damaged) > 3 else ''}"))
            _repair(version, transfer.storage, damaged)
        release(version)

    def _remake(self, version: Version, transfer: Transfer) -> None:
        """Rebuild a version with a damaged manifest, from its right files and the source.

        Raises:
            EnvironmentFault: the damaged version cannot be replaced.
        """
        folder, token = version.folder, secrets.token_hex(4)
        self.progress(Moved(f"repairing {folder / MANIFEST}"))
        transfer.newest, transfer.suspect = version, True
        # With these names `leftovers` finds the lock of a folder that is being filled.
        fresh = self.folder / f"tmp-{token}-fresh-{folder.name}"
        old = self.folder / f"tmp-{token}-old-{folder.name}"
        try:
            with alone(self.folder / f"fresh-{folder.name}.lock", math.inf):
                if _is_sound(folder):
                    return  # another process has rebuilt it
                transfer.run(fresh)
                with contextlib.suppress(FileNotFoundError):
                    folder.rename(old)
                fresh.rename(folder)
        except OSError as error:
            if not _is_sound(folder):
                what = f"{folder} is damaged and cannot be replaced: {error_text(error)}"
                remedy = "its owner can repair it: `hpcbench data verify --repair`"
                raise EnvironmentFault(what, remedy=remedy) from error
        finally:
            remove(fresh)
            remove(old)


class Freed:
    """Space that a removal of versions frees: a file that a remaining version shares is not freed."""

    def __init__(self) -> None:
        self.bytes = self.files = 0
        self._names: Counter[tuple[int, int]] = Counter()

    def add(self, version: Version) -> None:
        """Count one more version to remove."""
        for stat in version.on_disk():
            file = stat.st_dev, stat.st_ino
            self._names[file] += 1
            if self._names[file] == stat.st_nlink:
                self.bytes += stat.st_size
                self.files += 1


def _is_sound(folder: Path) -> bool:
    version = Version.read(folder)
    return version is not None and version.sound()


def _held(versions: Iterable[Version]) -> int:
    """Bytes of versions on the disk; shared files count once."""
    sizes = {
        (stat.st_dev, stat.st_ino): stat.st_size
        for version in versions
        for stat in version.on_disk()
    }
    return sum(sizes.values())


def _read(place: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file is missing or unreadable."""
    return derived(place, lambda data: data if isinstance(data, dict) else {}) or {}


def _pointer(url: str, options: Mapping[str, Any] | None) -> str:
    return f"of-{_digest(' '.join((url, *_where(options))))}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _where(options: Mapping[str, Any] | None) -> list[str]:
    """The endpoint, which distinguishes equal URLs: buckets of two servers may have the same name."""
    endpoint = str((options or {}).get("endpoint") or "").rstrip("/")
    return [endpoint] if endpoint else []


def _repair(version: Version, storage: Storage, damaged: Iterable[VersionFile]) -> None:
    """Restore damaged files, byte for byte as in the manifest.

    Raises:
        EnvironmentFault: the source no longer has a file, or cannot be reached.
    """
    try:
        fresh = {file.path: file for file in storage.list(version.url)}
        for kept in damaged:
            file, linked = fresh.get(kept.path), _linked(version, kept)
            if file is None or not _put_back(version, storage, file, kept):
                raise EnvironmentFault(
                    f"{version.files / kept.path} is damaged, and {version.url} has changed since",
                    remedy=f"remove {version.folder} and sync again, which makes a new version",
                )
            for other in linked:
                try:
                    _link_over(version.files / kept.path, other)
                except PermissionError:
                    _log.warning("%s is also damaged; only its owner can repair it", other)
        end_pack(version)
        Version.write(version.folder, version.url, version.kept())
    except OSError as error:
        raise _unrepairable(version, error) from error


def _unrepairable(version: Version, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"{version.folder} is damaged and cannot be repaired from {version.url}: "
        f"{error_text(error)}",
        remedy="try again later",
    )


def _linked(version: Version, kept: VersionFile) -> list[Path]:
    """Paths of a damaged file in the versions that share it: it is damaged there, too."""
    place = version.files / kept.path
    if kept.offset is not None or not place.is_file() or place.stat().st_nlink == 1:
        return []
    beside = (path for path in version.folder.parent.iterdir() if _is_key(path.name))
    others = (path / "files" / kept.path for path in beside if path != version.folder)
    return [other for other in others if _same_file(other, place)]


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # a file is missing, or private
        return False


def _link_over(source: Path, place: Path) -> None:
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    try:
        os.link(source, temporary)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def _put_back(version: Version, storage: Storage, file: StoredFile, kept: VersionFile) -> bool:
    """Transfer one file again; False if the source's file has changed."""
    if file.size != kept.size:
        return False
    arriving = pieces(storage, version.url, file, 0, file.size)
    if kept.offset is not None:
        data = b"".join(arriving)  # packed files are small
        if hashlib.sha256(data).hexdigest() != kept.sha256:
            return False
        pack = os.open(version.folder / "pack.tar", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
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
        if kept.mtime_ns is not None:  # so that all manifests with this file stay right
            os.utime(temporary, ns=(kept.mtime_ns, kept.mtime_ns))
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _sound(url: str, listed: Iterable[StoredFile]) -> list[StoredFile]:
    """A storage's listing, sorted, if all its files fit into one folder.

    Raises:
        UserError: the listing is empty, or a name leads out of the folder, or is listed twice.
    """
    files = sorted(listed, key=lambda file: file.path)
    if not files:
        raise UserError(Problem("the source has no files", url))
    names = {file.path for file in files}
    for file in files:
        parts = file.path.split("/")
        try:
            file.path.encode()
        except UnicodeEncodeError as error:
            what = f"lists a file whose name is not UTF-8: {file.path!r}"
            raise UserError(Problem(what, url, remedy="rename it")) from error
        if {"", ".", ".."} & set(parts) or "\x00" in file.path or file.path.startswith("/"):
            raise UserError(Problem(f"lists a file outside of it: {file.path!r}", url))
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if clash := above & names:
            raise UserError(Problem(f"lists {min(clash)!r} as a file and as a folder", url))
    if len(names) < len(files):
        raise UserError(Problem("lists a file twice", url))
    return files


def _key(
    url: str, listed: Sequence[StoredFile], options: Mapping[str, Any] | None, *, pack: bool
) -> str:
    digest = hashlib.sha256(json.dumps([url, pack, *_where(options)]).encode())
    for file in listed:
        fields = [file.path, file.size, file.mark, file.sha256]
        digest.update(json.dumps(fields).encode() + b"\n")
    return digest.hexdigest()[:24]


def _is_key(name: str) -> bool:
    return len(name) == 24 and not set(name) - set("0123456789abcdef")
