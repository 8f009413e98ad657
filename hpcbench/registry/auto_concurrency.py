"""The value of `concurrency: auto`: the engine's number, and 1 where latency or peak memory is measured.

It depends only on definitions: a plan has the same number on every machine, and planning, estimates and
comparisons know it before anything runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from hpcbench import plugins
from hpcbench.errors import UserError
from hpcbench.registry.fitting_metrics import is_resource
from hpcbench.schema.gate import MEMORY_FIGURES, SPEED_FIGURES, Gate
from hpcbench.schema.load import Slo
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.rules import by_name, rule_for

RATES = frozenset({"answers_per_s", "documents_per_s", "good_per_s", "tokens_per_s"})
"""Figures of speed that need a busy engine; all others are latencies."""

MOST = 4096
"""The most that a run task may request."""


def auto(run_task: ResolvedRunTask, engine: Any, gate: Gate | None = None) -> int | None:
    """Requests in flight of a run task under `concurrency: auto`; None: it gives a number.

    Args:
        run_task: the run task.
        engine: the class of its engine; None: it cannot be loaded here.
        gate: the plan's own gate.

    Raises:
        UserError: the engine's plugin gives no number.
    """
    if run_task.task.concurrency != "auto":
        return None
    if measures_latency(run_task, gate) or not hasattr(engine, "at_once"):
        return 1
    model = run_task.model
    remedy = f"fix its at_once(), or write a number as `concurrency` of run task '{run_task.name}'"
    try:
        found = engine().at_once(model.engine_options, model.gpus)
    except Exception as error:  # foreign code
        fault = f"{type(error).__name__}: {error}"
        what = f"engine '{model.engine}' gives no number for `concurrency: auto`: {fault}"
        raise UserError(what, remedy=remedy) from error
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise UserError(
            f"engine '{model.engine}' gives {found!r} for `concurrency: auto`; it must be a whole number "
            "above 0",
            remedy=remedy,
        )
    return min(found, MOST)


def measures_latency(
    run_task: ResolvedRunTask, gate: Gate | None = None, figures: Collection[str] = ()
) -> bool:
    """Whether requests have to be alone: the run task says so, or a latency or peak of memory judges it.

    Advisory rules of a gate decide nothing, so they do not count.
    """
    if run_task.task.measure is not None:
        return run_task.task.measure == "latency"
    if run_task.task.slo != Slo() or any(name.endswith("_ms") for name in figures):
        return True
    if gate is None:
        return False
    latencies = [name for name in SPEED_FIGURES if name not in RATES]
    rules = [
        *(rule_for(gate.speed, run_task.name, name) for name in latencies),
        *(rule_for(gate.memory, run_task.name, name) for name in MEMORY_FIGURES),
        *(rule_for(by_name(gate.metrics), run_task.name, name) for name in _alone(run_task)),
    ]
    return any(rule is not None and rule.level == "critical" for rule in rules)


def _alone(run_task: ResolvedRunTask) -> Iterator[str]:
    """Resource metrics of a run task that are clean only where one request at a time is in flight."""
    for metric in run_task.metrics:
        if is_resource(metric) and plugins.load("metrics", metric.plugin).unit in ("ms", "GiB"):
            yield metric.name
