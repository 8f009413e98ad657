"""Speed of two arms that took turns: block by block, over the same samples.

A *block* is a shard that one worker asked without interruption. Two blocks make a pair if one run of one
worker asked both: on one node, on the same GPUs, one right after the other. Whatever the node does to one
block, it does to the other. Loading happens between blocks and is counted apart. Each pair gives one ratio of
arm b to arm a. Ratios are averaged as logarithms; pairs in which a came first count as much as those in which
b came first (`statistics.crossover`). So the result contains neither the node's drift nor the order's effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench import speed, statistics
from hpcbench.comparison.results import SpeedRatio
from hpcbench.experiment.claims import ShardState, id_of_owner, unread_pieces
from hpcbench.experiment.interim import Halves
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.attempts import Attempts
from hpcbench.experiment.view.workers import worker_runs


@dataclass(frozen=True, slots=True)
class BlockFigure:
    """A figure of a block's speed."""

    unit: str
    """Its unit."""
    higher_is_better: bool
    """Which way is better."""
    of: Callable[[speed.Timed], float | None]
    """From the block's answers, in columns; None: the answers do not give the figure."""


def _seconds(answers: speed.Timed) -> float:
    """From the first answer's sending to the last answer's end."""
    return int(answers.done.max() - answers.send.min()) / 1e9


def _answers_per_s(answers: speed.Timed) -> float | None:
    taken = _seconds(answers)
    return len(answers.send) / taken if taken > 0 else None


def _tokens_per_s(answers: speed.Timed) -> float | None:
    counts, taken = answers.completion_tokens, _seconds(answers)
    if (counts == speed.NOT_COUNTED).any() or taken <= 0:
        return None
    return int(counts.sum()) / taken


def _mean(latency: speed.Latency) -> Callable[[speed.Timed], float | None]:
    def mean(answers: speed.Timed) -> float | None:
        known = latency.among(answers).tolist()
        return sum(known) / len(known) if known else None

    return mean


FIGURES: Mapping[str, BlockFigure] = {
    "answers_per_s": BlockFigure("1/s", True, _answers_per_s),
    "tokens_per_s": BlockFigure("1/s", True, _tokens_per_s),
    "ttft_ms": BlockFigure("ms", False, _mean(speed.ttft)),
    "tpot_ms": BlockFigure("ms", False, _mean(speed.tpot)),
    "e2e_ms": BlockFigure("ms", False, _mean(speed.e2e)),
}
"""Rates over a whole block; latencies of its answers, their mean. Stamps as in docs/measuring.md."""


@dataclass(frozen=True, slots=True)
class PairOfBlocks:
    """Two blocks with the same samples, one of each arm."""

    shard: int
    """Number of the shard."""
    worker: str
    """Run of a worker that asked both blocks."""
    a_first: bool
    """Whether arm a came first."""
    figures: Mapping[str, tuple[float, float]]
    """Figure → value of arm a and arm b, for figures that both arms have."""


def paired_blocks(
    experiment: Experiment,
    arms: tuple[str, str],
    states: tuple[Mapping[int, ShardState], Mapping[int, ShardState]],
    done: Halves,
) -> tuple[list[PairOfBlocks], int]:
    """Pairs of blocks, and how many shards that both arms have done make no pair.

    A shard makes no pair if it was asked with interruptions, by two workers or an unknown one, or without an
    answer.
    """
    attempts = [Attempts(experiment, arm) for arm in arms]
    found: list[PairOfBlocks] = []
    for index in done.both:
        both = states[0][index], states[1][index]
        worker, other = (_worker(one) for one in both)
        if not worker or worker != other:
            continue
        blocks = [_answered(one.only(index)) for one in attempts]
        if not all(len(block.send) for block in blocks):
            continue
        figures = {}
        for name, figure in FIGURES.items():
            values = [figure.of(block) for block in blocks]
            if all(value is not None and value > 0 for value in values):
                figures[name] = (float(values[0] or 0), float(values[1] or 0))
        found.append(PairOfBlocks(index, worker, both[0].began <= both[1].began, figures))
    return found, len(done.both) - len(found)


