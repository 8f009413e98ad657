"""Whole pages: their text and the order of their blocks, however they are marked up."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.metrics import MarkdownEdit, ReadingOrder, markdown_edit, reading_order
from hpcbench.metrics.base import TooLarge

PARAGRAPHS = [
    "The first paragraph is about cats.",
    "A second one tells of dogs and their owners.",
    "Birds, thirdly, can fly; most of them do.",
    "Fish close the page.",
]


def page(*numbers: int) -> str:
    return "\n\n".join(PARAGRAPHS[number] for number in numbers)


MARKDOWN = """# Title

Some *text* with **bold**, a [link](http://x) and $x^{2}$.

| a | $b^{2}$ |
|---|---|
| 1 | 2 |

![a picture](a.png)
<!-- a comment -->
* item
* other

\\[ \\frac{1}{2} \\]
"""
THE_SAME = """```markdown
## Title ##

Some text with bold, a link
and \\(x^2\\).

<table><tr><th>a</th><th>$b^2$</th></tr><tr><td>1</td><td>2</td></tr></table>

---
<p>- item</p>
- other

$$\\dfrac12$$
```"""


def test_marks_do_not_count() -> None:
    assert markdown_edit(MARKDOWN, THE_SAME) == 0
    assert MarkdownEdit().blocks(MARKDOWN) == [
        "Title",
        "Some text with bold, a link and $x ^ 2$.",
        "| a | $b ^ 2$ | | 1 | 2 |",
        "- item - other",
        "$\\frac 1 2$",
    ]


def test_tables_and_formulas_can_be_left_out() -> None:
    metric = MarkdownEdit(tables="drop", formulas="drop")
    assert metric.page(MARKDOWN) == "Title Some text with bold, a link and . - item - other"
    assert metric.signature == (
        "markdown_edit|tables:drop|formulas:drop|case:keep|ws:collapse|unicode:nfc|v1"
    )
    with pytest.raises(ValueError, match="tables is 'html'; it can be canonical, drop"):
        MarkdownEdit(tables="html")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        ("It costs $5 or $7, at most $10.", "It costs $5 or $7, at most $10."),
        ("$a$ - b * c > d # e", "$a$ - b * c > d # e"),
        ("C#\n# C#\n# C #", "C# C# C"),
        ("2 * 3 * 4 and p**0.05", "2 * 3 * 4 and p**0.05"),
        ("> quoted\n>> twice", "quoted twice"),
        ("a &amp; b<br>c", "a & b c"),
        ("a \\$x\\$ b", "a \\$x\\$ b"),
        ("\\\\[2pt] x \\\\]", "\\\\[2pt] x \\\\]"),
        ("x\0001\0", "x1"),
    ],
)
def test_what_is_no_mark_stays(text: str, compared: str) -> None:
    assert MarkdownEdit().page(text) == compared


def test_edits_are_over_the_longer_page() -> None:
    assert markdown_edit("abcd", "abxxd") == 0.4
    assert markdown_edit("", "") == 0
    assert markdown_edit("", "abc") == 1
    assert markdown_edit("---\n\n![a](b)", "") == 0
    assert markdown_edit(None, "") == 1
    assert markdown_edit("abc", ["xyz", "abd"]) == pytest.approx(1 / 3)


def test_order_is_the_edit_distance_of_the_blocks_numbers() -> None:
    right = page(0, 1, 2, 3)
    for numbers, distance in (
        ((0, 1, 2, 3), 0),
        ((0, 2, 1, 3), 0.5),
        ((3, 0, 1, 2), 0.5),
        ((3, 2, 1, 0), 1),
        ((0, 1), 0.5),
        ((1, 0), 0.75),
    ):
        assert reading_order(page(*numbers), right) == distance, numbers
    assert reading_order(page(1, 3), right, missing=False) == 0
    assert reading_order(page(3, 1), right, missing=False) == 1
    assert reading_order("nothing of it", right, missing=False) == 1
    assert reading_order("", right) == 1


def test_blocks_that_are_added_or_misread_do_not_change_the_order() -> None:
    misread = page(0, 1, 2, 3).replace("e", "c")
    assert reading_order(misread, page(0, 1, 2, 3)) == 0
    assert reading_order(misread, page(0, 1, 2, 3), threshold=1) == 1
    assert reading_order(page(0, 1) + "\n\n# Page 7\n\n" + page(2, 3), page(0, 1, 2, 3)) == 0
    assert reading_order("anything", "") == 0
    assert reading_order(None, "") == 1


def test_equal_blocks_are_matched_in_order() -> None:
    names = "\n\n".join(["Total", "12", "Total", "15", "Total", "12"])
    assert reading_order(names + "\n\nmore", names) == 0
    assert reading_order("a page number\n\n" + names, names) == 0


def test_a_page_of_too_many_blocks_is_a_fault_not_a_value() -> None:
    with pytest.raises(TooLarge, match="4 blocks; max_blocks is 3"):
        reading_order(page(0), page(0, 1, 2, 3), max_blocks=3)
    assert ReadingOrder(max_blocks=4, missing=False).signature == (
        "reading_order|min:0.5|missing:no|max:4|tables:canonical|formulas:canonical"
        "|case:keep|ws:collapse|unicode:nfc|v1"
    )
    for wrong in ({"max_blocks": 0}, {"threshold": 0.0}, {"threshold": 1.1}):
        with pytest.raises(ValueError, match="it"):
            ReadingOrder(**wrong)  # type: ignore[arg-type]


def test_any_permutation_lies_between_the_right_order_and_1() -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefgh", k=12)) for _ in range(30)]
    right = "\n\n".join(words)
    for moved in range(2, 30, 4):
        wrong = words[moved:] + words[:moved]
        assert reading_order("\n\n".join(wrong), right) == min(2 * min(moved, 30 - moved), 30) / 30


PIECES = (
    *(
        "$",
        "$$",
        "\\(",
        "\\)",
        "\\[",
        "\\]",
        "\n\n",
        "\n",
        "# ",
        "|",
        "|---|",
        "```",
        "* ",
        "**",
        "> ",
    ),
    *(
        "![", "](", ")", "<table>", "<td>", "</td>", "<!--", "-->", "\0", "\ud800", "- ", "---",
        "\\", "a",
    ),
)  # fmt: skip
PAGES = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=20).map("".join)


@settings(deadline=None)
@given(first=PAGES, second=PAGES)
def test_any_page_has_a_value(first: str, second: str) -> None:
    for metric in (MarkdownEdit(), ReadingOrder(), MarkdownEdit(tables="drop", formulas="drop")):
        assert 0 <= metric.score(first, [second]).numerator <= 1
        assert metric.score(first, [first]).numerator == 0
    assert markdown_edit(first, second) == markdown_edit(second, first)


LONG = (
    *(
        "$",
        "$a",
        "\\[",
        "\\[a\\]",
        "![",
        "![](",
        "[",
        "**a",
        "*a ",
        "#",
        "# a\n",
        "> ",
        "- ",
        "|a",
        "```",
    ),
    *("\n \n", "<td>"),
)


@pytest.mark.long
@pytest.mark.parametrize("piece", LONG)
def test_long_pages_take_time_in_proportion(piece: str) -> None:
    assert markdown_edit(piece * 50_000, piece * 50_000) == 0  # quadratic time would not end
