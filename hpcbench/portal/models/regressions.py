"""Figures over time, and who took note of their changes."""

from __future__ import annotations

from pydantic import Field

from hpcbench.portal.models.base import Model


class TrendPoint(Model):
    """One experiment's value."""

    experiment: str
    """Id of the experiment."""
    time: float
    """Time of the experiment, seconds since the epoch."""
    value: float
    """Value of the figure."""
    low: float | None
    """Lower end of its interval."""
    high: float | None
    """Upper end of its interval."""


class Acknowledgement(Model):
    """A user acknowledged a regression."""

    reason: str
    """Reason why the regression is no alarm any more."""
    by: str
    """Account of the user."""
    time: float
    """Time of the note, seconds since the epoch."""
    until: float | None = None
    """End of the mute, seconds since the epoch; None: no end."""


class Regression(Model):
    """A change of the level of a figure."""

    id: str
    """Permanent id of the change."""
    before: float
    """Level before the change."""
    after: float
    """Level after the change."""
    worse: bool
    """Whether the new level is worse."""
    first: str
    """First experiment of the new level."""
    last_good: str
    """Last experiment of the old level."""
    time: float
    """Time of the first experiment of the new level, seconds since the epoch."""
    acknowledged: Acknowledgement | None = None
    """The acknowledgement of the change; None: there is none."""


class TrendRow(Model):
    """One figure of one run task over time: a row of the heat map."""

    id: str
    """Permanent id of the trend."""
    plan: str
    """Name of the plan."""
    run_task: str
    """Name of the run task."""
    name: str
    """Name of the metric or figure."""
    kind: str
    """quality, speed, memory or coverage."""
    model: str
    """Name of the model."""
    signature: str
    """Signature: only values with equal signatures are compared."""
    unit: str = ""
    """Unit of a resource metric; empty: another figure."""
    higher_is_better: bool
    """Whether a higher value is better."""
    points: tuple[TrendPoint, ...]
    """The newest 60 values, in order of time."""
    changes: tuple[Regression, ...]
    """Changes of the level, in order of time."""


class Trends(Model):
    """Rows of the heat map, the most recent regression first."""

    names: tuple[str, ...]
    """Names of all figures."""
    plans: tuple[str, ...]
    """Names of all plans."""
    rows: tuple[TrendRow, ...]
    """The requested rows, at most 200."""
    pending: int = 0
    """Number of rows whose changes are not computed yet: repeat the request in a moment."""
    left_out: int = 0
    """Number of rows that the answer leaves out: request one figure or one plan."""


class AcknowledgeRequest(Model):
    """Acknowledge a regression."""

    reason: str = Field(min_length=1, max_length=500)
    """Reason why the regression is no alarm any more."""
    until: float | None = None
    """End of the mute, seconds since the epoch; None: no end."""
