"""Metrics for document work; imports nothing else of hpcbench.

As functions, for one answer (prediction first; the answer, or several acceptable ones):

    >>> from hpcbench.metrics import anls, cer, kv_f1
    >>> round(anls("12,500", ["12500", "12 500"]), 4)
    0.8333
    >>> cer("Москва", "Масква")
    0.16666666666666666
    >>> kv_f1({"inn": "77"}, {"inn": "77", "kpp": "01"})
    0.6666666666666666

As classes, with options as fields, for sets of answers:

    >>> from hpcbench.metrics import Wer
    >>> metric = Wer(case="lower")
    >>> metric.aggregate([metric.score("a b c d", ["A B C D"]), metric.score("y", ["x"])])
    0.2
    >>> metric.signature
    'wer|case:lower|ws:runs|unicode:nfc|v1'

| name | best | aggregate | scores |
|---|---|---|---|
| anls | 1 | mean | texts, partial credit down to similarity 0.5 |
| cer, wer | 0 | ratio of sums | texts, edits per reference character or word |
| exact_match | 1 | mean | texts |
| accuracy | 1 | mean | one label |
| kv_f1 | 1 | ratio of sums | key-value pairs, micro |
| kv_f1_macro | 1 | mean | key-value pairs, per sample over the union of keys (OCRBench v2) |
| repetition | 0 | mean | texts, 1 for one that ends in a loop |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpcbench.metrics.base import Metric, Parts
from hpcbench.metrics.classification import Accuracy
from hpcbench.metrics.repetition import Repetition
from hpcbench.metrics.structure import KvF1, KvF1Macro, PairCounts
from hpcbench.metrics.text import Anls, Cer, ExactMatch, Wer

__all__ = [
    "METRICS",
    "Accuracy",
    "Anls",
    "Cer",
    "ExactMatch",
    "KvF1",
    "KvF1Macro",
    "Metric",
    "PairCounts",
    "Parts",
    "Repetition",
    "Wer",
    "accuracy",
    "anls",
    "cer",
    "exact_match",
    "kv_f1",
    "kv_f1_macro",
    "repetition",
    "wer",
]

METRICS: tuple[type[Metric], ...] = (
    Anls,
    Cer,
    Wer,
    ExactMatch,
    Accuracy,
    KvF1,
    KvF1Macro,
    Repetition,
)
"""Our own metrics; mypy checks here that each fits the Protocol."""


def anls(prediction: str, references: str | Sequence[str], **options: Any) -> float:
    """Normalised Levenshtein similarity in [0, 1] to the closest reference. Options: `Anls`."""
    return _value(Anls(**options), prediction, references)


def cer(prediction: str, references: str | Sequence[str], **options: Any) -> float:
    """Character error rate, 0 or more, by the closest reference. Options: `Cer`."""
    return _value(Cer(**options), prediction, references)


def wer(prediction: str, references: str | Sequence[str], **options: Any) -> float:
    """Word error rate, 0 or more, by the closest reference. Options: `Wer`."""
    return _value(Wer(**options), prediction, references)


def exact_match(prediction: str, references: str | Sequence[str], **options: Any) -> float:
    """1 if the prediction equals a reference, else 0. Options: `ExactMatch`."""
    return _value(ExactMatch(**options), prediction, references)


def accuracy(prediction: str, references: str | Sequence[str], **options: Any) -> float:
    """1 if the label is right, else 0. Options: `Accuracy`."""
    return _value(Accuracy(**options), prediction, references)


def kv_f1(
    prediction: Mapping[str, Any] | None,
    references: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    **options: Any,
) -> float:
    """F1 over key-value pairs, in [0, 1]. Options: `KvF1`."""
    return _value(KvF1(**options), prediction, references)


def kv_f1_macro(
    prediction: Mapping[str, Any] | None,
    references: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    **options: Any,
) -> float:
    """Right pairs over the union of keys, in [0, 1]. Options: `KvF1Macro`."""
    return _value(KvF1Macro(**options), prediction, references)


def repetition(prediction: str, references: str | Sequence[str] = "", **options: Any) -> float:
    """1 if the prediction ends in a loop and no reference does, else 0. Options: `Repetition`."""
    return _value(Repetition(**options), prediction, references)


def _value(metric: Metric, prediction: object, references: object) -> float:
    if isinstance(references, (str, Mapping)) or not isinstance(references, Sequence):
        references = [references]
    return metric.aggregate([metric.score(prediction, references)])
