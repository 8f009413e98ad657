"""Packages built by uv or pip: without an index, without room."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcbench.environments import packages
from hpcbench.environments.packages import build_wheel
from hpcbench.errors import EnvironmentFault

BACKEND = """\
import zipfile
from pathlib import Path


def build_wheel(folder, settings=None, metadata=None):
    with zipfile.ZipFile(Path(folder, "own-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("own-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: own\\nVersion: 1\\n")
        wheel.writestr("own-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("own-1.dist-info/RECORD", "")
    return "own-1-py3-none-any.whl"
"""


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    for name in ("UV_FIND_LINKS", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("PIP_RETRIES", "0")


def package(folder: Path, builder: str) -> Path:
    """A package whose build needs `builder` of an index, and has its backend beside it."""
    source = folder / "own"
    source.mkdir()
    (source / "backend_of_own.py").write_text(BACKEND)
    (source / "pyproject.toml").write_text(
        f'[build-system]\nrequires = ["{builder}"]\nbuild-backend = "backend_of_own"\n'
        'backend-path = ["."]\n\n[project]\nname = "own"\nversion = "1"\n'
    )
    return source


@pytest.mark.long
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_without_an_index_this_python_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    if tool == "pip":
        monkeypatch.setattr(packages, "find_uv", lambda: None)
    source, target = package(tmp_path, "not-to-be-had"), tmp_path / "wheels"
    target.mkdir()
    build_wheel(source, target, tmp_path / "cache")
    assert [path.name for path in target.glob("*.whl")] == ["own-1-py3-none-any.whl"]


@pytest.mark.long
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_without_an_index_the_missing_builder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    if tool == "pip":
        monkeypatch.setattr(packages, "find_uv", lambda: None)
    source = tmp_path / "own"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["scikit-own"]\nbuild-backend = "scikit_own.build"\n'
        '[project]\nname = "own"\nversion = "1"\n'
    )
    with pytest.raises(EnvironmentFault, match="no package index answers") as caught:
        build_wheel(source, tmp_path, tmp_path / "cache")
    assert "scikit_own to build it" in caught.value.message
    assert len(caught.value.message) < 120


@pytest.mark.parametrize("words", ["No space left on device (os error 28)", "Disk quota exceeded"])
def test_a_full_disk_or_quota_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    tool = tmp_path / "uv"
    tool.write_text(
        f'#!/bin/sh\necho "error: Failed to install: a.whl cause: {words}" >&2\nexit 2\n'
    )
    tool.chmod(0o755)
    monkeypatch.setattr(packages, "find_uv", lambda: str(tool))
    probed = packages.probe([sys.executable], "Python")
    folder = tmp_path / "packages"
    folder.mkdir()
    for attempt in (
        lambda: build_wheel(tmp_path, tmp_path, tmp_path / "cache"),
        lambda: packages.install(probed, folder, tmp_path / "cache", ["not-to-be-had"], ()),
    ):
        with pytest.raises(EnvironmentFault, match="no room for Python packages") as caught:
            attempt()
        assert "squash_packages" in (caught.value.remedy or "")
