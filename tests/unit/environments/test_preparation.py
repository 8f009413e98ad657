"""Things made once, virtual environments, and the command lines that come out."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hpcbench import environments
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.experiment import once
from hpcbench.experiment.once import make_once
from hpcbench.plugins import Environment
from hpcbench.schema.documents import ContainerSite

HERE = ContainerSite(program="/bin/true")


def test_many_who_want_one_thing_make_it_once(tmp_path: Path) -> None:
    target, made = tmp_path / "image.sif", []

    def build(path: Path) -> None:
        made.append(path)
        time.sleep(0.3)
        path.write_text("whole")

    threads = [threading.Thread(target=make_once, args=(target, build, 0.05)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert target.read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["image.sif"]


def test_a_builder_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def build(path: Path) -> None:
        path.write_text("half")
        raise EnvironmentFault("no space left")

    with pytest.raises(EnvironmentFault, match="no space"):
        make_once(tmp_path / "image.sif", build)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_of_a_process_that_died_here_is_recognised_at_once(tmp_path: Path) -> None:
    holder = {"host": socket.gethostname(), "pid": 2**22 + 1, "time": time.time()}
    (tmp_path / "x.lock").write_text(json.dumps(holder) + "\n")
    assert make_once(tmp_path / "x", lambda path: path.touch() or None)


def test_a_lock_of_a_host_that_died_is_recognised_by_its_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "STALE_SECONDS", 0.5)
    holder = {"host": "a-dead-node", "pid": 1, "time": time.time()}
    (tmp_path / "x.lock").write_text(json.dumps(holder) + "\n")
    assert make_once(tmp_path / "x", lambda path: path.touch() or None, 0.05)


def test_a_lock_that_shows_beats_is_respected_however_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "STALE_SECONDS", 0.5)
    monkeypatch.setattr(once, "BEAT_SECONDS", 0.1)
    made: list[str] = []

    def slow(path: Path) -> None:
        time.sleep(1.2)
        made.append("first")
        path.touch()

    first = threading.Thread(target=make_once, args=(tmp_path / "x", slow, 0.05))
    first.start()
    time.sleep(0.1)
    assert not make_once(tmp_path / "x", lambda path: made.append("second"), 0.05)
    first.join()
    assert made == ["first"]


def test_what_can_be_resumed_is_kept_for_the_next_one(tmp_path: Path) -> None:
    def half(path: Path) -> None:
        path.mkdir()
        (path / "one").touch()
        raise EnvironmentFault("the connection broke")

    def rest(path: Path) -> None:
        assert [one.name for one in path.iterdir()] == ["one"]
        (path / "two").touch()

    with pytest.raises(EnvironmentFault):
        make_once(tmp_path / "set", half, resume=True)
    assert not (tmp_path / "set").exists()
    assert make_once(tmp_path / "set", rest, resume=True)
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == ["one", "two"]


def test_images_and_virtual_environments_are_told_apart() -> None:
    assert environments.kind_of(None) == environments.kind_of("venv:/x") == "venv"
    assert environments.kind_of("docker://x") == environments.kind_of("/x.sif") == "apptainer"


def test_this_python_has_what_the_wrapper_needs(tmp_path: Path) -> None:
    found = environments.prepare("", tmp_path, HERE)
    assert (found.kind, found.path, found.packages) == ("venv", sys.executable, None)
    assert found.digest is not None
    assert found.digest.startswith("sha256:")


def test_a_bare_virtual_environment_gets_packages_with_their_entry_points(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    found = environments.prepare(f"venv:{bare}", tmp_path / "cache", HERE)
    command = environments.wrap(
        found,
        ["python", "-c", "import hpcbench.plugins as p; print(p.load('engines', 'vllm').api)"],
        [], {}, 0, HERE,
    )  # fmt: skip
    done = subprocess.run(
        command.argv, env={**os.environ, **command.env}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
    begun = time.monotonic()
    again = environments.prepare(f"venv:{bare}", tmp_path / "cache", HERE)
    assert again == found
    assert time.monotonic() - begun < 5


def test_a_folder_that_is_no_environment_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no virtual environment"):
        environments.prepare(f"venv:{tmp_path}", tmp_path, HERE)


def test_a_container_sees_what_is_mounted_and_no_value_stands_in_its_argv(tmp_path: Path) -> None:
    sif, private, model = tmp_path / "x.sif", tmp_path / "private", tmp_path / "model"
    sif.touch()
    private.mkdir()
    model.mkdir()
    command = environments.wrap(
        Environment("apptainer", str(sif), None),
        ["python", "-m", "hpcbench.wrapper"],
        [str(private), f"{model}:{model}:ro"],
        {"HF_TOKEN": "hf_secret,with comma"},
        1,
        HERE,
    )
    argv = list(command.argv)
    assert argv[-3:] == ["python3", "-m", "hpcbench.wrapper"]
    assert "--nv" in argv
    assert "--containall" in argv
    assert f"{model}:{model}:ro" in argv
    assert not any("hf_secret" in word for word in argv)
    assert "hf_secret,with comma" in command.env.values()


def test_a_mount_that_is_not_there_is_told_before_the_container_starts(tmp_path: Path) -> None:
    sif = tmp_path / "x.sif"
    sif.touch()
    with pytest.raises(EnvironmentFault, match="gone"):
        environments.wrap(
            Environment("apptainer", str(sif), None),
            ["python"], [str(tmp_path), str(tmp_path / "gone")], {}, 0, HERE,
        )  # fmt: skip
