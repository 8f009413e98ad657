"""Metrics over whole pages in Markdown: the text of a page, and the order of its blocks.

Both first make pages comparable, whatever a model marks them up with:

- tables of HTML and Markdown (hpcbench.metrics.markup) become lines of `| cell | cell |`, or go;
- formulas between `$…$`, `$$…$$`, `\\(…\\)` and `\\[…\\]` become `$…$` around their tokens
  (hpcbench.metrics.formulas), or go;
- images, HTML comments and tags, the lines of code fences, rules and marks of headings, quotes and emphasis
  go; a link is its text; all marks of a list are `-`;
- then the options of text apply, by default NFC and collapsed whitespace, so that line breaks do not count.

In spirit these are the text and the reading order edit distance of OmniDocBench (Ouyang et al. 2024, arXiv
2412.07626), in which 0 is best. It has the blocks of the reference and their kinds as annotations, matches
text, formulas and tables apart and leaves headers and footers out; here a reference is a page in Markdown,
and nothing more is known. So its published numbers are not comparable with these. Nor is anything drawn:
where formulas or tables only look the same, they differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from hpcbench.metrics.base import (
    Parts,
    TooLarge,
    acceptable,
    over_one,
)
from hpcbench.metrics.formulas import formula_tokens
from hpcbench.metrics.markup import plain_text, read_tables
from hpcbench.metrics.normalise import (
    TextMetric,
    TextOptions,
    Whitespace,
    one_of,
    read_text,
    reference_text,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Special = Literal["canonical", "drop"]
"""Treatment of tables and formulas: one form for all ways to write them, or left out."""

# No repetition can run past what opens the next match: time grows with the length of the text alone.
_FORMULA = re.compile(
    r"(?<![\\$])\$\$([^$]+)\$\$|(?<![\\$])\$(?![\s$])([^$\n]*[^$\s\\])\$(?![\d$])"
    r"|(?<!\\)\\\[([^\\]*(?:\\[^\[\]][^\\]*)*)\\\]|(?<!\\)\\\(([^\\]*(?:\\[^()][^\\]*)*)\\\)"
)
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()]*\)")
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()]*\)")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE)
_RULE = re.compile(r"^[ \t]*(?:[-*_=][ \t]*){3,}$", re.MULTILINE)
_QUOTE = re.compile(r"^[ \t]*(?:>[ \t]*)+", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t]+(\S.*)$", re.MULTILINE)
_BULLET = re.compile(r"^([ \t]*)[*+•‣◦▪][ \t]+", re.MULTILINE)
_STRONG = re.compile(r"\*\*([^*\n]+)\*\*")
_EMPHASIS = re.compile(r"(?<![\w*])\*([^*\s][^*\n]*)\*(?![\w*])")
_AWAY = re.compile(r"\0([0-9]+)\0")  # a formula that was put away while marks are looked for
_BLANK = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions(TextMetric):
    """How pages in Markdown are made comparable; see the module."""

    higher_is_better: ClassVar[bool] = False
    accepts: ClassVar[tuple[str, ...]] = ("text",)

    whitespace: Whitespace = "collapse"
    tables: Special = "canonical"
    """How to treat tables."""
    formulas: Special = "canonical"
    """How to treat formulas."""

    def __post_init__(self) -> None:
        TextOptions.__post_init__(self)
        one_of("tables", self.tables, get_args(Special))
        one_of("formulas", self.formulas, get_args(Special))

    def blocks(self, text: str) -> list[str]:
        """Paragraphs, headings and tables of a page in its order, each as it is compared; none is empty."""
        text = text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")
        blocks = (self.normalise(block) for block in self._raw_blocks(text))
        return [block for block in blocks if block]

    def describe_page(self, *parts: str) -> str:
        """A signature: name and own options, then those of the page."""
        return self.describe(*parts, f"tables:{self.tables}", f"formulas:{self.formulas}")

    def _raw_blocks(self, text: str) -> Iterator[str]:
        at = 0
        for table in read_tables(text):
            yield from self._paragraphs(text[at : table.begin])
            if self.tables == "canonical":
                rows = ([self._cell(cell.text) for cell in row] for row in table.rows)
                yield "\n".join(f"| {' | '.join(row)} |" for row in rows)
            at = table.end
        yield from self._paragraphs(text[at:])

    def _cell(self, text: str) -> str:
        return self.normalise(_FORMULA.sub(lambda match: self._formula(match), text))

    def _paragraphs(self, text: str) -> list[str]:
        found: list[str] = []

        def put_away(match: re.Match[str]) -> str:
            found.append(self._formula(match))
            return f"\0{len(found) - 1}\0"

        text = _without_markup(_FORMULA.sub(put_away, text))
        return _BLANK.split(_AWAY.sub(lambda match: found[int(match[1])], text))

    def _formula(self, match: re.Match[str]) -> str:
        if self.formulas == "drop":
            return ""
        return f"${' '.join(formula_tokens(match[match.lastindex or 0]))}$"


def _without_markup(text: str) -> str:
    text = plain_text(_IMAGE.sub("", text))
    for pattern, written in _WRITTEN:
        text = pattern.sub(written, text)
    return text


def _title(match: re.Match[str]) -> str:
    title = match[1].rstrip()
    closed = title.rstrip("#")
    title = closed if closed.endswith((" ", "\t")) else title  # else it is a C#
    return f"\n\n{title}\n\n"


_WRITTEN: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (_LINK, r"\1"),
    (_FENCE, ""),
    (_RULE, "\n"),
    (_QUOTE, ""),
    (_HEADING, _title),
    (_BULLET, r"\1- "),
    (_STRONG, r"\1"),
    (_EMPHASIS, r"\1"),
)
"""Replacement of each kind of mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownEdit(PageOptions):
    """Edits that turn one page into the other / characters of the longer, in [0, 1]; 0 is equal.

    Over samples the mean. Both empty is 0. OmniDocBench sums distances over the blocks of a page it has
    matched; here the page is one text, so blocks in another order cost edits.
    """

    name: ClassVar[str] = "markdown_edit"

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Distance to the closest reference, over 1. No text scores 1."""
        from rapidfuzz.distance import Levenshtein

        answer = read_text(prediction)
        page = None if answer is None else self.page(answer)

        def distance(reference: object) -> float:
            expected = self.page(reference_text(self.name, reference))
            return 1.0 if page is None else Levenshtein.normalized_distance(page, expected)

        return over_one(min(map(distance, acceptable(self.name, references))))

    @property
    def signature(self) -> str:
        """E.g. `markdown_edit|tables:canonical|formulas:canonical|case:keep|ws:collapse|unicode:nfc|v1`."""
        return self.describe_page(self.name)

    def page(self, text: str) -> str:
        """A page as it is compared."""
        return self.normalise("\n\n".join(self.blocks(text)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOrder(PageOptions):
    """Edits between the order of blocks and the right one / blocks, in [0, 1]; 0 is the right order.

    Blocks of both pages are matched one to one so that the sum of similarities (1 - edit distance / longer
    length) is greatest, pairs below `threshold` left apart, and of equally similar pairs those at like places
    preferred. The reference's blocks are numbered; the numbers in the prediction's order are compared with
    1, 2, 3, …: insertions, deletions and substitutions / the length of the longer sequence, as OmniDocBench's
    `get_order_paired` does. So a block that is missing costs as much as one at a wrong place, while one that
    the prediction adds costs nothing. Over samples the mean; a reference without blocks is 0.
    """

    name: ClassVar[str] = "reading_order"

    threshold: float = 0.5
    """Similarity from which two blocks can be the same."""
    missing: bool = True
    """Whether blocks that the prediction lacks count; if not, a prediction without any of them is 1."""
    max_blocks: int = 2000
    """Blocks of a page above which `TooLarge` is raised: time and memory grow with the product."""

    def __post_init__(self) -> None:
        PageOptions.__post_init__(self)
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold is {self.threshold}; it must be above 0 and at most 1")
        if self.max_blocks < 1:
            raise ValueError(f"max_blocks is {self.max_blocks}; it must be at least 1")

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Distance to the order of the closest reference, over 1. No text scores 1.

        Raises:
            TooLarge: a page has more than `max_blocks` blocks.
        """
        answer = read_text(prediction)
        blocks = None if answer is None else self._bounded(answer)

        def distance(reference: object) -> float:
            expected = self._bounded(reference_text(self.name, reference))
            return 1.0 if blocks is None else self._distance(blocks, expected)

        return over_one(min(map(distance, acceptable(self.name, references))))

    @property
    def signature(self) -> str:
        """E.g. `reading_order|min:0.5|missing:yes|max:2000|tables:canonical|formulas:canonical|…|v1`."""
        missing = "yes" if self.missing else "no"
        own = (f"min:{self.threshold:g}", f"missing:{missing}", f"max:{self.max_blocks}")
        return self.describe_page(self.name, *own)

    def _bounded(self, text: str) -> list[str]:
        blocks = self.blocks(text)
        if len(blocks) > self.max_blocks:
            raise TooLarge(f"a page has {len(blocks)} blocks; max_blocks is {self.max_blocks}")
        return blocks

    def _distance(self, blocks: list[str], expected: list[str]) -> float:
        from rapidfuzz.distance import Levenshtein

        if not expected or blocks == expected:
            return 0.0
        order = _match(blocks, expected, self.threshold) if blocks else []
        right = list(range(len(expected))) if self.missing else sorted(order)
        return Levenshtein.normalized_distance(order, right) if right else 1.0


def _match(blocks: list[str], expected: list[str], threshold: float) -> list[int]:
    """For each block that has a partner, in order, the number of that one among the expected."""
    import numpy
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein
    from scipy.optimize import linear_sum_assignment

    similar: NDArray[Any] = process.cdist(
        blocks, expected, scorer=Levenshtein.normalized_similarity, dtype=numpy.float64
    )
    alike = similar >= threshold
    places = numpy.arange(len(blocks))[:, None] / len(blocks)
    apart = (places - numpy.arange(len(expected)) / len(expected)) ** 2
    gain = numpy.where(alike, similar - 1e-6 * apart, 0)
    rows, columns = linear_sum_assignment(gain, maximize=True)
    return [int(column) for row, column in zip(rows, columns, strict=True) if alike[row, column]]
