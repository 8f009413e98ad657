"""Relaxed accuracy and VQA accuracy: published vectors, options, the rules said again in plain words."""

import functools
import random
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.metrics import metric, score
from hpcbench.metrics.vqa import _SPELLING, RelaxedAccuracy, VqaAccuracy, plain_answer
from tests.campaign import cases

PAIRS = cases(12_000)

# --- relaxed accuracy -----------------------------------------------------------------------------------

RELAXED = [
    ("100", "95", 1),
    ("100", "94.9", 0),
    ("0", "0", 1),
    ("0", "0.0", 0),  # a target of 0 is compared as a text
    ("5%", "5", 0),
    ("50%", "52%", 1),
    ("1,000", "1000", 0),
    ("$10", "10", 0),
    ("-10", "-10.5", 1),
    ("-10", "10", 0),
    ("nan", "nan", 0),
    ("10", "10 units", 0),
    ("1e2", "100", 1),
]


@pytest.mark.parametrize("compat", ["", "pix2struct", "lmms-eval", "vlmevalkit"])
@pytest.mark.parametrize(("target", "answer", "right"), RELAXED)
def test_published_vectors_of_relaxed_accuracy(
    target: str, answer: str, right: int, compat: str
) -> None:
    assert score("relaxed_accuracy", answer, [target], compat=compat) == right


def test_texts_are_right_when_equal_but_for_case() -> None:
    assert score("relaxed_accuracy", " YES\n", ["Yes"]) == 1.0
    assert score("relaxed_accuracy", "Yes.", ["Yes"]) == 0.0
    assert score("relaxed_accuracy", "94", ["Yes", "100", "93"]) == 1.0


def test_whose_strip_it_is() -> None:
    assert score("relaxed_accuracy", " Yes", ["Yes"], compat="pix2struct") == 0.0
    assert score("relaxed_accuracy", " Yes", ["Yes"], compat="vlmevalkit") == 1.0
    assert score("relaxed_accuracy", "Yes", [" Yes"], compat="vlmevalkit") == 0.0


def test_years_can_be_strict() -> None:
    assert score("relaxed_accuracy", "2011", ["2010"]) == 1.0
    assert score("relaxed_accuracy", "2011", ["2010"], years="strict") == 0.0
    assert score("relaxed_accuracy", "2010.0", ["2010"], years="strict") == 1.0
    assert score("relaxed_accuracy", "2150", ["2110"], years="strict") == 1.0  # no year
    assert score("relaxed_accuracy", "2010.9", ["2010.5"], years="strict") == 1.0


def test_tolerance() -> None:
    assert score("relaxed_accuracy", "90", ["100"], tolerance=0.1) == 1.0
    assert score("relaxed_accuracy", "99.9", ["100"], tolerance=0) == 0.0
    for wrong in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="tolerance is"):
            RelaxedAccuracy(tolerance=wrong)


@pytest.mark.parametrize(
    ("target", "answer", "right"),
    [
        ("1,000", "1000", 1),
        ("$10", "10", 1),
        ("10", "10 units", 1),
        ("0", "0.0", 1),
        ("0", "0.01", 0),
        ("nan", "nan", 1),
        ("1 234,56 ₽", "1234.5", 1),
        ("10 kg", "10 m", 0),
        ("$10", "€10", 0),
        ("5%", "5", 0),
        ("10", "the answer is 10", 0),
        ("$1,000", "1,040", 1),
        ("$1,000", "1,060", 0),
    ],
)
def test_written_numbers(target: str, answer: str, right: int) -> None:
    assert score("relaxed_accuracy", answer, [target], numbers="written") == right


def relaxed_again(answer: str, target: str) -> bool:
    """The rule as pix2struct's authors state it."""

    def number(text: str) -> float | None:
        percent = text[-1:] == "%"
        try:
            return float(text.rstrip("%")) / 100.0 if percent else float(text)
        except ValueError:
            return None

    said, wanted = number(answer), number(target)
    if said is None or wanted is None or wanted == 0:
        return answer.lower() == target.lower()
    return abs(said - wanted) / abs(wanted) <= 0.05


