"""The four memory figures of a run, with definitions for a sceptical reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcbench.monitor.engine_log import LoggedMemory
from hpcbench.monitor.phases import HostSource, Phase


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Memory that serving a model took. Bytes; None: unknown, never an estimate of ours.

    GPU figures are of *one* GPU, the one that used most, because it decides which card a model fits on.

    One number is not enough: an engine such as vLLM takes a fixed share of the card when it starts
    (`gpu_memory_utilization`, 0.92 unless set): `nvidia-smi` shows *reserved* memory, not needed memory.
    """

    gpus: int = 0
    """GPUs that were read."""

    gpu_peak: int | None = None
    """(1) Peak of memory on the card, as reported by the driver (NVML), sampled twice a second: a shorter
    peak can be missed. Includes all memory of the engine's processes there: tensors, allocators' caches,
    CUDA's context."""
    gpu_peak_source: Literal["processes", "device"] | None = None
    """How (1) excludes other users: `processes`, the sum over the engine's process tree; `device`, the memory
    in use on the card minus the memory in use before any engine started, because the driver showed none of
    these processes (as in a PID namespace). It then includes memory that others took meanwhile."""

    torch_allocated: int | None = None
    """(2) Peak of PyTorch's tensors since the engine started, by its own count without sampling, if the
    engine reports it: the Hugging Face engine does, summed over its GPUs; vLLM and SGLang do not. It excludes
    CUDA's context."""
    torch_reserved: int | None = None
    """Peak of PyTorch's allocator for (2): tensors and the gaps between them."""

    kv_peak: int | None = None
    """(3) Key-value cache that requests really used: greatest share in use × size of the cache. The share is
    sampled every two seconds from the engine's `/metrics`, and blocks kept only for reuse do not count."""
    kv_reserved: int | None = None
    """Size of the key-value cache, most of which may never have been used. On a CPU it is host memory."""

    weights: int | None = None
    """Memory that loading the model added, by the engine's report; for the Hugging Face engine, all its
    parameters."""
    non_torch: int | None = None
    """Memory that stays besides the weights: CUDA's context, communication buffers, kernels' workspaces. vLLM
    only: its consumed memory, minus the weights."""
    activation: int | None = None
    """Temporary memory of the largest batch, from the engine's profiling run before the first request. vLLM
    only, without the estimate for CUDA graphs that its log adds to it."""
    graphs: int | None = None
    """Captured CUDA graphs."""
    effective: int | None = None
    """(4) Memory that the run needed: weights + non-torch + activation + graphs + (3), about the free memory
    that a card must have to serve the same requests at the same pace. None unless every part is known: so far
    only vLLM reports all parts, in its log, each exact to 0.01 GiB."""

    host_peak: int | None = None
    """Peak of memory of Slurm's control group of the job, by the kernel's own count from the job's start on
    (`memory.peak`, Linux 5.19; version 1 `max_usage_in_bytes`; else sampled). It includes files that the
    kernel cached, such as weights that were read, and is compared with a limit. None outside a job: any
    other control group may hold other programs."""
    host_held_peak: int | None = None
    """Peak of memory that cannot be dropped, sampled: in a job the control group's use without cached files,
    else the process tree's proportional (PSS, every ten seconds) or resident memory."""
    host_source: HostSource | None = None
    """Source of `host_held_peak`: Slurm's control group of the `job`; `pss` or `rss` of the process tree."""


def memory_figures(phase: Phase, logged: LoggedMemory | None = None) -> MemoryFigures:
    """The figures of a part of a run.

    Args:
        phase: the observations of the part. The phase of a run task has its peaks without those of loading.
        logged: the figures in vLLM's log of the load.
    """
    logged, engine = logged or LoggedMemory(), phase.engine
    peaks = [(use.peak_bytes, use.source) for use in phase.gpus if use.peak_bytes is not None]
    gpu_peak, source = max(peaks, key=lambda one: one[0], default=(None, None))
    kv_reserved = engine.kv_bytes if engine.kv_bytes is not None else logged.kv_cache
    weights = logged.weights if logged.weights is not None else engine.weights_bytes
    graphs = logged.graphs if logged.graphs is not None else engine.graphs_bytes
    known = weights is not None and logged.consumed is not None
    non_torch = max(0, logged.consumed - weights) if known else None  # type: ignore[operator]
    usage = engine.kv_usage
    kv_peak = round(usage * kv_reserved) if usage is not None and kv_reserved is not None else None
    parts = (weights, non_torch, logged.activation, graphs, kv_peak)
    return MemoryFigures(
        gpus=len(phase.gpus),
        gpu_peak=gpu_peak,
        gpu_peak_source=source,
        torch_allocated=engine.torch_allocated_bytes,
        torch_reserved=engine.torch_reserved_bytes,
        kv_peak=kv_peak,
        kv_reserved=kv_reserved,
        weights=weights,
        non_torch=non_torch,
        activation=logged.activation,
        graphs=graphs,
        effective=None if None in parts else sum(part for part in parts if part is not None),
        host_peak=phase.host_peak_bytes,
        host_held_peak=phase.host_held_peak_bytes,
        host_source=phase.host_source,
    )
