"""A history of scores: one line of JSON per experiment, run task and metric, each experiment once."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

KEPT = ("value", "low", "high", "n", "clusters", "signature")
"""Fields of a metric's entry that are kept."""


def append_once(path: Path, key: str, lines: Sequence[Mapping[str, Any]]) -> bool:
    """Append lines in one write unless lines of their experiment are there; tells whether it did.

    Processes wait for each other, where the file system has locks; where it has none, whole experiments
    still do not mix, but one that is logged twice at the same moment may stand there twice.

    Args:
        path: the file; made if it is not there.
        key: the experiment, as `experiment` in each line.
        lines: what to append.

    Raises:
        OSError: it cannot be written; no line of the experiment stays there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileIO(str(path), "a+", opener=_private) as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)  # held until the file is closed
        if any(line.get("experiment") == key for line in _having(file, key)):
            return False
        size = file.seek(0, os.SEEK_END)
        # A line that a crash cut off gets its end, so that it spoils no other.
        text = "" if _ends_whole(file, size) else "\n"
        text += "".join(
            json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in lines
        )
        data = text.encode("utf-8", "backslashreplace")
        written = file.write(data)
        if written != len(data):
            file.truncate(size)
            raise OSError(f"{path}: only {written} of {len(data)} bytes could be written")
        os.fsync(file.fileno())
    return True


def read(path: Path) -> Iterator[dict[str, Any]]:
    """All lines of a history; one that a crash cut off is passed over."""
    with path.open("rb") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def lines_of(tables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of an experiment; a metric without a value has None."""
    plan, manifest = tables.get("plan") or {}, tables.get("manifest") or {}
    for run_task, table in tables["metrics"]["run_tasks"].items():
        for metric, entry in table["metrics"].items():
            yield {
                "experiment": tables["id"],
                "created": manifest.get("created"),
                "plan": plan.get("name"),
                "run_task": run_task,
                "model": table.get("model"),
                "dataset": table.get("dataset"),
                "metric": metric,
                **{key: (entry or {}).get(key) for key in KEPT},
                "coverage": table["coverage"],
            }


class History:
    """The tracker for hpcbench."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the history tracker."""

        model_config = ConfigDict(extra="forbid")

        path: str
        """The file; made if it is not there."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.path = Path(self.Options.model_validate(dict(options)).path).expanduser()

    def log(self, tables: Mapping[str, Any]) -> None:
        """Append the scores of an experiment that is not there yet."""
        append_once(self.path, tables["id"], list(lines_of(tables)))

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Options for the contract tests."""
        return {"path": str(folder / "history.jsonl")}


def _having(file: FileIO, key: str) -> Iterator[dict[str, Any]]:
    """Lines that contain the key; only those are read as JSON, so a long history costs little."""
    sought = json.dumps(key, ensure_ascii=False).encode("utf-8", "backslashreplace")
    with open(os.dup(file.fileno()), "rb") as lines:  # noqa: PTH123 - of an open file, not of a path
        lines.seek(0)
        for line in lines:
            if sought in line:
                with contextlib.suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict):
                        yield found


def _ends_whole(file: FileIO, size: int) -> bool:
    return size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o640)
