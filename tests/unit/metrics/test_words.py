"""Boundaries of words in every script, for BLEU, ROUGE-L, WER and `contains`."""

import itertools
import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.metrics import Bleu, RougeL, bleu, metric, rouge_l, score
from hpcbench.metrics.ngrams import words_of_13a
from hpcbench.metrics.words import script_words, spaced
from tests.campaign import examples

MANY = settings(deadline=None, max_examples=examples(300))
WITHOUT_SPACES = (
    "BALINESE", "BOPOMOFO", "CJK", "COMBINING KATAKANA", "HALFWIDTH KATAKANA", "HANGZHOU",
    "HENTAIGANA", "HIRAGANA", "IDEOGRAPHIC", "JAVANESE", "KANGXI", "KATAKANA", "KHITAN", "KHMER",
    "LAO", "MASU", "MYANMAR", "NEW TAI LUE", "NUSHU", "OLD CHINESE", "TAI", "TANGUT", "THAI",
    "VERTICAL IDEOGRAPHIC", "VERTICAL KANA", "VIETNAMESE ALTERNATE READING",
)  # fmt: skip
"""How Unicode's names of characters begin in scripts without spaces: the oracle here, code points in ours."""


def without_spaces(character: str) -> bool:
    return unicodedata.name(character, "").startswith(WITHOUT_SPACES)


def letters() -> list[str]:
    """All letters that Unicode names."""
    found = map(chr, range(sys.maxunicode + 1))
    return [
        one for one in found if unicodedata.category(one)[0] == "L" and unicodedata.name(one, "")
    ]


# --- what a word is -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't pay $1,000 a.m.", "Don t pay 1 000 a m"),
        ("Straße café naïve", "Straße café naïve"),
        ("Итого: к оплате", "Итого к оплате"),
        ("今天天气很好，iPhone手机15元", "今 天 天 气 很 好 iPhone 手 机 15 元"),
        ("カタカナーのテスト・ｶﾞ", "カ タ カ ナ ー の テ ス ト ｶ ﾞ"),
        ("か\u3099が", "か\u3099 が"),
        ("สวัสดี ๑๒๓", "ส วั ส ดี ๑๒๓"),
        ("ສະບາຍດີ", "ສ ະ ບ າ ຍ ດີ"),
        ("ខ្មែរ។", "ខ្ មែ រ"),
        ("မြန်မာ၊ ၁၂", "မြ န် မာ ၁၂"),
        ("대한민국은 大韓民國", "대한민국은 大 韓 民 國"),
        ("བོད་སྐད།", "བོད སྐད"),
        ("हिन्दी में लिखा है।", "हिन्दी में लिखा है"),
        ("தமிழ் மொழி", "தமிழ் மொழி"),
        ("كَتَبَ الرَّجُلُ", "كَتَبَ الرَّجُلُ"),
        ("שָׁלוֹם־עולם", "שָׁלוֹם עולם"),
        ("می\u200cخواهم", "میخواهم"),
        ("Silben\u00adtrennung \u200fשלום\u200e", "Silbentrennung שלום"),
        ("１２ＡＢ，ｘ", "１２ＡＢ ｘ"),
        ("☑ yes ☐no ☑\ufe0f", "☑ yes ☐ no ☑"),
        ("5 € №7 21°C ½", "5 € № 7 21 ° C ½"),
        ("👩\u200d👧🇩🇪👍🏽", "👩 👧 🇩 🇪 👍 🏽"),
        ("\U00020bb7野家 x\U0001d400", "\U00020bb7 野 家 x\U0001d400"),
        ("?!", "? !"),
        ("… —", "… —"),
        ("\u200b", "\u200b"),
        ("\ue000\ud800", "\ue000 \ud800"),
        (" \u3000\n", ""),
    ],
)
def test_words(text: str, words: str) -> None:
    assert script_words(text) == words.split()


@pytest.mark.long
def test_letters_of_every_script_are_cut_as_it_is_written() -> None:
    for letter in letters():
        expected = [letter] * 2 if without_spaces(letter) else [letter * 2]
        assert script_words(letter * 2) == expected, unicodedata.name(letter)


def test_marks_stay_with_what_they_are_on() -> None:
    for mark in map(chr, range(0x80, sys.maxunicode + 1)):
        if unicodedata.category(mark)[0] != "M" or unicodedata.name(mark, "").startswith(
            "VARIATION"
        ):
            continue
        for base in "aक天":
            words = script_words(base + mark)
            assert words in ([base + mark], [base, mark] if without_spaces(mark) else [base]), mark


def test_digits_of_every_script_make_numbers() -> None:
    for digit in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(digit) == "Nd":
            assert script_words(f"天{digit * 3}天") == ["天", digit * 3, "天"]


@given(st.text())
@MANY
def test_every_text_that_shows_something_has_words(text: str) -> None:
    words = script_words(text)
    assert all(word and not any(map(str.isspace, word)) for word in words)
    kinds = {unicodedata.category(character) for character in text if not character.isspace()}
    assert words or kinds <= {"Cf", "Mn"}


# --- ROUGE-L --------------------------------------------------------------------------------------------


