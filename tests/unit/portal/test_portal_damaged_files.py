"""A damaged file of an experiment is a fault that names it, not a bug of hpcbench."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.experiment.layout import Experiment
from tests.unit.portal.asking import evaluated, portal_over
from tests.unit.portal.unguarded import unguarded


def asked(here: Experiment, path: str) -> tuple[int, str, str]:
    """Status, code and text of the answer for a part of the experiment."""
    with unguarded(portal_over(here.path.parent.parent)) as api:
        answer = api.ask("GET", f"experiments/{here.id}/{path}")
    return answer.status, answer.body["code"], answer.body["error"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"work": {"groups": [], "cuts": 1}}'])
@pytest.mark.parametrize("path", ["run-tasks/rt/samples/0/images/0", "run-tasks/rt/samples/0"])
def test_a_damaged_manifest_is_named(tmp_path: Path, path: str, content: str) -> None:
    here = evaluated(tmp_path, ["0", "1"])
    here.manifest_file.write_text(content)
    status, code, error = asked(here, path)
    assert (status, code) == (500, "unreadable"), error
    assert f"{here.manifest_file} is damaged" in error


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    here = evaluated(tmp_path, ["0", "1"])
    folder = here.workers_dir / "folded.jsonl"
    folder.mkdir(parents=True)
    status, code, error = asked(here, "resources")
    assert (status, code, error) == (
        500, "unreadable", f"{folder} cannot be read: Is a directory",
    )  # fmt: skip
