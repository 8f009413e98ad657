"""Metrics over key-value pairs, for key-information extraction.

A pair is right if the same key has the same value on both sides; there is no partial credit. Values are
compared in lower case without any whitespace, keys as they are (case counts), as OCRBench v2's
`compute_f1_score` does (Fu et al. 2024, arXiv 2501.00321; it keeps inner tabs, we do not). Two averages,
often confused, both here:

- `kv_f1` is micro: 2 right / (predicted + expected), numerators and denominators summed over samples;
- `kv_f1_macro` is OCRBench v2's: right / keys on either side, per sample, then the mean over samples.

{a: 1} against {a: 1, b: 2} is 0.667 by the first and 0.5 by the second.

Nested objects are flattened to paths, `{"seller": {"inn": 1}}` is the pair seller.inn = 1; elements of
lists have their position in the path, so order counts. `null`, `{}` and `[]` hold no value and are no pair,
an empty text is one. Numbers and booleans are compared as JSON writes them (1.0 is not 1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hpcbench.metrics.base import Aggregation, Bounds, Parts, best, divide, ratio_of_sums
from hpcbench.metrics.normalise import Case, TextOptions, Whitespace

Path = tuple[str | int, ...]
"""Keys and list positions from the top to a value."""


@dataclass(frozen=True, slots=True)
class PairCounts:
    """How the pairs of a prediction agree with those of a reference."""

    right: int
    """Keys with the same value on both sides."""
    predicted: int
    """Pairs of the prediction."""
    expected: int
    """Pairs of the reference."""
    keys: int
    """Different keys on either side."""

    @property
    def precision(self) -> float | None:
        """Right / predicted; None where nothing is predicted."""
        return self.right / self.predicted if self.predicted else None

    @property
    def recall(self) -> float | None:
        """Right / expected; None where nothing is expected."""
        return self.right / self.expected if self.expected else None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvF1(TextOptions):
    """Micro F1 over key-value pairs: 2 right / (predicted + expected), a ratio of sums.

    A sample with nothing expected and nothing predicted counts for nothing (0 / 0); a set of only such
    samples is 1.
    """

    api: ClassVar[int] = 1
    name: ClassVar[str] = "kv_f1"
    higher_is_better: ClassVar[bool] = True
    accepts: ClassVar[tuple[str, ...]] = ("object",)
    aggregation: ClassVar[Aggregation] = "ratio"
    bounds: ClassVar[Bounds] = (0.0, 1.0)

    case: Case = "lower"
    whitespace: Whitespace = "remove"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """2 right over predicted + expected, by the reference with the highest F1 (if equal, the smaller).

        No mapping is scored as nothing predicted, and as one wrong pair where nothing is expected.
        """

        def cost(reference: object) -> tuple[float, float, Parts]:
            counts = self.count(prediction, reference)
            both = counts.predicted + counts.expected
            if not both:
                unread = not isinstance(prediction, Mapping)
                return (0.0, 1, Parts(0, 1)) if unread else (-1.0, 0, Parts(0, 0))
            return -2 * counts.right / both, both, Parts(2 * counts.right, both)

        return best(self.name, references, cost)

    def aggregate(self, parts: Sequence[Parts]) -> float:
        """F1 over the pairs of all samples."""
        return ratio_of_sums(parts, over_nothing=1.0)

    @property
    def signature(self) -> str:
        """E.g. `kv_f1|case:lower|ws:remove|unicode:nfc|v1`."""
        return self.describe(self.name)

    def count(self, prediction: object, reference: object) -> PairCounts:
        """Compare one prediction with one reference; sums of these give micro precision and recall.

        Raises:
            TypeError: the reference is no mapping.
        """
        if not isinstance(reference, Mapping):
            raise TypeError(
                f"{self.name} compares mappings; a reference is of type {type(reference).__name__}"
            )
        expected = self._pairs(reference)
        predicted = self._pairs(prediction) if isinstance(prediction, Mapping) else {}
        right = sum(expected.get(path) == value for path, value in predicted.items())
        return PairCounts(right, len(predicted), len(expected), len(predicted.keys() | expected))

    def _pairs(self, mapping: Mapping[object, object]) -> dict[Path, str]:
        pairs: dict[Path, str] = {}
        pending: list[tuple[Path, object]] = [((), mapping)]
        while pending:  # no recursion: models nest as deep as they like
            path, value = pending.pop()
            if isinstance(value, Mapping):
                pending += (((*path, self.compose(str(key))), value[key]) for key in value)
            elif isinstance(value, (list, tuple)):
                pending += (((*path, position), inner) for position, inner in enumerate(value))
            elif isinstance(value, (bool, int, float)):
                pairs[path] = json.dumps(value)
            elif value is not None:
                pairs[path] = self.normalise(str(value))
        return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class KvF1Macro(KvF1):
    """OCRBench v2's field score: per sample right / keys on either side, over samples the mean."""

    name: ClassVar[str] = "kv_f1_macro"
    aggregation: ClassVar[Aggregation] = "mean"

    empty_is_right: bool = True
    """Nothing predicted where nothing is expected: 1; in OCRBench v2 it is 0."""

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Right over keys in [0, 1] by the best reference, over 1. No mapping scores 0."""
        unread = not isinstance(prediction, Mapping)

        def cost(reference: object) -> tuple[float, float, Parts]:
            counts = self.count(prediction, reference)
            both_empty = 0.0 if unread else float(self.empty_is_right)
            value = divide(counts.right, counts.keys) if counts.keys else both_empty
            return -value, 0, Parts(value, 1)

        return best(self.name, references, cost)

    @property
    def signature(self) -> str:
        """E.g. `kv_f1_macro|empty:1|case:lower|ws:remove|unicode:nfc|v1`."""
        return self.describe(self.name, f"empty:{self.empty_is_right:d}")
