"""Numbers as people read them."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench import number_format as form
from hpcbench.number_format import four_digits
from hpcbench.reporting.figures import style
from tests.conftest import ROOT
from tests.syntax import parsed


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (24367.0, "24,370"), (1.5e9, "1,500,000,000"), (547.06, "547.1"), (1.0, "1"), (0.0, "0"),
        (0.00001234, "0.00001234"), (-3.0, "-3"),
    ],
)  # fmt: skip
def test_four_digits_are_written_out(number: float, text: str) -> None:
    assert four_digits(number) == text


def test_a_difference_has_its_sign() -> None:
    assert [four_digits(one, sign=True) for one in (0.02, -14670.0)] == ["+0.02", "-14,670"]


@given(st.floats(-1e12, 1e12))
def test_they_are_the_number_to_four_digits(number: float) -> None:
    text = four_digits(number)
    assert "e" not in text.lower()
    assert float(text.replace(",", "")) == pytest.approx(number, rel=1e-3, abs=0)


def test_thousands_have_a_comma_in_tables_reports_figures_and_the_portal() -> None:
    shown = [form.count(12345), form.figure(12345.6), four_digits(12345.0), style.number(12345.6)]
    assert shown == ["12,345", "12,346", "12,340", "12,346"]
    assert form.many(1000, "sample") == "1,000 samples"
    portal = (ROOT / "portal/src/ui/format.test.ts").read_text()
    assert '[count(1234567), "1,234,567"]' in portal


def test_percent_is_printed_by_one_rule() -> None:
    assert [form.percent(0.3), form.percent(0.31, 1, sign=True)] == ["30 %", "+31.0 %"]
    own = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "hpcbench").rglob("*.py"))
        if "%}" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.FormattedValue)
        and node.format_spec is not None
        and re.search(r"%'?$", ast.unparse(node.format_spec).strip("f'\""))
    ]
    assert own == [], "these print 97% or 97.5%: use share or percent of number_format"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (40, "40 s"), (720, "12 min"), (12600, "3.5 h"), (216000, "2.5 days")],
)
def test_a_duration_has_one_unit(seconds: float, text: str) -> None:
    assert form.duration(seconds) == text


@given(st.floats(0, 1e7))
def test_a_duration_is_short(seconds: float) -> None:
    assert len(form.duration(seconds)) <= 10
