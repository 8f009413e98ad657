"""Notes on an experiment's data at a tracker; they outlive the process: `tracked/NAME-KEY.jsonl`.

A note is written after the tracker has accepted data. If a process was killed in between, accepted data
without a note is found at the tracker itself, where each part has its own name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcbench.errors import RunFailed
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import Appender, read_lines
from hpcbench.files.lease import alone


class Notes:
    """Notes on one destination; `notes_on` opens them."""

    def __init__(self, file: Appender) -> None:
        self._file = file
        self._known = dict[tuple[str, str], str]()
        for line in read_lines(file.path):
            if line.get("what") == "forgotten":
                self._known.clear()
            else:
                self._known[str(line.get("what")), str(line.get("name"))] = str(line.get("value"))

    def get(self, what: str, name: str = "") -> str | None:
        """The last noted value; None: no note."""
        return self._known.get((what, name))

    def put(self, what: str, name: str, value: str) -> None:
        """Note data that the tracker has stored durably; an equal note is not written again."""
        if self.get(what, name) != value:
            self._write({"what": what, "name": name, "value": value})
            self._known[what, name] = value

    def forget(self) -> None:
        """The tracker has lost its data: everything has to be sent again."""
        if self._known:
            self._write({"what": "forgotten"})
            self._known.clear()

    def _write(self, note: Mapping[str, str]) -> None:
        self._file.write({"time": round(time.time(), 3), **note})
        self._file.sync()


def notes_file(experiment: Experiment, tracker: str, destination: Mapping[str, Any]) -> Path:
    """File of the notes on a destination.

    Args:
        experiment: the experiment.
        tracker: name of the plugin.
        destination: fields that identify the place: address, project. No secrets.
    """
    text = json.dumps(dict(destination), sort_keys=True, default=str)
    name = "".join(one if one.isalnum() else "_" for one in tracker)
    return experiment.tracked_dir / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.jsonl"


@contextlib.contextmanager
def notes_on(path: Path, patience: float = 0.0) -> Iterator[Notes]:
    """The notes of a file, with an exclusive lock.

    Raises:
        RunFailed: another process holds them for longer than `patience` seconds.
    """
    lock = path.with_suffix(".lock")
    with alone(lock, patience) as mine:
        if not mine:
            holder = next(read_lines(lock), {})
            who = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}"
            raise RunFailed(
                f"{who} already sends this experiment there (wait until it has finished)"
            )
        with Appender(path) as file:
            yield Notes(file)
