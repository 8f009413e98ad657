"""The files behind a methods section, read once, and the kinds of lines that describe them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.manifest import Manifest
from hpcbench.experiment.view.metrics_json import Scores, metrics_of
from hpcbench.experiment.view.performance_json import Performance, Speed, performance_of
from hpcbench.reporting.blocks import Block, Item, Items
from hpcbench.schema.plan import ResolvedRunTask

MOST_NAMED = 12
"""Most run tasks that one line names; of more it names their number."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that a methods section needs and that no file records."""

    text: str


@dataclass(frozen=True, slots=True)
class Cited:
    """A publication that a sentence refers to."""

    text: str


MethodsLine = Block | Missing | Cited


@dataclass(frozen=True, slots=True)
class Facts:
    """Files of an experiment."""

    experiment: Experiment
    run_tasks: tuple[ResolvedRunTask, ...]
    """Run tasks with scores, in the plan's order."""
    manifest: Manifest
    scores: Mapping[str, Scores]
    """Run task → its entry in `metrics.json`."""
    performance: Performance | None
    """None: the file is missing or damaged."""

    @classmethod
    def of(cls, experiment: Experiment) -> Facts:
        """Read them.

        Raises:
            EnvironmentFault: `metrics.json` is missing or damaged.
        """
        scores = metrics_of(experiment).run_tasks
        try:
            performance = performance_of(experiment)
        except EnvironmentFault:
            performance = None
        own = tuple(one for one in experiment.resolved.run_tasks if one.name in scores)
        return cls(experiment, own, experiment.manifest, scores, performance)

    @property
    def imported(self) -> Mapping[str, Any] | None:
        """The origin of answers of another kit; None: hpcbench asked the models."""
        return self.manifest.imported

    def speed(self, run_task: str) -> Speed | None:
        """A run task's entry in `performance.json`."""
        return None if self.performance is None else self.performance.run_tasks.get(run_task)

    def grouped(self, texts: Mapping[str, str]) -> Iterator[Items]:
        """One list; run tasks with the same text share an item.

        Args:
            texts: run task → its text.
        """
        found: dict[str, list[str]] = {}
        for name, text in texts.items():
            found.setdefault(text, []).append(name)
        if found:
            yield Items(tuple(Item(self.named(own), text) for text, own in found.items()))

    def named(self, run_tasks: Sequence[str]) -> str:
        """Names of run tasks; `all run tasks` where several are all."""
        if len(run_tasks) == len(self.run_tasks) > 1:
            return "all run tasks"
        if len(run_tasks) > MOST_NAMED:
            return f"{len(run_tasks)} run tasks, among them {', '.join(run_tasks[:MOST_NAMED])}"
        return ", ".join(run_tasks)


def joined(parts: Iterable[str]) -> str:
    """Parts of a description as one sentence; empty parts are left out."""
    text = "; ".join(filter(None, parts))
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def place_of(source: str) -> str:
    """A source for a paper: an address as it is; a path of this machine says nothing elsewhere."""
    if "://" in source:
        return source
    return "a local folder" if source else "no source"


def is_hash(value: object) -> bool:
    """Whether a recorded hash is one, and not a remark such as `not known`."""
    return isinstance(value, str) and value.startswith("sha256:")
