"""How much host memory an engine's processes hold, looked at once a second in a thread of its own.

Resident memory of all of them added up; what several share (mapped weights, forked pages) counts in each.
Memory of GPUs is not in it: whoever can see that hands the supervisor another `peak_memory`.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from hpcbench.wrapper import family

_SECONDS = 1.0
_LOOKS = 10
"""After so many looks the processes are found anew, which on a busy node reads much of /proc."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Sampler:
    """Watches one engine until it is told to stop."""

    def __init__(self, leader: int, mark: str) -> None:
        self.peak: int | None = None
        """Most that was seen, bytes."""
        self._leader, self._mark = leader, mark
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="engine-memory", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def _watch(self) -> None:
        looks, pids = 0, {self._leader}
        while True:
            if looks % _LOOKS == 0:
                pids = family.members(self._leader, self._mark)
            looks += 1
            if total := sum(map(_resident, pids)):
                self.peak = max(self.peak or 0, total)
            if self._stop.wait(_SECONDS):
                return


def _resident(pid: int) -> int:
    """Bytes; 0 once the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0
