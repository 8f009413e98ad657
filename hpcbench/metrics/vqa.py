"""Metrics of visual question answering: relaxed accuracy (ChartQA), VQA accuracy (VQAv2, TextVQA).

Relaxed accuracy: Masry et al. 2022, "ChartQA" (arXiv 2203.10244, end of section 5.1): a number is right
within 5 % of the target, other answers must be equal. The published rule in common use is that of
pix2struct (google-research/pix2struct, `relaxed_correctness`), and it is the default here: "5%" is 0.05, a
target of 0 is compared as a text ("0.0" is wrong), "1,000" and "$10" are no numbers, "nan" equals nothing.
`numbers="written"` and `years="strict"` are sounder.

VQA accuracy: Antol et al. 2015, "VQA: Visual Question Answering" (arXiv 1505.00468), as in the evaluation
code of VQA v2: ten people answered each question, and an answer is as right as the mean over the ten sets of
nine people of min(1, people who gave it / 3). Answers are compared after `plain_answer`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from hpcbench.metrics.base import (
    Parts,
    SampleMetric,
    acceptable,
    over_one,
    take_dialect,
    version,
)
from hpcbench.metrics.kits import LMMS_EVAL, PIX2STRUCT, VLMEVALKIT, VQA, Dialect
from hpcbench.metrics.normalise import (
    Case,
    TextMetric,
    TextOptions,
    UnicodeForm,
    Whitespace,
    compose,
    one_of,
    read_text,
    reference_text,
)
from hpcbench.metrics.numerals import read_numeral

Years = Literal["relaxed", "strict"]
"""Whether the tolerance applies to targets that look like years, whole numbers from 1000 to 2099."""

Numbers = Literal["plain", "written"]
"""`plain`: what Python's `float` reads, a percent sign behind it divides by 100 · `written`: also with
separated thousands, currency and unit (`read_numeral`); zero is a number, equal texts are always right."""

Process = Literal["always", "disputed"]
"""When answers are normalised: `always`, or only where the people `disputed`: if all ten texts are equal,
the code of VQA v2 compares them as they are. Case counts then only under `compat="vqa-v2"`."""

Few = Literal["votes", "alternatives"]
"""Meaning of fewer than four reference answers: `votes`, by the published rule, which then cannot reach 1 (of
one answer it is 0, as no other answer agrees) · `alternatives`, any of which is right."""

_YEAR = re.compile(r"(?:1\d|20)\d\d", re.ASCII)
_AS_WRITTEN = {"whitespace": "keep", "unicode": "none"}
_LMMS_PROCESSOR = "lmms_eval/tasks/_task_utils/vqa_eval_metric.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxedAccuracy(TextMetric):
    """1 if the answer is the target, or a number close to it; over samples the mean (ChartQA)."""

    name: ClassVar[str] = "relaxed_accuracy"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "pix2struct": Dialect(_AS_WRITTEN, PIX2STRUCT, ("pix2struct/metrics.py",)),
        "lmms-eval": Dialect(_AS_WRITTEN, LMMS_EVAL, ("lmms_eval/tasks/chartqa/utils.py",)),
        # strips answers, not targets
        "vlmevalkit": Dialect(_AS_WRITTEN, VLMEVALKIT, ("vlmeval/dataset/utils/vqa_eval.py",)),
    }

    tolerance: float = 0.05
    """Largest |answer - target| / |target| that is right."""
    years: Years = "relaxed"
    """Whether the tolerance applies to years."""
    numbers: Numbers = "plain"
    """Which texts are read as numbers."""
    case: Case = "lower"
    whitespace: Whitespace = "strip"
    compat: str = ""
    """Compute the metric as this kit does: pix2struct, lmms-eval or vlmevalkit."""

    def __post_init__(self) -> None:
        take_dialect(self)
        TextOptions.__post_init__(self)
        one_of("years", self.years, get_args(Years))
        one_of("numbers", self.numbers, get_args(Numbers))
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance is {self.tolerance}; it must be 0 or more")

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """0 or 1, over 1; any of the references may be met. No text scores 0."""
        given = acceptable(self.name, references)
        targets = [self.normalise(reference_text(self.name, one)) for one in given]
        read = read_text(prediction)
        if read is None:
            return over_one(0.0)
        answer = self.normalise(read.strip() if self.compat == "vlmevalkit" else read)
        right = self._is_written if self.numbers == "written" else self._is_plain
        return over_one(float(any([right(answer, target) for target in targets])))

    @property
    def signature(self) -> str:
        """E.g. `relaxed_accuracy|tolerance:0.05|years:relaxed|numbers:plain|case:lower|…|v1`."""
        own = [f"tolerance:{self.tolerance:g}", f"years:{self.years}", f"numbers:{self.numbers}"]
        if self.compat == "vlmevalkit":
            own.append("compat:vlmevalkit")
        return self.describe(self.name, *own)

    def _is_plain(self, answer: str, target: str) -> bool:
        wanted = _float(target)
        if wanted:
            number = _float(answer)
            if number is not None:
                return abs(number - wanted) / abs(wanted) <= self._limit(target)
        return answer == target

    def _is_written(self, answer: str, target: str) -> bool:
        if answer == target:
            return True
        wanted, number = _target_numeral(target), read_numeral(answer)
        if wanted is None or number is None or not number.fits(wanted):
            return False
        return abs(number.value - wanted.value) <= self._limit(target) * abs(wanted.value)

    def _limit(self, target: str) -> float:
        return 0.0 if self.years == "strict" and _YEAR.fullmatch(target) else self.tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class VqaAccuracy(SampleMetric):
    """Agreement with ten people: 0.3 if one of them gave the answer, 0.6, 0.9, 1; over samples the mean.

    The references are the people's answers, one each, equal ones repeated. Any number of people will do;
    what fewer than four mean is an option.
    """

    name: ClassVar[str] = "vqa_accuracy"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "vqa-v2": Dialect(
            {"process": "disputed", "unicode": "none"},
            VQA,
            ("PythonEvaluationTools/vqaEvaluation/vqaEval.py",),
            version=2,
        ),
        "vlmevalkit": Dialect(
            {"unicode": "none"},
            VLMEVALKIT,
            ("vlmeval/dataset/utils/vqa_eval.py", "vlmeval/smp/misc.py"),
            version=2,
        ),
        "lmms-eval": Dialect(
            {"unicode": "none"}, LMMS_EVAL, ("lmms_eval/tasks/textvqa/utils.py", _LMMS_PROCESSOR)
        ),
        "lmms-eval-vqav2": Dialect(
            {"unicode": "none"}, LMMS_EVAL, ("lmms_eval/tasks/vqav2/utils.py", _LMMS_PROCESSOR)
        ),
    }
    """lmms-eval has two rules: `lmms-eval` is its TextVQA, `lmms-eval-vqav2` its VQAv2. `plain_answer`
    says how each kit changes an answer."""

    process: Process = "always"
    """When answers are normalised."""
    few: Few = "votes"
    """How to score with fewer than four references."""
    unicode: UnicodeForm = "nfc"
    """Unicode normal form."""
    compat: str = ""
    """Compute the metric as this kit does: vqa-v2, vlmevalkit, lmms-eval (its TextVQA) or lmms-eval-vqav2."""

    def __post_init__(self) -> None:
        take_dialect(self)
        one_of("process", self.process, get_args(Process))
        one_of("few", self.few, get_args(Few))
        one_of("unicode", self.unicode, get_args(UnicodeForm))

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Agreement in [0, 1], over 1. No text scores 0."""
        people = acceptable(self.name, references)
        answers = [compose(reference_text(self.name, one), self.unicode) for one in people]
        read = read_text(prediction)
        if read is None:
            return over_one(0.0)
        given = compose(read, self.unicode)
        if self.process == "disputed" and len({_one_line(answer) for answer in answers}) == 1:
            said, agreed = _one_line(given), _one_line(answers[0])
            if not self.compat:
                said, agreed = said.lower(), agreed.lower()
            matches = len(answers) * (said == agreed)
        else:
            plain = plain_answer(given, self.compat)
            matches = [_plain_reference(answer, self.compat) for answer in answers].count(plain)
        return over_one(self._agreement(matches, len(answers)))

    @property
    def signature(self) -> str:
        """E.g. `vqa_accuracy|process:always|few:votes|unicode:nfc|v1`."""
        parts = [self.name, f"process:{self.process}", f"few:{self.few}", f"unicode:{self.unicode}"]
        if self.compat:
            parts.append(f"compat:{self.compat}")
        return "|".join((*parts, version(self)))

    def _agreement(self, matches: int, people: int) -> float:
        if people < 4 and self.few == "alternatives":
            return float(matches > 0)
        # Left out in turn: each of those who agree, then each of the others.
        thirds = matches * min(matches - 1, 3) + (people - matches) * min(matches, 3)
        return thirds / (3 * people)


