"""Names for experiments: kept through kills, shown everywhere an experiment is, and safe from gc."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.errors import DamagedFile, UserError
from hpcbench.experiment import baselines
from hpcbench.experiment.baselines import current, entries, name_it
from hpcbench.experiment.layout import find
from hpcbench.site import gc
from tests.unit.command import Cli
from tests.unit.comparison.judged import ended, started, the_plan
from tests.unit.dying import Dying


def test_a_name_stands_for_what_was_said_last_and_remembers_what_it_stood_for(
    tmp_path: Path,
) -> None:
    for experiment, note in (("e1", "first"), ("e2", ""), (None, ""), ("e3", "again")):
        name_it(tmp_path, "main", experiment, note)
    now = current(tmp_path, "main")
    assert now is not None
    assert (now.experiment, now.note, now.number) == ("e3", "again", 4)
    assert "@" in now.by
    assert [one.experiment for one in entries(tmp_path, "main")] == ["e1", "e2", None, "e3"]
    name_it(tmp_path, "main", None)
    assert current(tmp_path, "main") is None
    assert baselines.baselines(tmp_path) == []


def test_two_at_once_are_two_entries(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: name_it(tmp_path, "main", f"e{number}"), range(24)))
    found = list(entries(tmp_path, "main"))
    assert [one.number for one in found] == list(range(1, 25))
    assert {one.experiment for one in found} == {f"e{number}" for number in range(24)}


def test_killed_anywhere_a_name_stands_for_the_old_or_the_new(tmp_path: Path) -> None:
    name_it(tmp_path, "main", "old")
    for step in range(40):
        dying = Dying(step)
        with dying():
            name_it(tmp_path, "main", "new")
        now = current(tmp_path, "main")
        assert now is not None
        assert now.experiment in ("old", "new")
        if not dying.dead:
            break
    assert now.experiment == "new"


@pytest.mark.parametrize(
    "line", ["", "[1]", "{}", '{"experiment": 0}', '{"experiment": "e", "by": "x", "time": "now"}']
)
def test_an_entry_that_is_damaged_is_named_and_an_earlier_one_does_not_count_instead(
    tmp_path: Path, cli: Cli, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    here = ended(tmp_path, "20261101-0200-x-aaaa")
    name_it(tmp_path, "main", "e1")
    path = tmp_path / "baselines/main/00002.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(DamagedFile, match="hpcbench baseline set EXPERIMENT --name main"):
        current(tmp_path, "main")
    for words in (["baseline", "list"], ["gc", "--older", "1", "--yes"], ["status", "main"]):
        said = cli.err(*words, code=3)
        assert said.count("\n") == 1 and f"{path} is damaged: " in said
    cli("baseline", "set", here.id, "--name", "main")
    shown = cli("baseline", "show", "main")
    assert here.id in shown and "e1" in shown
    assert f"{path} is damaged" in caplog.text


@pytest.mark.parametrize("name", ["2026", "a b", "../x", "", "-x", "@last"])
def test_what_could_be_an_id_or_a_path_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="is not a valid name for a baseline"):
        name_it(tmp_path, name, "e1")
    assert current(tmp_path, name) is None


def test_a_name_goes_wherever_an_experiment_does(tmp_path: Path, cli: Cli) -> None:
    one = ended(tmp_path, "20261101-0200-x-aaaa")
    other = ended(tmp_path, "20261102-0200-x-aaaa")
    assert main(["baseline", "set", "20261101", "--name", "main", "--note", "1.4"]) == 0
    assert find(tmp_path, "main").id == one.id
    cli("compare", "main", other.id, "--json")
    assert main(["gate", other.id, "--baseline", "main"]) == 5, "60 documents, a margin of 0.02"
    printed = cli("baseline", "set", other.id, "--name", "main")
    assert f"main is {other.id}, instead of {one.id}" in printed
    reported = cli.json("baseline", "show", "main", "--json")
    assert [entry["experiment"] for entry in reported] == [other.id, one.id]
    assert other.id in cli("baseline", "list")
    cli("baseline", "remove", "main")
    assert main(["baseline", "remove", "main"]) == 2
    assert main(["compare", "main", other.id]) == 2


def test_a_baseline_that_did_not_end_well_has_to_be_meant(tmp_path: Path, cli: Cli) -> None:
    here = ended(tmp_path, "20261101-0200-x-aaaa", state="incomplete")
    assert "is incomplete, not done" in cli.err("baseline", "set", here.id, "--name", "main")
    bare = started(tmp_path, "20261102-0200-x-aaaa", the_plan(tmp_path))
    assert "has not ended" in cli.err("baseline", "set", bare.id, "--name", "main")
    assert main(["baseline", "set", here.id, "--name", "main", "--force"]) == 0


def test_a_baseline_that_is_gone_says_so(tmp_path: Path) -> None:
    name_it(tmp_path, "main", "20261101-0200-x-gone")
    with pytest.raises(UserError, match="names 20261101-0200-x-gone, which no longer exists"):
        find(tmp_path, "main")


def test_gc_keeps_what_a_baseline_names(tmp_path: Path) -> None:
    kept, old = ended(tmp_path, "20261101-0200-x-aaaa"), ended(tmp_path, "20261102-0200-x-aaaa")
    name_it(tmp_path, "main", old.id)
    name_it(tmp_path, "main", kept.id)
    findings = [
        gc.Finding(one, "", gc.DiskUsage(1, 1), 0, (), time.time() - 99 * 86400)
        for one in (kept, old)
    ]
    assert [one.experiment.id for one in gc.deletable(findings, tmp_path, 30)] == [old.id]
    name_it(tmp_path, "main", None)
    assert len(gc.deletable(findings, tmp_path, 30)) == 2
