"""Unattended on the real cluster: cron submits, jobs run what was submitted, secrets stay secret."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.lab import Lab
from tests.conftest import run, unavailable
from tests.user import User, until

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(1200)]

VQA = {
    "name": "vqa",
    "ml_task": "vqa",
    "model": "tiny-vlm",
    "dataset": "demo_vqa",
    "split": "easy",
    "prompt": "demo_vqa",
    "limit": 2,
}
SECRET = "tell-tale-of-cron-and-env-7f3a"


class OwnUser(User):
    """A user whose environment a test may change: her own venv, in which hpcbench alone is installed."""

    def argv(self, *arguments: str | Path) -> list[str | Path]:
        return [self.python, "-m", "hpcbench.cli.main", *arguments]

    @property
    def source(self) -> Path:
        """Where hpcbench is installed."""
        (found,) = self.python.parent.parent.glob("lib/python3*/site-packages/hpcbench")
        return found

    def at_slurm(self, **options: object) -> None:
        """Set further sbatch options of her site profile."""
        profile = self.folder / "config" / "hpcbench" / "sites" / "default.yaml"
        data = yaml.safe_load(profile.read_text())
        data["slurm"].setdefault("options", {}).update(options)
        # Under --export=NONE a job finds its tools only where the site says they are.
        data["setup"] = [f"export PATH={self.lab.env()['PATH']}"]
        profile.write_text(yaml.safe_dump(data))

    def finish(self, experiment: str) -> str:
        """Release its jobs, which are submitted on hold, until it has ended; returns its state."""
        released: set[str] = set()
        deadline = time.monotonic() + 200
        while not (self.experiment(experiment) / "outcome.json").exists():
            for job in set(_jobs(self, experiment)) - released:
                self.lab.run_as_user(["scontrol", "release", job])
                released.add(job)
            assert time.monotonic() < deadline, self.status(experiment)
            time.sleep(1)
        return str(self.wait(experiment)["state"])


@pytest.fixture(scope="module")
def own(
    lab: Lab, lab_python: Path, image: str, shared_cache: Path, wheel: Path
) -> Iterator[OwnUser]:
    folder = lab.new_directory("own")
    environment = folder / "env"
    # No pip of its own, which takes six seconds to install: uv does what is left.
    run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(environment)])
    (site,) = environment.glob("lib/python3*/site-packages")
    (needed,) = lab_python.parent.parent.glob("lib/python3*/site-packages")
    (site / "needed.pth").write_text(f"{needed}\n")
    python = environment / "bin" / "python"
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "-q", "--offline"]
    run([*uv, "--compile-bytecode", "--no-deps", "--python", str(python), str(wheel)])
    run(["chown", "-R", "hpcuser:hpcuser", str(environment)])
    user = OwnUser(lab, python, folder)
    user.share_cache(shared_cache)
    user.init(insecure_registry=image.removeprefix("docker://").partition("/")[0])
    user.use_image(image)
    experiments = user.home / "experiments"
    yield user
    for path in experiments.iterdir() if experiments.is_dir() else ():
        user.hpcbench("cancel", path.name)
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def argument_lists() -> Iterator[list[bytes]]:
    """Argument lists of all processes, read again and again meanwhile."""
    found: set[bytes] = set()
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    found.add(path.read_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    seen: list[bytes] = []
    try:
        yield seen
    finally:
        done.set()
        thread.join()
        seen += found


def test_cron_itself_submits_and_does_not_overlap(own: OwnUser) -> None:
    """A real cron daemon, from Debian's package; it looks once a minute."""
    if shutil.which("cron") is None or shutil.which("crontab") is None:
        unavailable("no cron on this machine: apt-get install cron")
    plan = own.plan("nightly", [VQA])
    others = b"# her own line\n0 3 1 1 * /bin/true\n"
    daemon = subprocess.Popen(["cron", "-f"], stdin=subprocess.DEVNULL)
    try:
        _crontab(own, "-", others)
        own.ok("cron", "install", plan, "--at", "* * * * *", "--registry", own.registry)
        assert _crontab(own, "-l").startswith(others)
        until(lambda: len(_experiments(own)) == 1, 300, "cron to submit", every=0.5)
        again = own.ok("submit", plan, "--registry", own.registry, "--if-idle")
        experiment = own.experiment(_experiments(own)[0])
        assert "nothing submitted" in again or re.search(f"{experiment.name} is done", again)
        own.ok("cron", "remove", "nightly")
        assert _crontab(own, "-l") == others
        (log,) = (own.home / "cron").glob("nightly-????-??-??.log")
        assert f"submitted {experiment.name}" in log.read_text()
    finally:
        daemon.terminate()
        daemon.wait()
        own.lab.run_as_user(["crontab", "-r"])


