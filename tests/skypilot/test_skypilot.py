"""Machines of SkyPilot: what is asked of it, what its refusals say, and that no machine is ever left.

SkyPilot is a fake (fake_sky.py); sshd, rsync, signals and processes are real. The real one is in
`test_real.py`. Pods of RunPod test the parts that all rented machines share.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench import plugins
from hpcbench.environments.rented import TAKEN
from hpcbench.environments.skypilot import NO_IMAGE, SkyPilot, reason
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.schema.site import ContainerSite
from tests.skypilot.conftest import IMAGE, Rig
from tests.skypilot.fake_sky import FakeSky

Gone = Callable[..., None]

SLEEP = "import time; print('asleep', flush=True); time.sleep(300)"


def test_it_is_a_plugin() -> None:
    assert plugins.load("environments", "hpcbench.environments.skypilot:SkyPilot") is SkyPilot


def test_what_is_asked_of_skypilot(rig: Rig, fake: FakeSky) -> None:
    runner = rig.start(
        "python", "-c", "print('ran')", gpus=2, env={"TOKEN": "s3cr3t"},
        gpu_types=["L40S", "A100"], infra="k8s", spot=True, disk_gb=30,
    )  # fmt: skip
    assert runner.end() == 0, runner.said()
    assert not fake.clusters
    (plan, launch) = fake.asked("launch")
    assert "--dryrun" in plan.words
    assert plan.task["resources"]["accelerators"] == ["L40S:1", "A100:1"]
    assert launch.task == {
        "resources": {
            "max_hourly_cost": 0.5, "disk_size": 30, "use_spot": True, "infra": "k8s",
            "image_id": f"docker:{IMAGE.removeprefix('docker://')}",
            "accelerators": ["L40S:2", "A100:2"],
        }
    }  # fmt: skip
    after = launch.words[launch.words.index("--idle-minutes-to-autostop") + 1]
    assert after in ("600", "601")  # max_hours, and a minute
    assert "--down" in launch.words
    assert launch.words[launch.words.index("--wait-for") + 1] == "none"
    assert "s3cr3t" not in str(fake.calls)


def test_without_an_image_it_is_the_machines_python(rig: Rig, fake: FakeSky) -> None:
    environment = SkyPilot().prepare(NO_IMAGE, rig.cache, rig.site(), (), print)
    assert environment.digest is None
    assert "image_id" not in fake.asked("launch")[0].task["resources"]


@pytest.mark.parametrize("when", ["unreachable", "prepared", "running"])
def test_a_machine_that_is_taken_away(rig: Rig, fake: FakeSky, when: str) -> None:
    fake.sshd = when != "unreachable"
    runner = rig.start("python", "-c", SLEEP)
    if when == "running":
        runner.wait_for("asleep")
    while not any(cluster.state == "UP" for cluster in fake.clusters.values()):
        assert runner.process.poll() is None, runner.said()
        time.sleep(0.01)
    fake.delete(next(iter(fake.clusters)))
    assert runner.end() == TAKEN
    assert (
        runner.said()
        .splitlines()[-1]
        .startswith("FATAL: the rented machine is gone: preempted, or deleted by another program")
    )


@pytest.mark.parametrize("when", ["asked", "launching", "running"])
def test_kill_9_of_the_runner_leaves_no_machine(
    rig: Rig, fake: FakeSky, gone: Gone, when: str
) -> None:
    fake.planning = 6 if when == "asked" else 0
    fake.delay = 3600 if when == "launching" else 0.2
    runner = rig.start("python", "-c", SLEEP)
    if when == "running":
        runner.wait_for("asleep")
    else:
        while not (fake.pending if when == "asked" else fake.clusters):
            assert runner.process.poll() is None, runner.said()
            time.sleep(0.01)
    os.killpg(runner.process.pid, signal.SIGKILL)  # as the worker does
    if when == "asked":  # the server goes on with what it was asked for
        until = time.monotonic() + 30
        while fake.pending:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert [call for call in fake.asked("api") if call.words[1] == "cancel"]
    gone()


def test_stopped_while_it_launches(rig: Rig, fake: FakeSky) -> None:
    fake.delay = 3600
    runner = rig.start("python", "-c", SLEEP)
    while not fake.clusters:
        assert runner.process.poll() is None, runner.said()
        time.sleep(0.01)
    runner.process.send_signal(signal.SIGTERM)
    assert runner.end() == 128 + signal.SIGTERM
    assert not fake.clusters


def test_the_next_prepare_deletes_what_was_left(rig: Rig, fake: FakeSky) -> None:
    runner = rig.start("python", "-c", SLEEP)
    runner.wait_for("asleep")
    for pid in (runner.guard(), runner.process.pid):
        os.kill(pid, signal.SIGKILL)
    runner.process.wait()
    (machine,) = fake.clusters
    said: list[str] = []
    rig.prepare(said.append)
    assert not fake.clusters
    assert len(said) == 1
    assert f"deleted skypilot machine {machine}" in said[0]


def test_the_machines_of_one_worker_have_one_budget(rig: Rig, fake: FakeSky) -> None:
    """A preempted machine is rented again until the money could be spent."""
    first = rig.start("python", "-c", SLEEP, max_cost=0.05, max_hours=0.005)  # 18 s
    assert first.end() == 255
    second = rig.start("python", "-c", SLEEP, max_cost=0.05, max_hours=0.005)
    assert second.end() == 255
    assert "earlier machines of this worker have cost max_cost = 0.05 USD" in second.said()
    assert len(fake.rented()) == 1
    assert not fake.clusters


REFUSALS = {
    # what the real program said on its standard error (0.14.1), and what of it is shown
    "no cloud": (
        "sky.exceptions.NoCloudAccessError: Cloud access is not set up. Run: \x1b[1msky check\x1b[0m\n",
        r"Cloud access is not set up.* \(?.*`sky check` says what each lacks",
    ),
    "no such machine": (
        "sky.exceptions.ResourcesUnavailableError: Catalog does not contain any instances satisfying the "
        "request: 1x Slurm([Spot], region=lab, zone=main).\nTo fix: relax or change the request.\n",
        "does not contain any instances satisfying the request.*name more gpu_types",
    ),
    "no images": (
        "sky.exceptions.NotSupportedError: The following features are not supported by Slurm:\n"
        "\tFeature       Reason     \n\tdocker_image  Docker image is not supported on this cluster. \n",
        "not supported by Slurm: Feature Reason docker_image Docker image is not supported",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_every_refusal_is_one_line(rig: Rig, fake: FakeSky, what: str) -> None:
    said, shown = REFUSALS[what]
    fake.failures.append(("launch", said))
    with pytest.raises(
        EnvironmentFault, match=f"SkyPilot cannot plan a machine: .*{shown}"
    ) as caught:
        rig.prepare()
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_refused_launch_is_one_line_and_leaves_nothing(rig: Rig, fake: FakeSky) -> None:
    environment = rig.prepare()
    fake.failures.append(("launch", "sky.exceptions.ResourcesUnavailableError: quota exceeded\n"))
    runner = rig.start("python", "-c", SLEEP, environment=environment)
    assert runner.end() == 255
    last = runner.said().splitlines()[-1]
    assert re.search(
        "^FATAL: SkyPilot cannot rent a machine: .*quota exceeded.*ask for a quota", last
    )
    assert not fake.clusters


def test_a_server_that_is_down(rig: Rig, fake: FakeSky) -> None:
    fake.server_up = False
    with pytest.raises(
        EnvironmentFault, match="has no API server: Could not connect to .* at http.*api start"
    ):
        rig.prepare()
    assert [call.words[0] for call in fake.calls] == ["api"]  # no command starts one


def test_no_skypilot(rig: Rig) -> None:
    with pytest.raises(EnvironmentFault, match="there is no SkyPilot: /nowhere/sky: .*pip install"):
        rig.prepare(program="/nowhere/sky")


def test_a_machine_that_cannot_be_deleted_is_named(rig: Rig, fake: FakeSky) -> None:
    fake.failures += [("down", "RuntimeError: internal error\n")] * 9
    machines = SkyPilot.machines_of(rig.given())
    with pytest.raises(
        EnvironmentFault,
        match="MACHINE m1 MAY STILL COST MONEY.*RuntimeError: internal error.*sky down m1",
    ):
        machines.give_back("m1", patience=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_hours": 1}, "option 'max_cost' is missing"),
        ({"max_cost": 1}, "option 'max_hours' is missing"),
        ({"max_cost": 1, "max_hours": 1, "gpu": ["X"]}, "unknown option 'gpu'"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: dict[str, int], message: str) -> None:
    site = ContainerSite(manager="skypilot", options=options)
    with pytest.raises(UserError, match=message):
        SkyPilot().prepare(IMAGE, tmp_path, site, (), print)


def test_only_images_of_registries(rig: Rig) -> None:
    with pytest.raises(UserError, match="cannot run with SkyPilot.*docker://HOST/NAME"):
        SkyPilot().prepare("image.sif", rig.cache, rig.site(), (), print)


def test_a_refusal_without_an_exception() -> None:
    assert reason("", "Usage: sky launch\n\nError: No such option: --wait-for\n") == (
        "Error: No such option: --wait-for"
    )
    assert reason("", "") == "it printed no message"
