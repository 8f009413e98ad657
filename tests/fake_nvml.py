"""A FAKE of NVIDIA's management library: no GPU is behind it.

It follows the published NVML API (names, error codes and exceptions of the package nvidia-ml-py): one call,
one answer or NVMLError. Install it with `monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(...))`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 1 << 30


@dataclass
class FakeGpu:
    """A pretended GPU; what is None answers "Not Supported"."""

    uuid: str
    name: str = "NVIDIA A100-SXM4-40GB"
    total: int = 40 * GIB
    used: int = 0
    processes: dict[int, int | None] = field(default_factory=dict)
    """pid → bytes, as `nvmlDeviceGetComputeRunningProcesses` lists them; None: not reported."""
    drawing: dict[int, int] = field(default_factory=dict)
    """The same of `nvmlDeviceGetGraphicsRunningProcesses`."""
    utilisation: int | None = 0
    celsius: int | None = 40
    sm_mhz: int | None = 1410
    milliwatts: int | None = 60_000
    millijoules: int | None = None
    throttles: int | None = 0
    mig: list[FakeGpu] = field(default_factory=list)
    """Its MIG instances, if it is cut into them."""
    cpus: int | None = None
    """CPUs of its NUMA node, a bit each."""
    broken: int | None = None
    """Error code of every call, once something has gone wrong."""


class FakeNvml:
    """Stands in for the module `pynvml`.

    Args:
        gpus: what the machine has.
        new_names: whether the driver knows `nvmlDeviceGetCurrentClocksEventReasons` (535 and later).
    """

    NVMLError = pynvml.NVMLError
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_ERROR_NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
    NVML_ERROR_NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION
    NVML_ERROR_FUNCTION_NOT_FOUND = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    NVML_ERROR_INVALID_ARGUMENT = pynvml.NVML_ERROR_INVALID_ARGUMENT
    NVML_ERROR_NO_DATA = pynvml.NVML_ERROR_NO_DATA

    def __init__(self, gpus: list[FakeGpu], *, new_names: bool = True) -> None:
        self.gpus, self.new_names = gpus, new_names
        self.users = 0
        self.driver_error: int | None = None

    def nvmlInit(self) -> None:
        if self.driver_error is not None:
            raise pynvml.NVMLError(self.driver_error)
        self.users += 1

    def nvmlShutdown(self) -> None:
        if self.users == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        self.users -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65.06"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13_000

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        for gpu in self.gpus:
            for one in (gpu, *gpu.mig):
                if one.uuid == uuid:
                    return one
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        return [int(bool(gpu.mig)), int(bool(gpu.mig))]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:
        if index >= len(gpu.mig):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.mig[index]

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:
        return gpu.name

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:
        return self._say(
            gpu, lambda: SimpleNamespace(total=gpu.total, used=gpu.used, free=gpu.total - gpu.used)
        )

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        listed = gpu.processes.items()
        return self._say(
            gpu, lambda: [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in listed]
        )

    def nvmlDeviceGetGraphicsRunningProcesses(self, gpu: FakeGpu) -> list[Any]:
        listed = gpu.drawing.items()
        return self._say(
            gpu, lambda: [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in listed]
        )

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        return self._known(gpu, gpu.utilisation, lambda it: SimpleNamespace(gpu=it, memory=0))

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> Any:
        return self._known(gpu, gpu.celsius)

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, clock: int) -> Any:
        return self._known(gpu, gpu.sm_mhz)

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> Any:
        return self._known(gpu, gpu.milliwatts)

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> Any:
        return self._known(gpu, gpu.millijoules)

    def nvmlDeviceGetCpuAffinity(self, gpu: FakeGpu, words: int) -> Any:
        def split(mask: int) -> list[int]:
            return [mask >> 64 * place & (1 << 64) - 1 for place in range(words)]

        return self._known(gpu, gpu.cpus, split)

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> Any:
        if not self.new_names:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return self._known(gpu, gpu.throttles)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> Any:
        return self._known(gpu, gpu.throttles)

    def _known(
        self, gpu: FakeGpu, value: Any, shape: Callable[[Any], Any] = lambda value: value
    ) -> Any:
        if value is None:
            return self._say(gpu, self._unsupported)
        return self._say(gpu, lambda: shape(value))

    def _unsupported(self) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def _say(self, gpu: FakeGpu, answer: Callable[[], Any]) -> Any:
        if gpu.broken is not None:
            raise pynvml.NVMLError(gpu.broken)
        return answer()
