"""Rounds of this machine: how the supervisor is started, and how it deals out processes and GPUs.

The processes of workers are PLAYED here: they end when the test says so. Real ones are in tests/faults and
tests/demo.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import submitit

from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import rounds
from hpcbench.files.atomic import read_json, write_json
from hpcbench.submit import local
from hpcbench.submit import rounds as rounds_module
from hpcbench.submit.array_task import ArrayTask
from hpcbench.submit.local import Part, Supervisor
from hpcbench.submit.rounds import begin_round, end_jobs, hand_over
from tests.unit.past import past
from tests.unit.small import run_task


class Process:
    """A worker that ends after so many looks at it."""

    def __init__(self, element: ArrayTask, looks: int) -> None:
        self.element, self.looks, self.job_id = element, looks, str(2**22 + 1)

    def done(self) -> bool:
        self.looks -= 1
        return self.looks < 0


class Played:
    """Takes the place of submitit's executor."""

    running: list[Process]
    log: list[tuple[str, str | None, int]]
    """Starts: the element, its GPUs, and the number of elements that run with it."""
    looks = 1

    def __init__(self, folder: Path, python: str) -> None:
        assert python.endswith("-u -m hpcbench.submit.job_start")

    def update_parameters(self, **parameters: object) -> None:
        pass

    def submit(self, element: ArrayTask) -> Process:
        process = Process(element, self.looks)
        self.running[:] = [one for one in self.running if one.looks >= 0] + [process]
        name = " ".join((element.module, *element.arguments[1:]))
        self.log.append((name, element.gpus, len(self.running)))
        return process


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> type[Played]:
    Played.running, Played.log = [], []
    monkeypatch.setattr(submitit, "LocalExecutor", Played)
    monkeypatch.setattr(local, "POLL_SECONDS", 0)
    return Played


def part(name: str, count: int, gpus: int = 0, after: tuple[str, ...] = ()) -> Part:
    elements = [ArrayTask("hpcbench.worker", "/e", f"{name}{one}") for one in range(count)]
    return Part(name, elements, gpus, after)


def test_no_more_workers_run_at_once_than_the_plan_allows(
    tmp_path: Path, played: type[Played]
) -> None:
    Supervisor(tmp_path, most=2).run(part("a", 3), part("b", 2))
    assert [name for name, _, _ in played.log] == [
        f"hpcbench.worker {name}" for name in ("a0", "a1", "a2", "b0", "b1")
    ]
    assert max(count for _, _, count in played.log) == 2


def test_each_worker_has_gpus_of_its_own_and_others_wait_for_them(
    tmp_path: Path, played: type[Played]
) -> None:
    Supervisor(tmp_path, ["0", "1", "2"], most=9).run(part("a", 2, gpus=2), part("b", 2, gpus=1))
    assert [(name[-2:], gpus) for name, gpus, _ in played.log] == [
        ("a0", "0,1"),
        ("b0", "2"),
        ("a1", "0,1"),
        ("b1", "2"),
    ]


def test_a_part_starts_after_the_workers_of_those_that_it_waits_for(
    tmp_path: Path, played: type[Played]
) -> None:
    Supervisor(tmp_path, most=9).run(part("a", 2), part("b", 1, after=("a",)))
    assert [(name[-2:], count) for name, _, count in played.log] == [
        ("a0", 1),
        ("a1", 2),
        ("b0", 1),
    ]


def test_jobs_keep_the_umask_of_the_supervisor_and_it_keeps_its_own(
    tmp_path: Path, played: type[Played]
) -> None:
    before = os.umask(0o027)
    try:
        whole = part("a", 1)
        (element,) = whole.waiting
        Supervisor(tmp_path).run(whole)
        assert element.umask == 0o027
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


