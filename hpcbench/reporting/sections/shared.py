"""Helpers that sections share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcbench.experiment.view.metrics_json import Metrics, Scores
from hpcbench.experiment.view.performance_json import Performance

MOST_PLOTS = 4
"""Most plots of one kind: each takes half a second to draw; tables have the rest."""


def dataset_of(one: Mapping[str, Any]) -> str:
    return f"{one['dataset']}, {one['split']}" if one["split"] else str(one["dataset"])


def scores_in(tables: Mapping[str, object]) -> Mapping[str, Scores]:
    """Run task → its scores, from a report's tables."""
    return Metrics.model_validate(tables["metrics"]).run_tasks


def performance_in(tables: Mapping[str, object]) -> Performance:
    """Content of `performance.json`, from a report's tables."""
    return Performance.model_validate(tables["performance"])
