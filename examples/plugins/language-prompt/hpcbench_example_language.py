"""Every document is asked in its own language: a template for each, `{field}` where the sample fills in."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


def choose(templates: Mapping[str, str], language: str | None, default: str) -> str:
    """The template of a language, `ru` also for `ru-RU`; the default where there is none."""
    known = language or ""
    return templates.get(known) or templates.get(known.partition("-")[0]) or default


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The template with its fields filled in; attributes and indexes are not followed."""
    parts = []
    for text, name, _, _ in string.Formatter().parse(template):
        parts += [text] if name is None else [text, str(values[name])]
    return "".join(parts)


class ByLanguage:
    """The prompt strategy for hpcbench; the sample's metadata names its `language`."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")

        templates: dict[str, str] = {}

    def __init__(self, spec: Any) -> None:
        self.system, self.user = spec.system, spec.user or ""
        self.templates = self.Options.model_validate(dict(spec.options)).templates

    def placeholders(self) -> frozenset[str]:
        texts = [self.user, *self.templates.values()]
        fields = (name for text in texts for _, name, _, _ in string.Formatter().parse(text))
        return frozenset(name for name in fields if name)

    def build(self, sample: Any) -> tuple[Any, ...]:
        from hpcbench.schema.records import Message

        template = choose(self.templates, sample.metadata.get("language"), self.user)
        text = fill(template, {**sample.metadata, **sample.fields})
        user = Message("user", text, sample.images)
        return (user,) if self.system is None else (Message("system", self.system), user)
