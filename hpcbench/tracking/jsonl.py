"""Scores as lines of a file: a history that grows with every experiment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from hpcbench.files.atomic import write_all


class JsonlTracker:
    """Appends one line for each run task and metric to a JSONL file: a history of all experiments."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """Options of the jsonl tracker."""

        model_config = ConfigDict(extra="forbid", frozen=True)

        path: str
        """The file; made if it is not there."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.path = Path(self.Options.model_validate(dict(options)).path).expanduser()

    def log(self, tables: Mapping[str, Any]) -> None:
        """Write all lines at once, so that experiments that end together do not mix theirs."""
        lines = "".join(
            json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in _lines(tables)
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        try:
            write_all(descriptor, lines.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lines(tables: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for run_task, table in tables["metrics"]["run_tasks"].items():
        for metric, entry in table["metrics"].items():
            known = {"value": None, **(entry or {})}
            keys = ("value", "low", "high", "n", "clusters", "signature")
            yield {
                "experiment": tables["id"],
                "plan": tables["plan"]["name"],
                "run_task": run_task,
                "model": table["model"],
                "dataset": table["dataset"],
                "coverage": table["coverage"],
                "metric": metric,
                **{key: known.get(key) for key in keys},
            }
