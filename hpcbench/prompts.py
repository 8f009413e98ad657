"""Prompts: a sample becomes messages through Jinja2 templates over its fields and metadata.

Templates run in Jinja2's sandbox with undefined names refused: a prompt that names a field the sample
does not have is an error before anything is sent, never an empty gap in a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from jinja2 import StrictUndefined, Template, TemplateError, meta
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
        self._system, self._user = system, user
        texts = [text for text in (system, user) if text is not None]
        try:
            for text in texts:
                _ENVIRONMENT.compile(text, raw=True)  # finds filters that are none, too
            self._parsed = [_ENVIRONMENT.parse(text) for text in texts]
        except (
            TemplateError,
            ValueError,
            RecursionError,
        ) as error:  # ValueError: a number without end
            what = f"prompt is no Jinja2 template: {str(error)[:200]}"
            raise UserError(Problem(what)) from error

    def placeholders(self) -> frozenset[str]:
        """Names that the templates take from the sample."""
        found = (meta.find_undeclared_variables(parsed) for parsed in self._parsed)
        return frozenset().union(*found) - _ENVIRONMENT.globals.keys()

    @cached_property
    def _templates(self) -> tuple[Template | None, Template]:
        """System and user template, compiled: that takes longer than all the checks before a run."""
        system = _ENVIRONMENT.from_string(self._system) if self._system is not None else None
        return system, _ENVIRONMENT.from_string(self._user)

    def build(self, sample: Sample) -> tuple[Message, ...]:
        """The messages for a sample.

        Raises:
            UserError: a template names a field the sample does not have.
        """
        context = {**sample.metadata, **sample.fields}
        try:
            system, question = self._templates
            user = Message("user", question.render(context), sample.images)
            return (user,) if system is None else (Message("system", system.render(context)), user)
        except TemplateError as error:
            raise UserError(Problem(f"prompt for sample '{sample.id}': {error}")) from error