_PUNCTUATION = frozenset(';/[]"{}()=+\\_-><@`,?!')
_DIGITS_COMMA, _DIGITS_COMMAS = re.compile(r"\d,\d"), re.compile(r"\d,+\d")
_FULL_STOP, _FULL_STOP_OF_WORDS = re.compile(r"\.(?!\d)"), re.compile(r"(?<!\d)\.(?!\d)")
_MOST_FULL_STOPS = 32
"""A flag of regular expressions that the kits pass where the number of replacements belongs."""
_NUMBER_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
)  # fmt: skip
_DIGIT = {"none": "0", **{word: str(value) for value, word in enumerate(_NUMBER_WORDS)}}
_ARTICLES = frozenset({"a", "an", "the"})

_CONTRACTIONS = """
    ain't aren't can't couldn't couldn't've could've didn't doesn't don't hadn't hadn't've
    hasn't haven't he'd he'd've he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't
    mightn't've might've mustn't must've needn't not've o'clock oughtn't 'ow's'at shan't
    she'd've shouldn't shouldn't've should've somebody'd've somebody'll somebody's someone'd
    someone'd've someone'll someone's something'd something'd've something'll that's there'd
    there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've
    weren't we've what'll what're what's what've when's where'd where's where've who'd who'd've
    who'll who's who've why'll why're why's won't wouldn't wouldn't've would've y'all y'all'd've
    y'all'll you'd you'd've you'll you're you've
"""
"""Words that VQA v2 knows when exactly one apostrophe is missing. Its "Im", "Ive" and "Id've" are never met,
as words are in lower case by then."""


