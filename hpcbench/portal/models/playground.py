"""Models that the user serves, and questions to them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hpcbench.portal.models.base import Model


class ServedRow(Model):
    """A model that `hpcbench serve` serves for the user, or that a job of it is about to serve."""

    id: str
    """Id of the served model in requests."""
    model: str
    """Name of the model's definition."""
    engine: str
    """Engine of the model."""
    host: str = ""
    """Host where it is served; empty: it is not ready."""
    started: float
    """When it was ready, or else when its job was submitted, seconds since the epoch."""
    reachable: bool = False
    """Whether the portal can send requests: it is served on this host, or with a port."""
    state: Literal["waiting", "starting", "ready", "failed"] = "ready"
    """State: its job waits for Slurm; the model is being loaded; it is ready; its job ended too early."""
    is_job: bool = False
    """Whether a job serves it, which the portal can end; else a command in a terminal."""
    why: str = ""
    """Why its job waits or has failed."""
    log: tuple[str, ...] = ()
    """Last lines of its job's output, until it is ready."""
    ends: float | None = None
    """When its time limit ends it, seconds since the epoch; None: no limit, or not started yet."""


class ServeAsked(Model):
    """A model to serve in a job of its own."""

    model: str = Field(max_length=200)
    """Name of the model's definition."""
    minutes: int = Field(gt=0, le=7 * 24 * 60)
    """Time limit of the job, minutes."""


class Question(Model):
    """A question to a served model."""

    served: str = Field(max_length=64)
    """Id of the served model."""
    system: str = Field(default="", max_length=100_000)
    """System message; empty: none."""
    prompt: str = Field(max_length=100_000)
    """User message, after the images."""
    images: tuple[str, ...] = Field(default=(), max_length=16)
    """Images as data URIs."""
    max_tokens: int = Field(default=512, gt=0, le=100_000)
    """Maximum tokens of the answer."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """Temperature; 0: the most likely token."""
