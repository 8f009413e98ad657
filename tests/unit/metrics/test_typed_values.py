"""Numbers, amounts of money and dates: what is read, and what is left alone because it is ambiguous."""

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.metrics.typed import read_date, read_money, read_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,000.50", "1000.5"), ("1 000,50", "1000.5"), ("1\u202f000,50", "1000.5"), ("1000.5", "1000.5"),
        ("1.000,50", "1000.5"), ("1'000.50", "1000.5"), ("1.000.000", "1000000"), ("1 000", "1000"),
        ("0.125", "0.125"), ("1234.567", "1234.567"), ("12,5", "12.5"), ("−3", "-3"), ("(12.50)", "-12.5"),
        ("１２", "12"), ("+7", "7"), ("0", "0"),
    ],
)  # fmt: skip
def test_numbers_are_exact(text: str, number: str) -> None:
    assert read_number(text) == Decimal(number)


@pytest.mark.parametrize(
    "text",
    ["1,000", "1.000", "007", "12 50", "1,00,000", "1.2.3", "", "-", "--5", "½", "12 kg", "9" * 65],
)
def test_what_is_no_number_or_two_is_not_read(text: str) -> None:
    assert read_number(text) is None


def test_the_decimal_mark_settles_what_three_digits_are() -> None:
    assert read_number("1,000", "point") == read_number("1.000", "comma") == 1000
    assert read_number("1,000", "comma") == read_number("1.000", "point") == 1


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("€ 12.00", "12.00 EUR", True),
        ("12,00€", "12 euro", True),
        ("1 000,50 руб.", "RUB 1000.50", True),
        ("$5", "5 USD", True),
        ("$5", "5 CAD", True),  # the sign does not say whose dollars
        ("$5", "5 EUR", False),
        ("5", "5 EUR", True),  # one side says nothing
        ("-$5", "($5.00)", True),
        ("5 USD", "6 USD", False),
    ],
)
def test_amounts(one: str, other: str, agree: bool) -> None:
    first, second = read_money(one), read_money(other)
    assert first is not None
    assert second is not None
    assert first.agrees(second) is agree
    assert second.agrees(first) is agree


@pytest.mark.parametrize("text", ["12 pieces", "EUR 5 EUR", "N 12", "", "€", "1,000 EUR"])
def test_what_is_no_amount(text: str) -> None:
    assert read_money(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-01", "2024/3/1", "2024-03-01T10:00:00Z", "01.03.2024", "1.3.24", "1 March 2024",
        "March 1, 2024", "1st Mar. 2024", "1-Mar-2024", "1 марта 2024 г.", "01.03.2024 г.",
    ],
)  # fmt: skip
def test_dates(text: str) -> None:
    assert read_date(text) == date(2024, 3, 1)


def test_years_of_two_digits_begin_with_1969() -> None:
    assert read_date("1.3.69") == date(1969, 3, 1)
    assert read_date("1.3.68") == date(2068, 3, 1)


def test_the_order_of_day_and_month_is_never_guessed() -> None:
    for text in ("01/02/2024", "02/01/2024", "01-02-2024"):
        assert read_date(text) is None
    assert read_date("31/01/2024") == read_date("01/31/2024") == date(2024, 1, 31)
    assert read_date("05/05/2024") == date(2024, 5, 5)
    assert read_date("01/02/2024", "dmy") == date(2024, 2, 1)
    assert read_date("01/02/2024", "mdy") == date(2024, 1, 2)
    assert read_date("01.02.2024", "mdy") == date(2024, 2, 1)
    assert read_date("30.02.2024") is None
    assert read_date("1 Smarch 2024") is None


@given(st.text(alphabet="0123456789.,' -−()$€ руб/мартаMay", max_size=14) | st.text())
def test_any_text_is_read_or_not(text: str) -> None:
    read_number(text, "point")
    read_money(text, "comma")
    read_date(text, "dmy")


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9
    )
)
def test_what_is_written_in_any_locale_is_read_back(number: Decimal) -> None:
    english = f"{number:,.2f}"
    german = english.translate(str.maketrans(",.", ".,"))
    french = english.translate(str.maketrans({",": "\u202f", ".": ","}))
    assert {read_number(one) for one in (english, german, french)} == {number}
