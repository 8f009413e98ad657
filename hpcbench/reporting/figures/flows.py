"""Positions of blocks and bands of a flow between two sides: pure geometry, from 0 (bottom) to 1 (top)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.reporting.figures.figure_data import Flow
from hpcbench.reporting.figures.style import outcome_rank

GAP = 0.03
"""Height between blocks, as long as all gaps take no more than a third of the total height."""


@dataclass(frozen=True, slots=True)
class Side:
    """The block of one name on one side."""

    name: str
    count: int
    low: float
    """Lower edge."""
    high: float
    """Upper edge."""


@dataclass(frozen=True, slots=True)
class Ribbon:
    """The band of one flow."""

    source: str
    target: str
    count: int
    source_low: float
    source_high: float
    target_low: float
    target_high: float


def names_of(flows: Sequence[Flow]) -> list[str]:
    """Names of both sides from top to bottom: outcomes in their order, then others in order of appearance."""
    names = list(dict.fromkeys([flow.source for flow in flows] + [flow.target for flow in flows]))
    return sorted(names, key=lambda name: outcome_rank(name)[0])


def laid_out(flows: Sequence[Flow]) -> tuple[list[Side], list[Side], list[Ribbon]]:
    """Blocks of both sides from top to bottom, and bands.

    Both sides have one order, see `names_of`, and one height for a count. Flows of 0 are left out.
    """
    there = [flow for flow in flows if flow.count]
    order = names_of(there)
    sources = _counts([(flow.source, flow.count) for flow in there])
    targets = _counts([(flow.target, flow.count) for flow in there])
    total = sum(sources.values()) or 1
    most = max(len(sources), len(targets), 2) - 1
    gap = min(GAP, 1 / 3 / most)
    unit = (1 - gap * most) / total
    left = _blocks(sources, order, unit, gap)
    right = _blocks(targets, order, unit, gap)
    next_source = {side.name: side.high for side in left}
    next_target = {side.name: side.high for side in right}
    ribbons = []
    there.sort(key=lambda flow: (order.index(flow.source), order.index(flow.target)))
    for flow in there:
        height = flow.count * unit
        high, arrives = next_source[flow.source], next_target[flow.target]
        next_source[flow.source] -= height
        next_target[flow.target] -= height
        ribbons.append(
            Ribbon(flow.source, flow.target, flow.count, high - height, high, arrives - height, arrives)
        )  # fmt: skip
    return left, right, ribbons


def _counts(parts: Sequence[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, count in parts:
        found[name] = found.get(name, 0) + count
    return found


def _blocks(counts: dict[str, int], order: Sequence[str], unit: float, gap: float) -> list[Side]:
    blocks, top = [], 1.0
    for name in order:
        if name in counts:
            low = top - counts[name] * unit
            blocks.append(Side(name, counts[name], low, top))
            top = low - gap
    return blocks
