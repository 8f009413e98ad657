"""The records in the logs of all kits."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from hpcbench.agents.trajectory import Trajectory
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.metrics_json import MetricValue
from hpcbench.experiment.view.turns import Line
from hpcbench.schema.model import Model
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.records import ANSWERED, Message, Response, Sample


class Logged(NamedTuple):
    """A sample with all its data."""

    number: int
    """Its place, from 0."""
    sample: Sample
    """The sample."""
    messages: Sequence[Message]
    """The sent messages."""
    response: Response | None
    """The received response; None: never requested."""
    scores: Mapping[str, Any]
    """Its row of the scores file; empty without one."""
    turns: Sequence[Line] = ()
    """Lines of an agent's turns."""

    @property
    def trajectory(self) -> Trajectory | None:
        """An agent's work; None: it was one request."""
        return Trajectory.of(self.sample.id, self.turns) if self.turns else None

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self.response is not None and self.response.outcome in ANSWERED

    @property
    def text(self) -> str:
        """The answer; empty without one. Half a surrogate pair is written as its escape."""
        text = self.response.text if self.response is not None else None
        return (text or "").encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class RunTaskLog:
    """A run task to write a log of."""

    experiment: Experiment
    """Its experiment."""
    run_task: ResolvedRunTask
    """The run task."""
    metrics: Mapping[str, MetricValue | None]
    """Metric → its entry of `metrics.json`; empty: the run task is not evaluated."""
    samples: Iterable[Logged]
    """Its samples; each iteration reads them again."""

    @property
    def created(self) -> datetime:
        """Creation time of the experiment."""
        return self.experiment.created

    def model(self, agent: str = "") -> Model:
        """The model that replies as an agent among several; of no name: the run task's own."""
        own = self.run_task
        role = own.agent.agents.get(agent) if own.agent is not None else None
        if role is None or role.model_of is None:
            return own.model
        return self.experiment.resolved.run_task(role.model_of).model

    @property
    def names(self) -> list[str]:
        """Its metrics."""
        return [one.name for one in self.run_task.metrics]


def identity(*parts: str) -> str:
    """22 letters and digits, the same for the same parts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:22]


def as_json(data: Any) -> str:
    """A record as one line of JSON. Half a surrogate pair, which strict readers refuse, is written out."""
    text = json.dumps(data, ensure_ascii=False, default=str)
    return _HALVES.sub(lambda half: f"\\\\u{ord(half[0]):x}", text)


_HALVES = re.compile("[\ud800-\udfff]")


def flat(name: str, instead: str = "__") -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^\w.-]+", instead, name)
