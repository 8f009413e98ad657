"""Metrics over the fields of an object, for key-information extraction.

A field is a value with its path: `{"seller": {"inn": 1}}` has the field `seller.inn`. A field is right if the
same path has the same value on both sides. Values are compared in lower case without any whitespace, names
as they are (case counts), as OCRBench v2's `compute_f1_score` does (Fu et al. 2024, arXiv 2501.00321; it
keeps inner tabs, we do not). `null`, `{}` and `[]` hold no value and are no field, an empty text is one.
Numbers and booleans are compared as JSON writes them (1.0 is not 1) unless `types` says more.

Averages of one thing, often confused, so each has its name:

- `kie_f1_micro`: 2 right / (predicted + expected), both summed over samples;
- `kie_f1_macro`: OCRBench v2's: right / fields on either side, per sample, then the mean over samples;
- `kie_f1_fields`: F1 of each field over all samples, then the mean over the fields' names.

{a: 1} against {a: 1, b: 2} is 0.667 by the first and 0.5 by the two others.

Elements of lists have no name of their own. With `lists="match"` they are paired so that the number of right
fields is the greatest (the assignment problem; equally good: so that most paths are on both sides): a table
whose first line was missed loses that line, not every line after it. With `"position"` the first is compared
with the first. In tables by field both are `items[].price`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar, Literal, get_args

from hpcbench.metrics.base import (
    Aggregation,
    CorpusMetric,
    Counts,
    Parts,
    acceptable,
    over_one,
    take_dialect,
)
from hpcbench.metrics.kits import OCRBENCH, Dialect
from hpcbench.metrics.matching import cheapest_pairs
from hpcbench.metrics.normalise import Case, TextMetric, TextOptions, Whitespace, one_of
from hpcbench.metrics.typed import (
    DateOrder,
    DecimalMark,
    Kind,
    Money,
    read_date,
    read_money,
    read_number,
)

Lists = Literal["match", "position"]
Measure = Literal["f1", "precision", "recall", "accuracy"]
"""Score by the numbers of right, predicted and expected fields: 2 right / (predicted + expected) ·
right / predicted · right / expected · right / fields on either side."""

_NESTED = 20
"""Lists within lists that are matched; deeper ones, which no document has, are compared by position."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldCounts:
    """How the fields of a prediction agree with those of a reference."""

    right: int
    """Fields with the same value on both sides."""
    predicted: int
    """Fields of the prediction."""
    expected: int
    """Fields of the reference."""
    shared: int
    """Fields on both sides, right or wrong."""

    @property
    def either(self) -> int:
        """Different fields on either side."""
        return self.predicted + self.expected - self.shared

    def parts(self, measure: Measure) -> Parts:
        """A measure as a ratio."""
        if measure == "f1":
            return Parts(2 * self.right, self.predicted + self.expected)
        over = {"precision": self.predicted, "recall": self.expected, "accuracy": self.either}
        return Parts(self.right, over[measure])

    @property
    def f1(self) -> float:
        """2 right / (predicted + expected); 1 where there are neither."""
        both = self.predicted + self.expected
        return 2 * self.right / both if both else 1.0


@dataclass(frozen=True, slots=True)
class Value:
    """A field's value."""

    field: str
    """Its path as people write it: `items[].price`."""
    raw: object
    text: str
    """Normalised."""


