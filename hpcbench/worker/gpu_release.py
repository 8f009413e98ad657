"""Waits until GPU memory is free after an engine's end: the end of its processes does not prove it.

A driver takes a moment to free the memory of a killed process, and memory that another process holds is found
here, not in the next engine's first allocation.
"""

from __future__ import annotations

import asyncio
import time

from hpcbench.monitor.alarms import Alarm
from hpcbench.monitor.sampler import Monitor
from hpcbench.worker.event_log import EventSink

LONGEST_SECONDS = 20.0
"""Longest wait of the next load for the previous engine's memory."""

TOLERANCE = 256 << 20
"""Bytes of one GPU: the driver's own memory changes by less than this."""

_PAUSE_SECONDS = 0.1


async def wait_for_memory(
    monitor: Monitor, events: EventSink, longest: float = LONGEST_SECONDS
) -> None:
    """Wait until each GPU's memory is as before any engine, and log the result.

    If no GPU can be read, it neither waits nor logs.
    """
    started = time.monotonic()
    while True:
        monitor.look()
        left = monitor.gpu_memory_left(started)
        waited = time.monotonic() - started
        kept = {gpu: size for gpu, size in (left or {}).items() if size > TOLERANCE}
        if (left is not None and not kept) or waited > longest:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
    for gpu, size in kept.items():
        text = f"GPU {gpu.index} ({gpu.name}) still holds {size / 2**30:.3g} GiB ({size} bytes) more than "
        text += f"before the first engine, {waited:.0f} s after the last engine ended"
        alarm = Alarm("gpu_memory_held", text)
        events.write("alarm", sync=True, kind=alarm.kind, message=alarm.message)
    if left and not kept:
        events.write("memory_returned", seconds=round(waited, 2), left=max(left.values()))
