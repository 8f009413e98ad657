"""Wishes: pause, resume, cancel and stop, of the whole and of run tasks, by several people at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.experiment.control import control_request, control_state, said
from hpcbench.experiment.layout import Experiment
from tests.unit.small import experiment


def test_there_are_no_requests_at_first(tmp_path: Path) -> None:
    assert not control_state(Experiment(tmp_path)).rests("a")


def test_a_paused_experiment_rests_until_it_is_resumed(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    control_request(here, "pause")
    assert control_state(here).paused
    assert control_state(here).rests("a")
    assert not control_state(here).ended("a"), "it is to go on one day"
    control_request(here, "resume")
    assert not control_state(here).rests("a")


def test_run_tasks_are_paused_and_cancelled_one_by_one(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    control_request(here, "pause", ["a"])
    control_request(here, "cancel", ["b"])
    now = control_state(here)
    assert [now.rests(name) for name in "abc"] == [True, True, False]
    assert [now.ended(name) for name in "abc"] == [False, True, False]
    control_request(here, "resume", ["a"])
    assert not control_state(here).rests("a")
    control_request(here, "resume", ["b"])
    assert not control_state(here).rests("b")


def test_resuming_the_whole_lifts_what_hpcbench_stopped_but_not_what_people_cancelled(
    tmp_path: Path,
) -> None:
    here = Experiment(tmp_path)
    control_request(here, "stop", ["a"], "no GPU-hours are left")
    control_request(here, "fail", ["c"], "its pilot failed")
    control_request(here, "cancel", ["b"])
    control_request(here, "cancel")
    assert control_state(here).stopped_tasks == {"a": "no GPU-hours are left"}
    assert control_state(here).failed_tasks == {"c": "its pilot failed"}
    assert control_state(here).ended("c")
    control_request(here, "resume")
    now = control_state(here)
    assert not now.cancelled
    assert [now.rests(name) for name in "abc"] == [False, True, False]


def test_a_resume_says_how_large_pilots_are_until_the_next_one(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    control_request(here, "resume", pilot=0)
    control_request(here, "pause", ["a"])
    assert control_state(here).pilot == 0
    control_request(here, "resume")
    assert control_state(here).pilot is None


def test_wishes_made_at_once_are_all_kept(tmp_path: Path) -> None:
    here = Experiment(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: control_request(here, "cancel", [f"t{number}"]), range(40)))
    assert control_state(here).cancelled_tasks == {f"t{number}" for number in range(40)}
    assert len(list(said(here))) == 40


@pytest.mark.parametrize(("more", "waited"), [([], 0), (["--wait"], 1)])
def test_resume_of_a_running_experiment_waits_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str], waited: int
) -> None:
    here = experiment(tmp_path / "experiments", [{"id": "s0"}])
    followed: list[str] = []
    monkeypatch.setattr("hpcbench.finalise.advance", lambda *_, **__: "running")
    monkeypatch.setattr("hpcbench.cli.submit.accept", lambda _: ())
    monkeypatch.setattr("hpcbench.cli.submit.finish", lambda one, **_: followed.append(one.id) or 0)
    assert main(["resume", str(here.path), *more]) == 0
    assert len(followed) == waited


@pytest.mark.parametrize(
    "line",
    ["", "[1]", '{"event": "paus', '{"event": "pause"}', '{"event": 7, "run_tasks": []}',
     '{"event": "pause", "run_tasks": [{}]}', '{"event": "resume", "run_tasks": [], "budget": [1]}'],
)  # fmt: skip
def test_a_damaged_request_does_not_count_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    here = Experiment(tmp_path)
    control_request(here, "pause", ["a"])
    control_request(here, "cancel", ["b"])
    path = here.control_dir / "00003.json"
    path.write_text(line)
    now = control_state(here)
    assert (now.paused_tasks, now.cancelled_tasks) == ({"a"}, {"b"})
    assert not now.paused
    assert f"{path} is damaged, so its request does not count" in caplog.text
