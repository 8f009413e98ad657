"""The report's rows about an experiment's use of the cluster, from its `usage.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from hpcbench import number_format as form
from hpcbench.experiment.view.usage import Hours, Usage

WASTE = {
    "starting": "starting",
    "loading": "loading models",
    "failed_loads": "failed loads",
    "idle": "no work",
    "lost": "lost work",
    "after_last_answer": "after the last answer",
}
"""Causes of waste in `usage.json` → their labels in the report."""

HEADS = ("run task", "model", "unit", "allocated", "used", "share", *WASTE.values())
"""Columns of `usage_rows`."""


def usage_rows(usage: Usage) -> list[tuple[str, ...]]:
    """Rows of `HEADS`, one for each run task, and one total for each unit that several run tasks have."""
    rows = [_row(one.run_task, one) for one in usage.hours]
    for unit in dict.fromkeys(one.unit for one in usage.hours):
        same = [one for one in usage.hours if one.unit == unit]
        if len(same) > 1:
            rows.append(_row("all", reduce(Hours.plus, same).model_copy(update={"model": ""})))
    return rows


def usage_notes(
    usage: Usage, each: Mapping[str, Mapping[str, float | None]], currency: str
) -> list[str]:
    """Notes beside the table.

    Args:
        usage: the experiment's use of the cluster.
        each: the result of `per_document`.
        currency: of the site's price.
    """
    return [*_notes(usage), *_cost_notes(each, currency)]


def per_document(
    hours: Sequence[Hours], documents: Mapping[str, int], price: float | None
) -> dict[str, dict[str, float | None]]:
    """The use per document of each run task that held GPUs: the whole allocation, waste included.

    Args:
        hours: hours of run tasks.
        documents: run task → documents with an answer.
        price: of one GPU for an hour; None: unknown.

    Returns:
        Run task → `gpu_seconds_per_document`, and `cost_per_1000_documents`, None without a price.
    """
    found: dict[str, dict[str, float | None]] = {}
    for one in hours:
        count = documents.get(one.run_task, 0)
        if one.unit == "GPU" and count:
            each = one.allocated / count
            found[one.run_task] = {
                "gpu_seconds_per_document": each * 3600,
                "cost_per_1000_documents": None if price is None else each * price * 1000,
            }
    return found


def _cost_notes(each: Mapping[str, Mapping[str, float | None]], currency: str) -> Iterator[str]:
    for name, one in each.items():
        cost = one["cost_per_1000_documents"]
        priced = (
            f", {cost:.2f} {currency}".rstrip() + " per 1,000 documents" if cost is not None else ""
        )
        yield f"{name}: {one['gpu_seconds_per_document']:.3g} GPU-seconds per document{priced}."


def _row(name: str, hours: Hours) -> tuple[str, ...]:
    return (
        name,
        hours.model,
        f"{hours.unit}-hours",
        form.hours(hours.allocated),
        form.hours(hours.used),
        f"{hours.used / hours.allocated * 100:.0f} %" if hours.allocated else form.DASH,
        *(form.hours(getattr(hours, cause)) for cause in WASTE),
    )


def _notes(usage: Usage) -> Iterator[str]:
    if usage.waited is not None:
        median, longest = usage.waited.median, usage.waited.longest
        yield f"Jobs waited {median:.0f} s in the queue (median), at most {longest:.0f} s."
    if usage.energy_wh is not None:
        of = "the nodes, as Slurm counts it" if usage.energy_source == "slurm" else "the GPUs"
        yield f"Energy of {of}: {usage.energy_wh / 1000:.3g} kWh."
    if usage.gpu_utilisation:
        percentages = (f"{name} {percent:.0f} %" for name, percent in usage.gpu_utilisation.items())
        yield f"GPU utilisation while samples were asked: {', '.join(percentages)}."
    if usage.spent is not None:
        yield f"Sent: {usage.spent.in_words}, warm-up and retries included."
    if not usage.complete:
        yield "The job that wrote this report had not ended: `hpcbench usage` counts it to its end."
    if usage.source == "workers":
        yield "Workers counted these hours: time before their first event and after their last is missing."
