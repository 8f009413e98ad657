"""An ordinary user of the cluster, for tests: runs `hpcbench` as she would and looks at what came out."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hpcbench.experiment.claims import pieces_of
from hpcbench.experiment.layout import Experiment
from tests.cluster.lab import Lab


class User:
    """One user with a home of experiments and a registry of her own below `folder`."""

    def __init__(self, lab: Lab, python: Path, folder: Path) -> None:
        self.lab, self.python, self.folder = lab, python, folder
        self.home = folder / "home"
        self.registry = folder / "registry"
        self.environment = {
            "HPCBENCH_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(folder / "config"),
            **of_her_own(folder),
        }

    # -- commands ---------------------------------------------------------------------------

    def hpcbench(self, *arguments: str | Path, timeout: float = 600) -> Any:
        """Run a command; returns the completed process."""
        return self.lab.run_as_user(
            self.argv(*arguments), cwd=self.folder, env=self.environment, timeout=timeout
        )

    def start(self, *arguments: str | Path, path: str = "") -> subprocess.Popen[str]:
        """Start a command and leave it running; `path` goes before PATH."""
        env = self.lab.env() | self.environment
        if path:
            env["PATH"] = f"{path}:{env['PATH']}"
        return subprocess.Popen(
            self.lab.user_argv(self.argv(*arguments)),
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def argv(self, *arguments: str | Path) -> list[str | Path]:
        """The command line of `hpcbench ARGUMENTS`."""
        return [self.python.with_name("hpcbench"), *arguments]

    def ok(self, *arguments: str | Path, timeout: float = 600) -> str:
        """Run a command that must succeed; returns what it prints."""
        done = self.hpcbench(*arguments, timeout=timeout)
        assert done.returncode == 0, (
            f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return str(done.stdout)

    def json(self, *arguments: str | Path, timeout: float = 600) -> Any:
        """Output of a command with --json."""
        return json.loads(self.ok(*arguments, "--json", timeout=timeout))

    # -- setting the scene -------------------------------------------------------------------

    def share_cache(self, cache: Path) -> None:
        """Use images and packages that an earlier test built."""
        self.home.mkdir()
        (self.home / "cache").symlink_to(cache)
        shutil.chown(self.home, "hpcuser", "hpcuser")

    def init(self, insecure_registry: str) -> None:
        """`hpcbench init`, then the one line a site without TLS adds."""
        described(self.python, self.folder, self._init)
        self.at_site(insecure_registries=[insecure_registry])

    def _init(self) -> None:
        # Tests beside this one may have stopped slurmctld: it comes back.
        until(lambda: self.hpcbench("init").returncode == 0, 180, "a cluster to look at", every=2)

    def at_site(self, part: str = "container", **fields: object) -> None:
        """Set fields in a part of her site profile."""
        profile = self.folder / "config" / "hpcbench" / "sites" / "default.yaml"
        data = yaml.safe_load(profile.read_text())
        data.setdefault(part, {}).update(fields)
        profile.write_text(yaml.safe_dump(data))

    def use_image(self, image: str) -> None:
        """Lay a tiny-vlm over the shipped one that runs in an image, on one GPU."""
        self.write_model("tiny-vlm", image=image, gpus=1)

    def write_model(self, name: str, source: Path | None = None, **fields: object) -> None:
        """A model definition like the shipped tiny-vlm."""
        self.write(
            f"models/{name}.yaml",
            {
                "schema_version": 1,
                "name": name,
                "source": str(source or self.share / "examples/demo/model"),
                "engine": "huggingface",
                "dtype": "float32",
                "context_length": 1024,
                "gpus": 0,
                "load_timeout": 240,
                **fields,
            },
        )

    @property
    def share(self) -> Path:
        """Files that the wheel ships beside the code."""
        code = "import hpcbench, pathlib; print(pathlib.Path(hpcbench.__file__).parent / 'share')"
        return Path(self.lab.run_as_user([self.python, "-c", code]).stdout.strip())

    def write(self, name: str, data: Mapping[str, object]) -> Path:
        """Write a YAML definition into her registry."""
        path = self.registry / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True))
        for changed in (self.registry, *self.registry.rglob("*")):
            shutil.chown(changed, "hpcuser", "hpcuser")
        return path

    def plan(self, name: str, run_tasks: Sequence[Mapping[str, object]], **fields: object) -> Path:
        """Write a plan; run tasks get small resources."""
        small = {"cpus": 1, "memory_gb": 2, "time_limit": "00:20:00"}
        written = [
            {"generation": {"max_tokens": 96}, "resources": small, **run_task}
            for run_task in run_tasks
        ]
        return self.write(
            f"{name}.yaml", {"schema_version": 1, "name": name, "run_tasks": written, **fields}
        )

    # -- looking ------------------------------------------------------------------------------

    def submit(self, plan: Path, *arguments: str) -> str:
        """Submit a plan; returns the experiment's id."""
        answer = self.json("submit", plan, "--registry", self.registry, *arguments)
        return str(answer["id"])

    def experiment(self, experiment: str) -> Path:
        """Directory of an experiment."""
        return self.home / "experiments" / experiment

    def status(self, experiment: str) -> Any:
        """`hpcbench status --json`."""
        return self.json("status", experiment)

    def wait(self, experiment: str, timeout: float = 600) -> Any:
        """Wait until an experiment has ended; returns its last status."""
        ended = (
            "done", "incomplete", "failed", "cancelled", "lost", "interrupted", "paused",
            "stalled",
        )  # fmt: skip
        deadline = time.monotonic() + timeout
        outcome = self.experiment(experiment) / "outcome.json"
        now: Any = None
        while now is None or now["state"] not in ended:
            if time.monotonic() > deadline:
                raise AssertionError(f"not ended in {timeout} s: {json.dumps(now, indent=1)}")
            time.sleep(0.5)
            # The command takes longer to start than to look: not while jobs are at work.
            if outcome.exists() or not self.jobs(f":{experiment}:"):
                now = self.status(experiment)
        return now

    def end(self) -> None:
        """Cancel her jobs, hers alone, and wait until they are gone."""
        names = [f":{path.name}:" for path in self.home.glob("experiments/*-*")]
        if not names:
            return

        if mine := self.jobs(*names):
            self.lab.run_as_user(["scancel", *sorted(mine)])
            until(lambda: not self.jobs(*names), 60, "her jobs to end", every=0.3)

    def jobs(self, *names: str) -> set[str]:
        """Ids of jobs in the queue whose names have one of these parts."""
        queue = self.lab.squeue()
        return {
            job.id.partition("_")[0] for job in queue if any(name in job.name for name in names)
        }

    def answered(self, experiment: str) -> int:
        """Answers that lie on the disk."""
        return len(answers_on_disk(self.experiment(experiment)))


