"""The keys that definitions of every kind have; unknown keys are errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, Field, JsonValue

from hpcbench.schema.names import FLAT_NAME, LONGEST, NAME
from hpcbench.schema.shared_types import STRICT

Name = Annotated[str, Field(pattern=NAME, max_length=LONGEST)]
"""A definition's name: one line of text in any script; `/` for folders."""

FlatName = Annotated[str, Field(pattern=FLAT_NAME, max_length=LONGEST)]
"""A name whose id becomes a folder or part of an experiment's id: no `/`."""


class Definition(BaseModel):
    """The keys that every definition has."""

    model_config = STRICT

    schema_version: Literal[1] = 1
    """Version of this definition's format."""
    name: Name
    """The name by which other definitions refer to it: one line of text in any script. It need not be the
    file's name, by which they can refer to it, too."""
    version: str = ""
    """Version of the model, dataset … that this definition describes, as its publisher or author names it."""
    description: str = ""
    """One sentence for people."""
    notes: str = ""
    """Notes for readers: the source of the facts, and what is not tested."""
    metadata: Mapping[str, JsonValue] = Field(default_factory=dict)
    """For people and scripts; hpcbench does not read it."""
