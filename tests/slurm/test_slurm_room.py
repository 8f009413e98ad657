"""The room that asks and tells Slurm, on the real cluster: words, control, job_ends, one question for all."""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.slurm import classify_refusal
from tests.cluster.lab import Lab
from tests.user import until

pytestmark = pytest.mark.slurm

SHOW = """
import dataclasses, json, sys
from hpcbench import slurm
def show(thing):
    print(json.dumps(thing, default=dataclasses.asdict))
ids = sys.argv[1:]
"""


class Shell:
    """A user's shell whose readers share a folder of their own and whose squeue is counted."""

    def __init__(self, lab: Lab, python: Path, folder: Path) -> None:
        self.lab, self.python, self.folder = lab, python, folder
        self.name = f"room-{uuid.uuid4().hex[:8]}"
        self.jobs: list[str] = []
        self.calls = folder / "calls"
        runtime = folder / "runtime"
        runtime.mkdir(mode=0o700)
        shim = folder / "squeue"
        shim.write_text(f'#!/bin/sh\necho "$*" >> {self.calls}\nexec /usr/bin/squeue "$@"\n')
        shim.chmod(0o755)
        for path in (folder, runtime):
            shutil.chown(path, "hpcuser", "hpcuser")
        self.env = {"XDG_RUNTIME_DIR": str(runtime), "PATH": f"{folder}:{lab.env()['PATH']}"}

    def sbatch(self, *options: str, wrap: str = "sleep 240") -> str:
        """Submit a job that outlives its test; returns its id."""
        words = ["sbatch", "--parsable", "-J", self.name, "-o", "/dev/null", *options]
        done = self.lab.run_as_user([*words, "--wrap", wrap])
        assert done.returncode == 0, done.stderr
        self.jobs.append(done.stdout.strip())
        return self.jobs[-1]

    def refused(self, *options: str) -> str:
        """Submit a job that sbatch must refuse; returns what it says."""
        done = self.lab.run_as_user(["sbatch", "-J", self.name, *options, "--wrap", "true"])
        assert done.returncode != 0, done.stdout
        return done.stderr

    def argv(self, code: str, *arguments: str) -> list[str]:
        return [str(self.python), "-c", SHOW + code, *arguments]

    def ask(self, code: str, *arguments: str) -> Any:
        """Run code with hpcbench.slurm at hand; returns what it shows."""
        done = self.lab.run_as_user(self.argv(code, *arguments), env=self.env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def job(self, job: str) -> dict[str, Any] | None:
        """A job in a fresh snapshot."""
        found: dict[str, Any] | None = self.ask("show(slurm.snapshot(0).find(ids[0]))", job)
        return found

    def state(self, job: str) -> str:
        found = self.job(job)
        return found["state"] if found else ""


@pytest.fixture
def shell(lab: Lab, lab_python: Path) -> Iterator[Shell]:
    """A user's shell; her jobs are cancelled afterwards."""
    folder = lab.new_directory("room")
    made = Shell(lab, lab_python, folder)
    yield made
    if made.jobs:
        lab.run_as_user(["scancel", "--quiet", *made.jobs])
    shutil.rmtree(folder, ignore_errors=True)


def test_six_processes_share_one_question(shell: Shell) -> None:
    job = shell.sbatch("--hold")
    code = "for _ in range(3): found = slurm.snapshot().find(ids[0])\nshow(found.reason)"
    env = shell.lab.env() | shell.env
    readers = [
        subprocess.Popen(
            shell.lab.user_argv(shell.argv(code, job)),
            cwd=shell.folder,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    assert [json.loads(reader.communicate()[0]) for reader in readers] == ["JobHeldUser"] * 6
    assert shell.calls.read_text().count("--me") == 1


def test_why_a_job_waits_is_said_in_words(shell: Shell) -> None:
    shell.sbatch("-p", "low", "-w", "n4", "--exclusive", "-t", "5")
    next_one = shell.sbatch("-p", "low", "-w", "n4", "--exclusive", "--gres=gpu:fake:2", "-t", "5")
    behind = shell.sbatch("-p", "low", "-w", "n4", "--exclusive", "--gres=gpu:fake:1", "-t", "5")
    long = shell.sbatch("-t", "2-0")
    array = shell.sbatch("--array=0-3%1", "-t", "5")
    wanted = [next_one, behind, long, array]

    def reported() -> bool:
        job, others = shell.job(next_one) or {}, shell.job(array) or {}
        gave_a_start = job.get("reason") == "Resources" and bool(job.get("start"))
        return gave_a_start and others.get("reason") == "JobArrayTaskLimit"

    # The array's first task may wait for a processor itself, while other tests use the cluster.
    until(reported, 180, "the scheduler to give its reasons", every=0.5)
    said = shell.ask(
        "now = slurm.snapshot(0)\nshow([slurm.why_pending(now.find(job), now) for job in ids])",
        *wanted,
    )
    assert said[0].startswith("waits for 2 × FAKE in partition low; ")
    assert "earliest start" in said[0]
    assert "requests more time than partition main allows" in said[2]
    assert said[3] == "waits for other tasks of its array: at most 1 may run at once"
    ahead = shell.ask(
        "from hpcbench.slurm.pending_reason import jobs_ahead\nnow = slurm.snapshot(0)\n"
        "show([jobs_ahead(now.find(job)) for job in ids])",
        next_one,
        behind,
    )
    assert ahead[1] == ahead[0] + 1
    assert sum("--states=PENDING" in call for call in shell.calls.read_text().splitlines()) == 1


def test_an_arrays_throttle_is_changed_and_its_hold_released(shell: Shell) -> None:
    array = shell.sbatch("--array=0-5%1", "-t", "5")
    until(lambda: shell.state(f"{array}_0") == "RUNNING", 90, "the first task to run", every=0.5)
    assert shell.lab.run_as_user(["scontrol", "hold", array]).returncode == 0
    reported = shell.ask(
        "show([slurm.set_throttle(ids[0], 2), slurm.snapshot(0).find(ids[0])])", array
    )
    assert reported[0] is True
    assert reported[1]["task_ids"].endswith("%2")
    held, gone = shell.ask(
        "now = [slurm.snapshot(0).find(ids[0]).reason]\nslurm.release_hold(ids)\n"
        "now.append(slurm.snapshot(0).find(ids[0]).reason)\n"
        "show([now, slurm.set_throttle('999999', 1)])",
        array,
    )
    assert held[0] == "JobHeldUser"
    assert held[1] != held[0]
    assert gone is False


def test_a_requeued_job_runs_elsewhere_once_its_node_is_excluded(shell: Shell) -> None:
    job = shell.sbatch("-t", "5")
    until(lambda: shell.state(job) == "RUNNING", 90, "the job to run", every=0.5)
    first = (shell.job(job) or {})["node"]
    assert shell.lab.run_as_user(["scontrol", "requeue", job]).returncode == 0
    until(lambda: shell.state(job) == "PENDING", 90, "the job to wait again", every=0.5)
    assert shell.ask("show(slurm.exclude_nodes(ids[0], [ids[1]]))", job, first)
    shell.lab.release_requeued(job)
    until(lambda: shell.state(job) == "RUNNING", 150, "the job to run again", every=0.5)
    again = shell.job(job) or {}
    assert again["node"] != first
    assert again["restarts"] == 1
    shell.lab.run_as_user(["scancel", job])
    # A folder of its own each time: accounting is late, and its shared answer half a minute old.
    code = (
        "import pathlib, tempfile\nfolder = pathlib.Path(tempfile.mkdtemp())\n"
        f"show(slurm.job_ends(ids, ['{shell.name}'], folder=folder)[ids[0]])"
    )

    def runs() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = shell.ask(code, job)["runs"]
        return found

    until(
        lambda: [one["state"] for one in runs()] == ["REQUEUED", "CANCELLED"], 150, "both runs", 1
    )
    assert [one["node"] for one in runs()] == [first, again["node"]]


def test_ends_of_jobs_that_failed_never_started_or_are_not_ours(shell: Shell) -> None:
    failed = shell.sbatch(wrap="exit 3")
    held = shell.sbatch("--hold", "--array=0-2")
    shell.lab.run_as_user(["scancel", held])
    until(lambda: shell.state(failed) == "FAILED", 90, "the job to fail", every=0.5)
    code = (
        f"told = slurm.job_ends(ids, ['{shell.name}'])\n"
        "show({job: (one.state, one.exit_code) for job, one in told.items()})"
    )
    found = shell.ask(code, failed, f"{held}_1", "999999_1")
    assert found[failed] == ["FAILED", 3]
    assert found[f"{held}_1"][0] == "CANCELLED"
    assert found["999999_1"][0] == "LOST"
    other = shell.ask("show(slurm.job_ends(ids, ['another-name'])[ids[0]].state)", failed)
    assert other == "LOST", "a job of this number, and not ours"


def test_refusals_of_the_real_sbatch_are_distinguished(shell: Shell) -> None:
    lab = shell.lab
    add, remove = ("sacctmgr", "--immediate", "add"), ("sacctmgr", "--immediate", "delete")
    try:
        lab._slurm(*add, "qos", "room", "MaxWall=00:10:00", "flags=DenyOnLimit")
        lab._slurm(*add, "account", "room", "cluster=hpcbench", "MaxSubmitJobs=2")
        lab._slurm(*add, "user", "hpcuser", "account=room", "qos=normal,room")
        assert classify_refusal(shell.refused("-A", "room", "--array=0-4")) == "limit"
        assert classify_refusal(shell.refused("-A", "room", "--qos=room", "-t", "60")) == "time"
    finally:
        for what in (["user", "hpcuser", "account=room"], ["account", "room"], ["qos", "room"]):
            lab._slurm(*remove, *what)
    assert classify_refusal(shell.refused("--array=0-2000")) == "array_size"
    assert classify_refusal(shell.refused("-p", "nosuch")) == "other"
    dead = shell.folder / "dead.conf"
    text = Path(lab.env()["SLURM_CONF"]).read_text()
    dead.write_text(text.replace("SlurmctldPort=", "SlurmctldPort=1 #"))
    done = lab.run_as_user(["sbatch", "--wrap", "true"], env={"SLURM_CONF": str(dead)})
    assert classify_refusal(done.stderr) == "gone"
