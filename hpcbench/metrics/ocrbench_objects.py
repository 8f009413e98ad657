"""Rules of OCRBench v2 where an answer is a table, a chart, a document or fields.

Fu et al., "OCRBench v2" (arXiv 2501.00321), `TEDS_metric.py` and `eval.py` in `eval_scripts` of its code
(`kits.OCRBENCH`):

- *Table*: TEDS (hpcbench.metrics.table_similarity) with the reference.
- *Chart*: TEDS of two tables with a row for each key of an object and the text of its value.
- *Document*: likeness of two outlines, 1 - edit distance / nodes of the larger tree. An outline is a root
  with a node for the title and one for each heading, whatever its level; lines are children of the heading
  above them, or of the title. The words do not count, only which lines are blank.
- *Fields*: right fields / fields on either side (`kie_f1_macro`); a list in the reference holds the values
  that are right.

Rules of the published code that count only if `published`: an answer in the other of HTML and Markdown is no
table; TEDS is PubTabNet's, and 0 for a pair in HTML on which that code raises (a cell's span that is no
number, two empty tables); letters of "markdown" are cut off both ends of a table in it; between all
characters of a chart's values are spaces, and JSON's true and null make an answer none; a blank line is no
blank line's equal, so that a document with one is not like itself, and lines under a heading go to the first
heading or line of its words; null is the text "None".
"""

from __future__ import annotations

import functools
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpcbench.metrics.base import TooLarge
from hpcbench.metrics.fields import KieF1Macro
from hpcbench.metrics.literals import fences, literal, read_object
from hpcbench.metrics.normalise import UnicodeForm
from hpcbench.metrics.ocrbench_boxes import published_object
from hpcbench.metrics.table_similarity import Teds
from hpcbench.metrics.tree_distance import Tree, tree_distance

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_LINES = 2000
"""Lines of a document above which `TooLarge` is raised: time grows with the product."""


# --- tables ---------------------------------------------------------------------------------------------


def table(answer: str, expected: str, unicode: UnicodeForm) -> float:
    """TEDS of the tables of two texts, in HTML or Markdown.

    Raises:
        TooLarge: see `Teds`.
    """
    return _teds(False, unicode).score(answer, [expected]).numerator


def published_table(answer: str, expected: str, markdown: bool) -> float:
    """The same as published; `markdown` says which of the two is read."""
    if markdown:
        return _published_teds(_from_markdown(answer), _from_markdown(expected))
    answer = answer.replace("\n", "")
    begins = [at for at in (answer.find("<body"), answer.find("<table")) if at >= 0]
    if not begins:
        return 0.0
    pair = _wrapped(answer[begins[0] :]), _wrapped(expected)
    # Where PubTabNet's code raises, on a span that is no number and on two empty tables, the score is 0.
    tables = [_teds(True, "none").tree(text) for text in pair]
    empty = not any(table.nodes for table in tables if table)
    if empty or not all(table.spans_read for table in tables if table):
        return 0.0
    return _published_teds(*pair)


def _published_teds(answer: str, expected: str) -> float:
    return _teds(True, "none").score(answer, [expected]).numerator


@functools.cache
def _teds(published: bool, unicode: UnicodeForm) -> Teds:
    return Teds(compat="pubtabnet") if published else Teds(unicode=unicode)


def _wrapped(text: str) -> str:
    """HTML with what it lacks of table, body and html around it."""
    text = text.replace("\n", "")
    opened, closed = "<table" in text, "</table>" in text
    text = ("" if opened else "<table>") + text + ("" if closed else "</table>")
    if "<body>" not in text:
        text = f"<body>{text}</body>"
    return text if "<html>" in text else f"<html>{text}</html>"


def _from_markdown(text: str) -> str:
    """A table in HTML of lines with pipes: the second line is left out, whatever it is."""
    lines = text.strip("`markdown").strip("`").strip().split("\n")
    rows = [line.strip().split("|")[1:-1] for line in [lines[0], *lines[2:]]]
    return _html([[_padded(cell) for cell in row] for row in rows])


def _padded(cell: str) -> str:
    return " " if cell and not cell.strip(" ") else cell.strip()


def _html(rows: Sequence[Sequence[str]]) -> str:
    cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<html><body><table>{body}</table></body></html>"


# --- charts ---------------------------------------------------------------------------------------------


def chart(answer: str, expected: Mapping[Any, Any], unicode: UnicodeForm) -> float:
    """TEDS of the objects as tables; an answer without an object is 0.

    Raises:
        TooLarge: see `Teds`.
    """
    given = read_object(answer)
    if given is None:
        return 0.0
    return _teds(False, unicode).score(_chart(given), [_chart(expected)]).numerator


def _chart(data: Mapping[Any, Any]) -> str:
    return _html([[html.escape(_written(key)), html.escape(_written(data[key]))] for key in data])


