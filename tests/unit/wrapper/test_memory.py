"""How much memory an engine takes, of the host and of GPUs: processes and sockets are real, GPUs a fake."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any

import pytest

from hpcbench.wrapper.memory import Sampler
from tests.fake_nvml import GIB, FakeGpu, FakeNvml
from tests.unit.monitor.conftest import GPU_VARIABLES, wait_for


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.wrapper.memory._SECONDS", 0.02)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    for name in GPU_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def engine() -> Iterator[int]:
    """A process in a session of its own."""
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def sample(engine: int, socket_path: Path) -> Iterator[Callable[[int], Sampler]]:
    started: list[Sampler] = []

    def start(gpus: int) -> Sampler:
        started.append(Sampler(engine, "no mark", gpus, socket_path))
        return started[-1]

    yield start
    for one in started:
        one.stop()


class Metrics(UnixStreamServer):
    """An engine's `/metrics`."""

    def __init__(self, socket: Path) -> None:
        self.text, self.asked = "", 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(server.text.encode())

            def log_message(self, *arguments: Any) -> None:
                pass

        super().__init__(str(socket), Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def metrics(socket_path: Path) -> Iterator[Callable[[], Metrics]]:
    """Has the engine answer from now on."""
    started: list[Metrics] = []

    def start() -> Metrics:
        started.append(Metrics(socket_path))
        return started[-1]

    yield start
    for one in started:
        one.shutdown()
        one.server_close()


def test_without_gpus_only_memory_of_the_host_is_read(
    sample: Callable[[int], Sampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvml([FakeGpu("GPU-0", used=GIB)])
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    peaks = sample(0).peaks
    wait_for(lambda: peaks.host)
    assert not peaks.on_gpus
    assert peaks.gpus is None
    assert fake.users == 0


def test_memory_of_gpus_is_that_of_the_engines_processes(
    engine: int, sample: Callable[[int], Sampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [FakeGpu(f"GPU-{n}", used=9 * GIB, processes={1: 9 * GIB}) for n in range(2)]
    fake = FakeNvml(gpus)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    sampler = sample(2)
    peaks = sampler.peaks
    assert peaks.on_gpus
    for gpu in gpus:
        gpu.processes[engine] = 4 * GIB
    wait_for(lambda: peaks.gpus == 8 * GIB)
    gpus[0].processes[engine] = GIB
    time.sleep(0.1)
    assert peaks.gpus == 8 * GIB
    gpus[1].processes[engine] = 8 * GIB
    wait_for(lambda: peaks.gpus == 9 * GIB)
    sampler.stop()
    wait_for(lambda: fake.users == 0)


def test_where_processes_are_hidden_it_is_what_was_added_since_the_start(
    sample: Callable[[int], Sampler], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = FakeGpu("GPU-0", used=2 * GIB)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([gpu]))
    peaks = sample(1).peaks
    wait_for(lambda: peaks.gpus == 0)
    gpu.used = 7 * GIB
    wait_for(lambda: peaks.gpus == 5 * GIB)


def test_the_engines_own_word_counts_where_it_has_one(
    sample: Callable[[int], Sampler],
    metrics: Callable[[], Metrics],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = FakeGpu("GPU-0")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([gpu]))
    peaks = sample(1).peaks
    wait_for(lambda: peaks.gpus == 0)
    gpu.used = 7 * GIB
    wait_for(lambda: peaks.gpus == 7 * GIB)
    served = metrics()
    served.text = f"hpcbench_engine_gpu_allocated_peak_bytes {3 * GIB}\n"
    wait_for(lambda: peaks.gpus == 3 * GIB)
    served.text = f"hpcbench_engine_gpu_allocated_peak_bytes {4 * GIB}\n"
    wait_for(lambda: peaks.gpus == 4 * GIB)
    served.shutdown()
    served.server_close()
    time.sleep(0.1)
    assert peaks.gpus == 4 * GIB


def test_an_engine_that_does_not_tell_is_asked_no_more(
    sample: Callable[[int], Sampler],
    metrics: Callable[[], Metrics],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = FakeGpu("GPU-0")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([gpu]))
    peaks, served = sample(1).peaks, metrics()
    wait_for(lambda: served.asked)
    gpu.used = GIB
    wait_for(lambda: peaks.gpus == GIB)
    assert served.asked == 1


def test_without_the_library_and_the_engines_word_it_is_not_known(
    sample: Callable[[int], Sampler], metrics: Callable[[], Metrics]
) -> None:
    peaks, served = sample(1).peaks, metrics()
    wait_for(lambda: served.asked and peaks.host)
    assert peaks.on_gpus
    assert peaks.gpus is None
