"""The fake Slurm, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.slurm.fake_slurm import Fake, fake_slurm


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A FAKE Slurm on PATH."""
    return fake_slurm(tmp_path / "fake", monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where readers share answers."""
    path = tmp_path / "shared"
    path.mkdir(mode=0o700)
    return path
