"""Messages of the live stream."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpcbench.portal.models.base import Model
from hpcbench.status.models import RunTaskState, State


class Progress(Model):
    """How far a run task is."""

    run_task: str
    """The run task."""
    state: RunTaskState
    """Its state."""
    answered: int
    """Samples with an answer."""
    samples: int
    """Samples to ask about."""
    rate: float | None = None
    """Answers a second."""


class ExperimentNews(Model):
    """An experiment changed: fetch again what is shown of it."""

    kind: Literal["experiment"] = "experiment"
    """What this is."""
    seq: int
    """Number of the message, for resuming."""
    time: float
    """When."""
    experiment: str
    """Which."""
    state: State | Literal["unreadable"]
    """Its state now."""
    answered: int
    """Samples with an answer."""
    samples: int
    """Samples to ask about."""
    progress: tuple[Progress, ...] = ()
    """Run tasks that moved, at most 200."""
    changed: tuple[
        Literal["progress", "state", "scores", "failures", "resources", "new", "gone"], ...
    ]
    """What changed."""


class ClusterNews(Model):
    """Slurm was asked again."""

    kind: Literal["cluster"] = "cluster"
    """What this is."""
    seq: int
    """Number of the message."""
    time: float
    """When."""


class Reset(Model):
    """Messages were lost to this reader: fetch everything again."""

    kind: Literal["reset"] = "reset"
    """What this is."""
    seq: int
    """Number of the message to go on from."""
    time: float
    """When."""


News = Annotated[ExperimentNews | ClusterNews | Reset, Field(discriminator="kind")]
"""A message of the live stream."""


class Polled(Model):
    """Messages since a number, for those whom no stream reaches."""

    news: tuple[News, ...]
    """In order."""
    seq: int
    """Ask for what comes after it."""
