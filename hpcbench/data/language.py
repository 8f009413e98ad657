"""The language of a dataset, for the default prompts of ML tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hpcbench.data.datasets import open_dataset, samples
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.prompt import Language
from hpcbench.schema.records import Sample

EXAMINED = 32
"""Number of first samples whose letters are counted."""


def language_of(dataset: Dataset, cache: Path | None = None) -> Language:
    """The definition's language, else that of most letters of its first samples.

    Args:
        dataset: its definition; it is on this machine.
        cache: `HOME/cache`.

    Returns:
        `en` also for a dataset that cannot be read: another check reports it.
    """
    if dataset.language is not None:
        return dataset.language
    try:
        iterator = open_dataset(dataset, cache)
        first = samples(iterator, [(0, iterator.count())], 0, EXAMINED, images=False)
        return of_texts(text for sample in first for text in _texts(sample))
    except Exception:  # noqa: BLE001 - foreign code: the measure of the data reports it
        return "en"


def of_texts(texts: Iterable[str]) -> Language:
    """`ru` for texts with more Cyrillic letters than others, else `en`."""
    count = Counter(
        "\u0400" <= letter <= "\u052f" for text in texts for letter in text if letter.isalpha()
    )
    return "ru" if count[True] > count[False] else "en"


def _texts(sample: Sample) -> Iterator[str]:
    """The question where there is one, else the references."""
    question = sample.fields.get("question")
    if isinstance(question, str) and question:
        yield question
    else:
        yield from _strings(sample.references)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)
