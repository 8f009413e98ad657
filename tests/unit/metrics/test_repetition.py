"""An answer that ends in a loop is distinguished from one that does not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.metrics import Repetition, repetition
from hpcbench.metrics.loops import LENGTH, TIMES

WORDS = (
    "A page of a report, with a heading, a table of figures and a note at its foot; nothing twice."
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (WORDS, 0),
        ("", 0),
        (WORDS + " no" * 40, 1),
        (WORDS + " | 0" * 30, 1),
        (WORDS + "\n- the same line of an index" * 5, 1),
        (WORDS + "." * 98, 0),  # the words end in another
        (WORDS + "." * 99, 1),
        (WORDS * 3, 0),
        (WORDS * 4, 1),
        ("no " * 200 + WORDS, 0),  # it got out of it
        (" ".join(str(number) for number in range(300)), 0),
    ],
)
def test_a_tail_of_four_copies_and_a_hundred_characters_is_a_loop(text: str, value: int) -> None:
    assert repetition(text) == value


def test_a_page_that_itself_ends_so_does_not_count() -> None:
    form = "Signature " + "_" * 200
    assert repetition(form, "Signature") == 1
    assert repetition(form, ["Signature", form]) == 0


def test_line_ends_and_spaces_do_not_hide_a_loop() -> None:
    text = WORDS + "".join(
        f" again{' ' * (number * number % 7 + number // 9)}\n" for number in range(40)
    )
    assert repetition(text) == 1
    assert repetition(text, whitespace="strip") == 0


def test_a_set_is_the_share_of_its_loops() -> None:
    metric = Repetition()
    answers = [WORDS, "ha" * 99, WORDS, WORDS]
    assert metric.aggregate([metric.score(answer, [""]) for answer in answers]) == 0.25
    assert metric.signature == "repetition|len:100|times:4|case:keep|ws:collapse|unicode:nfc|v1"


LETTERS = st.text(alphabet="ab.", max_size=12)


@settings(deadline=None)
@given(start=LETTERS, unit=LETTERS.filter(bool), times=st.integers(1, 150), cut=st.integers(0, 12))
def test_copies_of_anything_are_found_wherever_they_are_cut(
    start: str, unit: str, times: int, cut: int
) -> None:
    tail = unit * times + unit[: cut % len(unit)]
    found = Repetition(whitespace="keep").loop(start + tail)
    if times >= TIMES and len(tail) >= LENGTH:
        assert found >= len(tail)


@settings(deadline=None)
@given(st.text(alphabet="ab", max_size=160))
def test_what_is_found_is_what_is_said(text: str) -> None:
    """Against the definition, tried out period by period."""
    longest = 0
    for period in range(1, len(text)):
        length = period
        while length < len(text) and text[-length - 1] == text[period - length - 1]:
            length += 1
        if length >= TIMES * period and length >= LENGTH:
            longest = max(longest, length)
    assert Repetition(whitespace="keep").loop(text) == longest
