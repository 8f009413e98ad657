"""Similarity of tables: TEDS over structure and content, TEDS-S over structure alone.

Zhong et al. 2020, "Image-based table recognition: data, model, and evaluation" (arXiv 1911.10683):
TEDS = 1 - edit distance of the two trees / nodes of the larger one. The tree is table → row → cell, nodes are
counted without the table itself. Inserting or deleting a node costs 1; renaming costs 1 if tag, colspan or
rowspan differ, else, between two cells, the normalised Levenshtein distance of their contents. TEDS-S
leaves the contents out (`structure_only` of PubTabNet's code).

Ours compares what the tables say: `<th>` is a cell, sections (`<thead>` and the like) and tags inside cells
are dropped, texts are composed and their whitespace collapsed, pieces of HTML and Markdown tables are read
(hpcbench.metrics.markup), much as OmniDocBench prepares tables (`normalized_html_table`; Ouyang et al. 2024,
arXiv 2412.07626). Where both tables are plain `<html><body><table>` of `<tr>` and `<td>` with plain text, the
value is that of PubTabNet's code. If a text has several tables, the one with most rows and cells counts, the
first if equal. Nothing where no table belongs is 1.

`compat="pubtabnet"` is PubTabNet's code (`src/metric.py`), read with the same parser, lxml's: only
`<html><body><table>` is a table; sections are nodes; the text of `<th>` is ignored and `<th>` is not `<td>`;
tags inside `<td>` count as a token each and as nodes of the table; whitespace counts. Where that code raises
we give a value: two empty tables are 1, a span that is no number is 1, text that lxml refuses is no table.
Its values can fall below 0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hpcbench.metrics.base import (
    Parts,
    SampleMetric,
    TooLarge,
    acceptable,
    over_one,
    take_dialect,
)
from hpcbench.metrics.kits import PUBTABNET, Dialect
from hpcbench.metrics.markup import Table, read_tables
from hpcbench.metrics.normalise import (
    TextMetric,
    TextOptions,
    Whitespace,
    read_text,
    reference_text,
)
from hpcbench.metrics.tree_distance import Tree, tree_distance

if TYPE_CHECKING:
    from numpy.typing import NDArray

Content = str | tuple[str, ...]
"""Content of a cell: its text, or tokens where there are tags among the characters."""


@dataclass(frozen=True, slots=True)
class Node:
    """Label of a node: equal ones are the same."""

    kind: Hashable
    """Tag and spans: where they differ, renaming costs 1."""
    content: Content = ""
    """Content of a cell; empty for other nodes."""


@dataclass(frozen=True, slots=True)
class TableTree:
    """A table ready to be compared."""

    tree: Tree
    nodes: int
    """Number of nodes by which TEDS divides: usually all but the root."""
    spans_read: bool = True
    """Whether all spans are numbers; PubTabNet's code raises where one is not."""


