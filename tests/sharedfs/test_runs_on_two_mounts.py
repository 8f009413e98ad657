"""Whole runs over a network file system: seen from another node, without room, without leave to write."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import first
from tests.faults.conftest import Bench, Trial, calm, kill, shared_cache, until, whole
from tests.sharedfs.actors import on_host
from tests.sharedfs.volume import Volume

__all__ = ["calm", "shared_cache"]

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

SLOW = [900, 1100]
"""Milliseconds of an answer, where something is to happen meanwhile: commands of GlusterFS's take seconds."""


@pytest.fixture
def bench(folder: Path, shared_cache: Path, tmp_path: Path) -> Iterator[Bench]:
    """A user whose home is on the volume; her engine writes elsewhere, as its answers do not depend on it."""
    made = Bench(folder, shared_cache, engines=tmp_path)
    yield made
    for path in (made.home / "experiments").glob("2*"):
        Trial(made, path).kill_all()


class NodeB:
    """The same user's shell on another node."""

    def __init__(self, bench: Bench, shared: Volume) -> None:
        self._environ = {**bench.environ, "HPCBENCH_HOME": str(shared.there(bench.home))}

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command of hpcbench; all it says."""
        done = subprocess.run(
            [*on_host("b"), sys.executable, "-m", "hpcbench.cli.main", *words],
            env=self._environ, text=True, timeout=120, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout

    def state(self, trial: Trial) -> str:
        """State of an experiment by `hpcbench status`, in a word."""
        found: dict[str, Any] = json.loads(self.run("status", trial.id, "--json"))
        return str(found["state"])


@pytest.fixture
def node_b(bench: Bench, shared: Volume) -> NodeB:
    return NodeB(bench, shared)


def test_a_run_is_running_until_it_is_done_for_who_looks_from_another_node_too(
    bench: Bench, node_b: NodeB, calm: Trial
) -> None:
    bench.script(answer_ms=SLOW)
    trial = bench.submit(bench.plan({}, parallelism=2))
    until(lambda: trial.answered() > 4, "answers")

    assert node_b.state(trial) == "running"
    refused = node_b.run("resume", trial.id, code=2)
    assert f"{trial.id} was started on {socket.gethostname()}, and only that machine" in refused
    assert "--force" in refused
    bench.script(answer_ms=[1, 3])
    seen = [node_b.state(trial)]
    while trial.pids("hpcbench.submit.local"):
        seen.append(node_b.state(trial))

    assert set(seen) <= {"running", "evaluating", "done"}, seen
    until(lambda: node_b.state(trial) == "done", "the end to be seen")
    assert trial.rounds == 1
    assert trial.twice() == []
    whole(trial, calm)
    assert "exact_match" in node_b.run("report", trial.id)


@contextlib.contextmanager
def full(shared: Volume, step: int) -> Iterator[None]:
    """A process on the other node fills the volume, step by step, in bytes."""
    filler = shared.b / "filler"
    with (
        contextlib.suppress(OSError),
        filler.open("wb", buffering=0) as file,
    ):  # closing tells it once more
        for size in (step, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
                    os.fsync(file.fileno())
    try:
        yield
    finally:
        filler.unlink()
        until(lambda: _takes_files(shared.a), "the room to be seen")


def _takes_files(folder: Path) -> bool:
    try:
        (folder / "probe").write_text("x")
        (folder / "probe").unlink()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _unlimited(shared: Volume) -> Iterator[int]:
    yield 1 << 16


@contextlib.contextmanager
def _with_quota(shared: Volume) -> Iterator[int]:
    """The user may have 8 MB; set before the run, as GlusterFS takes seconds for it.

    GlusterFS lets the write pass that goes over the quota. Bigger steps would take the ballast's room too.
    """
    with shared.quota(8):
        yield 1 << 13


Limit = Callable[[Volume], contextlib.AbstractContextManager[int]]
"""Limits the volume; gives the steps in which to fill it, bytes."""

ENOSPC = pytest.param(_unlimited, "disk full: no space left", id="ENOSPC")
EDQUOT = pytest.param(_with_quota, "disk full: quota exceeded", id="EDQUOT")


@pytest.mark.parametrize(("limit", "said"), first(1, [EDQUOT, ENOSPC]))
def test_a_run_without_room_says_so_and_goes_on_with_room(
    bench: Bench, shared: Volume, calm: Trial, limit: Limit, said: str
) -> None:
    with limit(shared) as step:
        bench.script(answer_ms=SLOW)
        trial = bench.submit(bench.plan({}, max_resubmits=0))
        until(lambda: trial.answered() > 2, "answers")
        before = trial.answers()
        with full(shared, step):
            until(lambda: not trial.workers(), "the worker's end")
            until(lambda: not trial.pids("hpcbench.submit.local"), "the supervisor's end")
            assert said in trial.screen(), _logs(trial)
        assert said in [one["message"].partition(" below ")[0] for one in trial.said("disk_full")]

        bench.script(answer_ms=[1, 3])
        trial.resume()
        trial.wait("done")
        whole(trial, calm, [before])


@pytest.mark.parametrize(("limit", "said"), first(1, [ENOSPC, EDQUOT]))
def test_a_run_that_finds_no_room_for_its_results_says_so_and_goes_on_with_room(
    bench: Bench, shared: Volume, calm: Trial, limit: Limit, said: str
) -> None:
    with limit(shared) as step:
        bench.script(answer_ms=SLOW)
        trial = bench.submit(bench.plan({}))
        (supervisor,) = until(lambda: trial.pids("hpcbench.submit.local"), "the supervisor")
        until(lambda: trial.answered() > 4, "answers")
        os.kill(supervisor, signal.SIGSTOP)
        bench.script(answer_ms=[1, 3])
        try:
            until(lambda: not trial.workers(), "the worker's end")
            with full(shared, step):
                os.kill(supervisor, signal.SIGCONT)
                until(lambda: not trial.pids("hpcbench.submit.local"), "the supervisor's end")
                assert said in trial.screen(), _logs(trial)
        finally:
            kill(supervisor, signal.SIGCONT)

        trial.resume()
        trial.wait("done")
        whole(trial, calm)
        assert not list(trial.path.rglob("*.ballast"))


@pytest.mark.parametrize(
    ("what", "state", "said"),
    first(1, [
        # The shard at hand has lost its worker; the others are done in the new folder.
        ("folder", "incomplete", "worker lost: its worker is gone"),
        # What the worker said after that is lost, and no answer.
        ("events", "done", "worker lost: a worker ended without a message"),
    ]),
)  # fmt: skip
def test_a_run_whose_files_another_node_replaced_comes_to_its_end_with_every_answer(
    bench: Bench, shared: Volume, calm: Trial, what: str, state: str, said: str
) -> None:
    """As who restores a backup, or moves a copy into place: names and open files of the worker are stale."""
    bench.script(answer_ms=SLOW)
    trial = bench.submit(bench.plan({}, max_resubmits=0))
    until(lambda: trial.answered() > 4, "answers")
    (worker,) = trial.workers()
    (events,) = trial.path.glob("workers/g0.*.events.jsonl")
    os.kill(worker, signal.SIGSTOP)
    try:
        before = trial.answers()
        replaced = trial.path if what == "folder" else events
        copy = replaced.with_name(f"{replaced.name}.copy")
        (shutil.copytree if what == "folder" else shutil.copy2)(replaced, copy)
        there = shared.there(replaced)
        if what == "folder":
            there.rename(there.with_name("old"))
        shared.there(copy).rename(there)
        if what == "folder":
            shutil.rmtree(there.with_name("old"))
    finally:
        os.kill(worker, signal.SIGCONT)

    bench.script(answer_ms=[1, 3])
    until(lambda: not trial.pids("hpcbench.submit.local"), "the supervisor's end")
    seen = trial.screen()
    assert f"{trial.id}  {state}" in seen, _logs(trial)
    assert said in seen
    trial.resume()
    trial.wait("done")
    whole(trial, calm, [before])


def test_a_run_whose_writes_the_server_refuses_says_so_and_goes_on_when_it_may(
    bench: Bench, shared: Volume, calm: Trial
) -> None:
    """As root on a node of a site that squashes it."""
    bench.script(answer_ms=SLOW)
    trial = bench.submit(bench.plan({}, max_resubmits=0))
    until(lambda: trial.answered() > 4, "answers")
    before = trial.answers()

    with shared.squashed():
        until(lambda: not trial.workers(), "the worker's end")
        until(lambda: not trial.pids("hpcbench.submit.local"), "the supervisor's end")
        plan = bench.folder / "faults.yaml"
        refused = bench.run("submit", plan, "--registry", bench.folder / "registry", code=None)
        assert "Permission denied" in "".join(refused)

    assert "Permission denied" in trial.screen(), _logs(trial)
    bench.script(answer_ms=[1, 3])
    trial.resume()
    trial.wait("done")
    whole(trial, calm, [before])


def _logs(trial: Trial) -> str:
    """Standard output and error of its jobs."""
    return "\n".join(
        f"{path.name}:\n{path.read_text(errors='replace')[-3000:]}"
        for path in sorted(trial.path.glob("jobs/*.*"))
        if path.suffix in (".out", ".err", ".log")
    )
