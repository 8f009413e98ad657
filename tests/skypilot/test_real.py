"""SkyPilot's real program and server: a machine is rented, used, and given back, however its runner ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hpcbench.environments.rented import TAKEN
from hpcbench.environments.skypilot import NO_IMAGE, SkyPilot
from hpcbench.errors import EnvironmentFault
from hpcbench.schema.site import ContainerSite
from tests.cluster.lab import Lab
from tests.skypilot.real import RealSky

# Minutes on two cores: SkyPilot starts a server, and asks it for each step.
pytestmark = [pytest.mark.slurm, pytest.mark.campaign, pytest.mark.timeout(1500)]

SLEEP = "print('asleep', flush=True); import time; time.sleep(600)"


@pytest.fixture(scope="module")
def real() -> Iterator[RealSky]:
    """In a folder with a short path, for munge's socket."""
    with tempfile.TemporaryDirectory(prefix="sky-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)  # for munged, too
        with RealSky(Path(name), Lab.current()) as made:
            yield made


@pytest.fixture
def site(real: RealSky, monkeypatch: pytest.MonkeyPatch) -> ContainerSite:
    for name, value in real.env.items():
        monkeypatch.setenv(name, value)
    return ContainerSite(
        manager="skypilot",
        options={
            "program": str(real.program), "infra": "slurm/lab/main", "max_cost": 1, "max_hours": 1,
        },
    )  # fmt: skip


@dataclass
class Started:
    """A runner, as a worker starts it."""

    process: subprocess.Popen[bytes]
    own: Path
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str, seconds: float = 900) -> None:
        until = time.monotonic() + seconds
        while text not in self.said():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.5)


@contextlib.contextmanager
def started(site: ContainerSite, tmp_path: Path, code: str) -> Iterator[Started]:
    """A Python program on a machine."""
    said: list[str] = []
    environment = SkyPilot().prepare(NO_IMAGE, tmp_path / "cache", site, (), said.append)
    assert said == []
    own, log = tmp_path / "own", tmp_path / "log"
    own.mkdir()
    command = SkyPilot().wrap(
        environment, ["python", "-c", code], [str(own)], {"A": "b c"}, 0, site
    )
    with log.open("wb") as out:
        process = subprocess.Popen(
            command.argv, env={**os.environ, **command.env}, stdin=subprocess.PIPE, stdout=out,
            stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        yield Started(process, own, log)
    finally:
        process.kill()
        process.communicate()


def test_a_command_runs_there_and_the_machine_goes(
    real: RealSky, site: ContainerSite, tmp_path: Path
) -> None:
    code = (
        "import os, sys, hpcbench; open('result', 'w').write(sys.stdin.read() + os.environ['A'])\n"
        "print(hpcbench.__file__); raise SystemExit(7)"
    )
    with started(site, tmp_path, code) as runner:
        runner.process.communicate(b"heard ", timeout=1200)
        assert runner.process.returncode == 7, runner.said()
        assert (runner.own / "result").read_text() == "heard b c"
        assert "/opt/hpcbench/packages/hpcbench/" in runner.said()
    assert real.jobs() == []
    assert not Path("/opt/hpcbench/packages").exists()


def test_preempted(real: RealSky, site: ContainerSite, tmp_path: Path) -> None:
    with started(site, tmp_path, SLEEP) as runner:
        runner.wait_for("asleep")
        real.preempt()
        assert runner.process.wait(600) == TAKEN, runner.said()
        assert runner.said().splitlines()[-1].startswith("FATAL: the rented machine is gone")


def test_kill_9_leaves_no_machine(real: RealSky, site: ContainerSite, tmp_path: Path) -> None:
    with started(site, tmp_path, SLEEP) as runner:
        until = time.monotonic() + 600
        while not real.jobs():  # SkyPilot goes on with a launch whose client is gone
            assert time.monotonic() < until, runner.said()
            time.sleep(0.2)
        os.killpg(runner.process.pid, signal.SIGKILL)  # as the worker does
        runner.process.wait()
        while real.jobs():
            assert time.monotonic() < until, runner.said()
            time.sleep(1)
        while not real.sky("status", "--output", "json").stdout.strip().endswith("[]"):
            assert time.monotonic() < until, runner.said()


def test_a_launch_that_the_server_does_not_list_yet(
    real: RealSky, site: ContainerSite, tmp_path: Path
) -> None:
    task = tmp_path / "task.json"
    task.write_text('{"resources": {"infra": "slurm/lab/main"}}')
    before = real.log().count('"POST /launch')
    client = subprocess.Popen(
        [real.program, "launch", "--yes", "--detach-run", "--cluster", "early", task],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 300
    while real.log().count('"POST /launch') == before:
        assert time.monotonic() < until
        time.sleep(0.05)
    client.kill()
    client.wait()
    clusters = SkyPilot.machines_of(site.options)
    clusters.give_back("early", patience=600)
    assert '"POST /api/cancel' in real.log()
    time.sleep(20)  # the server would have gone on
    assert real.jobs() == []
    assert "early" not in clusters.existing()


def test_what_it_refuses_is_one_line(real: RealSky, site: ContainerSite, tmp_path: Path) -> None:
    spot = site.model_copy(update={"options": {**site.options, "spot": True}})
    image = f"docker://registry.example/engine@sha256:{'a' * 64}"
    elsewhere = site.model_copy(update={"options": {**site.options, "infra": "k8s"}})
    for asked, given, words in (
        (
            NO_IMAGE,
            spot,
            "Spot instances are not supported in Slurm|does not contain any instances",
        ),
        (image, site, "the Pyxis plugin is not installed"),
        (NO_IMAGE, elsewhere, "requires kubernetes which is not enabled"),
    ):
        with pytest.raises(EnvironmentFault, match=words) as caught:
            SkyPilot().prepare(asked, tmp_path, given, (), print)
        assert "\n" not in str(caught.value)
    assert real.jobs() == []
