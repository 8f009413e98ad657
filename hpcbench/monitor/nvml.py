"""NVIDIA's management library: the GPUs and their activity.

Calls into a faulty driver fail or hang; so a GPU that fails once is not read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one MIG instance of a split GPU."""

    index: int
    """The machine's number of the GPU, in the order of PCI addresses."""
    uuid: str
    """`GPU-…` or `MIG-…`; empty if only the index is known (AMD)."""
    name: str
    """The maker's name, e.g. `NVIDIA A100-SXM4-40GB`."""
    memory_bytes: int
    """Its total memory."""
    mig: bool = False
    """Whether it is a MIG instance."""
    driver: str | None = None
    """Version of the driver."""
    cuda: str | None = None
    """Newest CUDA version that the driver supports, e.g. `13.0`."""
    cpus: frozenset[int] = frozenset()
    """CPUs of its NUMA node, by their numbers; empty: not known."""


THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""Bits of NVML's clock event reasons that make a GPU slower than possible; idling is not among them."""


def _library() -> Any | None:
    """The library, initialised; None: no package, no driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def gpus() -> list[Gpu] | None:
    """All GPUs; None: the library is not available."""
    nvml = _library()
    if nvml is None:
        return None
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        number = int(nvml.nvmlSystemGetCudaDriverVersion())
        cuda = f"{number // 1000}.{number % 1000 // 10}"
        return [
            Gpu(
                index,
                _text(nvml.nvmlDeviceGetUUID(handle)),
                _text(nvml.nvmlDeviceGetName(handle)),
                int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
                mig,
                driver,
                cuda,
                _near_cpus(nvml, handle),
            )
            for index, handle, mig in _each(nvml)
        ]
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _near_cpus(nvml: Any, handle: Any) -> frozenset[int]:
    words = -(-(os.cpu_count() or 1) // 64)
    masks = _maybe(nvml, lambda: nvml.nvmlDeviceGetCpuAffinity(handle, words)) or ()
    return frozenset(
        64 * place + bit for place, mask in enumerate(masks) for bit in range(64) if mask >> bit & 1
    )


def _each(nvml: Any) -> Iterator[tuple[int, Any, bool]]:
    """Index, handle and whether it is a MIG instance; skips GPUs that may not be read."""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            cut = _maybe(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0]) == 1  # noqa: B023 (called at once)
        except nvml.NVMLError:
            continue
        if not cut:
            yield index, handle, False
            continue
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                yield index, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place), True
            except nvml.NVMLError:  # fewer instances than possible
                continue


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment; None: not reported."""

    used_bytes: int
    """Memory in use on the device, by any process."""
    tree_bytes: int | None
    """Memory of our processes; None: the driver shows none of them."""
    others_bytes: int = 0
    """Memory of other users' processes, and of processes that existed at the first reading."""
    utilisation: int | None = None
    """Percent of the last sampling period in which a kernel ran."""
    celsius: int | None = None
    sm_mhz: int | None = None
    watts: float | None = None
    joules: float | None = None
    """Energy since the driver was loaded."""
    throttles: int = 0
    """Bits of `THROTTLES`."""

    def beyond(self, first: GpuReading) -> int:
        """Bytes in use beyond an earlier reading, without memory of other users' processes."""
        grown = (self.used_bytes - self.others_bytes) - (first.used_bytes - first.others_bytes)
        return max(0, grown)


class Nvml:
    """Reads a set of GPUs repeatedly.

    `failed` is called once for a GPU that cannot be read any more.
    """

    def __init__(self, wanted: Sequence[Gpu], failed: Callable[[str], None]) -> None:
        self._nvml = _library() if wanted else None
        self._failed = failed
        self.missing = bool(wanted) and self._nvml is None
        self._handles: dict[Gpu, Any] = {}
        self._first: dict[Gpu, frozenset[int]] = {}
        for gpu in wanted if self._nvml is not None else ():
            try:
                self._handles[gpu] = self._nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)  # type: ignore[union-attr]
            except self._nvml.NVMLError as error:  # type: ignore[union-attr]
                failed(f"GPU {gpu.index} ({gpu.name}) cannot be read: {error}")

    def read(self, pids: Collection[int]) -> dict[Gpu, GpuReading]:
        """Read all GPUs that have not failed.

        Args:
            pids: our processes.
        """
        found = {}
        for gpu, handle in list(self._handles.items()):
            try:
                found[gpu] = self._read(gpu, handle, pids)
            except self._nvml.NVMLError as error:  # type: ignore[union-attr]
                del self._handles[gpu]
                self._failed(f"GPU {gpu.index} ({gpu.name}) can no longer be read: {error}")
        return found

    def close(self) -> None:
        """Close the library."""
        if self._nvml is not None:
            self._handles.clear()
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                return  # the driver is gone

    def _read(self, gpu: Gpu, handle: Any, pids: Collection[int]) -> GpuReading:
        nvml: Any = self._nvml
        held = _processes(nvml, handle)
        first = self._first.setdefault(gpu, frozenset(held))
        ours = [size for pid, size in held.items() if pid in pids]
        others = (
            size
            for pid, size in held.items()
            if pid not in pids and (pid in first or _owner(pid) not in (os.getuid(), 0, None))
        )
        milliwatts = _maybe(nvml, lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        millijoules = _maybe(nvml, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        return GpuReading(
            used_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
            tree_bytes=sum(ours) if ours else None,
            others_bytes=sum(others),
            utilisation=_maybe(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            celsius=_maybe(
                nvml, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            sm_mhz=_maybe(nvml, lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            watts=None if milliwatts is None else milliwatts / 1000,
            joules=None if millijoules is None else millijoules / 1000,
            throttles=_throttles(nvml, handle),
        )


def _processes(nvml: Any, handle: Any) -> dict[int, int]:
    """Memory by process; a process that computes and draws is in both lists with the same figure."""
    found: dict[int, int] = {}
    for ask in (
        nvml.nvmlDeviceGetComputeRunningProcesses,
        nvml.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        for one in _maybe(nvml, lambda: ask(handle)) or ():  # noqa: B023 (called at once)
            if one.usedGpuMemory is not None:
                found[one.pid] = max(found.get(one.pid, 0), int(one.usedGpuMemory))
    return found


def _owner(pid: int) -> int | None:
    """User of a process; None: it is gone, or hidden from us. (root's may be a container of ours.)"""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def _throttles(nvml: Any, handle: Any) -> int:
    bits = _maybe(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if bits is None:  # its name before driver 535
        bits = _maybe(nvml, lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    return int(bits or 0)


def _maybe(nvml: Any, ask: Callable[[], Any]) -> Any | None:
    """An answer, or None if this GPU does not support the query."""
    try:
        return ask()
    except nvml.NVMLError as error:
        if error.value in (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_NO_PERMISSION,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_NO_DATA,
        ):
            return None
        raise


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
