"""Metrics that single benchmarks are scored by: options, shared words, answers on charts, lists of answers.

`choice`: an option's letter in the answer. Kits read it in different ways, see `dialects`.

`token_f1`: F-measure over shared words, 2 · precision · recall / (precision + recall); by default words are
counted. WebSRC as lmms-eval scores it takes sets, SlideVQA counts each word that is in the other text,
CC-OCR counts words, words of a-z and 0-9, or characters, by the kind of its data.

`chartqapro`: relaxed accuracy of ChartQAPro as lmms-eval computes it: numbers within 5 %, years and options
exact, other texts by ANLS with threshold 0.5, the entries of lists one by one.

`dude`: ANLS of DUDE (Van Landeghem et al. 2023, arXiv 2305.08455) as the publishers' `DUDEeval` computes it;
a text becomes the list of answers that it wants as in `DocOwl2/evaluation/dude_eval.py` of mPLUG-DocOwl at
1bc9513.
"""

from __future__ import annotations

import ast
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, Literal, get_args

from hpcbench.metrics.base import (
    Parts,
    SampleMetric,
    acceptable,
    added,
    over_one,
    take_dialect,
    version,
)
from hpcbench.metrics.kits import DUDE, LMMS_EVAL, Dialect
from hpcbench.metrics.matching import cheapest_pairs
from hpcbench.metrics.normalise import one_of, read_text, reference_text
from hpcbench.metrics.text import Anls

Rule = Literal["letter", "stop", "first"]
"""How the letter is found: `letter` one that stands alone at the start, else behind "answer is" · `stop` at
the start before a full stop, else the whole answer · `first` the first character."""

Tokens = Literal["words", "latin", "characters", "set", "members"]
"""`words` between spaces · `latin` the same, of a-z and 0-9 alone · `characters` without spaces · `set` words
and single punctuation marks, each once · `members` words between spaces, each that is in the other text."""

_ALONE = re.compile(r"[\W_]*([A-Za-z])(?![^\W_])")
_SAID = re.compile(
    r"\b(?:answer|option|choice)\b\W*(?:is\b)?\W*([A-Za-z])(?![^\W_])", re.IGNORECASE
)
_STOP = re.compile(r"\s*([A-Z])\.")
_BARE = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(SampleMetric):
    """1 if the answer names the letter of the right option, else 0; over samples the mean."""

    name: ClassVar[str] = "choice"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "lmms-eval-ai2d": Dialect(
            {"rule": "stop"},
            LMMS_EVAL,
            ("lmms_eval/tasks/ai2d/utils.py", "lmms_eval/api/metrics.py"),
        ),
        "lmms-eval-seed": Dialect(
            {"rule": "first"}, LMMS_EVAL, ("lmms_eval/tasks/seedbench_2_plus/utils.py",)
        ),
    }
    """AI2D: case and punctuation do not count, spaces do. SEED-Bench-2-Plus: the answer's first character."""

    rule: Rule = "letter"
    """How the letter is found."""
    compat: str = ""
    """Compute the metric as lmms-eval does for this benchmark: lmms-eval-ai2d or lmms-eval-seed."""

    def __post_init__(self) -> None:
        take_dialect(self)
        one_of("rule", self.rule, get_args(Rule))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """0 or 1, over 1. No text scores 0."""
        letters = [reference_text(self.name, one) for one in acceptable(self.name, references)]
        read = read_text(prediction)
        if read is None:
            return over_one(0.0)
        if self.rule == "stop":
            found = _STOP.match(read)
            said = (found[1] if found else read).lower().translate(_BARE)
            return over_one(float(said in [one.lower().translate(_BARE) for one in letters]))
        options = [one.lower().strip() for one in letters]
        if self.rule == "first":
            return over_one(float(read.strip()[:1].lower() in options))
        said = read.lower().strip()
        return over_one(float(said in options or _letter(read).lower() in options))

    @property
    def signature(self) -> str:
        """E.g. `choice|rule:letter|v1`."""
        return f"{self.name}|rule:{self.rule}|{version(self)}"


