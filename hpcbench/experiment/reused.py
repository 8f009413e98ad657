"""Answers taken over from earlier experiments: `reused.json`, written once, before the first job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcbench.errors import OTHER_FORM
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json

REUSED_VERSION = 1


@dataclass
class Reused:
    """Answers of earlier experiments, counted by who asked for them."""

    run_tasks: dict[str, dict[str, int]] = field(default_factory=dict)
    """Run task → experiment → its answers; run tasks without any are left out."""

    @property
    def count(self) -> int:
        """All of these answers."""
        return sum(self.experiments.values())

    @property
    def experiments(self) -> Mapping[str, int]:
        """Experiment → its answers."""
        found = Counter[str]()
        for counts in self.run_tasks.values():
            found.update(counts)
        return found

    def write(self, experiment: Experiment) -> None:
        """Write the file."""
        whole = {"version": REUSED_VERSION, "run_tasks": self.run_tasks}
        write_json(experiment.reused_file, whole)


def reused_of(experiment: Experiment) -> Reused | None:
    """Answers that an experiment took over; None: nothing is recorded, or the record is damaged."""
    try:
        data: Any = read_json(experiment.reused_file)
        found = {
            str(name): {str(one): int(count) for one, count in counts.items()}
            for name, counts in data["run_tasks"].items()
        }
    except (OSError, *OTHER_FORM):
        return None
    return Reused(found)
