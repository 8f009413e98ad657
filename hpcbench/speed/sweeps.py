"""Sweeps: the points of one run task under rising load, their knees and the best of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def sweeps(run_tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Every sweep with its points, its knees and, under limits, its best point.

    Points with a fixed number of requests in flight (closed loop) and points with a fixed rate (open loop)
    are on two curves: at one throughput, requests of a closed loop do not wait, and those of an open loop
    queue by chance. Each curve has its own knee.

    Args:
        run_tasks: run task → its figures, with its sweep in `load.sweep`.

    Returns:
        Sweep → `points` unchanged; `knee` of the closed-loop points and `rate_knee` of the open-loop points,
        None below two points that have the figures; `best`, the valid point with the most good answers per
        second, None where no answer was good.
    """
    found: dict[str, Any] = {}
    for name, figures in run_tasks.items():
        if figures["load"]["sweep"] is not None:
            found.setdefault(figures["load"]["sweep"], {"points": []})["points"].append(name)
    for sweep in found.values():
        valid = [name for name in sweep["points"] if run_tasks[name]["valid"]]
        for mark, paced in (("knee", False), ("rate_knee", True)):
            curve = {
                name: (rate["value"], latency["mean"]["value"])
                for name in valid
                if (run_tasks[name]["load"]["rate"] is not None) == paced
                and (rate := run_tasks[name]["answers_per_s"])
                and (latency := run_tasks[name]["e2e_due_ms"])
            }
            sweep[mark] = knee(curve) if len(curve) > 1 else None
        goodput = {
            name: rate["value"]
            for name in valid
            if (rate := run_tasks[name]["good_per_s"]) and rate["value"] > 0
        }
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
