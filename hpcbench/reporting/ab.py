"""The arms of an experiment of `hpcbench ab`, as its last look at each run task found them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcbench.experiment.interim import looks_at
from hpcbench.experiment.layout import Experiment
from hpcbench.reporting.report_tables import Arms, ArmsRow, TwoArms


def arms_of(experiment: Experiment) -> Arms | None:
    """What was found; None where the experiment has no arms."""
    resolved = experiment.resolved
    if resolved.arms is None:
        return None
    looks = {pair: looks_at(experiment, pair) for pair in resolved.pairs}
    return {
        "a": list(resolved.arms.a),
        "b": list(resolved.arms.b),
        "run_tasks": [_last(pair, known[-1]) for pair, known in looks.items() if known],
    }


def _last(pair: str, look: Mapping[str, Any]) -> TwoArms:
    quality, speed = rows_of(look)
    return {
        "run_task": pair,
        "done": look["done"],
        "of": look["of"],
        "samples": look["samples"],
        "stopped": look["why"] if look["stop"] else None,
        "level": 1 - look["alpha"],
        "quality": quality,
        "speed": speed,
        "same_nodes": look["same_nodes"],
    }


def rows_of(look: Mapping[str, Any]) -> tuple[list[ArmsRow], list[ArmsRow]]:
    """What a look found: a row a metric, and a row a figure of speed."""
    deciding = look["deciding"]
    return (
        [_quality(one, one["metric"] in deciding) for one in look["quality"]],
        [_speed(one, one["figure"] in deciding) for one in look["speed"]],
    )


def _quality(one: Mapping[str, Any], decides: bool) -> ArmsRow:
    return {
        "what": one["metric"],
        "unit": "",
        "higher_is_better": one["higher_is_better"],
        "decides": decides,
        "a": one["baseline"],
        "b": one["candidate"],
        "change": one["candidate"] - one["baseline"],
        "low": one["interval"]["low"],
        "high": one["interval"]["high"],
        "verdict": one["verdict"],
    }


def _speed(one: Mapping[str, Any], decides: bool) -> ArmsRow:
    return {
        "what": one["figure"],
        "unit": one["unit"],
        "higher_is_better": one["higher_is_better"],
        "decides": decides,
        "a": one["a"],
        "b": one["b"],
        "change": one["ratio"],
        "low": one["low"],
        "high": one["high"],
        "verdict": one["verdict"],
    }
