"""The manifest has one type: what is read is written back, and each earlier version's file is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.manifest import Manifest
from hpcbench.experiment.view.as_written import manifest_member, manifest_places
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


@pytest.mark.parametrize(
    ("git", "expected"),
    [
        ({}, None),
        ({"hpcbench": None}, None),
        ({"hpcbench": {"commit": ""}}, None),
        ({"hpcbench": {"commit": "abc"}}, {"commit": "abc", "dirty": False}),
    ],
)
def test_checkouts_may_be_left_out(git: dict[str, Any], expected: object) -> None:
    assert Manifest.of({"git": git}).git == {"plan": None, "hpcbench": expected}


def test_only_an_import_says_where_answers_come_from() -> None:
    assert "imported" not in Manifest().to_json()


def test_one_member_is_read_without_the_others(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    here.manifest_file.write_text('{"work": {"cuts": []}, "fingerprint": {"a": damaged}}')
    places = manifest_places(here)
    assert manifest_member(here, "work", places) == {"cuts": []}
    with pytest.raises(KeyError):
        manifest_member(here, "measured", places)
    with pytest.raises(ValueError, match="expected value"):
        manifest_member(here, "fingerprint", places)
    with pytest.raises(ValueError, match="expected value"):
        manifest_member(here, "work")


def test_a_member_of_a_manifest_that_was_replaced_is_read_from_the_new_one(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    write_json(here.manifest_file, {"work": {"cuts": []}})
    places = manifest_places(here)
    write_json(here.manifest_file, {"seed": 7, "work": {"cuts": [1]}})
    assert manifest_member(here, "work", places) == {"cuts": [1]}


def test_members_of_a_later_version_do_not_disturb(tmp_path: Path) -> None:
    assert Manifest.of({"created": "2027", "weather": {"rain": 1}}) == Manifest(created="2027")
    here = Experiment(tmp_path)
    write_json(here.manifest_file, {"measured": {"skipped": {"a": 2}, "weather": {"rain": 1}}})
    assert (here.skipped("a"), here.skipped("b"), here.unusable("a")) == (2, 0, 2)


def test_null_means_that_a_member_is_missing() -> None:
    assert Manifest.of({"environments": None, "git": None, "seed": None}) == Manifest()
