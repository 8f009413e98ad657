"""SmartSync from a folder: what damage, odd names and full disks do to it. Real servers: `tests/remote`."""

from __future__ import annotations

import errno
import os
import secrets
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.data import pack, transfer
from hpcbench.data.storage import FileStorage
from hpcbench.data.sync import SmartSync
from hpcbench.data.tree import Tree, Version
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import StoredFile


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
    with pytest.raises(EnvironmentFault, match="has it no longer as it was"):
        cache.repair(version, ["large.bin"])
    assert place.read_bytes() == b"?" * 9000
    assert [*version.files.iterdir()] == [place], "nothing half is left"


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
        "transfer._fresh",
    ],
)
def test_a_full_disk_is_one_line_wherever_it_shows(
    cache: SmartSync, source: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*given: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(f"hpcbench.data.{where}", full)
        with pytest.raises(EnvironmentFault, match=r"disk full while fetching .*what has come"):
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
    with pytest.raises(UserError, match=r"0/lost.png is a link to nothing"):
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

    def unreachable(self: FileStorage, url: str) -> Iterator[StoredFile]:
        raise ConnectionError("no way there")

    monkeypatch.setattr(FileStorage, "list", unreachable)
    assert bring(mine, source) == new != old
    assert new.used == 1


@given(st.text("abcXYZ019 /._-éЖ", min_size=1, max_size=130), st.integers(0, 1 << 35))
def test_headers_of_members_are_those_of_tarfile(path: str, size: int) -> None:
    member = tarfile.TarInfo(path)
    member.size = size
    assert pack.tar_header(path, size) == member.tobuf(tarfile.PAX_FORMAT)
