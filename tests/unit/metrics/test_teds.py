"""TEDS and TEDS-S: published values, PubTabNet's definition, and tables as models write them."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
from apted import APTED, Config
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html
from rapidfuzz.distance import Levenshtein

from hpcbench.metrics import Teds, TedsS, score, teds, teds_s
from hpcbench.metrics.base import TooLarge
from tests.campaign import first


def page(body: str) -> str:
    return f"<html><body><table>{body}</table></body></html>"


def plain(*rows: str | list[str]) -> str:
    """A table of rows; of a text each character is a cell."""
    cells = ("".join(f"<td>{text}</td>" for text in row) for row in rows)
    return page("".join(f"<tr>{row}</tr>" for row in cells))


PUBTABNET = [
    (plain("12", "34"), plain("12", "35"), 0.833333, 1.0),
    (plain(["a", "b"], ["c", "ab"]), plain(["a", "b"], ["c", "ax"]), 0.916667, 1.0),
    (plain("abc", "def"), plain("ab", "de"), 0.75, 0.75),
    (page("<tr><td colspan=2>a</td></tr>"), page("<tr><td>a</td></tr>"), 0.5, 0.5),
    (page("<tr><th>AAAA</th></tr>"), page("<tr><th>BBBB</th></tr>"), 1.0, 1.0),
    (page("<thead><tr><td>a</td></tr></thead><tbody><tr><td>b</td></tr></tbody>"),
     plain("a", "b"), 0.666667, 0.666667),
    (plain([" 1 "]), plain("1"), 0.666667, 1.0),
    (plain([""]), plain(["abc"]), 0.5, 1.0),
    ("", plain("1"), 0.0, 0.0),
    ("no table", plain("1"), 0.0, 0.0),
    ("<table><tr><td>1</td></tr></table>", plain("1"), 0.0, 0.0),
]  # fmt: skip
"""Prediction, reference, TEDS and TEDS-S as PubTabNet's code gives them."""


@pytest.mark.parametrize(("prediction", "reference", "both", "structure"), PUBTABNET)
def test_pubtabnets_values(prediction: str, reference: str, both: float, structure: float) -> None:
    assert teds(prediction, [reference], compat="pubtabnet") == pytest.approx(both, abs=1e-6)
    assert teds_s(prediction, [reference], compat="pubtabnet") == pytest.approx(structure, abs=1e-6)


@pytest.mark.parametrize(("prediction", "reference", "both", "structure"), PUBTABNET[:4])
def test_the_default_is_the_same_for_plain_tables(
    prediction: str, reference: str, both: float, structure: float
) -> None:
    assert teds(prediction, [reference]) == pytest.approx(both, abs=1e-6)
    assert teds_s(prediction, [reference]) == pytest.approx(structure, abs=1e-6)