def of_her_own(folder: Path) -> dict[str, str]:
    """An environment in which she alone asks Slurm, as users with accounts of their own would."""
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    shutil.chown(runtime, "hpcuser", "hpcuser")
    return {"XDG_RUNTIME_DIR": str(runtime)}


_profiles: dict[Path, str] = {}
"""Site profile that `hpcbench init` of a Python wrote; FOLDER stands for the user's own."""


def described(python: Path, folder: Path, init: Callable[[], object]) -> None:
    """Write the site's profile of a user: the first of a Python types `hpcbench init`, the others copy."""
    profile = folder / "config" / "hpcbench" / "sites" / "default.yaml"
    if python not in _profiles:
        init()
        text = profile.read_text()
        assert yaml.safe_load(text)["executor"] == "slurm"
        _profiles[python] = text.replace(str(folder), "FOLDER")
        return
    profile.parent.mkdir(parents=True)
    profile.write_text(_profiles[python].replace("FOLDER", str(folder)))
    for path in (profile, *profile.parents):
        if path == folder:
            break
        shutil.chown(path, "hpcuser", "hpcuser")


def answers_on_disk(experiment: Path) -> list[tuple[str, str | None]]:
    """`RUN_TASK/SAMPLE` and the text of every answer there is, folded or not; twice if it is there twice."""
    here = Experiment(experiment)
    return [
        (f"{run_task.name}/{response.sample_id}", response.text)
        for run_task in here.resolved.run_tasks
        for piece in pieces_of(here, run_task.name)
        for response in piece
    ]


def until(condition: Callable[[], bool], timeout: float, what: str, every: float = 0.1) -> None:
    """Wait for a condition, on a machine that does much else at once three times the seconds."""
    deadline = time.monotonic() + 3 * timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {3 * timeout} s in vain for {what}")
        time.sleep(every)
