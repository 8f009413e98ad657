"""SmartSync on real servers, and what becomes of it when it is killed, cut off, filled up, tampered with."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from hpcbench.data import part_transfer, sync, transfer
from hpcbench.data.progress import Moved
from hpcbench.data.s3 import S3Storage
from hpcbench.data.sync import SmartSync
from hpcbench.data.tree import Tree, Version, content_hash, folder_files
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.plugins import StoredFile
from tests.campaign import first
from tests.remote.conftest import Server, settle
from tests.remote.cutter import Cutter

BRING = """
import json, sys
from pathlib import Path
from hpcbench.data.sync import SmartSync
cache, url, options, pack = sys.argv[1:]
version = SmartSync(Path(cache)).bring(url, json.loads(options), pack=pack == "pack")
print(version.folder)
"""


@pytest.fixture
def bucket(s3: Server) -> Server:
    """A fresh prefix."""
    fresh = uuid.uuid4().hex[:8]
    (s3.folder / fresh).mkdir()
    return Server(f"{s3.url}/{fresh}", s3.folder / fresh, s3.options, s3.port)


def fill(folder: Path, count: int, size: int = 2000) -> dict[str, bytes]:
    contents = {
        f"{number % 3}/{number:04d}.bin": secrets.token_bytes(size) for number in range(count)
    }
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    settle()
    return contents


def bringing(cache: Path, server: Server, pack: str = "loose") -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", BRING, str(cache), server.url, json.dumps(server.options), pack]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def holds(version: Version, contents: dict[str, bytes]) -> bool:
    tree = Tree(version.files)
    return {name: tree.read(version.files / name) for name in contents} == contents


def moved(cache: SmartSync, server: Server, *, pack: bool = False) -> tuple[Version, list[Moved]]:
    reported: list[Moved] = []
    cache.progress = reported.append
    return cache.bring(server.url, server.options, pack=pack), reported


def test_what_did_not_change_is_listed_and_nothing_more(bucket: Server, tmp_path: Path) -> None:
    contents = fill(bucket.folder, 20)
    cache = SmartSync(tmp_path)
    first, reported = moved(cache, bucket)
    assert holds(first, contents)
    assert (reported[-1].files, reported[-1].bytes) == (20, 40_000)
    again, reported = moved(cache, bucket)
    assert again == first
    assert [one.what for one in reported] == [f"listing {bucket.url}"]


def test_a_changed_source_is_another_version_that_shares_what_is_the_same(
    bucket: Server, tmp_path: Path
) -> None:
    contents = fill(bucket.folder, 5)
    cache = SmartSync(tmp_path)
    first = cache.bring(bucket.url, bucket.options)
    changed = {"0/0000.bin": secrets.token_bytes(2001), "new.bin": b"new"}
    for name, data in changed.items():
        (bucket.folder / name).write_bytes(data)
    (bucket.folder / "1/0001.bin").unlink()
    settle()
    second = cache.bring(bucket.url, bucket.options)
    assert holds(first, contents), "an experiment may still read it"
    expected = {**contents, **changed}
    del expected["1/0001.bin"]
    assert holds(second, expected)
    assert second.count == 5
    same = "2/0002.bin"
    assert (first.files / same).stat().st_ino == (second.files / same).stat().st_ino
    assert cache.newest(bucket.url, bucket.options) == second


def test_two_jobs_that_want_the_same_bring_it_once(bucket: Server, tmp_path: Path) -> None:
    fill(bucket.folder, 300)
    both = [bringing(tmp_path, bucket) for _ in range(2)]
    answers = {process.communicate(timeout=60)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(answers) == 1
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ["", ".json"]


@pytest.mark.parametrize("pack", first(1, ["pack", "loose"]))
def test_a_sync_killed_in_the_middle_goes_on_where_it_was(
    bucket: Server, tmp_path: Path, pack: str
) -> None:
    contents = fill(bucket.folder, 3000, 500)
    process = bringing(tmp_path, bucket, pack)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        logs = list(tmp_path.glob("*.partial/done.jsonl"))
        if logs and logs[0].stat().st_size > 20_000:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (partial,) = tmp_path.glob("*.partial")
    assert not partial.with_suffix("").exists(), "half of it has its final name"
    done = (partial / "done.jsonl").read_bytes()
    assert 0 < done.count(b"\n") < 3000, "it was killed too early or too late to tell"
    (partial / "done.jsonl").write_bytes(done[:-7])  # a torn line
    first = json.loads(done.split(b"\n")[0])
    if pack == "loose":  # a power cut may leave less than the log says
        (partial / "files" / first["path"]).write_bytes(b"")
    version, reported = moved(SmartSync(tmp_path), bucket, pack=pack == "pack")
    began = next(one for one in reported if one.what == "fetching")
    assert began.files >= done.count(b"\n") - 3
    assert holds(version, contents)
    assert version.damaged(thorough=True) == []
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("restarted", [False, True])
def test_parts_of_a_large_file_are_taken_up_unless_the_machine_started_again(
    bucket: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    monkeypatch.setattr(part_transfer, "PART", 1 << 20)
    data = secrets.token_bytes((20 << 20) + 5)
    (bucket.folder / "large.bin").write_bytes(data)
    settle()
    cache = SmartSync(tmp_path)
    read, most, count = S3Storage.read, 10, 0

    def counted(self: S3Storage, *arguments: object) -> object:
        nonlocal count
        count += 1
        if count > most:
            raise PermissionError("the token ran out")
        return read(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(S3Storage, "read", counted)
    with pytest.raises(EnvironmentFault, match="the token ran out .*transferred data are kept"):
        cache.bring(bucket.url, bucket.options)
    if restarted:
        monkeypatch.setattr(part_transfer, "BOOT", "another")
        (log,) = tmp_path.glob("*.partial/done.jsonl")  # as if it had been killed
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(line for line in lines if '"boot":""' not in line))
    most, count = 1000, 0
    version = cache.bring(bucket.url, bucket.options)
    # Those under way when it broke were stopped, so a few of the ten may be read again.
    assert count == 21 if restarted else 11 <= count < 16
    assert (version.files / "large.bin").read_bytes() == data
    assert version.damaged(thorough=True) == []


def test_a_wire_that_breaks_again_and_again_is_taken_up_each_time(
    bucket: Server, tmp_path: Path, cutter: Cutter
) -> None:
    data = secrets.token_bytes(40 << 20)
    (bucket.folder / "large.bin").write_bytes(data)
    settle()
    cutter.to, cutter.cut_after = bucket.port, 9 << 20
    options = {**bucket.options, "endpoint": f"http://127.0.0.1:{cutter.port}"}
    version = SmartSync(tmp_path).bring(bucket.url, options)
    assert cutter.cuts >= 3
    assert (version.files / "large.bin").read_bytes() == data


def test_a_server_that_is_gone_keeps_what_came_and_the_old_version_serves(
    bucket: Server, tmp_path: Path, cutter: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "TRIES", 2)
    fill(bucket.folder, 5)
    cutter.to = bucket.port
    options = {**bucket.options, "endpoint": f"http://127.0.0.1:{cutter.port}"}
    cache = SmartSync(tmp_path)
    version = cache.bring(bucket.url, options)
    cutter.to = 9  # no server listens there
    reported: list[Moved] = []
    cache.progress = reported.append
    assert cache.bring(bucket.url, options) == version
    assert "cannot be reached" in reported[-1].what
    with pytest.raises(EnvironmentFault, match=r"cannot list .*then try again\)"):
        SmartSync(tmp_path / "other").bring(bucket.url, options)


@pytest.mark.parametrize("many", [10_000, 3])
def test_a_flipped_bit_is_repaired_by_the_next_run_or_named(
    bucket: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(transfer, "MANY", many)
    contents = fill(bucket.folder, 8)
    cache = SmartSync(tmp_path)
    version = cache.bring(bucket.url, bucket.options, pack=True)
    kept = list(version.kept())[3]
    file = version.files / kept.path if kept.offset is None else version.folder / "pack.tar"
    flip(file, (kept.offset or 0) + 100)
    assert not holds_or_fails(version, contents)
    version = cache.bring(bucket.url, bucket.options, pack=True)
    assert holds(version, contents)
    assert len(cache.versions()) == 1
    stat = file.stat()
    flip(file, (kept.offset or 0) + 100)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as a disk would do it
    assert cache.verify(version) == [kept.path]
    cache.repair(version, [kept.path], bucket.options)
    assert cache.verify(version) == []
    flip(file, (kept.offset or 0) + 100)
    (bucket.folder / kept.path).write_bytes(secrets.token_bytes(2000))
    settle()
    with pytest.raises(EnvironmentFault, match="is damaged, and .* has changed since"):
        cache.repair(version, [kept.path], bucket.options)


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def holds_or_fails(version: Version, contents: dict[str, bytes]) -> bool:
    try:
        return holds(version, contents)
    except EnvironmentFault:
        return False


def test_a_full_disk_is_reported_before_and_in_the_middle(
    bucket: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(bucket.folder, 30, 300_000)
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    try:
        cache = SmartSync(disk / "cache")
        with pytest.raises(EnvironmentFault, match=r"need 8.6 MiB, .* has 4.0 MiB .*data prune"):
            cache.bring(bucket.url, bucket.options)
        monkeypatch.setattr(
            shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 0, 1 << 40)
        )
        with pytest.raises(
            EnvironmentFault, match="disk full while fetching .*transferred data are kept"
        ):
            cache.bring(bucket.url, bucket.options)
        assert list((disk / "cache").glob("*.partial/files/*/*"))
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        assert cache.bring(bucket.url, bucket.options).count == 30
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_many_small_files_are_one_that_tar_can_read(bucket: Server, tmp_path: Path) -> None:
    contents = fill(bucket.folder, 1200, 700)
    (bucket.folder / "Счёт.txt").write_text("Итого")
    (bucket.folder / "large.bin").write_bytes(secrets.token_bytes(5 << 20))
    settle()
    packed = SmartSync(tmp_path / "a").bring(bucket.url, bucket.options, pack=True)
    loose = SmartSync(tmp_path / "b").bring(bucket.url, bucket.options)
    assert sum(len(files) for _, _, files in os.walk(packed.folder)) < 6
    listed = subprocess.run(
        ["tar", "tf", str(packed.folder / "pack.tar")], capture_output=True, text=True, check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    ).stdout.split()  # fmt: skip
    assert set(listed) == {*contents, "Счёт.txt"}
    assert holds(packed, contents)
    plain = content_hash(bucket.folder, folder_files(bucket.folder))
    assert packed.content == loose.content == plain
    packed_tree, loose_tree = Tree(packed.files), Tree(loose.files)

    def names(tree: Tree, pattern: str) -> list[str]:
        return [tree._name(path) for path in tree.glob(pattern)]

    for pattern in ("*.txt", "0/*.bin", "**/*.bin", "1/000?.bin", "nothing/*"):
        assert names(packed_tree, pattern) == names(loose_tree, pattern)
    assert [path.name for path in packed_tree.listing(packed.files / "2")] == [
        path.name for path in loose_tree.listing(loose.files / "2")
    ]


def test_the_least_recently_used_goes_when_the_limit_is_reached(tmp_path: Path) -> None:
    sources = []
    for name in ("one", "two", "three"):
        fill(tmp_path / name, 10, 10_000)
        sources.append(f"file://{tmp_path}/{name}")
    kept: set[str] = set()
    cache = SmartSync(tmp_path / "cache", limit=250_000, in_use=lambda: kept)
    one = cache.bring(sources[0])
    two = cache.bring(sources[1])
    week = 7 * 86400
    os.utime(two.folder / "used", (time.time() - 2 * week, time.time() - 2 * week))
    os.utime(one.folder / "used", (time.time() - week, time.time() - week))
    three = cache.bring(sources[2])
    assert {version.url for version in cache.versions()} == {sources[0], sources[2]}
    assert not two.folder.exists()
    os.utime(three.folder / "used", (time.time() - week, time.time() - week))
    kept |= {version.folder.name for version in cache.versions()}
    cache.bring(sources[1])
    assert len(cache.versions()) == 3, "what an experiment reads stays, limit or not"


def test_a_cache_of_others_is_used_in_place_and_not_written_to(
    bucket: Server, tmp_path: Path
) -> None:
    fill(bucket.folder, 5)
    theirs = SmartSync(tmp_path / "theirs").bring(bucket.url, bucket.options)
    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "theirs").rglob("*"))
    mine = SmartSync(tmp_path / "mine", shared=[tmp_path / "theirs"])
    assert mine.bring(bucket.url, bucket.options) == theirs
    after = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "theirs").rglob("*"))
    assert after == before
    assert mine.versions() == []


def test_what_a_storage_lists_cannot_lead_out_of_the_cache(tmp_path: Path) -> None:
    for names in (["../x"], ["/etc/x"], ["a//b"], ["a", "a/b"], ["a", "a"], ["a/./b"], []):
        with pytest.raises(UserError):
            sync._sound("s3://x", [StoredFile(name, 1) for name in names])