class Fields:
    """The fields of an object, or of an element of a list."""

    __slots__ = ("is_mapping", "lists", "size", "values")

    def __init__(self, is_mapping: bool) -> None:
        self.is_mapping = is_mapping
        self.values: dict[Path, Value] = {}
        self.lists: dict[Path, list[Fields]] = {}
        """Lists whose elements are to be matched; elements without fields are left out."""
        self.size = 0
        """Number of fields, those of elements too."""

    def all_values(self) -> Iterable[Value]:
        yield from self.values.values()
        for elements in self.lists.values():
            for element in elements:
                yield from element.all_values()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldOptions(TextMetric):
    """When two objects have the same field.

    Raises:
        ValueError: an option has an unknown value.
    """

    accepts: ClassVar[tuple[str, ...]] = ("object",)

    lists: Lists = "match"
    """Whether elements of lists are paired by best match, or by position."""
    types: Mapping[str, Kind] | None = None
    """Types of fields by path; `*` matches any text: `{"items[].price": "currency", "*date": "date"}`.
    The first that fits counts; values that cannot be read as such are compared as text."""
    decimal_mark: DecimalMark = ""
    """Meaning of a lone mark before three digits, "1,000": a decimal `point` or `comma`; empty: unknown."""
    date_order: DateOrder = ""
    """Order of day and month in 01/02/2024; empty: unknown."""
    max_cer: float = 0.0
    """A text is right with edits of at most this share of the reference's length."""
    case: Case = "lower"
    whitespace: Whitespace = "remove"

    def __post_init__(self) -> None:
        TextOptions.__post_init__(self)
        one_of("lists", self.lists, get_args(Lists))
        one_of("decimal_mark", self.decimal_mark, get_args(DecimalMark))
        one_of("date_order", self.date_order, get_args(DateOrder))
        if self.types is not None and not isinstance(self.types, Mapping):
            raise ValueError(f"types is {self.types!r}; it must be a mapping of paths to types")
        for path, kind in (self.types or {}).items():
            one_of(f"the type of {path}", kind, get_args(Kind))
        if not 0 <= self.max_cer < 1:
            raise ValueError(f"max_cer is {self.max_cer}; it must be between 0 and 1")

    def describe(self, *parts: str) -> str:
        """A signature: name and own options, then those of fields and texts, then the version."""
        types = ",".join(f"{path}={kind}" for path, kind in (self.types or {}).items()) or "-"
        shared = (f"lists:{self.lists}", f"types:{types}", f"decimal:{self.decimal_mark or '-'}")
        dates = f"dates:{self.date_order or '-'}"
        return TextOptions.describe(self, *parts, *shared, dates, f"cer:{self.max_cer:g}")

    def count(self, prediction: object, reference: object) -> FieldCounts:
        """Compare one prediction with one reference.

        Raises:
            TypeError: the reference is no mapping.
        """
        given, expected = self.both(prediction, reference)
        agreement = Comparison(self).shared(given, expected)
        right = sum(equal for _, equal in agreement)
        return FieldCounts(right, given.size, expected.size, len(agreement))

    def count_fields(self, prediction: object, reference: object) -> dict[str, FieldCounts]:
        """The same by field.

        Raises:
            TypeError: the reference is no mapping.
        """
        given, expected = self.both(prediction, reference)
        found: dict[str, list[int]] = {}
        for place, side in ((1, given), (2, expected)):
            for value in side.all_values():
                found.setdefault(value.field, [0, 0, 0, 0])[place] += 1
        for field, equal in Comparison(self).shared(given, expected):
            found[field][0] += equal
            found[field][3] += 1
        return {field: FieldCounts(*counts) for field, counts in sorted(found.items())}

    def best_reference(self, prediction: object, references: Sequence[object]) -> object:
        """The reference with the highest F1; if equal, the one with fewer fields.

        Raises:
            ValueError: no reference.
            TypeError: a reference is no mapping.
        """

        def cost(reference: object) -> tuple[float, int, list[tuple[str, str]]]:
            counts = self.count(prediction, reference)
            values = self.fields_of(reference).all_values()  # so that their order does not matter
            return -counts.f1, counts.expected, sorted((one.field, one.text) for one in values)

        if len(acceptable(self.name, references)) == 1:
            return references[0]
        return min(references, key=cost)

    def fields_of(self, value: object, field: str = "", nested: int = 0) -> Fields:
        """Fields of a mapping, or of whatever an element of a list is."""
        found = Fields(isinstance(value, Mapping))
        pending: list[tuple[Path, str, object]] = [((), field, value)]
        while pending:  # no recursion: models nest as deep as they like
            path, field, value = pending.pop()
            if isinstance(value, Mapping):
                for key in value:
                    name = self.compose(str(key))
                    inner = f"{field}.{name}" if field else name
                    pending.append(((*path, name), inner, value[key]))
            elif isinstance(value, (list, tuple)):
                if self.lists == "match" and nested < _NESTED:
                    elements = [self.fields_of(one, f"{field}[]", nested + 1) for one in value]
                    found.lists[path] = [one for one in elements if one.size]
                else:
                    pending += (
                        ((*path, position), f"{field}[]", one) for position, one in enumerate(value)
                    )
            elif value is not None:
                found.values[path] = Value(field, value, self._text(value))
        found.size = len(found.values)
        found.size += sum(one.size for elements in found.lists.values() for one in elements)
        return found

    def both(self, prediction: object, reference: object) -> tuple[Fields, Fields]:
        """Fields of a prediction, none if it is no mapping, and of a reference.

        Raises:
            TypeError: the reference is no mapping.
        """
        known = self._known(reference)
        given = prediction if isinstance(prediction, Mapping) else {}
        return self.fields_of(given), self.fields_of(known)

    def _known(self, reference: object) -> Mapping[object, object]:
        if isinstance(reference, Mapping):
            return reference
        type_name = type(reference).__name__
        raise TypeError(f"{self.name} compares mappings; a reference is of type {type_name}")

    def _text(self, value: object) -> str:
        if not isinstance(value, (bool, int, float)):
            return self.normalise(str(value))
        try:
            return json.dumps(value)
        except ValueError:  # whole numbers beyond Python's limit of digits
            return hex(value)  # type: ignore[arg-type]


