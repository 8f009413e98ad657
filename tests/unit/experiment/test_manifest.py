"""The manifest has one type: what is read is written back, and each earlier version's file is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcbench.experiment.manifest import Manifest
from hpcbench.files.atomic import read_json, write_json
from tests.unit.earlier import unpack

LATER = ("locks", "answer_bases", "prompts", "reuse", "tools", "site_of_machine")
"""Members that 4f8fdd5 did not write yet."""


def test_manifests_of_an_earlier_version_are_read_and_written_back(tmp_path: Path) -> None:
    for one in unpack(tmp_path).values():
        before = one.manifest_file.read_bytes()
        data = read_json(one.manifest_file)
        assert not data.keys() & set(LATER)
        read = Manifest.of(data)
        assert (read.version, read.id, read.hpcbench, read.mode) == (1, one.id, "0.1.0", "prod")
        assert read.git == {"plan": None, "hpcbench": None}
        assert read.environments[""]["kind"] == "venv"
        assert read.measured["dataset_samples"] == {"vqa": 300}
        assert (read.reuse, read.site_of_machine, read.locks, read.tools) == ("none", True, {}, {})
        write_json(one.manifest_file, read.to_json(left_out=LATER))
        assert one.manifest_file.read_bytes() == before


def test_what_is_written_is_read_as_it_was() -> None:
    whole: dict[str, Any] = Manifest(
        version=1,
        settings=["seed=3"],
        seed=None,
        site_of_machine=False,
        imported={"kit": "inspect"},
        git={"plan": {"commit": "abc", "dirty": True}, "hpcbench": None},
    ).to_json()
    assert Manifest.of(whole).to_json() == whole
    assert Manifest.of(whole) == Manifest(**whole)


def test_only_an_import_says_where_answers_come_from() -> None:
    assert "imported" not in Manifest().to_json()


def test_members_of_a_later_version_do_not_disturb() -> None:
    assert Manifest.of({"created": "2027", "weather": {"rain": 1}}) == Manifest(created="2027")
