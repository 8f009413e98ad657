"""DeepSeek-OCR's answers become Markdown, whatever the model has written."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench import plugins
from hpcbench.metrics import repetition
from hpcbench.parsers import DeepSeekOcr, Layout, layout

END = "<｜end▁of▁sentence｜>"
PAGE = rf"""<|ref|>title<|/ref|><|det|>[[10, 20, 999, 40]]<|/det|>
# Invoice <center>No. 7</center>

<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4], [5, 6, 7, 8]]<|/det|>
\[ a \coloneqq b \quad (3) \] and \quad (c)




<|ref|>image<|/ref|><|det|>[[0, 0, 333, 666]]<|/det|>
<|ref|>image<|/ref|><|det|>[[0, 0, 9, 9]]<|/det|>
<|ref|>table<|/ref|><|det|>[[0, 0, 500, 500]]<|/det|>
<table><tr><td>1</td></tr></table>{END}"""


def region(label: str, boxes: object = ((1, 2, 3, 4),)) -> str:
    listed = str([list(box) for box in boxes]) if isinstance(boxes, tuple) else str(boxes)
    return f"<|ref|>{label}<|/ref|><|det|>{listed}<|/det|>"


def test_a_page_becomes_markdown() -> None:
    assert layout(PAGE).markdown == (
        "# Invoice No. 7\n\n\\[a := b\\] and \\quad (c)\n\n"
        "![](images/0.jpg)\n![](images/1.jpg)\n\n<table><tr><td>1</td></tr></table>"
    )


def test_it_is_a_parser_of_an_ml_task() -> None:
    assert plugins.mismatch("parsers", DeepSeekOcr) is None
    assert DeepSeekOcr().parse(PAGE).value == layout(PAGE).markdown
    assert not DeepSeekOcr().parse(PAGE).repairs


def test_broken_regions_are_marked_as_mended() -> None:
    reading = DeepSeekOcr().parse("a <|ref|>text<|/ref|><|det|>[[1, 2]]<|/det|> b")
    assert reading.repairs == ("broken regions",)


def test_an_answer_of_nothing_but_regions_is_read_as_their_labels() -> None:
    assert layout(f"{region('TOTAL')}\n{region('12.50')}\n").markdown == "TOTAL\n12.50"
    assert layout(region("text")).markdown == ""  # an answer cut off before the text


@pytest.mark.parametrize(
    "text",
    [
        "<|ref|>text<|/ref|><|det|>[[1, 2, 3 and",
        "<|ref|>text<|/ref|> <|det|>[[1, 2, 3, 4]]<|/det|>",
        "<|ref|>text",
        "<|det|>[[1, 2, 3, 4]]<|/det|>",
        region("text", "[[1, 2, 3]]"),
        region("text", "[1, 2, 3, 4]"),
        region("text", "[]"),
        region("text", "[[1, 2, 3, NaN]]"),
        region("text", "[[1, 2, 3, true]]"),
        region("text", "[[1, 2, 3, 4], 5]"),
        region("text", "__import__('os').getcwd()"),
        region("text", "[" * 100_000),
        region("text", f"[[1, 2, 3, {'9' * 10_000}]]"),
    ],
)
def test_what_cannot_be_read_stays_and_is_counted_once(text: str) -> None:
    page = layout(f"before {text} after")
    assert page.markdown == f"before {text} after"
    assert page.malformed == 1


def test_the_region_an_answer_breaks_off_in_hides_no_loop() -> None:
    loop = f"{region('text')}\nno end\n" * 40
    cut = layout(f"{loop}<|ref|>text<|/ref|><|det|>[[12, 3")
    assert (cut.markdown, cut.malformed) == (layout(loop).markdown, 1)
    assert repetition(cut.markdown) == 1


def test_a_region_within_a_broken_one_is_read() -> None:
    page = layout(f"<|ref|>te{region('image')}")
    assert (page.markdown, page.malformed) == ("<|ref|>te![](images/0.jpg)", 1)


@pytest.mark.parametrize("box", ["[-5, 0.5, 1000, 1e300]", "[1, 2, 3, Infinity]"])
def test_a_region_may_lie_beyond_the_page(box: str) -> None:
    assert layout(region("text", f"[{box}]") + "words") == Layout("words", 0)


PIECES = st.sampled_from(
    [
        *("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "[[1,2,3,4]]", "image", "text", END),
        *("\n", "\\[", "\\]", "\\quad", "(", ")", "<center>", "</center>", "\\coloneqq", "[", "]"),
    ]
)
ANSWERS = st.lists(PIECES | st.text(max_size=4)).map("".join)


@settings(deadline=None)
@given(ANSWERS)
def test_any_text_can_be_read(text: str) -> None:
    page = layout(text)
    assert "\n\n\n" not in page.markdown
    assert END not in page.markdown
    assert page.markdown == page.markdown.strip()
    named = re.findall(r"!\[\]\(images/(\d+)\.jpg\)", page.markdown)
    assert named == [str(number) for number in range(len(named))]
    assert page.malformed <= text.count("<|ref|>") + text.count("<|det|>")


@settings(deadline=None)
@given(st.text(alphabet="abc é漢<>|[]()\\ ", max_size=60))
def test_text_without_marks_loses_only_the_space_around_it(text: str) -> None:
    assert layout(text).markdown == text.strip()


@pytest.mark.parametrize(
    "unit",
    [
        *("<|ref|>", "<|ref|>a<|/ref|><|det|>", "<|ref|>a<|/ref|><|det|>[[", "<|/det|>", "\n"),
        *("\\[", "\\quad(", "\\[ \\quad (", "\\quad" + " " * 50, "<center>", region("image")),
    ],
)
@pytest.mark.timeout(60)
def test_hostile_answers_take_linear_time(unit: str) -> None:
    """Half a million characters: a fraction of a second, or hours if it went with their square."""
    page = layout((unit * 500_000)[:500_000])
    assert len(page.markdown) <= 500_000
