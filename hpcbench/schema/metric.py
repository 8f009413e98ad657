"""Metrics with their options, and older versions of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue, Tag

from hpcbench.schema.definition import Definition, Name
from hpcbench.schema.shared_types import Part, name_or


class Metric(Definition):
    """A metric with its options; `version` must be the plugin's version."""

    plugin: str
    """Name in the entry-point group `hpcbench.metrics`, or a class by its dotted path."""
    package: Name | None = None
    """Package definition, or requirement, that provides the plugin."""
    image: str | None = None
    """Image in which it scores, as a model's `image`; its package is installed there. Without it: the ML
    task's `image`, else the plan's `evaluation.image`, else the host."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the metric; they are part of its signature."""


class MetricVersion(Part):
    """A metric by one version of its code; its scores are the column `NAME_vVERSION`."""

    name: Name
    """Metric definition."""
    version: int = Field(ge=1)
    """Version, the end of the metric's signature. The plugin `PLUGIN_vVERSION` keeps an older one."""

    @property
    def column(self) -> str:
        """Name of its scores."""
        return f"{self.name}_v{self.version}"


MetricEntry = Annotated[
    Annotated[Name, Tag("name")] | Annotated[MetricVersion, Tag("version")],
    name_or("version"),
]
"""A metric by name, or one version of it."""
