"""Numbers as documents write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.metrics.numerals import Numeral, read_numeral


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("1000", 1000, ""),
        ("1,000", 1000, ""),
        ("1,000.5", 1000.5, ""),
        ("1.000,5", 1000.5, ""),
        ("1 000 000", 1e6, ""),
        ("1\u00a0234,56\u202f₽", 1234.56, "₽"),
        ("1'000", 1000, ""),
        ("12.000.000", 12e6, ""),
        ("1.000", 1, ""),  # one point is a decimal one
        ("12,5", 12.5, ""),
        ("−12,5 kg", -12.5, "kg"),
        ("$1,000", 1000, "$"),
        ("-$5", -5, "$"),
        ("$-5", -5, "$"),
        ("10 USD", 10, "usd"),
        ("10 km/h", 10, "km/h"),
        ("5 %", 0.05, ""),
        ("+3", 3, ""),
        ("10.", 10, ""),
        ("1e3", 1000, ""),
    ],
)
def test_what_is_a_number(text: str, value: float, unit: str) -> None:
    found = read_numeral(text)
    assert found is not None
    assert found.value == pytest.approx(value)
    assert found.unit == unit


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "the 10", "1,00,0", "1 00", "1.2.3", "1,2,3", "10 of 12", "--1", "-$-1", "$10 €", "nan",
        "inf", "1_000", "1" * 101,
    ],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    assert read_numeral(text) is None


def test_units_fit_when_equal_or_not_named() -> None:
    assert Numeral(1).fits(Numeral(2, "kg"))
    assert Numeral(1, "kg").fits(Numeral(2, "kg"))
    assert not Numeral(1, "kg").fits(Numeral(2, "m"))


@given(st.text(alphabet="0123456789.,' \u00a0-−$€%ekg\n", max_size=120) | st.text())
def test_any_text_is_read_or_not(text: str) -> None:
    read_numeral(text)


@given(st.integers(-(10**15), 10**15))
def test_thousands_do_not_change_a_number(number: int) -> None:
    for form in (f"{number}", f"{number:,}", f"{number:,}".replace(",", " "), f"{number:,} ₽"):
        found = read_numeral(form)
        assert found is not None
        assert found.value == number
