"""Rule 1: the folder, the socket and the files of the portal are the user's alone."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.files.atomic import write_private
from hpcbench.files.flock import locked
from hpcbench.portal import runtime_dir
from hpcbench.portal.serve import listening

STRANGER = 65534
"""Number of the account `nobody`."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


def test_it_lies_in_the_runtime_folder(runtime: Path) -> None:
    found = runtime_dir.find()
    assert found.folder == runtime / "hpcbench"
    assert stat.S_IMODE(found.folder.stat().st_mode) == 0o700
    assert runtime_dir.find() == found, "and is found again"


def test_a_loose_umask_opens_nothing(runtime: Path) -> None:
    before = os.umask(0)
    try:
        found = runtime_dir.find()
        write_private(found.token, "x")
        with listening(found), locked(found.lock):
            modes = {path.name: path.lstat().st_mode & 0o777 for path in found.folder.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(found.folder.stat().st_mode) == 0o700
    assert modes == {"portal.sock": 0o600, "portal.token": 0o600, "portal.lock": 0o600}


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o710])
def test_a_folder_open_to_others_is_refused(runtime: Path, mode: int) -> None:
    (runtime / "hpcbench").mkdir()
    (runtime / "hpcbench").chmod(mode)
    with pytest.raises(EnvironmentFault, match="open to other users"):
        runtime_dir.find()


def test_a_link_in_its_place_is_refused(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (runtime / "hpcbench").symlink_to(tmp_path / "mine")
    with pytest.raises(EnvironmentFault, match="link"):
        runtime_dir.find()


def test_a_file_in_its_place_is_refused(runtime: Path) -> None:
    (runtime / "hpcbench").write_text("")
    with pytest.raises(EnvironmentFault):
        runtime_dir.find()


@as_root
def test_a_squatted_folder_is_refused(runtime: Path) -> None:
    (runtime / "hpcbench").mkdir(mode=0o700)
    os.chown(runtime / "hpcbench", STRANGER, STRANGER)
    with pytest.raises(EnvironmentFault, match="belongs to another user"):
        runtime_dir.find()


@as_root
def test_a_user_refuses_what_a_stranger_put_into_tmp(tmp_path: Path) -> None:
    """The whole way, as another account: /tmp/hpcbench-65534 is root's here."""
    folder = Path(f"/tmp/hpcbench-{STRANGER}")
    if folder.exists():
        pytest.skip(f"{folder} is in use")
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    try:
        found = subprocess.run(
            [
                "setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups",
                sys.executable, "-c",
                "from hpcbench.portal import runtime_dir as place\nprint(place.find())",
            ],
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
            cwd="/", capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    finally:
        folder.rmdir()
    if "ModuleNotFoundError" in found.stderr:
        pytest.skip("another account cannot read this checkout")
    assert found.returncode != 0
    assert "belongs to another user" in found.stderr


def test_a_runtime_folder_that_is_gone_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    monkeypatch.setattr(runtime_dir, "own_folder", lambda folder: made.append(folder) or folder)
    assert runtime_dir.find().folder == Path(f"/tmp/hpcbench-{os.geteuid()}")


def test_a_runtime_folder_that_others_can_enter_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    runtime.chmod(0o755)
    monkeypatch.setattr(runtime_dir, "own_folder", lambda folder: folder)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert runtime_dir.find().folder == Path(f"/tmp/hpcbench-{os.geteuid()}")
    assert runtime_dir.refused() == f"XDG_RUNTIME_DIR {runtime} is open to other users (mode 0755)"
    runtime.chmod(0o700)
    assert runtime_dir.find().folder == runtime / "hpcbench"
    assert runtime_dir.refused() is None
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    assert runtime_dir.refused() is None


def test_a_path_too_long_for_a_socket_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    with pytest.raises(EnvironmentFault, match="too long"):
        runtime_dir.find()


def test_a_secret_replaces_a_link_and_follows_none(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "secret"
    target.write_text("untouched")
    path.symlink_to(target)
    with pytest.raises(EnvironmentFault):
        runtime_dir.read_secret(path)
    write_private(path, "word")
    assert target.read_text() == "untouched"
    assert not path.is_symlink()
    assert runtime_dir.read_secret(path) == "word"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) in ([target, path], [path, target]), "nothing is left over"


def test_a_secret_that_others_can_read_is_none(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_private(path, "word")
    path.chmod(0o644)
    with pytest.raises(EnvironmentFault, match="accessible to other users"):
        runtime_dir.read_secret(path)
    assert runtime_dir.read_secret(tmp_path / "none") is None


def test_one_portal_a_user_and_host(runtime: Path) -> None:
    here = runtime_dir.find()
    assert not runtime_dir.running(here)
    with locked(here.lock) as held:
        assert held
        with locked(here.lock) as second:
            assert not second
        assert runtime_dir.running(here)
        assert runtime_dir.read_state(here) is None, "it has not said yet how to reach it"
        runtime_dir.write_state(here, {"pid": 1})
        assert runtime_dir.read_state(here) == {"pid": 1}
    assert runtime_dir.read_state(here) is None, "what it wrote is worth nothing after its end"


def test_records_are_kept_in_a_folder_of_the_users_own(tmp_path: Path) -> None:
    folder = runtime_dir.records()
    assert folder == tmp_path / "state/hpcbench/portal"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o750)
    with pytest.raises(EnvironmentFault):
        runtime_dir.records()
