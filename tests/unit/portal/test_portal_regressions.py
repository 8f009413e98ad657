"""Results over months: changes with first bad and last good, lasting ids, and notes that survive a kill."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcbench.comparison import history as past
from hpcbench.portal import acknowledgements as acknowledged
from hpcbench.portal import regressions
from hpcbench.portal.acknowledgements import ChangeNote, acknowledgements
from hpcbench.portal.models.regressions import Regression, Trends
from hpcbench.portal.regressions import History, Judge, note
from hpcbench.statistics.changes import Change

LEVELS = (0.9,) * 12 + (0.6,) * 8


def wrote(
    root: Path, values: Sequence[float], name: str = "anls", run_task: str = "a", **more: Any
) -> None:
    """Experiments of one run task, one a day."""
    rng = random.Random(name)
    for number, value in enumerate(values):
        row = {
            "experiment": f"e{number:03d}", "plan": "nightly", "created": 1.7e9 + number * 86400.0,
            "state": "done", "run_task": run_task, "model": "m", "dataset": "d", "prompt": "p",
            "kind": "quality", "name": name, "value": value + rng.gauss(0, 0.005), "low": None,
            "high": None, "n": 10, "higher_is_better": True, "signature": "s", "hpcbench": "0",
            "recorded": 1.7e9 + number, **more,
        }  # fmt: skip
        path = past.results_dir(root) / f"e{number:03d}-{name}-{run_task}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        past._write(path, [row], path.parent)


def judged(history: History, **question: Any) -> Trends:
    """The answer once all is worked out."""
    until = time.monotonic() + 60
    while True:
        found = Trends.model_validate_json(history.answer(**question))
        if not found.pending:
            return found
        assert time.monotonic() < until


def the_change(history: History) -> Regression:
    (change,) = judged(history).rows[0].changes
    return change


# --- trends -------------------------------------------------------------------------------------------


def test_a_change_is_reported_with_the_first_bad_and_the_last_good_experiment(
    tmp_path: Path,
) -> None:
    wrote(tmp_path, LEVELS)
    history = History(tmp_path)
    change = the_change(history)
    assert (change.first, change.last_good, change.worse) == ("e012", "e011", True)
    assert change.before == pytest.approx(0.9, abs=0.01)
    assert change.after == pytest.approx(0.6, abs=0.01)
    assert change.acknowledged is None


def test_the_answer_is_what_the_model_would_write(tmp_path: Path) -> None:
    wrote(tmp_path, LEVELS)
    wrote(tmp_path, (0.5,) * 20, run_task="b")
    history = History(tmp_path)
    reported = judged(history)
    assert json.loads(history.answer()) == reported.model_dump(mode="json")
    assert len(reported.rows) == 2
    assert reported.names == ("anls",)
    assert reported.plans == ("nightly",)


@pytest.mark.long
def test_rows_that_fell_last_come_first(tmp_path: Path) -> None:
    wrote(tmp_path, (0.5,) * 20, run_task="a steady one")
    wrote(tmp_path, (0.9,) * 8 + (0.6,) * 12, run_task="fell early")
    wrote(tmp_path, LEVELS, run_task="fell late")
    wrote(tmp_path, tuple(reversed(LEVELS)), run_task="rose")
    names = [row.run_task for row in judged(History(tmp_path)).rows]
    assert names[:2] == ["fell late", "fell early"]


@pytest.mark.long
def test_without_a_name_only_metrics_of_quality_are_shown(tmp_path: Path) -> None:
    wrote(tmp_path, LEVELS)
    wrote(tmp_path, LEVELS, name="ttft_p50", kind="speed")
    assert {row.name for row in judged(History(tmp_path)).rows} == {"anls"}
    assert {row.name for row in judged(History(tmp_path), name="ttft_p50").rows} == {"ttft_p50"}
    assert judged(History(tmp_path), plan="another").rows == ()


def test_a_later_start_sends_fewer_points_and_the_same_changes(tmp_path: Path) -> None:
    wrote(tmp_path, LEVELS)
    history = History(tmp_path)
    (whole,) = judged(history).rows
    (change,) = whole.changes
    (part,) = judged(history, since=change.time).rows
    assert part.points == whole.points[12:]
    assert part.changes == whole.changes
    (rest,) = judged(history, since=change.time + 1).rows
    assert rest.changes == ()
    assert judged(history, since=whole.points[-1].time + 1).rows == ()


def test_what_changed_on_disk_is_seen(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert judged(history) == Trends(names=(), plans=(), rows=())
    wrote(tmp_path, (0.5,) * 6)
    assert len(judged(history).rows[0].points) == 6
    wrote(tmp_path, (0.5,) * 7)
    assert len(judged(history).rows[0].points) == 7


def test_change_points_are_worked_out_once_and_beside_the_request(tmp_path: Path) -> None:
    wrote(tmp_path, LEVELS)
    made: list[past.Trend] = []

    def slow(trend: past.Trend) -> tuple[Change, ...]:
        made.append(trend)
        time.sleep(0.2)
        return past.changes_of(trend)

    history = History(tmp_path, Judge(slow))
    assert json.loads(history.answer())["pending"] == 1
    assert judged(history).rows[0].changes
    history.answer()
    assert len(made) == 1


@pytest.mark.long
def test_a_series_that_drifted_is_worked_out_before_a_steady_one(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        wrote(tmp_path, (0.5, 0.51) * 10, run_task=f"steady-{name}")
    wrote(tmp_path, LEVELS, run_task="z-fell")
    made: list[str] = []

    def work(trend: past.Trend) -> tuple[Change, ...]:
        made.append(trend.run_task)
        return ()

    judged(History(tmp_path, Judge(work)))
    assert made[0] == "z-fell"


def test_many_rows_are_cut_and_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regressions, "ROWS", 2)
    for name in ("a", "b", "c"):
        wrote(tmp_path, (0.5,) * 3, run_task=name)
    found = judged(History(tmp_path))
    assert (len(found.rows), found.left_out) == (2, 1)


# --- taking note --------------------------------------------------------------------------------------


def test_a_note_stays_until_it_is_taken_back(tmp_path: Path) -> None:
    wrote(tmp_path, LEVELS)
    history = History(tmp_path)
    change = the_change(history)
    reported = note(history, change.id, "new dataset", "ann", None)
    assert reported is not None
    assert reported.acknowledged is not None
    assert (reported.acknowledged.reason, reported.acknowledged.by) == ("new dataset", "ann")
    assert the_change(History(tmp_path)).acknowledged == reported.acknowledged  # another portal
    assert note(history, change.id, None, "bob", None) == change
    assert the_change(history) == change


@pytest.mark.long
def test_a_note_holds_though_the_change_moves_as_more_comes_in(tmp_path: Path) -> None:
    wrote(tmp_path, LEVELS)
    history = History(tmp_path)
    change = the_change(history)
    note(history, change.id, "known", "ann", None)
    wrote(tmp_path, (*LEVELS[:11], 0.62, *LEVELS[12:], *(0.6,) * 5))  # it began a day earlier
    moved = the_change(history)
    assert moved.first == "e011" != change.first
    assert (moved.id, moved.acknowledged is not None) == (change.id, True)


def test_a_note_of_a_fall_is_none_of_a_rise(tmp_path: Path) -> None:
    wrote(tmp_path, LEVELS)
    history = History(tmp_path)
    note(history, the_change(history).id, "known", "ann", None)
    wrote(tmp_path, tuple(1.5 - value for value in LEVELS))
    assert the_change(history).acknowledged is None


def test_a_mute_ends(tmp_path: Path) -> None:
    wrote(tmp_path, LEVELS)
    history = History(tmp_path)
    change = the_change(history)
    reported = note(history, change.id, "until tomorrow", "ann", time.time() - 1)
    assert reported is not None
    assert reported.acknowledged is None


def test_of_an_id_that_is_none_nothing_is_noted(tmp_path: Path) -> None:
    wrote(tmp_path, LEVELS)
    history = History(tmp_path)
    judged(history)
    assert note(history, "../../etc/passwd", "x", "ann", None) is None
    assert acknowledgements(tmp_path) == ()


def a_note(number: int) -> ChangeNote:
    return ChangeNote(f"i{number}", "t", "e", True, "ann", 1.0 + number, "why")


def test_two_who_write_at_once_both_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledged.write(tmp_path, a_note(1))
    with monkeypatch.context() as patch:
        # The other looked before: its number is taken, and it goes on to the next one.
        patch.setattr(acknowledged, "_numbers", lambda folder: [])
        acknowledged.write(tmp_path, a_note(2))
    assert {one.id for one in acknowledgements(tmp_path)} == {"i1", "i2"}


@pytest.mark.parametrize(
    "text",
    [
        "", "not json\n", "[]\n", '{"id":1}\n', '{"id":"x","trend":"t","first":"e","by":"b"',
        "\x00\n",
    ],
)  # fmt: skip
def test_what_is_damaged_or_not_whole_is_left_out(tmp_path: Path, text: str) -> None:
    acknowledged.write(tmp_path, a_note(1))
    (past.results_dir(tmp_path) / "acknowledged" / "00002.jsonl").write_text(text)
    assert [one.id for one in acknowledgements(tmp_path)] == ["i1"]


def test_a_home_that_cannot_be_written_says_so_and_keeps_what_it_had(tmp_path: Path) -> None:
    folder = past.results_dir(tmp_path) / "acknowledged"
    folder.parent.mkdir(parents=True)
    folder.write_text("a file in its place")
    with pytest.raises(OSError, match="."):
        acknowledged.write(tmp_path, a_note(1))
    assert acknowledgements(tmp_path) == ()
