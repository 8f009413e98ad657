"""Resources of a node that serving a model takes: memory, GPUs, CPUs, disk; seen from outside the container.

A container's PID namespace hides processes from the driver, so the monitor runs in the worker, on the host
side of the node. It needs no GPU and no root.

    monitor = Monitor(os.getpid(), folders={"scratch": "/tmp"}, file=path, on_alarm=tell)
    monitor.start()
    …
    figures = memory_figures(monitor.phase("org/model: vqa"), logged_memory(lines_of_the_engine))
"""

from hpcbench.monitor.alarms import Alarm
from hpcbench.monitor.devices import check_allocation, gpus, handles, machine, visible
from hpcbench.monitor.engine_log import LoggedMemory, logged_memory
from hpcbench.monitor.gauges import EngineState, engine_state, over_socket
from hpcbench.monitor.memory_figures import MemoryFigures, memory_figures
from hpcbench.monitor.nvml import Gpu
from hpcbench.monitor.phases import GpuUse, Phase
from hpcbench.monitor.sampler import Monitor, Summary

__all__ = [
    "Alarm",
    "EngineState",
    "Gpu",
    "GpuUse",
    "LoggedMemory",
    "MemoryFigures",
    "Monitor",
    "Phase",
    "Summary",
    "check_allocation",
    "engine_state",
    "gpus",
    "handles",
    "logged_memory",
    "machine",
    "memory_figures",
    "over_socket",
    "visible",
]
