"""A budget against the run tasks that it shall limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcbench.errors import Problem
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.schema.spending import BudgetCaps


def mistakes(
    caps: BudgetCaps, run_tasks: Sequence[ResolvedRunTask]
) -> Iterator[tuple[str, Problem]]:
    """Parts of a budget, by their key, that could end no run, or that pay no request of a run task."""
    yield from _without_effect(caps, run_tasks)
    for one in run_tasks:
        answer, prices = one.task.generation.max_tokens or 0, one.model.prices
        cost = 0.0 if prices is None else prices.cost(0, answer)
        if caps.max_tokens is not None and answer > caps.max_tokens:
            yield "max_tokens", _too_small("max_tokens", one, f"{answer:,}")
        if caps.max_cost is not None and prices is not None and cost > caps.max_cost:
            yield "max_cost", _too_small("max_cost", one, f"{cost:,g} {prices.currency}")


def _too_small(key: str, run_task: ResolvedRunTask, most: str) -> Problem:
    return Problem(
        f"{key} pays no request of '{run_task.name}', whose answer alone may take {most}",
        remedy="raise it, or lower the run task's `generation.max_tokens`",
    )


def _without_effect(
    caps: BudgetCaps, run_tasks: Sequence[ResolvedRunTask]
) -> Iterator[tuple[str, Problem]]:
    modules = [one.ml_task.module for one in run_tasks if one.ml_task.module is not None]
    for key, most in caps._asdict().items():
        if modules and most is not None:
            yield (
                key,
                Problem(
                    f"'{key}' does not limit module '{modules[0]}', which asks the model itself",
                    remedy="remove it, or `max_gpu_hours` limits its jobs",
                ),
            )
    if caps.max_cost is None or not run_tasks:
        return
    prices = [one.model.prices for one in run_tasks]
    currencies = sorted({one.currency for one in prices if one is not None})
    if not currencies:
        yield (
            "max_cost",
            Problem(
                "max_cost needs `prices`, and no model of the plan has them",
                remedy="add `prices` to the model, or drop max_cost",
            ),
        )
    elif len(currencies) > 1:
        yield (
            "max_cost",
            Problem(
                f"max_cost is one sum, and the models have prices in {', '.join(currencies)}",
                remedy="state all prices in one currency",
            ),
        )
