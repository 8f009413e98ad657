"""Figures over time, and who took note of their changes."""

from __future__ import annotations

from pydantic import Field

from hpcbench.portal.models.base import Model


class TrendPoint(Model):
    """One experiment's value."""

    experiment: str
    """Its id."""
    time: float
    """When it was made."""
    value: float
    """The value."""
    low: float | None
    """Lower end of its interval."""
    high: float | None
    """Upper end."""


class Acknowledgement(Model):
    """Somebody took note of a regression."""

    reason: str
    """Why it is no alarm any more."""
    by: str
    """Account."""
    time: float
    """When."""
    until: float | None = None
    """Muted until then; None: for good."""


class Regression(Model):
    """A level that changed."""

    id: str
    """Of this change, lasting."""
    before: float
    """Level before."""
    after: float
    """Level since."""
    worse: bool
    """Whether it is for the worse."""
    first: str
    """First experiment of the new level."""
    last_good: str
    """Last experiment of the old level."""
    time: float
    """When."""
    acknowledged: Acknowledgement | None = None
    """Who took note of it."""


class TrendRow(Model):
    """One figure of one run task over time: a row of the heat map."""

    id: str
    """Of this trend, lasting."""
    plan: str
    """The plan."""
    run_task: str
    """The run task."""
    name: str
    """Metric or figure."""
    kind: str
    """quality, speed, memory or coverage."""
    model: str
    """Its model."""
    signature: str
    """What makes values comparable."""
    higher_is_better: bool
    """Of the figure."""
    points: tuple[TrendPoint, ...]
    """In order of time, the newest 60."""
    changes: tuple[Regression, ...]
    """Where the level changed, in order of time."""


class Trends(Model):
    """Rows of the heat map, those that fell last first."""

    names: tuple[str, ...]
    """All figures there are."""
    plans: tuple[str, ...]
    """All plans there are."""
    rows: tuple[TrendRow, ...]
    """Those asked for, at most 200."""
    pending: int = 0
    """Rows whose changes are still being worked out: ask again in a moment."""
    left_out: int = 0
    """Rows that are not among them: ask for one figure or plan."""


class AcknowledgeRequest(Model):
    """Taking note of a regression."""

    reason: str = Field(min_length=1, max_length=500)
    """Why it is no alarm any more."""
    until: float | None = None
    """Muted until then; None: for good."""
