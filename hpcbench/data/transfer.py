"""One source on its way into the cache: resumed, in parts and in parallel, hashed as it comes.

`done.jsonl` of the folder that is filled tells what is whole there; the next try goes on from it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from hpcbench.data.durability import (
    BOOT,
    force_file,
    in_doubt,
    mark_unsettled,
)
from hpcbench.data.pack import following, tar_header, write_all, write_header
from hpcbench.data.progress import Moved, Progress, verifying
from hpcbench.data.tree import BLOCK, Kept, Version
from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import Appender, read_lines
from hpcbench.files.hashing import hash_file
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


MakeRoom = Callable[[int, int, Collection[str]], None]
"""Sees that there is room for so many bytes and files, without the versions of these keys being removed."""


class _Large:
    """A large file whose parts come in any order."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.at = 0
        self.busy = False  # somebody hashes
        self.writing = threading.Lock()  # the kernel's own spins, and takes a core with it


class Transfer:
    """One source on its way into the cache: resumed, in parts and in parallel, hashed as it comes.

    `done.jsonl` of the folder that is filled tells what is whole there; the next try goes on from it.
    """

    def __init__(
        self,
        storage: Storage,
        url: str,
        listed: Sequence[StoredFile],
        *,
        pack: bool,
        newest: Version | None,
        make_room: MakeRoom,
        progress: Progress,
        suspect: bool = False,
    ) -> None:
        """
        Args:
            storage: where it comes from.
            url: its address.
            listed: all its files.
            pack: whether many small files may be packed.
            newest: the version before, of which what did not change is taken.
            make_room: called before anything is written.
            progress: told how far it is.
            suspect: whether the version before may be damaged where nothing shows it: what is taken of it is
                hashed, then. Else a file that was not touched is linked unread, for a version of weights
                with another README should cost no hour.
        """
        self.storage, self.url, self.listed = storage, url, listed
        self.newest, self.make_room, self.progress = newest, make_room, progress
        self.suspect = suspect or (newest is not None and in_doubt(newest))
        small = {
            file.path for file in listed if file.size <= SMALL and not file.path.endswith(TABLES)
        }
        self.packed = small if pack and len(small) > MANY else set[str]()
        self.hashing: dict[str, _Large] = {}  # large files on their way
        self.kept: dict[str, Kept] = {}  # whole
        self.parts: dict[str, set[int]] = {}  # begun: where parts start that are here
        self.logged: set[str] = set()  # files of which the log has parts, whether they count or not
        self.anew: list[str] = []  # those of them that are begun anew
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
            links = self._can_link()
            need = sum(
                BLOCK + file.size + -file.size % BLOCK if file.path in self.packed else stop - start
                for file, start, stop in reads
                if file.path in self.packed or file.path not in self.before or not links
            )
            loose = {file.path for file, _, _ in reads} - self.packed
            keep = {version.folder.name for version, _ in self.before.values()}
            self.make_room(need, len(loose), keep)
            for folder in {PurePosixPath(path).parent for path in loose}:
                (self.files / folder).mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as stack:
                self.log = stack.enter_context(Appender(partial / "done.jsonl"))
                for path in self.anew:
                    self.log.write({"path": path, "start": None, "boot": None})
                if self.anew:  # before the first byte: it has its size at once, as with those parts
                    self.log.sync()
                self._open_packs(stack)
                try:
                    self._work(self._jobs(reads))
                except BaseException:
                    self._keep_parts()
                    raise
            mark_unsettled(partial)
            Version.write(partial, self.url, self.kept.values())
            (partial / "done.jsonl").unlink()
        except OSError as error:
            raise broken_off(self.url, error) from error

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
        size = sum(kept.size for kept in whole.values())
        count = verifying(size, len(whole), self.progress)
        self.kept = {kept.path: kept for kept in _sorted_out(version, whole.values(), count)}
        self.members = [kept for kept in whole.values() if kept.offset is not None]
        self.end = max(map(following, self.members), default=0)
        self.moved = sum(kept.size for kept in self.kept.values())

    def _take_up_part(self, record: Mapping[str, Any], wanted: Mapping[str, StoredFile]) -> None:
        """A part counts if it is on the disk (no boot is named), or the machine did not start anew since.

        And if its file was not begun anew later (no start): by a machine for which these parts did not count.
        """
        self.logged.add(record["path"])
        if record["start"] is None:
            self.parts.pop(record["path"], None)
            return
        file = wanted.get(record["path"])
        try:
            whole = file is not None and (self.files / file.path).stat().st_size == file.size
        except OSError:
            whole = False
        if whole and record["boot"] in ("", BOOT):
            self.parts.setdefault(record["path"], set()).add(record["start"])

    def _find_unchanged(self) -> None:
        if (before := self.newest) is None:
            return
        wanted = {file.path: (file.size, file.mark) for file in self.listed if file.mark}
        for kept in before.kept():
            if wanted.get(kept.path) == (kept.size, kept.mark) and kept.path not in self.kept:
                self.before[kept.path] = (before, kept)

    def _can_link(self) -> bool:
        """Whether what did not change can be linked: the version before may lie on another disk."""
        probe = self.folder / "probe"
        for version, kept in self.before.values():
            if kept.offset is not None:
                continue
            try:
                probe.unlink(missing_ok=True)
                os.link(version.files / kept.path, probe)
                probe.unlink()
                return True
            except FileNotFoundError:
                continue  # it is damaged; another may tell
            except OSError:
                return False
        return True

    def _keep_parts(self) -> None:
        """See that parts count wherever the next try is made: they are on the disk."""
        for path, starts in self.parts.items():
            if starts and path not in self.kept:
                with contextlib.suppress(OSError):
                    force_file(self.files / path)
                    for start in sorted(starts):
                        self.log.write({"path": path, "start": start, "boot": ""})

    def _reads(self) -> Iterator[tuple[StoredFile, int, int]]:
        """What is to be read: large files first, in parts; then small ones, folder by folder.

        Large files come two by two, part by part of each: one thread hashes a file, and the last one would
        keep all but one processor waiting.
        """
        wanted = [file for file in self.listed if file.path not in self.kept]
        wanted.sort(key=lambda file: -file.size if file.size > SMALL else 0)
        large = [file for file in wanted if file.size > PART and file.path not in self.before]
        for at in range(0, len(large), 2):
            turns = itertools.zip_longest(*map(self._parts_of, large[at : at + 2]))
            yield from filter(None, itertools.chain.from_iterable(turns))
        in_parts = {file.path for file in large}
        yield from ((file, 0, file.size) for file in wanted if file.path not in in_parts)

    def _parts_of(self, file: StoredFile) -> Iterator[tuple[StoredFile, int, int]]:
        here = self.parts.setdefault(file.path, set())
        if not here:  # never into a file that may be linked from another version
            (self.files / file.path).unlink(missing_ok=True)
            if file.path in self.logged:
                self.anew.append(file.path)
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
            self.pack = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, self.pack)
            os.ftruncate(self.pack, self.end)
            for kept in self.members:  # a power cut may have left zeros, which are the end to `tar`
                write_header(self.pack, kept)
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
            self.progress(Moved("fetching", self.moved, of_bytes, len(self.kept), of_files))

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
        elif not self._link(file) and not self._copy(file):
            self._into_file(file, self._pieces(file, 0, file.size))

    def _read_many(self, files: Sequence[StoredFile]) -> None:
        """Small files in one go; those that did not come are then read one by one."""
        left = {file.path: file for file in files}
        many: Iterator[tuple[StoredFile, bytes]] = iter(self.storage.many(self.url, files))  # type: ignore[attr-defined]
        while True:
            try:
                file, data = next(many)
            except (StopIteration, OSError):
                break
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
        writing = self.hashing.setdefault(file.path, _Large()).writing
        place = self.files / file.path
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if os.fstat(descriptor).st_size != file.size:
                _allocate(descriptor, file.size)
            at = start
            for piece in self._pieces(file, start, stop):
                with writing:
                    at += write_all(descriptor, piece, at)
            with self.lock:
                if stop:
                    self.parts[file.path].add(start)
                    self.log.write({"path": file.path, "start": start, "boot": BOOT})
            self._hash_on(file, place, descriptor)
        finally:
            os.close(descriptor)

    def _hash_on(self, file: StoredFile, place: Path, descriptor: int) -> None:
        """Hash what follows on what is hashed: little is left to do when the last part has come."""
        hashing = self.hashing.setdefault(file.path, _Large())
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
                write_all(descriptor, piece, None)
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
            blocks += (tar_header(file.path, file.size), data, bytes(-len(data) % BLOCK))
            offset = end + len(blocks[-3])
            added.append(Kept(file.path, file.size, digest, file.mark, offset=offset))
            end = following(added[-1])
        write_all(self.pack, b"".join(blocks), self.end)
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
        read = 0

        def count(size: int) -> None:
            nonlocal read
            if self.broken.is_set():
                raise OSError("stopped")
            self._count(size)
            read += size

        try:
            stat = source.stat()
            right = (stat.st_size, stat.st_mtime_ns) == (kept.size, kept.mtime_ns)
            if right and self.suspect:
                right = hash_file(source, count) == kept.sha256
            if right:
                place.unlink(missing_ok=True)
                os.link(source, place)
        except OSError:
            right = False
        self._count(kept.size - read if right else -read)
        if right:
            _same(file, kept.sha256)
            self._whole(Kept(file.path, file.size, kept.sha256, file.mark, kept.mtime_ns))
        return right

    def _copy(self, file: StoredFile) -> bool:
        """Copy a file that cannot be linked from the version before; False if it is damaged there."""
        if file.path not in self.before:
            return False
        version, kept = self.before[file.path]
        if kept.offset is not None:
            data = self._unchanged_bytes(file)
            if data is not None:
                self._into_file(file, [data])
            return data is not None
        done = 0

        def read() -> Iterator[bytes]:
            nonlocal done
            with (version.files / kept.path).open("rb", buffering=0) as opened:
                while (piece := opened.read(1 << 18)) and not self.broken.is_set():
                    self._count(len(piece))
                    done += len(piece)
                    yield piece

        _same(file, kept.sha256)
        try:
            self._into_file(replace(file, sha256=kept.sha256), read())
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._count(-done)
            return False
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
        for piece in pieces(self.storage, self.url, file, start, stop):
            if self.broken.is_set():
                raise OSError("stopped")
            self._count(len(piece))
            yield piece

    def _count(self, size: int) -> None:
        with self.lock:
            self.moved += size


