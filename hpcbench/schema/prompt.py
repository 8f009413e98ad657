"""Prompts, and the languages that default prompts exist in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue, Tag

from hpcbench.schema.definition import Definition, Name
from hpcbench.schema.records import PromptEntry, PromptExample
from hpcbench.schema.shared_types import name_or

Language = Literal["en", "ru"]
"""Languages that default prompts exist in."""


class Prompt(Definition):
    """A prompt, or a collection of them: Jinja2 templates over the sample's fields and metadata."""

    strategy: str = "template"
    """Name in the entry-point group `hpcbench.prompts`, or a class by its dotted path."""
    package: Name | None = None
    """Package definition, or requirement, that provides the strategy."""
    system: str | None = None
    """System message."""
    user: str | None = None
    """User message, which follows the image. In a collection: the message for samples that no entry
    matches."""
    prompts: tuple[PromptEntry, ...] = ()
    """Collection of prompts. A sample gets the entry whose `when` matches it with the most conditions; two
    entries with equally many are an error."""
    collection: str | None = None
    """File with further entries, relative to this file. CSV: columns are id, user (or template), system (or
    system_prompt), version, and examples in JSON; a value in any other column is a condition of `when`.
    hpcbench reads a v0.1 prompt collection, and the JSON of v0.2's `prompt_config`, without changes."""
    examples: tuple[PromptExample, ...] = ()
    """Few-shot examples; the template fills each one from the example's own fields only."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the strategy."""


PromptChoice = Annotated[
    Annotated[Name, Tag("name")] | Annotated[Prompt, Tag("prompt")],
    name_or("prompt"),
]
"""A prompt by name, or written out."""
