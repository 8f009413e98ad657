"""Cost of the monitor on a node: CPU time of its thread, beside a thread that only sleeps.

A tree of 30 processes that sleep and an engine that answers `/metrics` with as much text as vLLM 0.32 does
(48 KB) are read twice a second, as in a run; readings go to a file. The floor is a thread that wakes up
as often and does nothing. What NVML takes is not in it where there is no GPU.

    python benchmarks/monitor_cost.py [--seconds 30] [--processes 30]
"""

from __future__ import annotations

import argparse
import os
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hpcbench.monitor.engine_metrics import over_socket  # noqa: E402
from hpcbench.monitor.sampler import Monitor  # noqa: E402

GOAL = 0.01
"""Share of one core."""

METRICS = "".join(
    f'vllm:inter_token_latency_seconds_bucket{{engine="0",le="{index}",model_name="tiny"}} {index}.0\n'
    for index in range(560)
) + (
    'vllm:num_requests_running{engine="0",model_name="tiny"} 3.0\n'
    'vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0\n'
    'vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25\n'
    'vllm:cache_config_info{engine="0",kv_cache_memory_bytes="1073741824"} 1.0\n'
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--processes", type=int, default=30)
    asked = parser.parse_args()
    print(f"{len(list(Path('/proc').glob('[0-9]*')))} processes on this machine", flush=True)
    floor = floor_share(asked.seconds)
    share, readings = monitor_share(asked.seconds, asked.processes)
    print(f"{'a thread that sleeps':>24} {floor:>8.3%} of one core")
    print(f"{'the monitor':>24} {share:>8.3%} of one core, {readings} readings")
    print(f"{'goal':>24} {GOAL:>8.3%}: {'kept' if share <= GOAL else 'MISSED'}")


def floor_share(seconds: float) -> float:
    """CPU time ÷ time of a thread that wakes up twice a second."""
    taken: list[float] = []

    def sleep() -> None:
        event, started = threading.Event(), time.thread_time()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            event.wait(0.5)
        taken.append(time.thread_time() - started)

    thread = threading.Thread(target=sleep)
    thread.start()
    thread.join()
    return taken[0] / seconds


def monitor_share(seconds: float, processes: int) -> tuple[float, int]:
    """CPU time ÷ time of the monitor's thread, and its readings."""
    with tempfile.TemporaryDirectory() as folder:
        socket, file = Path(folder) / "s", Path(folder) / "monitor.jsonl"
        engine = subprocess.Popen([sys.executable, __file__, "--serve", str(socket)])
        family = [subprocess.Popen(["sleep", "600"]) for _ in range(processes - 1)]
        try:
            while not socket.exists():
                time.sleep(0.05)
            monitor = Monitor(os.getpid(), folders={"scratch": folder}, file=file)
            monitor.start()
            monitor.ask_engine(over_socket(socket, "key"))
            time.sleep(seconds)
            summary = monitor.stop()
            assert summary.whole.engine.kv_usage == 0.25, "the engine was not read"
            assert summary.whole.processes >= processes, "the tree was not seen"
        finally:
            for one in (engine, *family):
                one.kill()
                one.wait()
    return summary.cpu_seconds / seconds, summary.whole.readings


def serve(path: str) -> None:
    """An engine that has nothing to tell but its metrics."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def address_string(self) -> str:
            return "client"

        def log_message(self, *arguments: object) -> None:
            return

    with socketserver.UnixStreamServer(path, Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main()