class _TableMetric(SampleMetric):
    """Compares two tables; no table where one belongs, or one where none does, is 0."""

    __slots__ = ()
    accepts: ClassVar[tuple[str, ...]] = ("text",)
    markdown: bool
    max_nodes: int
    compat: str

    def score(self, prediction: object, references: Sequence[object]) -> Parts:
        """Similarity to the closest reference, over 1. No text scores 0.

        Raises:
            TooLarge: a table has more than `max_nodes` rows and cells.
        """
        answer = read_text(prediction)
        table = None if answer is None else self.tree(answer)
        if table is not None:
            _refuse_above(self.max_nodes, table.nodes)

        def similarity(reference: object) -> float:
            expected = self.tree(reference_text(self.name, reference))
            if expected is not None:
                _refuse_above(self.max_nodes, expected.nodes)
            if expected is None or table is None:
                nothing = expected is None and table is None and answer is not None
                return float(nothing and not self.compat)
            value = _similarity(table, expected)
            return value if self.compat else max(0.0, value)  # a row against many can lose more

        return over_one(max(map(similarity, acceptable(self.name, references))))

    def tree(self, text: str) -> TableTree | None:
        """The table of a text, if there is one.

        Raises:
            TooLarge: it has more than `max_nodes` rows and cells.
        """
        if self.compat:
            return _pubtabnet(text, self._published_cell)
        table = _largest(text, self.markdown, self.max_nodes)
        return None if table is None else _plain(table, self._cell)

    def _cell(self, text: str) -> str:
        """The compared content of a cell."""
        raise NotImplementedError

    def _published_cell(self, cell: Any) -> Content:
        """The same of an element of lxml's, under `compat`."""
        raise NotImplementedError

    def _check(self) -> None:
        if self.max_nodes < 1:
            raise ValueError(f"max_nodes is {self.max_nodes}; it must be at least 1")

    def _own(self) -> tuple[str, ...]:
        compat = (f"compat:{self.compat}",) if self.compat else ()
        markdown = "yes" if self.markdown else "no"
        return (self.name, *compat, f"markdown:{markdown}", f"max:{self.max_nodes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Teds(_TableMetric, TextMetric):
    """Similarity of two tables by structure and content, in [0, 1]; see the module for what is compared.

    Over samples the mean. No table where one belongs, or one where none does, is 0.
    """

    name: ClassVar[str] = "teds"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "pubtabnet": Dialect(
            {"whitespace": "keep", "unicode": "none", "markdown": False},
            PUBTABNET,
            ("src/metric.py",),
        )
    }

    whitespace: Whitespace = "collapse"
    markdown: bool = True
    """Whether tables in Markdown are read, too."""
    max_nodes: int = 5000
    """Rows and cells of a table above which `TooLarge` is raised: time and memory grow with the product."""
    compat: str = ""
    """`pubtabnet`: compute the metric as PubTabNet does."""

    def __post_init__(self) -> None:
        take_dialect(self)
        TextOptions.__post_init__(self)
        self._check()

    @property
    def signature(self) -> str:
        """E.g. `teds|markdown:yes|max:5000|case:keep|ws:collapse|unicode:nfc|v1`."""
        return self.describe(*self._own())

    def _cell(self, text: str) -> str:
        return self.normalise(text)

    def _published_cell(self, cell: Any) -> Content:
        return _tokens(cell)


@dataclass(frozen=True, slots=True, kw_only=True)
class TedsS(_TableMetric):
    """Similarity of two tables by structure alone, in [0, 1]: `teds` of tables without any text."""

    name: ClassVar[str] = "teds_s"
    dialects: ClassVar[Mapping[str, Dialect]] = {
        "pubtabnet": Dialect({"markdown": False}, PUBTABNET, ("src/metric.py",))
    }

    markdown: bool = True
    """Whether tables in Markdown are read, too."""
    max_nodes: int = 5000
    """Rows and cells of a table above which `TooLarge` is raised: time and memory grow with the product."""
    compat: str = ""
    """`pubtabnet`: compute the metric as PubTabNet does."""

    def __post_init__(self) -> None:
        take_dialect(self)
        self._check()

    @property
    def signature(self) -> str:
        """E.g. `teds_s|markdown:yes|max:5000|v1`."""
        return "|".join((*self._own(), "v1"))

    def _cell(self, text: str) -> str:
        return ""

    def _published_cell(self, cell: Any) -> Content:
        return ""


def _refuse_above(most: int, nodes: int) -> None:
    if nodes > most:
        raise TooLarge(f"a table has {nodes} rows and cells; max_nodes is {most}")


def _similarity(first: TableTree, second: TableTree) -> float:
    nodes = max(first.nodes, second.nodes)
    distance = tree_distance(first.tree, second.tree, _rename)
    return 1.0 - distance / nodes if nodes else 1.0


def _rename(first: Sequence[Any], second: Sequence[Any]) -> NDArray[Any]:
    """Cost per pair of nodes: 1 where the kinds differ, else how much the contents do."""
    import numpy
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    number: dict[Hashable, int] = {}
    kinds, other_kinds = (
        numpy.array([number.setdefault(node.kind, len(number)) for node in nodes])
        for nodes in (first, second)
    )
    tags: dict[str, int] = {}
    contents, others = (_comparable(nodes, tags) for nodes in (first, second))
    if any(contents) or any(others):
        costs = process.cdist(
            contents, others, scorer=Levenshtein.normalized_distance, dtype=numpy.float64
        )
    else:
        costs = numpy.zeros((len(first), len(second)))
    costs[kinds[:, None] != other_kinds] = 1
    return costs


