"""How much memory an engine holds, looked at once a second in a thread of its own.

Of the host: resident memory of all its processes added up; what several share (mapped weights, forked pages)
counts in each. Of GPUs, where the model has any: the engine's own count where it tells one, as the Hugging
Face engine does; else what the driver says of its processes, or where it hides them, of the cards.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from hpcbench.wrapper import process_tree

log = logging.getLogger("hpcbench.wrapper")

_SECONDS = 1.0
_LOOKS = 10
"""After so many looks the processes are found anew, which on a busy node reads much of /proc."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Peaks:
    """Most memory that an engine has held so far, bytes; None: not known."""

    host: int | None = None
    on_gpus: bool = False
    """Whether the model has GPUs."""
    gpus: int | None = None
    """All its GPUs added up."""


class Sampler:
    """Watches one engine until it is told to stop.

    Args:
        leader: the engine's first process.
        mark: what its processes carry in their environment.
        gpus: GPUs of the model.
        socket: where the engine serves.
    """

    def __init__(self, leader: int, mark: str, gpus: int, socket: Path) -> None:
        self.peaks = Peaks(on_gpus=gpus > 0)
        self._leader, self._mark, self._socket = leader, mark, socket
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="engine-memory", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def _watch(self) -> None:
        peaks = self.peaks
        gpus = _Gpus(self._socket) if peaks.on_gpus else None
        looks, pids = 0, {self._leader}
        while True:
            if looks % _LOOKS == 0:
                pids = process_tree.members(self._leader, self._mark)
            looks += 1
            if total := sum(map(_resident, pids)):
                peaks.host = max(peaks.host or 0, total)
            if gpus is not None:
                peaks.gpus = gpus.peak(pids)
            if self._stop.wait(_SECONDS):
                break
        if gpus is not None:
            gpus.close()


class _Gpus:
    """Memory of an engine on this job's GPUs; what they hold now is not the engine's yet."""

    def __init__(self, socket: Path) -> None:
        # the parts that no wrapper without GPUs needs
        from hpcbench.monitor import engine_state, gpus, over_socket, visible
        from hpcbench.monitor.nvml import Nvml

        self._nvml = Nvml(visible(gpus()), log.warning)
        self._first = self._nvml.read(())
        self._state = engine_state
        self._ask: Callable[[], str] | None = over_socket(socket, key="")
        self._told: int | None = None
        self._seen: int | None = None

    def peak(self, pids: Collection[int]) -> int | None:
        """Most so far, bytes."""
        if self._ask is not None:
            with contextlib.suppress(OSError, HTTPException):  # it loads still, or is at work
                told = self._state(self._ask()).torch_allocated_bytes
                self._told = told or self._told
                if self._told is None:
                    self._ask = None
        if now := self._nvml.read(pids):
            taken = (
                one.tree_bytes if one.tree_bytes is not None else one.beyond(self._first[gpu])
                for gpu, one in now.items()
            )
            self._seen = max(self._seen or 0, sum(taken))
        return self._told or self._seen

    def close(self) -> None:
        """Let the driver go."""
        self._nvml.close()


def _resident(pid: int) -> int:
    """Bytes; 0 once the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0
