"""Memory of an engine, sampled once a second in its own thread.

Host: resident memory of all its processes, added up; shared memory (mapped weights, forked pages) counts in
each process. GPUs, if the model has any: the engine's own count if it reports one, as the Hugging Face engine
does; else the driver's numbers for its processes, or, if the driver hides these, for the cards.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from hpcbench.process_table import process
from hpcbench.wrapper import process_tree

log = logging.getLogger("hpcbench.wrapper")

_SECONDS = 1.0
_LOOKS = 10
"""Samples between two searches for its processes, which on a busy node read much of /proc."""


@dataclass(slots=True)
class Peaks:
    """Peaks of an engine's memory so far, bytes; None: unknown."""

    host: int | None = None
    on_gpus: bool = False
    """Whether the model has GPUs."""
    gpus: int | None = None
    """Sum over its GPUs."""


class Sampler:
    """Samples one engine until stopped.

    Args:
        leader: the engine's first process.
        mark: value in the environment of its processes.
        gpus: GPUs of the model.
        socket: the engine's socket.
    """

    def __init__(self, leader: int, mark: str, gpus: int, socket: Path) -> None:
        self.peaks = Peaks(on_gpus=gpus > 0)
        self._leader, self._mark, self._socket = leader, mark, socket
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="engine-memory", daemon=True).start()

    def stop(self) -> None:
        """Stop sampling."""
        self._stop.set()

    def _watch(self) -> None:
        peaks = self.peaks
        gpus = _Gpus(self._socket) if peaks.on_gpus else None
        looks, pids = 0, {self._leader}
        while True:
            if looks % _LOOKS == 0:
                pids = process_tree.members(self._leader, self._mark)
            looks += 1
            if total := sum(one.rss_bytes for one in map(process, pids) if one):
                peaks.host = max(peaks.host or 0, total)
            if gpus is not None:
                peaks.gpus = gpus.peak(pids)
            if self._stop.wait(_SECONDS):
                break
        if gpus is not None:
            gpus.close()


class _Gpus:
    """Memory of an engine on this job's GPUs; memory in use at construction does not count."""

    def __init__(self, socket: Path) -> None:
        # only a wrapper with GPUs needs these modules
        from hpcbench.monitor.devices import gpus, visible
        from hpcbench.monitor.engine_metrics import engine_state, over_socket
        from hpcbench.monitor.nvml import Nvml

        self._nvml = Nvml(visible(gpus()), log.warning)
        self._first = self._nvml.read(())
        self._state = engine_state
        self._ask: Callable[[], str] | None = over_socket(socket, key="")
        self._reported: int | None = None
        self._seen: int | None = None

    def peak(self, pids: Collection[int]) -> int | None:
        """The peak so far, bytes."""
        if self._ask is not None:
            with contextlib.suppress(OSError, HTTPException):  # it is still loading, or busy
                reported = self._state(self._ask()).torch_allocated_bytes
                self._reported = reported or self._reported
                if self._reported is None:
                    self._ask = None
        if now := self._nvml.read(pids):
            taken = (
                one.tree_bytes if one.tree_bytes is not None else one.beyond(self._first[gpu])
                for gpu, one in now.items()
            )
            self._seen = max(self._seen or 0, sum(taken))
        return self._reported or self._seen

    def close(self) -> None:
        """Close the driver."""
        self._nvml.close()