def _comparable(nodes: Sequence[Any], tags: dict[str, int]) -> list[str | list[int]]:
    """Contents as rapidfuzz compares them; a tag is a number that no character has."""
    return [
        node.content
        if isinstance(node.content, str)
        else [
            ord(token)
            if len(token) == 1
            else tags.setdefault(token, sys.maxunicode + 1 + len(tags))
            for token in node.content
        ]
        for node in nodes
    ]


def _largest(text: str, markdown: bool, max_nodes: int) -> Table | None:
    table = max(read_tables(text, markdown), key=lambda table: table.nodes, default=None)
    if table is not None:
        _refuse_above(max_nodes, table.nodes)  # before it is filled up: a wide header has no limit
    return table


def _plain(table: Table, normalise: Callable[[str], str]) -> TableTree:
    labels: list[Node] = []
    starts: list[int] = []
    for row in table.rows:
        begin = len(labels)
        cells = [Node(("td", cell.colspan, cell.rowspan), normalise(cell.text)) for cell in row]
        labels += cells + [Node(("td", 1, 1))] * (table.columns - len(row))
        starts += range(begin, len(labels))
        labels.append(Node("tr"))
        starts.append(begin)
    labels.append(Node("table"))
    starts.append(0)
    return TableTree(Tree(labels, starts), len(labels) - 1)


def _pubtabnet(text: str, content: Callable[[Any], Content]) -> TableTree | None:
    """The table as PubTabNet's code reads it, with the parser that it uses.

    That parser fetches nothing, expands no entities of documents (HTML has none) and, with the limits that
    lxml leaves on, stops at a depth and a size it can bear.
    """
    from lxml import html

    parser = html.HTMLParser(remove_comments=True, encoding="utf-8", no_network=True)
    try:
        tables = html.fromstring(text, parser=parser).xpath("body/table")
    except Exception:  # noqa: BLE001  # lxml raises many kinds on odd texts, and each means that it read no table
        return None
    if not tables:
        return None
    labels: list[Node] = []
    starts: list[int] = []
    spans_read = True
    pending: list[tuple[Any, int]] = [
        (tables[0], -1)
    ]  # an element, and where its subtree began if done
    while pending:
        element, start = pending.pop()
        is_cell = element.tag == "td"
        if start < 0 and not is_cell:
            pending.append((element, len(labels)))
            pending += ((child, -1) for child in reversed(element))
            continue
        starts.append(len(labels) if start < 0 else start)
        if is_cell:
            spans = [_number(element.get(name, "1")) for name in ("colspan", "rowspan")]
            spans_read = spans_read and None not in spans
            labels.append(
                Node(("td", *(1 if span is None else span for span in spans)), content(element))
            )
        else:
            labels.append(Node(element.tag if isinstance(element.tag, str) else "?"))
    return TableTree(Tree(labels, starts), len(tables[0].xpath(".//*")), spans_read)


def _number(span: str) -> int | None:
    try:
        return int(span)
    except ValueError:
        return None


def _tokens(cell: Any) -> Content:
    """Characters and tags inside a cell; text after the end of a nested cell is lost, as in that code."""
    if not len(cell):
        return cell.text or ""
    from lxml import etree

    tokens = list(cell.text or "")
    for event, element in etree.iterwalk(cell, events=("start", "end", "pi")):
        if element is cell:
            continue
        tag = element.tag if isinstance(element.tag, str) else "?"
        if event != "end":
            tokens += [f"<{tag}>", *(element.text or "")]
        if event != "start":
            tokens += [f"</{tag}>"] if tag != "unk" else []
            tokens += (element.tail or "") if tag != "td" else ""
    return tuple(tokens)
