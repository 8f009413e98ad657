"""Figures of measurements: from `metrics.json`, `performance.json`, counts and points to descriptions.

Every builder takes plain data, and gives no figure where there is nothing to show. Too much data for one
figure is drawn in another form (many curves as medians with ranges), and a note says what is left out.
"""

from hpcbench.reporting.charts.across_runs import Moment, flow, history
from hpcbench.reporting.charts.agents import of_agent
from hpcbench.reporting.charts.scores import (
    categories,
    distribution,
    metrics,
    outcomes,
)
from hpcbench.reporting.charts.speed import (
    front,
    latencies,
    machine,
    memory,
    sweep,
    tokens,
    tradeoffs,
)

__all__ = [
    "Moment",
    "categories",
    "distribution",
    "flow",
    "front",
    "history",
    "latencies",
    "machine",
    "memory",
    "metrics",
    "of_agent",
    "outcomes",
    "sweep",
    "tokens",
    "tradeoffs",
]
