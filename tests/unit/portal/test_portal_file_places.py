"""Places of run tasks in large files: from the index while the file is the same, else from the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.experiment.layout import Experiment
from hpcbench.files.json_places import Places
from hpcbench.portal import file_places
from hpcbench.portal.file_places import FilePlaces, located
from hpcbench.portal.index import open_index
from hpcbench.portal.index.sql_index import Index
from tests.unit.past import past
from tests.unit.portal.rows import entry
from tests.unit.portal.test_portal_index_entries import evaluated, table

FILES = ("manifest.json", "resolved.json", "metrics.json", "performance.json")


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """An experiment that has ended, with scores."""
    found = past(tmp_path, "20261120-1432-plan-aaaa")
    evaluated(found, rt=table(0.5))
    return found


@pytest.fixture
def index(tmp_path: Path, here: Experiment) -> Iterator[Index]:
    """An index that has it."""
    found = open_index(None, tmp_path)
    found.put([entry(here.id, files=located(here))])
    yield found
    found.close()


def test_what_the_index_says_is_not_looked_for(
    here: Experiment, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = located(here)
    assert tuple(known) == FILES
    monkeypatch.setattr(file_places, "_located", lambda *_: pytest.fail("it was looked for"))
    places = FilePlaces(index)
    assert {name: places.of(here, here.path / name) for name in FILES} == known
    assert known["metrics.json"].part("rt") is not None
    assert Places.of_json(known["resolved.json"].to_json()) == known["resolved.json"]


def test_of_a_file_that_changed_the_present_places_count(here: Experiment, index: Index) -> None:
    evaluated(here, other=table(0.5), rt=table(0.25))
    found = FilePlaces(index).of(here, here.metrics_file)
    assert found == located(here)["metrics.json"]
    assert found is not None
    assert found.part("other") is not None


def test_a_file_that_cannot_be_read_has_none(here: Experiment, index: Index) -> None:
    for name in FILES:
        (here.path / name).write_text("{")
    assert located(here) == {}
    assert {FilePlaces(index).of(here, here.path / name) for name in FILES} == {None}


def test_the_index_has_those_of_its_newest_entry_alone(here: Experiment, index: Index) -> None:
    evaluated(here, other=table(0.5))
    index.put([entry(here.id, files=located(here))])
    assert index.places(here.id, "metrics.json") == located(here)["metrics.json"]
    index.remove([here.id])
    assert index.places(here.id, "metrics.json") is None
