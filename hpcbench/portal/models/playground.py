"""Models that the user serves, and questions to them."""

from __future__ import annotations

from pydantic import Field

from hpcbench.portal.models.base import Model


class ServedRow(Model):
    """A model that `hpcbench serve` serves for the user."""

    id: str
    """Id of the served model in requests."""
    model: str
    """Name of the model's definition."""
    engine: str
    """Engine of the model."""
    host: str
    """Host where it is served."""
    started: float
    """When it was ready, seconds since the epoch."""
    reachable: bool
    """Whether the portal can send requests: it is served on this host, or with a port."""


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
