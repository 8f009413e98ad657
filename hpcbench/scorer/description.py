"""Description of a metric, for a host that does not have its code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault, HpcbenchError
from hpcbench.metrics.base import Parts, ratio_of_sums
from hpcbench.schema.shared_types import MetricFacts
from hpcbench.scorer.handover import Wanted

_TRIED = (
    [Parts(3, 4)], [Parts(1, 2), Parts(0, 2)], [Parts(0, 0)], [Parts(2, 0)], [Parts(0, 0), Parts(5, 8)],
)  # fmt: skip
"""Parts that show how a ratio metric aggregates."""


def load(wanted: Wanted) -> Any:
    """The metric, options filled in.

    Raises:
        UserError: there is no such plugin.
        EnvironmentFault: it cannot be imported, does not know an option, or refuses a value.
    """
    plugin = plugins.load("metrics", wanted.plugin)
    if wrong := plugins.check_options(plugin, wanted.options):
        raise EnvironmentFault("; ".join(message for _, message in wrong))
    return plugin(**wanted.options)


def facts_of(metric: Any) -> MetricFacts:
    """The facts that a host needs to make tables of a metric's scores.

    Raises:
        EnvironmentFault: a fact has a wrong type; the metric is a ratio that is not sum over sum.
    """
    over_nothing = getattr(metric, "over_nothing", None)
    try:
        low, high = metric.bounds
        facts = MetricFacts(
            signature=str(metric.signature),
            higher_is_better=bool(metric.higher_is_better),
            aggregation=metric.aggregation,
            bounds=(float(low), None if high is None else float(high)),
            accepts=tuple(map(str, getattr(metric, "accepts", ()))),
            over_nothing=None if over_nothing is None else float(over_nothing),
            has_fields=hasattr(metric, "score_fields"),
        )
    except HpcbenchError:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code: its failure is the finding
        what = f"its class attributes cannot be read: {type(error).__name__}: {error}"
        raise EnvironmentFault(" ".join(what.split())) from error
    if facts.aggregation == "ratio":
        described = Described(facts)
        for parts in _TRIED:
            try:
                own = float(metric.aggregate(parts))
            except Exception as error:  # noqa: BLE001 - as above
                raise EnvironmentFault(f"its aggregate() fails: {error}") from error
            if not math.isclose(own, described.aggregate(parts), rel_tol=1e-12, abs_tol=1e-12):
                raise EnvironmentFault(
                    "its aggregate() is not the sum of numerators over the sum of denominators",
                    remedy="write `aggregation: corpus` and `combine`, or run the metric on the host",
                )
    return facts


class Described:
    """A metric that runs elsewhere, as the host sees it: it makes tables, and scores nothing."""

    api: ClassVar[int] = plugins.API

    def __init__(self, facts: MetricFacts) -> None:
        self.facts = facts
        self.signature = facts.signature
        self.name = facts.signature.partition("|")[0]
        self.higher_is_better = facts.higher_is_better
        self.aggregation = facts.aggregation
        self.bounds = facts.bounds
        self.accepts = facts.accepts
        if facts.has_fields:
            self.score_fields = self.score

    def score(self, prediction: object, references: Sequence[Any]) -> Mapping[str, Any]:
        """Never called.

        Raises:
            EnvironmentFault: always.
        """
        raise EnvironmentFault(f"metric '{self.name}' runs in its image, not here")

    def aggregate(self, parts: Sequence[Any]) -> float:
        """Sum of numerators over sum of denominators."""
        return ratio_of_sums(parts, self.facts.over_nothing)
