"""Figures of agents' work: how many calls and tokens samples take, and which step follows which."""

from __future__ import annotations

from hpcbench.experiment.view.performance_json import Trajectories
from hpcbench.reporting.charts.figure_names import stem
from hpcbench.reporting.figures import Axis, Figure, Flow, Series

MOST_BINS = 40
"""Most bars of a distribution."""

MOST_FLOWS = 40
"""Most flows that are drawn; rarer ones are left out."""


def of_agent(run_task: str, work: Trajectories) -> list[Figure]:
    """All figures of an agent's work."""
    drawn = (one(run_task, work) for one in (calls, answer_tokens, switches))
    return [figure for figure in drawn if figure is not None]


def calls(run_task: str, work: Trajectories) -> Figure | None:
    """How many samples took so many calls; None without samples."""
    counts = {int(number): samples for number, samples in work.by_calls.items()}
    if not counts:
        return None
    width = max(1, -(-(max(counts) + 1) // MOST_BINS))
    # A bar of one number has this number at its centre.
    edges = tuple(number - 0.5 for number in range(0, max(counts) + width + 1, width))
    bins = [0] * (len(edges) - 1)
    for number, samples in counts.items():
        bins[number // width] += samples
    return Figure(
        stem("calls", run_task), f"Tool calls of a sample: {run_task}", "histogram",
        Axis("tool calls of a sample", low=-0.5, high=edges[-1], whole=True),
        Axis("samples", low=0, whole=True),
        (Series(run_task, edges, tuple(bins)),),
    )  # fmt: skip


def answer_tokens(run_task: str, work: Trajectories) -> Figure | None:
    """How many samples took so many tokens; None without samples."""
    if not work.by_tokens:
        return None
    edges = (*(one.low for one in work.by_tokens), work.by_tokens[-1].high)
    counts = tuple(one.samples for one in work.by_tokens)
    return Figure(
        stem("answer_tokens", run_task), f"Tokens of a sample's answers: {run_task}", "histogram",
        Axis("tokens of all turns", low=0), Axis("samples", low=0, whole=True),
        (Series(run_task, edges, counts),),
    )  # fmt: skip


def switches(run_task: str, work: Trajectories) -> Figure | None:
    """Which tool or agent followed which; None without a call."""
    if not work.calls:
        return None
    some = work.flows[:MOST_FLOWS]
    left_out = sum(one.count for one in work.flows[MOST_FLOWS:])
    notes = [
        "From the beginning (start) over tools and agents to the exit; a step counts each time."
    ]
    if left_out:
        notes.append(f"{left_out} rare steps are left out.")
    return Figure(
        stem("switches", run_task), f"Which step follows which: {run_task}", "sankey", Axis("step"),
        Axis("next step"), flows=tuple(Flow(one.source, one.target, one.count) for one in some),
        notes=tuple(notes),
    )  # fmt: skip
