"""`submit --if-idle`, called as often as one likes: one run at a time, each reported once."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.installed import this_python
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.site import cron
from hpcbench.site.cron import Idle, Runs, if_idle
from tests.unit import small


class Cluster:
    """A fake: experiments are folders, and their states are what the test says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plan = root / "plan.yaml"
        self.states: dict[str, str] = {}
        self.due: set[str] = set()
        self.finalised: list[str] = []
        self.submitted: list[str] = []
        self.reported: list[str] = []
        self.said: list[str] = []
        self.meanwhile = lambda: None
        self._lock = threading.Lock()

    @property
    def resolved(self) -> ResolvedPlan:
        return small.resolved(small.run_task())

    def call(self) -> Experiment | None:
        ask = Idle(
            self._prepare, self._submit, lambda now: self.reported.append(now.id), self.said.append
        )
        return if_idle(self.plan, self.resolved, ask)

    def status(self, experiment: Experiment) -> Any:
        return SimpleNamespace(id=experiment.id, state=self.states[experiment.id])

    def finalise(self, experiment: Experiment) -> None:
        self.finalised.append(experiment.id)
        self.states[experiment.id] = "done"
        self.due.discard(experiment.id)

    def _prepare(self) -> Experiment:
        with self._lock:
            experiment = Experiment(self.root / "experiments" / f"e{len(self.states)}")
            self.states[experiment.id] = "interrupted"
        experiment.path.mkdir(parents=True)
        experiment.manifest_file.write_text("{}")
        self.meanwhile()
        return experiment

    def _submit(self, experiment: Experiment) -> None:
        with self._lock:  # as `submit_first`: one at a time, and what is submitted stays so
            if self.states[experiment.id] == "interrupted":
                self.submitted.append(experiment.id)
                self.states[experiment.id] = "pending"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    fake = Cluster(tmp_path)
    monkeypatch.setattr(cron, "status", fake.status)
    monkeypatch.setattr(cron, "due", lambda experiment, now: experiment.id in fake.due)
    monkeypatch.setattr(cron, "_finalise", fake.finalise)
    return fake


def test_the_first_call_submits(cluster: Cluster) -> None:
    experiment = cluster.call()
    assert experiment is not None
    assert cluster.submitted == [experiment.id]
    assert cluster.reported == []


@pytest.mark.parametrize("state", ["pending", "running", "evaluating", "submitting", "paused"])
def test_while_it_runs_nothing_is_submitted_and_one_line_says_so(
    cluster: Cluster, state: str
) -> None:
    cluster.call()
    cluster.states["e0"] = state
    assert cluster.call() is None
    assert cluster.submitted == ["e0"]
    assert cluster.said == [f"e0 is {state}: nothing submitted"]


@pytest.mark.parametrize("state", ["done", "incomplete", "cancelled", "lost"])
def test_once_it_ended_it_is_reported_and_the_next_one_goes(cluster: Cluster, state: str) -> None:
    cluster.call()
    cluster.states["e0"] = state
    assert cluster.call() is not None
    assert cluster.call() is None
    assert (cluster.reported, cluster.submitted) == (["e0"], ["e0", "e1"])


def test_what_waits_for_the_login_node_is_done_first(cluster: Cluster) -> None:
    cluster.call()
    cluster.states["e0"] = "stalled"
    cluster.due = {"e0"}
    assert cluster.call() is not None
    assert cluster.finalised == ["e0"]
    assert cluster.reported == ["e0"]


def test_two_calls_at_once_submit_once(cluster: Cluster) -> None:
    cluster.call()
    cluster.states["e0"] = "done"
    gate = threading.Barrier(8)

    def call(_: int) -> Experiment | None:
        gate.wait()
        return cluster.call()

    with ThreadPoolExecutor(8) as pool:
        found = [one for one in pool.map(call, range(8)) if one is not None]
    assert [one.id for one in found] == ["e1"]
    assert (cluster.reported, cluster.submitted) == (["e0"], ["e0", "e1"])
    assert len(cluster.said) == 7
    # Between the note of an experiment and its submission it looks interrupted: who sees it then submits it.
    either = ("nothing submitted", "completed its interrupted submission")
    assert all(line.endswith(either) for line in cluster.said)


