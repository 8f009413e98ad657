"""Copies on the node's own disk: whole or not there, private, once for all workers of a node."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hpcbench.data import staging, transfer
from hpcbench.data.staging import stage, staging_folder
from hpcbench.data.sync import SmartSync
from hpcbench.data.tree import Tree
from hpcbench.errors import EnvironmentFault


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds of this process for one test are no other test's."""
    monkeypatch.setattr(staging, "_held", {})


def weights(folder: Path, size: int = 100_000) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "sub/model.bin").write_bytes(os.urandom(size))
    return folder


def copies(scratch: Path) -> list[Path]:
    return sorted(path for path in scratch.iterdir() if path.is_dir())


def staged_by_another(source: Path, scratch: Path, then: str) -> subprocess.Popen[str]:
    """A worker of its own that stages, says so, and then does something."""
    code = f"""
import os, sys, time
from pathlib import Path
from hpcbench.data import staging
print(staging.stage(Path({str(source)!r}), Path({str(scratch)!r})), flush=True)
{then}
"""
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def ended(source: Path, scratch: Path) -> Path:
    """The copy of a worker that ended, as they do, by a signal."""
    worker = staged_by_another(source, scratch, "os.kill(os.getpid(), 9)")
    reported, _ = worker.communicate(timeout=60)
    return Path(reported.strip())


class Disk:
    """A disk of so many bytes, with nothing on it but copies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, scratch: Path, size: int) -> None:
        self.scratch, self.size = scratch, size
        monkeypatch.setattr(staging, "SPARE", 0)
        monkeypatch.setattr(staging.shutil, "disk_usage", lambda place: self)

    @property
    def free(self) -> int:
        files = (path for path in self.scratch.rglob("*") if path.is_file())
        return self.size - sum(path.stat().st_size for path in files)


def test_a_plain_folder_is_copied_once_for_all_workers(tmp_path: Path) -> None:
    source, scratch = weights(tmp_path / "model"), staging_folder(str(tmp_path / "scratch"))
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(stage(source, scratch))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert (found[0] / "sub/model.bin").read_bytes() == (source / "sub/model.bin").read_bytes()
    assert scratch.stat().st_mode & 0o777 == 0o700
    assert copies(scratch) == [found[0].parent]


def test_what_changed_is_another_copy(tmp_path: Path) -> None:
    source, scratch = weights(tmp_path / "model"), staging_folder(str(tmp_path))
    first = stage(source, scratch)
    (source / "config.json").write_text('{"new": 1}')
    second = stage(source, scratch)
    assert first != second
    assert (second / "config.json").read_text() == '{"new": 1}'


@pytest.mark.parametrize("many", [1, 10_000])
def test_a_version_comes_with_its_manifest_and_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(transfer, "MANY", many)
    source = weights(tmp_path / "set")
    version = SmartSync(tmp_path / "cache").bring(f"file://{source}", pack=True)
    copy = Tree(stage(version.files, staging_folder(str(tmp_path / "scratch"))))
    assert copy.is_packed == (many == 1)
    assert copy.version is not None
    assert copy.version.damaged(thorough=True) == []
    assert copy.version.damaged(thorough=False) == []
    for path in copy.files():
        assert copy.read(path) == (source / path.relative_to(copy.folder)).read_bytes()


def test_no_room_and_no_variable_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "SPARE", 1 << 60)
    with pytest.raises(EnvironmentFault, match="97.7 KiB, .* free"):
        stage(weights(tmp_path / "model"), staging_folder(str(tmp_path)))
    monkeypatch.delenv("NO_SUCH", raising=False)
    with pytest.raises(EnvironmentFault, match=r"\$NO_SUCH/x: the variable is not set"):
        staging_folder("$NO_SUCH/x")


@pytest.mark.long
def test_what_a_killed_worker_had_half_copied_is_removed_by_the_next(tmp_path: Path) -> None:
    source, scratch = weights(tmp_path / "model"), staging_folder(str(tmp_path / "scratch"))
    killed = """
import os, shutil, sys
from pathlib import Path
from hpcbench.data import staging
copy = shutil.copyfile
def dies(a, b):
    copy(a, b)
    os.kill(os.getpid(), 9)