def numeric(rng: random.Random) -> str:
    number = rng.choice([0, 1, 5, 100, 1000, 2010, 12.5, 0.05, -10, 1e300])
    number *= rng.choice([1, 1, 1.05, 0.95, 1.04, 1.06])
    form = rng.choice(["{}", "{}", "{}%", "{}%%", " {}", "{} ", "{:e}", "${}", "{} kg", "{:,}"])
    return form.format(number)


def test_relaxed_accuracy_is_the_rule_said_again() -> None:
    rng = random.Random(8)
    words = ["Yes", "yes", "ДА", "да", "nan", "inf", "-inf", "%", "", "é", "１０", "1_000", "😀"]
    dialect = metric("relaxed_accuracy", compat="pix2struct")
    usual = metric("relaxed_accuracy", unicode="none")
    for _ in range(PAIRS):
        answer, target = (
            numeric(rng) if rng.random() < 0.8 else rng.choice(words) for _ in range(2)
        )
        assert dialect.score(answer, [target]).numerator == relaxed_again(answer, target)
        stripped = relaxed_again(answer.strip(), target.strip())
        assert usual.score(answer, [target]).numerator == stripped, (answer, target)


@given(st.text(), st.text(), st.sampled_from(["plain", "written"]))
def test_any_text_is_scored_and_a_target_that_is_no_number_is_met_by_itself(
    one: str, other: str, numbers: str
) -> None:
    assert score("relaxed_accuracy", one, [other], numbers=numbers) in (0.0, 1.0)
    if one.strip().lower().strip("+-") not in ("nan", "inf", "infinity"):
        assert score("relaxed_accuracy", one, [one], numbers=numbers) == 1.0
    assert score("relaxed_accuracy", one, [one], numbers="written") == 1.0


# --- VQA accuracy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The cat.", "cat"),
        ("two", "2"),
        ("1,000.50", "1000.50"),
        ("U.S.A.", "usa"),
        ("dont", "don't"),
        ("yes/no", "yes no"),
        ("a-b", "b"),
        ("cat, dog", "cat dog"),
        ("$5.00", "$5.00"),
        ("100%", "100%"),
        ("None", "0"),
        ("it's", "it's"),
        ("a\tb\nc", "b c"),
        ("wouldnt've", "wouldn't've"),
        ("1,000-2", "10002"),  # a comma within a number takes all punctuation away
    ],
)
def test_published_vectors_of_answer_processing(text: str, plain: str) -> None:
    assert plain_answer(text) == plain


def test_textvqa_parts_words_first() -> None:
    assert plain_answer("it's", "lmms-eval") == "it 's"
    assert plain_answer("John's", "lmms-eval") == "john 's"
    assert score("vqa_accuracy", "it's", ["it 's"] * 10) == 0.0
    assert score("vqa_accuracy", "it's", ["it 's"] * 10, compat="lmms-eval") == 1.0
    assert score("vqa_accuracy", "it's", ["it 's"] * 10, compat="lmms-eval-vqav2") == 0.0


def test_several_commas_between_digits_are_one_for_vqav2_of_lmms_eval() -> None:
    assert plain_answer("1,,2", "vqa-v2") == plain_answer("1,,2") == "1 2"
    assert plain_answer("1,,2", "lmms-eval-vqav2") == "12"


def test_vlmevalkit_keeps_full_stops_behind_digits() -> None:
    assert plain_answer("No. 5.", "vlmevalkit") == "no 5."
    assert plain_answer("No. 5.", "vqa-v2") == plain_answer("No. 5.") == "no 5"


def test_other_kits_drop_at_most_32_full_stops() -> None:
    answer = "." * 40 + "x"
    assert plain_answer(answer) == "x"
    for compat in ("vqa-v2", "vlmevalkit", "lmms-eval", "lmms-eval-vqav2"):
        assert plain_answer(answer, compat) == "." * 8 + "x"
        assert score("vqa_accuracy", answer, ["x"] * 9 + ["y"], compat=compat) == 0.0
    assert score("vqa_accuracy", answer, ["x"] * 9 + ["y"]) == 1.0


