"""`report.json`: the report as data, by the published schema `registries/schemas/report.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.reporting.context import as_json
from hpcbench.reporting.formats import WORST
from hpcbench.reporting.report_tables import Tables


class Options(BaseModel):
    """Options of the JSON report."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worst: Annotated[int, Field(ge=0, le=50)] = WORST
    """Samples to tell of each run task."""


class Json:
    """`report.json`."""

    api: ClassVar[int] = 1

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = Options.model_validate(dict(options))

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """The report."""
        worst = {name: some[: self.options.worst] for name, some in tables["worst"].items()}
        return {"report.json": as_json(cast("Tables", {**tables, "worst": worst}))}
