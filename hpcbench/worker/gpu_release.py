"""GPU memory is seen to come back when an engine has ended: processes that are gone are no proof of it.

A driver takes a moment to free what a killed process held, and what something else keeps is found here, not
in the next engine's first allocation.
"""

from __future__ import annotations

import asyncio
import time

from hpcbench.monitor import Alarm, Monitor
from hpcbench.worker.event_log import WorkerEvents

LONGEST_SECONDS = 20.0
"""So long the next load waits for the memory of the engine before."""

TOLERANCE = 256 << 20
"""Bytes of one GPU: what a driver keeps for itself changes by less than this."""

_PAUSE_SECONDS = 0.1


async def wait_for_memory(
    monitor: Monitor, news: WorkerEvents, longest: float = LONGEST_SECONDS
) -> None:
    """Wait until each GPU's memory is what it was before any engine, and tell how that went.

    Where no GPU can be read nothing is waited for, and nothing said.
    """
    begun = time.monotonic()
    while True:
        monitor.look()
        left = monitor.gpu_memory_left(begun)
        waited = time.monotonic() - begun
        kept = {gpu: size for gpu, size in (left or {}).items() if size > TOLERANCE}
        if (left is not None and not kept) or waited > longest:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
    for gpu, size in kept.items():
        text = f"GPU {gpu.index} ({gpu.name}) still holds {size / 2**30:.3g} GiB ({size} bytes) more than "
        text += f"before any engine, {waited:.0f} s after the last one has ended"
        alarm = Alarm("gpu_memory_held", text)
        news.write("alarm", sync=True, kind=alarm.kind, message=alarm.message)
    if left and not kept:
        news.write("memory_returned", seconds=round(waited, 2), left=max(left.values()))