def pieces(storage: Storage, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
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


def _sorted_out(
    version: Version, kept: Iterable[Kept], progress: Callable[[int], None]
) -> list[Kept]:
    """Those that are there with the bytes they should have."""
    pack = version.folder / "pack.tar"
    opened = os.open(pack, os.O_RDONLY | os.O_CLOEXEC) if pack.exists() else -1

    def right(one: Kept) -> bool:
        try:
            if one.offset is not None:
                data = os.pread(opened, one.size, one.offset)
                progress(one.size)
                return hashlib.sha256(data).hexdigest() == one.sha256
            return hash_file(version.files / one.path, progress) == one.sha256
        except OSError:
            return False

    try:
        return [one for one in kept if right(one)]
    finally:
        if opened >= 0:
            os.close(opened)


def _same(file: StoredFile, digest: str) -> None:
    if file.sha256 not in (None, digest):
        raise OSError(f"{file.path} came with the hash {digest}, not {file.sha256}")


def _fresh(place: str) -> int:
    """A new empty file: never the one that is there, which may be linked from another version."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(place, flags, 0o666)
    except FileExistsError:
        Path(place).unlink()
        return os.open(place, flags, 0o666)


def _allocate(descriptor: int, size: int) -> None:
    """Give a file its size and its room on the disk: parts written at once into holes wait for each other.

    The system call itself, for the C library's `posix_fallocate` writes every block if need be.
    """
    allocate = ctypes.CDLL(None, use_errno=True).fallocate
    if allocate(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size)) != 0:
        if (code := ctypes.get_errno()) in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(code, os.strerror(code))
        os.ftruncate(descriptor, size)


def broken_off(url: str, error: OSError) -> EnvironmentFault:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentFault(
            f"disk full while fetching {url}",
            remedy="make room, `hpcbench data prune`, and try again: what has come is kept",
        )
    return EnvironmentFault(
        f"fetching {url} broke off: {told(error)}", remedy="try again: what has come is kept"
    )


def told(error: OSError) -> str:
    if error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__
