import pytest
from hpcbench_example_language import choose, fill

TEMPLATES = {"ru": "Ответьте: {question}"}


def test_a_language_has_its_template_and_others_the_default() -> None:
    assert choose(TEMPLATES, "ru-RU", "?") == TEMPLATES["ru"]
    assert choose(TEMPLATES, "fr", "?") == "?"
    assert choose(TEMPLATES, None, "?") == "?"


def test_fields_are_filled_in_and_nothing_else_is_reached() -> None:
    assert fill(TEMPLATES["ru"], {"question": "Сколько?"}) == "Ответьте: Сколько?"
    with pytest.raises(KeyError):
        fill("{question.__class__}", {"question": "x"})
