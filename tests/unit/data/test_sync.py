"""SmartSync from a folder: what damage, odd names and full disks do to it. Real servers: `tests/remote`."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.data import before, durability, pack, part_transfer, sync, transfer
from hpcbench.data.copies import Cache
from hpcbench.data.progress import Moved
from hpcbench.data.storage import FileStorage
from hpcbench.data.sync import SmartSync
from hpcbench.data.transfer import Transfer
from hpcbench.data.tree import Tree, Version
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.files import lease
from hpcbench.plugins import StoredFile
from hpcbench.schema.site import Site
from hpcbench.submit.local_data import settle_all
from tests.unit import small


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight small files and a larger one; more than three are packed."""
    monkeypatch.setattr(transfer, "MANY", 3)
    monkeypatch.setattr(transfer, "SMALL", 5000)
    monkeypatch.setattr(transfer.time, "sleep", lambda seconds: None)
    folder = tmp_path / "source"
    for number in range(8):
        place = folder / str(number % 2) / f"{number}.bin"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(secrets.token_bytes(700 + number))
    (folder / "large.bin").write_bytes(secrets.token_bytes(9000))
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> SmartSync:
    return SmartSync(tmp_path / "cache")


def bring(cache: SmartSync, source: Path) -> Version:
    return cache.bring(f"file://{source}", pack=True)


def holds(version: Version, source: Path) -> bool:
    tree = Tree(version.files)
    return all(
        tree.read(version.files / path.relative_to(source)) == path.read_bytes()
        for path in source.rglob("*")
        if path.is_file()
    )


def by_tar(version: Version) -> set[str]:
    """The members of a pack, as `tar` sees it."""
    argv = ["tar", "tf", str(version.folder / "pack.tar")]
    return {*subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()}


def small_of(source: Path) -> set[str]:
    return {path.relative_to(source).as_posix() for path in source.glob("*/*.bin")}


def unreachable(*asked: object) -> Iterator[StoredFile]:
    raise ConnectionError("no way there")


# --- damage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gone", "empty", "cut"])
def test_a_pack_that_is_gone_or_cut_is_brought_again(
    cache: SmartSync, source: Path, how: str
) -> None:
    pack = bring(cache, source).folder / "pack.tar"
    if how == "gone":
        pack.unlink()
    else:
        os.truncate(pack, 0 if how == "empty" else 3000)
    version = bring(cache, source)
    assert holds(version, source)
    assert version.damaged(thorough=True) == []
    assert by_tar(version) == small_of(source)


def test_a_file_that_is_gone_is_brought_again(cache: SmartSync, source: Path) -> None:
    (bring(cache, source).files / "large.bin").unlink()
    assert holds(bring(cache, source), source)


@pytest.mark.parametrize("which", ["pack.tar", "files/large.bin"])
def test_a_damaged_older_version_does_not_stand_in_the_way_of_a_newer_one(
    cache: SmartSync, source: Path, which: str
) -> None:
    older = bring(cache, source)
    (older.folder / which).unlink()
    (source / "0" / "new.bin").write_bytes(b"new")
    newer = bring(cache, source)
    assert newer.folder != older.folder
    assert holds(newer, source)


