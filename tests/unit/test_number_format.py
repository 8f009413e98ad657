"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.number_format import four_digits


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (24367.0, "24370"), (1.5e9, "1500000000"), (547.06, "547.1"), (1.0, "1"), (0.0, "0"),
        (0.00001234, "0.00001234"), (-3.0, "-3"),
    ],
)  # fmt: skip
def test_four_digits_are_written_out(number: float, text: str) -> None:
    assert four_digits(number) == text


def test_a_difference_has_its_sign() -> None:
    assert [four_digits(one, sign=True) for one in (0.02, -14670.0)] == ["+0.02", "-14670"]


@given(st.floats(-1e12, 1e12))
def test_they_are_the_number_to_four_digits(number: float) -> None:
    text = four_digits(number)
    assert "e" not in text.lower()
    assert float(text) == pytest.approx(number, rel=1e-3, abs=0)
