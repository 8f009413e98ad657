"""Metrics that can score the answers of an ML task."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.registry.catalog import Catalog
from hpcbench.schema.definitions import Metric, MLTask


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


def fits(accepts: Sequence[str], ml_task: MLTask) -> bool:
    """Whether a metric that accepts these forms can score an ML task's answers."""
    return not accepts or ml_task.output in accepts or "reading" in accepts
