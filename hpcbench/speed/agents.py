"""Figures of agents' work: exits, calls, turns, times and tokens of whole trajectories; pure.

A trajectory is no request, so no figure of speed counts it. Its times are those of `agents/trajectory.py`:
the model thinks from sending a request to the end of its answer; a tool's time is without waiting for a free
process; waiting for the disk is apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hpcbench.schema.records import ANSWERED, Outcome, Response, Times
from hpcbench.speed import distributions
from hpcbench.speed.rates import ends, rates, steady_window
from hpcbench.speed.request_times import Timed, columns, take

START = "start"
"""The beginning of every trajectory, in `flows`."""

MOST_BINS = 40
"""Most bins of a distribution."""

MOST_FLOWS = 200
"""Most flows that are kept; rarer ones are left out."""


class Worked(NamedTuple):
    """An agent's work on one sample."""

    sample_id: str
    answered: bool
    """Whether the sample has an answer."""
    begin: int
    """When its last worker took it up, ns, on that worker's clock."""
    end: int
    """When it ended, ns."""
    reused: bool
    """Whether an earlier experiment did it: then its times do not count."""
    figures: Mapping[str, Any]
    """`Trajectory.figures`."""

    @classmethod
    def of(cls, response: Response) -> Worked | None:
        """An agent's answer as its work; None: it was one request, or its figures are damaged."""
        try:
            figures = _typed(response.trajectory or {})
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        return cls(
            response.sample_id,
            response.outcome in ANSWERED,
            response.times.send,
            response.times.done,
            response.reused_from is not None,
            figures,
        )


def _typed(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures with every part, each of its type."""
    counts = ("wasted", "prompt_tokens", "completion_tokens")
    seconds = ("think_seconds", "tool_seconds", "sync_seconds")
    plan = figures.get("plan")
    return {
        "exit": str(figures["exit"]),
        "turns": int(figures["turns"]),
        **{
            name: {str(key): int(count) for key, count in (figures.get(name) or {}).items()}
            for name in ("calls", "failed")
        },
        **{name: int(figures.get(name, 0)) for name in counts},
        **{name: float(figures.get(name, 0)) for name in seconds},
        "ttft_ms": [float(one) for one in figures.get("ttft_ms", ())],
        "path": [str(one) for one in figures.get("path", ())],
        "plan": plan and {name: int(plan[name]) for name in ("steps", "done")},
    }


def trajectories(pieces: Iterable[Sequence[Response]]) -> dict[str, Any] | None:
    """Every figure of agents' work on a run task's samples.

    Args:
        pieces: answers by worker: times of one piece are of one clock.

    Returns:
        `trajectories` of the run task's entry of `performance.json`; None: no work has ended.
    """
    works: list[Worked] = []
    windows, streams, notes = [], [], list[str]()
    for piece in pieces:
        there = [work for one in piece if (work := Worked.of(one)) is not None]
        works += there
        own = columns(_timed(one) for one in there if not one.reused)
        if len(own.send):
            window = steady_window(own)
            windows.append(window)
            streams.append(ends(take(own, own.answered > 0), window))
    if not works:
        return None
    figures = [one.figures for one in works]
    timed = [one.figures for one in works if not one.reused]
    calls = [sum(one["calls"].values()) for one in figures]
    found = rates(windows, {"answers_per_s": streams}, notes)
    return {
        "samples": len(works),
        "answered": sum(one.answered for one in works),
        "measured": sum(one.answered and not one.reused for one in works),
        "exits": _sorted(Counter(one["exit"] for one in figures)),
        "calls": _added(figures, "calls"),
        "failed": _added(figures, "failed"),
        "wasted": sum(one["wasted"] for one in figures),
        "by_calls": {str(count): number for count, number in sorted(Counter(calls).items())},
        "calls_each": _spread(calls),
        "turns_each": _spread([one["turns"] for one in figures]),
        "prompt_tokens": sum(one["prompt_tokens"] for one in figures),
        "completion_tokens": sum(one["completion_tokens"] for one in figures),
        "tokens_each": _spread([one["completion_tokens"] for one in figures]),
        "by_tokens": _binned([one["completion_tokens"] for one in figures]),
        "prompt_tokens_each": _spread([one["prompt_tokens"] for one in figures]),
        **{
            f"{name}_s": _spread([one[f"{name}_seconds"] for one in timed])
            for name in ("think", "tool", "sync")
        },
        "ttft_ms": _spread([ms for one in timed for ms in one["ttft_ms"]]),
        "plans": _plans(figures),
        "flows": _flows(figures),
        "window": found["window"],
        "samples_per_s": found["answers_per_s"],
        "notes": notes,
    }


def _timed(one: Worked) -> Timed:
    """The whole as if it were one request, for rates alone."""
    times = Times(one.begin, one.begin, None, (), one.end)
    outcome: Outcome = "ok" if one.answered else "failed"
    return Timed.of(Response(one.sample_id, outcome, None, None, None, times, 1, ()))


def _spread(values: Sequence[float]) -> dict[str, Any] | None:
    import numpy

    return distributions.latency(numpy.array(values, dtype=float))


def _binned(values: Sequence[int]) -> list[dict[str, int]]:
    """Samples by value, in at most `MOST_BINS` bins of one round width: from `low` to `high`, exclusive."""
    least = max(values) // MOST_BINS + 1
    width = next(one for one in _round_numbers() if one >= least)
    counts = Counter(value // width for value in values)
    return [
        {"low": place * width, "high": (place + 1) * width, "samples": counts[place]}
        for place in range(max(counts) + 1)
    ]


def _round_numbers() -> Iterator[int]:
    """1, 2, 5, 10, 20, 50, …"""
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def _sorted(counts: Counter[str]) -> dict[str, int]:
    """The most frequent first."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _added(figures: Iterable[Mapping[str, Any]], name: str) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in figures:
        found.update(one[name])
    return _sorted(found)


def _plans(figures: Iterable[Mapping[str, Any]]) -> dict[str, int] | None:
    """Samples with a plan, their steps, and those done; None: no sample has a plan."""
    plans = [one["plan"] for one in figures if one["plan"]]
    if not plans:
        return None
    steps, done = (sum(one[name] for one in plans) for name in ("steps", "done"))
    return {"samples": len(plans), "steps": steps, "done": done}


def _flows(figures: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How often a tool or agent followed another one; a trajectory begins at `START` and ends at its exit."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in figures:
        path = [START, *one["path"], one["exit"]]
        counts.update(zip(path, path[1:], strict=False))
    often = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MOST_FLOWS]
    return [
        {"source": source, "target": target, "count": count} for (source, target), count in often
    ]
