"""Prompts: Jinja2 templates turn a sample's fields and metadata into messages.

    prompts:
      - {id: total, user: "What is the total?", when: {doc_type: invoice, field: total}}
      - {id: invoice, user: "What is the {{ field }} of this invoice?", when: {doc_type: invoice}}
    user: "What is the {{ field }}?"

An entry matches a sample if all its conditions hold. A sample gets the matching entry with the most
conditions; `user` is for samples without one. Two best entries with equally many conditions (a tie) and a
sample without an entry (a hole) are errors, found at preparation: it builds the prompt of every sample once.

Templates run in Jinja2's sandbox and refuse undefined names and nulls: a prompt that prints a missing field,
or converts it to text, is an error before a request is sent. An empty text is a value and printed as such;
only a prompt that is empty as a whole because of it is an error, too.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import (
    StrictUndefined,
    Template,
    TemplateError,
    TemplateRuntimeError,
    Undefined,
    UndefinedError,
    meta,
    nodes,
)
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, ConfigDict

from hpcbench.errors import Problem, UserError
from hpcbench.plugins import PromptSpec
from hpcbench.schema.records import Message, PromptEntry, Sample

TEXTS_KEPT = 512
"""Number of compiled templates kept: every shard builds its prompt again, and run tasks share prompts."""

VALUES_KEPT = 10_000
"""Number of sample values for which a prompt remembers the conditions that they meet."""

OF_THE_HOUSE = frozenset({"dataset", "task"})
"""Variables with names of definitions, for use in prompts; they hide a sample's own fields of these names."""

_BROKEN = (
    TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError,
    MemoryError,
)  # fmt: skip
"""Errors that a template may raise over a sample it was not written for."""


class _IsNull(TemplateRuntimeError, TypeError):
    """A template uses null as a value; also a TypeError, as Python's None raises, for `int` and similar."""


class _Null(StrictUndefined):
    """Represents null in a template: printing it or converting it to text fails. It is a defined value; its
    attributes and items are undefined.
    """

    __slots__ = ()

    def __bool__(self) -> bool:  # type: ignore[override]
        return False

    def __eq__(self, other: object) -> bool:  # type: ignore[override]
        return other is None or isinstance(other, _Null)

    def __ne__(self, other: object) -> bool:  # type: ignore[override]
        return not self == other

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(None)

    def __repr__(self) -> str:  # inside a printed list
        return str(self)

    def __getattr__(self, name: str) -> StrictUndefined:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: Any) -> StrictUndefined:  # type: ignore[override]
        return StrictUndefined(self._undefined_hint, exc=_IsNull)


def _template_value(name: str, value: Any) -> Any:
    """A value in the form that templates get."""
    if value is None:
        return _Null(f"'{name}' is null", name=name, exc=_IsNull)
    if isinstance(value, dict):
        return {key: _template_value(f"{name}.{key}", inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_template_value(f"{name}[{place}]", inner) for place, inner in enumerate(value)]
    return value


def _or_none(value: Any) -> Any:
    return None if isinstance(value, _Null) else value


def _printable(value: Any) -> Any:
    if value is None:
        raise _IsNull("the template prints null")
    if callable(value) and not isinstance(value, Undefined):  # its text differs in each process
        raise TemplateRuntimeError("the template prints a function, not its result")
    return value


def _json_null(value: Any) -> None:
    if not isinstance(value, _Null):
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, finalize=_printable, keep_trailing_newline=False
)
# The same sample gives the same text: no random functions, no globals that replace a missing field.
_ENVIRONMENT.globals = {name: _ENVIRONMENT.globals[name] for name in ("range", "dict", "namespace")}
del _ENVIRONMENT.filters["random"]
_ENVIRONMENT.tests |= {
    "none": lambda value: _or_none(value) is None,
    "sameas": lambda value, other: _or_none(value) is _or_none(other),
    "callable": lambda value: callable(_or_none(value)),
    "defined": lambda value: not isinstance(_or_none(value), Undefined),
    "undefined": lambda value: isinstance(_or_none(value), Undefined),
}
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"sort_keys": True, "default": _json_null}