@pytest.mark.parametrize(
    ("prediction", "reference", "both"),
    [
        (page("<tr><th>AAAA</th></tr>"), page("<tr><th>BBBB</th></tr>"), 0.5),
        (page("<tr><th>a</th></tr>"), plain("a"), 1),
        (page("<thead><tr><td>a</td></tr></thead><tbody><tr><td>b</td></tr></tbody>"), plain("a", "b"), 1),
        (plain([" 1 "]), plain("1"), 1),
        (plain(["a\n  b"]), plain(["a b"]), 1),
        (plain(["a<br>b"]), plain(["a b"]), 1),
        (plain(["<b>1</b><sup>2</sup>"]), plain(["12"]), 1),
        (plain(["&lt;5&nbsp;%"]), plain(["<5 %"]), 1),
        (plain(["и\u0306"]), plain(["й"]), 1),
        ("<tr><td>a</td></tr>", plain("a"), 1),
        ("<table><tr><td>a<td>b<tr><td>c<td>d", plain("ab", "cd"), 1),
        ("Here it is:\n```html\n" + plain("ab") + "\n```\nAnything else?", plain("ab"), 1),
        ("| a | b |\n|---|:-:|\n| c | d |", plain("ab", "cd"), 1),
        ("Table 1\n\na | b\n--|--\nc | d\n\nthe end", plain("ab", "cd"), 1),
        ("|a|b|\n|c|d|", plain("ab", "cd"), 1),
        ("| **a** | b \\| c |\n|---|---|\n| d |", plain(["a", "b | c"], ["d", ""]), 1),
        ("<table><caption>T</caption><colgroup><col></colgroup><tr><td>a</table>", plain("a"), 1),
        ("<!-- <table> -->" + plain("a") + plain("ab"), plain("ab"), 1),  # the largest
        ("<td colspan='2x' rowspan=0>a</td>", page("<tr><td colspan=2>a</td></tr>"), 1),
        ("<td colspan=huge rowspan=-1>a</td>", plain("a"), 1),
        (plain("abcdefghi"), page("<tr></tr>" * 10), 0),  # a little below 0 before it is cut
        (page(""), page(""), 1),
        (page(""), plain("a"), 0),
        ("", "", 1),
        ("no table", "none here", 1),
        (plain("a"), "none here", 0),
        ("none", plain("a"), 0),
    ],
)  # fmt: skip
def test_what_a_table_says_counts_not_how_it_is_marked(
    prediction: str, reference: str, both: float
) -> None:
    assert teds(prediction, [reference]) == pytest.approx(both)
    assert teds(reference, [prediction]) == pytest.approx(both)
    assert teds_s(prediction, [reference]) >= teds(prediction, [reference])


def test_values_of_the_dialect_where_that_code_raises_or_goes_below_0() -> None:
    for name in ("teds", "teds_s"):
        assert score(name, page(""), [page("")], compat="pubtabnet") == 1
        assert score(name, "", [""], compat="pubtabnet") == 0
        broken = page("<tr><td colspan=two>a</td></tr>")
        assert score(name, broken, [plain("a")], compat="pubtabnet") == 1
        rows = page("<tr></tr>" * 10)
        assert score(name, plain("abcdefghi"), [rows], compat="pubtabnet") == pytest.approx(-0.1)
    assert score("teds", None, [""]) == 0  # nothing could be read


def test_the_best_reference_counts() -> None:
    assert teds(plain("ab"), [plain("xy"), plain("ab"), plain("a")]) == 1
    assert Teds().aggregate([Teds().score(plain(c), [plain("a")]) for c in "ab"]) == 0.75


def test_markdown_can_be_left_unread() -> None:
    markdown = "| a |\n|---|"
    assert teds(markdown, [plain("a")]) == 1
    assert teds(markdown, [plain("a")], markdown=False) == 0


def test_signatures_tell_the_dialect() -> None:
    assert Teds().signature == "teds|markdown:yes|max:5000|case:keep|ws:collapse|unicode:nfc|v1"
    assert TedsS().signature == "teds_s|markdown:yes|max:5000|v1"
    assert Teds(compat="pubtabnet").signature == (
        "teds|compat:pubtabnet|markdown:no|max:5000|case:keep|ws:keep|unicode:none|v1"
    )
    assert TedsS(compat="pubtabnet").signature == "teds_s|compat:pubtabnet|markdown:no|max:5000|v1"
    with pytest.raises(ValueError, match="compat"):
        Teds(compat="pubtabnets")
    with pytest.raises(ValueError, match="max_nodes is 0"):
        TedsS(max_nodes=0)


class Node:
    def __init__(self, tag: Any, content: list[str], spans: tuple[Any, ...] = ()) -> None:
        self.tag, self.content, self.spans, self.children = tag, content, spans, list[Node]()


class Costs(Config):  # type: ignore[misc]
    def rename(self, node1: Node, node2: Node) -> float:
        if (node1.tag, node1.spans) != (node2.tag, node2.spans):
            return 1.0
        if node1.tag != "td" or not (node1.content or node2.content):
            return 0.0
        longest = max(len(node1.content), len(node2.content))
        return float(Levenshtein.distance(node1.content, node2.content)) / longest


