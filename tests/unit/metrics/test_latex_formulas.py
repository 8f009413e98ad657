"""Formulas that say the same are equal; others are as far apart as their tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.metrics import FormulaEdit, FormulaMatch, formula_edit, formula_match
from hpcbench.metrics.formulas import formula_tokens


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("x^{2}", "x ^ 2"),
        ("$x$", "x"),
        ("$$x$$", "\\[ x \\]"),
        ("\\(\\)", "$$"),
        ("\\(x\\)", "```latex\nx\n```"),
        ("\\begin{equation} a=b \\label{e} \\tag{1} \\end{equation}", "a=b"),
        ("\\left( \\frac{1}{2} \\right)", "(\\dfrac12)"),
        ("\\bigl[ a \\,\\quad b~c \\bigr]", "[abc]"),
        ("\\mathrm{sin} x", "\\sin x"),
        ("\\operatorname{max}_{i}", "\\max_i"),
        ("x_{\\mathrm{max}}", "x_\\text{max}"),
        ("\\mathrm d x", "dx"),
        ("\\bm{v}", "\\mathbf v"),
        ("a \\le b \\to c", "a\\leq b\\rightarrow c"),
        ("f'", "f^{\\prime}"),
        ("f''", "f^{\\prime\\prime}"),
        ("{{a}}b{}", "ab"),
        ("a}{b", "ab"),
        ("\\lbrace 1, \\ldots \\rbrace", "\\{1,\\dots\\}"),
        ("й", "и\u0306"),
    ],
)
def test_ways_to_write_a_formula_are_equal(first: str, second: str) -> None:
    assert formula_tokens(first) or first
    assert formula_match(first, second) == 1
    assert formula_edit(first, second) == 0


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ("x", "X", 1),
        ("\\alpha+1", "\\beta+1", 1 / 3),
        ("x^{12}", "x^12", 2 / 6),  # the braces hold something together
        ("\\mathbb{R}", "R", 1 / 2),
        ("\\mathbf{x}", "x", 1 / 2),
        ("x_i^2", "x^2_i", 4 / 5),  # looks the same, and differs here
        ("a \\\\ b", "a b", 1 / 3),
        ("", "x", 1),
    ],
)
def test_other_formulas_differ_by_their_tokens(first: str, second: str, distance: float) -> None:
    assert formula_match(first, second) == 0
    assert formula_edit(first, second) == pytest.approx(distance)


def test_the_best_reference_counts_and_nothing_read_is_worst() -> None:
    assert formula_match("a", ["b", "{a}"]) == 1
    assert formula_edit("ab", ["cd", "ac"]) == 0.5
    assert formula_match(None, "") == 0
    assert formula_edit(None, "") == 1
    assert formula_match("", "$$") == 1
    assert FormulaMatch(unicode="nfkc").signature == "formula_match|unicode:nfkc|v1"
    assert FormulaEdit().signature == "formula_edit|unicode:nfc|v1"
    with pytest.raises(ValueError, match="unicode"):
        FormulaEdit(unicode="nfd")  # type: ignore[arg-type]


PIECES = (
    *(
        "{", "}", "\\", "$", "'", "\\tag", "\\mathrm", "\\left", "^", "_", "\\begin{equation}",
        "a", " ",
    ),
    *("\0", "\ud800"),
)  # fmt: skip
FORMULAS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=20).map(
    "".join
)


@given(first=FORMULAS, second=FORMULAS)
def test_any_text_has_a_value(first: str, second: str) -> None:
    assert formula_match(first, first) == 1
    assert formula_edit(first, first) == 0
    assert 0 <= formula_edit(first, second) == formula_edit(second, first) <= 1
    assert (formula_edit(first, second) == 0) == (formula_match(first, second) == 1)


@pytest.mark.long
@pytest.mark.parametrize("piece", ["{", "}", "{ab", "\\tag{", "'", "\\mathrm", "$", "\\", "```"])
def test_long_texts_take_time_in_proportion(piece: str) -> None:
    assert formula_match(piece * 100_000, piece * 100_000) == 1  # quadratic time would not end
