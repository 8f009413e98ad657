"""Prompts: a sample becomes messages through Jinja2 templates over its fields and metadata.

Templates run in Jinja2's sandbox with undefined names refused: a prompt that names a field the sample
does not have is an error before anything is sent, never an empty gap in a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jinja2 import StrictUndefined, TemplateError, meta
from jinja2.sandbox import SandboxedEnvironment
from pydantic import BaseModel, ConfigDict

from hpcbench.errors import Problem, UserError
from hpcbench.schema.records import Message, Sample

_ENVIRONMENT = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=False)


class TemplatePrompt:
    """One system and one user template; images go with the user message."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """It has none."""

        model_config = ConfigDict(extra="forbid")

    def __init__(self, system: str | None, user: str, options: Mapping[str, Any]) -> None:
        self._texts = [text for text in (system, user) if text is not None]
        try:
            self._system = _ENVIRONMENT.from_string(system) if system is not None else None
            self._user = _ENVIRONMENT.from_string(user)
        except TemplateError as error:
            raise UserError(Problem(f"prompt is no Jinja2 template: {error}")) from error

    def placeholders(self) -> frozenset[str]:
        """Names that the templates take from the sample."""
        found = (meta.find_undeclared_variables(_ENVIRONMENT.parse(text)) for text in self._texts)
        return frozenset().union(*found) - _ENVIRONMENT.globals.keys()

    def build(self, sample: Sample) -> tuple[Message, ...]:
        """The messages for a sample.

        Raises:
            UserError: a template names a field the sample does not have.
        """
        context = {**sample.metadata, **sample.fields}
        try:
            user = Message("user", self._user.render(context), sample.images)
            if self._system is None:
                return (user,)
            return (Message("system", self._system.render(context)), user)
        except TemplateError as error:
            raise UserError(Problem(f"prompt for sample '{sample.id}': {error}")) from error
