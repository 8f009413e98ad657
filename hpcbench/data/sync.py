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

import contextlib
import errno
import hashlib
import json
import os
import random
import secrets
import shutil
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from hpcbench.data.storage import open_storage
from hpcbench.data.tree import BLOCK, Kept, Version, hash_file
from hpcbench.errors import EnvironmentFault, Problem, UserError
from hpcbench.experiment.files import Appender, read_json, read_lines, write_json
from hpcbench.experiment.once import leftovers, make_once
from hpcbench.plugins import Storage, StoredFile

PART = 32 << 20
"""A file larger than this comes in parts, several at once."""

SMALL = 4 << 20
"""A file up to this size may be packed."""

MANY = 1000
"""More small files than this are packed: file systems of clusters count files."""

TABLES = (".parquet", ".arrow")
"""Read in place, so never packed."""

TRIES = 5
"""A read that fails so often without a byte in between is given up."""

AHEAD = 64 << 20
"""Bytes that may wait to be packed."""

BATCH = 500
"""Small files that are asked for together, of storages that can do that."""

THREADS = 8
"""Reads at once, unless the storage knows better."""

PARTS_AT_ONCE = max(4, min(16, 2 * len(os.sched_getaffinity(0))))
"""Parts of large files at once: more of them than the machine can copy stand in each other's way."""


def _boot() -> str:
    """This machine since it was started."""
    try:
        since = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        since = secrets.token_hex(8)  # unknown: what an earlier process wrote does not count
    return f"{socket.gethostname()} {since}"


BOOT = _boot()


@dataclass(frozen=True, slots=True)
class Moved:
    """How far a transfer is."""

    what: str
    """What is going on, for people."""
    bytes: int = 0
    """Bytes that are here, those of an earlier try or version included."""
    of_bytes: int = 0
    """Bytes in all."""
    files: int = 0
    """Files that are whole."""
    of_files: int = 0
    """Files in all; 0 while nothing is counted."""


Progress = Callable[[Moved], None]
"""Told how far it is, several times a second."""


def silent(moved: Moved) -> None:
    """Tells nobody."""


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
            raise UserError(Problem(_told(error).removeprefix(f"{url}: "), url)) from error
        except OSError as error:
            if (last := self.newest(url)) is not None:
                self.progress(Moved(f"{url} cannot be reached: using what came before"))
                return self._used(last)
            raise EnvironmentFault(
                f"cannot list {url}: {_told(error).removeprefix(f'{url}: ')}",
                remedy="try again when it can be reached",
            ) from error
        key = _key(url, listed, pack=pack)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            version = self._shared(key) or self._own(key, storage, url, listed, pack=pack)
            write_json(self._pointer(url), {"url": url, "key": key})
        except OSError as error:
            raise _broken_off(url, error) from error
        return self._used(version)

    def _own(
        self, key: str, storage: Storage, url: str, listed: Sequence[StoredFile], *, pack: bool
    ) -> Version:
        target = self.folder / key
        if target.exists():
            self._mend(target, storage)
        else:
            transfer = _Transfer(self, storage, url, listed, pack=pack)
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


