"""Objects and texts out of nasty answers: the corpus, and properties that hold of any answer.

An answer is read right, or what was decided is marked, or it is refused. Nothing else is allowed.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.parsers import DataParser
from hpcbench.parsers.escapes import LATEX, LATEX_OR_BREAK
from hpcbench.schema.records import Reading
from tests.answers import cases
from tests.campaign import first

CORPUS = cases("objects.yaml", "texts.yaml")
any_object = DataParser("object")
any_text = DataParser("text")
any_page = DataParser("text", transcript=True)


def test_an_answer_of_the_corpus_is_read_as_it_must_be() -> None:
    readings = [(case, case.read()) for case in CORPUS]
    wrong = [(case, reading) for case, reading in readings if case.verdict(reading) != "right"]
    assert wrong == []


def test_the_corpus_is_large_has_many_languages_and_all_that_may_come_out() -> None:
    assert len(CORPUS) >= 400
    assert {"ar", "de", "en", "es", "fr", "it", "ja", "ru", "zh"} <= {
        one.language for one in CORPUS
    }
    assert {one.kind for one in CORPUS} == {"read", "marked", "refused"}
    assert len(
        {(one.answer, one.parser, str(one.options), one.truncated) for one in CORPUS}
    ) == len(CORPUS)


# --- sound JSON is what it says ---------------------------------------------------------------------------

LETTERS = st.characters(exclude_categories=["Cs"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(LETTERS)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(LETTERS), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
OBJECTS = st.dictionaries(st.text(LETTERS), VALUES, min_size=1, max_size=5).filter(
    lambda value: not re.search(r"\\[bfnrt][A-Za-z]", json.dumps(value, ensure_ascii=False))
)
"""Objects whose JSON has no backslash that may begin a LaTeX command."""
WRAPPINGS = st.sampled_from([
    "{}", "```json\n{}\n```", "Here it is:\n{}\nDone.", "<think>a {{b}} c</think>{}",
    "<THINK>a</THINK>\n<think>b</think>\n{}", "hm.</think>{}", "<answer>{}</answer>",
    "<|begin_of_box|>{}<|end_of_box|>", "<think>a</think><answer>\n```json\n{}\n```\n</answer>",
])  # fmt: skip


@pytest.mark.long
@settings(deadline=None)
@given(value=OBJECTS, wrapping=WRAPPINGS, ascii_only=st.booleans())
def test_sound_json_is_read_unchanged_and_unmarked(
    value: dict[str, Any], wrapping: str, ascii_only: bool
) -> None:
    reading = any_object.read(wrapping.format(json.dumps(value, ensure_ascii=ascii_only)))
    assert (reading.value, reading.repairs) == (value, ())


# --- damage is marked or refused --------------------------------------------------------------------------

DAMAGES = st.sampled_from([
    "cut", "single quotes", "curly quotes", "prose", "fence", "unclosed fence", "comma", "brackets", "python",
    "another", "tags", "thoughts", "comment", "break",
])  # fmt: skip


def damaged(written: str, damage: str, at: int) -> str:
    """JSON as a model may spoil it."""
    changes = {
        "cut": written[:at],
        "single quotes": written.replace('"', "'"),
        "curly quotes": written.replace('"', "”"),
        "prose": f"Sure! The fields are: {written} I hope that helps.",
        "fence": f"```json\n{written}\n```",
        "unclosed fence": f"```json\n{written}",
        "comma": re.sub(r"([}\]])\Z", r",\1", written),
        "brackets": written.rstrip("]}"),
        "python": written.replace("true", "True").replace("false", "False").replace("null", "None"),
        "another": f'{{"an": "example"}} and then {written}',
        "tags": f'{{"an": "example"}} <answer>{written}</answer>',
        "thoughts": f"{written}\n<think>or {{}}?</think>",
        "comment": re.sub(r"\A\{", "{ // the fields\n", written),
        "break": written.replace(" ", "\n", 1),
    }
    return changes[damage]


@pytest.mark.long
@settings(deadline=None)
@given(
    value=OBJECTS,
    damages=st.lists(DAMAGES, min_size=1, max_size=3),
    at=st.integers(1, 200),
    truncated=st.booleans(),
)
def test_of_damaged_json_nothing_else_is_read_without_a_mark(
    value: dict[str, Any], damages: list[str], at: int, truncated: bool
) -> None:
    answer = json.dumps(value, ensure_ascii=False)
    for damage in damages:
        answer = damaged(answer, damage, at)
    reading = any_object.read(answer, truncated)
    assert reading.value == value or reading.repairs or reading.reason


COMMANDS = st.sampled_from([
    r"\frac{a}{b}", r"\theta", r"\beta", r"\nu", r"\rho", r"\neq", r"\tau", r"\times", r"\text{x}",
    r"\bar{x}", r"\nabla", r"\right)", r"\forall", r"\bf ", r"\ref{a}", r"\nexists", r"\tfrac12",
    r"\underline{x}", r"\alpha", r"\sum_i", r"\begin{a}", r"\to", r"\boxed{1}", r"\nleq",
    r"\rangle", r"\url{a}", r"\uparrow",
])  # fmt: skip
FORMULAS = st.lists(
    COMMANDS | st.sampled_from(["x", " + ", "^2", " = ", "5", " "]), min_size=1
).map(" ".join)


@settings(deadline=None)
@given(formula=FORMULAS.filter(lambda one: "\\" in one), spared=st.integers(0, 3))
def test_latex_is_never_read_as_control_characters_in_silence(formula: str, spared: int) -> None:
    """Whether none, some or all of the backslashes are doubled."""
    pieces = formula.split("\\")
    written = pieces[0] + "".join(
        ("\\\\" if number < spared else "\\") + piece for number, piece in enumerate(pieces[1:])
    )
    reading = any_object.read(f'{{"formula": "{written}"}}')
    assert reading.value == {"formula": formula} or LATEX_OR_BREAK in reading.repairs
    assert reading.repairs or "\\" not in written.replace("\\\\", "")
    sound = any_object.read(json.dumps({"formula": formula}))
    assert (sound.value, sound.repairs) == ({"formula": formula}, ())


@pytest.mark.parametrize("command", ["frac", "theta", "beta", "nu", "rho", "neq", "tau", "forall"])
def test_a_command_is_a_whole_word(command: str) -> None:
    alone = any_object.read(f'{{"a": "\\{command}"}}')
    assert (alone.value, alone.repairs) == ({"a": f"\\{command}"}, (LATEX,))
    word = any_object.read(f'{{"a": "x\\{command}xyz"}}')
    escape = {"f": "\f", "t": "\t", "b": "\b", "n": "\n", "r": "\r"}[command[0]]
    assert word.value == {"a": f"x{escape}{command[1:]}xyz"}
    assert bool(word.repairs) == (command in ("frac", "theta", "beta", "forall")), "no word is so"


# --- texts --------------------------------------------------------------------------------------------------

PAGES = st.lists(
    st.sampled_from([
        "# Title", "```", "```python", "~~~", "x = 1", "\\boxed{1}", "$\\boxed{x}$", "Answer:", "<think>",
        "</table>", "<td>5</td>", "", "- item", "The answer is \\boxed{2}.", "`code`", "[1]", '"quoted"',
    ])
    | st.text(LETTERS, max_size=8),
    min_size=2,
).map("\n".join)  # fmt: skip


@settings(deadline=None)
@given(page=PAGES)
def test_a_page_loses_nothing_but_what_wraps_all_of_it(page: str) -> None:
    reading = any_page.read(f"# Page\n{page}\nEnd of page")
    assert (reading.value, reading.repairs) == (f"# Page\n{page}\nEnd of page", ())


@settings(deadline=None)
@given(answer=PAGES)
def test_what_changes_a_text_is_marked(answer: str) -> None:
    for parser in (any_text, any_page):
        reading = parser.read(answer)
        unchanged = reading.value == answer.strip().strip("\ufeff\u200b \t\r\n")
        assert (
            unchanged or reading.repairs or reading.reason or answer.lstrip().startswith("<think>")
        )


@settings(deadline=None)
@given(text=st.text(LETTERS), page=st.booleans())
def test_words_alone_are_read_as_they_are(text: str, page: bool) -> None:
    plain = re.sub(r"[`~\\<>\[\]◁▷]", "", text)
    reading = (any_page if page else any_text).read(plain)
    assert reading == Reading(plain.strip().strip("\ufeff\u200b \t\r\n"), form="text")


# --- time ---------------------------------------------------------------------------------------------------

HOSTILE = [
    "<think>", "a <think>", "</think>", "<think>a</think>", "\n<think>", "<answer>", "a <answer>1</answer>",
    '<answer>{"a":1}</answer>', "</answer>", "\\boxed{", "\\boxed{a}", "\\boxed{\\text{",
    "```a\n", "```\n", "~~~\n", "\\frac", '{"a": "\\frac', '{"a": "\\nu e"}', '{"a":1e999,',
    '"', '\\"', "{</think>", "answer:\n```\n",
    "<|channel|>", "[THINK]", '{"a": "<think>', "<think a", "| a | b |\n", "answer is ", "{\"a\":1} ",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("piece", first(2, HOSTILE))
def test_time_is_in_proportion_to_the_length(piece: str) -> None:
    """Eight times the text takes far less than 64 times as long; the quickest of three readings counts."""
    for parser in (any_object, any_text, any_page):
        spent = [least_time(parser, piece * (length // len(piece))) for length in (20_000, 160_000)]
        assert spent[1] < max(2.0, 40 * spent[0])


def least_time(parser: DataParser, answer: str) -> float:
    """CPU time of the quickest of up to three readings."""
    spent = []
    for _ in range(3):
        start = time.process_time()
        assert isinstance(parser.read(answer), Reading)
        spent.append(time.process_time() - start)
        if spent[-1] < 0.1:
            break
    return min(spent)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ('{"a":', "}"),
        ("[", "]"),
        ("\\boxed{", "}"),
        ("<think>", "</think>"),
        ("<answer>", "</answer>"),
    ],
)
def test_three_thousand_levels_are_read_or_refused(opening: str, closing: str) -> None:
    answer = opening * 3000 + "1" + closing * 3000
    for parser in (any_object, any_text, any_page):
        reading = parser.read(answer)
        assert (reading.value is None) == bool(reading.reason)
