"""A history of scores: one line of JSON per experiment, run task and metric, each experiment once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


def append_once(path: Path, key: str, lines: list[dict[str, Any]]) -> bool:
    """Append lines in one write unless their experiment is there; tells whether it did."""
    if path.exists():
        with path.open(encoding="utf-8") as file:
            if any(json.loads(line).get("experiment") == key for line in file if line.strip()):
                return False
    text = "".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


class History:
    """The tracker for hpcbench."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        path: str

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.path = Path(self.Options.model_validate(dict(options)).path).expanduser()

    def log(self, tables: Mapping[str, Any]) -> None:
        append_once(self.path, tables["id"], list(_lines(tables)))

    @staticmethod
    def example(folder: Path) -> Mapping[str, Any]:
        """Options for the contract tests."""
        return {"path": str(folder / "history.jsonl")}


def _lines(tables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for run_task, table in tables["metrics"]["run_tasks"].items():
        for metric, entry in table["metrics"].items():
            yield {
                "experiment": tables["id"],
                "run_task": run_task,
                "metric": metric,
                "value": None if entry is None else entry["value"],
                "coverage": table["coverage"],
            }
