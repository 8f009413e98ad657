"""Wishes: pause, resume, cancel and stop, of the whole and of run tasks, by several people at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hpcbench.experiment.control import said, wish, wishes
from hpcbench.experiment.layout import Experiment


def test_nothing_is_wished_at_first(tmp_path: Path) -> None:
    assert not wishes(Experiment(tmp_path)).rests("a")


def test_a_paused_experiment_rests_until_it_is_resumed(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    wish(here, "pause")
    assert wishes(here).paused
    assert wishes(here).rests("a")
    assert not wishes(here).ended("a"), "it is to go on one day"
    wish(here, "resume")
    assert not wishes(here).rests("a")


def test_run_tasks_are_paused_and_cancelled_one_by_one(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    wish(here, "pause", ["a"])
    wish(here, "cancel", ["b"])
    now = wishes(here)
    assert [now.rests(name) for name in "abc"] == [True, True, False]
    assert [now.ended(name) for name in "abc"] == [False, True, False]
    wish(here, "resume", ["a"])
    assert not wishes(here).rests("a")
    wish(here, "resume", ["b"])
    assert not wishes(here).rests("b")


def test_resuming_the_whole_lifts_what_hpcbench_stopped_but_not_what_people_cancelled(
    tmp_path: Path,
) -> None:
    here = Experiment(tmp_path)
    wish(here, "stop", ["a"], "no GPU-hours are left")
    wish(here, "fail", ["c"], "its pilot failed")
    wish(here, "cancel", ["b"])
    wish(here, "cancel")
    assert wishes(here).stopped_tasks == {"a": "no GPU-hours are left"}
    assert wishes(here).failed_tasks == {"c": "its pilot failed"}
    assert wishes(here).ended("c")
    wish(here, "resume")
    now = wishes(here)
    assert not now.cancelled
    assert [now.rests(name) for name in "abc"] == [False, True, False]


def test_a_resume_says_how_large_pilots_are_until_the_next_one(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    wish(here, "resume", pilot=0)
    wish(here, "pause", ["a"])
    assert wishes(here).pilot == 0
    wish(here, "resume")
    assert wishes(here).pilot is None


def test_wishes_made_at_once_are_all_kept(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: wish(here, "cancel", [f"t{number}"]), range(40)))
    assert wishes(here).cancelled_tasks == {f"t{number}" for number in range(40)}
    assert len(list(said(here))) == 40
