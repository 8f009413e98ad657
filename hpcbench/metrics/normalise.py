"""Normalisation of texts before comparison: options of all text metrics.

Reference implementations of ANLS, CER and WER ignore Unicode forms. We compose to NFC first,
because "й" as one code point and as "и" with a breve are the same text; for text already in NFC, the usual
case, nothing changes. `unicode="none"` gives the references' numbers for the rest.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from hpcbench.metrics.base import SampleMetric

Case = Literal["keep", "lower"]
"""`lower` is `str.lower`, as in the reference implementations (not casefold: "ß" is not "ss")."""

Whitespace = Literal["keep", "strip", "runs", "collapse", "remove"]
"""How whitespace is normalised; each value but `keep` strips both ends.

`strip` nothing more · `runs` two or more become one space (jiwer: a single tab or newline stays) ·
`collapse` one or more become one space · `remove` all goes
"""

UnicodeForm = Literal["none", "nfc", "nfkc"]
"""`nfc` composes; `nfkc` also folds full-width letters, ligatures and no-break spaces."""


_RUNS = re.compile(r"\s\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How texts are made comparable. Applied in the order unicode, case, whitespace.

    Raises:
        ValueError: an option has an unknown value.
    """

    case: Case = "keep"
    """Whether case counts."""
    whitespace: Whitespace = "strip"
    """How whitespace is normalised."""
    unicode: UnicodeForm = "nfc"
    """Unicode normal form."""

    def __post_init__(self) -> None:
        one_of("case", self.case, get_args(Case))
        one_of("whitespace", self.whitespace, get_args(Whitespace))
        one_of("unicode", self.unicode, get_args(UnicodeForm))

    def normalise(self, text: str) -> str:
        """The text as it is compared."""
        if not text.isascii():  # ASCII is in all forms
            text = compose(text, self.unicode)
        if self.case == "lower":
            text = text.lower()
        if self.whitespace == "strip":
            return text.strip()
        if self.whitespace == "collapse":
            return " ".join(text.split())
        if self.whitespace == "runs":
            return _RUNS.sub(" ", text).strip()
        if self.whitespace == "remove":
            return "".join(text.split())
        return text

    def compose(self, text: str) -> str:
        """The text in the chosen Unicode form, else untouched."""
        return compose(text, self.unicode)

    def describe(self, *parts: str) -> str:
        """A signature: name and own options, then those of the text, then the version."""
        shared = (f"case:{self.case}", f"ws:{self.whitespace}", f"unicode:{self.unicode}")
        return "|".join((*parts, *shared, "v1"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMetric(SampleMetric, TextOptions):
    """A metric with options of the text; its signature tells them where it has no other options."""

    @property
    def signature(self) -> str:
        """Name, options of the text, version."""
        return self.describe(self.name)


def compose(text: str, form: UnicodeForm) -> str:
    """The text in a Unicode form."""
    if form == "none" or text.isascii():  # ASCII is in all forms
        return text
    return unicodedata.normalize("NFC" if form == "nfc" else "NFKC", text)


def one_of(option: str, value: object, known: tuple[str, ...]) -> None:
    """Refuse an unknown value.

    Raises:
        ValueError: it is none of the known ones.
    """
    if value not in known:
        raise ValueError(f"{option} is {value!r}; it can be {', '.join(known)}")


def read_text(value: object) -> str | None:
    """A text or whole number (labels are often numbers) as text; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:  # more digits than Python writes
            return None
    return None


def reference_text(metric: str, value: object) -> str:
    """`read_text` for references, where anything else is a fault of the dataset.

    `{"answer": "x^2", "kind": "formula"}` is the text of its answer: datasets may say there how it is meant.

    Raises:
        TypeError: it is no text.
    """
    if isinstance(value, Mapping) and "answer" in value:
        value = value["answer"]
    text = value if isinstance(value, str) else read_text(value)
    if text is None:
        raise TypeError(f"{metric} compares texts; a reference is of type {type(value).__name__}")
    return text
