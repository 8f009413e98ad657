"""Messages of the live stream."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpcbench.portal.models.base import Model
from hpcbench.status.experiment_status import RunTaskState, State


class Progress(Model):
    """Progress of a run task."""

    run_task: str
    """Name of the run task."""
    state: RunTaskState
    """Its state."""
    answered: int
    """Number of samples with an answer."""
    samples: int
    """Number of samples to send to the model."""
    rate: float | None = None
    """Answers per second."""


class ExperimentNews(Model):
    """An experiment has changed: the client fetches its data again."""

    kind: Literal["experiment"] = "experiment"
    """Kind of the message."""
    seq: int
    """Number of the message; a client resumes from it."""
    time: float
    """Time, seconds since the epoch."""
    experiment: str
    """Id of the experiment."""
    state: State | Literal["unreadable"]
    """Its state now."""
    answered: int
    """Number of samples with an answer."""
    samples: int
    """Number of samples to send to the models."""
    progress: tuple[Progress, ...] = ()
    """Run tasks with progress, at most 200."""
    changed: tuple[
        Literal["progress", "state", "scores", "failures", "resources", "new", "gone"], ...
    ]
    """Parts that have changed."""


class ClusterNews(Model):
    """The portal has queried Slurm again."""

    kind: Literal["cluster"] = "cluster"
    """Kind of the message."""
    seq: int
    """Number of the message."""
    time: float
    """Time, seconds since the epoch."""


class Reset(Model):
    """The reader missed messages: it fetches all data again."""

    kind: Literal["reset"] = "reset"
    """Kind of the message."""
    seq: int
    """Number of the message from which the reader resumes."""
    time: float
    """Time, seconds since the epoch."""


News = Annotated[ExperimentNews | ClusterNews | Reset, Field(discriminator="kind")]
"""A message of the live stream."""


class Polled(Model):
    """Messages after a number, for clients without a stream."""

    news: tuple[News, ...]
    """Messages, the oldest first."""
    seq: int
    """Give it as `after` in the next request."""
