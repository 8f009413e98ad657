"""Where the index lies, and that it may be damaged, deleted or of another version at any time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy

from hpcbench.files.mounts import is_local
from hpcbench.portal.index import ExperimentQuery, IndexFault, open_index
from hpcbench.portal.index.disk import default_file, home_key
from hpcbench.portal.index.schema import SCHEMA, VERSION
from tests.unit.portal.rows import entry

MOUNTS = r"""
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /home rw - nfs4 server:/home rw
31 22 0:26 / /scratch rw shared:7 - lustre mgs:/scratch rw
32 30 0:27 / /home/ada/fast rw - xfs /dev/nvme0n1 rw
33 22 0:28 / /mnt/with\040space rw - beegfs beegfs_nodev rw
34 22 0:29 / /run rw master:3 propagate_from:2 - tmpfs tmpfs rw
35 22 0:30 / /mnt/new rw - somefsofnextyear x rw
"""


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/tmp/x", True),
        ("/home/ada/.cache", False),
        ("/homely", True),
        ("/scratch/ada/cache", False),
        ("/home/ada/fast/cache", True),
        ("/mnt/with space/a", False),
        ("/run/user/7", True),
        ("/mnt/new", False),
    ],
)
def test_only_known_file_systems_of_one_machine_are_local(path: str, local: bool) -> None:
    assert is_local(Path(path), MOUNTS) is local


def test_a_link_to_a_network_file_system_is_one(tmp_path: Path) -> None:
    (tmp_path / "cache").symlink_to("/scratch/ada")
    assert not is_local(tmp_path / "cache" / "hpcbench", MOUNTS)


def test_where_nothing_is_said_of_mounts_all_is_local() -> None:
    assert is_local(Path("/home/ada"), "")


def test_it_lies_in_the_cache_and_each_home_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = default_file(tmp_path / "home")
    assert file.parent == tmp_path / "cache" / "hpcbench" / "portal"
    assert file.name.endswith(f"-{VERSION}.sqlite")
    assert default_file(tmp_path / "other") != file
    open_index(None, tmp_path / "home").close()
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


def test_it_lies_in_tmp_where_the_cache_is_on_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"{MOUNTS}40 22 0:9 / {tmp_path} rw - nfs4 server:/x rw\n")
    monkeypatch.setattr("hpcbench.files.mounts.MOUNTS", mounts)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made: list[Path] = []

    def own_folder(folder: Path) -> Path:
        made.append(folder)
        return folder

    monkeypatch.setattr("hpcbench.portal.index.disk.own_folder", own_folder)
    assert default_file(tmp_path / "home").parent == Path(f"/tmp/hpcbench-{os.geteuid()}")
    assert made == [Path(f"/tmp/hpcbench-{os.geteuid()}")]
    assert not (tmp_path / "cache").exists()


def test_a_path_on_the_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    monkeypatch.setattr("hpcbench.files.mounts.MOUNTS", mounts)
    with pytest.raises(IndexFault, match="network"):
        open_index("sqlite:////scratch/ada/index.sqlite", tmp_path)


def damage_all(file: Path) -> None:
    file.write_bytes(os.urandom(file.stat().st_size))


def damage_some(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(data)


def truncate(file: Path) -> None:
    os.truncate(file, 5000)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def other_version(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE meta SET version = 99")
    connection.close()


def other_tables(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE run_tasks")
    connection.close()


@pytest.mark.parametrize(
    "harm", [damage_all, damage_some, truncate, empty, other_version, other_tables]
)
def test_a_file_that_cannot_be_read_is_made_again_at_the_start(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    file = tmp_path / "index.sqlite"
    index = open_index(f"sqlite:///{file}", tmp_path)
    index.put([entry(f"e{number}") for number in range(50)])
    index.close()
    harm(file)
    again = open_index(f"sqlite:///{file}", tmp_path)
    # Some damage shows only where it is: with the first question that meets it.
    assert again.experiments(ExperimentQuery()).total in (0, 50)
    again.put([entry("new")])
    assert again.experiment("new") is not None
    again.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "harm", [damage_all, damage_some, truncate, empty, other_tables, Path.unlink]
)
def test_a_file_that_is_damaged_or_gone_while_it_is_used_is_made_again(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    file = tmp_path / "index.sqlite"
    index = open_index(f"sqlite:///{file}", tmp_path)
    index.put([entry(f"e{number}") for number in range(50)])
    index.close()  # so that connections do not hold what was read before
    harm(file)
    for _ in range(2):  # what a follower does about it; some damage shows with the first write only
        lost = {f"e{number}" for number in range(50)} - index.stamps().keys()
        index.put([entry(name) for name in ["new", *sorted(lost)]])
    assert index.experiments(ExperimentQuery()).total == 51
    assert index.experiment("e7") is not None
    index.close()


def test_a_client_of_the_lost_index_does_not_take_the_new_one_for_it(tmp_path: Path) -> None:
    file = tmp_path / "index.sqlite"
    index = open_index(f"sqlite:///{file}", tmp_path)
    index.put([entry()])
    before = index.version()
    file.unlink()
    assert index.stamps() == {}
    index.put([entry("other")])
    assert index.version() > before
    index.close()


def test_a_folder_that_is_gone_is_made_again(tmp_path: Path) -> None:
    index = open_index(f"sqlite:///{tmp_path / 'deep' / 'index.sqlite'}", tmp_path)
    index.put([entry()])
    for path in (tmp_path / "deep").iterdir():
        path.unlink()
    (tmp_path / "deep").rmdir()
    assert index.stamps() == {}
    index.put([entry()])
    assert index.stamps() == {"e1": "[]"}
    index.close()


def test_a_disk_that_cannot_be_written_is_a_fault_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(IndexFault, match="does not answer") as caught:
        open_index(f"sqlite:///{tmp_path / 'file' / 'index.sqlite'}", tmp_path)
    assert (caught.value.status, caught.value.code) == (503, "busy")
    assert "check that the database runs" in caught.value.remedy


@pytest.mark.long
def test_tables_that_are_gone_from_postgresql_are_made_again(
    postgresql: str, tmp_path: Path
) -> None:
    index = open_index(postgresql, tmp_path)
    index.put([entry()])
    engine = sqlalchemy.create_engine(postgresql.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"DROP SCHEMA {SCHEMA} CASCADE"))
    assert index.stamps() == {}
    index.put([entry()])
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f"UPDATE {SCHEMA}.meta SET version = 99"))
    index.close()
    other = open_index(postgresql, tmp_path)
    assert other.stamps() == {}
    other.close()
    engine.dispose()


@pytest.mark.long
def test_a_connection_that_broke_is_made_again(postgresql: str, tmp_path: Path) -> None:
    index = open_index(postgresql, tmp_path)
    index.put([entry()])
    engine = sqlalchemy.create_engine(postgresql.replace("postgresql:", "postgresql+psycopg:"))
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hpcbench portal'"
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(kill))
    assert index.experiment("e1") is not None
    index.put([entry("e2")])
    assert index.experiments(ExperimentQuery()).total == 2
    index.close()
    engine.dispose()


def test_homes_are_distinguished_by_their_paths() -> None:
    assert home_key(Path("/a")) != home_key(Path("/b"))
    assert home_key(Path("/a")) == home_key(Path("/a/"))