def test_what_a_power_cut_took_out_of_a_pack_is_no_end_for_tar(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may reach the disk before the pack does: zeros stand then where members should."""
    read, most = FileStorage.read, 6

    def breaks(self: FileStorage, url: str, file: StoredFile, *part: int) -> Iterator[bytes]:
        nonlocal most
        most -= 1
        if most < 0:
            raise PermissionError("no more")
        return read(self, url, file, *part)

    monkeypatch.setattr(FileStorage, "read", breaks)
    with pytest.raises(EnvironmentFault, match="no more"):
        bring(cache, source)
    (pack,) = cache.folder.glob("*.partial/pack.tar")
    with pack.open("r+b") as file:
        file.seek(600)
        file.write(bytes(1200))
    most = 100
    version = bring(cache, source)
    assert holds(version, source)
    assert by_tar(version) == small_of(source)


def test_a_repair_puts_back_only_what_it_was(cache: SmartSync, source: Path) -> None:
    version = bring(cache, source)
    place = version.files / "large.bin"
    whole = place.read_bytes()
    place.write_bytes(whole[:-1] + b"?")
    cache.repair(version, ["large.bin"])
    assert place.read_bytes() == whole
    place.write_bytes(b"?" * 9000)
    (source / "large.bin").write_bytes(secrets.token_bytes(9000))
    with pytest.raises(EnvironmentFault, match="has changed since"):
        cache.repair(version, ["large.bin"])
    assert place.read_bytes() == b"?" * 9000
    assert [*version.files.iterdir()] == [place], "nothing half is left"


def flip(path: Path) -> None:
    """As a disk that rots does it: nothing but the byte tells."""
    stat, data = path.stat(), path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes([data[0] ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def zeros(path: Path) -> None:
    """As a power cut leaves a file whose size reached the disk before its bytes did."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.write(bytes(stat.st_size))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_what_rotted_in_several_versions_is_mended_in_all(cache: SmartSync, source: Path) -> None:
    older = bring(cache, source)
    flip(older.files / "large.bin")
    (source / "0" / "new.bin").write_bytes(b"new")
    newer = bring(cache, source)
    assert cache.verify(newer) == cache.verify(older) == ["large.bin"]
    cache.repair(newer, ["large.bin"])
    assert cache.verify(newer) == cache.verify(older) == []
    assert (older.files / "large.bin").samefile(newer.files / "large.bin")
    assert not older.damaged(thorough=False)


@pytest.mark.parametrize("how", ["not JSON", "another hash", "another word", "gone"])
@pytest.mark.parametrize("which", ["large.bin", "1/3.bin"])
@pytest.mark.parametrize("by", ["sync", "repair"])
def test_a_damaged_line_of_a_manifest_is_found_and_made_again(
    cache: SmartSync, source: Path, how: str, which: str, by: str
) -> None:
    version = bring(cache, source)
    manifest = version.folder / "manifest.jsonl"
    whole = list(version.kept())
    lines = manifest.read_bytes().splitlines(keepends=True)
    (at,) = [number for number, line in enumerate(lines) if f'"{which}"'.encode() in line]
    line = json.loads(lines[at])
    if how == "not JSON":
        lines[at] = b"[" + lines[at][1:]
    elif how == "another word":
        lines[at] = lines[at].replace(b'"size"', b'"sise"')
    elif how == "another hash":
        lines[at] = lines[at].replace(line["sha256"].encode(), b"0" * 64)
    else:
        del lines[at]
    manifest.write_bytes(b"".join(lines))
    assert cache.verify(version)[0] == "manifest.jsonl"
    if by == "sync":
        version = bring(cache, source)
    else:
        cache.repair(version, cache.verify(version))
    assert holds(version, source)
    assert cache.verify(version) == []
    fresh = [(kept.path, kept.sha256) for kept in version.kept()]
    assert fresh == [(kept.path, kept.sha256) for kept in whole]
    assert cache.leftovers() == []


def lose_a_line(version: Version) -> None:
    """Damage a manifest so that it is made again."""
    manifest = version.folder / "manifest.jsonl"
    manifest.write_bytes(b"".join(manifest.read_bytes().splitlines(keepends=True)[:-1]))


def test_what_is_made_again_is_left_alone_by_all_others(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_a_line(bring(cache, source))
    work, seen = Transfer._work, list[list[Path]]()
    with ThreadPoolExecutor() as pool:
        others: list[Future[Version]] = []

        def at_work(self: Transfer, jobs: Sequence[Callable[[], None]]) -> None:
            seen.append(cache.leftovers())
            others.append(pool.submit(bring, cache, source))
            threading.Event().wait(0.3)  # `time.sleep` does nothing here
            work(self, jobs)

        monkeypatch.setattr(Transfer, "_work", at_work)
        assert holds(bring(cache, source), source)
        assert all(holds(other.result(), source) for other in others)
    assert seen == [[]], "it was made anew once, and nobody would have removed it meanwhile"
    assert cache.leftovers() == []


def test_a_damaged_version_that_cannot_be_replaced_is_reported(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder where only the owner of an entry may rename it."""
    version = bring(cache, source)
    lose_a_line(version)
    rename = Path.rename

    def refuse(self: Path, to: Path) -> Path:
        if self == version.folder:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(self))
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(EnvironmentFault, match=r"is damaged and cannot be replaced: Operation not"):
        bring(cache, source)


def test_a_manifest_that_cannot_be_searched_is_said_to_be_damaged(
    cache: SmartSync, source: Path
) -> None:
    version = bring(cache, source)
    manifest = version.folder / "manifest.jsonl"
    head, *lines = manifest.read_bytes().splitlines(keepends=True)
    manifest.write_bytes(b"".join([head, *(b"[" + line[1:] for line in lines)]))
    with pytest.raises(EnvironmentFault, match="manifest.jsonl is damaged"):
        Tree(version.files).sha256(version.files / "large.bin")


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_verifying_again_and_again_leaves_nothing_open(cache: SmartSync, source: Path) -> None:
    version = bring(cache, source)
    before = open_files()
    for _ in range(20):
        assert cache.verify(version) == []
    assert open_files() <= before


# --- a disk that is full -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        "sync.make_once",
        "sync.write_json",
        "tree.Version.write",
        "transfer.Appender.write",
        "received._fresh",
    ],
)
def test_a_full_disk_is_one_line_wherever_it_shows(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*given: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(f"hpcbench.data.{where}", full)
        with pytest.raises(EnvironmentFault, match=r"disk full while fetching .*transferred data"):
            bring(cache, source)
    assert holds(bring(cache, source), source)
    assert cache.leftovers() == []


# --- odd sources ---------------------------------------------------------------------------------------


def test_a_name_that_is_not_utf8_is_named(cache: SmartSync, source: Path) -> None:
    (source / os.fsdecode(b"caf\xe9.png")).write_bytes(b"x")
    with pytest.raises(UserError, match=r"a file whose name is not UTF-8: 'caf\\udce9.png'"):
        bring(cache, source)


def test_a_link_to_nothing_is_named(cache: SmartSync, source: Path) -> None:
    (source / "0" / "lost.png").symlink_to("nowhere.png")
    with pytest.raises(UserError, match=r"0/lost.png is a broken link"):
        bring(cache, source)


def test_marks_of_urls_are_letters_in_the_name_of_a_folder(
    cache: SmartSync, source: Path, tmp_path: Path
) -> None:
    odd = tmp_path / "scans #1?"
    source.rename(odd)
    assert holds(bring(cache, odd), odd)


class Cutting:
    """A server without ranges that cuts every answer before the part that is still needed."""

    reads = 0

    def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
        self.reads += 1
        yield b"12" if start == 0 else b""
        raise ConnectionResetError("cut")


def test_a_source_from_which_nothing_more_comes_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer.time, "sleep", lambda seconds: None)
    cutting = Cutting()
    with pytest.raises(ConnectionResetError):
        list(transfer.pieces(cutting, "x://", StoredFile("a", 9), 0, 9))  # type: ignore[arg-type]
    assert cutting.reads == transfer.TRIES


# --- caches of others ----------------------------------------------------------------------------------


def test_a_version_of_others_counts_as_the_newest_and_is_not_touched(
    cache: SmartSync, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = bring(cache, source)
    (source / "0" / "new.bin").write_bytes(b"new")
    theirs = SmartSync(tmp_path / "theirs")
    new = bring(theirs, source)
    os.utime(new.folder / "used", (1, 1))
    mine = SmartSync(cache.folder, shared=[theirs.folder])
    assert bring(mine, source) == new
    monkeypatch.setattr(FileStorage, "list", unreachable)
    assert bring(mine, source) == new != old
    assert new.used == 1


def test_a_damaged_version_of_others_is_not_used(
    cache: SmartSync, source: Path, tmp_path: Path
) -> None:
    theirs = bring(SmartSync(tmp_path / "theirs"), source)
    (theirs.files / "large.bin").write_bytes(b"")
    reported: list[Moved] = []
    mine = SmartSync(cache.folder, shared=[theirs.folder.parent], progress=reported.append)
    version = bring(mine, source)
    assert version.folder.parent == cache.folder
    assert holds(version, source)
    assert f"{theirs.folder} is damaged: not used" in [one.what for one in reported]


def test_a_cache_that_was_copied_without_times_is_read_once(
    cache: SmartSync, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later change in it is found all the same."""
    bring(SmartSync(tmp_path / "theirs"), source)
    monkeypatch.setattr(transfer, "MANY", 1000)
    SmartSync(tmp_path / "theirs").bring(f"file://{source}")
    shutil.copytree(tmp_path / "theirs", tmp_path / "copied", copy_function=shutil.copyfile)
    reported: list[Moved] = []
    mine = SmartSync(cache.folder, shared=[tmp_path / "copied"], progress=reported.append)

    def verified(*, pack: bool) -> tuple[Path, int]:
        reported.clear()
        version = mine.bring(f"file://{source}", pack=pack)
        return version.folder.parent, max(one.bytes for one in reported if one.what != "fetching")

    size = sum(path.stat().st_size for path in source.rglob("*.bin"))
    for packed in (False, True):
        assert verified(pack=packed) == (tmp_path / "copied", size)
        assert verified(pack=packed) == (tmp_path / "copied", 0)
    for large in (tmp_path / "copied").glob("*/files/large.bin"):
        flip(large)
        os.utime(large, (5, 5))
    assert verified(pack=False)[0] == cache.folder


@pytest.mark.parametrize("pack", [False, True])
def test_what_was_seen_damaged_is_mended_whatever_was_seen_before(
    cache: SmartSync, source: Path, pack: bool
) -> None:
    version = cache.bring(f"file://{source}", pack=pack)
    path = version.folder / "pack.tar" if pack else version.files / "large.bin"
    os.utime(path, (5, 5))  # copied without times
    cache.bring(f"file://{source}", pack=pack)
    assert not cache.verify(version)
    with path.open("r+b") as file:
        file.seek(600)  # behind the header of a pack's first member
        file.write(b"?!?!")
    os.utime(path, (5, 5))
    assert len(cache.verify(version)) == 1
    cache.bring(f"file://{source}", pack=pack)
    assert not cache.verify(version)


def test_a_cache_that_is_not_ours_to_write_is_reported_where_its_manifest_is_damaged(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, record: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    version = bring(cache, source)
    manifest = version.folder / "manifest.jsonl"
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[:3]))
    monkeypatch.setattr(lease, "create_exclusive", refused)
    with pytest.raises(EnvironmentFault, match="cannot be replaced: .*its owner can"):
        cache.repair(version, cache.verify(version))


def test_what_cannot_be_linked_is_copied_and_counted(
    cache: SmartSync, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a cache of others on another file system."""
    theirs = bring(SmartSync(tmp_path / "theirs"), source)
    (source / "0" / "new.bin").write_bytes(b"new")
    link, needs, read = os.link, list[int](), list[str]()

    def cross_device(one: Path, other: Path) -> None:
        if "theirs" in str(one):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        link(one, other)

    def make_room(need: int, files: int, keep: Iterable[str]) -> None:
        needs.append(need)

    def reads(self: FileStorage, url: str, file: StoredFile, *part: int) -> Iterator[bytes]:
        read.append(file.path)
        return original(self, url, file, *part)

    original = FileStorage.read
    monkeypatch.setattr(FileStorage, "read", reads)
    monkeypatch.setattr(transfer.os, "link", cross_device)
    monkeypatch.setattr(SmartSync, "make_room", staticmethod(make_room))
    version = bring(SmartSync(cache.folder, shared=[theirs.folder.parent]), source)
    assert holds(version, source)
    assert read == ["0/new.bin"]
    pack_size = (version.folder / "pack.tar").stat().st_size - 2 * transfer.BLOCK
    assert needs == [9000 + pack_size], "members of the pack are copied, too"


def test_a_damaged_file_that_cannot_be_linked_is_brought(
    cache: SmartSync, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = bring(SmartSync(tmp_path / "theirs"), source)
    flip(theirs.files / "large.bin")
    (source / "0" / "new.bin").write_bytes(b"new")
    monkeypatch.setattr(before.Before, "link", lambda self, file: False)
    assert holds(bring(SmartSync(cache.folder, shared=[theirs.folder.parent]), source), source)


# --- limits and leases ---------------------------------------------------------------------------------


def a_source(folder: Path, size: int) -> Path:
    folder.mkdir()
    (folder / "only.bin").write_bytes(secrets.token_bytes(size))
    return folder


def long_ago(version: Version) -> Version:
    os.utime(version.folder / "used", (1, 1))
    return version


def test_what_was_used_within_a_day_is_not_evicted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A plan's first dataset stays while its second one comes, and so does what another submit found."""
    cache = SmartSync(tmp_path / "cache", limit=1000)
    first = bring(cache, a_source(tmp_path / "one", 600))
    second = bring(cache, a_source(tmp_path / "two", 600))
    assert "200 bytes above `cache_gb`" in caplog.text
    assert first.files.exists()
    long_ago(first)
    assert bring(cache, a_source(tmp_path / "three", 100)).files.exists()
    assert second.files.exists()
    assert not first.files.exists()


def test_what_can_never_fit_evicts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SmartSync(tmp_path / "cache", limit=1000)
    first = long_ago(bring(cache, a_source(tmp_path / "one", 600)))
    with pytest.raises(EnvironmentFault, match=r"need 2.0 KiB, .* is limited to 1000 bytes"):
        bring(cache, a_source(tmp_path / "two", 2048))
    full = shutil._ntuple_diskusage(1000, 1000, 100)
    monkeypatch.setattr(sync.shutil, "disk_usage", lambda folder: full)
    with pytest.raises(EnvironmentFault, match=r"need 900 bytes, .* has 700 bytes"):
        bring(cache, a_source(tmp_path / "three", 900))
    assert first.files.exists()


def test_what_versions_share_counts_once_for_the_limit(tmp_path: Path) -> None:
    cache = SmartSync(tmp_path / "cache", limit=2000)
    other = long_ago(bring(cache, a_source(tmp_path / "other", 50)))
    folder = a_source(tmp_path / "one", 900)
    for number in range(4):
        (folder / "notes.txt").write_text(str(number))
        long_ago(bring(cache, folder))
    assert len(cache.versions()) == 5
    assert other.files.exists()


def test_a_version_that_another_process_removed_is_removed(tmp_path: Path) -> None:
    cache = SmartSync(tmp_path / "cache")
    version = bring(cache, a_source(tmp_path / "one", 10))
    assert cache.remove(version)
    assert version.used == 0
    assert cache.remove(version)


def test_what_others_own_is_said_to_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = SmartSync(tmp_path / "cache")
    version = bring(cache, a_source(tmp_path / "one", 10))
    monkeypatch.setattr(sync, "remove", lambda path: None)
    assert not cache.remove(version)
    assert "only other users can remove the rest of it" in caplog.text
    assert [path.name[:4] for path in cache.leftovers()] == ["tmp-"]


# --- who asks ------------------------------------------------------------------------------------------


def test_one_address_at_two_endpoints_is_two_sources(cache: SmartSync, source: Path) -> None:
    url, one, other = "s3://b/p", {"endpoint": "https://one"}, {"endpoint": "https://other"}
    version = bring(cache, source)
    cache._point(url, {**one, "secret": "x"}, version)
    assert cache.newest(url, one) == version
    assert cache.newest(url, {"endpoint": "https://one/", "region": "eu"}) == version
    assert cache.newest(url, other) is None
    assert cache.newest(url) is None
    file = [StoredFile("a", 1)]
    keys = {sync._key(url, file, options, pack=False) for options in (one, other, {}, {"key": "x"})}
    assert len(keys) == 3
    as_ever = hashlib.sha256(b'["s3://b/p", false]["a", 1, "", null]\n').hexdigest()[:24]
    assert sync._key(url, file, None, pack=False) == as_ever


def test_what_was_brought_before_endpoints_counted_is_linked(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not used in place: it is unknown which endpoint it was from."""
    url, elsewhere = f"file://{source}", {"endpoint": "https://one"}
    monkeypatch.setattr(sync, "open_storage", lambda url, options: FileStorage({}))
    before = cache.bring(url)
    with monkeypatch.context() as patch:
        patch.setattr(FileStorage, "list", unreachable)
        with pytest.raises(EnvironmentFault, match="no way there"):
            cache.bring(url, elsewhere)
    with monkeypatch.context() as patch:
        patch.setattr(FileStorage, "read", unreachable)
        now = cache.bring(url, elsewhere)
    assert now != before
    assert holds(now, source)
    manifest = before.folder / "manifest.jsonl"
    manifest.write_text(manifest.read_text().replace('"0/0.bin"', '"0/x.bin"'))
    cache.repair(before, [sync.MANIFEST], elsewhere)
    assert before.sound()


def test_a_pack_is_not_given_to_a_reader_of_files(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{source}"
    packed = bring(cache, source)
    assert cache.newest(url) == packed
    assert cache.newest(url, pack=False) is None
    loose = cache.bring(url)
    again = bring(cache, source)
    assert again == packed
    assert cache.newest(url) == packed
    assert cache.newest(url, pack=False) == loose
    monkeypatch.setattr(FileStorage, "list", unreachable)
    assert cache.bring(url) == loose
    assert bring(cache, source) == packed


def test_what_is_whole_is_used_from_a_cache_that_cannot_be_written(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = bring(cache, source)
    (pointer,) = cache.folder.glob("of-*.json")
    pointer.unlink()

    def read_only(place: Path, data: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(place))

    monkeypatch.setattr(sync, "write_json", read_only)
    assert bring(cache, source) == version


def test_files_are_as_open_as_the_umask_says(cache: SmartSync, source: Path) -> None:
    before = os.umask(0o002)
    try:
        version = bring(cache, source)
        (version.files / "large.bin").unlink()
        (version.folder / "pack.tar").unlink()
        bring(cache, source)
    finally:
        os.umask(before)
    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in version.folder.rglob("*")
        if path.is_file()
    }
    assert set(modes.values()) == {0o664}, modes


# --- settled later -------------------------------------------------------------------------------------


def unsettled(version: Version) -> bool:
    return (version.folder / durability.MARK).exists()


def test_what_came_is_on_the_disk_before_it_is_read_again(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[str] = []

    def fsync(descriptor: int) -> None:
        forced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", fsync)
    version = bring(cache, source)
    assert unsettled(version)
    assert "large.bin" not in forced
    bring(cache, source)
    assert not unsettled(version)
    assert {"large.bin", "pack.tar", "files", version.folder.name} <= {*forced}


def test_after_a_power_cut_every_byte_is_read_once(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = bring(cache, source)
    zeros(version.files / "large.bin")
    monkeypatch.setattr(durability, "BOOT", "another")
    assert durability.in_doubt(version)
    assert [kept.path for kept in durability.settle(version)] == ["large.bin"]
    assert unsettled(version)
    assert holds(bring(cache, source), source)
    assert not unsettled(version)
    assert durability.settle(version) == []


def test_what_a_power_cut_may_have_taken_is_hashed_before_it_is_linked(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros(bring(cache, source).files / "large.bin")
    monkeypatch.setattr(durability, "BOOT", "another")
    (source / "0" / "new.bin").write_bytes(b"new")
    assert holds(bring(cache, source), source)


@pytest.mark.timeout(60)
def test_what_is_hashed_before_it_is_linked_counts_and_ends_with_the_transfer(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.bring(f"file://{source}")
    monkeypatch.setattr(durability, "BOOT", "another")
    (source / "0" / "new.bin").write_bytes(b"new")
    reported: list[Moved] = []
    cache.progress = reported.append
    hash_file = before.hash_file

    def endless(path: Path, progress: Callable[[int], None]) -> str:
        while path.name == "large.bin":
            progress(1)
        return hash_file(path, progress)

    with monkeypatch.context() as patch:
        patch.setattr(before, "hash_file", endless)
        patch.setattr(FileStorage, "read", unreachable)
        with pytest.raises(EnvironmentFault, match="no way there"):
            cache.bring(f"file://{source}")
    reported.clear()
    version = cache.bring(f"file://{source}")
    assert holds(version, source)
    assert {one.what for one in reported} >= {"verifying", "fetching"}
    assert reported[-1] == Moved("fetching", version.bytes, version.bytes, 10, 10)


def test_what_an_experiment_reads_is_settled_before_it_is_submitted(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Moved] = []
    cache = Cache(tmp_path / "cache", Site(name="default"), reported.append)
    version = bring(cache.sync("datasets"), source)
    plan = small.resolved(small.run_task(dataset={"source": str(version.files)}))
    with monkeypatch.context() as patch:
        zeros(version.files / "large.bin")
        patch.setattr(durability, "BOOT", "another")
        with pytest.raises(EnvironmentFault, match=r"is damaged: large.bin"):
            settle_all(plan, cache)
    assert reported[-1] == Moved("verifying", version.bytes, version.bytes, 0, version.count)
    settle_all(plan, cache)
    assert not unsettled(version)


def test_a_version_that_we_may_not_write_is_checked_quickly(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = bring(cache, source)
    monkeypatch.setattr(durability, "BOOT", "another")
    monkeypatch.setattr(os, "access", lambda path, how: False)
    monkeypatch.setattr("hpcbench.data.tree.hash_file", lambda path: "read in vain")
    assert bring(cache, source) == version
    assert unsettled(version)


def test_a_version_of_others_is_not_settled_by_us(
    cache: SmartSync, source: Path, tmp_path: Path
) -> None:
    theirs = SmartSync(tmp_path / "theirs")
    version = bring(theirs, source)
    mine = SmartSync(cache.folder, shared=[theirs.folder])
    assert bring(mine, source) == version
    assert mine.verify(version) == []
    assert unsettled(version)
    assert theirs.verify(version) == []
    assert not unsettled(version)


def test_parts_are_on_the_disk_when_a_transfer_ends_by_itself(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_transfer, "PART", 1000)
    read, most, reads = FileStorage.read, 5, 0

    def breaks(self: FileStorage, url: str, file: StoredFile, *part: int) -> Iterator[bytes]:
        nonlocal reads
        reads += 1
        if reads > most:
            raise PermissionError("no more")
        return read(self, url, file, *part)

    monkeypatch.setattr(FileStorage, "read", breaks)
    with pytest.raises(EnvironmentFault, match="no more"):
        cache.bring(f"file://{source}")
    most, reads = 1000, 0
    monkeypatch.setattr(part_transfer, "BOOT", "another host")
    version = cache.bring(f"file://{source}")
    assert holds(version, source)
    assert reads < 17, "parts of the large file were read again"


def test_parts_of_a_file_that_was_started_again_elsewhere_count_no_longer(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two login nodes take turns at one transfer, and each is killed before it can tidy up."""
    monkeypatch.setattr(part_transfer, "PART", 1000)
    monkeypatch.setattr(part_transfer.Parts, "keep", lambda self: None)
    read, stops = FileStorage.read, -1

    def breaks(
        self: FileStorage, url: str, file: StoredFile, start: int, stop: int
    ) -> Iterator[bytes]:
        if file.path == "large.bin" and start == stops:
            raise PermissionError("killed")
        return read(self, url, file, start, stop)

    monkeypatch.setattr(FileStorage, "read", breaks)
    for node, at in (("login1", 4000), ("login2", 2000)):
        monkeypatch.setattr(part_transfer, "BOOT", node)
        stops = at
        with pytest.raises(EnvironmentFault, match="killed"):
            cache.bring(f"file://{source}")
    monkeypatch.setattr(part_transfer, "BOOT", "login1")
    stops = -1
    assert holds(cache.bring(f"file://{source}"), source)


def test_a_file_that_cannot_be_written_is_not_read_again(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for storages that send many small files at once."""

    class Many(FileStorage):
        def many(self, url: str, files: Iterable[StoredFile]) -> Iterator[tuple[StoredFile, bytes]]:
            for file in files:
                yield file, b"".join(self.read(url, file, 0, file.size))

        def read(self, url: str, file: StoredFile, start: int, stop: int) -> Iterator[bytes]:
            if file.size < 9000:
                read.append(file.path)
            return super().read(url, file, start, stop)

    read: list[str] = []

    def full(self: transfer.Transfer, file: StoredFile, data: bytes) -> None:
        raise OSError(errno.EIO, "broken disk")

    storage, reported = Many({}), list[Moved]()
    url = f"file://{source}"
    run = transfer.Transfer(
        storage, url, [*storage.list(url)], pack=False, newest=None,
        make_room=lambda need, files, keep: None, progress=reported.append,
    )  # fmt: skip
    monkeypatch.setattr(transfer.Transfer, "_keep", full)
    with pytest.raises(EnvironmentFault, match="broken disk"):
        run.run(tmp_path / "partial")
    assert len(read) == 1


@pytest.mark.long
@given(st.text("abcXYZ019 /._-éЖ", min_size=1, max_size=130), st.integers(0, 1 << 35))
def test_headers_of_members_are_those_of_tarfile(path: str, size: int) -> None:
    member = tarfile.TarInfo(path)
    member.size = size
    assert pack.tar_header(path, size) == member.tobuf(tarfile.PAX_FORMAT)
