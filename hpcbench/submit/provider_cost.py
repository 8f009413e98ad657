"""The known cost of a plan at its models' providers, before a request is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpcbench.schema.plan import ResolvedPlan
from hpcbench.schema.spending import BudgetCaps, limits_in_words, plain
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
        sums = " and ".join(f"{plain(cost)} {currency}" for currency, cost in answers.items())
        parts.append(f"answers of full length {sums}; prompts and retries are not included")
    if caps != BudgetCaps():
        prices = (one.model.prices for one in resolved.run_tasks)
        currency = next((one.currency for one in prices if one is not None), "")
        parts.append(f"budget: {limits_in_words(caps, currency)}")
    if parts:
        yield "; ".join(parts)