Shared = list[tuple[str, bool]]
"""Fields on both sides by name, and whether they are equal."""


class Comparison:
    """Compares fields by the options of a metric."""

    def __init__(self, options: FieldOptions) -> None:
        self.options = options
        self.kinds: dict[str, Kind] = {}

    def shared(self, given: Fields, expected: Fields) -> Shared:
        """Fields on both sides, and whether they are equal."""
        found: Shared = []
        for path, value in expected.values.items():
            other = given.values.get(path)
            if other is not None:
                found.append((value.field, other.text == value.text or self._same(other, value)))
        for path, elements in expected.lists.items():
            others = given.lists.get(path)
            if others and elements:
                for _, _, agreement in self.pairs(others, elements):
                    found += agreement
        return found

    def pairs(
        self,
        given: Sequence[Fields],
        expected: Sequence[Fields],
        first: Callable[[int, int], bool] | None = None,
    ) -> list[tuple[int, int, Shared]]:
        """Positions (given, expected) of the elements that belong together, and what they share.

        Args:
            given: of the prediction.
            expected: of the reference.
            first: what counts more than right fields, if anything: a rule over the right fields of a pair and
                the fields of both; the number of pairs that keep to it is the greatest then.
        """
        scale = 1 + sum(one.size for one in given) + sum(one.size for one in expected)
        table = [[self.shared(one, other) for other in expected] for one in given]

        def cost(one: Fields, other: Fields, agreement: Shared) -> int:
            right = sum(equal for _, equal in agreement)
            kept = first is not None and first(right, one.size + other.size)
            return -((kept * scale + right) * scale + len(agreement))

        costs = [
            [cost(one, other, agreement) for other, agreement in zip(expected, row, strict=True)]
            for one, row in zip(given, table, strict=True)
        ]
        return [(mine, theirs, table[mine][theirs]) for mine, theirs in cheapest_pairs(costs)]

    def _same(self, given: Value, expected: Value) -> bool:
        options = self.options
        kind = self._kind(expected.field) if options.types else "text"
        if kind in {"date", "auto"}:
            day, wanted = (self._day(one.raw) for one in (given, expected))
            if day is not None and wanted is not None:
                return day == wanted
        if kind in {"number", "currency", "auto"}:
            amount, other = (self._amount(one.raw, kind) for one in (given, expected))
            if amount is not None and other is not None:
                return amount.agrees(other)
        return bool(options.max_cer) and self._close(given.text, expected.text)

    def _kind(self, field: str) -> Kind:
        kind = self.kinds.get(field)
        if kind is None:
            fitting = (k for path, k in (self.options.types or {}).items() if _fits(path, field))
            kind = self.kinds[field] = next(fitting, "text")
        return kind

    def _day(self, raw: object) -> date | None:
        if isinstance(raw, (int, float)):
            return None
        return read_date(str(raw), self.options.date_order)

    def _amount(self, raw: object, kind: Kind) -> Money | None:
        if isinstance(raw, bool):
            return None
        if isinstance(raw, (int, float)):
            # What JSON has as a number needs no reading; `repr` is the shortest text of a float.
            number = Decimal(raw if isinstance(raw, int) else repr(raw))
            return Money(number) if number.is_finite() else None
        if kind == "number":
            read = read_number(str(raw), self.options.decimal_mark)
            return None if read is None else Money(read)
        return read_money(str(raw), self.options.decimal_mark)

    def _close(self, given: str, expected: str) -> bool:
        from rapidfuzz.distance import Levenshtein

        most, size = self.options.max_cer, len(expected)
        return bool(size) and Levenshtein.distance(given, expected) / size <= most