shutil.copyfile = dies
staging.stage(Path(sys.argv[1]), Path(sys.argv[2]))
"""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", killed, source, scratch], check=False)
    assert list(scratch.glob("tmp-*"))
    copy = stage(source, scratch)
    assert copies(scratch) == [copy.parent]
    assert not list(scratch.glob("*.lock"))


@pytest.mark.parametrize("kind", ["folder", "version"])
@pytest.mark.parametrize("fault", ["cut", "gone", "written to"])
def test_a_copy_that_is_not_what_was_copied_is_mended_before_it_is_used_again(
    tmp_path: Path, kind: str, fault: str
) -> None:
    source, scratch = weights(tmp_path / "model"), staging_folder(str(tmp_path / "scratch"))
    if kind == "version":
        source = SmartSync(tmp_path / "cache").bring(f"file://{source}").files
    copy = stage(source, scratch) / "sub/model.bin"
    others = (copy.parents[1] / "config.json").stat().st_ino
    match fault:
        case "cut":
            os.truncate(copy, 1)
        case "gone":
            copy.unlink()
            copy.parent.rmdir()
        case _:
            copy.write_bytes(os.urandom(100_000))
            os.utime(copy, (1e9, 1e9))
    assert stage(source, scratch) / "sub/model.bin" == copy
    assert copy.read_bytes() == (source / "sub/model.bin").read_bytes()
    assert (copy.parents[1] / "config.json").stat().st_ino == others, "what was whole stays"
    assert sorted(path.name for path in copy.parent.iterdir()) == ["model.bin"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["folder", "version"])
def test_a_copy_of_before_the_machine_was_started_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A power cut leaves files of the right size and time that are full of zeros."""
    source, scratch = weights(tmp_path / "model"), staging_folder(str(tmp_path / "scratch"))
    if kind == "version":
        source = SmartSync(tmp_path / "cache").bring(f"file://{source}").files
    copy = ended(source, scratch) / "sub/model.bin"
    stat = copy.stat()
    copy.write_bytes(bytes(stat.st_size))
    os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    monkeypatch.setattr(staging, "BOOT", f"{socket.gethostname()} another")
    assert stage(source, scratch) / "sub/model.bin" == copy
    assert copy.read_bytes() == (source / "sub/model.bin").read_bytes()
    inode = copy.stat().st_ino
    assert stage(source, scratch) / "sub/model.bin" == copy
    assert copy.stat().st_ino == inode
    assert copies(scratch) == [copy.parents[2]]


def test_a_copy_that_another_node_made_is_used_where_both_see_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, scratch = weights(tmp_path / "model"), staging_folder(str(tmp_path / "scratch"))
    copy = ended(source, scratch) / "sub/model.bin"
    inode = copy.stat().st_ino
    monkeypatch.setattr(staging, "BOOT", "node2 another")
    assert stage(source, scratch) / "sub/model.bin" == copy
    assert copy.stat().st_ino == inode


def test_a_copy_that_a_living_worker_uses_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, scratch = weights(tmp_path / "model"), staging_folder(str(tmp_path / "scratch"))
    with staged_by_another(source, scratch, "time.sleep(60)") as worker:
        assert worker.stdout is not None
        used = Path(worker.stdout.readline().strip())
        inode = used.stat().st_ino
        monkeypatch.setattr(staging, "BOOT", f"{socket.gethostname()} another")
        assert stage(source, scratch) == used
        assert used.stat().st_ino == inode
        worker.kill()


def test_a_file_is_copied_whatever_its_name(tmp_path: Path) -> None:
    source = weights(tmp_path / "model")
    (source / "used").write_text("a name like others")
    (source / "sub/done.jsonl").write_text("so is this")
    copy = stage(source, staging_folder(str(tmp_path / "scratch")))
    assert (copy / "used").read_text() == "a name like others"
    assert (copy / "sub/done.jsonl").exists()


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    source = weights(tmp_path / "model")
    (source / "sub/above").symlink_to("..")
    (source / "beside").symlink_to(weights(tmp_path / "elsewhere"))
    copy = stage(source, staging_folder(str(tmp_path / "scratch")))
    files = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert files == {"config.json", "sub/model.bin", "beside/config.json", "beside/sub/model.bin"}


# --- room ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_without_room_the_copy_used_longest_ago_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = staging_folder(str(tmp_path / "scratch"))
    one, two, three = (weights(tmp_path / name) for name in ("one", "two", "three"))
    first, second = ended(one, scratch), ended(two, scratch)
    assert ended(one, scratch) == first  # used again, and later than the other
    Disk(monkeypatch, scratch, 250_000)
    third = stage(three, scratch)
    assert copies(scratch) == sorted([first.parent, third.parent])
    assert not second.exists()
    assert {path.stem for path in scratch.glob("*.use")} == {path.name for path in copies(scratch)}


@pytest.mark.long
def test_a_copy_that_a_living_worker_uses_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = staging_folder(str(tmp_path / "scratch"))
    worker = staged_by_another(weights(tmp_path / "one"), scratch, "time.sleep(60)")
    with worker:
        assert worker.stdout is not None
        used = Path(worker.stdout.readline().strip())
        idle = ended(weights(tmp_path / "two"), scratch)
        Disk(monkeypatch, scratch, 250_000)
        stage(weights(tmp_path / "three"), scratch)
        assert used.exists()
        assert not idle.exists()
        worker.kill()


def test_a_copy_that_this_worker_uses_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = staging_folder(str(tmp_path / "scratch"))
    mine = stage(weights(tmp_path / "one"), scratch)
    Disk(monkeypatch, scratch, 150_000)
    with pytest.raises(EnvironmentFault, match="97.7 KiB, .* free"):
        stage(weights(tmp_path / "two"), scratch)
    assert mine.exists()


def test_nothing_goes_for_what_has_no_room_even_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = staging_folder(str(tmp_path / "scratch"))
    idle = ended(weights(tmp_path / "one"), scratch)
    Disk(monkeypatch, scratch, 250_000)
    with pytest.raises(EnvironmentFault, match="free"):
        stage(weights(tmp_path / "large", 300_000), scratch)
    assert idle.exists()
