"""`report.json`: the report as data, by the published schema `registries/schemas/report.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.reporting.formats import WORST, Format
from hpcbench.reporting.gather import as_json
from hpcbench.reporting.report_tables import Tables


class Options(BaseModel):
    """Options of the JSON report."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worst: Annotated[int, Field(ge=0, le=50)] = WORST
    """Samples to list of each run task."""


class Json(Format):
    """`report.json`."""

    Options = Options

    def render(self, tables: Mapping[str, Any]) -> Mapping[str, str | bytes]:
        """The report."""
        worst = {name: some[: self.options.worst] for name, some in tables["worst"].items()}
        return {"report.json": as_json(cast("Tables", {**tables, "worst": worst}))}