def _fits(pattern: str, field: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), field, re.DOTALL) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class KieF1Micro(FieldOptions):
    """Micro F1 over fields: 2 right / (predicted + expected), a ratio of sums.

    A sample with nothing expected and nothing predicted counts for nothing (0 / 0); a set of only such
    samples is 1. `measure` gives precision, recall or accuracy instead.
    """

    name: ClassVar[str] = "kie_f1_micro"
    over_nothing: ClassVar[float | None] = 1.0
    aggregation: ClassVar[Aggregation] = "ratio"

    measure: Measure = "f1"
    """The counted amount, and the amount that it is divided by."""

    def __post_init__(self) -> None:
        FieldOptions.__post_init__(self)
        one_of("measure", self.measure, get_args(Measure))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Right fields and those they are counted over, by the reference with the highest F1.

        No mapping is scored as nothing predicted, and as one wrong field where nothing is expected.
        """
        counts = self.count(prediction, self.best_reference(prediction, references))
        if not isinstance(prediction, Mapping) and not counts.expected:
            return Parts(0, 1)
        return counts.parts(self.measure)

    def score_fields(self, prediction: object, references: Sequence[object]) -> dict[str, Parts]:
        """The same by field: `{"items[].price": Parts(4, 6)}`."""
        found = self.count_fields(prediction, self.best_reference(prediction, references))
        return {field: counts.parts(self.measure) for field, counts in found.items()}

    @property
    def signature(self) -> str:
        """E.g. `kie_f1_micro|f1|lists:match|types:-|decimal:-|dates:-|cer:0|case:lower|…|v1`."""
        return self.describe(self.name, self.measure)


@dataclass(frozen=True, slots=True, kw_only=True)
class KieF1Macro(FieldOptions):
    """OCRBench v2's field score: per sample right / fields on either side, over samples the mean.

    It is the mean of the fields' F1, which are 0 or 1 in one sample. `measure` gives the mean of the
    samples' precision or recall.
    """

    name: ClassVar[str] = "kie_f1_macro"
    over_nothing: ClassVar[float | None] = 1.0
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "ocrbench-v2": Dialect(
            {
                "lists": "position",
                "empty_is_right": False,
                "whitespace": "keep",
                "unicode": "none",
            },
            OCRBENCH,
            ("OCRBench_v2/eval_scripts/TEDS_metric.py",),
        )
    }

    measure: Literal["f1", "precision", "recall"] = "f1"
    """The amount by which right fields are divided: fields on either side, predicted ones, expected ones."""
    empty_is_right: bool = True
    """Nothing predicted where nothing is expected: 1; in OCRBench v2 it is 0."""
    compat: str = ""
    """`ocrbench-v2`: there only the top level counts; what is nested is the text that Python writes of it,
    null is "None", and a list in a reference holds the values that are right."""

    def __post_init__(self) -> None:
        take_dialect(self)
        FieldOptions.__post_init__(self)
        one_of("measure", self.measure, ("f1", "precision", "recall"))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """In [0, 1] by the reference with the highest value, over 1. No mapping scores 0."""
        return over_one(
            max(self._value(prediction, one) for one in acceptable(self.name, references))
        )

    def score_fields(self, prediction: object, references: Sequence[object]) -> dict[str, Parts]:
        """By field, right / fields on either side: of samples that have it, how many have it right."""
        if self.compat:
            return {}
        found = self.count_fields(prediction, self.best_reference(prediction, references))
        measure: Measure = "accuracy" if self.measure == "f1" else self.measure
        return {field: counts.parts(measure) for field, counts in found.items()}

    @property
    def signature(self) -> str:
        """E.g. `kie_f1_macro|f1|empty:1|lists:match|types:-|decimal:-|dates:-|cer:0|case:lower|…|v1`."""
        compat = (f"compat:{self.compat}",) if self.compat else ()
        return self.describe(self.name, self.measure, f"empty:{self.empty_is_right:d}", *compat)

    def _value(self, prediction: object, reference: object) -> float:
        if self.compat:
            counts = self._as_ocrbench(prediction, reference)
        else:
            counts = self.count(prediction, reference)
        if not counts.either:
            return float(self.empty_is_right and isinstance(prediction, Mapping))
        parts = counts.parts("accuracy" if self.measure == "f1" else self.measure)
        return parts.numerator / parts.denominator if parts.denominator else 0.0

    def _as_ocrbench(self, prediction: object, reference: object) -> FieldCounts:
        known = self._known(reference)
        expected = {str(key): known[key] for key in known}
        given: dict[str, str] = {}
        if isinstance(prediction, Mapping) and all(isinstance(key, str) for key in prediction):
            given = {key.strip(): _ocrbench_text(prediction[key]) for key in prediction}
        shared = given.keys() & expected.keys()
        right = 0
        for key in shared:
            value = expected[key]
            accepted = value if isinstance(value, list) else [value]
            right += given[key] in [_ocrbench_text(one) for one in accepted]
        return FieldCounts(right, len(given), len(expected), len(shared))


def _ocrbench_text(value: object) -> str:
    try:
        text = str(value)
    except (
        RecursionError,
        ValueError,
    ):  # too deep, too many digits: the whole answer is lost there
        return ""
    return text.strip().lower().strip().replace("\n", "").replace(" ", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class KieF1Fields(CorpusMetric, FieldOptions):
    """F1 of each field over all samples, and the mean of these: rare fields count as much as common ones.

    Where no sample has a field it is 1.
    """

    name: ClassVar[str] = "kie_f1_fields"

    def score(self, prediction: object, references: Sequence[object]) -> Counts:
        """Twice the right fields, and the predicted and expected ones, by field: `right:a`, `both:a`.

        The reference with the highest F1 counts. A prediction that is no mapping counts as empty, and as one
        wrong field without a name if the reference is empty.
        """
        found = self.count_fields(prediction, self.best_reference(prediction, references))
        counts = {f"right:{field}": 2.0 * one.right for field, one in found.items() if one.right}
        for field, one in found.items():
            counts[f"both:{field}"] = float(one.predicted + one.expected)
        if not counts and not isinstance(prediction, Mapping):
            counts["both:"] = 1.0
        return counts

    def combine(self, sums: Mapping[str, Any]) -> Any:
        """The same from sums, numbers or arrays; a field that no sample of a resample has does not count."""
        total: Any = 0.0
        fields: Any = 0.0
        for name in sorted(sums):  # always in one order: sums of floats depend on it
            kind, _, field = name.partition(":")
            if kind == "both":
                both = sums[name]
                total = total + sums.get(f"right:{field}", 0.0) / (both + (both == 0))
                fields = fields + (both > 0)
        return total / (fields + (fields == 0)) + (fields == 0)

    def score_fields(self, prediction: object, references: Sequence[object]) -> dict[str, Counts]:
        """By field; the mean of one F1 is that F1."""
        found = self.count_fields(prediction, self.best_reference(prediction, references))
        return {
            field: {"right:": 2.0 * one.right, "both:": float(one.predicted + one.expected)}
            for field, one in found.items()
        }