class _Hashing:
    """How far a large file is hashed while its parts come in any order."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.at = 0
        self.busy = False


class _Transfer:
    """One source on its way into the cache."""

    def __init__(
        self,
        sync: SmartSync,
        storage: Storage,
        url: str,
        listed: Sequence[StoredFile],
        *,
        pack: bool,
    ) -> None:
        self.sync, self.storage, self.url, self.listed = sync, storage, url, listed
        small = {
            file.path for file in listed if file.size <= SMALL and not file.path.endswith(TABLES)
        }
        self.packed = small if pack and len(small) > MANY else set[str]()
        self.hashing: dict[str, _Hashing] = {}  # large files on their way
        self.kept: dict[str, Kept] = {}  # whole
        self.parts: dict[str, set[int]] = {}  # begun: where parts start that are here
        self.before: dict[str, tuple[Version, Kept]] = {}  # unchanged since the version before
        self.moved = self.end = 0
        self.members: list[Kept] = []  # of the pack, as an earlier try logged them
        self.lock = threading.Lock()
        self.broken = threading.Event()
        # What waits to be packed, and whether somebody is at it.
        self.room = threading.Condition(self.lock)
        self.waiting: list[tuple[StoredFile, bytes, str]] = []
        self.waiting_bytes, self.packing = 0, False
        self.large = threading.BoundedSemaphore(PARTS_AT_ONCE)
        self.log: Appender
        self.pack = self.old_pack = -1

    def run(self, partial: Path) -> None:
        """Fill the folder; what is whole when it breaks off stays for the next one."""
        self.folder, self.files = partial, partial / "files"
        try:
            self.files.mkdir(parents=True, exist_ok=True)
            self._take_up()
            self._find_unchanged()
            reads = list(self._reads())
            need = sum(stop - start for file, start, stop in reads if file.path not in self.before)
            loose = {file.path for file, _, _ in reads} - self.packed
            keep = {version.folder.name for version, _ in self.before.values()}
            self.sync.make_room(need, len(loose), keep)
            for folder in {PurePosixPath(path).parent for path in loose}:
                (self.files / folder).mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as stack:
                self.log = stack.enter_context(Appender(partial / "done.jsonl"))
                self._open_packs(stack)
                self._work(self._jobs(reads))
            Version.write(partial, self.url, self.kept.values())
            (partial / "done.jsonl").unlink()
        except OSError as error:
            raise _broken_off(self.url, error) from error

    # --- what need not be brought ----------------------------------------------------------------------

    def _take_up(self) -> None:
        """What an earlier try brought, where it is still what its log says."""
        wanted = {file.path: file for file in self.listed}
        whole: dict[str, Kept] = {}
        for record in read_lines(self.folder / "done.jsonl"):
            if "start" in record:
                self._take_up_part(record, wanted)
            elif record["path"] in wanted:
                whole[record["path"]] = Kept(**record)
        version = Version(self.folder, self.url, 0, 0, "")
        self.kept = {kept.path: kept for kept in _sorted_out(version, whole.values())}
        self.members = [kept for kept in whole.values() if kept.offset is not None]
        self.end = max(map(_next, self.members), default=0)
        self.moved = sum(kept.size for kept in self.kept.values())

    def _take_up_part(self, record: Mapping[str, Any], wanted: Mapping[str, StoredFile]) -> None:
        """A part counts if the machine did not start anew since: it was written, perhaps not to the disk."""
        file = wanted.get(record["path"])
        try:
            whole = file is not None and (self.files / file.path).stat().st_size == file.size
        except OSError:
            whole = False
        if whole and record["boot"] == BOOT:
            self.parts.setdefault(record["path"], set()).add(record["start"])

    def _find_unchanged(self) -> None:
        before = self.sync.newest(self.url)
        if before is None:
            return
        wanted = {file.path: (file.size, file.mark) for file in self.listed if file.mark}
        for kept in before.kept():
            if wanted.get(kept.path) == (kept.size, kept.mark) and kept.path not in self.kept:
                self.before[kept.path] = (before, kept)

    def _reads(self) -> Iterator[tuple[StoredFile, int, int]]:
        """What is to be read: large files first, in parts; then small ones, folder by folder."""
        for file in sorted(self.listed, key=lambda file: -file.size if file.size > SMALL else 0):
            if file.path in self.kept:
                continue
            if file.size <= PART or file.path in self.before:
                yield file, 0, file.size
                continue
            here = self.parts.setdefault(file.path, set())
            if not here:  # never into a file that may be linked from another version
                (self.files / file.path).unlink(missing_ok=True)
            self.moved += sum(min(PART, file.size - start) for start in here)
            for start in range(0, file.size, PART):
                if start not in here:
                    yield file, start, min(start + PART, file.size)
            if len(here) == -(-file.size // PART):
                yield file, 0, 0  # all parts are here, and it was not noted as whole

    def _jobs(self, reads: Iterable[tuple[StoredFile, int, int]]) -> list[Callable[[], None]]:
        """The reads, each by itself; those of small files together where the storage can do that."""
        if not hasattr(self.storage, "many"):
            return [partial(self._read, *one) for one in reads]
        jobs: list[Callable[[], None]] = []
        small: list[StoredFile] = []
        for file, start, stop in reads:
            if file.size > SMALL or file.path in self.before:
                jobs.append(partial(self._read, file, start, stop))
            else:
                small.append(file)
        return jobs + [
            partial(self._read_many, small[at : at + BATCH]) for at in range(0, len(small), BATCH)
        ]

    # --- bringing --------------------------------------------------------------------------------------

    def _open_packs(self, stack: contextlib.ExitStack) -> None:
        if self.packed:
            path = self.folder / "pack.tar"
            self.pack = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            stack.callback(os.close, self.pack)
            os.ftruncate(self.pack, self.end)
            for kept in self.members:  # a power cut may have left zeros, which are the end to `tar`
                _header_into(self.pack, kept)
        if any(kept.offset is not None for _, kept in self.before.values()):
            version = next(iter(self.before.values()))[0]
            with contextlib.suppress(OSError):  # it is damaged, and its files are brought anew
                self.old_pack = os.open(version.folder / "pack.tar", os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, self.old_pack)

    def _work(self, jobs: Sequence[Callable[[], None]]) -> None:
        waiting = iter(jobs)
        errors: list[BaseException] = []
        all_small = all(file.size <= SMALL for file in self.listed)
        took = [0.0, 0.0]  # seconds that reads took, and in which they were at work themselves

        def work() -> None:
            while not self.broken.is_set():
                with self.lock:
                    job = next(waiting, None)
                if job is None:
                    return
                begun, worked = time.perf_counter(), time.thread_time()
                try:
                    job()
                except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                    errors.append(error)
                    self.broken.set()
                with self.lock:
                    took[0] += time.perf_counter() - begun
                    took[1] += time.thread_time() - worked

        def threads_wanted() -> int:
            """Few where nothing is waited for, as on a disk nearby: more are in each other's way then."""
            if took[1] and took[0] < 1.5 * took[1]:
                return 1 if all_small else 2  # of large files one is hashed while another is read
            return min(len(jobs), getattr(self.storage, "parallel", THREADS))

        threads: list[threading.Thread] = []
        of_bytes, of_files = sum(file.size for file in self.listed), len(self.listed)

        def tell() -> None:
            self.sync.progress(Moved("fetching", self.moved, of_bytes, len(self.kept), of_files))

        try:
            while len(threads) < threads_wanted():
                threads.append(threading.Thread(target=work, name=f"sync-{len(threads)}"))
                threads[-1].start()
                if len(threads) == 1:
                    threads[0].join(0.1)  # what it takes alone tells how many there should be
            for thread in threads:
                while thread.is_alive():
                    tell()
                    thread.join(0.2)
            tell()
        finally:
            self.broken.set()  # also when this thread is interrupted
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]
        if self.packed:
            os.pwrite(self.pack, bytes(2 * BLOCK), self.end)  # how a tar file ends
            os.fsync(self.pack)

    def _read(self, file: StoredFile, start: int, stop: int) -> None:
        if file.size > PART and file.path not in self.before:
            with self.large:
                self._part(file, start, stop)
        elif file.path in self.packed:
            self._keep(
                file, self._unchanged_bytes(file) or b"".join(self._pieces(file, 0, file.size))
            )
        elif not self._link(file):
            self._into_file(file, self._pieces(file, 0, file.size))

    def _read_many(self, files: Sequence[StoredFile]) -> None:
        """Small files in one go; those that did not come are then read one by one."""
        left = {file.path: file for file in files}
        many: Iterable[tuple[StoredFile, bytes]] = self.storage.many(self.url, files)  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):
            for file, data in many:
                if self.broken.is_set():
                    raise OSError("stopped")
                self._count(len(data))
                self._keep(file, data)
                del left[file.path]
        for file in left.values():
            self._read(file, 0, file.size)

    def _keep(self, file: StoredFile, data: bytes) -> None:
        if file.path in self.packed:
            self._into_pack(file, data)
        else:
            self._into_file(file, [data])

    def _part(self, file: StoredFile, start: int, stop: int) -> None:
        place = self.files / file.path
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size != file.size:
                os.ftruncate(descriptor, file.size)
            at = start
            for piece in self._pieces(file, start, stop):
                at += _write_all(descriptor, piece, at)
            with self.lock:
                if stop:
                    self.parts[file.path].add(start)
                    self.log.write({"path": file.path, "start": start, "boot": BOOT})
            self._hash_on(file, place, descriptor)
        finally:
            os.close(descriptor)

    def _hash_on(self, file: StoredFile, place: Path, descriptor: int) -> None:
        """Hash what follows on what is hashed: little is left to do when the last part has come."""
        hashing = self.hashing.setdefault(file.path, _Hashing())
        buffer = bytearray(1 << 18)
        view = memoryview(buffer)
        while True:
            with self.lock:
                ahead = hashing.at in self.parts[file.path]
                if hashing.busy or not ahead:
                    return
                hashing.busy = True
            stop = min(hashing.at + PART, file.size)
            at = hashing.at
            while at < stop:
                count = os.preadv(descriptor, [view[: stop - at]], at)
                if not count:
                    raise OSError(f"{place} became shorter")
                hashing.digest.update(view[:count])
                at += count
            with self.lock:
                hashing.at, hashing.busy = at, False
            if at == file.size:
                digest = hashing.digest.hexdigest()
                if file.sha256 not in (None, digest):
                    place.unlink()
                _same(file, digest)
                mtime_ns = os.fstat(descriptor).st_mtime_ns
                self._whole(Kept(file.path, file.size, digest, file.mark, mtime_ns))
                return

    def _into_file(self, file: StoredFile, pieces: Iterable[bytes]) -> None:
        digest = hashlib.sha256()
        descriptor = _fresh(f"{self.files}/{file.path}")
        try:
            for piece in pieces:
                digest.update(piece)
                _write_all(descriptor, piece, None)
            mtime_ns = os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
        _same(file, digest.hexdigest())
        self._whole(Kept(file.path, file.size, digest.hexdigest(), file.mark, mtime_ns))

    def _into_pack(self, file: StoredFile, data: bytes) -> None:
        """Have a file appended to the pack: by whoever is at it already, else by us, with all that wait.

        One writer at a time, so that a kill leaves nothing missing in between, where `tar` would stop; and
        threads that wait for each other at every file would cost more than the writing.
        """
        digest = hashlib.sha256(data).hexdigest()
        _same(file, digest)
        with self.room:
            while self.waiting_bytes > AHEAD and not self.broken.is_set():
                self.room.wait(0.2)
            self.waiting.append((file, data, digest))
            self.waiting_bytes += len(data)
            if self.packing:
                return
            self.packing = True
        while True:
            with self.room:
                members, self.waiting, self.waiting_bytes = self.waiting, [], 0
                self.room.notify_all()
                if not members:
                    self.packing = False
                    return
            self._append(members)

    def _append(self, members: Iterable[tuple[StoredFile, bytes, str]]) -> None:
        blocks: list[bytes] = []
        added: list[Kept] = []
        end = self.end
        for file, data, digest in members:
            blocks += (_tar_header(file.path, file.size), data, bytes(-len(data) % BLOCK))
            offset = end + len(blocks[-3])
            added.append(Kept(file.path, file.size, digest, file.mark, offset=offset))
            end = _next(added[-1])
        _write_all(self.pack, b"".join(blocks), self.end)
        with self.lock:
            self.end = end
            for kept in added:
                self.kept[kept.path] = kept
                self.log.write(kept.record())

    def _link(self, file: StoredFile) -> bool:
        """Have a file as the version before has it, if it can be linked."""
        if file.path not in self.before:
            return False
        version, kept = self.before[file.path]
        if kept.mtime_ns is None:
            return False
        source, place = version.files / kept.path, self.files / file.path
        try:
            if source.stat().st_mtime_ns != kept.mtime_ns:
                return False
            place.unlink(missing_ok=True)
            os.link(source, place)
        except OSError:
            return False
        _same(file, kept.sha256)
        self._count(kept.size)
        self._whole(Kept(file.path, file.size, kept.sha256, file.mark, kept.mtime_ns))
        return True

    def _unchanged_bytes(self, file: StoredFile) -> bytes | None:
        if file.path not in self.before:
            return None
        version, kept = self.before[file.path]
        try:
            if kept.offset is not None:
                data = os.pread(self.old_pack, kept.size, kept.offset)
            else:
                data = (version.files / kept.path).read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data).hexdigest() != kept.sha256:
            return None
        self._count(kept.size)
        return data

    def _whole(self, kept: Kept) -> None:
        with self.lock:
            self.kept[kept.path] = kept
            self.log.write(kept.record())

    def _pieces(self, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
        for piece in _pieces(self.storage, self.url, file, start, stop):
            if self.broken.is_set():
                raise OSError("stopped")
            self._count(len(piece))
            yield piece

    def _count(self, size: int) -> None:
        with self.lock:
            self.moved += size


def _pieces(storage: Storage, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
    """Bytes of a file, taken up again where the connection broke.

    Raises:
        OSError: it broke too often, or gave other than was asked for.
    """
    failed = 0
    while start < stop:
        try:
            for piece in storage.read(url, file, start, stop):
                if piece:
                    start, failed = start + len(piece), 0
                    yield piece
            if start < stop:
                raise OSError(f"{file.path} ended {stop - start} bytes early")
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            failed += 1
            if failed == TRIES or error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            time.sleep(min(5.0, 0.2 * 2**failed) * random.uniform(0.5, 1.0))  # noqa: S311
    if start > stop:
        raise OSError(f"{file.path} gave {start - stop} bytes more than it was asked for")


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
        _end_pack(version)
        Version.write(version.folder, version.url, _with_times(version))
    except OSError as error:
        raise EnvironmentFault(
            f"{version.folder} is damaged and cannot be repaired from {version.url}: {_told(error)}",
            remedy="try again when it can be reached",
        ) from error


def _put_back(version: Version, storage: Storage, file: StoredFile, kept: Kept) -> bool:
    """Bring one file again; False if it is another one by now."""
    if file.size != kept.size:
        return False
    pieces = _pieces(storage, version.url, file, 0, file.size)
    if kept.offset is not None:
        data = b"".join(pieces)  # small, as it is packed
        if hashlib.sha256(data).hexdigest() != kept.sha256:
            return False
        pack = os.open(version.folder / "pack.tar", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _into_pack(pack, kept, data)
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
            for piece in pieces:
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


def _end_pack(version: Version) -> None:
    """See that the pack ends as a tar file does: it may have been cut, or be new."""
    ends = [_next(kept) for kept in version.kept() if kept.offset is not None]
    if ends:
        pack = os.open(version.folder / "pack.tar", os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.fstat(pack).st_size < max(ends) + 2 * BLOCK:
                _write_all(pack, bytes(2 * BLOCK), max(ends))
                os.fsync(pack)
        finally:
            os.close(pack)


def _with_times(version: Version) -> Iterator[Kept]:
    for kept in version.kept():
        if kept.offset is None:
            yield replace(kept, mtime_ns=(version.files / kept.path).stat().st_mtime_ns)
        else:
            yield kept


def _sorted_out(version: Version, kept: Iterable[Kept]) -> list[Kept]:
    """Those that are there with the bytes they should have."""
    pack = version.folder / "pack.tar"
    opened = os.open(pack, os.O_RDONLY | os.O_CLOEXEC) if pack.exists() else -1

    def right(one: Kept) -> bool:
        try:
            if one.offset is not None:
                data = os.pread(opened, one.size, one.offset)
                return hashlib.sha256(data).hexdigest() == one.sha256
            return hash_file(version.files / one.path) == one.sha256
        except OSError:
            return False

    try:
        return [one for one in kept if right(one)]
    finally:
        if opened >= 0:
            os.close(opened)


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


def _same(file: StoredFile, digest: str) -> None:
    if file.sha256 not in (None, digest):
        raise OSError(f"{file.path} came with the hash {digest}, not {file.sha256}")


def _next(kept: Kept) -> int:
    """Where the member of a tar file after this one begins."""
    return (kept.offset or 0) + kept.size + -kept.size % BLOCK


def _into_pack(pack: int, kept: Kept, data: bytes) -> None:
    """Write a member of a tar file where it belongs."""
    assert kept.offset is not None
    header = _tar_header(kept.path, kept.size)
    _write_all(pack, b"".join((header, data, bytes(-len(data) % BLOCK))), kept.offset - len(header))


def _header_into(pack: int, kept: Kept) -> None:
    assert kept.offset is not None
    header = _tar_header(kept.path, kept.size)
    _write_all(pack, header, kept.offset - len(header))


def _tar_header(path: str, size: int) -> bytes:
    """The header of a member, as `tarfile` writes it; a plain name is put into a copy of one."""
    name = path.encode()
    if len(name) > 100 or not path.isascii() or size >= 1 << 33:
        member = tarfile.TarInfo(path)
        member.size = size
        return member.tobuf(tarfile.PAX_FORMAT)
    header = bytearray(_PLAIN)
    header[: len(name)] = name
    header[124:135] = b"%011o" % size
    header[148:156] = b" " * 8  # the sum is taken over spaces where it will stand
    header[148:155] = b"%06o\0" % sum(header)
    return bytes(header)


_PLAIN = tarfile.TarInfo("").tobuf(tarfile.PAX_FORMAT)


def _fresh(place: str) -> int:
    """A new empty file: never the one that is there, which may be linked from another version."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(place, flags, 0o644)
    except FileExistsError:
        Path(place).unlink()
        return os.open(place, flags, 0o644)


def _write_all(descriptor: int, data: bytes, at: int | None) -> int:
    """Write all of it, at a place or at the end; returns how much it was."""
    view = memoryview(data)
    while view:
        done = os.write(descriptor, view) if at is None else os.pwrite(descriptor, view, at)
        view = view[done:]
        at = at + done if at is not None else None
    return len(data)


def _broken_off(url: str, error: OSError) -> EnvironmentFault:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentFault(
            f"disk full while fetching {url}",
            remedy="make room, `hpcbench data prune`, and try again: what has come is kept",
        )
    return EnvironmentFault(
        f"fetching {url} broke off: {_told(error)}", remedy="try again: what has come is kept"
    )


def _told(error: OSError) -> str:
    if error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def size_text(size: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
