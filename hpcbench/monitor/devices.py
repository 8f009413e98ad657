"""The GPUs of a machine, those that are ours, and whether a model fits on them.

Sources: NVIDIA's management library (`nvml`), else `nvidia-smi`, else `rocm-smi`. None of them: no GPU.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcbench.monitor import nvml
from hpcbench.monitor.host import cpu_name
from hpcbench.monitor.nvml import Gpu
from hpcbench.subprocesses import printed

GIB = 1 << 30

ANSWER_SECONDS = 30.0
"""A program without output after this time hangs, as happens when a driver hangs."""

_QUERY = ("index", "uuid", "name", "memory.total", "driver_version")
_SMI = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
_ROCM = ["rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"]

_CHOSEN = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_SLURMS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


def gpus() -> list[Gpu]:
    """All GPUs of this machine that this process may see; of GPUs split by MIG, their instances."""
    found = nvml.gpus()
    if found is None:
        found = _from_smi(printed(_SMI, ANSWER_SECONDS) or "")
        found = found or _from_rocm(printed(_ROCM, ANSWER_SECONDS) or "")
    return found


def given(environ: Mapping[str, str] | None = None) -> list[str] | None:
    """Names of the GPUs that the environment gives to this process.

    CUDA's variable wins, which Slurm sets in the numbering of the job; its list ends at an empty or negative
    entry. A Slurm job without GPUs has none. None: no variable is set, so all are ours.
    """
    environ = os.environ if environ is None else environ
    for name in _CHOSEN:
        if name in environ:
            names: list[str] = []
            for entry in environ[name].split(","):
                if not entry.strip() or entry.strip().startswith("-"):
                    break
                names.append(entry.strip())
            return names
    for name in _SLURMS:
        if environ.get(name):
            return [entry.strip() for entry in environ[name].split(",")]
    return [] if "SLURM_JOB_ID" in environ else None


def visible(found: Sequence[Gpu], environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs in `found` that the environment gives to this process, in the environment's order."""
    environ = os.environ if environ is None else environ
    names = given(environ)
    if names is None:
        return list(found)
    if not any(name in environ for name in _CHOSEN) and len(names) == len(found):
        return list(found)  # Slurm's numbers are the node's, and the node shows only the job's GPUs
    chosen = (_named(name, found) for name in names)
    return [gpu for gpu in chosen if gpu is not None]


def _named(name: str, found: Sequence[Gpu]) -> Gpu | None:
    """The GPU of an entry of CUDA_VISIBLE_DEVICES: an index, or the start of a UUID."""
    for gpu in found:
        if (
            gpu.index == int(name)
            if name.isdigit()
            else bool(gpu.uuid) and gpu.uuid.startswith(name)
        ):
            return gpu
    return None


def handles(environ: Mapping[str, str] | None = None) -> list[str]:
    """Entries for CUDA_VISIBLE_DEVICES, one for each GPU that is ours.

    The environment's own entries if it has some, without entries of no GPU. Else indexes, valid with
    CUDA_DEVICE_ORDER=PCI_BUS_ID (CUDA's default order starts with the fastest), and UUIDs for MIG instances.
    """
    names, found = given(environ), gpus()
    if names is None:
        return [gpu.uuid if gpu.mig else str(gpu.index) for gpu in found]
    return [name for name in names if not found or _named(name, found) is not None]