def _misspelt() -> dict[str, str]:
    spelt = {
        word[:at] + word[at + 1 :]: word
        for word in _CONTRACTIONS.split()
        for at, letter in enumerate(word)
        if letter == "'"
    }
    return {**spelt, "somebody'd": "somebodyd"}  # the one that loses its apostrophe


_SPELLING = _misspelt()


def plain_answer(text: str, kit: str = "") -> str:
    """An answer as VQA v2 compares it.

    Punctuation goes or becomes a space, full stops but decimal ones go, number words to ten become digits
    ("none" is 0), articles go, contractions get their apostrophe, all in lower case. In two words joined by
    a hyphen an "a" is an article: "a-b" is "b".

    Args:
        text: the answer.
        kit: a dialect of `VqaAccuracy`. All drop at most 32 full stops. `vlmevalkit` keeps those behind a
            digit, "5." (since 2025-05); `lmms-eval` first drops commas and question marks and parts "'s" from
            its word; for `lmms-eval-vqav2` several commas between digits are as one.
    """
    if kit == "lmms-eval":
        text = text.lower().replace(",", "").replace("?", "").replace("'s", " 's")
    text = _one_line(text)
    found = _PUNCTUATION.intersection(text)
    if found:
        comma = _DIGITS_COMMAS if kit == "lmms-eval-vqav2" else _DIGITS_COMMA
        thousands = comma.search(text) is not None
        # A mark beside a space goes; one that parts words becomes a space; one rule for all its places.
        text = text.translate(
            {
                ord(mark): "" if thousands or f"{mark} " in text or f" {mark}" in text else " "
                for mark in found
            }
        )
    if "." in text:
        stop = _FULL_STOP_OF_WORDS if kit == "vlmevalkit" else _FULL_STOP
        text = stop.sub("", text, count=_MOST_FULL_STOPS if kit else 0)
    words = (_DIGIT.get(word, word) for word in text.lower().split())
    return " ".join(_SPELLING.get(word, word) for word in words if word not in _ARTICLES)


_plain_reference = functools.lru_cache(maxsize=16_384)(plain_answer)  # ten people agree a lot


def _one_line(text: str) -> str:
    return text.replace("\n", " ").replace("\t", " ").strip()


_target_numeral = functools.lru_cache(maxsize=4096)(read_numeral)


def _float(text: str) -> float | None:
    try:
        if text.endswith("%"):
            return float(text.rstrip("%")) / 100
        return float(text)
    except ValueError:
        return None