def _letter(answer: str) -> str:
    """The letter of the option that an answer names; NUL: none."""
    alone = _ALONE.match(answer)
    if alone is not None:
        rest = answer[alone.end() :].strip()
        # "A dog is shown" begins with a word; "A. a dog", "(A) a dog" and "A" name an option.
        if not rest or not rest[0].isalnum():
            return alone[1]
    said = _SAID.findall(answer)
    return said[-1] if said else "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenF1(SampleMetric):
    """F-measure over the words that answer and reference share; the best reference counts, then the mean.

    A reference `{"answer": "…", "kind": "characters"}` says its own `tokens`.
    """

    name: ClassVar[str] = "token_f1"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "lmms-eval-websrc": Dialect(
            {"tokens": "set"}, LMMS_EVAL, ("lmms_eval/tasks/websrc/utils.py",)
        ),
        "lmms-eval-slidevqa": Dialect(
            {"tokens": "members"}, LMMS_EVAL, ("lmms_eval/tasks/slidevqa/utils.py",)
        ),
        "lmms-eval-cc-ocr": Dialect(
            {"tiny": 1e-9}, LMMS_EVAL, ("lmms_eval/tasks/cc_ocr/evaluators/ocr_metric.py",)
        ),
    }
    """CC-OCR: `tokens` is left to choose, and 1e-9 is added to each denominator."""

    tokens: Tokens = "words"
    """The words that are compared, where a reference does not say its own."""
    tiny: float = 0.0
    """Added to each denominator."""
    compat: str = ""
    """Compute the metric as lmms-eval does for this benchmark: lmms-eval-websrc, -slidevqa or -cc-ocr."""

    def __post_init__(self) -> None:
        take_dialect(self, keep=("tokens",) if self.compat == "lmms-eval-cc-ocr" else ())
        one_of("tokens", self.tokens, get_args(Tokens))
        if not 0 <= self.tiny < 1:
            raise ValueError(f"tiny is {self.tiny}; it must be from 0 to 1")

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """F-measure in [0, 1], over 1. No text scores 0."""
        read, most = read_text(prediction), 0.0
        for given in acceptable(self.name, references):
            kind = (
                str(given.get("kind", self.tokens)) if isinstance(given, Mapping) else self.tokens
            )
            one_of(f"kind of a reference of {self.name}", kind, get_args(Tokens))
            expected = reference_text(self.name, given)
            if read is not None:
                most = max(most, self._of(kind, read, expected))
        return over_one(most)

    @property
    def signature(self) -> str:
        """E.g. `token_f1|tokens:words|v1`."""
        tiny = (f"tiny:{self.tiny:g}",) if self.tiny else ()
        return "|".join((self.name, f"tokens:{self.tokens}", *tiny, version(self)))

    def _of(self, kind: str, answer: str, reference: str) -> float:
        if kind == "members":  # a line break of the reference parts no words
            return _members(answer.lower().split(), reference.replace("\n", "").lower().split())
        if kind == "set":
            said, expected = (
                Counter(set(_WORDS.findall(one.lower()))) for one in (answer, reference)
            )
        else:
            said, expected = (Counter(_tokens(one, kind)) for one in (answer, reference))
        shared = (said & expected).total()
        if not self.tiny and not shared:
            both_empty = kind != "set" and not said and not expected
            return float(both_empty)
        precision = shared / (said.total() + self.tiny)
        recall = shared / (expected.total() + self.tiny)
        return 2 * recall * precision / (recall + precision + self.tiny)


_WORDS = re.compile(r"\w+|[^\w\s]")
_SPACES = re.compile(r"\s+")
_NOT_LATIN = re.compile("[^A-Za-z0-9]+")


def _tokens(text: str, kind: str) -> list[str]:
    """Words or characters of a text; `###` and `***`, marks of unreadable words, go."""
    text = _SPACES.sub(" ", text.strip().replace("###", "").replace("***", "")).lower()
    if kind == "characters":
        return list(text.replace(" ", ""))
    words = text.split(" ")
    if kind == "latin":
        words = [_NOT_LATIN.sub("", word) for word in words]
    return [word for word in words if word]


