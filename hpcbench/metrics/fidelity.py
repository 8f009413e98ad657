"""Structural fidelity: whether answers have the form that was asked for, whatever they say.

These metrics score how an answer was read (`accepts = ("reading",)`), an object with `.value`, `.form`,
`.repairs`, `.faults` (each with `.kind` and `.path`), `.required`, `.found`, `.extra` and `.truncated`;
references do not matter, and none are needed. Anything else, None for a request that failed, is the worst.

The rates go from the outside in: `valid_json` asks for JSON, `schema_valid` for JSON that meets the schema
(the structural fidelity of the v0.2 plan: 1 or 0), the field rates for how far an answer is from it. JSON is
RFC 8259's, with unique names; a code fence or prose around it is no fault of the JSON.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hpcbench.metrics.base import Aggregation, Parts, SampleMetric

_FORMS = ("json", "fence", "prose")
_INDEX_AT_END = re.compile(r"(\[\d+\])+\Z")
_MARK = "form"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfReadings(SampleMetric):
    """Base of these metrics."""

    over_nothing: ClassVar[float | None] = 0.0
    higher_is_better: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = ("reading",)

    def score(self, prediction: object, references: Sequence[object] = ()) -> Parts:
        """The parts of one reading; of anything else the worst."""
        if not hasattr(prediction, _MARK):
            return Parts(float(not self.higher_is_better), 1)
        return self.parts_of(prediction)

    def parts_of(self, reading: Any) -> Parts:
        """The parts of one reading."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidJson(_OfReadings):
    """Share of answers with JSON that needed no repair."""

    name: ClassVar[str] = "valid_json"
    higher_is_better: ClassVar[bool] = True

    alone: bool = False
    """Whether the whole answer must be JSON, without code fence and prose, as from constrained decoding."""

    def parts_of(self, reading: Any) -> Parts:
        """1 if the JSON is sound, else 0."""
        forms = _FORMS[:1] if self.alone else _FORMS
        return Parts(float(reading.form in forms and not reading.repairs), 1)

    @property
    def signature(self) -> str:
        """E.g. `valid_json|around:any|v1`."""
        return f"{self.name}|around:{'nothing' if self.alone else 'any'}|v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaValid(_OfReadings):
    """Share of answers whose JSON needed no repair and meets the schema; without a schema: is an object."""

    name: ClassVar[str] = "schema_valid"
    higher_is_better: ClassVar[bool] = True

    def parts_of(self, reading: Any) -> Parts:
        """1 if it parses and fits, else 0."""
        sound = reading.form in _FORMS and not reading.repairs
        return Parts(float(sound and reading.value is not None), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired(_OfReadings):
    """Share of answers that needed a repair, whether `repair` allows it or not."""

    name: ClassVar[str] = "repaired"

    def parts_of(self, reading: Any) -> Parts:
        """1 if something had to be mended, else 0; what nothing can be read of is not mended."""
        return Parts(float(bool(reading.repairs)), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated(_OfReadings):
    """Share of answers that were cut at max_tokens."""

    name: ClassVar[str] = "truncated"

    def parts_of(self, reading: Any) -> Parts:
        """1 if it was cut, else 0."""
        return Parts(float(bool(reading.truncated)), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFields(_OfReadings):
    """Fields that the schema demands and answers lack, over all that it demands.

    Fields of all levels count. If an answer cannot be read, all are missing.
    """

    name: ClassVar[str] = "missing_fields"
    aggregation: ClassVar[Aggregation] = "ratio"

    def parts_of(self, reading: Any) -> Parts:
        """Missing and demanded fields."""
        missing = sum(fault.kind == "missing" for fault in reading.faults)
        if reading.value is None and not reading.found and not reading.faults:
            missing = reading.required
        return Parts(float(min(missing, reading.required)), float(reading.required))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraFields(_OfReadings):
    """Fields that the schema does not name, allowed or not, over all fields of the answers.

    Answers that cannot be read have no fields, and no weight.
    """

    name: ClassVar[str] = "extra_fields"
    aggregation: ClassVar[Aggregation] = "ratio"

    def parts_of(self, reading: Any) -> Parts:
        """Fields not named, and all."""
        return Parts(float(min(reading.extra, reading.found)), float(reading.found))


@dataclass(frozen=True, slots=True, kw_only=True)
class MistypedFields(_OfReadings):
    """Fields of a wrong type, text where a number belongs, over all fields of the answers.

    A list with wrong items is one such field. Answers that cannot be read have no weight; one that is a list
    where an object belongs counts as one wrong field.
    """

    name: ClassVar[str] = "mistyped_fields"
    aggregation: ClassVar[Aggregation] = "ratio"

    def parts_of(self, reading: Any) -> Parts:
        """Fields of a wrong type, and all."""
        wrong = {
            _INDEX_AT_END.sub("", fault.path)
            for fault in reading.faults
            if fault.kind == "mistyped"
        }
        return Parts(float(len(wrong)), float(max(reading.found, len(wrong))))
