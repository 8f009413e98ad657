"""A user of the real cluster whose engine is a fake, so that only Slurm's own faults take time."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.submission import Round, rounds
from tests.cluster.lab import Job, Lab
from tests.faults.conftest import ENGINE, Bench, Trial, until
from tests.user import described, of_her_own

__all__ = ["Drill", "Run", "until"]


class Drill(Bench):
    """An ordinary user of the cluster with the scripted engine and a dataset of 40 questions."""

    provides: ClassVar[dict[str, list[str]]] = {"engines": ["scripted"], "tools": ["pay"]}
    """Plugins that the scripted engine's package has for this user's hpcbench."""

    def __init__(self, lab: Lab, python: Path, folder: Path, cache: Path) -> None:
        self.lab, self.python = lab, python
        super().__init__(folder, cache)
        # The tests' own folder may lie where the user cannot go.
        engine = lab.user_home / "scripted-engine"
        shutil.copytree(ENGINE, engine, dirs_exist_ok=True)
        self.write(
            "registry/packages/scripted.yaml",
            {
                "name": "scripted",
                "provides": self.provides,
                "source": {"type": "local", "path": str(engine)},
            },
        )
        subprocess.run(["chown", "-Rh", "hpcuser:hpcuser", str(folder)], check=True)
        own = ("HPCBENCH_HOME", "XDG_CONFIG_HOME", "RUN_MODE")
        self.environ = lab.env() | {name: self.environ[name] for name in own} | of_her_own(folder)
        described(python, folder, lambda: self.run("init"))

    def start(self, *arguments: object, **environ: str) -> subprocess.Popen[str]:
        """Start a command as the user and leave it running, in a session of its own."""
        command = [self.python.with_name("hpcbench"), *map(str, arguments)]
        return subprocess.Popen(
            self.lab.user_argv(command), cwd=self.folder, env={**self.environ, **environ}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def plan(self, *run_tasks: Mapping[str, Any], name: str = "drill", **fields: Any) -> Path:
        """Write a plan for Slurm: jobs of one CPU, two workers on shards of four."""
        small = {"cpus": 1, "memory_gb": 1, "time_limit": "00:20:00"}
        tasks = [{"resources": small, **one} for one in run_tasks or [{}]]
        # Loads are short here, answers too: how many workers there are is never left to their times.
        few = {"parallelism": 2, "workers": "all"}
        fields = {"executor": "slurm", "shard_size": 4, **few, **fields}
        return super().plan(*tasks, name=name, **fields)

    def submit(self, plan: Path, *arguments: object, **environ: str) -> Run:
        """Submit a plan."""
        return Run(self, super().submit(plan, *arguments, **environ).path)

    def known(self) -> list[Run]:
        """Her experiments."""
        return [Run(self, path) for path in sorted(self.home.glob("experiments/*-*"))]

    def at_site(
        self,
        setup: Sequence[str] = (),
        container: Mapping[str, object] | None = None,
        **fields: object,
    ) -> None:
        """Set fields of her site profile: of `slurm`, of `container`, and lines at the start of every job."""
        profile = self.folder / "config" / "hpcbench" / "sites" / "default.yaml"
        data = yaml.safe_load(profile.read_text())
        data["slurm"].update(fields)
        data["setup"] = [*data.get("setup", ()), *setup]
        data.setdefault("container", {}).update(container or {})
        profile.write_text(yaml.safe_dump(data))

    def shim(self, name: str, script: str) -> str:
        """A PATH with a program of hers before all others."""
        folder = self.folder / f"shim-{name}"
        folder.mkdir()
        path = folder / name
        path.write_text(f"#!/bin/bash\n{script}")
        path.chmod(0o755)
        shutil.chown(folder, "hpcuser")
        return f"{folder}:{self.environ['PATH']}"

    def slurm(self, *words: str) -> str:
        """One of Slurm's commands, as the user."""
        done = self.lab.run_as_user(words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def age_slurms_word(self, seconds: float) -> None:
        """As if so much time had passed since Slurm was last asked."""
        for path in Path(self.environ["XDG_RUNTIME_DIR"]).glob("hpcbench/*.json"):
            known = json.loads(path.read_text())
            aged = {name: known[name] - seconds for name in ("time", "tried")}
            path.write_text(json.dumps({**known, **aged}))

    def log_out(self) -> None:
        """Kill all her processes that are not part of a job, as when a login node goes away."""
        mine = f"HPCBENCH_HOME={self.home}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    words = (entry / "environ").read_bytes().split(b"\0")
                    if mine in words and not any(one.startswith(b"SLURM_JOB_ID=") for one in words):
                        os.kill(int(entry.name), signal.SIGKILL)

    def end(self) -> None:
        """Cancel her jobs, hers alone."""
        if ids := self._jobs():
            self.lab.run_as_user(["scancel", *ids])
        until(lambda: not self._jobs(), "her jobs to end")

    def _jobs(self) -> set[str]:
        """Her jobs in the queue, by one question to Slurm."""
        mine = {run.id for run in self.known()}
        jobs = self.lab.squeue()
        return {job.id.partition("_")[0] for job in jobs if mine.intersection(job.name.split(":"))}


class Run(Trial):
    """One experiment on the cluster."""

    bench: Drill

    def jobs(self, *states: str) -> list[Job]:
        """Its jobs in the queue."""
        return [
            job
            for job in self.bench.lab.squeue()
            if f":{self.id}:" in job.name and (not states or job.state in states)
        ]

    def workers_at(self, *states: str) -> list[Job]:
        """Its array tasks that work, or are in these states."""
        return [job for job in self.jobs(*(states or ("R",))) if ":finalise" not in job.name]

    @property
    def round(self) -> Round:
        """The newest round."""
        return rounds(Experiment(self.path))[-1]

    def processes(self) -> list[int]:
        """Processes of its workers."""
        return self.pids("submitit.core._submit")

    def release(self) -> None:
        """Let those start now that Slurm makes wait after a requeue."""
        for job in self.jobs("PD"):
            if job.reason == "BeginTime":
                self.bench.lab.run_as_user(
                    ["scontrol", "update", f"JobId={job.id}", "StartTime=now"]
                )

    def _rests(self) -> bool:
        self.release()
        return (self.path / "outcome.json").exists() or not self.jobs()

    def wait_alone(self) -> None:
        """Wait until it has ended, with no command of hpcbench's anywhere."""
        with self._observed():
            while not (self.path / "outcome.json").exists():
                self.release()
                time.sleep(0.3)

    def story_of_submission(self) -> list[dict[str, Any]]:
        """The lines of `submission.jsonl`."""
        lines = (self.path / "submission.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def accounted(self, form: str) -> list[list[str]]:
        """Rows of sacct about its jobs: name, id and the wanted columns."""
        words = ["sacct", "-X", "-n", "-P", "--duplicates", f"--format=JobName%120,JobID,{form}"]
        rows = [line.split("|") for line in self.bench.slurm(*words).splitlines()]
        return [row for row in rows if f":{self.id}:" in row[0]]

    def story(self, now: Any = None) -> str:
        lines = [str(now), (self.path / "submission.jsonl").read_text(), str(self.jobs())]
        lines += [str(event) for event in self.events()[-40:]]
        logs = sorted((self.path / "jobs").glob("*.out"))
        return "\n".join([*lines, *(f"{log}: {log.read_text()[-600:]}" for log in logs)])

    def tracebacks(self) -> list[Path]:
        """Logs of its jobs with a traceback in them."""
        logs = [*self.path.glob("jobs/*.out"), *self.path.glob("jobs/*.err")]
        return [log for log in logs if "Traceback" in log.read_text(errors="replace")]


def whole(run: Run, calm: Run, before: Sequence[Mapping[str, str]] = (), twice: int = 0) -> None:
    """Conditions on every disturbed experiment that came to its end.

    Args:
        run: the experiment.
        calm: the undisturbed one.
        before: answers that were acknowledged at some time.
        twice: answers that may lie on the disk twice, where a worker outlived its own end: one counts.
    """
    final = run.answers()
    for acknowledged in before:
        assert acknowledged.items() <= final.items(), "an acknowledged answer was lost or changed"
    assert final == calm.answers()
    assert run.metrics == calm.metrics
    assert len(run.twice()) <= twice, run.twice()
    assert run.tracebacks() == []


def impatient(folder: Path) -> dict[str, str]:
    """An environment in which status does not wait two minutes for late news of a shared file system."""
    made = folder / "impatient"
    made.mkdir(exist_ok=True)
    code = "from hpcbench.status import findings\nfindings.NEWS_SECONDS = 3\n"
    (made / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": str(made)}


def alarm(status: Any, kind: str) -> str:
    """The one alarm of this kind that a status tells."""
    (found,) = [one for one in status["alarms"] if one["kind"] == kind]
    return str(found["cause"])
