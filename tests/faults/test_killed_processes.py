"""kill -9 of worker, wrapper, engine, supervisor, submit; workers that sleep, or whose clock is wrong."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.campaign import first
from tests.faults.conftest import Bench, Trial, kill, until, whole

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

SLOW = [200, 300]
"""Milliseconds of an answer, where something is to happen meanwhile."""


def test_an_undisturbed_run_answers_everything_once(calm: Trial) -> None:
    assert len(calm.answers()) == 40
    assert calm.twice() == []
    table = json.loads(calm.metrics)["run_tasks"]["numbers"]
    assert 0.5 < table["metrics"]["exact_match"]["value"] < 0.8


# Workers are killed on the cluster: tests/slurm/test_status_real.py. Engines die of themselves in
# test_failing_engines.py.
@pytest.mark.parametrize("victim", first(1, ["wrapper", "engine", "worker"]))
def test_kills_at_random_moments_lose_nothing_and_change_no_score(
    bench: Bench, calm: Trial, victim: str
) -> None:
    bench.script(answer_ms=SLOW)
    trial = bench.submit(bench.plan({}, parallelism=2))
    chance, acknowledged, killed = random.Random(victim), list[dict[str, str]](), 0
    find = {"worker": trial.workers, "wrapper": trial.wrappers, "engine": trial.engines}[victim]
    for _ in range(3):
        begin = trial.answered()
        until(
            lambda begin=begin: (
                (trial.answered() > begin and find()) or not trial.pids("hpcbench.submit.local")
            ),
            "answers",
        )
        time.sleep(chance.uniform(0, 0.2))
        acknowledged.append(trial.answers())
        if pids := find():
            killed += kill(chance.choice(pids))
    assert killed
    bench.script(answer_ms=[1, 3])

    status = trial.wait("done", "incomplete", "failed")

    if status["state"] in (
        "incomplete",
        "failed",
    ):  # no program can tell a kill -9 of an engine from a lack of memory
        assert victim != "worker"
        trial.resume()
        status = trial.wait("done")
    whole(trial, calm, acknowledged)
    causes = " ".join(one["cause"] for one in status["failures"])
    said = {"worker": "its worker is gone", "wrapper": "the wrapper", "engine": "SIGKILL"}[victim]
    assert said in causes, status["failures"]
    assert said in trial.screen()
    assert (
        "numbers" in causes or status["failures"][0]["run_tasks"] or status["failures"][0]["models"]
    )


def test_a_supervisor_killed_with_all_its_workers_is_reported_and_resumed(
    bench: Bench, calm: Trial
) -> None:
    bench.script(answer_ms=SLOW)
    trial = bench.submit(bench.plan({}, parallelism=2))
    until(lambda: trial.answered() > 5, "answers")
    before = trial.answers()
    trial.kill_all()

    status = trial.wait("lost")

    assert status["failures"], status
    assert "lost" in trial.screen()
    bench.script(answer_ms=[1, 3])
    trial.resume()
    trial.wait("done")
    whole(trial, calm, [before])
    assert trial.rounds == 2


KILLER = """
import os, sys
at = int(os.environ.pop("KILLED_AT", "0"))
if at:
    import atexit
    count = 0
    report = os.environ.pop("KILLED_LOG")

    def counted(real):
        def call(*arguments, **named):
            global count
            count += 1
            if count == at:
                os.kill(os.getpid(), 9)
            return real(*arguments, **named)
        return call

    for name in ("fsync", "link", "replace", "rename", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    import subprocess
    subprocess.Popen.__init__ = counted(subprocess.Popen.__init__)
    atexit.register(lambda: open(report, "w").write(str(count)))
"""
"""A sitecustomize.py that ends a process before the nth thing it does to files, or to processes."""


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> int:
    """How many such things an undisturbed submit does."""
    bench = Bench(tmp_path_factory.mktemp("steps"), shared_cache)
    log = bench.folder / "steps"
    trial = bench.submit(
        bench.plan({}),
        **_with(bench, KILLER),
        KILLED_AT=str(10**9),
        KILLED_LOG=str(log),
    )
    until(lambda: trial.pids("hpcbench.submit.local"), "the supervisor")
    trial.kill_all()  # no test reads its answers
    return int(log.read_text())


@pytest.mark.parametrize("share", first(1, [0.5, 0.93, 0.2, 0.7, 0.85, 1.0]))
def test_submit_killed_at_any_step_and_run_again_submits_one_experiment(
    bench: Bench, calm: Trial, steps: int, share: float
) -> None:
    plan = bench.plan({})
    at = max(1, round(share * steps))
    command = ("submit", plan, "--registry", bench.folder / "registry", "--json")

    killed = bench.start(
        *command, **_with(bench, KILLER), KILLED_AT=str(at), KILLED_LOG=str(bench.folder / "n")
    )
    killed.communicate(timeout=60)
    assert killed.returncode == -9
    complete = [path for path in _experiments(bench) if (path / "manifest.json").exists()]
    ended = bench.run("list", "--json")
    trial = bench.submit(plan)

    trial.wait("done")
    whole(trial, calm)
    assert trial.twice() == []
    assert trial.rounds == 1
    assert json.loads(ended[0]) is not None
    known = json.loads(bench.run("list", "--json")[0])
    # Once all is handed over, the second submit is another experiment of the same plan.
    for one in known:
        Trial(bench, bench.home / "experiments" / one["id"]).wait("done")
    assert len(known) <= 1 + len(complete)


@pytest.mark.parametrize("further", first(1, [12, 0, 25, 33, 40]))
def test_submit_killed_while_it_takes_answers_over_asks_nothing_twice(
    bench: Bench, calm: Trial, steps: int, further: int
) -> None:
    plan, reuse = bench.plan({}), ("--reuse", "greedy")
    bench.submit(plan).wait("done")
    command = ("submit", plan, "--registry", bench.folder / "registry", "--json", *reuse)

    killed = bench.start(
        *command,
        **_with(bench, KILLER),
        KILLED_AT=str(steps + further),
        KILLED_LOG=str(bench.folder / "n"),
    )
    killed.communicate(timeout=60)
    trial = bench.submit(plan, *reuse)

    trial.wait("done")
    whole(trial, calm)
    assert killed.returncode == -9
    assert list(trial.path.glob("workers/*")) == []  # nothing was left to ask
    assert json.loads((trial.path / "reused.json").read_text())["run_tasks"].keys() == {"numbers"}


@pytest.mark.campaign  # fenced on the cluster: tests/slurm/test_faults_daemons.py
def test_a_worker_that_sleeps_through_its_release_is_fenced_and_doubles_nothing(
    bench: Bench, calm: Trial
) -> None:
    """As after a file system that hung, or a node that Slurm took for dead: others have gone on."""
    from hpcbench.experiment.claims import release, shard_states
    from hpcbench.experiment.layout import Experiment

    bench.script(answer_ms=[150, 250])
    trial = bench.submit(bench.plan({"concurrency": 2}, parallelism=2))
    until(lambda: len(trial.workers()) == 2 and trial.answered() > 4, "answers of two workers")
    sleeper = trial.workers()[0]
    kill(sleeper, signal.SIGSTOP)
    time.sleep(0.3)
    before = trial.answers()
    experiment = Experiment(trial.path)
    held = [
        state
        for state in shard_states(experiment, ["numbers"])
        if state.state == "claimed" and (state.owner or {}).get("pid") == sleeper
    ]
    assert held
    assert release(experiment, held[0], "its worker is gone")
    bench.script(answer_ms=[1, 3])
    until(lambda: len(trial.answers()) == 40, "the other worker to do all of it")

    kill(sleeper, signal.SIGCONT)

    status = trial.wait("done")
    whole(trial, calm, [before])
    assert trial.said("fenced"), "it was not fenced"
    assert "took over" in " ".join(one["cause"] for one in status["failures"] + status["alarms"])


SKEWED = """
import os, sys, time
with open("/proc/self/cmdline", "rb") as file:
    command = file.read()
if b"submitit.core._submit" in command:
    for shift in (7200.0, -5400.0):
        try:
            os.close(os.open(os.environ["SKEW"] + str(shift), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        real = time.time
        time.time = lambda: real() + shift
        break
"""
"""A sitecustomize.py that gives the first two jobs a clock of another time."""


def test_workers_whose_clocks_are_hours_off_do_everything_once(bench: Bench, calm: Trial) -> None:
    bench.script(answer_ms=SLOW)
    trial = bench.submit(
        bench.plan({}, parallelism=3), **_with(bench, SKEWED), SKEW=str(bench.folder / "skew")
    )
    until(lambda: trial.answered() > 5, "answers")
    during = trial.status()
    screen = trial.screen()
    bench.script(answer_ms=[1, 3])

    status = trial.wait("done")

    whole(trial, calm)
    assert trial.twice() == []
    assert during["state"] == "running"
    assert during["eta"] is None or -60 < during["eta"]["likely"] - time.time() < 3600
    assert during["rate"] is None or 0 <= during["rate"] < 1000
    assert " -" not in screen, screen
    assert status["round"] == 1
    bench.run("usage", trial.id, "--json")
    stamps = [one["time"] for one in trial.said("started")]
    assert max(stamps) - min(stamps) > 3600, "no clock was off"


def _with(bench: Bench, code: str) -> dict[str, str]:
    """Environment in which every Python runs this first."""
    folder = bench.folder / "site"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{folder}:{before}" if before else str(folder)}


def _experiments(bench: Bench) -> list[Path]:
    folder = bench.home / "experiments"
    return sorted(folder.iterdir()) if folder.is_dir() else []
