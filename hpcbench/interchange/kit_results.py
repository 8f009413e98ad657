"""The contents of other kits' result folders, in one form for all kits; this module writes no file.

Samples are read one after the other, and again in each iteration. Unreadable data is an error that names file
and line: results are read completely or not at all.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcbench.data.annotations import value_of
from hpcbench.errors import Problem, UserError
from hpcbench.files.user import not_json, open_file
from hpcbench.schema.records import Outcome

Kit = Literal["lmms-eval", "vlmevalkit", "lm-eval", "v01"]
"""Kits whose results can be read; `v01`: VLMHyperBench 0.1."""

FAILED = ("[LMMS_EVAL_REQUEST_FAILED", "Failed to obtain answer")
"""Beginnings of answers that are none: kits write them after a failed request, and score them as answers."""

LONGEST_LABEL = 200
"""Characters of a value that can be metadata."""


@dataclass(frozen=True, slots=True)
class KitSample:
    """A sample in a kit's results."""

    id: str
    """Its name, unique in the task."""
    answer: str | None
    """The model's answer, as far as the kit kept it; None: no answer."""
    references: tuple[Any, ...]
    """Acceptable answers; empty: the kit did not keep them."""
    question: str = ""
    """The question, as the kit kept it."""
    document: str | None = None
    """Its document; None: unknown."""
    outcome: Outcome = "ok"
    """`failed` where the answer is the kit's marker of a failure."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The kit's own numbers of the sample, by metric."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Values that tables may group by."""


@dataclass(frozen=True, slots=True)
class KitMetric:
    """A metric of a kit."""

    name: str
    """Its name in the kit."""
    higher_is_better: bool = True
    """Whether more is better, if the kit says so; else assumed."""
    aggregate: float | None = None
    """The kit's own number for the task; None: the kit gives none."""


@dataclass(frozen=True)
class KitTask:
    """A task in a kit's results."""

    name: str
    """Its name in the kit."""
    samples: Callable[[], Iterator[KitSample]]
    """Reads its samples; raises UserError at the first invalid one."""
    metrics: tuple[KitMetric, ...] = ()
    """Metrics with numbers of samples."""
    version: str = ""
    """Its version in the kit; empty: the kit gives none."""
    aggregates: Mapping[str, Any] = field(default_factory=dict)
    """The kit's numbers for the whole task, as in its files."""


@dataclass(frozen=True)
class KitRun:
    """One model's results."""

    kit: Kit
    """The kit that wrote the results."""
    version: str
    """The kit's version or commit; empty: the kit gave none."""
    model: str
    """The model's name in the kit."""
    tasks: tuple[KitTask, ...]
    """Its tasks."""
    files: tuple[Path, ...]
    """All files that were read or will be read."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Other details of the run: configuration, date."""


class Keys:
    """Keys of a kit's records for the fields of a sample, instead of the kit's own keys.

    Raises:
        UserError: not FIELD=KEY, or no such field.
    """

    FIELDS = ("id", "document", "references", "answer", "question")

    def __init__(self, given: Sequence[str] = ()) -> None:
        self._keys: dict[str, str] = {}
        for one in given:
            name, equals, key = one.partition("=")
            known = name in self.FIELDS or (name.startswith("meta.") and len(name) > 5)
            if not (equals and key and known):
                remedy = f"write FIELD=KEY; FIELD is one of {', '.join(self.FIELDS)}, meta.NAME"
                raise UserError(Problem(f"--map {one}", remedy=remedy))
            self._keys[name] = key

    def of(self, record: Mapping[str, Any], name: str, own: Any, place: Problem) -> Any:
        """A field of a record: from the given key, else the kit's own value.

        Raises:
            UserError: the record has no value under the key.
        """
        if name not in self._keys:
            return own
        found = value_of(record, self._keys[name])
        if found is None:
            what = f"this sample has no {self._keys[name]}"
            remedy = f"--map {name}=… (there are: {', '.join(list(record)[:12])})"
            raise UserError(Problem(what, place.file, place.line, remedy=remedy))
        return found

    def metadata(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Requested metadata; None where a record lacks it."""
        return {
            name[5:]: value_of(record, key)
            for name, key in self._keys.items()
            if name[:5] == "meta."
        }


# --- what readers of all kits need --------------------------------------------------------------------


def json_lines(path: Path) -> Iterator[tuple[Problem, dict[str, Any]]]:
    """Objects of a JSONL file, each with its place.

    Raises:
        UserError: a line is incomplete, or no object.
    """
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode())
            except UnicodeDecodeError:
                raise UserError(Problem("not UTF-8", str(path), number, remedy=_UTF8)) from None
            except (ValueError, RecursionError) as error:
                raise UserError(not_json(error, path, number)) from None
            if not isinstance(record, dict):
                raise UserError(Problem("not a JSON object", str(path), number))
            yield Problem("", str(path), number), record


_UTF8 = "save it as UTF-8 text"


def number_of(value: Any) -> float | None:
    """A sample's number: itself, yes or no as 1 or 0, or the `score` of an object; None: no number."""
    if isinstance(value, Mapping):
        value = value.get("score")
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, (int, float)) and value == value and abs(value) != float("inf"):
        return float(value)
    return None


def references_of(value: Any) -> tuple[Any, ...]:
    """Acceptable answers: a list as it is, also a list that a kit wrote as Python or JSON text."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        text = value.strip()
        if not (text.startswith("[") and text.endswith("]")):
            return (value,)
        for read in (json.loads, ast.literal_eval):
            try:
                found = read(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if (
                isinstance(found, list)
                and found
                and all(isinstance(one, (str, int, float)) for one in found)
            ):
                return tuple(str(one) for one in found)
        return (value,)
    if isinstance(value, (list, tuple)):
        return tuple(one if isinstance(one, (str, dict)) else str(one) for one in value)
    return (value if isinstance(value, dict) else str(value),)


def outcome_of(answer: str | None) -> Outcome:
    """`failed` where a kit recorded that there is no answer."""
    return "failed" if answer is None or answer.startswith(FAILED) else "ok"
