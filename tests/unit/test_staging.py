"""Copies on the node's own disk: whole or not there, private, once for all workers of a node."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hpcbench.data import staging, transfer
from hpcbench.data.staging import stage, staging_folder
from hpcbench.data.sync import SmartSync
from hpcbench.data.tree import Tree
from hpcbench.errors import EnvironmentFault


def weights(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "sub/model.bin").write_bytes(os.urandom(100_000))
    return folder


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
    assert len(list(scratch.iterdir())) == 1


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


def test_no_room_and_no_variable_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "SPARE", 1 << 60)
    with pytest.raises(EnvironmentFault, match="97.7 KiB, .* free"):
        stage(weights(tmp_path / "model"), staging_folder(str(tmp_path)))
    monkeypatch.delenv("NO_SUCH", raising=False)
    with pytest.raises(EnvironmentFault, match=r"\$NO_SUCH/x: the variable is not set"):
        staging_folder("$NO_SUCH/x")
