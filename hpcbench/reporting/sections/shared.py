"""What sections share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_PLOTS = 4
"""Plots of one sort: each takes half a second to draw; tables have the rest."""


def dataset_of(one: Mapping[str, Any]) -> str:
    return f"{one['dataset']}, {one['split']}" if one["split"] else str(one["dataset"])
