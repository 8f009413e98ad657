"""The rules of OCRBench, by which an answer is right that says the reference among other things.

Version 1: Liu et al., "OCRBench" (arXiv 2305.07895). An answer is right if it contains a reference, case and
line breaks aside; of formulas (HME100k) spaces do not count and case does. The benchmark's score of 1,000 is
the sum over its 1,000 samples.

Version 2: Fu et al., "OCRBench v2" (arXiv 2501.00321), `vqa_metric.py` and `eval.py` in `eval_scripts` of its
code (`kits.OCRBENCH`). Here are the kinds of question that compare one
short text; boxes are in `ocrbench_boxes`, tables, charts, documents and fields in `ocrbench_objects`,
transcribed texts in `transcripts`. The benchmark's score is for each language the mean over its categories of
the mean over a category's samples (`get_score.py`).

Known and kept, as they are the published rules: an empty reference is in every answer; "no idea" contains
"no"; "The answer is B" is no B.

A benchmark mixes kinds of question. A reference is a text of the kind that option `kind` says, or
`{"answer": "x^2", "kind": "formula"}`, or with a box
`{"answer": "12", "kind": "position", "box": [1, 2, 3, 4]}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from hpcbench.metrics import ocrbench_boxes as boxes
from hpcbench.metrics import ocrbench_objects as objects
from hpcbench.metrics.base import (
    Parts,
    SampleMetric,
    acceptable,
    over_one,
    take_dialect,
    version,
)
from hpcbench.metrics.kits import LMMS_EVAL, OCRBENCH, VLMEVALKIT, Dialect
from hpcbench.metrics.normalise import UnicodeForm, compose, one_of, read_text, reference_text
from hpcbench.metrics.transcripts import Synonyms, Words, check_tools, transcript_score

Rule = Callable[[str, str], float]
"""Value in [0, 1] of an answer by a reference."""

Judge = Callable[[str], float]
"""Value of an answer."""

Width = Literal["keep", "fold"]
"""Whether full-width ASCII characters ("Ａ", "１", "　") equal the usual ones."""


# --- rules ----------------------------------------------------------------------------------------------


def _contains(answer: str, reference: str) -> float:
    return float(_line(reference.lower()) in _line(answer.lower()))


def _contains_formula(answer: str, reference: str) -> float:
    return float(_unspaced(reference) in _unspaced(answer))


def _contains_chinese_formula(answer: str, reference: str) -> float:
    return _contains_formula(_TEXT_TAG.sub(r"\1", answer), _TEXT_TAG.sub(r"\1", reference))


def _says(answer: str, reference: str) -> float:
    return _says_with_case(answer.lower(), reference.lower())


def _says_with_case(answer: str, reference: str) -> float:
    answer, reference = _line(answer), _line(reference)
    if len(reference.split()) < 5:
        return float(reference in answer)
    return _similarity(answer, reference)


def _says_in_chinese(answer: str, reference: str) -> float:
    answer, reference = _unspaced(answer.lower()), _unspaced(reference.lower())
    if reference.count(",") < 3:
        return float(reference in answer)
    return _similarity(answer, reference)


def _says_scalar_with_case(answer: str, reference: str) -> float:
    """Rule for a reference outside a list: an `else` belongs to the inner `if`."""
    answer, reference = _line(answer), _line(reference)
    if len(reference.split()) >= 5:
        return 0.0
    return 1.0 if reference in answer else _similarity(answer, reference)


def _says_scalar_in_chinese(answer: str, reference: str) -> float:
    answer, reference = _unspaced(answer.lower()), _unspaced(reference.lower())
    if reference.count(",") >= 3:
        return 0.0
    return 1.0 if reference in answer else _similarity(answer, reference)


def _chooses(answer: str, reference: str) -> float:
    return float("".join(filter(str.isalpha, answer)) == reference)


def _counts(answer: str, reference: str) -> float:
    return float(_line(reference.lower()) in answer)


def _counts_nearly(answer: str, reference: str) -> float:
    """1 - relative error of the first number in the answer, 0 from one half on."""
    wanted, found = _line(reference), _NUMBER.search(answer)
    try:
        target = int(wanted)
    except ValueError as error:
        raise TypeError(
            f"ocrbench_v2 counts; a reference is {wanted!r}, not a whole number"
        ) from error
    digits = found.group().lstrip("0") if found else ""
    if (
        not digits or len(digits) > 18 or target <= 0
    ):  # longer ones are no count, nor does `int` read them
        return 0.0
    near = 1 - abs(int(digits) - target) / target
    return near if near > 0.5 else 0.0


def _spells(answer: str, reference: str) -> float:
    """Whether the answer has the reference's characters in a row, or separated in one of nine ways."""
    return float(any(between.join(reference) in answer for between in _BETWEEN))


