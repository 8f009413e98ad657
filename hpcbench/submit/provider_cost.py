"""The known cost of a plan at its models' providers, before a request is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpcbench.schema.experiment_plan import BudgetCaps
from hpcbench.schema.plan import ResolvedPlan
from hpcbench.submit.reuse_forecast import Forecast


def full_answers(resolved: ResolvedPlan, forecast: Forecast) -> Mapping[str, float] | None:
    """Currency → cost of one answer of full length for each sample that will be asked.

    Returns:
        None: no model has prices, or the number of requests is not known, as of an agent.
    """
    found: dict[str, float] = {}
    for one in resolved.run_tasks:
        models = (one.model, *(other.model for other in resolved.beside(one).values()))
        if not any(model.prices for model in models):
            continue
        asked, prices = forecast.asked(one.name), one.model.prices
        if asked is None or prices is None or one.agent is not None or one.ml_task.module:
            return None
        cost = asked * prices.cost(0, one.task.generation.max_tokens)
        found[prices.currency] = found.get(prices.currency, 0.0) + cost
    return found or None


def words(resolved: ResolvedPlan, forecast: Forecast) -> Iterator[str]:
    """The cost and the budget in one line; nothing if there is neither."""
    answers, caps = full_answers(resolved, forecast), resolved.plan.budget
    parts = []
    if answers is not None:
        sums = " and ".join(f"{cost:,.4g} {currency}" for currency, cost in answers.items())
        parts.append(f"answers of full length {sums}; prompts and retries are not included")
    if limits := list(_limits(caps, resolved)):
        parts.append(f"budget: {', '.join(limits)}")
    if parts:
        yield "; ".join(parts)


def _limits(caps: BudgetCaps, resolved: ResolvedPlan) -> Iterator[str]:
    if caps.max_requests is not None:
        yield f"{caps.max_requests:,} requests"
    if caps.max_tokens is not None:
        yield f"{caps.max_tokens:,} tokens"
    if caps.max_cost is not None:
        prices = (one.model.prices for one in resolved.run_tasks)
        yield f"{caps.max_cost:,g} {next(one.currency for one in prices if one is not None)}"
