"""The follower: events of a home are in the index, and sent to readers, soon and at little cost."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hpcbench import slurm
from hpcbench.experiment.baselines import name_it
from hpcbench.experiment.claims import Claim, Owner, claim, shard_states
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_json
from hpcbench.portal import experiment_watch
from hpcbench.portal import follower as following
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.context import Options, Portal
from hpcbench.portal.follower import Follower
from hpcbench.portal.index import ExperimentQuery, IndexFault, open_index
from hpcbench.portal.models.live import ExperimentNews
from hpcbench.portal.slurm_poller import Asker
from hpcbench.portal.throttle import Pace
from tests.unit.past import past
from tests.unit.portal.test_portal_index_entries import evaluated, table
from tests.unit.scene import Scene
from tests.unit.small import response

SECONDS = 60.0
"""So long anything is waited for."""


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[Portal]:
    home = tmp_path / "home"
    home.mkdir()
    found = Portal(home, Options(home), open_index(None, home), Hub())
    yield found
    found.index.close()


@pytest.fixture
def follower(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    """One whose rounds the test makes itself."""
    monkeypatch.setattr(following, "LIST_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(following, "BASELINE_SECONDS", 0.0)
    monkeypatch.setattr(following, "FILL_SECONDS", 0.0)
    monkeypatch.setattr(following, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(following, "SHARE", 100.0)  # as often as there is something to do
    monkeypatch.setattr(following, "WRITE_SECONDS", (0.0, 0.0))
    for name in ("POLL_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(experiment_watch, name, (0.0, 0.0))
    monkeypatch.setattr(experiment_watch, "TELL_SECONDS", 0.0)
    monkeypatch.setattr(experiment_watch, "QUIET_SECONDS", 0.0)
    found = Follower(portal)
    yield found
    found.stop()


class Reported:
    """Messages to the hub since then."""

    def __init__(self, portal: Portal) -> None:
        self._hub, self._seq = portal.hub, portal.hub.seq

    def news(self) -> list[ExperimentNews]:
        """New messages."""
        found = self._hub.since(self._seq)
        self._seq = found.seq
        return [one for one in found.news if isinstance(one, ExperimentNews)]


def done(home: Path, name: str) -> Experiment:
    """An experiment that has ended in order."""
    here = past(home, name)
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[asdict(one) for one in here.work.groups])
        log.write("handed")
    return here


def until(follower: Follower, condition: Callable[[], Any]) -> Any:
    """Rounds until something holds."""
    end = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, "it never came"
        follower.round()
        time.sleep(0.01)
    return found


def ids(portal: Portal) -> list[str]:
    return [
        row.id for row in portal.index.experiments(ExperimentQuery(sort="id", order="asc")).items
    ]


def state(portal: Portal, identity: str) -> str | None:
    row = portal.index.experiment(identity)
    return row.state if row else None


class Running:
    """An experiment under the local executor, whose worker is this process."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, samples: int = 40) -> None:
        self.here = past(
            home,
            "20261120-1432-plan-aaaa",
            samples=samples,
            ended=False,
            plan={"executor": "local"},
        )
        monkeypatch.setattr("hpcbench.status.own_jobs.supervisors", lambda *_: (["1:1"], ""))
        monkeypatch.setattr("hpcbench.status.own_jobs.process_lives", lambda *_: True)
        self.owner = Owner.here()
        groups = [asdict(one) for one in self.here.work.groups]
        with EventLog(self.here.submission_file) as log:
            log.write("round", round=0, groups=groups)
            log.write("intent", step="supervise")
            log.write("submitted", step="supervise", job=f"{self.owner.host}:{self.owner.pid}")
            log.write("handed")
        self.news = EventLog(self.here.worker_events("g0", self.owner.id))
        self.news.write("started", owner={"job": self.owner.job, "restart": 0, "host": self.owner.host,
                                          "pid": self.owner.pid, "node": "n1"})  # fmt: skip
        self.held: Claim | None = None

    def claims(self) -> None:
        """The next shard."""
        (first, *_) = [one for one in shard_states(self.here, ["rt"]) if one.claimable]
        self.held = claim(self.here, first, self.owner)
        assert self.held is not None
        self.news.write("shard_claimed", shard=self.held.shard.id, attempt=1)

    def answers(self, count: int) -> None:
        """So many more, written as workers write them."""
        assert self.held is not None
        for number in range(count):
            self.held.record(response(f"s{len(self.held.answered) + number}"))
        self.held.acknowledge()
        self.news.write("progress", shard=self.held.shard.id, answered=len(self.held.answered))

    def ends_shard(self) -> None:
        """It is done."""
        assert self.held is not None
        self.held.end("done")

    def ends(self) -> None:
        """All of it."""
        self.news.write("finished")
        self.news.close()
        evaluated(self.here, rt=table(0.5))
        write_json(self.here.outcome_file, {"version": 1, "round": 0, "state": "done"})


