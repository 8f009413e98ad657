"""Sweeps: the points of one run task under rising load, their knee and the best of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def sweeps(run_tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every sweep with its points, its knee and, under limits, its best point.

    Args:
        run_tasks: run task → its figures, with `load.sweep` saying whose point it is.

    Returns:
        Sweep → `points` as they stand, `knee`, and `best`: the valid point with the most good answers a
        second. None where no point has the figures, or no answer was good.
    """
    found: dict[str, Any] = {}
    for name, figures in run_tasks.items():
        if figures["load"]["sweep"] is not None:
            found.setdefault(figures["load"]["sweep"], {"points": []})["points"].append(name)
    for sweep in found.values():
        valid = [name for name in sweep["points"] if run_tasks[name]["valid"]]
        curve = {
            name: (rate["value"], latency["mean"]["value"])
            for name in valid
            if (rate := run_tasks[name]["answers_per_s"])
            and (latency := run_tasks[name]["e2e_due_ms"])
        }
        goodput = {
            name: rate["value"]
            for name in valid
            if (rate := run_tasks[name]["good_per_s"]) and rate["value"] > 0
        }
        sweep["knee"] = knee(curve)
        sweep["best"] = max(goodput, key=lambda name: goodput[name], default=None)
    return found


def knee(curve: Mapping[str, tuple[float, float]]) -> str | None:
    """The point with the greatest power, throughput ÷ latency (Kleinrock 1979, "Power and deterministic rules
    of thumb for probabilistic problems in computer communications").

    Below it, more load buys more throughput than it costs latency (in per cent of each); above, less. For an
    engine that serves up to N requests as fast as one, that is concurrency N; for a single server with
    Poisson arrivals and exponential service, half its capacity.

    Args:
        curve: point → (throughput, mean latency), any units, above 0.
    """
    power = {
        name: rate / latency for name, (rate, latency) in curve.items() if rate > 0 and latency > 0
    }
    return max(power, key=lambda name: power[name], default=None)
