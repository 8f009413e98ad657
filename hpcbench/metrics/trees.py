"""ANLS*: one number for answers of any shape, compared as trees.

Peer et al. 2024, "ANLS* - A Universal Document Processing Metric for Generative Large Language Models"
(arXiv 2402.03848). A tree is made of mappings, lists and values; every value of it counts the same:

- *values* are compared as texts (`str`) by ANLS: 1 - distance / longer length, 0 below `tau`;
- *mappings* key by key; a missing key is null on that side;
- *lists* by the matching of their elements with the greatest sum of scores, the order does not matter;
- *1 of n*, in references only: the option with the best score counts;
- *null* is right where null, an empty text, list or mapping answers it.

The score is the sum of similarities over the number of values compared, unmatched ones included. Where the
paper leaves it open we do what its authors' package does (anls_star 1.0.1), surprises included, since its
numbers are the published ones; `nothing` and `ties` mend what cannot be defended:

- `"": null` is wrong there though `null: ""` is right, and a further key that is null costs as much as a
  wrong value; with `nothing="same"` all that says nothing is the same, and such a key is as absent;
- of equally good matchings it takes the first that its solver meets, so that the order of a list can change
  the score: in 85 of 10,000 small random trees, in none of 300 receipts. `ties="best"` also compares
  their similarities and sizes, and is the same in any order.

A list of texts whose answer is a single text is 1 of n (question answering), as in the package. JSON and YAML
know no tuple: `{"$one_of": ["12.50", "12,50"]}` is one, see `one_of`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from hpcbench.metrics.base import Parts, added, take_dialect
from hpcbench.metrics.kits import ANLS_STAR, Dialect
from hpcbench.metrics.matching import cheapest_pairs, pairs_as_munkres
from hpcbench.metrics.normalise import Case, TextMetric, TextOptions, Whitespace, one_of

Nothing = Literal["package", "same"]
Ties = Literal["first", "best"]

DEPTH = 100
"""Levels of nesting in a reference; what lies deeper in a prediction can match nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnlsStar(TextMetric):
    """ANLS*: similarity of two trees in [0, 1]; over samples the mean."""

    name: ClassVar[str] = "anls_star"
    accepts: ClassVar[tuple[str, ...]] = ("object", "text", "label")
    one_tree: ClassVar[bool] = True
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "anls_star-1.0.1": Dialect({"one_of": "", "unicode": "none"}, ANLS_STAR)
    }

    tau: float = 0.5
    """Similarities below it count as 0."""
    nothing: Nothing = "package"
    """`same`: null, "", [] and {} are equal on both sides, and a key with such a value counts as absent."""
    ties: Ties = "first"
    """Which of equally good matchings of two lists: the `first` found, or the `best` by size."""
    one_of: str = "$one_of"
    """Key that marks a list of options in a reference: `{KEY: [option, …]}`; empty: none."""
    case: Case = "lower"
    whitespace: Whitespace = "collapse"
    compat: str = ""
    """Compute the metric exactly as this package does, to the bit."""

    def __post_init__(self) -> None:
        take_dialect(self)
        TextOptions.__post_init__(self)
        one_of("nothing", self.nothing, get_args(Nothing))
        one_of("ties", self.ties, get_args(Ties))
        if not 0 <= self.tau <= 1:
            raise ValueError(f"tau is {self.tau}; it must be between 0 and 1")

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Similarity to the best of the trees, over 1. Text where an object belongs scores 0.

        Raises:
            ValueError: no reference, 1 of none, or a reference nested deeper than `DEPTH` levels.
            TypeError: a reference with a value that is no text, number, boolean or null.
        """
        if not references:
            raise ValueError(f"{self.name} needs at least one reference")
        tree: object = references[0] if len(references) == 1 else tuple(references)
        if isinstance(prediction, str) and _texts(tree):
            tree = tuple(tree)  # type: ignore[arg-type]
        found = _Comparison(self).compare(self._reference(tree), self._prediction(prediction))
        return Parts(math.fsum(found.values) / found.length if found.length else 1.0, 1)

    @property
    def signature(self) -> str:
        """E.g. `anls_star|tau:0.5|nothing:package|ties:first|one_of:$one_of|case:lower|…|v1`."""
        own = f"nothing:{self.nothing}", f"ties:{self.ties}", f"one_of:{self.one_of or '-'}"
        return self.describe(self.name, f"tau:{self.tau:g}", *own)

    def _reference(self, value: object, depth: int = 0) -> _Node:
        if depth > DEPTH:
            raise ValueError(f"{self.name}: a reference is nested more than {DEPTH} levels deep")
        options = self._options(value)
        if options is not None:
            if not options:
                raise ValueError(f"{self.name}: a reference has no options to choose from")
            nodes = [self._reference(option, depth + 1) for option in options]
            return _Node("one_of", value, max(node.size for node in nodes), nodes)
        if isinstance(value, Mapping):
            keyed = {self._key(key): self._reference(value[key], depth + 1) for key in value}
            return _Node("mapping", value, sum(node.size for node in keyed.values()), keyed)
        if isinstance(value, list):
            nodes = [self._reference(element, depth + 1) for element in value]
            return _Node("list", value, sum(node.size for node in nodes), nodes)
        if value is not None and not isinstance(value, (str, float, int)):
            raise TypeError(
                f"{self.name} compares trees; a reference is of type {type(value).__name__}"
            )
        return self._value(value)

    def _prediction(self, value: object, depth: int = 0) -> _Node:
        if isinstance(value, (Mapping, list, tuple)):
            if depth > DEPTH:
                return _Node("other", value, _count(value), None)
            if isinstance(value, Mapping):
                keyed = {self._key(key): self._prediction(value[key], depth + 1) for key in value}
                return _Node("mapping", value, sum(node.size for node in keyed.values()), keyed)
            nodes = [self._prediction(element, depth + 1) for element in value]
            return _Node("list", value, sum(node.size for node in nodes), nodes)
        if value is not None and not isinstance(value, (str, float, int)):
            return _Node("other", value, 1, None)
        return self._value(value)

    def _options(self, value: object) -> Sequence[object] | None:
        if isinstance(value, tuple):
            return value
        if self.one_of and isinstance(value, Mapping) and len(value) == 1:
            options = value.get(self.one_of)
            return options if isinstance(options, list) else None
        return None

    def _value(self, value: object) -> _Node:
        if value is None:
            return _NULL
        return _Node("value", value, 1, self.normalise(written(value)))

    def _key(self, key: object) -> object:
        return self.compose(key) if isinstance(key, str) else key


class _Node:
    """A part of a tree, made ready to be compared."""

    __slots__ = ("content", "empty", "kind", "raw", "size")

    def __init__(self, kind: str, raw: object, size: int, content: Any) -> None:
        self.kind = kind
        """value, null, list, mapping, one_of (in references), other (matches nothing)"""
        self.raw = raw
        """As it was given."""
        self.size = size
        """Number of values in it."""
        self.content = content
        """Normalised text of a value; nodes of a list, of options; nodes by key of a mapping."""
        self.empty = raw is None or (isinstance(raw, (str, list, tuple, Mapping)) and not raw)
        """Does it say nothing."""


_NULL = _Node("null", None, 1, None)


class _Found(NamedTuple):
    """How two trees agree."""

    values: list[float]
    """Similarity of each value compared; what has no partner has none."""
    length: int
    """Number of values compared, those without a partner too."""
    equal: bool
    """Whether two values are equal before normalisation, in any order of lists; the best option counts."""

    def mean(self) -> float:
        """The mean, added up in the package's order, so that the same candidates tie to the last bit."""
        return added(self.values) / self.length if self.length else 1.0


