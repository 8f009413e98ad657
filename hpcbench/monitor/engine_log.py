"""Memory figures of vLLM, which it logs once, after profiling.

The lines, as read in `v1/worker/` of vLLM 0.31.0 to 0.33.0 (`gpu_worker.py`, `cpu_worker.py` and both model
runners), each after a head such as `(EngineCore pid=7) INFO 11-21 22:51:40 [gpu_worker.py:773] `:

    Model loading took 15.0 GiB memory and 5.42 seconds
    Estimated CUDA graph memory: 1.94 GiB total
    CUDA graph memory profiling is enabled (default since v0.21.0). …
    Available KV cache memory: 50.29 GiB
    CUDA graph pool memory: 0.94 GiB (actual), 1.94 GiB (estimated), difference: 1.01 GiB (107.2%).
    Free memory on device (…) on startup. … Actual usage is 55.99 GiB for consumed memory (weights +
      non-torch), 3.78 GiB for peak activation, and 0.94 GiB for CUDAGraph memory. … Current kv cache memory
      in use is 50.29 GiB.                                                   (all in one line)
    Explicitly set (1.0/14.96) GiB for KV cache on node 0.        (the CPU backend; or `Auto set (…`)

SGLang reports the same in `/metrics`, see `gauges`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

GIB = 1 << 30

_NUMBER = r"([\d.]+)"
_LOADED = re.compile(rf"Model loading took {_NUMBER} GiB")
_ESTIMATE = re.compile(
    rf"Estimated CUDA graph memory: {_NUMBER} GiB|CUDA graph pool memory: .* {_NUMBER} GiB \(estimated\)"
)
_APPLIED = "CUDA graph memory profiling is enabled"
_AVAILABLE = re.compile(rf"Available KV cache memory: {_NUMBER} GiB")
_USAGE = re.compile(
    rf"Actual usage is {_NUMBER} GiB for consumed memory \(weights \+ non-torch\), {_NUMBER} GiB "
    rf"for peak activation, and {_NUMBER} GiB for CUDAGraph memory"
    rf"(?:.*Current kv cache memory in use is {_NUMBER} GiB)?"
)
_CAPTURED = re.compile(r"Graph capturing finished in \d+ secs, took (-?[\d.]+) GiB")
_CPU_CACHE = re.compile(rf"(?:Explicitly|Auto) set \({_NUMBER}/{_NUMBER}\) GiB for KV cache")


@dataclass(frozen=True, slots=True)
class LoggedMemory:
    """Memory of one GPU as logged by vLLM after profiling, bytes, exact to 0.01 GiB; None: not logged.

    With several GPUs, whose workers each log their own, this is the one that used most.
    """

    weights: int | None = None
    """Memory that loading the model added."""
    consumed: int | None = None
    """All memory that stays after a profiling run: weights, CUDA's context, communication, workspaces."""
    activation: int | None = None
    """Additional temporary memory for the largest batch. vLLM's own figure includes its estimate for CUDA
    graphs, which it then counts again; here the estimate is subtracted."""
    graphs: int | None = None
    """Memory of captured CUDA graphs; 0 without graphs."""
    kv_cache: int | None = None
    """Memory reserved for the key-value cache."""


def logged_memory(lines: Iterable[str]) -> LoggedMemory:
    """Read the log of one start of vLLM; it must not contain lines of an earlier start."""
    weights: list[float] = []
    cache: list[float] = []
    estimates: list[float] = []
    captured: list[float] = []
    usages: list[tuple[float, float, float]] = []
    applied = False
    for line in lines:
        if found := _LOADED.search(line):
            weights.append(float(found[1]))
        elif found := _USAGE.search(line):
            usages.append((float(found[1]), float(found[2]), float(found[3])))
            cache += [float(found[4])] if found[4] else []
        elif found := _AVAILABLE.search(line):
            cache.append(float(found[1]))
        elif found := _ESTIMATE.search(line):
            estimates.append(float(found[1] or found[2]))
        elif found := _CAPTURED.search(line):
            captured.append(float(found[1]))
        elif found := _CPU_CACHE.search(line):
            cache.append(float(found[1]))
        applied = applied or _APPLIED in line
    consumed = activation = graphs = None
    if usages:
        consumed, activation, graphs = max(usages, key=sum)
        activation = max(0.0, activation - (max(estimates, default=0.0) if applied else 0.0))
    elif captured:
        graphs = max(0.0, *captured)
    return LoggedMemory(
        weights=_bytes(max(weights, default=None)),
        consumed=_bytes(consumed),
        activation=_bytes(activation),
        graphs=_bytes(graphs),
        kv_cache=_bytes(max(cache, default=None)),
    )


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else round(gib * GIB)