_BETWEEN = ("", ".", ". ", ",", ", ", "、", ";", "; ", " ", "和")
_TEXT_TAG = re.compile(r"\\text\{([^{}]*)\}")
_NUMBER = re.compile(r"\d+")


def _line(text: str) -> str:
    return text.strip().replace("\n", " ")


def _unspaced(text: str) -> str:
    return text.strip().replace("\n", "").replace(" ", "")  # tabs stay, as in the code


def _similarity(answer: str, reference: str) -> float:
    """ANLS with threshold 0.5 over the texts as they are: runs of spaces count."""
    from rapidfuzz.distance import Levenshtein

    length = max(len(answer), len(reference))
    if not length:
        return 1.0
    similarity = 1 - Levenshtein.distance(answer, reference, score_cutoff=length // 2) / length
    return similarity if similarity >= 0.5 else 0.0


# --- metrics --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules(SampleMetric):
    """A metric that scores by rules, one for each kind of question; the best reference counts."""

    rules: ClassVar[Mapping[str, Rule]]
    """Kind of question that compares one text → rule."""
    kinds: ClassVar[tuple[str, ...]]
    """All kinds."""

    kind: str = "plain"
    """Kind of question, where a reference does not say its own."""
    unicode: UnicodeForm = "nfc"
    """Unicode normal form."""
    compat: str = ""
    """Compute the metric as this other kit does."""

    def __post_init__(self) -> None:
        self._check(("kind",))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Value in [0, 1] by the best reference, over 1. No text scores 0.

        Raises:
            ValueError: no reference, or one of a kind that there is not.
            TypeError: a reference is not what its kind compares.
            TooLarge: a table or document is larger than is compared.
        """
        read = read_text(prediction)
        answer = None if read is None else compose(read, self.unicode)
        values: list[float] = []
        for given in acceptable(self.name, references):
            kind = str(given.get("kind", self.kind)) if isinstance(given, Mapping) else self.kind
            one_of(f"kind of a reference of {self.name}", kind, self.kinds)
            judge = self._judge(kind, given)
            if answer is not None:
                values.append(judge(answer))
        return over_one(max(values, default=0.0))

    def _check(self, keep: Sequence[str]) -> None:
        take_dialect(self, keep=keep)
        one_of("kind", self.kind, self.kinds)
        one_of("unicode", self.unicode, get_args(UnicodeForm))

    def _judge(self, kind: str, given: object) -> Judge:
        """How answers are compared with a reference of a kind.

        Raises:
            TypeError: a reference is not what its kind compares.
        """
        text, rule = compose(reference_text(self.name, given), self.unicode), self._rule(kind)
        return lambda answer: rule(answer, text)

    def _rule(self, kind: str) -> Rule:
        return self.rules[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class OcrBench(_Rules):
    """1 if the answer contains a reference; over samples the mean (OCRBench v1)."""

    name: ClassVar[str] = "ocrbench"
    rules: ClassVar[Mapping[str, Rule]] = {"plain": _contains, "formula": _contains_formula}
    kinds: ClassVar[tuple[str, ...]] = tuple(rules)
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "ocrbench": Dialect({"unicode": "none"}, OCRBENCH, ("OCRBench/example.py",)),
        "vlmevalkit": Dialect({"unicode": "none"}, VLMEVALKIT, ("vlmeval/dataset/image_vqa.py",)),
        "lmms-eval": Dialect(
            {"unicode": "none", "width": "fold"}, LMMS_EVAL, ("lmms_eval/tasks/ocrbench/utils.py",)
        ),
    }
    """lmms-eval folds since 2026-07-30; before, its numbers are VLMEvalKit's. All leave `kind` to choose."""

    width: Width = "keep"
    """Treatment of full-width characters; formulas always keep them."""

    def __post_init__(self) -> None:
        _Rules.__post_init__(self)
        one_of("width", self.width, get_args(Width))

    @property
    def signature(self) -> str:
        """E.g. `ocrbench|kind:plain|width:keep|unicode:nfc|v1`."""
        return f"{self.name}|kind:{self.kind}|width:{self.width}|unicode:{self.unicode}|v1"

    def _rule(self, kind: str) -> Rule:
        return _contains_folded if self.width == "fold" and kind == "plain" else self.rules[kind]


_SCRIPTS = tuple(
    f"OCRBench_v2/eval_scripts/{name}.py"
    for name in (
        "eval",
        "vqa_metric",
        "IoUscore_metric",
        "TEDS_metric",
        "page_ocr_metric",
        "spotting_metric",
        "spotting_eval/script",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OcrBenchV2(_Rules):
    """How much of a reference the answer says; over samples the mean (OCRBench v2).

    Kinds of text: `plain`: a reference of fewer than five words is in the answer or not, a longer one is
    compared by ANLS with threshold 0.5 · `case`: the same, and case counts · `cn`: the same without spaces,
    and "longer" is from three commas on · `choice`: the answer's letters are the option · `spelled`: the
    reference's characters are in the answer, separated or not · `formula`, `formula_cn`: it is in the answer,
    spaces (and `\\text{}`) aside · `count`: the number is in the answer · `count_near`: 1 - relative error of
    the first number in the answer · `transcript`: mean of BLEU, METEOR, F-measure and 1 - edits, METEOR
    without synonyms unless `synonyms` says more · `table`, `table_markdown`: TEDS, of HTML or Markdown ·
    `document`: likeness of two outlines.

    Kinds of more: `grounding` (`box`): overlap of boxes · `position` (`answer`, `box`): half a text, half a
    box · `spotting` (`answer`: texts, `box`: their boxes): F-measure · `chart` (`answer`: an object): TEDS ·
    `fields` (`answer`: an object, a list in it holds what is right): right fields / fields on either side.
    """

    name: ClassVar[str] = "ocrbench_v2"
    rules: ClassVar[Mapping[str, Rule]] = {
        "plain": _says,
        "case": _says_with_case,
        "cn": _says_in_chinese,
        "choice": _chooses,
        "spelled": _spells,
        "formula": _contains_formula,
        "formula_cn": _contains_chinese_formula,
        "count": _counts,
        "count_near": _counts_nearly,
    }
    kinds: ClassVar[tuple[str, ...]] = (
        *rules, "transcript", "table", "table_markdown", "document", "grounding", "position", "spotting",
        "chart", "fields",
    )  # fmt: skip
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "ocrbench-v2": Dialect({"unicode": "none"}, OCRBENCH, _SCRIPTS, version=2),
        "ocrbench-v2-scalar": Dialect(
            {"unicode": "none"},
            OCRBENCH,
            ("OCRBench_v2/eval_scripts/vqa_metric.py",),
            version=2,
        ),
    }
    """The published code, for answers in a list, as in its data, and for one answer outside a list: kinds
    `case` and `cn` then give a longer reference 0, and a shorter one ANLS. Both leave `kind` to choose, and
    `words` and `synonyms`: the published numbers of `transcript` need `jieba` and `wordnet`."""

    words: Words = "characters"
    """How `transcript` parts Chinese: each character is a word, or as the package jieba does."""
    synonyms: Synonyms = "no"
    """Whether METEOR in `transcript` pairs synonyms; `wordnet` needs nltk and its data."""

    def __post_init__(self) -> None:
        self._check(("kind", "words", "synonyms"))
        one_of("words", self.words, get_args(Words))
        one_of("synonyms", self.synonyms, get_args(Synonyms))

    def check_here(self) -> None:
        """Check that the metric can score here; a host that scores in an image need not have its packages.

        Raises:
            ValueError: jieba or WordNet is asked for and not there.
        """
        check_tools(self.words, self.synonyms)

    @property
    def signature(self) -> str:
        """E.g. `ocrbench_v2|kind:plain|words:characters|synonyms:no|unicode:nfc|v1`."""
        tools = f"words:{self.words}|synonyms:{self.synonyms}"
        compat = f"|compat:{self.compat}" if self.compat else ""
        options = f"kind:{self.kind}|{tools}|unicode:{self.unicode}{compat}"
        return f"{self.name}|{options}|{version(self)}"

    def _judge(self, kind: str, given: object) -> Judge:
        if kind in _WITH_MORE:
            return _WITH_MORE[kind](self, self._object(kind, given))
        text = self._composed(reference_text(self.name, given))
        if kind == "transcript":
            return lambda answer: transcript_score(
                answer, text, self.words, self.synonyms, bool(self.compat)
            )
        if kind in ("table", "table_markdown"):
            return lambda answer: self._table(answer, text, kind == "table_markdown")
        if kind == "document":
            return lambda answer: objects.document(answer, text, bool(self.compat))
        rule = (_SCALAR if self.compat.endswith("scalar") else {}).get(kind) or self.rules[kind]
        return lambda answer: rule(answer, text)

    def _table(self, answer: str, text: str, markdown: bool) -> float:
        if self.compat:
            return objects.published_table(answer, text, markdown)
        return objects.table(answer, text, self.unicode)

    def _object(self, kind: str, given: object) -> Mapping[Any, Any]:
        """A reference that is no text, its texts composed."""
        if not isinstance(given, Mapping):
            type_name = type(given).__name__
            raise TypeError(
                f"{self.name} compares objects in kind {kind}; a reference is of type {type_name}"
            )
        found: Mapping[Any, Any] = self._composed(given)
        return found

    def _composed(self, value: Any) -> Any:
        if isinstance(value, str):
            return compose(value, self.unicode)
        if isinstance(value, Mapping):
            return {self._composed(key): self._composed(value[key]) for key in value}
        if isinstance(value, (list, tuple)):
            return [self._composed(one) for one in value]
        return value


def _grounding(metric: OcrBenchV2, reference: Mapping[Any, Any]) -> Judge:
    box = _box(metric, reference)
    return lambda answer: boxes.grounding(answer, box, bool(metric.compat))


def _position(metric: OcrBenchV2, reference: Mapping[Any, Any]) -> Judge:
    box, text = _box(metric, reference), reference_text(metric.name, reference)
    return lambda answer: boxes.position(
        answer, box, lambda said: _says(compose(said, metric.unicode), text), bool(metric.compat)
    )


def _spotting(metric: OcrBenchV2, reference: Mapping[Any, Any]) -> Judge:
    words = boxes.words_of(reference.get("box"), reference.get("answer"))
    if words is None:
        raise TypeError(
            f"{metric.name} compares boxes; `box` and `answer` must be lists of the same length"
        )
    if metric.compat:
        return lambda answer: boxes.published_spotting(answer, words)
    return lambda answer: boxes.spotting(answer, words, metric.unicode)


def _chart(metric: OcrBenchV2, reference: Mapping[Any, Any]) -> Judge:
    data = _data(metric, reference)
    if metric.compat:
        return lambda answer: objects.published_chart(answer, data)
    return lambda answer: objects.chart(answer, data, metric.unicode)


def _fields(metric: OcrBenchV2, reference: Mapping[Any, Any]) -> Judge:
    data = _data(metric, reference)
    if metric.compat:
        return lambda answer: objects.published_fields(answer, data)
    return lambda answer: objects.fields(answer, data, metric.unicode)


def _box(metric: OcrBenchV2, reference: Mapping[Any, Any]) -> boxes.Box:
    box = boxes.read_box(reference.get("box"))
    if box is None:
        raise TypeError(
            f"{metric.name} compares boxes; `box` of a reference must be a list of four numbers"
        )
    return box


def _data(metric: OcrBenchV2, reference: Mapping[Any, Any]) -> Mapping[Any, Any]:
    data = reference.get("answer")
    if not isinstance(data, Mapping):
        type_name = type(data).__name__
        raise TypeError(
            f"{metric.name} compares objects; `answer` of a reference is of type {type_name}"
        )
    return data


_WITH_MORE: Mapping[str, Callable[[OcrBenchV2, Mapping[Any, Any]], Judge]] = {
    "grounding": _grounding,
    "position": _position,
    "spotting": _spotting,
    "chart": _chart,
    "fields": _fields,
}
_SCALAR: Mapping[str, Rule] = {"case": _says_scalar_with_case, "cn": _says_scalar_in_chinese}
_FULL_WIDTH = {0x3000: " ", **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}}


def _contains_folded(answer: str, reference: str) -> float:
    return _contains(answer.translate(_FULL_WIDTH), reference.translate(_FULL_WIDTH))