def parts(
    count: int, gpus_each: int, environ: Mapping[str, str] | None = None, *, sharing: int = 1
) -> list[tuple[dict[str, str], frozenset[int]]]:
    """The GPUs that are ours, dealt out to several processes.

    Args:
        count: number of processes.
        gpus_each: GPUs of each; where there are too few, the last processes get less.
        environ: the environment that gives GPUs; None: that of this process.
        sharing: processes that get the same GPUs.

    Returns:
        For each process the variables that give it its GPUs, and the CPUs of their NUMA nodes (empty: not
        known).
    """
    environ = os.environ if environ is None else environ
    if not gpus_each:
        return [({}, frozenset())] * count
    chosen = next((name for name in _CHOSEN if name in environ), _CHOSEN[0])
    names, found, dealt = handles(environ), gpus(), []
    lists = {chosen: names}
    for variable in _SLURMS:  # Docker's daemon counts as they do
        numbers = environ.get(variable, "").split(",")
        if numbers != [""] and len(numbers) == len(names):
            lists[variable] = numbers
    for place in range(count):
        mine = slice(place // sharing * gpus_each, (place // sharing + 1) * gpus_each)
        near = [gpu.cpus for name in names[mine] if (gpu := _named(name, found)) is not None]
        settings = {"CUDA_DEVICE_ORDER": environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")}
        settings |= {variable: ",".join(own[mine]) for variable, own in lists.items()}
        dealt.append((settings, frozenset().union(*near)))
    return dealt


def machine(model_gpus: int, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The hardware here that a model's times and memory depend on: its GPUs' kinds, their driver, the CPU.

    Args:
        model_gpus: GPUs of the model; 0: it computes on the CPU, regardless of any cards.
        environ: the environment that gives GPUs; None: that of this process.

    Returns:
        `gpus` (their names, sorted), `driver`, `cuda` (None: unknown) and `cpu`.
    """
    ours = visible(gpus(), environ)[:model_gpus] if model_gpus else []
    first = ours[0] if ours else None
    return {
        "gpus": sorted(gpu.name for gpu in ours),
        "driver": first.driver if first else None,
        "cuda": first.cuda if first else None,
        "cpu": cpu_name(),
    }


def check_allocation(
    needed_gpus: int, least_memory_gb: float | None = None, environ: Mapping[str, str] | None = None
) -> str | None:
    """Whether the GPUs of this process suffice for a model; the reason in one line if not, or None.

    If no source reports memory (no NVML, no nvidia-smi), only the number of GPUs in the environment counts.

    Args:
        needed_gpus: the model definition's `gpus`.
        least_memory_gb: its `gpu_memory_gb`, GB (10^9 bytes).
    """
    if needed_gpus == 0:
        return None
    found = gpus()
    ours = visible(found, environ)
    if not found and (names := given(environ)):
        return (
            None
            if len(names) >= needed_gpus
            else _misfit(needed_gpus, least_memory_gb, f"{len(names)}")
        )
    fitting = [gpu for gpu in ours if gpu.memory_bytes >= (least_memory_gb or 0) * 1e9]
    if len(fitting) >= needed_gpus:
        return None
    if not ours:
        hidden = f" of the {len(found)} on this node" if found else ""
        return _misfit(needed_gpus, least_memory_gb, f"none{hidden}")
    kinds = dict.fromkeys(f"{gpu.name}, {gpu.memory_bytes / GIB:.3g} GiB" for gpu in ours)
    return _misfit(needed_gpus, least_memory_gb, f"{len(ours)} ({'; '.join(kinds)})")


def _misfit(needed: int, least_gb: float | None, has: str) -> str:
    each = f" of {least_gb:g} GB" if least_gb else ""
    return f"the model needs {needed} GPU{'s' * (needed > 1)}{each}, this worker has {has}"


def _from_smi(printed: str) -> list[Gpu]:
    """GPUs in nvidia-smi's table, which has no MIG instances: a GPU split into them is one entry."""
    found = []
    for row in csv.reader(printed.splitlines(), skipinitialspace=True):
        if len(row) == len(_QUERY) and row[0].isdigit():
            index, uuid, name, memory, driver = row
            size = int(memory) * (1 << 20) if memory.isdigit() else 0
            found.append(Gpu(int(index), uuid, name, size, driver=driver))
    return found


def _from_rocm(printed: str) -> list[Gpu]:
    try:
        cards: dict[str, dict[str, Any]] = json.loads(printed or "{}")
    except ValueError:
        return []
    return sorted(_amd(cards), key=lambda gpu: gpu.index)


def _amd(cards: Mapping[str, Mapping[str, Any]]) -> Iterator[Gpu]:
    for card, facts in cards.items():
        number = re.fullmatch(r"card(\d+)", card)
        memory = str(facts.get("VRAM Total Memory (B)", "")) if number else ""
        if number and memory.isdigit():
            name = str(facts.get("Card Series", facts.get("Card series", "AMD GPU")))
            yield Gpu(int(number[1]), "", name, int(memory))
