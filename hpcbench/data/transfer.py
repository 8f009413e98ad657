"""Transfer of one source into the cache: resumable, in parts and in parallel, hashed on arrival.

`done.jsonl` in the target folder logs the whole files; the next attempt continues from it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from hpcbench.data import part_transfer
from hpcbench.data.before import Before
from hpcbench.data.durability import in_doubt, mark_unsettled
from hpcbench.data.pack import PackWriter
from hpcbench.data.progress import Moved, Progress, verifying
from hpcbench.data.received import Arrivals
from hpcbench.data.tree import BLOCK, Version, VersionFile
from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import Appender, read_lines
from hpcbench.files.hashing import hash_file
from hpcbench.plugins import Storage, StoredFile

SMALL = 4 << 20
"""A file up to this size may be packed."""

MANY = 1000
"""More small files than this are packed: file systems of clusters count files."""

TABLES = (".parquet", ".arrow")
"""Suffixes of files that are read in place, so never packed."""

TRIES = 5
"""A read is given up after this number of failures without a byte in between."""

BATCH = 500
"""Number of small files in one request, for storages that support this."""

THREADS = 8
"""Number of parallel reads, unless the storage sets another."""

MakeRoom = Callable[[int, int, Collection[str]], None]
"""Ensures space for a number of bytes and of files; it does not remove the versions of the given keys."""

Read = tuple[StoredFile, int, int]
"""A file, and the start and stop (exclusive) of the bytes to read."""


class Transfer:
    """One transfer of a source.

    Args:
        storage: storage of the source.
        url: address of the source.
        listed: all files of the source.
        pack: whether many small files may be packed.
        newest: the previous version, whose unchanged files are taken.
        make_room: called before the first file is written.
        progress: receives the progress.
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
    ) -> None:
        self.storage, self.url, self.listed = storage, url, listed
        self.newest, self.make_room, self.progress = newest, make_room, progress
        self.suspect = newest is not None and in_doubt(newest)
        """Whether the previous version may have hidden damage."""
        small = {
            file.path for file in listed if file.size <= SMALL and not file.path.endswith(TABLES)
        }
        self.packed = small if pack and len(small) > MANY else set[str]()

    def run(self, partial: Path) -> None:
        """Fill the folder; if the transfer breaks off, whole files stay for the next one."""
        self.here = here = Arrivals(partial)
        self.parts = part_transfer.Parts(here)
        try:
            here.files.mkdir(parents=True, exist_ok=True)
            members = self._take_up()
            self.before = Before(self.newest, self.listed, here, self.suspect)
            reads = list(self._reads())
            self._see_to_room(reads)
            with contextlib.ExitStack() as stack:
                here.log = stack.enter_context(Appender(partial / "done.jsonl"))
                self.parts.begin()
                if self.packed:
                    self.pack = PackWriter(here, members)
                    stack.callback(self.pack.close)
                stack.enter_context(self.before.opened())
                try:
                    self._work(self._jobs(reads))
                except BaseException:
                    self.parts.keep()
                    raise
                if self.packed:
                    self.pack.finish()
            mark_unsettled(partial)
            Version.write(partial, self.url, here.kept.values())
            (partial / "done.jsonl").unlink()
        except OSError as error:
            raise broken_off(self.url, error) from error

    def _take_up(self) -> list[VersionFile]:
        """Count files of an earlier attempt that match its log; return its packed files."""
        here, wanted = self.here, {file.path: file for file in self.listed}
        whole: dict[str, VersionFile] = {}
        for record in read_lines(here.folder / "done.jsonl"):
            if "start" in record:
                self.parts.take_up(record, wanted)
            elif record["path"] in wanted:
                whole[record["path"]] = VersionFile(**record)
        size = sum(kept.size for kept in whole.values())
        count = verifying(size, len(whole), self.progress)
        version = Version(here.folder, self.url, 0, 0, "")
        here.kept = {kept.path: kept for kept in _sorted_out(version, whole.values(), count)}
        here.moved = sum(kept.size for kept in here.kept.values())
        return [kept for kept in whole.values() if kept.offset is not None]

    def _reads(self) -> Iterator[Read]:
        """Yield the reads: large files first, in parts; then small ones, folder by folder.

        Large files come in pairs, with alternating parts: one thread hashes a file, and a single last file
        would leave all processors but one idle.
        """
        wanted = [file for file in self.listed if file.path not in self.here.kept]
        wanted.sort(key=lambda file: -file.size if file.size > SMALL else 0)
        large = [file for file in wanted if self._comes_in_parts(file)]
        for at in range(0, len(large), 2):
            turns = itertools.zip_longest(*map(self.parts.lacking, large[at : at + 2]))
            yield from filter(None, itertools.chain.from_iterable(turns))
        yield from ((file, 0, file.size) for file in wanted if not self._comes_in_parts(file))

    def _comes_in_parts(self, file: StoredFile) -> bool:
        return file.size > part_transfer.PART and file.path not in self.before

    def _see_to_room(self, reads: Sequence[Read]) -> None:
        links = self.before.can_link()
        need = sum(
            BLOCK + file.size + -file.size % BLOCK if file.path in self.packed else stop - start
            for file, start, stop in reads
            if file.path in self.packed or file.path not in self.before or not links
        )
        loose = {file.path for file, _, _ in reads} - self.packed
        self.make_room(need, len(loose), self.before.keys())
        for folder in {PurePosixPath(path).parent for path in loose}:
            (self.here.files / folder).mkdir(parents=True, exist_ok=True)

    def _jobs(self, reads: Iterable[Read]) -> list[Callable[[], None]]:
        """A job for each read; reads of small files are combined if the storage supports it."""
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

    def _work(self, jobs: Sequence[Callable[[], None]]) -> None:
        waiting = iter(jobs)
        errors: list[BaseException] = []
        all_small = all(file.size <= SMALL for file in self.listed)
        took = [0.0, 0.0]  # wall seconds and CPU seconds of the reads

        def work() -> None:
            while not self.here.stopped.is_set():
                with self.here.lock:
                    job = next(waiting, None)
                if job is None:
                    return
                started, worked = time.perf_counter(), time.thread_time()
                try:
                    job()
                except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                    errors.append(error)
                    self.here.stopped.set()
                with self.here.lock:
                    took[0] += time.perf_counter() - started
                    took[1] += time.thread_time() - worked

        def threads_wanted() -> int:
            """Few threads where reads do not wait, as on a local disk: more would slow each other."""
            if took[1] and took[0] < 1.5 * took[1]:
                return 1 if all_small else 2  # one large file is hashed while another is read
            return min(len(jobs), getattr(self.storage, "parallel", THREADS))

        threads: list[threading.Thread] = []
        of_bytes, of_files = sum(file.size for file in self.listed), len(self.listed)

        def tell() -> None:
            here = self.here
            self.progress(Moved("fetching", here.moved, of_bytes, len(here.kept), of_files))

        try:
            while len(threads) < threads_wanted():
                threads.append(threading.Thread(target=work, name=f"sync-{len(threads)}"))
                threads[-1].start()
                if len(threads) == 1:
                    threads[0].join(0.1)  # its times alone decide the number of threads
            for thread in threads:
                while thread.is_alive():
                    tell()
                    thread.join(0.2)
            tell()
        finally:
            self.here.stopped.set()  # also when this thread is interrupted
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]

    def _read(self, file: StoredFile, start: int, stop: int) -> None:
        if self._comes_in_parts(file):
            self.parts.write(file, start, stop, self._pieces(file, start, stop))
        elif file.path in self.packed:
            data = self.before.data(file)
            self._keep(file, data or b"".join(self._pieces(file, 0, file.size)))
        elif not self.before.link(file) and not self.before.copy(file):
            self.here.write(file, self._pieces(file, 0, file.size))

    def _read_many(self, files: Sequence[StoredFile]) -> None:
        """Read small files in one request; then read the missing ones one by one."""
        left = {file.path: file for file in files}
        many: Iterator[tuple[StoredFile, bytes]] = iter(self.storage.many(self.url, files))  # type: ignore[attr-defined]
        while True:
            try:
                file, data = next(many)
            except (StopIteration, OSError):
                break
            self.here.go_on()
            self.here.count(len(data))
            self._keep(file, data)
            del left[file.path]
        for file in left.values():
            self._read(file, 0, file.size)

    def _keep(self, file: StoredFile, data: bytes) -> None:
        if file.path in self.packed:
            self.pack.add(file, data)
        else:
            self.here.write(file, [data])

    def _pieces(self, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
        return self.here.counted(pieces(self.storage, self.url, file, start, stop))


def pieces(storage: Storage, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
    """Yield bytes of a file; after a broken connection, continue where it broke.

    Raises:
        OSError: the connection broke too often, or the storage gave more bytes than requested.
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
        raise OSError(f"{file.path} sent {start - stop} bytes more than requested")


def _sorted_out(
    version: Version, kept: Iterable[VersionFile], progress: Callable[[int], None]
) -> list[VersionFile]:
    """The files that exist with the right bytes."""
    pack = version.folder / "pack.tar"
    opened = os.open(pack, os.O_RDONLY | os.O_CLOEXEC) if pack.exists() else -1

    def right(one: VersionFile) -> bool:
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


def broken_off(url: str, error: OSError) -> EnvironmentFault:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentFault(
            f"disk full while fetching {url}",
            remedy="free space with `hpcbench data prune`, and try again: transferred data are kept",
        )
    return EnvironmentFault(
        f"the transfer of {url} was interrupted: {error_text(error)}",
        remedy="try again: transferred data are kept",
    )


def error_text(error: OSError) -> str:
    if error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__