def published(prediction: str, reference: str, structure: bool) -> float:
    """The definition by the paper and its code, for pages that have a table."""

    def tokens(element: Any) -> list[str]:
        found = list(element.text or "")
        for child in element:
            found += [f"<{child.tag}>", *tokens(child), f"</{child.tag}>"]
            found += (child.tail or "") if child.tag != "td" else ""
        return found

    def read(element: Any) -> Node:
        if element.tag == "td":
            spans = int(element.get("colspan", 1)), int(element.get("rowspan", 1))
            return Node("td", [] if structure else tokens(element), spans)
        node = Node(element.tag, [])
        node.children = [read(child) for child in element]
        return node

    parser = html.HTMLParser(remove_comments=True, encoding="utf-8")
    tables = [
        html.fromstring(text, parser=parser).xpath("body/table")[0]
        for text in (prediction, reference)
    ]
    nodes = max(len(table.xpath(".//*")) for table in tables)
    first, second = map(read, tables)
    return 1.0 - float(APTED(first, second, Costs()).compute_edit_distance()) / nodes


def marked_up(rng: random.Random) -> str:
    """A small page with sections, headings, spans, tags in cells, and all kinds of characters."""
    texts = (
        *(
            "", "a", "ab", " a ", "Итого", "1\u202f200", "12,5", "€ &amp; £", "😀", "a<b>b</b>",
            "<i>x</i> y",
        ),
        *("<sup>2</sup>", "<table><tr><td>n</td></tr></table>", "a<br>b", "<!-- c -->d", "\n"),
    )  # fmt: skip

    def cell() -> str:
        tag = "th" if rng.random() < 0.15 else "td"
        span = rng.choice(("", "", "", "", ' colspan="2"', " rowspan=3"))
        return f"<{tag}{span}>{rng.choice(texts)}</{tag}>"

    rows = [
        f"<tr>{''.join(cell() for _ in range(rng.randint(1, 2)))}</tr>"
        for _ in range(rng.choice((1, 1, 2)))
    ]
    if rng.random() < 0.3:
        rows = [f"<thead>{rows[0]}</thead>", "<tbody>", *rows[1:], "</tbody>"]
    return page("".join(rows))


@pytest.mark.long
@pytest.mark.parametrize("seed", first(2, range(4)))
def test_the_dialect_is_the_published_definition(seed: int) -> None:
    rng = random.Random(seed)
    metrics = (Teds(compat="pubtabnet"), False), (TedsS(compat="pubtabnet"), True)
    for number in range(600):
        prediction, reference = marked_up(rng), marked_up(rng)
        for metric, structure in metrics if number % 4 == 0 else metrics[:1]:
            value = metric.score(prediction, [reference]).numerator
            assert abs(value - published(prediction, reference, structure)) < 1e-9


@pytest.mark.long
def test_on_plain_tables_the_default_is_the_dialect() -> None:
    rng = random.Random(7)
    for _ in range(400):
        pair = [
            plain(
                *(
                    rng.choices(("", "a", "ab", "ba", "Итого", "12,5"), k=rng.randint(0, 3))
                    for _ in range(3)
                )
            )
            for _ in range(2)
        ]
        for ours, theirs in (
            (Teds(), Teds(compat="pubtabnet")),
            (TedsS(), TedsS(compat="pubtabnet")),
        ):
            value = ours.score(pair[0], [pair[1]]).numerator
            assert abs(value - max(0, theirs.score(pair[0], [pair[1]]).numerator)) < 1e-9