def test_a_call_while_another_one_prepares_leaves_it_alone(cluster: Cluster) -> None:
    inner: list[Experiment | None] = []
    cluster.meanwhile = lambda: inner.append(cluster.call())  # type: ignore[func-returns-value]
    assert cluster.call() is not None
    assert inner == [None]
    assert re.match("process .* submits .* at the moment: nothing submitted", cluster.said[0])


def test_a_preparation_that_fails_is_tried_by_the_next_call_and_tells_nothing_twice(
    cluster: Cluster,
) -> None:
    cluster.call()
    cluster.states["e0"] = "done"

    def fail() -> None:
        raise EnvironmentFault("no space left")

    cluster.meanwhile = fail
    for _ in range(3):
        with pytest.raises(EnvironmentFault):
            cluster.call()
    cluster.meanwhile = lambda: None
    assert cluster.call() is not None
    assert cluster.reported == ["e0"]
    assert len(cluster.submitted) == 2


def test_an_interrupted_submission_is_completed_not_repeated(cluster: Cluster) -> None:
    cluster.call()
    cluster.states["e0"] = "interrupted"
    assert cluster.call() is None
    assert cluster.submitted == ["e0", "e0"]
    assert "completed its interrupted submission" in cluster.said[0]


def dead_claim(cluster: Cluster, number: int) -> Path:
    """Claim of a call that was killed while it prepared."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    runs = Runs(cluster.root, cluster.plan, "plan")
    claimed = runs.claim(number)
    assert claimed is not None
    line = {"event": "claimed", "host": socket.gethostname(), "pid": process.pid}
    claimed.path.write_text(json.dumps(line) + "\n")
    return claimed.path


def test_a_call_that_was_killed_blocks_no_other(cluster: Cluster) -> None:
    dead_claim(cluster, 1)
    assert cluster.call() is not None
    cluster.states["e0"] = "done"
    dead_claim(cluster, 3)
    assert cluster.call() is not None
    assert cluster.reported == ["e0"]


def test_a_call_that_slept_until_another_took_over_submits_nothing(cluster: Cluster) -> None:
    runs = Runs(cluster.root, cluster.plan, "plan")
    cluster.meanwhile = lambda: runs.claim(2) and None  # type: ignore[func-returns-value]
    assert cluster.call() is None
    assert cluster.submitted == []
    assert "another process took over" in cluster.said[0]


def test_an_experiment_that_was_deleted_is_no_reason_to_wait(cluster: Cluster) -> None:
    cluster.call()
    (cluster.root / "experiments/e0/manifest.json").unlink()
    assert cluster.call() is not None
    assert cluster.reported == []


def test_plans_do_not_wait_for_each_other(cluster: Cluster) -> None:
    cluster.call()
    cluster.states["e0"] = "running"
    cluster.plan = cluster.root / "other" / "plan.yaml"
    assert cluster.call() is not None


def test_records_of_long_ago_go(cluster: Cluster) -> None:
    for _ in range(cron.KEPT + 5):
        experiment = cluster.call()
        assert experiment is not None
        cluster.states[experiment.id] = "done"
    (folder,) = cron.cron_dir(cluster.root).iterdir()
    assert len(list(folder.iterdir())) == cron.KEPT
    assert len(cluster.reported) == cron.KEPT + 4


# --- the real thing, without a fake ----------------------------------------------------------------------


def test_what_is_due_is_done_by_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []
    monkeypatch.setattr(
        "hpcbench.site.cron.subprocess.run", lambda argv, **more: called.append(argv)
    )
    experiment = small.experiment(tmp_path, [small.record(1)])
    cron._finalise(experiment)
    assert called == [[*this_python(), "-m", "hpcbench.finalise", str(experiment.path)]]