def test_a_job_that_inherits_nothing_has_the_secret_and_nothing_else_shows_it(
    own: OwnUser, image: str
) -> None:
    own.at_slurm(export="NONE")
    own.write_model("tiny-vlm", image=image, gpus=1, env={"PROBE_KEY": "${env:PROBE_KEY}"})
    plan, before = own.plan("closed", [VQA]), _experiments(own)
    refused = own.hpcbench("submit", plan, "--registry", own.registry)
    assert refused.returncode == 2
    assert "${env:PROBE_KEY}" in refused.stderr
    assert _experiments(own) == before
    own.environment["PROBE_KEY"] = SECRET
    own.at_slurm(hold=True)
    with argument_lists() as lists:
        experiment = own.submit(plan)
        kept = own.home / "secrets" / f"{experiment}.json"
        assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        jobs = _jobs(own, experiment)
        shown = "".join(_shown(own, job) for job in jobs)
        del own.environment["PROBE_KEY"]
        assert own.finish(experiment) == "done", json.dumps(own.status(experiment), indent=1)
    assert SECRET not in shown
    assert not any(SECRET.encode() in one for one in lists)
    until(lambda: not kept.exists(), 90, "the secrets to be forgotten")
    for path in own.experiment(experiment).rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_jobs_run_what_was_submitted_or_stop_with_what_changed(own: OwnUser, image: str) -> None:
    own.use_image(image)
    own.at_slurm(hold=True)
    plan = own.plan("changed", [VQA])
    plain = own.submit(plan, "--fresh")  # cron's experiment has the same answers
    copied = own.submit(plan, "--fresh", "--snapshot-env", "--set", "seed=2")
    work = own.source / "worker" / "process.py"
    before = work.read_text()
    work.write_text(before + "\nraise RuntimeError('half a git pull')\n")
    # The worker alone: no process finalises before we have looked.
    _release(own, _jobs(own, plain, ":g0"))
    until(lambda: _stopped(own, plain), 120, "the worker to stop")
    assert own.finish(copied) == "done"
    assert own.answered(copied) == 2
    work.write_text(before + "\n# pulled\n")
    (cause,) = {failure["cause"] for failure in own.status(plain)["failures"]}
    assert "the environment changed since submit: hpcbench/worker/process.py differs" in cause
    assert own.answered(plain) == 0
    own.hpcbench("cancel", plain)
    resumed = own.hpcbench("resume", plain)
    assert "the environment has changed: hpcbench/worker/process.py differs" in resumed.stderr
    assert own.finish(plain) == "done"


def _experiments(own: OwnUser) -> list[str]:
    folder = own.home / "experiments"
    return sorted(path.parent.name for path in folder.glob("*/submission.jsonl"))


def _crontab(own: OwnUser, *arguments: str | bytes) -> bytes:
    argv = own.lab.user_argv(["crontab", str(arguments[0])])
    text = arguments[1] if len(arguments) > 1 else b""
    assert isinstance(text, bytes)
    done = subprocess.run(argv, input=text, capture_output=True, check=False, env=own.lab.env())
    assert done.returncode == 0, done.stderr
    return done.stdout


def _jobs(own: OwnUser, experiment: str, step: str = "") -> list[str]:
    """Its jobs that Slurm knows as alive."""
    reported = own.lab.run_as_user(["squeue", "--me", "-h", "-o", "%A %j"]).stdout
    lines = [line.split() for line in reported.splitlines()]
    return [job for job, name in lines if f"{experiment}{step}" in name]


def _shown(own: OwnUser, job: str) -> str:
    """All that Slurm's tools show of a job."""
    script = own.folder / "script"
    own.lab.run_as_user(["scontrol", "write", "batch_script", job, str(script)])
    shown = own.lab.run_as_user(["scontrol", "-dd", "show", "job", job]).stdout
    return shown + script.read_text()


def _release(own: OwnUser, jobs: list[str]) -> None:
    for job in jobs:
        own.lab.run_as_user(["scontrol", "release", job])


def _stopped(own: OwnUser, experiment: str) -> bool:
    files = (own.experiment(experiment) / "workers").glob("*.events.jsonl")
    return any('"failed"' in path.read_text() for path in files)
