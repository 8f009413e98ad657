"""Contract tests find what would go wrong later, and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hpcbench.environments.packages import probe
from hpcbench.plugins import DatasetSpec
from hpcbench.schema.records import Sample
from hpcbench.testing import check


class Labelled:
    """Pages whose labels are in a file of their own."""

    api: ClassVar[int] = 1

    def __init__(self, spec: DatasetSpec) -> None:
        self.folder, self.labels = spec.folder, spec.folder / "labels.json"

    def _found(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.labels.read_text())
        return found

    def count(self) -> int:
        return len(self._found())

    def iter(self, start: int, stop: int) -> Iterator[Sample]:
        for name, label in [*self._found().items()][start:stop]:
            yield Sample(name, (self.folder / name,), {}, (label,), document=name)

    def files(self) -> list[Path]:
        return [self.labels, *(self.folder / name for name in self._found())]

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        for name in ("a.png", "b.png"):
            (folder / name).write_bytes(b"\x89PNG")
        (folder / "labels.json").write_text('{"a.png": "x", "b.png": "y"}')
        return {"folder": folder}


class OnlyPages(Labelled):
    """It forgets the file of labels: a correction of a label would change no hash."""

    def files(self) -> list[Path]:
        return super().files()[1:]


class OnlyLabels(Labelled):
    """It forgets the pages."""

    def files(self) -> list[Path]:
        return super().files()[:1]


def test_files_names_the_pages_and_every_other_file_that_is_read(tmp_path: Path) -> None:
    for name in ("right", "labels", "pages"):
        (tmp_path / name).mkdir()
    check("datasets", Labelled, tmp_path / "right")
    with pytest.raises(AssertionError, match="does not contain labels.json, which it reads"):
        check("datasets", OnlyPages, tmp_path / "labels")
    with pytest.raises(AssertionError, match="does not contain a.png, b.png, which samples use"):
        check("datasets", OnlyLabels, tmp_path / "pages")


def test_a_package_in_the_working_folder_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """setuptools leaves this metadata in a package's own folder, where its author types commands."""
    info = tmp_path / "hpcbench_mine.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: hpcbench-mine\nVersion: 1.0\n")
    monkeypatch.chdir(tmp_path)
    found = probe([sys.executable], "hpcbench").distributions
    assert "hpcbench-mine" not in found
    assert "pydantic" in found
