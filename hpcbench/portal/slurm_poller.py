"""Slurm's state for the follower, queried in a thread of its own: a slow controller must not delay news."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from hpcbench import slurm

_log = logging.getLogger(__name__)

OLDEST_SECONDS = 30.0
"""Greatest age of Slurm's state; all readers on this machine share one snapshot, see `slurm.snapshot`."""

PAUSE_SECONDS = 5.0
"""Pause between two queries of this portal, whatever is requested."""


class Asker:
    """Keeps Slurm's last state. The thread starts with the first query, and ends with `stop`.

    Args:
        ask: gives Slurm's state, not older than a given time.
    """

    def __init__(self, ask: Callable[[float], slurm.Snapshot] | None = None) -> None:
        self._ask = ask or (lambda newer_than: slurm.snapshot(newer_than=newer_than))
        self._wanted, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._newer_than = 0.0
        self._last: slurm.Snapshot | None = None
        self._asked = 0.0

    def newest(self, newer_than: float) -> slurm.Snapshot | None:
        """Slurm's last state; None: there is no answer yet, or none newer than `newer_than`.

        Args:
            newer_than: seconds since the epoch.
        """
        last, now = self._last, time.time()
        self._newer_than = max(self._newer_than, newer_than)
        known = 0.0 if last is None else self._asked if last.fault else last.time
        if now - known > OLDEST_SECONDS or known < newer_than:
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="asker", daemon=True)
                self._thread.start()
        if last is None or (last.time < newer_than and last.fault is None):
            return None
        return last

    def stop(self) -> None:
        """Send no more queries. A running query is not waited for."""
        self._stopping.set()
        self._wanted.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait()
            self._wanted.clear()
            if self._stopping.is_set():
                return
            try:
                self._last = self._ask(self._newer_than)
            except Exception:  # noqa: BLE001 - the next query may succeed
                _log.exception("asking Slurm")
            self._asked = time.time()
            self._stopping.wait(PAUSE_SECONDS)