def test_a_contraction_is_known_with_one_apostrophe_missing() -> None:
    assert len(_SPELLING) == 114  # the published table, less what is never met or changes nothing
    assert _SPELLING["aint"] == "ain't"
    assert (
        _SPELLING["yall'd've"] == _SPELLING["y'alld've"] == _SPELLING["y'all'dve"] == "y'all'd've"
    )
    assert _SPELLING["'ows'at"] == "'ow's'at"
    assert _SPELLING["somebody'd"] == "somebodyd"
    assert not {"im", "ive", "wed", "id", "well"} & _SPELLING.keys()


def test_agreement_is_the_mean_over_nine_of_ten_people() -> None:
    values = [score("vqa_accuracy", "x", ["x"] * k + ["y"] * (10 - k)) for k in range(11)]
    assert values == [0, 0.3, 0.6, 0.9, 1, 1, 1, 1, 1, 1, 1]


def test_few_references_are_votes_or_alternatives() -> None:
    assert score("vqa_accuracy", "x", "x") == 0.0  # no other annotator said it
    assert score("vqa_accuracy", "x", ["x"] * 3) == pytest.approx(2 / 3)
    assert score("vqa_accuracy", "The X.", "x", few="alternatives") == 1.0
    assert score("vqa_accuracy", "x", ["y", "x"], few="alternatives") == 1.0
    assert score("vqa_accuracy", "x", ["y"] * 9 + ["x"], few="alternatives") == 0.3


def test_the_code_of_vqa_v2_leaves_undisputed_answers_as_they_are() -> None:
    assert score("vqa_accuracy", "cat", ["The cat."] * 10) == 1.0
    assert score("vqa_accuracy", "cat", ["The cat."] * 10, compat="vqa-v2") == 0.0
    assert score("vqa_accuracy", "The cat.\n", ["The cat."] * 10, compat="vqa-v2") == 1.0
    assert score("vqa_accuracy", "THE cat.", ["The cat."] * 10, compat="vqa-v2") == 0.0
    assert score("vqa_accuracy", "THE cat.", ["The cat."] * 10, process="disputed") == 1.0
    assert score("vqa_accuracy", "cat", ["The cat."] * 9 + ["dog"], compat="vqa-v2") == 1.0


@functools.cache
def processed_again(text: str, compat: str) -> str:
    """Answer processing mark by mark."""
    if compat == "lmms-eval":
        text = text.lower()
        for gone in ",?":
            text = text.replace(gone, "")
        text = " 's".join(text.split("'s")).strip()
    text = re.sub("[\n\t]", " ", text).strip()
    commas = ",+" if compat == "lmms-eval-vqav2" else ","
    marked, in_number = text, re.search(f"[0-9]{commas}[0-9]", text)
    for mark in list(';/[]"{}()=+\\_-><@`,?!'):
        beside_space = f" {mark}" in marked or f"{mark} " in marked
        text = text.replace(mark, "" if beside_space or in_number else " ")
    left = 32
    kept = ""
    for at, letter in enumerate(text):
        digit_before = compat == "vlmevalkit" and text[max(at - 1, 0) : at].isdigit()
        if letter == "." and left and not (digit_before or text[at + 1 : at + 2].isdigit()):
            left -= 1
        else:
            kept += letter
    numbers = "zero one two three four five six seven eight nine ten".split()  # noqa: SIM905
    words = [
        "0" if w == "none" else str(numbers.index(w)) if w in numbers else w
        for w in kept.lower().split()
    ]
    return " ".join(_SPELLING.get(w, w) for w in words if w not in ("a", "an", "the"))


def agreement_again(answer: str, answers: list[str]) -> Fraction:
    """Each person left out in turn."""
    others = [answers[:at] + answers[at + 1 :] for at in range(len(answers))]
    each = [min(Fraction(1), Fraction(rest.count(answer), 3)) for rest in others]
    return sum(each, Fraction(0)) / len(each)


