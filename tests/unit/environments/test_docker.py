"""Facts about Docker that need no Docker: the runner's command, GPUs, reasons."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench import environments
from hpcbench.environments import docker_run
from hpcbench.environments.docker_run import Spec
from hpcbench.errors import EnvironmentFault
from hpcbench.plugins import Command, Environment
from hpcbench.schema.site import ContainerSite

IMAGE = f"registry.example/vllm@sha256:{'0' * 64}"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ContainerSite]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        yield ContainerSite(manager="docker", options={"socket": str(tmp_path / "socket")})


def wrap(site: ContainerSite, tmp_path: Path, gpus: int = 0) -> tuple[Command, Spec]:
    environment = Environment(
        "docker", IMAGE, None, packages=str(tmp_path), details={"origin": "docker://x"}
    )
    command = environments.wrap(
        environment,
        ["python", "-m", "x"],
        [f"{tmp_path}:/data:ro"],
        {"TOKEN": "s3cret"},
        gpus,
        site,
    )
    return command, Spec(**json.loads(command.env[docker_run.SPEC]))


def test_the_values_of_variables_are_in_no_argument_and_no_message(
    site: ContainerSite, tmp_path: Path
) -> None:
    command, spec = wrap(site, tmp_path)
    assert list(command.argv[-3:]) == ["python3", "-m", "x"]
    assert "s3cret" not in " ".join(command.argv) + command.env[docker_run.SPEC]
    assert command.env[f"{docker_run.GIVEN}TOKEN"] == "s3cret"
    assert command.env[f"{docker_run.GIVEN}PYTHONPATH"] == "/opt/hpcbench/packages"
    assert [str(tmp_path), "/opt/hpcbench/packages", True] in spec.mounts


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, ["GPU-a", "GPU-b"]),
        # Slurm counts from nought what a job may see; the daemon sees all.
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3"}, ["2", "3"]),
    ],
)
def test_the_jobs_gpus_are_named_as_the_daemon_counts_them(
    site: ContainerSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    wanted: list[str],
) -> None:
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    command, spec = wrap(site, tmp_path, gpus=2)
    assert spec.gpus == wanted
    assert f"{docker_run.GIVEN}CUDA_VISIBLE_DEVICES" not in command.env


@pytest.mark.long
def test_docker_and_podman_are_asked_for_gpus_in_their_own_ways() -> None:
    spec = Spec("/s", IMAGE, "docker://x", (), (), gpus=("2",))
    (docker,) = docker_run._gpus("Docker", "27.3.1", spec)["device_requests"]
    assert (docker["DeviceIDs"], docker["Capabilities"]) == (["2"], [["gpu"]])
    (podman,) = docker_run._gpus("podman", "5.4.0-rc1", spec)["device_requests"]
    assert (podman["Driver"], podman["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=2"])
    with pytest.raises(EnvironmentFault, match="podman 5.4 or newer"):
        docker_run._gpus("podman", "4.9.3", spec)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ('runc create failed: exec: "x": executable file not found in $PATH: unknown', 127),
        ('runc create failed: exec: "/x": stat /x: no such file or directory: unknown', 127),
        ("crun: executable file `x` not found in $PATH: No such file or directory", 127),
        ('runc create failed: exec: "/x": permission denied: unknown', 126),
        ("crun: open executable: Permission denied: OCI permission denied", 126),
        ("invalid mount config: bind source path does not exist: /data", 125),
    ],
)
def test_why_a_container_did_not_start_becomes_dockers_exit_code(said: str, code: int) -> None:
    assert docker_run._explained(OSError(said), "x")[0] == code
