"""An engine's own metrics in Prometheus' text form: requests, key-value cache, torch's memory.

As read in vLLM 0.31.0 to 0.33.0 (`v1/metrics/loggers.py`, `config/cache.py`) and SGLang 0.5.21 and 0.5.23
(`observability/metrics_collector.py`, whose "GB" are 2^30 bytes). Names that start with `hpcbench_engine_`
are our Hugging Face engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from hpcbench.unix_http import UnixConnection

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class EngineState:
    """An engine at one moment; None: not reported. For several engines or GPUs behind one server, requests
    are summed, and memory and shares are the maximum."""

    running: float | None = None
    """Requests in progress."""
    waiting: float | None = None
    """Requests in the engine's queue."""
    kv_usage: float | None = None
    """Share of the key-value cache in use, 0 to 1."""
    kv_bytes: int | None = None
    """Size of the key-value cache on one GPU."""
    weights_bytes: int | None = None
    """Memory of the weights: growth at loading on one GPU (SGLang), or all parameters (Hugging Face)."""
    graphs_bytes: int | None = None
    """GPU memory of captured CUDA graphs, on one GPU."""
    torch_allocated_bytes: int | None = None
    """Peak of torch's tensors, `torch.cuda.max_memory_allocated`, summed over all GPUs."""
    torch_reserved_bytes: int | None = None
    """Peak of torch's allocator, `torch.cuda.max_memory_reserved`, summed over all GPUs."""


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
    """The state in an engine's `/metrics`; all None for an unknown engine."""
    found: dict[str, float] = {}
    graphs: dict[str, float] = {}
    for metric in _samples(text):
        if metric.name in _SUM:
            field = _SUM[metric.name]
            found[field] = found.get(field, 0) + metric.value
        elif metric.name in _GREATEST:
            field, unit = _GREATEST[metric.name]
            found[field] = max(found.get(field, 0), metric.value * unit)
        elif metric.name == _SGLANG_GRAPHS:  # one line per rank and phase
            phase = metric.labels.get("phase", "")
            graphs[phase] = max(graphs.get(phase, 0), metric.value)
        elif metric.labels.get("kv_cache_memory_bytes", "").isdigit():
            found["kv_bytes"] = int(metric.labels["kv_cache_memory_bytes"])
    if graphs:
        found["graphs_bytes"] = sum(graphs.values()) * GIB
    if not found.get("torch_allocated_bytes"):  # a run on a CPU reports 0 for none
        found.pop("torch_allocated_bytes", None)
        found.pop("torch_reserved_bytes", None)
    whole = {name: int(value) for name, value in found.items() if name.endswith("_bytes")}
    return EngineState(**{**found, **whole})  # type: ignore[arg-type]


def _samples(text: str) -> Iterator[Sample]:
    """Samples of the names above. Each line is parsed alone, so a malformed line loses no other."""
    for line in text.splitlines():
        if not line.startswith(_NAMES):  # histograms are most of an engine's text
            continue
        try:
            families = list(text_string_to_metric_families(line))
        except (ValueError, IndexError):  # IndexError: version 0.26, of a label without a name
            continue
        for family in families:
            yield from (sample for sample in family.samples if sample.name in _NAMES)


def over_socket(path: Path, key: str, timeout: float = 1.0) -> Callable[[], str]:
    """A reader of `/metrics` of a wrapper that listens on a Unix socket.

    Args:
        path: the socket.
        key: the wrapper's `X-API-Key`.
        timeout: seconds for each step.

    The reader raises OSError or http.client.HTTPException without an answer of status 200.
    """

    def read() -> str:
        with UnixConnection(path, timeout) as connection:
            connection.request("GET", "/metrics", headers={"X-API-Key": key})
            answer = connection.getresponse()
            if answer.status != 200:
                raise OSError(f"/metrics answered {answer.status}")
            return answer.read().decode(errors="replace")

    return read