_RIGHT, _ALIKE, _WRONG = _Found([1.0], 1, True), _Found([1.0], 1, False), _Found([0.0], 1, False)


class _Comparison:
    """Compares a reference with a prediction by the options of a metric."""

    def __init__(self, options: AnlsStar) -> None:
        from rapidfuzz.distance import Levenshtein

        self.distance: Callable[..., int] = Levenshtein.distance
        self.tau = options.tau
        self.same = options.nothing == "same"
        self.best = options.ties == "best"
        self.known: dict[tuple[str, str], float] = {}

    def compare(self, reference: _Node, prediction: _Node) -> _Found:
        kind = reference.kind
        if kind == "one_of":
            found = [self.compare(option, prediction) for option in reference.content]
            if self.best:
                return min(found, key=lambda one: _rank(one, one.length))
            return max(found, key=lambda one: (one.mean(), one.equal))
        if self.same and reference.empty and prediction.empty:
            return _RIGHT
        if kind == "value":
            if prediction.kind == "value":
                return self._values(reference, prediction)
        elif kind == "null":
            length = max(1, prediction.size)
            return _Found([1.0 if prediction.empty else 0.0], length, prediction.empty)
        elif kind == prediction.kind:
            return (self._mappings if kind == "mapping" else self._lists)(reference, prediction)
        return _Found([0.0], max(reference.size, prediction.size), False)

    def _values(self, reference: _Node, prediction: _Node) -> _Found:
        equal = bool(reference.raw == prediction.raw)
        first, second = reference.content, prediction.content
        if first == second:
            return _RIGHT if equal else _ALIKE
        similarity = self.known.get((first, second))
        if similarity is None:
            similarity = self.known[first, second] = self._similarity(first, second)
        return _Found([similarity], 1, equal) if similarity or equal else _WRONG

    def _similarity(self, first: str, second: str) -> float:
        short, length = sorted((len(first), len(second)))
        if short < length * self.tau - 1:  # at least length - short edits; the 1 is for rounding
            return 0.0
        similarity = 1 - self.distance(first, second) / length
        return similarity if similarity >= self.tau else 0.0

    def _mappings(self, reference: _Node, prediction: _Node) -> _Found:
        expected, given = reference.content, prediction.content
        values: list[float] = []
        length, equal = 0, True
        for key, node in expected.items():
            other = given.get(key)
            if other is None:
                found = self.compare(node, _NULL)
                equal = equal and self._may_be_absent(node)
            else:
                found = self.compare(node, other)
                equal = equal and found.equal
            values += found.values
            length += found.length
        for key, node in given.items():
            if key in expected or (self.same and node.empty):
                continue
            # A further key that says nothing is not scored, but in the package it does count.
            if not node.empty:
                values.append(0.0)
            length += max(1, node.size)
            equal = False
        return _Found(values, length, equal)

    def _may_be_absent(self, node: _Node) -> bool:
        """Whether an absent key is equal to this key of the reference."""
        while node.kind == "one_of":
            node = max(node.content, key=lambda option: self.compare(option, _NULL).mean())
        return node.empty

    def _lists(self, reference: _Node, prediction: _Node) -> _Found:
        expected, given = reference.content, prediction.content
        if not expected or not given:
            return _Found([], reference.size + prediction.size, not expected and not given)
        table = [[self.compare(node, other) for other in given] for node in expected]
        if self.best:
            pairs = cheapest_pairs(
                [
                    [
                        _rank(found, found.length - node.size - other.size)
                        for found, other in zip(row, given, strict=True)
                    ]
                    for row, node in zip(table, expected, strict=True)
                ]
            )
        else:
            pairs = pairs_as_munkres(_costs(table))
        values: list[float] = []
        length, equal = reference.size + prediction.size, len(expected) == len(given)
        for row, column in pairs:
            found = table[row][column]
            values += found.values
            length += found.length - expected[row].size - given[column].size
            equal = equal and found.equal
        return _Found(values, length, equal)


