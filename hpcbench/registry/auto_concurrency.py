"""What `concurrency: auto` comes to: the engine's number, and 1 where latency or peak memory is measured.

It follows from documents alone: a plan comes to the same number on every machine, and planning, estimates and
comparisons know it before anything runs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hpcbench.errors import Problem, UserError
from hpcbench.schema.documents import MEMORY_FIGURES, SPEED_FIGURES, Gate, Slo
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.rules import rule_for

RATES = frozenset({"answers_per_s", "documents_per_s", "good_per_s", "tokens_per_s"})
"""Figures of speed that a busy engine is measured by; all others are latencies."""

MOST = 4096
"""As many as a run task may say."""


def auto(
    run_task: ResolvedRunTask, engine: Any, gate: Gate | None = None, figures: Collection[str] = ()
) -> int | None:
    """Requests in flight of a run task under `concurrency: auto`; None: it says a number.

    Args:
        run_task: the run task.
        engine: the class of its engine; None: it cannot be looked at from here.
        gate: the plan's own gate.
        figures: figures by which its arms are compared.

    Raises:
        UserError: the engine's plugin gives no number.
    """
    if run_task.task.concurrency != "auto":
        return None
    if measures_latency(run_task, gate, figures) or not hasattr(engine, "at_once"):
        return 1
    model = run_task.model
    remedy = f"mend its at_once(), or write a number for run task '{run_task.name}'"
    try:
        found = engine().at_once(model.engine_options, model.gpus)
    except Exception as error:  # somebody else's code
        told = f"{type(error).__name__}: {error}"
        what = f"engine '{model.engine}' fails to say its number for `concurrency: auto`: {told}"
        raise UserError(Problem(what, remedy=remedy)) from error
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise UserError(
            Problem(
                f"engine '{model.engine}' says {found!r} for `concurrency: auto`, not a whole number above 0",
                remedy=remedy,
            )
        )
    return min(found, MOST)


def measures_latency(
    run_task: ResolvedRunTask, gate: Gate | None = None, figures: Collection[str] = ()
) -> bool:
    """Whether requests have to be alone: the run task says so, or is judged by a latency or a peak of memory.

    Rules of a gate that are only advisory decide nothing, so they do not count.
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
    ]
    return any(rule is not None and rule.level == "critical" for rule in rules)