@dataclass(frozen=True, slots=True)
class _Text:
    """A compiled template."""

    template: Template
    names: frozenset[str]
    """All names that it may take from a sample."""


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt ready to be rendered."""

    id: str
    when: Mapping[str, Any]
    system: _Text | None
    user: _Text
    shots: tuple[Message, ...]
    """Messages of its few-shot examples."""
    silent: bool
    """Its user template is blank: it sends only the images."""

    @property
    def called(self) -> str:
        """Its name in messages."""
        return f"'{self.id}'" if self.id else "`user`"


class TemplatePrompt:
    """One template or a collection of templates; images go with the user message."""

    api: ClassVar[int] = 1

    class Options(BaseModel):
        """It has none."""

        model_config = ConfigDict(extra="forbid")

    def __init__(self, spec: PromptSpec) -> None:
        self._spec = spec
        entries = list(spec.entries)
        if spec.user is not None:
            entries.append(PromptEntry("", spec.user))
        try:
            for text in _texts(spec):
                _compiled(text)  # finds unknown filters, too
        except (TemplateError, ValueError, RecursionError) as error:
            # ValueError: a number with too many digits
            what = f"the prompt is not a valid Jinja2 template: {str(error)[:200]}"
            raise UserError(Problem(what)) from error
        if problems := _clashes(entries):
            raise UserError(*problems)
        self._prompts = [self._ready(entry) for entry in entries]
        self._conditions = sorted({name for entry in entries for name in entry.when})
        self._met: dict[tuple[str, type, Any], tuple[int, ...]] = {}
        self._last: tuple[Sample, _Prompt] | None = None

    def placeholders(self) -> frozenset[str]:
        """Names that the templates take from samples and definitions."""
        return names_in(_texts(self._spec)) - _ENVIRONMENT.globals.keys()

    def name(self, sample: Sample) -> str:
        """Id of the entry that a sample gets; empty for the definition's own user message."""
        if self._last is not None and self._last[0] is sample:
            return self._last[1].id
        return self._chosen(sample, self._context_of(sample)).id

    def build(self, sample: Sample) -> tuple[Message, ...]:
        """The messages for a sample.

        Raises:
            UserError: no entry matches, or two match alike; a template cannot be rendered for the sample.
        """
        context = self._context_of(sample)
        prompt = self._chosen(sample, context)
        where = f"prompt {prompt.called} for sample '{sample.id}'"
        own = Message("user", _filled(prompt.user, context, where), sample.images)
        if not prompt.silent and not own.text.strip():
            raise UserError(Problem(f"{where} is empty"))
        if prompt.system is None:
            return (*prompt.shots, own)
        return (Message("system", _filled(prompt.system, context, where)), *prompt.shots, own)

    def _context_of(self, sample: Sample) -> dict[str, Any]:
        return self._context({**sample.metadata, **sample.fields})

    def _context(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Variables of templates and conditions, from these fields."""
        context = dict(known)
        if "doc_class" in context:  # v0.1's column: v0.2 selects by it as doc_type, v0.1 by two
            context.setdefault("doc_type", context["doc_class"])
            if "question_type" in context:
                context["doc_class_question_type"] = (
                    f"{context['doc_class']} {context['question_type']}"
                )
        return {**context, "dataset": self._spec.dataset, "task": self._spec.task}

    def _chosen(self, sample: Sample, context: Mapping[str, Any]) -> _Prompt:
        met = [0] * len(self._prompts)
        for name in self._conditions:
            if name in context:
                for place in self._meeting(name, context[name]):
                    met[place] += 1
        holding = [
            one for one, count in zip(self._prompts, met, strict=True) if count == len(one.when)
        ]
        if not holding:
            values = ", ".join(f"{name} {context.get(name)!r}" for name in self._conditions)
            what = f"no prompt matches sample '{sample.id}', with {values}"
            raise UserError(
                Problem(what, remedy="add an entry without `when`, or one that matches")
            )
        most = max(len(one.when) for one in holding)
        best = [one for one in holding if len(one.when) == most]
        if len(best) > 1:
            names = " and ".join(one.called for one in best)
            raise UserError(
                Problem(
                    f"prompts {names} match sample '{sample.id}' equally well",
                    remedy="add a condition to one of them, or an entry with the conditions of both",
                )
            )
        self._last = sample, best[0]
        return best[0]

    def _meeting(self, name: str, value: Any) -> tuple[int, ...]:
        """Indices of the prompts whose condition on a name holds for a value; most results are kept."""
        try:
            found = self._met.get((name, type(value), value))
        except TypeError:  # a list or an object: rare in conditions
            return self._looked_for(name, value)
        if found is None:
            found = self._looked_for(name, value)
            if len(self._met) < VALUES_KEPT:
                self._met[name, type(value), value] = found
        return found

    def _looked_for(self, name: str, value: Any) -> tuple[int, ...]:
        return tuple(
            place
            for place, one in enumerate(self._prompts)
            if name in one.when and _alike(value, one.when[name])
        )

    def _ready(self, entry: PromptEntry) -> _Prompt:
        """A prompt with its examples rendered, each from its own fields alone.

        Raises:
            UserError: an example lacks a field.
        """
        spec, user = self._spec, _compiled(entry.user)
        system = entry.system if entry.system is not None else spec.system
        examples, shots = entry.examples or spec.examples, []
        if not (spec.dataset or spec.task) and names_in([entry.user]) & OF_THE_HOUSE:
            examples = ()  # the definition alone does not determine their texts
        for number, example in enumerate(examples, 1):
            where = f"prompt '{entry.id}', example {number}" if entry.id else f"example {number}"
            text = _filled(user, self._context(example.fields), where)
            shots.append(Message("user", text, tuple(Path(image) for image in example.images)))
            shots.append(Message("assistant", example.answer))
        return _Prompt(
            entry.id,
            entry.when,
            _compiled(system) if system is not None else None,
            user,
            tuple(shots),
            silent=not entry.user.strip(),
        )


def names_in(texts: Iterable[str]) -> frozenset[str]:
    """Names that templates use and do not set; texts that are no templates are skipped."""
    found: set[str] = set()
    for text in texts:
        try:
            found |= meta.find_undeclared_variables(_parsed(text))
        except (TemplateError, ValueError, RecursionError):
            continue
    return frozenset(found)


def _texts(spec: PromptSpec) -> list[str]:
    """Every template once."""
    texts = [spec.system, spec.user]
    texts += [text for entry in spec.entries for text in (entry.system, entry.user)]
    return [text for text in dict.fromkeys(texts) if text is not None]


def _filled(text: _Text, context: Mapping[str, Any], where: str) -> str:
    """The text that a template renders.

    Raises:
        UserError: it cannot be rendered.
    """
    try:
        return text.template.render(
            {name: _template_value(name, context[name]) for name in text.names & context.keys()}
        )
    except _IsNull as error:
        remedy = "write `{{ NAME or '' }}` to print nothing for null"
        raise UserError(Problem(f"{where}: {error}", remedy=remedy)) from error
    except _BROKEN as error:
        prefix = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
        unknown = isinstance(error, UndefinedError) and str(error).endswith("is undefined")
        known = f"there are: {', '.join(sorted(context))}" if unknown else None
        raise UserError(Problem(f"{where}: {prefix}{error}", remedy=known)) from error


def _clashes(entries: Iterable[PromptEntry]) -> list[Problem]:
    """Problems of entries that share an id, or have exactly the same conditions."""
    problems, ids, conditions = [], set[str](), dict[str, str]()
    for entry in entries:
        if entry.id in ids:
            what = f"two prompts have the id '{entry.id}'"
            problems.append(Problem(what, remedy="rename one of them"))
        ids.add(entry.id)
        called = f"'{entry.id}'" if entry.id else "`user`"
        key = json.dumps(
            {name: _plain(value) for name, value in entry.when.items()}, sort_keys=True
        )
        if key in conditions:
            what = f"prompts {conditions[key]} and {called} have the same conditions"
            problems.append(Problem(what, remedy="change the `when` of one of them"))
        conditions.setdefault(key, called)
    return problems


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are equal to people: a CSV has only texts, and JSON writes both 1 and 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return _plain(one).casefold() == _plain(other).casefold()
    if isinstance(one, int | float) or isinstance(other, int | float):
        numbers = _number(one), _number(other)
        if None not in numbers:
            return numbers[0] == numbers[1]
    return _plain(one) == _plain(other)


def _number(value: Any) -> int | float | None:
    """The number of a value, integers of any size; a text is parsed."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, str) and "_" in value:  # only Python reads 1_000 as a number
        return None
    for kind in (int, float) if isinstance(value, str) else (float,):
        try:
            return kind(value)
        except (TypeError, ValueError, OverflowError):
            continue
    return None


def _plain(value: Any) -> str:
    """A value as a condition writes it: without surrounding spaces, in Unicode NFC."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return unicodedata.normalize("NFC", str(value).strip())


@lru_cache(TEXTS_KEPT)
def _compiled(text: str) -> _Text:
    template = _ENVIRONMENT.from_string(text)
    # Every name in it, including assigned names and functions: a sample may have fields of these names.
    return _Text(template, frozenset(one.name for one in _parsed(text).find_all(nodes.Name)))


@lru_cache(TEXTS_KEPT)
def _parsed(text: str) -> nodes.Template:
    return _ENVIRONMENT.parse(text)