def compare_speed(
    blocks: Sequence[PairOfBlocks], figure: str, level: float = 0.95, margin: float | None = None
) -> SpeedRatio | None:
    """One figure of both arms; None where no pair of blocks has it.

    Args:
        blocks: the pairs.
        figure: one of `FIGURES`.
        level: confidence of the interval.
        margin: share by which the arms may differ and be equivalent, 0.02 for 2 %.
    """
    own = [one for one in blocks if figure in one.figures]
    if not own:
        return None
    logs = [[math.log(value) for value in one.figures[figure]] for one in own]
    found = statistics.crossover(
        [b - a for a, b in logs], [one.a_first for one in own], level=level
    )
    means = [math.exp(sum(side) / len(own)) for side in zip(*logs, strict=True)]
    what = FIGURES[figure]
    ends = [None if end is None else math.exp(end) for end in (found.low, found.high)]
    return SpeedRatio(
        figure=figure,
        unit=what.unit,
        higher_is_better=what.higher_is_better,
        baseline=means[0],
        candidate=means[1],
        ratio=math.exp(found.estimate),
        low=ends[0],
        high=ends[1],
        level=level,
        pairs=len(own),
        method=found.method,
        verdict=_verdict(found, what.higher_is_better, margin),
    )


def job_rate(experiment: Experiment, run_task: str) -> float | None:
    """Answers per second of a run task, from its first sending to its last end, by all engines of one job.

    None: no answer, or workers on several machines, whose clocks differ.
    """
    if len({run.host for run in worker_runs(experiment)}) != 1:
        return None
    pieces = [speed.read(piece) for piece in unread_pieces(experiment, run_task)]
    pieces = [speed.take(one, (one.answered > 0) & (one.tries > 0)) for one in pieces]
    pieces = [one for one in pieces if len(one.send)]
    if not pieces:
        return None
    taken = max(one.done.max() for one in pieces) - min(one.send.min() for one in pieces)
    return sum(len(one.send) for one in pieces) / (int(taken) / 1e9) if taken > 0 else None


def costs(experiment: Experiment, arms: tuple[str, str]) -> dict[str, dict[str, Any]]:
    """Arm → the cost of serving it: `loads`, their mean `load_seconds`, peak `memory` in bytes."""
    events = [event for run in worker_runs(experiment) for event in run.events]
    found: dict[str, dict[str, Any]] = {}
    for arm, name in zip("ab", arms, strict=True):
        model = experiment.resolved.run_task(name).model.name
        loads = [
            float(event["seconds"])
            for event in events
            if event["event"] == "model_ready" and event["model"] == model and "seconds" in event
        ]
        readings = [
            event["memory"]
            for event in events
            if event["event"] == "monitor" and event["run_task"] == name
        ]
        keys = sorted({key for memory in readings for key in memory})
        most = {
            key: max(
                value for memory in readings if isinstance(value := memory.get(key), (int, float))
            )
            for key in keys
            if any(isinstance(memory.get(key), (int, float)) for memory in readings)
        }
        found[arm] = {
            "loads": len(loads),
            "load_seconds": sum(loads) / len(loads) if loads else None,
            "memory": most,
        }
    return found


def _verdict(
    found: statistics.Interval, higher_is_better: bool, margin: float | None
) -> statistics.Verdict:
    if found.low is None or found.high is None:
        return "inconclusive"
    if margin is not None and -math.log1p(margin) < found.low and found.high < math.log1p(margin):
        return "equivalent"
    if found.low > 0:
        return "better" if higher_is_better else "worse"
    if found.high < 0:
        return "worse" if higher_is_better else "better"
    return "inconclusive"


def _worker(state: ShardState) -> str:
    """Run of a worker and its node; empty: they are not recorded."""
    owner = state.owner
    return f"{id_of_owner(owner)}@{owner.get('node') or owner.get('host')}" if owner else ""


def _answered(pages: Iterator[bytes]) -> speed.Timed:
    """Answers to requests, in columns."""
    asked = speed.read(pages)
    return speed.take(asked, (asked.answered > 0) & (asked.tries > 0))
