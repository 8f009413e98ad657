"""Parsers of what OCR models answer: layout in JSON, DocTags, OTSL, HTML, Markdown after a head.

The answers here are made by us in the forms that the models' authors document; see each parser's docstring.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpcbench import plugins
from hpcbench.parsers import DocTags, FrontMatter, LayoutJson, Otsl, PageHtml
from hpcbench.parsers.otsl import table_of
from hpcbench.parsers.reader import reader
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.records import Sample
from tests.campaign import examples

PARSERS = ("deepseek_ocr", "doctags", "front_matter", "layout_json", "otsl", "page_html")

LAYOUT = """[
  {"bbox": [60, 40, 900, 70], "category": "Page-header", "text": "Annual report"},
  {"bbox": [60, 90, 900, 140], "category": "Title", "text": "# Results"},
  {"bbox": [60, 150, 900, 400], "category": "Picture"},
  {"bbox": [60, 420, 900, 460], "category": "Formula", "text": "E = mc^2"},
  {"bbox": [60, 480, 900, 700], "category": "Table", "text": "<table><tr><td>1</td></tr></table>"},
  {"bbox": [60, 720, 900, 760], "category": "Text", "text": "Sales grew."},
  {"bbox": [60, 980, 900, 999], "category": "Page-footer", "text": "7"}
]"""


def test_cells_of_a_page_become_markdown_in_their_order() -> None:
    found = LayoutJson().parse(LAYOUT)
    assert found.value == (
        "# Results\n\n$$\nE = mc^2\n$$\n\n<table><tr><td>1</td></tr></table>\n\nSales grew."
    )
    assert (found.form, found.repairs) == ("layout_json", ())


def test_cells_in_a_fence_or_in_one_object_are_read_alike() -> None:
    page = LayoutJson().parse(LAYOUT).value
    assert LayoutJson().parse(f"```json\n{LAYOUT}\n```").value == page
    assert LayoutJson().parse(f'{{"layout": {LAYOUT}}}').value == page


def test_a_formula_with_delimiters_gets_no_second_ones() -> None:
    cell = r'[{"bbox": [1, 2, 3, 4], "category": "Formula", "text": "\\[x\\]"}]'
    assert LayoutJson().parse(cell).value == r"\[x\]"


def test_cells_that_break_off_are_read_and_marked() -> None:
    found = LayoutJson().parse(LAYOUT[: LAYOUT.index("Sales grew.") + 5])
    assert str(found.value).endswith("</table>\n\nSales")
    assert "cut off" in found.repairs


def test_text_without_cells_stays() -> None:
    assert LayoutJson().parse("  Invoice 7\n\n[1] and {x} ").value == "Invoice 7\n\n[1] and {x}"


DOCTAGS = """<doctag><page_header><loc_1><loc_2><loc_3><loc_4>Draft</page_header>
<title><loc_10><loc_10><loc_90><loc_20>Report</title>
<section_header_level_1><loc_10><loc_30><loc_90><loc_35>Sales</section_header_level_1>
<text><loc_10><loc_40><loc_90><loc_50>Growth < 5 % in May</text>
<unordered_list><list_item><loc_1><loc_1><loc_1><loc_1>north</list_item>
<list_item>south</list_item>
</unordered_list>
<ordered_list><list_item>first</list_item><list_item>second</list_item></ordered_list>
<formula><loc_1><loc_1><loc_2><loc_2>a^2 + b^2</formula>
<code><loc_1><loc_1><loc_2><loc_2><_Python_>print(1)</code>
<otsl><loc_1><loc_1><loc_2><loc_2><ched>Year<ched>Sum<nl><fcel>2025<fcel>7<nl><caption>Sums</caption></otsl>
<picture><loc_1><loc_1><loc_2><loc_2><caption>A map</caption></picture>
<checkbox_selected>paid</checkbox_selected>
</doctag>"""

DOCTAGS_MARKDOWN = """# Report

## Sales

Growth < 5 % in May

- north

- south

1. first

2. second

$$
a^2 + b^2
$$

```
print(1)
```

Sums

<table><tr><th>Year</th><th>Sum</th></tr><tr><td>2025</td><td>7</td></tr></table>

A map