# --- what is there -----------------------------------------------------------------------------------------


def test_new_gone_and_damaged_experiments(portal: Portal, follower: Follower) -> None:
    reported = Reported(portal)
    done(portal.home, "e1")
    done(portal.home, "e2").resolved_file.write_text("{")
    (portal.home / "experiments" / "no-manifest").mkdir()
    (portal.home / "experiments" / ".hidden").mkdir()
    (portal.home / "experiments" / "a file").write_text("")
    (portal.home / "experiments" / "link").symlink_to(portal.home / "experiments" / "e1")
    until(follower, lambda: len(ids(portal)) == 2)
    assert (state(portal, "e1"), state(portal, "e2")) == ("done", "unreadable")
    assert reported.news() == []  # these were read first: no message for each of them
    done(portal.home, "e3")
    until(follower, lambda: "e3" in ids(portal))
    assert [(one.experiment, one.changed) for one in reported.news()] == [("e3", ("new",))]
    shutil.rmtree(portal.home / "experiments" / "e1")
    until(follower, lambda: ids(portal) == ["e2", "e3"])
    assert [(one.experiment, one.changed) for one in reported.news()] == [("e1", ("gone",))]


def test_a_page_opened_while_experiments_are_read_fetches_them_again(
    portal: Portal, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("e1", "e2", "e3"):
        done(portal.home, name)
    run = Running(portal.home, monkeypatch)
    opened = portal.hub.seq
    until(follower, lambda: len(ids(portal)) == 4 and follower._whole.is_set())
    follower.round()
    reset, running = portal.hub.since(opened).news
    assert reset.kind == "reset"
    assert isinstance(running, ExperimentNews) and "new" in running.changed
    run.news.close()


def test_a_message_that_precedes_the_index_comes_again_after_the_entry(
    portal: Portal, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Running(portal.home, monkeypatch)
    monkeypatch.setattr(following, "WRITE_SECONDS", (3600.0, 3600.0))
    until(follower, lambda: state(portal, run.here.id) == "running")
    reported = Reported(portal)
    evaluated(run.here, rt=table(0.5))
    for scored in (0, 1):
        (news,) = until(follower, reported.news)
        row = portal.index.experiment(run.here.id)
        assert row is not None and (news.changed, row.scored) == (("scores",), scored)
        follower._watches[run.here.id].writing.soon(0.0)
    run.news.close()


@pytest.mark.long
def test_one_that_was_damaged_is_read_again_when_it_is_whole(
    portal: Portal, follower: Follower
) -> None:
    here = done(portal.home, "e1")
    whole = here.manifest_file.read_bytes()
    here.manifest_file.write_bytes(whole[:100])
    until(follower, lambda: state(portal, "e1") == "unreadable")
    here.manifest_file.write_bytes(whole)
    until(follower, lambda: state(portal, "e1") == "done")


def test_a_home_without_experiments_and_one_that_comes(portal: Portal, follower: Follower) -> None:
    follower.round()
    assert follower._whole.is_set()
    done(portal.home, "e1")
    until(follower, lambda: ids(portal) == ["e1"])


def test_what_ended_is_not_opened_again(
    portal: Portal, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(portal.home, "e1")
    until(follower, lambda: portal.index.known("e1"))
    opened: list[str] = []
    monkeypatch.setattr("hpcbench.portal.index_entries.planned", lambda one: opened.append(one.id))
    for _ in range(5):
        follower.round()
    other = Follower(portal)  # and a portal that starts with this index does not, either
    for _ in range(5):
        other.round()
    assert opened == []
    assert follower.worked > 0.0, "memory is given back after work alone"
    assert other.worked == 0.0


@pytest.mark.long
def test_scores_a_verdict_and_a_baseline_of_one_that_ended_are_noticed(
    portal: Portal, follower: Follower
) -> None:
    here = done(portal.home, "e1")
    until(follower, lambda: ids(portal))
    reported = Reported(portal)
    evaluated(here, rt=table(0.5))
    until(follower, lambda: (row := portal.index.experiment("e1")) and row.score)
    assert [one.changed for one in reported.news()] == [("scores",)]
    write_json(here.verdict_file, {"verdict": "NO-GO"})
    until(follower, lambda: (row := portal.index.experiment("e1")) and row.verdict == "NO-GO")
    name_it(portal.home, "good", "e1")
    until(follower, lambda: (row := portal.index.experiment("e1")) and row.baselines == ("good",))
    name_it(portal.home, "good", None)
    until(follower, lambda: (row := portal.index.experiment("e1")) and row.baselines == ())


@pytest.mark.long
def test_one_that_is_resumed_is_followed_again(
    portal: Portal, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Running(portal.home, monkeypatch)
    write_json(run.here.outcome_file, {"version": 1, "round": 0, "state": "incomplete"})
    until(follower, lambda: state(portal, run.here.id) == "incomplete")
    with EventLog(run.here.submission_file) as log:
        log.write("round", round=1, groups=[asdict(one) for one in run.here.work.groups])
        log.write("intent", step="supervise")
        log.write("submitted", step="supervise", job=f"{run.owner.host}:{run.owner.pid}")
        log.write("handed")
    run.claims()
    run.answers(3)
    until(follower, lambda: state(portal, run.here.id) == "running")
    run.news.close()


def test_statuses_of_what_is_done_are_found_in_quiet_moments(
    portal: Portal, follower: Follower
) -> None:
    here = done(portal.home, "e1")
    with EventLog(here.worker_events("g0", "17_0-0")) as log:
        log.write("started", owner={"job": "17_0", "restart": 0, "host": "h", "pid": 1})
        log.write("model_failed", model="m", cause="CUDA out of memory")
        log.write("finished")
    until(follower, lambda: (row := portal.index.experiment("e1")) and row.failures == 1)
    known = portal.index.known("e1")
    assert known is not None
    assert [one.kind for one in known.status.failures] == ["model_failed"]


# --- what runs ---------------------------------------------------------------------------------------------


def test_progress_is_reported_and_in_the_index(
    portal: Portal, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Running(portal.home, monkeypatch)
    until(follower, lambda: state(portal, run.here.id) == "running")
    reported = Reported(portal)
    run.claims()
    run.answers(4)

    def progress() -> list[Any]:
        return [one for news in reported.news() for one in news.progress if one.answered == 4]

    (last, *_) = until(follower, progress)
    assert (last.run_task, last.state, last.samples) == ("rt", "running", 40)
    task = until(
        follower,
        lambda: (row := portal.index.run_task(run.here.id, "rt")) and row.answered == 4 and row,
    )
    assert task.state == "running"
    run.answers(6)
    run.ends_shard()
    until(follower, lambda: (row := portal.index.experiment(run.here.id)) and row.answered == 10)
    shards = follower.shards(run.here.id, "rt")
    assert shards is not None
    until(
        follower,
        lambda: (
            [one.state for one in follower.shards(run.here.id, "rt") or ()][:2]
            == ["done", "pending"]
        ),
    )
    run.news.close()


def test_between_two_whole_looks_events_say_how_far_it_is(
    portal: Portal, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Running(portal.home, monkeypatch)
    until(follower, lambda: follower.status(run.here.id))
    follower.round()
    monkeypatch.setattr(experiment_watch, "LOOK_SECONDS", (3600.0, 3600.0))
    monkeypatch.setattr(experiment_watch, "QUIET_SECONDS", 3600.0)
    follower.round()
    looked = follower.status(run.here.id)
    assert looked is not None
    run.claims()
    run.answers(7)
    until(follower, lambda: (row := portal.index.experiment(run.here.id)) and row.answered == 7)
    after = follower.status(run.here.id)
    assert after is not None
    assert after.time == looked.time
    assert [one.state for one in after.run_tasks] == ["running"]
    run.news.close()


def test_its_end_is_reported_and_it_is_not_followed_any_more(
    portal: Portal, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Running(portal.home, monkeypatch, samples=10)
    until(follower, lambda: state(portal, run.here.id) == "running")
    reported = Reported(portal)
    run.claims()
    run.answers(10)
    run.ends_shard()
    run.ends()
    until(follower, lambda: state(portal, run.here.id) == "done")
    row = portal.index.experiment(run.here.id)
    assert row is not None and row.score is not None and row.answered == 10
    until(
        follower,
        lambda: any(
            {"state", "scores"} <= set(one.changed) and one.state == "done"
            for one in reported.news()
        ),
    )
    assert follower.status(run.here.id) is None
    assert portal.index.stamps()[run.here.id]
    assert portal.index.known(run.here.id) is not None


def test_torn_lines_and_files_that_vanish_stop_no_reader(
    portal: Portal,
    follower: Follower,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Running(portal.home, monkeypatch)
    until(follower, lambda: state(portal, run.here.id) == "running")
    run.claims()
    with run.here.worker_events("g0", run.owner.id).open("ab") as file:
        file.write(b'{"event":"progress","seq":3,"ti')
    for _ in range(3):
        follower.round()
    done(portal.home, "e2")
    until(follower, lambda: "e2" in ids(portal))
    shutil.rmtree(run.here.path)
    until(follower, lambda: ids(portal) == ["e2"])
    run.news.close()
    caplog.clear()


def test_a_fault_in_one_experiment_does_not_stop_the_others(
    portal: Portal,
    follower: Follower,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = Running(portal.home, monkeypatch)
    until(follower, lambda: state(portal, run.here.id) == "running")

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("nobody expects this")

    monkeypatch.setattr("hpcbench.portal.experiment_watch.Watch.follow", broken)
    with caplog.at_level(logging.CRITICAL):
        done(portal.home, "e2")
        until(follower, lambda: "e2" in ids(portal))
    run.news.close()


def test_while_the_database_is_away_nothing_is_done_and_then_all_of_it(
    portal: Portal,
    follower: Follower,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(following, "FAULT_SECONDS", (0.05, 0.1))
    done(portal.home, "e1")
    whole = portal.index.stamps
    asked: list[int] = []

    def away() -> dict[str, str]:
        asked.append(1)
        raise IndexFault("away")

    monkeypatch.setattr(portal.index, "stamps", away)
    for _ in range(100):
        follower.round()
    assert 1 <= len(asked) < 50
    assert all(one.exc_info is None for one in caplog.records)
    monkeypatch.setattr(portal.index, "stamps", whole)
    until(follower, lambda: ids(portal) == ["e1"])


def test_the_thread_outlives_a_fault(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def broken(self: Follower) -> None:
        calls.append(1)
        raise RuntimeError("nobody expects this")

    monkeypatch.setattr(Follower, "round", broken)
    monkeypatch.setattr(following, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(following, "_log", logging.getLogger("quiet"))
    logging.getLogger("quiet").disabled = True
    found = Follower(portal)
    found.start()
    end = time.monotonic() + SECONDS
    while len(calls) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    found.stop()
    assert len(calls) >= 3


def test_an_index_that_is_deleted_while_it_runs_is_filled_again(
    portal: Portal, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(portal.home, "e1")
    run = Running(portal.home, monkeypatch)
    run.claims()
    run.answers(3)
    until(follower, lambda: len(ids(portal)) == 2)
    (file,) = Path(os.environ["XDG_CACHE_HOME"]).rglob("*.sqlite")
    for path in file.parent.iterdir():
        path.unlink()
    until(follower, lambda: len(ids(portal)) == 2 and file.exists())
    row = portal.index.experiment(run.here.id)
    assert row is not None and row.answered == 3
    run.news.close()


def test_news_come_without_a_hand_while_a_client_watches(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Running(portal.home, monkeypatch)
    found = Follower(portal)
    found.start()
    portal.hub.polled()  # a reader is there
    assert found._whole.wait(SECONDS)
    reported = Reported(portal)
    run.claims()
    run.answers(2)
    end = time.monotonic() + SECONDS
    while not any(one.answered == 2 for one in reported.news()):
        assert time.monotonic() < end
        time.sleep(0.02)
    found.stop()
    run.news.close()


def test_messages_of_an_experiment_are_put_together(
    portal: Portal, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Running(portal.home, monkeypatch)
    until(follower, lambda: state(portal, run.here.id) == "running")
    monkeypatch.setattr(experiment_watch, "TELL_SECONDS", 3600.0)
    reported = Reported(portal)
    run.claims()
    for _ in range(5):
        run.answers(1)
        follower.round()
    until(follower, lambda: (row := portal.index.experiment(run.here.id)) and row.answered == 5)
    assert len(reported.news()) <= 1
    run.news.close()


# --- Slurm -------------------------------------------------------------------------------------------------


def test_slurm_is_asked_aside_and_not_more_often_than_its_word_is_old(tmp_path: Path) -> None:
    asked: list[float] = []

    def ask(newer_than: float) -> slurm.Snapshot:
        asked.append(newer_than)
        return slurm.Snapshot((), time.time())

    asker = Asker(ask)
    assert asker.newest(5.0) is None
    end = time.monotonic() + SECONDS
    while asker.newest(5.0) is None and time.monotonic() < end:
        time.sleep(0.01)
    for _ in range(50):
        assert asker.newest(5.0) is not None
    assert asked == [5.0]
    assert asker.newest(time.time() + 60) is None  # something was submitted since
    asker.stop()


def test_a_slurm_that_does_not_answer_leaves_the_files(portal: Portal, follower: Follower) -> None:
    scene = Scene(portal.home, {"a": 40})
    scene.submitted()
    scene.worker()
    scene.claimed(answered=4)
    follower._asker = Asker(lambda _: slurm.Snapshot((), 0.0, "Slurm is away"))
    found = until(follower, lambda: (row := portal.index.experiment(scene.experiment.id)) and row)
    assert found.answered == 4


def test_one_that_is_long_lost_is_known_by_its_files(portal: Portal, follower: Follower) -> None:
    scene = Scene(portal.home, {"a": 40})
    scene.submitted(ago=10 * 24 * 3600.0)
    scene.worker(ago=9 * 24 * 3600.0, heard=9 * 24 * 3600.0)
    follower._asker = Asker(lambda _: slurm.Snapshot((), time.time()))
    until(follower, lambda: state(portal, scene.experiment.id) in ("lost", "stalled"))
    if state(portal, scene.experiment.id) == "lost":
        until(follower, lambda: portal.index.stamps()[scene.experiment.id])
        assert follower.status(scene.experiment.id) is None


# --- pace --------------------------------------------------------------------------------------------------


def test_what_takes_long_is_done_rarely() -> None:
    now, busy = [0.0], [0.0]
    pace = Pace(0.05, lambda: now[0], lambda: busy[0])
    assert pace.due()
    with pace.work(1.0):
        busy[0] += 0.001
    now[0] = 0.99
    assert not pace.due()
    now[0] = 1.0
    assert pace.due()
    with pace.work(1.0):
        busy[0] += 1.0
    now[0] = 20.9
    assert not pace.due()
    pace.soon(0.1)
    assert not pace.due()
    now[0] = 21.0
    assert pace.due()


def test_what_is_wanted_soon_is_done_soon_if_it_does_not_take_long() -> None:
    now, busy = [0.0], [0.0]
    pace = Pace(0.05, lambda: now[0], lambda: busy[0])
    with pace.work(30.0):
        busy[0] += 0.001
    pace.soon(0.5)
    now[0] = 0.5
    assert pace.due()


def test_ids_are_never_paths(portal: Portal, follower: Follower) -> None:
    outside = past(portal.home.parent / "other", "e1")
    (portal.home / "experiments").mkdir()
    (portal.home / "experiments" / "e1").symlink_to(outside.path)
    for _ in range(3):
        follower.round()
    assert ids(portal) == []
    assert json.loads(outside.manifest_file.read_text())
    assert Experiment(portal.home / "experiments" / "e1").id == "e1"