def _written(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        return ""


def published_chart(answer: str, expected: Mapping[Any, Any]) -> float:
    """The same as published."""
    content = max(fences(answer), key=len, default=answer.strip())
    content = re.sub(r"^\s*\w+\s*=\s*", "", content.strip(), count=1)
    content = re.sub("#.*", "", content)
    end = content.rfind("}")
    given = literal(content[: end + 1] if end >= 0 else content)
    if not isinstance(given, dict) or not given:
        return 0.0
    return _published_teds(_published_chart(given), _published_chart(expected))


def _published_chart(data: Mapping[Any, Any]) -> str:
    try:
        rows = [f"<td>{key}</td><td>{' '.join(str(data[key]))}</td>" for key in data]
    except (ValueError, RecursionError):  # more digits, or deeper, than Python writes
        return ""
    body = "".join(f"  <tr>{row}</tr>\n" for row in rows)
    return f"<html><body><table>\n{body}</table></body></html>"


# --- documents ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    label: str
    children: list[_Node] = field(default_factory=list)


def document(answer: str, expected: str, published: bool) -> float:
    """Likeness of two outlines in Markdown.

    Raises:
        TooLarge: one has more than 2,000 lines.
    """
    said, known = (_tree(_outline(text, published), published) for text in (answer, expected))
    distance = tree_distance(said, known, _rename)
    value = 1 - distance / max(len(said.labels), len(known.labels))
    return value if published else max(0.0, value)


def _outline(text: str, published: bool) -> _Node:
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        raise TooLarge(f"a document has {len(lines)} lines; at most {MOST_LINES} are compared")
    title = _Node("TITLE")
    root = _Node("ROOT", [title])
    under = title
    for line in map(_cleaned, lines):
        if not line.startswith("#"):
            under.children.append(_Node(line))
            continue
        heading = _Node(line.replace("#", ""))
        root.children.append(heading)
        under = heading
        if published:
            under = _first(root, heading.label) if heading.label else _first(root, "TITLE")
    return root


def _first(root: _Node, label: str) -> _Node:
    """The first node of a label, parents before children; there is one."""
    pending = [root]
    while True:
        node = pending.pop()
        if node.label == label:
            return node
        pending += reversed(node.children)


def _cleaned(line: str) -> str:
    """A line without tokens of models, with pieces of words joined and less space around LaTeX's signs."""
    for pattern, instead in _CLEANING:
        line = pattern.sub(instead, line)
    return line.replace("\n", " ").replace("*", " ").replace("_", " ")


_CLEANING = [
    (re.compile(r"<(?:bos|eos|pad|unk)>"), ""),
    (re.compile(r"\s##(?=\S)"), ""),
    (re.compile(r"\\\s"), r"\\"),
    (re.compile(r"\s\*\s\*\s"), "**"),
    (re.compile(r"\{\s"), "{"),
    (re.compile(r"\s\}"), "}"),
    (re.compile(r"\s\}"), "}"),
    (re.compile(r"\\(begin|end)\s"), r"\\\1"),
    (re.compile(r"\\end\{table\}"), r"\\end{table} \n\n"),
]


def _tree(root: _Node, published: bool) -> Tree:
    """In postorder; of a label only whether it is blank is left. As published, a blank one has no equal."""
    labels: list[object] = []
    starts: list[int] = []
    pending: list[tuple[_Node, int]] = [(root, -1)]
    while pending:
        node, start = pending.pop()
        if start < 0 and node.children:
            pending.append((node, len(labels)))
            pending += [(child, -1) for child in reversed(node.children)]
            continue
        starts.append(len(labels) if start < 0 else start)
        blank = not node.label.split()
        labels.append((_BLANK if not published else _Blank()) if blank else "text")
    return Tree(labels, starts)


class _Blank:
    """A label that is equal to itself alone."""


_BLANK = _Blank()


def _rename(first: Sequence[Any], second: Sequence[Any]) -> NDArray[Any]:
    import numpy

    number: dict[Any, int] = {}
    codes, others = (
        numpy.array([number.setdefault(label, len(number)) for label in labels])
        for labels in (first, second)
    )
    costs: NDArray[Any] = (codes[:, None] != others).astype(float)
    return costs


# --- fields ---------------------------------------------------------------------------------------------


def fields(answer: str, expected: Mapping[Any, Any], unicode: UnicodeForm) -> float:
    """Right fields / fields on either side, of the object in an answer."""
    options = _fields(False, unicode)
    given = read_object(answer)
    chosen = {key: _accepted(options, key, expected[key], given or {}) for key in expected}
    return options.score(given, [chosen]).numerator


def _accepted(options: KieF1Macro, key: object, values: object, given: Mapping[Any, Any]) -> object:
    """The expected value: the predicted one if it is right, else the first; None (no field) without any."""
    if not isinstance(values, (list, tuple)):
        return values
    right = (
        one for one in values if key in given and options.count({key: given[key]}, {key: one}).right
    )
    return next(right, values[0] if values else None)


def published_fields(answer: str, expected: Mapping[Any, Any]) -> float:
    """The same as published."""
    return _fields(True, "none").score(published_object(answer), [expected]).numerator


@functools.cache
def _fields(published: bool, unicode: UnicodeForm) -> KieF1Macro:
    return KieF1Macro(compat="ocrbench-v2") if published else KieF1Macro(unicode=unicode)
