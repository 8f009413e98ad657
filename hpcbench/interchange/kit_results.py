"""What other kits' result folders hold, in one form whatever the kit; nothing here writes anything.

Samples are read one after the other, each time anew. What cannot be read is an error that names file and
line: results are taken as a whole or not at all.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcbench.data.rows import value_of
from hpcbench.errors import Problem, UserError
from hpcbench.files.user import not_json, open_file, read_json
from hpcbench.schema.records import Outcome

Kit = Literal["lmms-eval", "vlmevalkit", "lm-eval"]
"""Kits whose results are understood."""

FAILED = ("[LMMS_EVAL_REQUEST_FAILED", "Failed to obtain answer")
"""How answers begin that are none: kits write them where a request failed, and score them as answers."""

LONGEST_LABEL = 200
"""Letters of a value that can be metadata."""


@dataclass(frozen=True, slots=True)
class KitSample:
    """A sample as a kit left it."""

    id: str
    """Its name, unique in the task."""
    answer: str | None
    """What the model said, as far as the kit kept it; None: nothing."""
    references: tuple[Any, ...]
    """Acceptable answers; empty: the kit did not keep them."""
    question: str = ""
    """What it was asked, as the kit kept it."""
    document: str | None = None
    """The document it belongs to; None: not known."""
    outcome: Outcome = "ok"
    """`failed` where the answer is the kit's word for that."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The kit's own numbers of the sample, by metric."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What tables may group by."""


@dataclass(frozen=True, slots=True)
class KitMetric:
    """A metric of a kit."""

    name: str
    """As the kit calls it."""
    higher_is_better: bool = True
    """Whether more is better, where the kit says so; else it is supposed."""
    aggregate: float | None = None
    """The kit's own number for the task; None: it tells none."""


@dataclass(frozen=True)
class KitTask:
    """A task as a kit left it."""

    name: str
    """As the kit calls it."""
    samples: Callable[[], Iterator[KitSample]]
    """Reads its samples; raises UserError at the first that is none."""
    metrics: tuple[KitMetric, ...] = ()
    """Metrics that samples have numbers of."""
    version: str = ""
    """As the kit tells it; empty: it does not."""
    aggregates: Mapping[str, Any] = field(default_factory=dict)
    """The kit's numbers for the whole task, as they stand in its files."""


@dataclass(frozen=True)
class KitRun:
    """One model's results."""

    kit: Kit
    """Who wrote them."""
    version: str
    """The kit's version or commit, as it told; empty: it did not."""
    model: str
    """The model, as the kit calls it."""
    tasks: tuple[KitTask, ...]
    """Its tasks."""
    files: tuple[Path, ...]
    """All files that were read, or will be."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else it told of the run: configuration, date."""


class Keys:
    """Where a kit's records keep what a sample needs, in place of the kit's own way.

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
                remedy = f"FIELD=KEY, FIELD one of {', '.join(self.FIELDS)}, meta.NAME"
                raise UserError(Problem(f"--map {one}", remedy=remedy))
            self._keys[name] = key
        self.given = tuple(given)

    def of(self, record: Mapping[str, Any], name: str, own: Any, place: Problem) -> Any:
        """A field of a record: from where it was said to be, else the kit's own value.

        Raises:
            UserError: there is nothing under the key.
        """
        if name not in self._keys:
            return own
        found = value_of(record, self._keys[name])
        if found is None:
            what = f"no {self._keys[name]} here"
            remedy = f"--map {name}=… (there are: {', '.join(list(record)[:12])})"
            raise UserError(Problem(what, place.file, place.line, remedy=remedy))
        return found

    def metadata(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Metadata that was asked for; what a record lacks is none."""
        return {
            name[5:]: value_of(record, key)
            for name, key in self._keys.items()
            if name[:5] == "meta."
        }


# --- what readers of all kits need --------------------------------------------------------------------


def json_of(path: Path) -> Any:
    """A JSON file.

    Raises:
        UserError: it is torn, or no JSON; where.
    """
    return read_json(path)


def json_lines(path: Path) -> Iterator[tuple[Problem, dict[str, Any]]]:
    """Objects of a JSONL file, each with its place.

    Raises:
        UserError: a line is torn, or no object.
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
    """A sample's number: itself, yes or no as 1 or 0, or the `score` of an object; None: it has none."""
    if isinstance(value, Mapping):
        value = value.get("score")
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, (int, float)) and value == value and abs(value) != float("inf"):
        return float(value)
    return None


def references_of(value: Any) -> tuple[Any, ...]:
    """Acceptable answers: a list as it is, also one that a kit wrote as Python's or JSON's text of it."""
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
    """`failed` where a kit wrote down that there is no answer."""
    return "failed" if answer is None or answer.startswith(FAILED) else "ok"


def digest(path: Path) -> str:
    """`sha256:…` of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return f"sha256:{found.hexdigest()}"
