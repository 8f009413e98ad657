"""An upgrade of hpcbench under what an earlier version submitted, on the real cluster.

The earlier version is commit 4f8fdd5, whose modules had other names, and whose distribution had another name.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.cluster.lab import Lab
from tests.conftest import ROOT, build_wheel, run, unavailable
from tests.slurm.drill import Drill, Run, until
from tests.unit.earlier import extract

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1200)]

EARLIER = "4f8fdd5"

NEEDED_NOW = "argcomplete"
"""A package that hpcbench needs and that version did not."""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> tuple[Path, Path]:
    """The wheel of the earlier version, and ours."""
    source = tmp_path_factory.mktemp("earlier")
    git = ["git", "-C", str(ROOT), "archive", EARLIER]
    packed = subprocess.run(git, capture_output=True, check=False)
    if packed.returncode != 0:
        unavailable(f"commit {EARLIER} is not in this clone: {packed.stderr.decode()}")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as file:
        extract(file, source)
    return build_wheel(tmp_path_factory.mktemp("wheel-then"), source), wheel


class Upgraded(Drill):
    """A user with the earlier version in a virtual environment of her own, and her jobs on hold."""

    provides: ClassVar[dict[str, list[str]]] = {"engines": ["scripted"]}

    def __init__(self, lab: Lab, lab_python: Path, folder: Path, cache: Path, wheel: Path) -> None:
        environment = folder / "env"
        run(["/usr/bin/python3", "-m", "venv", str(environment)])
        (self._site,) = environment.glob("lib/python3*/site-packages")
        (self._lab_site,) = lab_python.parent.parent.glob("lib/python3*/site-packages")
        self._pip = [str(environment / "bin" / "python"), "-m", "pip"]
        for path in self._lab_site.iterdir():
            if not path.name.startswith(("hpcbench", NEEDED_NOW, "pip", "__")):
                self._link(path)
        self._install(wheel)
        super().__init__(lab, environment / "bin" / "python", folder, cache)
        self.at_site(options={"hold": True})

    def upgrade(self, wheel: Path) -> None:
        """Install a wheel over the earlier version, with what it needs beside; the former name goes first."""
        run([*self._pip, "uninstall", "-q", "-y", "hpcbench"])
        for path in self._lab_site.glob(f"{NEEDED_NOW}*"):
            self._link(path)
        self._install(wheel)

    def _install(self, wheel: Path) -> None:
        run([*self._pip, "install", "-q", "--no-deps", str(wheel)])

    def _link(self, path: Path) -> None:
        """Have a package of the lab's environment in this one."""
        if not (self._site / path.name).exists():
            (self._site / path.name).symlink_to(path)

    def start(self, *arguments: object, **environ: str) -> subprocess.Popen[str]:
        # Not the script, which differs between the two distributions.
        command = [self.python, "-m", "hpcbench.cli.main", *map(str, arguments)]
        return subprocess.Popen(
            self.lab.user_argv(command), cwd=self.folder, env={**self.environ, **environ}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def plan(self, *run_tasks: Mapping[str, Any], name: str = "drill", **fields: Any) -> Path:
        """Write a plan for Slurm without the key that the earlier version does not know."""
        path = super().plan(*run_tasks, name=name, **fields)
        path.write_text(path.read_text().replace("workers: all\n", ""))
        return path

    def release(self, run: Run) -> None:
        """Let all jobs of an experiment start."""
        for job in {job.id.partition("_")[0] for job in run.jobs("PD")}:
            self.slurm("scontrol", "release", job)


@pytest.fixture
def user(
    lab: Lab, lab_python: Path, shared_cache: Path, wheels: tuple[Path, Path]
) -> Iterator[Upgraded]:
    made = Upgraded(lab, lab_python, lab.new_directory("upgraded"), shared_cache, wheels[0])
    yield made
    made.end()
    shutil.rmtree(made.folder, ignore_errors=True)


def test_an_array_of_the_earlier_version_runs_and_finishes_under_this_one(
    user: Upgraded, wheels: tuple[Path, Path], calm: Run
) -> None:
    trial = user.submit(user.plan())
    held = trial.jobs("PD")
    assert {":finalise" in job.name for job in held} == {True, False}
    user.upgrade(wheels[1])
    user.release(trial)
    trial.wait_alone()

    assert trial.status()["state"] == "done"
    assert trial.answers() == calm.answers()
    assert trial.metrics == calm.metrics
    assert trial.tracebacks() == []
    assert trial.rounds == 1
    accepted = (trial.path / "environments.jsonl").read_text().splitlines()
    (changes,) = [json.loads(line)["changes"] for line in accepted]
    assert any(one.startswith("hpcbench/") for one in changes)
    assert any(one.startswith("argcomplete ") and one.endswith(" is new") for one in changes)
    assert not (trial.path / "environments.lock").exists()
    user.run("report", trial.id)
    assert "environment since" in (trial.path / "report" / "report.md").read_text()


@pytest.mark.campaign  # the array above is upgraded too
def test_a_paused_experiment_of_the_earlier_version_is_resumed_by_this_one(
    user: Upgraded, wheels: tuple[Path, Path], calm: Run
) -> None:
    user.script(answer_ms=[100, 150])
    trial = user.submit(user.plan())
    user.release(trial)
    until(lambda: trial.answered() > 4, "answers")
    before = trial.answers()
    user.run("pause", trial.id)
    until(lambda: not trial.jobs("R"), "the workers to rest")
    user.upgrade(wheels[1])
    user.script(answer_ms=[1, 3])
    trial.resume()
    user.release(trial)
    trial.wait("done")
    assert before.items() <= trial.answers().items()
    assert trial.answers() == calm.answers()
    assert trial.metrics == calm.metrics


@pytest.mark.campaign  # the array above is upgraded too
def test_a_cron_line_of_the_earlier_version_submits_with_this_one(
    user: Upgraded, wheels: tuple[Path, Path]
) -> None:
    """The line is taken from the user's crontab and run as cron does, with next to no environment."""
    if shutil.which("crontab") is None:
        unavailable("no cron on this machine: apt-get install cron")
    plan = user.plan(name="nightly")
    try:
        user.run(
            "cron", "install", plan, "--at", "0 3 1 1 *", "--registry", user.folder / "registry"
        )
        table = user.slurm("crontab", "-l")
    finally:
        user.lab.run_as_user(["crontab", "-r"])
    (line,) = [one for one in table.splitlines() if "# hpcbench:nightly" in one]
    user.upgrade(wheels[1])
    user.submit(
        user.plan(name="before")
    )  # brings the engine's package: cron may not reach an index

    command = re.sub(r"^0 3 1 1 \* ", "", line)
    argv = user.lab.user_argv(["env", "-i", "/bin/sh", "-c", command])
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={}, timeout=300)
    (log,) = (user.home / "cron").glob("nightly-????-??-??.log")
    assert done.returncode == 0, log.read_text()
    (trial,) = [one for one in user.known() if "-nightly-" in one.id]
    assert f"submitted {trial.id}" in log.read_text()
    user.release(trial)
    trial.wait("done")
    manifest = json.loads((trial.path / "manifest.json").read_text())
    assert "hpcbench/submit/fingerprint.py" in manifest["fingerprint"]["sources"]