- [x] paid"""


def test_doctags_become_markdown_with_tables_in_html() -> None:
    found = DocTags().parse(DOCTAGS)
    assert found.value == DOCTAGS_MARKDOWN
    assert (found.form, found.repairs) == ("doctags", ())


def test_a_tag_that_breaks_off_keeps_its_words_and_is_marked() -> None:
    found = DocTags().parse("<doctag><text><loc_1>One</text><text>Two and")
    assert (found.value, found.repairs) == ("One\n\nTwo and", ("open tags",))


def test_a_block_that_begins_within_another_one_ends_it() -> None:
    found = DocTags().parse("<text>One<text>Two</text>")
    assert (found.value, found.repairs) == ("One\n\nTwo", ("open tags",))


def test_text_without_doctags_stays() -> None:
    assert DocTags().parse("x < y, <b>bold</b>").value == "x < y, <b>bold</b>"


@pytest.mark.parametrize(
    ("otsl", "html"),
    [
        ("<fcel>a<fcel>b<nl>", "<table><tr><td>a</td><td>b</td></tr></table>"),
        ("<fcel>a<ecel><nl>", "<table><tr><td>a</td><td></td></tr></table>"),
        ("<fcel>a<lcel><nl><fcel>b<fcel>c",
         '<table><tr><td colspan="2">a</td></tr><tr><td>b</td><td>c</td></tr></table>'),
        ("<fcel>a<fcel>b<nl><ucel><fcel>c<nl>",
         '<table><tr><td rowspan="2">a</td><td>b</td></tr><tr><td>c</td></tr></table>'),
        ("<fcel>a<lcel><nl><ucel><xcel><nl>",
         '<table><tr><td colspan="2" rowspan="2">a</td></tr><tr></tr></table>'),
        ("<ched>A<nl><rhed>1<nl><srow>s<nl>",
         "<table><tr><th>A</th></tr><tr><th>1</th></tr><tr><th>s</th></tr></table>"),
        ("<lcel>x<nl><ucel>y", "<table><tr><td>x</td></tr><tr></tr></table>"),
        ("<fcel>a & <b><nl>", "<table><tr><td>a &amp; &lt;b&gt;</td></tr></table>"),
    ],
)  # fmt: skip
def test_marks_of_cells_become_a_table(otsl: str, html: str) -> None:
    assert table_of(otsl).replace(' rowspan="2">x', ">x") == html


def test_text_around_a_table_in_otsl_stays() -> None:
    found = Otsl().parse("Before\n\n<fcel>1<nl>\n\nAfter")
    assert found.value == "Before\n\n<table><tr><td>1</td></tr></table>\n\nAfter"
    assert Otsl().parse("No table at all").form == "text"


HTML = """<div data-bbox="0 0 1000 50" data-label="Page-Header">Draft</div>
<div data-bbox="0 60 1000 90" data-label="Section-Header"><h2>Sales &amp; costs</h2></div>
<div data-bbox="0 100 1000 200" data-label="Text"><p>Growth of <b>5 %</b> with <math>x^2</math>.</p></div>
<div data-bbox="0 210 1000 260" data-label="Equation-Block"><math display="block">E=mc^2</math></div>
<div data-bbox="0 300 1000 400" data-label="Table"><table border="1" data-bbox="1 2 3 4"><tr><td colspan="2">a</td></tr></table></div>
<div data-bbox="0 500 1000 600" data-label="Figure"><img alt="A map"/></div>
<div data-bbox="0 610 1000 700" data-label="List-Group"><ol><li>one</li><li>two</li></ol></div>
<div data-bbox="0 950 1000 999" data-label="Page-Footer">7</div>"""  # noqa: E501


def test_a_page_in_html_becomes_markdown() -> None:
    found = PageHtml().parse(HTML)
    assert found.value == (
        "## Sales & costs\n\nGrowth of **5 %** with $x^2$.\n\n$$\nE=mc^2\n$$\n\n"
        '<table><tr><td colspan="2">a</td></tr></table>\n\n1. one\n2. two'
    )
    assert found.form == "page_html"


def test_text_without_html_stays() -> None:
    assert PageHtml().parse("a < b and c > d").value == "a < b and c > d"


def test_the_head_before_a_page_is_removed() -> None:
    head = "---\nprimary_language: en\nis_rotation_valid: True\nis_table: False\n---\n"
    found = FrontMatter().parse(f"{head}The page.\n\n---\n\nIts end.")
    assert (found.value, found.form) == ("The page.\n\n---\n\nIts end.", "front_matter")


def test_a_head_without_end_stays_and_is_marked() -> None:
    found = FrontMatter().parse("---\nprimary_language: en")
    assert (found.value, found.repairs) == ("---\nprimary_language: en", ("open tags",))


@pytest.mark.parametrize("end", ["\n</answer>", "</answer>\n", ""])
def test_thoughts_and_the_tags_around_a_page_are_removed_as_numarkdown_needs(end: str) -> None:
    read = reader(MLTask(name="ocr", plugin="ocr"))
    page = "# A\n\n| a | b |"
    found = read(
        f"<think>a page</think>\n<answer>\n{page}{end}", Sample("1", (), {}, ("x",), "1"), False
    )
    assert (found.value, found.form) == (page, "text")


PIECES = st.sampled_from(
    [
        *("<doctag>", "</doctag>", "<text>", "</text>", "<otsl>", "</otsl>", "<loc_5>", "<list_item>"),
        *("<ordered_list>", "</ordered_list>", "<fcel>", "<lcel>", "<ucel>", "<xcel>", "<nl>", "<ched>"),
        *("<div data-label='Text'>", "</div>", "<table>", "<math>", "<li>", "<![CDATA[", "<!--", "<?x"),
        *("[{", "}]", '"bbox": [', '"category":', '"text": "', "---\n", "\n---", "```json\n", "```"),
        *("<|ref|>", "<|det|>", "[[1,2,3,4]]", "\x00", "\ud800", "\u202e", "&#0;", "&amp", "\n\n", " a "),
    ]
)  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=examples(120), deadline=None)
@example("<div>" * 3000)
@example("<ordered_list>" * 3000 + "</ordered_list>" * 4000)
@example("[" * 5000)
@example('[{"bbox":' * 2000)
@example("<fcel>" * 5000)
@example("<nl>")
@given(st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join))
def test_any_answer_is_read(name: str, text: str) -> None:
    found = plugins.load("parsers", name)().parse(text)
    assert isinstance(found.value, str)


@pytest.mark.parametrize("name", PARSERS)
@given(st.text(alphabet="abc 123.,:;()äж\n", max_size=60))
@settings(max_examples=examples(60), deadline=None)
def test_text_without_marks_keeps_its_words(name: str, text: str) -> None:
    assert plugins.load("parsers", name)().parse(text).value.split() == text.split()
