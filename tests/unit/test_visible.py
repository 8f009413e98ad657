"""Invisible characters and those that turn text around are written out; letters of all scripts stay."""

from __future__ import annotations

import re
import sys
import unicodedata
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from hpcbench.reporting.formats import markdown
from hpcbench.sanitize import sanitize
from hpcbench.visible import HIDDEN, finalize, visible
from tests.campaign import FULL
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        ("a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩"),
        ("pass\u200bword", "pass⟨U+200B⟩word"),
        ("pay\u200dpal", "pay⟨U+200D⟩pal"),
        ("\ufeffx\u00ad", "⟨U+FEFF⟩x⟨U+00AD⟩"),
        ("x\U000e0041", "x⟨U+E0041⟩"),
    ],
)
def test_what_deceives_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert sanitize(text) == shown
    assert shown in markdown.escaped(text)


def test_a_report_moves_no_cursor_of_a_terminal() -> None:
    shown = "⟨U+001B⟩[2Jgone⟨U+0007⟩ \tand\n⟨U+009B⟩31m"
    assert (
        visible("\x1b[2Jgone\a \tand\n\x9b31m") == finalize("\x1b[2Jgone\a \tand\n\x9b31m") == shown
    )


@pytest.mark.parametrize(
    "text",
    [
        "שלום 12", "مرحبا", "می\u200cخواهم", "क्\u200dष", "👩\u200d👧", "❤\ufe0f\u200d🔥",
        "数字 – naïve", "1\u202f000 €",
    ],
)  # fmt: skip
def test_letters_and_the_joiners_that_they_need_stay(text: str) -> None:
    assert visible(text) == text


@given(st.text())
def test_no_control_of_direction_is_left(text: str) -> None:
    turning = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    for shown in (visible(text), sanitize(text)):
        assert not {unicodedata.bidirectional(sign) for sign in shown} & turning
    assert visible(visible(text)) == visible(text)


def test_markup_stays_markup() -> None:
    assert finalize(Markup("<b>\u202e</b>")) == Markup("<b>⟨U+202E⟩</b>")
    assert isinstance(finalize(Markup("<b>\u202e</b>")), Markup)
    assert finalize("<\u202e>") == "<⟨U+202E⟩>"
    assert finalize(3) == 3


def test_the_pages_have_the_same_rule() -> None:
    """Over all characters: alone, and joiners beside each of them. Campaign: planes that have no letters."""
    source = (ROOT / "portal/src/ui/visible.ts").read_text(encoding="utf-8")
    joined = re.search(r"JOINED = String.raw`(.*)`", source)
    hidden = re.findall(r"String.raw`(.*)`", source.partition("HIDDEN")[2])
    assert joined is not None
    pattern = "".join(hidden).replace("${JOINED}", joined[1])
    pages = re.compile(
        re.sub(r"\\u(?:\{(\w+)\}|(\w{4}))", lambda one: f"\\U{one[1] or one[2]:0>8}", pattern)
    )
    planes = range(sys.maxunicode + 1) if FULL else chain(range(0x20000), range(0xE0000, 0xE1000))
    signs = [chr(code) for code in planes if not 0xD800 <= code < 0xE000]
    for text in ("\n".join(signs), "".join(f"{one}\u200d{one}\n" for one in signs)):
        assert [one.span() for one in pages.finditer(text)] == [
            one.span() for one in HIDDEN.finditer(text)
        ]