def _members(said: Sequence[str], expected: Sequence[str]) -> float:
    if not said or not expected:
        return 0.0
    shared = sum(word in expected for word in said)
    recall, precision = shared / len(expected), shared / len(said)
    return 2 * recall * precision / (recall + precision) if recall + precision > 1e-4 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneDialect(SampleMetric):
    """A metric whose only option is the dialect."""

    accepts: ClassVar[tuple[str, ...]] = ("text",)

    compat: str = ""

    def __post_init__(self) -> None:
        take_dialect(self)

    @property
    def signature(self) -> str:
        """`NAME|v1`, or with the dialect."""
        compat = f"|compat:{self.compat}" if self.compat else ""
        return f"{self.name}{compat}|{version(self)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartQAPro(_OneDialect):
    """Relaxed accuracy of ChartQAPro: numbers within 5 %, years and options exact, texts by ANLS; the mean.

    A reference is a text, or an object: `answer`, a text or a list of which the last counts (a conversation);
    `years`, which entries of the answer are years (`YES`); `type`, the kind of question.
    """

    name: ClassVar[str] = "chartqapro"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "lmms-eval": Dialect({}, LMMS_EVAL, ("lmms_eval/tasks/chartqapro/utils.py",)),
    }

    compat: str = ""
    """Compute the metric as lmms-eval does: an answer "nan" is then wrong even where it is expected."""

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Value in [0, 1], over 1; the best reference counts. No text scores 0.

        Raises:
            TypeError: a reference is neither such an object nor a text.
        """
        read = read_text(prediction)
        values = []
        for given in acceptable(self.name, references):
            known = given if isinstance(given, Mapping) else {"answer": given}
            answer = _listed(known.get("answer"))[-1]
            expected = reference_text(self.name, answer)
            if read is None:
                values.append(0.0)
            elif not self.compat and _trimmed(read) == _trimmed(expected):
                values.append(1.0)
            else:
                values.append(_on_chart(read, expected, known))
        return over_one(max(values))


def _on_chart(read: str, right_answer: str, given: Mapping[str, Any]) -> float:
    kind, said, target = str(given.get("type") or ""), _trimmed(read), _trimmed(right_answer)
    years = _listed(given.get("years") or [])
    years = years[-1:] if kind == "Conversational" else years
    expected, answer = _entries(_quoted(target)) or [target], _entries(said) or [said]
    if len(years) < len(expected):
        years = years * len(expected)
    exact = kind in ("Fact Checking", "Multi Choice")
    values = []
    for place, (right, own) in enumerate(zip_longest(expected, answer)):
        flag = years[place] if place < len(years) else "NO"
        if right is None or own is None:
            values.append(0.0)
        elif exact or (isinstance(flag, str) and flag.upper() == "YES"):
            values.append(float(right.strip().lower() == own.strip().lower()))
        else:
            values.append(_near(own, right))
    return added(values) / len(values)


_ANLS = Anls(compat="anls-0.0.2")


def _near(answer: str, target: str) -> float:
    """A number within 5 % of the target, else ANLS; per cent signs at the ends do not count."""
    answer, target = (one.strip().strip("%").strip() for one in (answer, target))
    wanted, number = _number(target), _number(answer)
    if wanted is None or number is None:
        return float(_ANLS.score(answer.lower(), [target.lower()]).numerator)
    if wanted == 0:
        return float(number == 0)
    return float(abs(number - wanted) / abs(wanted) <= 0.05)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _trimmed(text: str) -> str:
    return text.strip().strip(".").strip("\n")


def _listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


_UNQUOTED = re.compile(r"(?<!['\w])(\w[^,]*?)(?!['\w])")


def _quoted(target: str) -> str:
    """A target that is a list of bare words, `[a, b c]`, with its words in quotes."""
    inner = re.match(r"^\[(.*)\]$", target.strip())
    if inner is None:
        return target
    quoted = f"[{_UNQUOTED.sub(_in_quotes, inner[1])}]"
    return quoted if _literal(quoted) is not None else target


def _in_quotes(found: re.Match[str]) -> str:
    return f"'{found[1]}'"


def _entries(text: str) -> list[str] | None:
    """Entries of a list that a text says, without spaces and quotes at their ends."""
    found = _literal(text)
    return [str(one).strip(" '") for one in found] if isinstance(found, list) else None


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dude(_OneDialect):
    """ANLS of DUDE with threshold 0.5: lists entry by entry, no answer where there is none; the mean.

    A reference is a text, or an object: `answer`, a list of texts, empty where the document does not answer;
    `type`, the kind of answer. If the kind has `list` in its name (`list/extractive`), all entries are the
    answer, and `, ` separates the entries of the prediction: the best pairs count, over the longer list.
    Otherwise any entry is right. A prediction that contains "not answerable" is no answer.
    """

    name: ClassVar[str] = "dude"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "dudeeval": Dialect({}, DUDE, ("evaluate_submission.py",)),
    }

    compat: str = ""
    """Compute the metric as its publishers do: similarities are over the lengths of the raw texts, and line
    breaks of the prediction are removed."""

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Value in [0, 1], over 1; the best reference counts. No text scores 0.

        Raises:
            TypeError: a reference is neither such an object nor a text.
        """
        read, values = read_text(prediction), [0.0]
        for given in acceptable(self.name, references):
            known = given if isinstance(given, Mapping) else {"answer": given}
            answer = known.get("answer")
            right = [reference_text(self.name, one) for one in _listed(answer or "")] or [""]
            if read is not None:
                said = read.strip()
                if self.compat:  # as the publishers join lines
                    said = said.replace("\n", "")
                said = "" if "not answerable" in said.lower() else said
                listed = "list" in str(known.get("type"))
                values.append(self._of_list(said, right) if listed else self._near(said, right))
        return over_one(max(values))

    def _near(self, said: str, right: Sequence[str]) -> float:
        return float((_AS_DOCVQA if self.compat else _PLAIN).score(said, right).numerator)

    def _of_list(self, said: str, right: Sequence[str]) -> float:
        entries = said.split(", ")
        values = [[self._near(one, [other]) for other in entries] for one in right]
        pairs = cheapest_pairs([[1 - value for value in row] for row in values])
        total = added(values[row][column] for row, column in pairs)
        return total / max(len(set(right)), len(entries))


_PLAIN, _AS_DOCVQA = Anls(), Anls(compat="docvqa-official")
