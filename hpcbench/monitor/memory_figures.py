"""The four memory figures of a run, defined for a reader who does not believe them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcbench.monitor.engine_log import LoggedMemory
from hpcbench.monitor.phases import HostSource, Phase


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Memory that serving a model took. Bytes; None: not known, never an estimate of ours.

    GPU figures are of *one* GPU, the one that used most, since that decides which card a model fits on.

    One number cannot do: an engine such as vLLM takes a fixed share of the card when it starts
    (`gpu_memory_utilization`, 0.92 unless set): what `nvidia-smi` shows is what was *reserved*, not needed.
    """

    gpus: int = 0
    """GPUs that were looked at."""

    gpu_peak: int | None = None
    """(1) Most memory on the card, as the driver (NVML) tells it, sampled twice a second: a shorter peak can
    be missed. All that the engine's processes hold there: tensors, allocators' caches, CUDA's context."""
    gpu_peak_source: Literal["processes", "device"] | None = None
    """How (1) was told from what others use: `processes`, the sum over the engine's process tree; `device`,
    what is used on the card minus what was used before any engine started, because the driver showed none of
    these processes (as in a PID namespace). What others took meanwhile is then in it."""

    torch_allocated: int | None = None
    """(2) Most that PyTorch's tensors took since the engine started, by its own count without sampling, where
    an engine tells it: the Hugging Face engine does, of its GPUs added up; vLLM and SGLang do not. CUDA's
    context is not in it."""
    torch_reserved: int | None = None
    """Most that PyTorch's allocator held to serve (2): tensors and the room between them."""

    kv_peak: int | None = None
    """(3) Key-value cache that requests really used: greatest share in use × size of the cache. The share is
    sampled every two seconds from the engine's `/metrics`, and blocks kept only for reuse do not count."""
    kv_reserved: int | None = None
    """Size of the key-value cache, most of which may never have been used. On a CPU it is host memory."""

    weights: int | None = None
    """What loading the model added, as the engine told it; of the Hugging Face engine all its parameters."""
    non_torch: int | None = None
    """What stays besides the weights: CUDA's context, communication buffers, kernels' workspaces. vLLM only:
    what it calls consumed, less the weights."""
    activation: int | None = None
    """What the largest batch needs for a moment, from the engine's profiling run before the first request.
    vLLM only, without the estimate for CUDA graphs that its log adds to it."""
    graphs: int | None = None
    """Captured CUDA graphs."""
    effective: int | None = None
    """(4) What the run needed: weights + non-torch + activation + graphs + (3), about what a card must have
    free to serve the same requests at the same pace. None unless every part is known: so far vLLM alone tells
    all, in its log, each exact to 0.01 GiB."""

    host_peak: int | None = None
    """Most memory of Slurm's control group of the job, by the kernel's own count from the job's start on
    (`memory.peak`, Linux 5.19; version 1 `max_usage_in_bytes`; else sampled). It includes files that the
    kernel cached, such as weights that were read, and is what a limit is held against. None outside a job:
    any other control group may hold other programs."""
    host_held_peak: int | None = None
    """Most that could not be dropped, sampled: of a job the control group's use without cached files, else
    the process tree's proportional (PSS, every ten seconds) or resident memory."""
    host_source: HostSource | None = None
    """What `host_held_peak` is of: Slurm's control group of the `job`; `pss` or `rss` of the process tree."""


def memory_figures(phase: Phase, logged: LoggedMemory | None = None) -> MemoryFigures:
    """The figures of a part of a run.

    Args:
        phase: what was seen in it. The phase of a run task has its peaks without those of loading.
        logged: what vLLM's log said when it loaded the model.
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