def said(rng: random.Random) -> str:
    pieces = [
        "the", "A", "two", "None", "cat", "Кот", "dont", "it's", "U.S.A.", "1,000.50", "5.", ".5", "a-b",
        "yes/no", "(x)", "x ?", "!", ", ", "-", "\n", "\t", "😀", "é", "%", "$5.00", "...", "'s", "\u00a0",
        "wouldnt've", "1,,2",
    ]  # fmt: skip
    return rng.choice(["", " "]).join(rng.choices(pieces, k=rng.randint(0, 5)))


@pytest.mark.long
@pytest.mark.parametrize("compat", ["vlmevalkit", "lmms-eval", "lmms-eval-vqav2", "vqa-v2"])
def test_vqa_accuracy_is_the_rule_said_again(compat: str) -> None:
    rng = random.Random(compat)
    chosen = metric("vqa_accuracy", compat=compat)
    for _ in range(cases(10_000 if compat == "vlmevalkit" else 2_000)):
        pool = [said(rng) for _ in range(rng.randint(1, 4))]
        answer, answers = rng.choice(pool), rng.choices(pool, k=rng.choice([1, 2, 3, 10, 10]))
        lines = [re.sub("[\n\t]", " ", one).strip() for one in (answer, *answers)]
        if compat == "vqa-v2" and len(set(lines[1:])) == 1:
            plain = lines
        else:
            plain = [processed_again(one, compat) for one in (answer, *answers)]
        value = chosen.score(answer, answers).numerator
        assert value == pytest.approx(float(agreement_again(plain[0], plain[1:])), abs=1e-12)


@given(st.text(), st.lists(st.text(), min_size=4, max_size=10))
def test_agreement_stays_in_range_and_is_full_with_oneself(answer: str, answers: list[str]) -> None:
    assert 0 <= score("vqa_accuracy", answer, answers) <= 1
    assert score("vqa_accuracy", answer, [answer] * len(answers)) == 1.0
    assert score("vqa_accuracy", answer, answers[::-1]) == score("vqa_accuracy", answer, answers)


# --- both -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relaxed_accuracy", "vqa_accuracy"])
def test_faults_of_the_dataset_are_reported_and_those_of_a_model_scored(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} needs at least one reference"):
        metric(name).score("a", [])
    with pytest.raises(TypeError, match=f"^{name} compares texts; .* of type float"):
        metric(name).score("a", ["a", 1.5])
    for unread in (None, 1.5, b"a", ["a"], {}):
        assert metric(name).score(unread, ["a"] * 10).numerator == 0.0


def test_signatures_say_what_was_computed() -> None:
    assert RelaxedAccuracy().signature == (
        "relaxed_accuracy|tolerance:0.05|years:relaxed|numbers:plain|case:lower|ws:strip|unicode:nfc|v1"
    )
    assert RelaxedAccuracy(compat="vlmevalkit").signature == (
        "relaxed_accuracy|tolerance:0.05|years:relaxed|numbers:plain|compat:vlmevalkit|case:lower|ws:keep|"
        "unicode:none|v1"
    )
    assert VqaAccuracy().signature == "vqa_accuracy|process:always|few:votes|unicode:nfc|v1"
    assert VqaAccuracy(compat="vqa-v2").signature == (
        "vqa_accuracy|process:disputed|few:votes|unicode:none|compat:vqa-v2|v2"
    )
    disputed = "vqa_accuracy|process:disputed|few:votes|unicode:nfc|v1"
    assert VqaAccuracy(process="disputed").signature == disputed
    kept = "vqa_accuracy|process:always|few:votes|unicode:none|compat:lmms-eval|v1"
    assert VqaAccuracy(compat="lmms-eval").signature == kept


def test_a_dialect_stands_alone() -> None:
    with pytest.raises(ValueError, match="years cannot be combined with compat"):
        RelaxedAccuracy(years="strict", compat="pix2struct")
    with pytest.raises(
        ValueError,
        match="compat is 'mmf'; it can be lmms-eval, lmms-eval-vqav2, vlmevalkit, vqa-v2",
    ):
        VqaAccuracy(compat="mmf")