def test_a_wrong_character_costs_its_share_in_scripts_without_spaces() -> None:
    assert rouge_l("今天天气不好", "今天天气很好") == pytest.approx(5 / 6)
    assert rouge_l("こんにちわ", "こんにちは") == pytest.approx(4 / 5)
    assert rouge_l("안녕 세상", "안녕 세계") == 0.5
    assert rouge_l("☐ approved", "☑ approved") == 0.5
    assert rouge_l("☑ approved", "☑\ufe0f approved") == 1.0


ASCII = st.text(st.characters(max_codepoint=127), max_size=30)


@given(ASCII, ASCII)
@MANY
def test_words_of_ascii_texts_are_those_of_rouge_score(prediction: str, reference: str) -> None:
    theirs = RougeL(compat="rouge-score")
    some = any(map(str.isalnum, prediction)) or any(map(str.isalnum, reference))
    if some:
        assert RougeL().score(prediction, [reference]) == theirs.score(prediction, [reference])


@given(st.text(max_size=20), st.sampled_from(["NFC", "NFD"]))
@MANY
def test_a_text_is_itself_in_any_form_and_spacing(text: str, form: str) -> None:
    assert rouge_l(f"  {unicodedata.normalize(form, text)}\n", text) == 1.0


NO_WORDS = st.text(st.characters(categories=["P", "Co", "Cs"]), min_size=1, max_size=3)


@given(NO_WORDS, NO_WORDS | st.just(""))
@MANY
def test_texts_without_words_are_equal_only_if_they_are(prediction: str, reference: str) -> None:
    same = unicodedata.normalize("NFC", prediction) == unicodedata.normalize("NFC", reference)
    for words in ("script", "ascii"):
        assert (rouge_l(prediction, reference, words=words) == 1.0) == same
    assert rouge_l(prediction, reference, compat="rouge-score") == 0.0


ALONE = (
    *(
        "☑", "☐", "✓", "✗", "●", "○", "→", "←", "€", "£", "½", "¼", "№", "①", "②", "?", "!", "…",
        "·", "—",
    ),
    *(
        "天", "气", "あ", "ア", "ก", "ข", "ក", "က", "한", "ב", "ب", "क", "Ж", "a", "7", "\ue000", "👍",
        "👎",
    ),
)  # fmt: skip
"""Texts of one character, of which no two mean the same."""


@pytest.mark.parametrize(
    "name",
    [
        *("accuracy", "anls", "anls_star", "bleu", "cer", "chrf", "contains", "exact_match"),
        *("formula_edit", "formula_match", "markdown_edit", "ned", "ocrbench", "ocrbench_v2"),
        *("relaxed_accuracy", "rouge_l", "wer"),
    ],
)
def test_no_metric_of_texts_takes_one_character_for_another(name: str) -> None:
    made = metric(name)
    best = made.bounds[1] if made.higher_is_better else made.bounds[0]
    for prediction, reference in itertools.permutations(ALONE, 2):
        assert score(name, prediction, reference) != best, (prediction, reference)


# --- BLEU -----------------------------------------------------------------------------------------------


def test_bleu_sees_characters_of_scripts_without_spaces() -> None:
    assert bleu("今天天气不好吗", "今天天气很好吗", tokenize="13a") == 0.0
    assert bleu("今天天气不好吗", "今天天气很好吗") == bleu("a b b c x d e", "a b b c y d e")
    assert bleu("สวัสดีคับ", "สวัสดีครับ") > 30
    assert bleu("アメリカ、日本", "アメリカ、日本") == 100.0


SPACED = st.text(
    st.characters(categories=["L", "M", "N", "P", "S", "Z"]).filter(
        lambda one: bool(unicodedata.name(one, "")) and not without_spaces(one)
    )
    | st.sampled_from("\n\t&.,-1"),
    max_size=30,
)


@given(SPACED, SPACED)
@MANY
def test_bleu_of_scripts_with_spaces_is_that_of_13a(prediction: str, reference: str) -> None:
    assert spaced([prediction, reference]) == [prediction, reference]
    ours = Bleu().score(prediction, [reference])
    assert ours == Bleu(tokenize="13a").score(prediction, [reference])


CHINESE = st.text(
    "今天气很好发票合计㐀豈，。、；：？！（）「」《》￥％ abcXYZ0123456789()!?;:%$", max_size=20
)


@given(CHINESE, CHINESE)
@MANY
def test_bleu_of_chinese_is_that_of_zh(prediction: str, reference: str) -> None:
    prediction, reference = f"今{prediction}", f"天{reference}"
    ours = Bleu().score(prediction, [reference])
    assert ours == Bleu(tokenize="zh").score(prediction, [reference])


@given(st.text(max_size=30) | st.text("aЖ天1.,-&;'\"/<>[] \n\t", max_size=30))
@settings(deadline=None, max_examples=examples(1000))
def test_13a_cuts_as_sacrebleu_does(text: str) -> None:
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    for one in (text, f"{text}<skipped>-\n&quot;&amp;quot;{text}", f"1{text}.2-{text}..."):
        assert words_of_13a(one) == Tokenizer13a()(one.rstrip()).split()


def test_the_texts_of_one_sample_are_cut_alike() -> None:
    assert spaced(["a，b", "a，c"]) == ["a，b", "a，c"]
    assert [text.split() for text in spaced(["a，b", "天，c"])] == [
        ["a", "，", "b"],
        ["天", "，", "c"],
    ]