@pytest.fixture
def terminated() -> Iterator[None]:
    """Gives the process its own answer to SIGTERM back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def planned(folder: Path, gpus: int = 0, kind: str = "none") -> Experiment:
    here = past(folder, "20261120-1432-plan-aaaa", run_task(model={"gpus": gpus}), ended=False)
    manifest = read_json(here.manifest_file)
    (group,) = here.work.groups
    write_json(
        here.manifest_file, {**manifest, "environments": {group.environment: {"kind": kind}}}
    )
    here.jobs_dir.mkdir(exist_ok=True)
    return Experiment(here.path)


@pytest.mark.usefixtures("terminated")
def test_a_round_is_its_workers_then_the_finalising_process(
    tmp_path: Path, played: type[Played]
) -> None:
    here = planned(tmp_path)
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[asdict(one) for one in here.work.groups])
    local.main([str(here.path), "0"])
    assert played.log == [
        ("hpcbench.worker g0 0 0/1", "", 1),
        ("hpcbench.finalise --supervised", "", 1),
    ]


@pytest.mark.usefixtures("terminated")
@pytest.mark.parametrize(("kind", "lacks"), [("none", True), ("runpod", False)])
def test_a_group_whose_gpus_this_machine_lacks_ends_the_round_unless_it_runs_elsewhere(
    tmp_path: Path, played: type[Played], monkeypatch: pytest.MonkeyPatch, kind: str, lacks: bool
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    here = planned(tmp_path, gpus=64, kind=kind)
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[asdict(one) for one in here.work.groups])
    if not lacks:
        local.main([str(here.path), "0"])
        assert [name for name, _, _ in played.log][-1] == "hpcbench.finalise --supervised"
        return
    with pytest.raises(SystemExit, match="group g0 cannot run on this machine: .*64"):
        local.main([str(here.path), "0"])
    assert played.log == []


def test_sigterm_ends_the_supervisor_with_exit_code_1(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        Supervisor(tmp_path).end(signal.SIGTERM, None)
    assert ended.value.code == 1


def printed(here: Experiment, number: int) -> str:
    """The whole line that the supervisor of a round has printed."""
    path, end = here.jobs_dir / f"supervisor.{number}.log", time.monotonic() + 60
    while not path.read_text().endswith("\n") and time.monotonic() < end:
        time.sleep(0.01)
    return path.read_text()


# It outlives the process that starts it, which therefore does not wait for it.
outlives = pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")


@outlives
def test_a_round_of_this_machine_is_one_process_whose_number_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = planned(tmp_path)
    monkeypatch.setattr(rounds_module, "interpreter", lambda experiment: ("/bin/echo", "-P"))
    begin_round(here, here.work.groups)
    (now,) = rounds(here)
    step = now.steps["supervise"]
    assert step.job is not None and step.process is not None
    host, _, number = step.job.rpartition(":")
    assert (host, int(number)) == (os.uname().nodename, step.process["pid"]) and now.handed
    assert printed(here, 0) == f"-P -m hpcbench.submit.local {here.path} 0\n"
    hand_over(here)
    assert rounds(here) == [now], "a round is handed over once"


@outlives
@pytest.mark.parametrize(("option", "inside"), [("-P", False), ("-B", True)])
def test_a_python_that_imports_from_the_current_folder_starts_in_the_experiments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, inside: bool
) -> None:
    here = planned(tmp_path)
    python = (sys.executable, "-c", "import os; print(os.getcwd())", option)
    monkeypatch.setattr(rounds_module, "interpreter", lambda experiment: python)
    begin_round(here, here.work.groups)
    assert (printed(here, 0).strip() == str(here.path.resolve())) is inside


@outlives
def test_an_experiment_of_this_machine_ends_with_its_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = planned(tmp_path)
    waits = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)", "-P")
    monkeypatch.setattr(rounds_module, "interpreter", lambda experiment: waits)
    begin_round(here, here.work.groups)
    assert printed(here, 0) == "up\n"
    assert end_jobs(here) == 1
    end = time.monotonic() + 60
    while end_jobs(here) and time.monotonic() < end:
        time.sleep(0.01)
    assert end_jobs(here) == 0


@outlives
def test_a_further_round_has_its_own_process_and_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = planned(tmp_path)
    monkeypatch.setattr(rounds_module, "interpreter", lambda experiment: ("/bin/echo", "-P"))
    for _ in range(2):
        begin_round(here, here.work.groups)
    first, second = rounds(here)
    assert first.jobs != second.jobs
    assert [printed(here, number).split()[-1] for number in (0, 1)] == ["0", "1"]
