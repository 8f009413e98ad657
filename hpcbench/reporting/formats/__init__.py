"""The formats of a report, one file for each plugin. All write the same sections in their own syntax."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar, cast, get_args

from pydantic import BaseModel, ConfigDict, Field

from hpcbench.reporting.blocks import Section
from hpcbench.reporting.figures import Figure, svg
from hpcbench.reporting.report_tables import Tables
from hpcbench.reporting.sections import Name, sections

EVERY: tuple[Name, ...] = get_args(Name)
"""All sections, in their order."""

WORST = 3
"""Samples shown of each run task."""


@lru_cache(maxsize=128)
def drawn(figure: Figure) -> str:
    """A figure's SVG; drawn once for all formats of a report."""
    return svg(figure)


class Format:
    """Base of all formats: options are checked by `Options`."""

    api: ClassVar[int] = 1

    Options: ClassVar[type[BaseModel]]

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options: Any = self.Options.model_validate(dict(options))


class Options(BaseModel):
    """Options of reports for people."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sections: tuple[Name, ...] = EVERY
    """Sections to write; their order is fixed."""
    without: tuple[Name, ...] = ()
    """Sections to leave out."""
    worst: Annotated[int, Field(ge=0, le=50)] = WORST
    """Samples to show of each run task."""

    def of(self, tables: Mapping[str, Any]) -> list[Section]:
        """The sections that these options ask for."""
        names = [name for name in self.sections if name not in self.without]
        return sections(cast("Tables", tables), names, self.worst)
