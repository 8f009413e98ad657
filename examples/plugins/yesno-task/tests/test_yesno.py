import pytest
from hpcbench_example_yesno import yes_or_no


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Yes.", "yes"),
        ("Нет, подписи нет", "no"),
        ("Ja!", "yes"),
        ("yes and no", None),
        ("perhaps", None),
    ],
)
def test_an_answer_is_yes_or_no_or_unclear(text: str, found: str | None) -> None:
    assert yes_or_no(text) == found
