from decimal import Decimal

import pytest
from hpcbench_example_amount import AmountMatch, amount


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 234,50 €", "1234.50"),
        ("EUR 1,234.5", "1234.5"),
        ("1.234", "1234"),
        ("1'234.50 CHF", "1234.50"),
        ("Итого: 12,5 руб.", "12.5"),
        ("-7", "-7"),
    ],
)
def test_an_amount_is_read_in_any_form(text: str, value: str) -> None:
    assert amount(text) == Decimal(value)


def test_no_amount_is_none() -> None:
    assert amount("nothing") is None


def test_the_currency_counts_only_when_asked_for() -> None:
    assert AmountMatch().score("5 USD", ["5 EUR"]).numerator == 1
    assert AmountMatch(currency=True).score("5 USD", ["5 EUR"]).numerator == 0
    assert AmountMatch(currency=True).score("€ 5", ["5 EUR"]).numerator == 1
