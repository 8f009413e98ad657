"""Fixtures of the monitor's tests: a clean environment, pretended GPUs, a real memory control group."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import unavailable
from tests.fake_nvml import FakeGpu, FakeNvml

GPU_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
    "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_JOB_ID",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has, a test begins without a GPU and without a job."""
    for name in GPU_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    monkeypatch.setattr("hpcbench.monitor.devices._SMI", ["no-nvidia-smi-here"])
    monkeypatch.setattr("hpcbench.monitor.devices._ROCM", ["no-rocm-smi-here"])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeNvml]:
    """Makes this a machine with pretended GPUs."""

    def make(*gpus: FakeGpu, **options: bool) -> FakeNvml:
        fake = FakeNvml(list(gpus), **options)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return make


@dataclass(frozen=True)
class Group:
    """A real memory control group."""

    folder: Path
    version: int

    def limit(self, size: int) -> None:
        """Set its limit, bytes."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        (self.folder / name).write_text(str(size))

    def start(self, code: str) -> subprocess.Popen[bytes]:
        """A shell in the group that runs Python code in a child and then waits."""
        script = f'echo $$ > "{self.folder}/cgroup.procs" && "{sys.executable}" -c "$0"; sleep 60'
        return subprocess.Popen(["sh", "-c", script, code], start_new_session=True)


@pytest.fixture
def group() -> Iterator[Group]:
    """A control group of our own, of whichever version this machine has."""
    found = _make_group()
    if found is None:
        unavailable("no memory control group can be made here: needs root and a writable hierarchy")
    yield found
    for pid in (found.folder / "cgroup.procs").read_text().split():
        os.kill(int(pid), 9)
    wait_for(lambda: not (found.folder / "cgroup.procs").read_text())
    found.folder.rmdir()


def _make_group() -> Group | None:
    name = f"hpcbench-test-{os.getpid()}-{time.monotonic_ns()}"
    for top, version, file in (
        ("/sys/fs/cgroup/memory", 1, "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", 2, "memory.max"),
    ):
        folder = Path(top) / name
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / file).exists():
            return Group(folder, version)
        folder.rmdir()
    return None


def wait_for(true: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
