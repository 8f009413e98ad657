"""Tables become sections: the contents of a report and their order, in any format.

Every function takes the tables and returns one section, or None where there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from hpcbench.reporting.blocks import Section
from hpcbench.reporting.report_tables import Tables
from hpcbench.reporting.sections import (
    agents,
    failing,
    judges,
    leaderboard,
    origin,
    published,
    quality,
    speed,
)

Name = Literal[
    "verdict", "arms", "scores", "published", "judges", "repeats", "groups", "agents", "speed", "latency",
    "failures", "mistakes", "worst", "resources", "differences", "provenance",
]  # fmt: skip
"""Sections, in their order."""


def sections(tables: Tables, names: Sequence[str], worst: int) -> list[Section]:
    """The requested sections that have contents.

    Args:
        tables: the report as data.
        names: of `Name`.
        worst: samples to show of each run task.
    """
    makers: Mapping[str, Callable[[], Section | None]] = {
        "verdict": lambda: leaderboard.verdict(tables),
        "arms": lambda: leaderboard.arms(tables),
        "scores": lambda: quality.scores(tables),
        "published": lambda: published.published(tables),
        "judges": lambda: judges.judges(tables),
        "repeats": lambda: agents.repeats(tables),
        "groups": lambda: quality.groups(tables),
        "agents": lambda: agents.agents(tables),
        "speed": lambda: speed.speed(tables),
        "latency": lambda: speed.latency(tables),
        "failures": lambda: failing.failures(tables),
        "mistakes": lambda: failing.mistakes(tables),
        "worst": lambda: failing.worst(tables, worst),
        "resources": lambda: speed.resources(tables),
        "differences": lambda: origin.differences(tables),
        "provenance": lambda: origin.provenance(tables),
    }
    found = [make() for name, make in makers.items() if name in names]
    return [one for one in found if one is not None]
