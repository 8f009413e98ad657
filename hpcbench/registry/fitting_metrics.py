"""Metrics that can score the answers of an ML task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.metrics.judge import VERDICT
from hpcbench.metrics.resources import MEASURED
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask

if TYPE_CHECKING:  # reports ask for resource metrics alone: they need no catalog
    from hpcbench.registry.catalog import Catalog

JUDGE = "judge"
"""Plugin of ML tasks whose answers are verdicts on the answers of another run task."""


def metrics_of(catalog: Catalog, ml_task: MLTask) -> list[str]:
    """Names of the metrics that run tasks of an ML task may name, as far as they can be loaded here."""
    if ml_task.metrics:
        return list(ml_task.metrics)
    found = []
    for name in catalog.names("metrics"):
        try:
            accepts = accepted(catalog.get(Metric, name))
        except (UserError, EnvironmentFault):
            continue  # reported where it is used
        if fits(accepts, ml_task):
            found.append(name)
    return found


def accepted(metric: Metric) -> Sequence[str]:
    """Forms of predictions that a metric scores; none: any.

    Raises:
        UserError, EnvironmentFault: its plugin cannot be loaded here.
    """
    return tuple(getattr(plugins.load("metrics", metric.plugin), "accepts", None) or ())


def measures(plugin: Any) -> bool:
    """Whether a metric's class measures what answers take, and reads none; None is no such class."""
    return MEASURED in (getattr(plugin, "accepts", None) or ())


def is_resource(metric: Metric) -> bool:
    """Whether a definition is a resource metric; all of them ship with hpcbench, and load at once."""
    return measures(_shipped(metric))


def first_scores(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Metrics of answers, then those of resources: the first metric ranks models and finds wrong answers."""

    def place(metric: Metric) -> int:
        plugin = _shipped(metric)
        return 1 + (plugin.aggregation == "run") if measures(plugin) else 0

    return tuple(sorted(metrics, key=place))


def _shipped(metric: Metric) -> Any:
    """The class of a metric that ships with hpcbench; None: it is another's, or cannot be loaded."""
    try:
        return (
            plugins.load("metrics", metric.plugin)
            if plugins.find("metrics", metric.plugin) and plugins.ships("metrics", metric.plugin)
            else None
        )
    except (EnvironmentFault, UserError):
        return None  # reported where it is used


def fits(accepts: Sequence[str], ml_task: MLTask) -> bool:
    """Whether a metric that accepts these forms can score an ML task's answers."""
    forms = {ml_task.output, "reading", MEASURED, *([VERDICT] if ml_task.plugin == JUDGE else [])}
    return not accepts or bool(forms & {*accepts})
