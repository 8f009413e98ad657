"""Formulas in LaTeX: equal, and how far apart, after what does not change their meaning is gone.

A formula becomes tokens: commands, characters, braces. Then

- delimiters around all of it go (`$…$`, `$$…$$`, `\\(…\\)`, `\\[…\\]`, `equation`), or a code fence;
- spaces and commands for space, size and numbering go (`\\,` `\\quad` `\\left` `\\big` `\\tag{1}`);
- upright and text styles go (`\\mathrm` `\\text` `\\operatorname`), bold and other alphabets stay; a named
  function is its letters, so that `\\sin`, `\\mathrm{sin}` and `\\operatorname{sin}` are one;
- of synonyms one stays (`\\le` and `\\leq`, `\\dfrac` and `\\frac`); `f'` is `f^\\prime`;
- braces around nothing or around one token go (`x^{2}` and `x^2`), and those without a partner.

The idea is that of OmniDocBench's formula edit distance (`normalized_formula`; Ouyang et al. 2024, arXiv
2412.07626), which also folds case and drops all alphabets, environments and braces' meaning with them, and
counts characters. Distances over tokens: Deng et al. 2016, arXiv 1609.04938.

It does *not* see that two formulas look the same. `x_i^2` and `x^2_i`, `\\frac{a}{b}` and
`a \\over b`, macros of the author differ here. CDM (Wang et al. 2024, arXiv 2409.03643) renders both and
compares the pictures; that needs a LaTeX installation and is not here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, get_args

from hpcbench.metrics.base import (
    Parts,
    SampleMetric,
    acceptable,
    over_one,
)
from hpcbench.metrics.normalise import (
    UnicodeForm,
    compose,
    one_of,
    read_text,
    reference_text,
)

_TOKEN = re.compile(r"\\(?:[a-zA-Z]+\*?|\S|\s)|[^\s\\]|\\$")
_FENCE = re.compile(r"\A```[a-zA-Z]*\s*\n|\n\s*```\Z")
_WRAPPERS = (("$$", "$$"), ("$", "$"), ("\\[", "\\]"), ("\\(", "\\)"))
_ENVIRONMENTS = ("equation", "equation*", "displaymath", "math")

_DROPPED = {
    *("~", "\\,", "\\;", "\\:", "\\!", "\\>", "\\ ", "\\\n", "\\\t", "\\/"),
    *("\\quad", "\\qquad", "\\enspace", "\\space", "\\thinspace", "\\medspace", "\\thickspace"),
    *("\\nobreakspace", "\\displaystyle", "\\textstyle", "\\scriptstyle", "\\scriptscriptstyle"),
    *("\\limits", "\\nolimits", "\\nonumber", "\\notag", "\\left", "\\right", "\\middle"),
    *("\\big", "\\Big", "\\bigg", "\\Bigg", "\\bigl", "\\bigr", "\\Bigl", "\\Bigr"),
    *("\\biggl", "\\biggr", "\\Biggl", "\\Biggr"),
}  # fmt: skip
_WITH_ARGUMENT = {"\\tag", "\\tag*", "\\label", "\\hspace", "\\hspace*", "\\vspace"}
_UPRIGHT = {
    *("\\mathrm", "\\text", "\\textrm", "\\textnormal", "\\mathnormal", "\\mathit", "\\textit"),
    *("\\operatorname", "\\operatorname*", "\\mathop", "\\rm", "\\it", "\\mbox", "\\hbox"),
}  # fmt: skip
_FUNCTIONS = {
    f"\\{name}": tuple(name)
    for name in (
        *("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "arcsin", "arccos"),
        *("arctan", "log", "ln", "lg", "exp", "lim", "max", "min", "sup", "inf", "det", "dim", "ker"),
        *("gcd", "arg", "deg", "hom", "Pr"),
    )
}  # fmt: skip
_SYNONYMS = {
    **{"\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\cfrac": "\\frac", "\\dbinom": "\\binom"},
    **{"\\le": "\\leq", "\\ge": "\\geq", "\\ne": "\\neq", "\\to": "\\rightarrow", "\\gets": "\\leftarrow"},
    **{"\\leqslant": "\\leq", "\\geqslant": "\\geq", "\\land": "\\wedge", "\\lor": "\\vee"},
    **{"\\bm": "\\mathbf", "\\boldsymbol": "\\mathbf", "\\textbf": "\\mathbf", "\\bf": "\\mathbf"},
    **{"\\lbrace": "\\{", "\\rbrace": "\\}", "\\vert": "|", "\\lvert": "|", "\\rvert": "|", "\\mid": "|"},
    **{"\\Vert": "\\|", "\\lVert": "\\|", "\\rVert": "\\|", "\\lbrack": "[", "\\rbrack": "]"},
    **{"\\lt": "<", "\\gt": ">", "\\colon": ":", "\\ast": "*", "\\varnothing": "\\emptyset"},
    **{"\\cdots": "\\dots", "\\ldots": "\\dots", "\\dotsc": "\\dots", "\\dotsb": "\\dots", "…": "\\dots"},
    **{"≤": "\\leq", "≥": "\\geq", "≠": "\\neq", "×": "\\times", "·": "\\cdot", "−": "-", "∞": "\\infty"},
}  # fmt: skip


def formula_tokens(text: str) -> list[str]:
    """The tokens of a formula by which it is compared."""
    tokens = [
        _SYNONYMS.get(token, token) for token in _with_primes(_TOKEN.findall(_unwrapped(text)))
    ]
    tokens = _without_environment(tokens)
    partner = _partners(tokens)
    out: list[str] = []  # braces that go become empty and are left out at the end
    open_groups: list[_Group] = []
    counts = [0]  # tokens kept in each open group, the formula itself first
    position = 0
    bare = False
    while position < len(tokens):
        token = tokens[position]
        position += 1
        if token in _DROPPED:
            continue
        if token in _WITH_ARGUMENT:
            position = partner.get(position, position - 1) + 1
        elif token in _UPRIGHT:
            bare = not (out and out[-1] in ("_", "^"))
            continue
        elif token == "{" and position - 1 in partner:
            open_groups.append(_Group(len(out), bare))
            counts.append(0)
            out.append(token)
        elif token == "}" and open_groups:
            group, count = open_groups.pop(), counts.pop()
            if group.bare or count < 2:
                out[group.begin] = ""
            else:
                out.append(token)
                count += 2
            counts[-1] += count
        elif token not in "{}":
            letters = _FUNCTIONS.get(token, (token,))
            out += letters
            counts[-1] += len(letters)
        bare = False
    return [token for token in out if token]


@dataclass(frozen=True, slots=True)
class _Group:
    """Braces that are open."""

    begin: int
    """Position of the opening one."""
    bare: bool
    """Were they the argument of a style that went: then they go too."""


def _with_primes(tokens: list[str]) -> Iterator[str]:
    """`f'` is `f^\\prime`, `f''` is `f^{\\prime\\prime}`."""
    for token, run in itertools.groupby(tokens):
        if token == "'":
            yield from ("^", "{", *("\\prime" for _ in run), "}")
        else:
            yield from run


def _partners(tokens: Sequence[str]) -> dict[int, int]:
    """Positions of opening braces, and of those that close them; a brace without partner is left out."""
    pending: list[int] = []
    found: dict[int, int] = {}
    for position, token in enumerate(tokens):
        if token == "{":
            pending.append(position)
        elif token == "}" and pending:
            found[pending.pop()] = position
    return found


def _unwrapped(text: str) -> str:
    """The formula without a fence and delimiters around all of it."""
    text = _FENCE.sub("", text.strip()).strip()
    for begin, end in _WRAPPERS:
        if text.startswith(begin) and text.endswith(end) and len(text) >= len(begin) + len(end):
            return text[len(begin) : -len(end)]
    return text


def _without_environment(tokens: list[str]) -> list[str]:
    for name in _ENVIRONMENTS:
        begin, end = ([command, "{", *name, "}"] for command in ("\\begin", "\\end"))
        if tokens[: len(begin)] == begin and tokens[-len(end) :] == end:
            return tokens[len(begin) : -len(end)]
    return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class _FormulaMetric(SampleMetric):
    """Compares two formulas by their tokens."""

    accepts: ClassVar[tuple[str, ...]] = ("text",)

    unicode: UnicodeForm = "nfc"
    """Unicode normal form."""

    def __post_init__(self) -> None:
        one_of("unicode", self.unicode, get_args(UnicodeForm))

    @property
    def signature(self) -> str:
        """E.g. `formula_match|unicode:nfc|v1`."""
        return f"{self.name}|unicode:{self.unicode}|v1"

    def tokens(self, text: str) -> list[str]:
        """The tokens of a formula in the chosen Unicode form."""
        return formula_tokens(compose(text, self.unicode))


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaMatch(_FormulaMetric):
    """1 if a formula equals a reference, normalised (see the module), else 0; over samples the mean."""

    name: ClassVar[str] = "formula_match"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """0 or 1, over 1. No text scores 0, even where an empty one is expected."""
        answer = read_text(prediction)
        tokens = None if answer is None else self.tokens(answer)
        expected = [
            self.tokens(reference_text(self.name, reference))
            for reference in acceptable(self.name, references)
        ]
        return over_one(float(tokens in expected))


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaEdit(_FormulaMetric):
    """Edits over tokens between two normalised formulas / tokens of the longer, in [0, 1]; 0 is equal.

    Over samples the mean. Both empty is 0.
    """

    name: ClassVar[str] = "formula_edit"
    higher_is_better: ClassVar[bool] = False

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Distance to the closest reference, over 1. No text scores 1."""
        from rapidfuzz.distance import Levenshtein

        answer = read_text(prediction)
        # rapidfuzz compares hashes; those of small numbers cannot collide
        number: dict[str, int] = {}

        def coded(text: str) -> list[int]:
            return [number.setdefault(token, len(number)) for token in self.tokens(text)]

        tokens = None if answer is None else coded(answer)

        def distance(reference: object) -> float:
            expected = coded(reference_text(self.name, reference))
            return 1.0 if tokens is None else Levenshtein.normalized_distance(tokens, expected)

        return over_one(min(map(distance, acceptable(self.name, references))))
