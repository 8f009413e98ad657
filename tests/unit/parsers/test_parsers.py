"""Answers of models, and the values read from them: the specification of `DataParser`, a line an answer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator

from hpcbench.parsers import DataParser
from hpcbench.schema.records import Reading

RECEIPT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "total": {"type": "number"},
        "date": {"type": ["string", "null"], "pattern": r"^\d{4}-\d\d-\d\d$"},
        "seller": {
            "type": "object",
            "properties": {"inn": {"type": "string"}, "name": {"type": "string"}},
            "required": ["inn"],
        },
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "price": {"type": "number"}},
                "required": ["name", "price"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["total", "seller"],
}
ROWS: dict[str, Any] = {"type": "array", "items": RECEIPT["properties"]["items"]["items"]}

any_object = DataParser("object")
thoughtless = DataParser("object", reasoning="keep")
receipt = DataParser("object", RECEIPT)
rows = DataParser("object", ROWS)

LINES, TABLE = ("lines, not JSON",), ("a table, not JSON",)

# --- an object, whatever its fields: answer → value, form, repairs ---------------------------------------

READ = [
    # sound
    ('{"a": "1"}', {"a": "1"}, "json", ()),
    (' \n{"a": "1"}\n\n', {"a": "1"}, "json", ()),
    ('\ufeff{"a": "1"}', {"a": "1"}, "json", ()),
    ("{}", {}, "json", ()),
    ('{"Сумма": "12,50 ₽", "ИНН": "7701"}', {"Сумма": "12,50 ₽", "ИНН": "7701"}, "json", ()),
    ('{"a": "\\"x\\", {\\"b\\": 1}"}', {"a": '"x", {"b": 1}'}, "json", ()),
    # in a fence
    ('```json\n{"a": 1}\n```', {"a": 1}, "fence", ()),
    ('```\n{"a": 1}\n```', {"a": 1}, "fence", ()),
    ('~~~JSON\n{"a": 1}\n~~~', {"a": 1}, "fence", ()),
    ('Вот данные:\n```json\n{"a": 1}\n```\nОбращайтесь!', {"a": 1}, "fence", ()),
    ('{"a": "```x```"}', {"a": "```x```"}, "json", ()),
    ('```json\n{"a": 1, "b": [1, 2\n```\nDone.', {"a": 1, "b": [1, 2]}, "fence", ("closed brackets",)),
    ('```json\n{"a": 1}', {"a": 1}, "fence", ()),
    # amid prose
    ('Here it is: {"a": 1}', {"a": 1}, "prose", ()),
    ('json\n{"a": 1}', {"a": 1}, "prose", ()),
    ('The set {x, y} gives {"a": 1}.', {"a": 1}, "prose", ()),
    (r'\frac{a}{b} = {"a": 1}', {"a": 1}, "prose", ()),
    # several: what is in a fence, else the last; one with nothing in it is none
    ('{"a": 1} no, rather {"a": 2}', {"a": 2}, "prose", ("several objects, one kept",)),
    ('```json\n{"a": 1}\n```\nas in {"b": 2}', {"a": 1}, "fence", ("several objects, one kept",)),
    ('{"a": 1}\n\nAgain: {"a": 1}', {"a": 1}, "prose", ()),
    ('{"a": 1} and {}', {"a": 1}, "prose", ()),
    ('{"a": 1} or {"a": 2', {"a": 1}, "prose", ("several objects, one kept",)),
    ('{"a": 1; "b": 2} or {"a": 2}', {"a": 2}, "prose", ("several objects, one kept",)),
    # cut off, or never closed
    ('{"a": "1", "b": "Ромаш', {"a": "1", "b": "Ромаш"}, "json", ("closed a text", "closed brackets")),
    ('{"a": "1", "b', {"a": "1"}, "json", ("dropped a half-written field", "closed brackets")),
    ('{"a": "1", "b"', {"a": "1"}, "json", ("dropped a half-written field", "closed brackets")),
    ('{"a": "1", "b":', {"a": "1"}, "json", ("dropped a half-written field", "closed brackets")),
    ('{"a": "1", "b": tru', {"a": "1"}, "json", ("dropped a half-written field", "closed brackets")),
    ('{"a": "1",', {"a": "1"}, "json", ("closed brackets",)),
    ('{"a": {"b": [1, 2', {"a": {"b": [1, 2]}}, "json", ("closed brackets",)),
    ('{"a": [{"b": 1}, {', {"a": [{"b": 1}]}, "json", ("closed brackets",)),
    ('{"a": "x\\', {"a": "x"}, "json", ("closed a text", "closed brackets")),
    ('{"a": "x\\u04', {"a": "x"}, "json", ("closed a text", "closed brackets")),
    ('{"a": "x"\n\nThat is all I see.', {"a": "x"}, "prose", ("closed brackets",)),
    # brackets
    ('{"a": 1}}', {"a": 1}, "json", ("surplus brackets",)),
    ('{"a": [1, 2}', {"a": [1, 2]}, "json", ("closed brackets",)),
    ('{"a": [{"b": 1], "c": 2}', {"a": [{"b": 1}], "c": 2}, "json", ("closed brackets",)),
    ('[{"a": 1}]', {"a": 1}, "json", ("object in a list",)),
    # commas
    ('{"a": 1, "b": [1, 2,],}', {"a": 1, "b": [1, 2]}, "json", ("trailing comma",)),
    ('{"a": "1"\n "b": "2"}', {"a": "1", "b": "2"}, "json", ("missing comma",)),
    ('{"a": [{"b": 1} {"b": 2}]}', {"a": [{"b": 1}, {"b": 2}]}, "json", ("missing comma",)),
    ('{"a": 1,, "b": 2}', {"a": 1, "b": 2}, "json", ("surplus comma",)),
    ('{"a"："б"，"в"："г"}', {"a": "б", "в": "г"}, "json", ("full-width punctuation",)),
    # quotes
    ("{'a': '1'}", {"a": "1"}, "json", ("single quotes",)),
    ("{'a': 'O'Brien', 'b': 'x'}", {"a": "O'Brien", "b": "x"}, "json", ("single quotes", "unescaped quotes")),
    ("{“a”: “1”}", {"a": "1"}, "json", ("curly quotes",)),
    ("{«имя»: «Анна»}", {"имя": "Анна"}, "json", ("curly quotes",)),
    (
        '{"org": "ООО "Ромашка"", "inn": "77"}',
        {"org": 'ООО "Ромашка"', "inn": "77"}, "json", ("unescaped quotes",),
    ),
    ('{"a": "see "b", then c", "d": 1}', {"a": 'see "b", then c', "d": 1}, "json", ("unescaped quotes",)),
    ('{"a": "1,\n "b": "2"}', {"a": "1", "b": "2"}, "json", ("closed a text",)),
    ('"{\\"a\\": 1}"', {"a": 1}, "json", ("object in a text",)),
    ('{\\"a\\": \\"1\\"}', {"a": "1"}, "json", ("escaped twice",)),
    # keys and values
    ("{a: 1, b_c: 2}", {"a": 1, "b_c": 2}, "json", ("unquoted keys",)),
    ("{'a': None, 'b': True}", {"a": None, "b": True}, "json", ("single quotes", "Python literals")),
    ('{"a": NaN, "b": -Infinity}', {"a": None, "b": None}, "json", ("NaN or infinity",)),
    ('{"a": 12.50 EUR, "b": 1}', {"a": "12.50 EUR", "b": 1}, "json", ("unquoted text",)),
    ('{"Итого": 1 234,50, "НДС": 0}', {"Итого": "1 234,50", "НДС": 0}, "json", ("unquoted text",)),
    ('{"код": 007, "n": +5}', {"код": "007", "n": 5}, "json", ("unquoted text", "odd numbers")),
    ('{"a": , "b": 1}', {"a": None, "b": 1}, "json", ("missing value",)),
    ('{"a": 1, "a": 2}', {"a": 2}, "json", ("equal keys, the last kept",)),
    ('{"a": 1, // the first\n "b": /* two */ 2}', {"a": 1, "b": 2}, "json", ("comments",)),
    ('{"a": 1 # один\n}', {"a": 1}, "json", ("comments",)),
    ('{"url": "https://x.ru/a#b"}', {"url": "https://x.ru/a#b"}, "json", ()),
    # texts
    ('{"a": "строка 1\nстрока 2"}', {"a": "строка 1\nстрока 2"}, "json", ("unescaped line breaks",)),
    ('{"a": "C:\\data\\x"}', {"a": "C:\\data\\x"}, "json", ("odd escapes",)),
    ('{"a": "\\ud83d\\ude00", "b": 1}', {"a": "😀", "b": 1}, "json", ()),
    ('{"a": "x\\ud83d"}', {"a": "x\ufffd"}, "json", ("half a character",)),
    # no JSON, but of its shape
    ("total: 12.50\ndate: 2024-01-02", {"total": "12.50", "date": "2024-01-02"}, "lines", LINES),
    ("- **Сумма:** 12,50\n- **ИНН:** 7701", {"Сумма": "12,50", "ИНН": "7701"}, "lines", LINES),
    ("Вот поля:\nСумма: 12,50\nВремя: 10:30", {"Сумма": "12,50", "Время": "10:30"}, "lines", LINES),
    (
        "```yaml\nseller:\n  inn: '77'\ntags:\n  - a\n  - b\n```",
        {"seller": {"inn": "77"}, "tags": ["a", "b"]}, "lines", LINES,
    ),
    ("| Поле | Значение |\n|---|---|\n| Сумма | 12,50 |", {"Сумма": "12,50"}, "table", TABLE),
    # after thoughts
    ('<think>\n{"a": 0}?\n</think>\n{"a": 1}', {"a": 1}, "json", ()),
    ('So it is {"a": 0}...\n</think>\n{"a": 1}', {"a": 1}, "json", ()),
    ('◁think▷hm◁/think▷{"a": 1}', {"a": 1}, "json", ()),
    (
        '<|channel|>analysis<|message|>{"a": 0}<|end|><|start|>assistant<|channel|>final<|message|>{"a": 1}',
        {"a": 1}, "json", (),
    ),
    ('<think>x</think><answer>{"a": 1}</answer>', {"a": 1}, "json", ()),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "value", "form", "repairs"), READ)
def test_an_object_is_read(answer: str, value: object, form: str, repairs: tuple[str, ...]) -> None:
    assert any_object.read(answer) == Reading(
        value, "", form, repairs, found=_fields(value), truncated=False
    )


def test_where_mending_is_refused_only_what_is_sound_is_read() -> None:
    for answer, value, form, repairs in READ:
        reading = DataParser("object", repair="refuse").read(answer)
        sound = form in ("json", "fence", "prose") and not repairs
        assert (reading.value, bool(reading.reason)) == (value if sound else None, not sound), (
            answer
        )


# --- what is none: answer → reason ------------------------------------------------------------------------

UNREAD = [
    ("", "no JSON object"),
    ("I cannot read this document.", "no JSON object"),
    ("Извините, я не вижу текста: изображение пустое.", "no JSON object"),
    ("Note: too dark", "no JSON object"),
    ("| 4 | y |\n|---|---|\n| 5 | x |", "no JSON object, but a table"),
    ("12.50", "no JSON object"),
    ("[1, 2]", "no JSON object"),
    ("null", "no JSON object"),
    ("The set {x, y} is not it", "no JSON object"),
    ('[{"a": 1}, {"a": 2}]', "a list, not one object"),
    ('{"a": 1; "b": 2}', "JSON broken"),
    ('{"items": [{"a": 1}, ...]}', "JSON broken"),
    ('{"a" "b"}', "JSON broken"),
    ('{"a":' * 100_000, "JSON nested too deeply"),
    ('{"a": ' + "[" * 65 + "]" * 65 + "}", "JSON nested too deeply"),
    ("<think>Let me see {", "reasoning not finished"),
    ("<|channel|>analysis<|message|>Let me", "reasoning not finished"),
]


@pytest.mark.parametrize(("answer", "reason"), UNREAD)
def test_what_cannot_be_read_has_no_value_but_a_reason(answer: str, reason: str) -> None:
    reading = any_object.read(answer)
    assert (reading.value, reading.reason, reading.repairs) == (None, reason, ())


# --- schemas: answer → value or reason, faults ------------------------------------------------------------

FIT = [
    ('{"total": 1, "seller": {"inn": "7"}}', {"total": 1, "seller": {"inn": "7"}}),
    ('{"total": 1, "seller": {"inn": "7"}, "note": "x"}',
     {"total": 1, "seller": {"inn": "7"}, "note": "x"}),  # more than was asked for is no fault
    ('{"total": "?"} or {"total": 2, "seller": {"inn": "7"}} or {"x": 1}',
     {"total": 2, "seller": {"inn": "7"}}),  # the one that fits
    ("Total: 12.5\nSeller:\n  inn: 7701", {"total": 12.5, "seller": {"inn": "7701"}}),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "value"), FIT)
def test_an_object_that_meets_its_schema(answer: str, value: object) -> None:
    reading = receipt.read(answer)
    assert (reading.value, reading.reason, reading.faults) == (value, "", ())


SELLER = '"seller": {"inn": "7"}'
UNFIT = [
    ("{" + SELLER + "}", "schema: missing field total", ["missing total"]),
    ('{"total": 1}', "schema: missing field seller", ["missing seller", "missing seller.inn"]),
    ('{"total": 1, "seller": {}}', "schema: missing field seller.inn", ["missing seller.inn"]),
    ('{"total": "1", ' + SELLER + "}", "schema: field total is string, not number", ["mistyped total"]),
    ('{"total": true, ' + SELLER + "}", "schema: field total is boolean, not number", ["mistyped total"]),
    ('{"total": 1, "date": "02.01.2024", ' + SELLER + "}", "schema: value of date", ["value date"]),
    ('{"total": 1, "items": [{"name": "a", "price": 1, "vat": 0}], ' + SELLER + "}",
     "schema: extra field items[].vat", ["extra items[0].vat"]),
    ('{"total": 1, "items": [{"name": "a", "price": 1}, {"name": "b"}], ' + SELLER + "}",
     "schema: missing field items[].price", ["missing items[1].price"]),
    ('{"total": 1} or {"total": 2}', "several objects, none fits the schema",
     ["missing seller", "missing seller.inn"]),
    ('{"total": 12', "JSON broken off", ["missing seller", "missing seller.inn"]),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason", "faults"), UNFIT)
def test_an_object_that_breaks_its_schema_is_none(
    answer: str, reason: str, faults: list[str]
) -> None:
    reading = receipt.read(answer)
    assert (reading.value, reading.reason) == (None, reason)
    assert [f"{fault.kind} {fault.path}" for fault in reading.faults] == faults


def test_fields_are_counted_at_all_levels() -> None:
    reading = receipt.read(
        '{"total": 1, "note": {"by": "x"}, "items": [{"name": "a", "price": 2}, {}]}'
    )
    assert (reading.required, reading.found, reading.extra) == (7, 6, 1)
    assert sum(fault.kind == "missing" for fault in reading.faults) == 4
    assert receipt.read("nothing").required == 3  # total, seller, seller.inn


ROWS_READ = [
    ('[{"name": "a", "price": 1}]', [{"name": "a", "price": 1}], ()),
    ('As in [1]: [{"name": "a", "price": 1}]', [{"name": "a", "price": 1}], ()),
    ('{"name": "a", "price": 1}\n{"name": "b", "price": 2}',
     [{"name": "a", "price": 1}, {"name": "b", "price": 2}], ("objects not in a list",)),
    ('[{"name": "a", "price": 1}, {"name": "b", "pri', None,
     ("dropped a half-written field", "closed brackets")),
    ("| Name | **Price** |\n|:--|--:|\n| a | 1.5 |\n| b \\| c | 2 |",
     [{"name": "a", "price": 1.5}, {"name": "b | c", "price": 2}], ()),
    ("| 5 | x |\n|---|---|\n| 6 | y |", None, ()),
    ("<table><tr><th>name</th><th>price</th></tr><tr><td>a<br>b</td><td>1</td></tr></table>",
     [{"name": "a b", "price": 1}], ()),
    ('{"name": "a", "price": 1}', None, ()),
    ("nothing", None, ()),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "value", "repairs"), ROWS_READ)
def test_where_the_schema_wants_a_list_tables_are_one_too(
    answer: str, value: object, repairs: tuple[str, ...]
) -> None:
    reading = rows.read(answer)
    assert (reading.value, reading.repairs) == (value, repairs)
    assert bool(reading.reason) == (value is None)


class Total(BaseModel):
    total: float
    currency: str | None = None

    @field_validator("currency")
    @classmethod
    def known(cls, value: str | None) -> str | None:
        if value not in (None, "RUB", "EUR"):
            raise ValueError("no such currency")
        return value


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"total": 1}', ""),
        ('{"total": 1, "currency": null}', ""),
        ('{"total": 1, "currency": "RUB"}', ""),
        ('{"total": 1, "currency": "руб"}', "schema: value of currency"),
        ('{"total": "1"}', "schema: field total is string, not number"),
        ('{"total": 1, "currency": 5}', "schema: field currency is integer, not null or string"),
        ("{}", "schema: missing field total"),
    ],
)
def test_a_pydantic_model_is_a_schema_with_validators(answer: str, reason: str) -> None:
    assert DataParser("object", model=Total).read(answer).reason == reason


def test_a_schema_may_hold_itself() -> None:
    tree = {"$ref": "#/$defs/n", "$defs": {"n": {
        "type": "object", "required": ["v"],
        "properties": {"v": {"type": "number"}, "next": {"$ref": "#/$defs/n"}}}}}  # fmt: skip
    parser = DataParser("object", tree)
    assert parser.read('{"v": 1, "next": {"v": 2}}').required == 2
    assert parser.read('{"v": 1, "next": {}}').reason == "schema: missing field next.v"


def test_a_schema_that_cannot_be_used_loses_the_answer_and_fetches_nothing() -> None:
    parser = DataParser("object", {"$ref": "https://nowhere.invalid/schema.json"})
    assert parser.read("{}").reason == "schema: value of the whole"


# --- labels -----------------------------------------------------------------------------------------------

LABELS = [
    ("Invoice.", "invoice"), ("**Purchase Order**", "purchase order"), ("«receipt»", "receipt"),
    ("B", "receipt"), ("(b)", "receipt"), ("3.", "purchase order"), ("А", "invoice"),
    ("B) receipt", "receipt"), ("B) invoice", None),
    ("The answer is B", "receipt"), ("The correct answer is: (B).", "receipt"),
    ("Ответ: receipt", "receipt"), ("\\boxed{3}", "purchase order"),
    ("Type: invoice, not a receipt", "invoice"),
    ("It is a purchase order, I think", "purchase order"),
    ('{"class": "receipt"}', "receipt"),
    ("<think>invoice or receipt?</think>Receipt", "receipt"),
    ("invoice or receipt", None), ("none of them", None), ("", None), ("Z", None), ("invoices", None),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "label"), LABELS)
def test_a_label_of_a_known_list(answer: str, label: str | None) -> None:
    parser = DataParser("label", labels=["invoice", "receipt", "purchase order"])
    reading = parser.read(answer)
    assert reading.value == label
    assert reading.reason in (("",) if label else ("no label of the list", "several labels"))


def test_labels_as_short_as_letters_have_no_letters() -> None:
    assert DataParser("label", labels=["B", "A"]).read("A").value == "A"
    assert DataParser("label", labels=["2", "1"]).read("1").value == "1"


def test_labels_come_from_an_enum_or_the_sample_or_are_any() -> None:
    assert DataParser("label", {"enum": ["да", "нет"]}).read("Да!").value == "да"
    assert DataParser("label").read("Yes.", labels=["yes", "no"]).value == "yes"
    assert DataParser("label").read(' "Receipt". ').value == "receipt"


# --- texts ------------------------------------------------------------------------------------------------

TEXTS = [
    ("  12,50\nИТОГО \n", "12,50\nИТОГО"),
    ("", ""),
    ("<think>\n\n</think>\n\nABC", "ABC"),
    ("</think>ABC", "ABC"),
    ('{"a": "</think>"}', '{"a": "</think>"}'),
    ("[THINK]a[/THINK]b", "b"),
    ("<|begin_of_box|>7<|end_of_box|>", "7"),
    ("A page about <think> tags", "A page about <think> tags"),
    ("<table><tr><td>1</td></tr></table>", "<table><tr><td>1</td></tr></table>"),
    ("half \ud83d", "half \ufffd"),
]


@pytest.mark.parametrize(("answer", "text"), TEXTS)
def test_a_text_is_the_answer_without_thoughts_and_space_around(answer: str, text: str) -> None:
    assert DataParser("text").read(answer) == Reading(text, form="text")


def test_thoughts_may_be_kept() -> None:
    assert (
        DataParser("text", reasoning="keep").read("<think>a</think>b").value == "<think>a</think>b"
    )


def test_a_number_at_the_end_of_a_cut_answer_may_have_lost_digits() -> None:
    assert any_object.read('{"a": 1, "b": 12').value == {"a": 1, "b": 12}
    reading = any_object.read('{"a": 1, "b": 12', truncated=True)
    assert (reading.value, reading.truncated) == ({"a": 1}, True)


# --- any answer -------------------------------------------------------------------------------------------

HOSTILE = [
    "[", "{", '"', '{"', "{}", "{'a", "{/*", "{//", '{"a":', '{"a":[', '[{"a":', '{"a":"', '{"a":"x" ',
    '{"a":1,"b" x', "{a:", "{a ", "[{", '[{"a":1},', "a: b\n", "|", "|-|-\n", "<table>", "<td>", "```{",
    '{\\"', "<think>", ",", "}", "\\", "<", " ", "\n", "9", "-", "a:\n ", "{'", "“",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("start", ["", '{"a": "x"', '{"a": ', '{"a": "'])
def test_any_pattern_is_given_up_without_recursion(piece: str, start: str) -> None:
    answer = start + piece * (10_000 // len(piece))
    for parser in (receipt, rows):
        assert isinstance(parser.read(answer), Reading)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
OBJECTS = st.dictionaries(st.text(), VALUES, min_size=1, max_size=5)
PIECES = st.sampled_from([
    "{", "}", "[", "]", '"', "'", ":", ",", "\n", " ", "a", "Итого", "1", ".5", "true", "None", "\\",
    "```json\n",     "```", "//", "/*", "*/", "# ", "|", "---", "<think>", "</think>", "<table>", "<td>",
    "“", "»",     "，", "-", "\x00",     "\ud83d", "\u200b", "null", "NaN", "...", "key: ", '"key": ',
])  # fmt: skip


def _plain(value: object) -> bool:
    """Whether none of its texts has, as JSON, a backslash before a letter that may begin LaTeX."""
    return not re.search(r"\\[bfnrt][A-Za-z]", json.dumps(value, ensure_ascii=False))


@pytest.mark.long
@settings(deadline=None)
@given(value=OBJECTS.filter(_plain), indent=st.sampled_from([None, 1]), ascii_only=st.booleans())
def test_sound_json_is_read_as_it_is_alone_in_a_fence_and_amid_prose(
    value: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    written = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for answer in (written, f"```json\n{written}\n```", f"Here it is:\n{written}\nDone."):
        reading = thoughtless.read(answer)
        assert (reading.value, reading.repairs) == (value, ())


@settings(deadline=None)
@given(value=OBJECTS.filter(_plain), share=st.floats(0, 1))
def test_what_is_read_of_a_cut_object_has_no_field_it_did_not_have(
    value: dict[str, Any], share: float
) -> None:
    written = json.dumps(value, ensure_ascii=False)
    reading = thoughtless.read(written[: int(len(written) * share)], truncated=True)
    if isinstance(reading.value, dict):
        assert set(reading.value) <= set(value)


@settings(deadline=None)
@given(
    answer=st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join), truncated=st.booleans()
)
def test_nothing_raises_and_every_value_or_reason_is_there(answer: str, truncated: bool) -> None:
    label = DataParser("label", labels=["a", "Итого"])
    for parser in (any_object, receipt, rows, label, DataParser("text")):
        reading = parser.read(answer, truncated)
        assert (reading.value is None) == bool(reading.reason)
        assert reading == parser.read(answer, truncated)
        json.dumps(reading.value, ensure_ascii=False).encode()


def _fields(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_fields, value.values()))
    return sum(map(_fields, value)) if isinstance(value, list) else 0