METRICS = [Teds(), TedsS(), Teds(compat="pubtabnet"), TedsS(compat="pubtabnet")]
NASTY = [
    "<" * 100_000,
    "<td " * 30_000,
    "<!--" * 30_000,
    "<td colspan=" + " " * 100_000,
    "<a \"'" * 30_000,
    "<td" + " a='" * 30_000,
    "<" + "a" * 100_000,
    page("<tr><td>&#" + "9" * 100_000 + ";</td></tr>"),
    page("<tr><td>\0a\ud800</td></tr>"),
    "\ud800",
    page("<tr><td>" * 500),
    page("<tr><th><table>" * 500),
    page("<b>" * 50_000),
    page('<tr><td colspan="1000000" rowspan="-5">a</td></tr>'),
    page(f'<tr><td colspan="{"9" * 10_000}">a</td></tr>'),
    page(f"<tr><td>{'ab' * 100_000}</td></tr>"),
    "<?xml version='1.0' encoding='utf-8'?>" + plain("a"),
    "<frameset><frame>" + plain("a"),
    "<?php ?>" + page("<?php ?><tr><?a b?><td><?c d?>e</td></tr>"),
    "</table></td>" * 1000 + plain("a"),
    "|" * 100_000,
    "| " * 1000 + "\n|-\n" + "|\n" * 3,
    "**" * 100_000 + "|\n|-|",
    plain("a")[:-30],
]
PIECES = (
    *(
        "<table>", "</table>", "<tr>", "</tr>", "<td>", "</td>", "<th>", "<td colspan=2>",
        "<tbody>", "<b>",
    ),
    *("</b>", "<br/>", "<!--", "-->", "&amp;", "&#0;", "|", "\n", "|---|", "\\", "<html><body>"),
)  # fmt: skip
MARKUP = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=20).map("".join)


@pytest.mark.long
@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.signature)
def test_no_text_raises(metric: Teds | TedsS) -> None:
    right = plain("ab", "cd")
    for text in NASTY:
        assert -1 < metric.score(text, [right]).numerator <= 1
        assert metric.score(right, [text]).denominator == 1
        whole = metric.score(text, [text]).numerator
        assert whole == 1 or (metric.compat and whole == 0)  # in the dialect no table is 0


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.signature)
@settings(deadline=None)
@given(texts=st.tuples(MARKUP, MARKUP))
def test_any_markup_has_a_value(metric: Teds | TedsS, texts: tuple[str, str]) -> None:
    first, second = texts
    value = metric.score(first, [second]).numerator
    assert value == pytest.approx(metric.score(second, [first]).numerator)
    assert (-1 if metric.compat else 0) <= value <= 1
    assert metric.compat or metric.score(first, [first]).numerator == 1


def test_nothing_is_fetched_or_expanded() -> None:
    laughs = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(10))
    entities = (
        f'<!DOCTYPE html [<!ENTITY l0 "ha"><!ENTITY f SYSTEM "file:///etc/hostname">{laughs}]>'
    )
    for text in ("&l9;", "&f;"):
        prediction = entities + plain([text])
        assert teds(prediction, [plain([text])]) == 1
        assert teds(prediction, [plain([text])], compat="pubtabnet") in (0, 1)
        assert teds(prediction, [plain(["ha" * 50])], compat="pubtabnet") <= 0.6


@pytest.mark.long
def test_a_table_above_the_limit_is_a_fault_not_a_value() -> None:
    large = plain(*["ab"] * 20)
    for metric in (Teds(max_nodes=59), TedsS(max_nodes=59)):
        for pair in ((large, plain("a")), (plain("a"), large)):
            with pytest.raises(TooLarge, match="60 rows and cells; max_nodes is 59"):
                metric.score(pair[0], [pair[1]])
    assert Teds(max_nodes=60).score(large, [large]).numerator == 1
    wide = "|" + "a|" * 5000 + "\n|-|\n" + "|\n" * 20_000  # 10⁸ cells if it were filled up
    with pytest.raises(TooLarge):
        teds(wide, [plain("a")])
    with pytest.raises(TooLarge):
        teds(plain(*["ab"] * 2000), [plain("a")], compat="pubtabnet")


def test_the_parser_is_loaded_by_the_dialect_alone() -> None:
    code = (
        "import sys, hpcbench.metrics.table_similarity, hpcbench.metrics.page_layout;"
        "import hpcbench.metrics.formulas;"
        "heavy = {'numpy', 'scipy', 'rapidfuzz', 'lxml'} & set(sys.modules);"
        "hpcbench.metrics.teds('<td>a', ['<td>b']);"
        "sys.exit(str(heavy | ({'lxml'} & set(sys.modules))) if heavy or 'lxml' in sys.modules else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
