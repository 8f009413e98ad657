"""What an engine tells of itself in Prometheus' text form: requests, key-value cache, torch's memory.

As read in vLLM 0.31.0 to 0.33.0 (`v1/metrics/loggers.py`, `config/cache.py`) and SGLang 0.5.21 and 0.5.23
(`observability/metrics_collector.py`, whose "GB" are 2^30 bytes). Names that begin with `hpcbench_engine_`
are our Hugging Face engine's.
"""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

GIB = 1 << 30

_LINE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)')
_LABEL = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of Prometheus' text form."""

    name: str
    labels: Mapping[str, str]
    value: float


def parse(text: str, names: Iterable[str] | None = None) -> Iterator[Metric]:
    """Metrics of a text in Prometheus' form, version 0.0.4; lines that are none are left out.

    Args:
        text: what `/metrics` answers.
        names: only these; the others' labels are not looked at, which is most of the work.
    """
    wanted = None if names is None else tuple(names)
    for line in text.splitlines():
        if wanted is not None and not line.startswith(wanted):
            continue
        found = _LINE.match(line)
        if found is None or (wanted is not None and found[1] not in wanted):
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        labels = {
            name: _ESCAPED.sub(lambda one: "\n" if one[1] == "n" else one[1], text)
            for name, text in _LABEL.findall(found[2] or "")
        }
        yield Metric(found[1], labels, value)


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine at one moment; None: it does not say. Of several engines or GPUs behind one server, requests
    are added up and of memory and shares the greatest stands here."""

    running: float | None = None
    """Requests being worked on."""
    waiting: float | None = None
    """Requests in the engine's queue."""
    kv_usage: float | None = None
    """Share of the key-value cache in use, 0 to 1."""
    kv_bytes: int | None = None
    """Size of the key-value cache on one GPU."""
    weights_bytes: int | None = None
    """Memory of the weights: what loading took on one GPU (SGLang), or all parameters (Hugging Face)."""
    graphs_bytes: int | None = None
    """GPU memory of captured CUDA graphs, on one GPU."""
    torch_allocated_bytes: int | None = None
    """Most that torch's tensors have taken, `torch.cuda.max_memory_allocated`, all GPUs added up."""
    torch_reserved_bytes: int | None = None
    """Most that torch's allocator has held, `torch.cuda.max_memory_reserved`, all GPUs added up."""


_SUM = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "hpcbench_engine_requests_running": "running",
    "hpcbench_engine_requests_waiting": "waiting",
}
_GREATEST = {
    "vllm:kv_cache_usage_perc": ("kv_usage", 1),
    "sglang:token_usage": ("kv_usage", 1),
    "sglang:kv_cache_memory_usage_gb": ("kv_bytes", GIB),
    "sglang:weight_memory_usage_gb": ("weights_bytes", GIB),
    "hpcbench_engine_weights_bytes": ("weights_bytes", 1),
    "hpcbench_engine_gpu_allocated_peak_bytes": ("torch_allocated_bytes", 1),
    "hpcbench_engine_gpu_reserved_peak_bytes": ("torch_reserved_bytes", 1),
}
_VLLM_CACHE = "vllm:cache_config_info"
_SGLANG_GRAPHS = "sglang:graph_memory_usage_gb"
_NAMES = (*_SUM, *_GREATEST, _VLLM_CACHE, _SGLANG_GRAPHS)


def engine_state(text: str) -> EngineState:
    """What `/metrics` says of an engine; all None where it is none that we know."""
    found: dict[str, float] = {}
    graphs: dict[str, float] = {}
    for metric in parse(text, _NAMES):
        if metric.name in _SUM:
            field = _SUM[metric.name]
            found[field] = found.get(field, 0) + metric.value
        elif metric.name in _GREATEST:
            field, unit = _GREATEST[metric.name]
            found[field] = max(found.get(field, 0), metric.value * unit)
        elif metric.name == _SGLANG_GRAPHS:  # one line for each rank and phase
            phase = metric.labels.get("phase", "")
            graphs[phase] = max(graphs.get(phase, 0), metric.value)
        elif metric.labels.get("kv_cache_memory_bytes", "").isdigit():
            found["kv_bytes"] = int(metric.labels["kv_cache_memory_bytes"])
    if graphs:
        found["graphs_bytes"] = sum(graphs.values()) * GIB
    if not found.get("torch_allocated_bytes"):  # nought is how a run on a CPU says it has none
        found.pop("torch_allocated_bytes", None)
        found.pop("torch_reserved_bytes", None)
    whole = {name: int(value) for name, value in found.items() if name.endswith("_bytes")}
    return EngineState(**{**found, **whole})  # type: ignore[arg-type]


def over_socket(path: Path, key: str, timeout: float = 1.0) -> Callable[[], str]:
    """A reader of `/metrics` of a wrapper that listens on a Unix socket.

    Args:
        path: the socket.
        key: the wrapper's `X-API-Key`.
        timeout: seconds for each step.

    The reader raises OSError or http.client.HTTPException when there is no answer, or none with status 200.
    """

    def read() -> str:
        connection = _UnixConnection(str(path), timeout)
        try:
            connection.request("GET", "/metrics", headers={"X-API-Key": key})
            answer = connection.getresponse()
            if answer.status != 200:
                raise OSError(f"/metrics answered {answer.status}")
            return answer.read().decode(errors="replace")
        finally:
            connection.close()

    return read


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