def _texts(tree: object) -> bool:
    return isinstance(tree, list) and bool(tree) and all(isinstance(one, str) for one in tree)


def written(value: object) -> str:
    """A value as the text that is compared: `str`, of whole numbers beyond Python's limit in hexadecimal."""
    try:
        return str(value)
    except ValueError:
        return hex(value)  # type: ignore[arg-type]


def _count(value: object) -> int:
    """Number of values in a tree of any depth."""
    count, pending = 0, [value]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            pending += one.values()
        elif isinstance(one, (list, tuple)):
            pending += one
        else:
            count += 1
    return count


_SCALE = 2.0**40
"""Binary places that count when scores are compared to find the best of ties: 1e-12."""


def _rank(found: _Found, growth: int) -> int:
    """Cost of a pair, a whole number so that sums are exact: mean score, then sum of scores, then length.

    Args:
        found: how the two agree.
        growth: length of the pair less that of its halves without partners.
    """
    total = math.fsum(found.values)
    mean = total / found.length if found.length else 1.0
    return (-round(mean * _SCALE) << 128) - (round(total * _SCALE) << 48) + growth


def _costs(table: Sequence[Sequence[_Found]]) -> list[list[float]]:
    """Costs as the package has them: below the greatest score; equal pairs are better by the last bit."""
    scores = [
        [math.nextafter(one.mean(), math.inf) if one.equal else one.mean() for one in row]
        for row in table
    ]
    most = max(map(max, scores))
    return [[most - score for score in row] for row in scores]
