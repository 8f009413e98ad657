"""The monitor's thread: what it adds up, writes down and raises alarms about.

GPUs are a fake; processes, control groups, zombies and full disks are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from hpcbench.monitor.alarms import Alarm
from hpcbench.monitor.host import Cgroup, HostMemory, network
from hpcbench.monitor.memory_figures import memory_figures
from hpcbench.monitor.sampler import Monitor, Summary
from tests.conftest import unavailable
from tests.fake_nvml import GIB, FakeGpu, FakeNvml
from tests.unit.monitor.conftest import Group, wait_for

Machine = Callable[..., FakeNvml]
MIB = 1 << 20


class Watched:
    """A monitor that looks often, and its events."""

    def __init__(self, root: int | None = None, **options: object) -> None:
        self.alarms: list[Alarm] = []
        self.monitor = Monitor(
            root or os.getpid(),
            on_alarm=self.alarms.append,
            seconds=0.02,
            **options,  # type: ignore[arg-type]
        )
        self.monitor.start()

    def kinds(self) -> list[str]:
        return [alarm.kind for alarm in self.alarms]

    def look(self, times: int = 2) -> None:
        """Wait for so many more readings."""
        before = self.readings
        wait_for(lambda: self.readings >= before + times)

    @property
    def readings(self) -> int:
        return sum(
            phase.readings
            for name in ("start", "load", "run")
            if (phase := self.monitor.phase(name)) is not None
        )

    def mark(self, name: str) -> None:
        self.monitor.mark(name)
        wait_for(lambda: self.monitor.phase(name) is not None)

    def stop(self) -> Summary:
        return self.monitor.stop()


Watch = Callable[..., Watched]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Starts monitors and ends them."""
    started: list[Watched] = []

    def start(root: int | None = None, **options: object) -> Watched:
        started.append(Watched(root, **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_without_gpu_engine_and_folders_it_tells_of_the_host(watch: Watch) -> None:
    seen = watch()
    seen.look()
    whole = seen.stop().whole
    assert whole.gpus == () and whole.host_held_peak_bytes > 5 * MIB
    assert whole.processes >= 1 and whole.readings >= 3
    assert seen.alarms == [] and seen.stop().notes == ()


def test_each_phase_has_peaks_of_its_own_and_goes_on_under_its_name(
    watch: Watch, machine: Machine, child: subprocess.Popen[bytes]
) -> None:
    gpu = FakeGpu("GPU-a", used=GIB)
    machine(gpu)
    seen = watch()
    seen.mark("load")
    gpu.processes, gpu.used = {os.getpid(): 2 * GIB, child.pid: 10 * GIB, 1: 5 * GIB}, 18 * GIB
    seen.look()
    gpu.processes = {child.pid: 4 * GIB}
    seen.mark("run")
    seen.look()
    seen.mark("load")
    seen.look()
    summary = seen.stop()
    peaks = {phase.name: phase.gpus[0].peak_bytes for phase in summary.phases}
    assert peaks["load"] == 12 * GIB, "of our processes alone, at one time"
    assert peaks["run"] == 4 * GIB
    assert summary.whole.gpus[0].device_peak_bytes == 18 * GIB
    assert memory_figures(summary.whole).gpu_peak_source == "processes"
    assert [phase.name for phase in summary.phases] == ["start", "load", "run"]
    assert summary.whole.seconds == pytest.approx(sum(one.seconds for one in summary.phases))


def test_where_the_driver_hides_processes_all_above_the_beginning_counts_and_is_marked(
    watch: Watch, machine: Machine
) -> None:
    gpu = FakeGpu("GPU-a", used=GIB, processes={4_000_000: GIB})
    machine(gpu)
    seen = watch()
    gpu.used = 31 * GIB
    seen.look()
    figures = memory_figures(seen.stop().whole)
    assert (figures.gpu_peak, figures.gpu_peak_source) == (30 * GIB, "device")


def test_a_process_that_draws_and_computes_is_counted_once(watch: Watch, machine: Machine) -> None:
    own = {os.getpid(): 3 * GIB}
    machine(FakeGpu("GPU-a", used=4 * GIB, processes=dict(own), drawing=own))
    seen = watch()
    seen.look()
    assert seen.stop().whole.gpus[0].peak_bytes == 3 * GIB


def test_only_the_gpus_of_this_job_are_read(
    watch: Watch, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(FakeGpu("GPU-a", used=1), FakeGpu("GPU-b", used=1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [use.gpu.uuid for use in watch().stop().whole.gpus] == ["GPU-b"]


def test_a_gpu_that_is_lost_is_reported_once_and_monitoring_goes_on(
    watch: Watch, machine: Machine
) -> None:
    bad, good = FakeGpu("GPU-a", used=GIB), FakeGpu("GPU-b", used=GIB)
    machine(bad, good)
    seen = watch()
    bad.broken = pynvml.NVML_ERROR_GPU_IS_LOST
    seen.look()
    good.used = 3 * GIB
    seen.look()
    summary = seen.stop()
    reported = "GPU 0 (NVIDIA A100-SXM4-40GB) can no longer be read: GPU is lost"
    assert [(alarm.kind, alarm.message) for alarm in seen.alarms] == [("gpu_unreadable", reported)]
    assert summary.notes == (reported,)
    assert summary.whole.gpus[1].peak_bytes == 2 * GIB


@pytest.mark.parametrize("new_names", [True, False])
def test_slowed_down_gpus_are_reported_once_with_the_reason(
    watch: Watch, machine: Machine, new_names: bool
) -> None:
    gpu = FakeGpu("GPU-a", used=1, celsius=91, throttles=0x1)
    machine(gpu, new_names=new_names)
    seen = watch()
    seen.look()
    assert seen.alarms == [], "to idle is not to be slowed down"
    gpu.throttles = 0x40 | 0x4
    seen.look(4)
    (alarm,) = seen.alarms
    assert alarm.message == (
        "GPU 0 (NVIDIA A100-SXM4-40GB) is throttled: power cap, thermal (hardware); temperature 91 °C"
    )
    assert seen.stop().whole.gpus[0].throttles == ("power cap", "thermal (hardware)")


def test_each_gpu_that_is_slowed_down_is_reported(watch: Watch, machine: Machine) -> None:
    first, second = FakeGpu("GPU-a", throttles=0x4), FakeGpu("GPU-b")
    machine(first, second)
    seen = watch()
    seen.look()
    second.throttles = 0x4
    seen.look(4)
    assert [(alarm.kind, alarm.message[:5]) for alarm in seen.alarms] == [
        ("throttled", "GPU 0"), ("throttled", "GPU 1"),
    ]  # fmt: skip
    second.throttles = 0x44
    seen.look(4)
    assert len(seen.alarms) == 3
    assert "throttled: thermal (hardware)" in seen.alarms[-1].message


@pytest.mark.parametrize("counter", [True, False])
def test_energy_is_the_gpus_own_count_or_power_over_time(
    watch: Watch, machine: Machine, counter: bool
) -> None:
    gpu = FakeGpu("GPU-a", used=1, milliwatts=360_000, millijoules=5_000_000 if counter else None)
    machine(gpu)
    seen = watch()
    if counter:
        gpu.millijoules = 5_000_000 + 7_200_000
    seen.look(10)
    whole = seen.stop().whole
    spent = 7200 if counter else 360 * whole.seconds
    assert whole.gpus[0].watt_hours == pytest.approx(spent / 3600)


def test_what_a_gpu_does_not_support_is_unknown_and_not_nought(
    watch: Watch, machine: Machine
) -> None:
    nothing = {
        "utilisation": None,
        "celsius": None,
        "sm_mhz": None,
        "milliwatts": None,
        "throttles": None,
    }
    machine(FakeGpu("MIG-a", used=GIB, processes={os.getpid(): None}, **nothing))  # type: ignore[arg-type]
    seen = watch()
    seen.look()
    (use,) = seen.stop().whole.gpus
    assert {use.utilisation, use.celsius, use.sm_mhz, use.watts, use.watt_hours} == {None}
    assert (use.source, use.throttles) == ("device", ())


def test_means_are_of_the_time_with_requests_under_way(
    watch: Watch, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.monitor.sampler.ENGINE_SECONDS", 0.0)
    gpu = FakeGpu("GPU-a", used=1, utilisation=90, milliwatts=300_000)
    machine(gpu)
    running = 1
    seen = watch()
    seen.monitor.ask_engine(
        lambda: f"vllm:num_requests_running {running}\nvllm:kv_cache_usage_perc {0.5 * running}\n"
    )
    seen.mark("run")
    seen.look(3)
    running, gpu.utilisation, gpu.milliwatts = 0, 3, 60_000
    seen.look(10)
    phase = next(one for one in seen.stop().phases if one.name == "run")
    assert phase.gpus[0].utilisation is not None and phase.gpus[0].utilisation > 45
    assert 0 < phase.busy_seconds < phase.seconds
    assert (phase.engine.running, phase.engine.kv_usage) == (1, 0.5)


def test_an_engine_that_does_not_answer_is_asked_less_and_less(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.monitor.sampler.ENGINE_SECONDS", 0.02)
    asked: list[float] = []

    def dead() -> str:
        asked.append(time.monotonic())
        raise ConnectionRefusedError

    seen = watch()
    seen.monitor.ask_engine(dead)
    wait_for(lambda: len(asked) >= 4)
    gaps = [later - earlier for earlier, later in zip(asked, asked[1:], strict=False)]
    assert gaps[-1] > gaps[0]
    assert seen.alarms == [] and seen.stop().whole.engine.running is None


def test_whatever_goes_wrong_in_a_reading_is_noted_and_ends_nothing(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, went_wrong = watch(), threading.Event()

    def read(self: object) -> None:
        went_wrong.set()
        raise ZeroDivisionError

    monkeypatch.setattr("hpcbench.monitor.sampler.Cgroup.read", read)
    assert went_wrong.wait(20)
    monkeypatch.undo()
    seen.look()
    assert any("ZeroDivisionError" in note for note in seen.stop().notes)


def test_readings_are_lines_of_a_file_and_thinned_out_as_they_become_many(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    monkeypatch.setattr("hpcbench.monitor.sampler.LINES", 5)
    machine(FakeGpu("GPU-a", used=GIB))
    file = tmp_path / "deep" / "monitor.jsonl"
    seen = watch(file=file, folders={"scratch": tmp_path})
    seen.mark("run")
    seen.look(40)
    whole = seen.stop().whole
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert 10 <= len(lines) <= 20 < whole.readings
    assert lines[-1]["phase"] == "run" and lines[-1]["gpus"][0]["used"] == GIB
    assert {"time", "at", "held", "cpu", "processes", "disk"} <= lines[0].keys()
    networks = [line.get("net", {}) for line in lines]
    assert networks[0].keys() == networks[-1].keys() == network().keys()
    gaps = [later["at"] - earlier["at"] for earlier, later in zip(lines, lines[1:], strict=False)]
    assert max(gaps[-4:]) > min(gaps[:4])


def test_a_file_that_cannot_be_written_is_noted_and_ends_nothing(
    watch: Watch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    seen = watch(file=tmp_path / "file" / "monitor.jsonl")
    seen.look()
    (note,) = seen.stop().notes
    assert note.startswith("cannot write readings to ") and note.endswith("File exists")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 8 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        unavailable("no tmpfs can be mounted here: needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.long
def test_a_disk_that_is_nearly_full_is_reported_once_a_minute(
    watch: Watch, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.monitor.sampler.DISK_SECONDS", 0.0)
    seen = watch(folders={"scratch": small_disk, "experiment": tmp_path})
    seen.look()
    assert seen.alarms == []
    (small_disk / "file").write_bytes(bytes(8 * MIB - 100_000))
    seen.look(5)
    (alarm,) = seen.alarms
    assert alarm.kind == "disk_nearly_full"
    assert alarm.message.endswith(f"on the disk of scratch ({small_disk})")
    monkeypatch.setattr("hpcbench.monitor.alarms.AGAIN_SECONDS", 0.0)
    seen.look()
    assert len(seen.alarms) > 1
    assert seen.stop().whole.disk_free["scratch"] < 160_000


@pytest.mark.long
def test_an_engine_that_ended_and_is_a_zombie_raises_an_alarm(watch: Watch) -> None:
    process = subprocess.Popen(["sleep", "60"])
    seen = watch()
    seen.monitor.watch_engine(process.pid)
    seen.look(3)
    assert seen.alarms == []
    process.kill()  # and the monitor does not wait for it
    wait_for(lambda: seen.alarms)
    (alarm,) = seen.alarms
    assert alarm == Alarm(
        "engine_gone",
        f"the engine's first process (sleep, pid {process.pid}) has ended, and its parent has not read "
        "its exit code (a zombie)",
    )
    process.wait()
    assert seen.stop().whole.zombies == 1


def test_an_engine_that_is_gone_raises_an_alarm_unless_it_was_to_go(watch: Watch) -> None:
    first, second = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    seen = watch()
    seen.monitor.watch_engine(first.pid)
    seen.look(3)
    seen.monitor.watch_engine(None)
    seen.look(3)
    first.kill(), first.wait()
    seen.look(3)
    assert seen.alarms == []
    seen.monitor.watch_engine(second.pid)
    seen.look(3)
    second.kill(), second.wait()
    seen.look(3)
    assert [alarm.message.rsplit(") ", 1)[1] for alarm in seen.alarms] == ["is gone"]


def test_an_engine_in_a_pid_namespace_is_known_by_its_own_number(watch: Watch) -> None:
    process = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "60"])
    try:
        found = f"/proc/{process.pid}/task/{process.pid}/children"
        wait_for(lambda: process.poll() is not None or Path(found).read_text().strip())
        if process.poll() is not None:
            unavailable("no PID namespace can be made here: needs root")
        engine = int(Path(found).read_text())
        seen = watch(process.pid)
        seen.monitor.watch_engine(1)
        seen.look(3)
        os.kill(engine, 9)
        wait_for(lambda: seen.alarms)
        assert f"pid {engine})" in seen.alarms[0].message
    finally:
        process.kill()
        process.wait()


def test_a_number_of_no_process_of_ours_is_noted(watch: Watch) -> None:
    seen = watch()
    seen.monitor.watch_engine(4_000_000)
    seen.look(3)
    assert seen.stop().notes == (
        "the monitor cannot find the engine's process 4000000: no alarm will report its end",
    )
    assert seen.alarms == []


def test_a_job_near_its_memory_limit_raises_an_alarm_but_not_for_files_that_are_cached(
    watch: Watch, group: Group
) -> None:
    group.limit(512 * MIB)
    code = """
import tempfile, time
held = bytearray(60 << 20)
with tempfile.TemporaryFile(dir='/var/tmp') as file:
    file.write(bytes(40 << 20))
    file.flush()
    time.sleep(60)
"""
    process = group.start(code)
    try:
        wait_for(lambda: (group.folder / "cgroup.procs").read_text().count("\n") >= 2)
        cgroup = Cgroup.of(process.pid)
        assert cgroup is not None

        def memory() -> HostMemory:
            found = cgroup.read()
            assert found is not None
            return found

        wait_for(lambda: memory().used > memory().held + 35 * MIB)
        seen = watch(process.pid)
        group.limit(int(memory().used * 1.02))
        seen.look(5)
        assert seen.alarms == [], "what is cached can be dropped"
        group.limit(int(memory().held * 1.03))
        wait_for(lambda: seen.alarms)
        assert seen.kinds() == ["memory_near_limit"]
        assert "GiB of memory; its limit is" in seen.alarms[0].message
    finally:
        process.kill()
        process.wait()


@pytest.mark.long
def test_a_process_killed_for_want_of_memory_is_reported_with_its_name(
    watch: Watch, group: Group
) -> None:
    group.limit(64 * MIB)
    eat = "import time; time.sleep(0.5); hoard = [time.sleep(0.01) or bytearray(1 << 20) for _ in range(200)]"
    process = group.start(eat)
    try:
        wait_for(lambda: (group.folder / "cgroup.procs").read_text().count("\n") >= 2)
        seen = watch(process.pid)
        wait_for(lambda: "out_of_memory" in seen.kinds())
        time.sleep(0.2)
    finally:
        process.kill()
        process.wait()
    (alarm,) = [alarm for alarm in seen.alarms if alarm.kind == "out_of_memory"]
    assert alarm.message.startswith("the kernel killed python")
    assert alarm.message.endswith("out of memory (limit: 0.0625 GiB)")


def test_marking_and_asking_return_at_once_while_a_reading_hangs(watch: Watch) -> None:
    hang, hanging = threading.Event(), threading.Event()

    def slow() -> str:
        hanging.set()
        hang.wait(20)
        return ""

    seen = watch()
    seen.monitor.ask_engine(slow)
    assert hanging.wait(20)
    seen.monitor.mark("run")
    seen.monitor.watch_engine(None)
    assert seen.monitor.phase("run") is None
    hang.set()
    wait_for(lambda: seen.monitor.phase("run") is not None)
