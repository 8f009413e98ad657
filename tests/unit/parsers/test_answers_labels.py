"""Answers and the labels they name: a corpus, and laws about all labels.

A wrong label is worse than none: the share of answers that are read as another label than they name is 0.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections import Counter

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hpcbench.parsers import DataParser, label_words
from hpcbench.parsers.class_label import read_label
from hpcbench.parsers.label_sentences import REASONS
from tests.campaign import examples, first
from tests.conftest import ROOT

GROUPS = [
    group
    for path in sorted((ROOT / "tests" / "answers").glob("labels*.yaml"))
    for group in yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)
]
READ = [
    (group["labels"], answer, label) for group in GROUPS for answer, label in group.get("read", ())
]
REFUSED = [
    (group["labels"], answer, word) for group in GROUPS for answer, word in group.get("refused", ())
]

# --- the corpus -------------------------------------------------------------------------------------------


@pytest.mark.long
def test_an_answer_that_names_a_label_is_read() -> None:
    readings = [DataParser("label", labels=labels).read(answer) for labels, answer, _ in READ]
    wrong = [
        (case, reading)
        for case, reading in zip(READ, readings, strict=True)
        if (reading.value, reading.reason) != (case[2], "")
    ]
    assert wrong == []


def test_an_answer_that_names_none_for_certain_is_refused() -> None:
    readings = [DataParser("label", labels=labels).read(answer) for labels, answer, _ in REFUSED]
    wrong = [
        (case, reading)
        for case, reading in zip(REFUSED, readings, strict=True)
        if reading.value is not None
        or reading.reason not in REASONS
        or case[2] not in reading.reason
    ]
    assert wrong == []


def test_the_corpus_has_many_answers_of_both_kinds_in_many_languages() -> None:
    read = Counter(group["language"] for group in GROUPS for _ in group.get("read", ()))
    refused = Counter(group["language"] for group in GROUPS for _ in group.get("refused", ()))
    assert len(READ) >= 100
    assert len(REFUSED) >= 100
    for language in ("en", "ru", "de", "fr", "es", "zh", "it", "pt", "ja", "ko", "ar"):
        assert read[language] >= 2
        assert refused[language] >= 3


DENIALS = {
    "en": ("not ", "no longer ", "hardly ", "anything but ", "non-", "un", "nearly ", "maybe "),
    "ru": ("не ", "вовсе не ", "почти "),
    "de": ("nicht ", "kein ", "nie "),
    "fr": ("pas ", "jamais ", "plus "),
    "es": ("no ", "nunca "),
    "zh": ("不是", "非", "没有"),
}


@pytest.mark.long
def test_an_answer_of_the_corpus_in_which_its_label_is_denied_is_not_read() -> None:
    denied = [
        (group["labels"], answer[: found.start()] + denial + answer[found.start() :], label)
        for group in GROUPS
        for answer, label in group.get("read", ())
        for found in re.finditer(re.escape(label), answer, re.IGNORECASE)
        for denial in DENIALS.get(group["language"], ())
        if len(re.findall(re.escape(label), answer, re.IGNORECASE)) == 1
        and not re.search(r"Answer: .\s*(?:$|\n)", answer)  # the letter names it, too
    ]
    assert len(denied) > 1000
    assert [one for one in denied if read_label(one[1], one[0])[0] == one[2]] == []


# --- laws about all labels --------------------------------------------------------------------------------

KNOWN = label_words.CARRIERS | label_words.FINAL


def is_free(word: str) -> bool:
    """Whether a word has no meaning for the reader."""
    patterns = (label_words.NEGATION, label_words.DOUBT, label_words.CORRECTION, label_words.TRUTH)
    return word not in KNOWN and not any(one.search(word) for one in patterns)


WORDS = st.text("bcdfghklmprstvwaeiou", min_size=4, max_size=9).filter(is_free)
CYRILLIC_WORDS = st.text("бвгджзклмпрстаеиоуяё", min_size=4, max_size=9).filter(is_free)
NAMES = st.one_of(
    WORDS, CYRILLIC_WORDS, st.tuples(WORDS, WORDS).map(" ".join), WORDS.map(str.title)
)
LISTS = st.lists(NAMES, min_size=2, max_size=6, unique_by=str.casefold).filter(
    lambda names: not any(a != b and a.casefold() in b.casefold() for a in names for b in names)
)
MARKS = "ABCDEF"

NEGATIONS = (
    "not {}", "Not {}.", "This is not {}.", "This is not a {}.", "It isn't {}", "It isn’t a {}.",
    "This cannot be a {}.", "It is no {}.", "It is no longer a {}.", "It was never a {}.",
    "This is anything but a {}.", "It is far from a {}.", "I don't think this is a {}.",
    "There is no evidence that this is a {}.", "It is false that this is a {}.", "Neither {} nor this.",
    "A {} it is not.", "{}? No.", "{}: no", "{} is wrong.", "Answer: not {}", "The answer is not {}.",
    "The answer isn't {}.", "It is everything except a {}.", "Rather than a {}, something else.",
    "Instead of {}", "This is a {}. That is not true.", "This is a {}... not!", "non-{}", "¬{}", "!{}",
    "Это не {}", "Это не {}.", "Не {}", "Ответ: не {}", "Это точно не {}.", "{}? Нет.", "Ни {}, ни это",
    "Вряд ли это {}.", "Это что угодно, кроме {}",
    "Das ist kein {}", "Das ist keine {}.", "Das ist nicht {}.", "Weder {} noch das", "{} ist das nicht.",
    "Ce n'est pas {}.", "Ce n’est pas un {}", "C'est pas {}", "Pas {}", "C'est tout sauf {}.",
    "Ni {} ni ça",
    "No es {}.", "Esto no es un {}", "No creo que sea {}", "Nunca fue {}", "Ni {} ni eso",
    "Non è {}.", "Não é {}.", "Bu {} değil.", "To nie jest {}.", "Dit is geen {}.",
    "这不是{}", "这不是 {}。", "并非{}", "这并非{}。", "非{}", "{}不是", "没有{}", "これは{}ではありません。",
    "{}가 아닙니다", "ليس {}",
)  # fmt: skip

DOUBTS = (
    "It could be {}.", "It might be a {}.", "Maybe {}", "Perhaps it is {}.", "Possibly a {}", "{}?",
    "Is it {}?", "Is this a {}", "If it were {}, I would say so.", "I wonder whether it is {}.",
    "This is {}, right?",
    "It is {} if it is signed.", "This would be {}.", "I doubt that it is {}.", "It resembles {}.",
    "Возможно, это {}.", "Это {}?", "Das könnte {} sein.", "Ist das {}?", "C'est peut-être {}.",
    "¿Es {}?",
    "Podría ser {}.", "这可能是{}", "这是{}吗？",
)  # fmt: skip

AFFIRMATIONS = (
    "{}", "{}.", " {} \n", "**{}**", '"{}"', "«{}»", "`{}`", "This is {}.", "This is a {}.", "It's {}.",
    "The document is a {}.", "The document is an **{}**.", "Answer: {}", "**Answer:** {}",
    "The answer is {}.",
    "The answer is: {}", "Label: {}", "The correct label is \"{}\".", "Final answer: {}",
    "I would say it is a {}.", "Based on its layout, this is a {}.", "Therefore, it is a {}.",
    "\\boxed{{{}}}", "\\boxed{{\\text{{{}}}}}", '{{"label": "{}"}}', '```json\n{{"label": "{}"}}\n```',
    "It is not clear at first.\nAnswer: {}", "There is no total, so the answer is {}.",
    "Это {}.", "Ответ: {}", "Тип документа: {}", "Das ist ein {}.", "Antwort: {}", "C'est un {}.",
    "Réponse : {}", "Es un {}.", "Respuesta: {}", "È un {}.", "É um {}.", "这是{}", "答案：{}", "答案是 {}。",
    "これは{}です。",
)  # fmt: skip


@pytest.mark.long
@settings(deadline=None)
@given(names=LISTS, place=st.integers(0, 5), frame=st.sampled_from(NEGATIONS))
def test_a_denied_label_is_never_the_value(names: list[str], place: int, frame: str) -> None:
    name = names[place % len(names)]
    assert read_label(frame.format(name), names)[0] is None


@pytest.mark.long
@settings(deadline=None)
@given(names=LISTS, place=st.integers(0, 5), frame=st.sampled_from(DOUBTS))
def test_a_doubted_label_is_never_the_value(names: list[str], place: int, frame: str) -> None:
    name = names[place % len(names)]
    assert read_label(frame.format(name), names)[0] is None


@pytest.mark.long
@settings(deadline=None)
@given(names=LISTS, place=st.integers(0, 5), frame=st.sampled_from(AFFIRMATIONS))
def test_a_label_that_is_named_is_the_value(names: list[str], place: int, frame: str) -> None:
    name = names[place % len(names)]
    assert read_label(frame.format(name), names) == (name, "")


@pytest.mark.long
@settings(deadline=None)
@given(
    names=LISTS,
    mark=st.sampled_from(MARKS),
    frame=st.sampled_from(
        ["The answer {} {}", "The answer is {} {}.", "It {} {}", "Answer: {} {}"]
    ),
    word=st.sampled_from(
        ["not", "cannot be", "isn't", "can't be", "never", "не", "nicht", "n'est pas"]
    ),
)
def test_a_denied_letter_is_never_the_value(
    names: list[str], mark: str, frame: str, word: str
) -> None:
    assert read_label(frame.format(word, mark), names)[0] is None


@pytest.mark.long
@settings(deadline=None)
@given(names=LISTS, place=st.integers(0, 5), frame=st.sampled_from(
    ["{}", "({})", "{}.", "**{}**", "Answer: {}", "The answer is {}.", "The answer is ({}).",
    "\\boxed{{{}}}"]
))  # fmt: skip
def test_a_letter_is_the_option_of_its_place(names: list[str], place: int, frame: str) -> None:
    place %= len(names)
    assert read_label(frame.format(MARKS[place]), names) == (names[place], "")


@pytest.mark.long
@settings(deadline=None)
@given(names=LISTS, place=st.integers(0, 5), word=WORDS | CYRILLIC_WORDS)
def test_a_word_the_reader_does_not_know_before_a_label_refuses_it(
    names: list[str], place: int, word: str
) -> None:
    name = names[place % len(names)]
    assume(all(word not in one.casefold() for one in names))
    for frame in ("This is {} {}.", "The answer is {} {}.", "{} {}", "It is a {} {}"):
        assert read_label(frame.format(word, name), names)[0] is None


@pytest.mark.long
@settings(deadline=None)
@given(names=LISTS, first=st.integers(0, 5), second=st.integers(0, 5), frame=st.sampled_from(
    ["{} or {}", "{} and {}", "{}, {}", "{} / {}", "It is {} or {}.", "Either {} or {}", "{}. {}.",
    "{}\n{}",
     "This is {}. No wait, it is {}.", "Answer: {}\nAnswer: {}", "not {} but {}", "{} → {}", "或{}或{}"]
))  # fmt: skip
def test_two_labels_are_none(names: list[str], first: int, second: int, frame: str) -> None:
    one, other = names[first % len(names)], names[second % len(names)]
    assume(one != other)
    assert read_label(frame.format(one, other), names)[0] is None


@pytest.mark.long
@settings(deadline=None)
@given(names=LISTS, number=st.one_of(
    st.floats(-9, 9).map(lambda one: f"{one:.2f}"), st.integers(1000, 10**6).map(lambda one: f"{one:,}"),
    st.integers(-9, -1).map(str), st.integers(1, 9).map("{}%".format), st.integers(1, 9).map("{}th".format),
    st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda pair: f"{pair[0]}/{pair[1]}"),
    st.integers(1, 9).map("{}e3".format), st.integers(1, 9).map("${}".format),
    st.integers(1000, 9999).map(lambda one: f"{one:,}".replace(",", " ")),
))  # fmt: skip
def test_only_a_whole_number_is_an_option(names: list[str], number: str) -> None:
    for frame in ("{}", "Answer: {}", "The answer is {}.", "\\boxed{{{}}}"):
        assert read_label(frame.format(number), names)[0] is None


@pytest.mark.long
@settings(deadline=None)
@given(
    names=LISTS,
    place=st.integers(0, 5),
    frame=st.sampled_from(["{}", "This is {}.", "Answer: {}", "not {}"]),
)
def test_unicode_forms_invisible_characters_and_marks_change_nothing(
    names: list[str], place: int, frame: str
) -> None:
    answer = frame.format(names[place % len(names)])
    wide = "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in answer)
    dressed = [
        unicodedata.normalize("NFC", answer), unicodedata.normalize("NFD", answer), answer.upper(), wide,
        "\u200b".join(answer), "\u00ad".join(answer), answer.replace(" ", "\u00a0"), f"**{answer}**",
        f"<b>{answer}</b>", f"“{answer}”", f"\n\n{answer}\n",
    ]  # fmt: skip
    assert {read_label(one, names)[0] for one in dressed} == {read_label(answer, names)[0]}


PIECES = st.sampled_from(
    ["A", "b", "B.", "(c)", "invoice", "Receipt", "not ", "no", "yes", "The answer is ", "Answer:", "\n",
     ". ", ", ", "?", "**", '"', "{", "}", "[", "]", ":", "\\boxed{", "$", "1", "2.5", "-", "не ",
     "это", "这是", "不", "发票",
     "。", "if ", "so ", "because ", "Explanation: ", "İ", "ß", "\u0301", "\u200b", "<b>", "`", "~",
     "or ", "wait"]
)  # fmt: skip


@settings(deadline=None, max_examples=examples(300))
@given(answer=st.lists(PIECES | st.text(max_size=3), max_size=25).map("".join))
def test_whatever_comes_there_is_a_label_of_the_list_or_a_reason(answer: str) -> None:
    for labels in (
        ["invoice", "receipt", "发票"],
        ["yes", "no"],
        ["A", "B"],
        ["2", "1"],
        ["", "?"],
    ):
        label, reason = read_label(answer, labels)
        assert label in labels and reason == "" or label is None and reason in REASONS


# --- size -------------------------------------------------------------------------------------------------

HOSTILE = [
    "a", "A ", "A. ", "A, ", "invoice ", "invoice. ", "invoice, ", "no. ", "not ", "The answer is A. ",
    "so the answer is B, ", "if, so ", "*", "**a", "_a_ ", "`", "\\text{", "\\boxed{A} ", "$", "$a$",
    '{"a":', "[",
    "<b>", "(", '"', "' ", "\n", "answer:\n", "。", "这是发票,", "发票。", "?! ", "...", "1,", "- ",
    "\u0301\u0323",
    "\u200b", "İ", "ﷺ", "explanation: ", "because ", "let me know. ", "(A) (B) ", "the the ", "n't ",
    "no, it is not. no. ", "wait. invoice. ", "maybe. invoice. ",
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("piece", first(2, HOSTILE))
def test_twenty_thousand_characters_are_read_at_once(piece: str) -> None:
    answer = (piece * 20_000)[:20_000]
    started = time.process_time()
    for labels in (["invoice", "receipt"], ["yes", "no"], ["发票", "收据"], ["A", "B"]):
        read_label(answer, labels)
    assert time.process_time() - started < 30


def test_an_answer_nested_three_thousand_deep_is_refused() -> None:
    for opening, closing in (("[", "]"), ('{"label":', "}"), ("(", ")"), ("{", "}")):
        answer = opening * 3000 + '"invoice"' + closing * 3000
        assert read_label(answer, ["invoice", "receipt"])[0] is None
