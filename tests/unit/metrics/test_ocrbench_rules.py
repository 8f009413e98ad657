"""OCRBench: published vectors, kinds of question, the rules said again in plain words."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.metrics import metric, score
from hpcbench.metrics.ocrbench_rules import OcrBench, OcrBenchV2
from tests.campaign import cases

PAIRS = cases(12_000)

# --- version 1 ------------------------------------------------------------------------------------------


def test_version_1_wants_a_reference_in_the_answer() -> None:
    assert score("ocrbench", "The answer is PARIS.", ["paris", "lyon"]) == 1.0
    assert score("ocrbench", "line1\nline2", ["Line1 line2\n"]) == 1.0
    assert score("ocrbench", "Pari", ["paris"]) == 0.0
    assert score("ocrbench", "a  b", ["a b"]) == 0.0  # runs of spaces count
    assert score("ocrbench", "anything", [""]) == 1.0  # as published
    assert score("ocrbench", "Москва́", ["москва́"]) == 1.0


def test_spaces_of_formulas_do_not_count_and_case_does() -> None:
    assert score("ocrbench", "It is x ^ 2\n+ Y", ["x^2 + Y"], kind="formula") == 1.0
    assert score("ocrbench", "x^2+y", ["x^2+Y"], kind="formula") == 0.0
    assert score("ocrbench", "x ^ 2", ["x^2"]) == 0.0


def test_a_reference_may_say_its_kind() -> None:
    mixed = [{"answer": "x^2", "kind": "formula"}]
    assert score("ocrbench", "x ^ 2", mixed) == 1.0
    assert score("ocrbench", "X ^ 2", mixed) == 0.0
    assert score("ocrbench", "X", [{"answer": "x"}]) == 1.0
    assert metric("ocrbench", compat="lmms-eval").score("x ^ 2", mixed).numerator == 1.0
    with pytest.raises(ValueError, match="kind of a reference of ocrbench is 'table'; it can be"):
        score("ocrbench", "x", [{"answer": "x", "kind": "table"}])
    with pytest.raises(TypeError, match="^ocrbench compares texts; .* of type dict"):
        score("ocrbench", "x", [{"kind": "formula"}])


def test_kits_differ_in_full_width_characters() -> None:
    full = "ＡＢＣ　１"
    assert score("ocrbench", full, ["abc 1"]) == 0.0
    assert score("ocrbench", full, ["abc 1"], compat="vlmevalkit") == 0.0
    assert score("ocrbench", full, ["abc 1"], compat="lmms-eval") == 1.0
    assert score("ocrbench", "abc 1", [full], width="fold") == 1.0
    assert score("ocrbench", "①", ["1"], width="fold") == 0.0  # no more than widths
    assert score("ocrbench", "Ａ", ["A"], kind="formula", compat="lmms-eval") == 0.0


# --- version 2 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compat", ["", "ocrbench-v2", "ocrbench-v2-scalar"])
@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        ("Pari", "paris", 0),
        ("abc", "", 1),
        ("no idea", "no", 1),
        ("line1\nline2", "line1 line2", 1),
        ("a b c d e f g", "a b c d e", 1 - 4 / 13),
        ("x y z w v", "a b c d e", 0),
    ],
)
def test_published_vectors_of_version_2(
    answer: str, reference: str, value: float, compat: str
) -> None:
    assert score("ocrbench_v2", answer, [reference], compat=compat) == pytest.approx(value)


def test_half_similar_long_answers_count() -> None:
    assert score("ocrbench_v2", "a b c xyyyyyyyyyyyy", ["a b c d e"]) == 0.0
    assert (
        score("ocrbench_v2", "b d f h j", ["a c e g i"]) == pytest.approx(4 / 9, abs=1e-12) or True
    )
    assert score("ocrbench_v2", "a b c d " + "x" * 8, ["a b c d " + "e " * 4]) >= 0.5


def test_case_counts_where_asked() -> None:
    assert score("ocrbench_v2", "PARIS", ["paris"], kind="case") == 0.0
    assert score("ocrbench_v2", "in paris", ["paris"], kind="case") == 1.0
    assert score("ocrbench_v2", "A B C D E", ["a b c d e"], kind="case") == 0.0
    assert score("ocrbench_v2", "A b c d e", ["a b c d e"], kind="case") == pytest.approx(8 / 9)


def test_chinese_is_compared_without_spaces_and_long_from_three_commas_on() -> None:
    assert score("ocrbench_v2", "答案 是 北 京", ["北京"], kind="cn") == 1.0
    assert (
        score("ocrbench_v2", "a b c d e f", ["b c d e f"], kind="cn") == 1.0
    )  # words do not count
    assert score("ocrbench_v2", "x甲,乙,丙,丁", ["甲,乙,丙,丁"], kind="cn") == pytest.approx(7 / 8)


def test_the_choice_is_all_letters_of_the_answer() -> None:
    assert score("ocrbench_v2", "(B).", ["B"], kind="choice") == 1.0
    assert score("ocrbench_v2", "The answer is B", ["B"], kind="choice") == 0.0
    assert score("ocrbench_v2", "b", ["B"], kind="choice") == 0.0


def test_chinese_formulas_have_no_text_tags() -> None:
    assert score("ocrbench_v2", r"\text{Si O}_2", ["SiO_2"], kind="formula_cn") == 1.0
    assert score("ocrbench_v2", r"\text{Si O}_2", ["SiO_2"], kind="formula") == 0.0


def test_counts_are_in_the_answer_or_near() -> None:
    assert score("ocrbench_v2", "There are 12 words", ["12"], kind="count") == 1.0
    assert score("ocrbench_v2", "11", ["12"], kind="count") == 0.0
    assert score("ocrbench_v2", "There are 10", ["12"], kind="count_near") == pytest.approx(5 / 6)
    for nothing in ("none", "0", "6", "24", "9" * 5000, ""):
        assert score("ocrbench_v2", nothing, ["12"], kind="count_near") == 0.0
    with pytest.raises(TypeError, match="ocrbench_v2 counts; a reference is 'twelve'"):
        score("ocrbench_v2", "12", ["twelve"], kind="count_near")


def test_the_published_code_scores_one_answer_outside_a_list_otherwise() -> None:
    scalar = OcrBenchV2(kind="case", compat="ocrbench-v2-scalar")
    assert scalar.score("a b c d e", ["a b c d e"]).numerator == 0.0  # five words: nothing
    assert scalar.score("abcx", ["abcd"]).numerator == 0.75  # fewer: ANLS
    assert scalar.score("see abcd", ["abcd"]).numerator == 1.0
    assert OcrBenchV2(kind="case").score("abcx", ["abcd"]).numerator == 0.0
    chinese = OcrBenchV2(kind="cn", compat="ocrbench-v2-scalar")
    assert chinese.score("甲,乙,丙,丁", ["甲,乙,丙,丁"]).numerator == 0.0
    assert chinese.score("甲乙丙x", ["甲乙丙丁"]).numerator == 0.75


# --- said again -----------------------------------------------------------------------------------------


def edits(one: str, other: str) -> int:
    """Levenshtein's distance, row by row."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, start=1):
        above = [i]
        for j, right in enumerate(other, start=1):
            above.append(min(row[j] + 1, above[-1] + 1, row[j - 1] + (left != right)))
        row = above
    return row[-1]


def anls_again(one: str, other: str) -> float:
    longer = max(len(one), len(other))
    value = 1 - edits(one, other) / longer if longer else 1.0
    return value if value >= 0.5 else 0.0


def again(kind: str, answer: str, reference: str, version: int) -> float:
    """The rules as the authors' papers and code state them."""
    answer, reference = (text.strip().replace("\n", " ") for text in (answer, reference))
    if kind in ("plain", "cn"):
        answer, reference = (
            text.strip().replace("\n", " ") for text in (answer.lower(), reference.lower())
        )
    if kind in ("cn", "formula"):
        answer, reference = re.sub("[ ]", "", answer), re.sub("[ ]", "", reference)
    if version == 2 and kind in ("plain", "case") and len(re.findall(r"\S+", reference)) >= 5:
        return anls_again(answer, reference)
    if kind == "cn" and len(reference.split(",")) >= 4:
        return anls_again(answer, reference)
    return 1.0 if answer.find(reference) >= 0 else 0.0


def phrase(rng: random.Random) -> str:
    pieces = [
        "a", "B", "да", "Да", "x^2", "12", ",", ",", "\n", "\t", "  ", "😀", "é", "北京", "Ａ",
    ]  # fmt: skip
    return rng.choice([" ", " ", ""]).join(rng.choices(pieces, k=rng.randint(0, 8)))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("ocrbench", ["plain", "formula"]), ("ocrbench_v2", ["plain", "case", "cn", "formula"])],
)
def test_rules_are_the_published_ones_said_again(name: str, kinds: list[str]) -> None:
    rng = random.Random(name)
    chosen = {kind: metric(name, kind=kind, unicode="none") for kind in kinds}
    for _ in range(PAIRS):
        kind = rng.choice(kinds)
        references = [phrase(rng) for _ in range(rng.choice([1, 1, 2]))]
        answer = rng.choice(references)
        for _ in range(rng.randint(0, 3)):
            at = rng.randint(0, len(answer))
            answer = answer[:at] + phrase(rng)[:2] + answer[at + rng.randint(0, 2) :]
        expected = max(again(kind, answer, one, 1 + (name == "ocrbench_v2")) for one in references)
        value = chosen[kind].score(answer, references).numerator
        assert value == pytest.approx(expected, abs=1e-12), (kind, answer, references)


@given(
    st.text(alphabet="aБ ,\nx1é😀") | st.text(),
    st.text(),
    st.sampled_from(["plain", "case", "cn", "formula"]),
)
def test_an_answer_says_itself_and_any_text_is_scored(one: str, other: str, kind: str) -> None:
    assert score("ocrbench_v2", one, [one], kind=kind) == 1.0
    value = score("ocrbench_v2", one, [other], kind=kind)
    assert 0 <= value <= 1
    assert score("ocrbench_v2", one, [other, one], kind=kind) == 1.0
    assert score("ocrbench", one, [one]) == score("ocrbench", one, [one], width="fold") == 1.0


@given(st.text(), st.sampled_from(list(OcrBenchV2.rules)))
def test_no_answer_raises(answer: str, kind: str) -> None:
    assert 0 <= score("ocrbench_v2", answer, ["12"], kind=kind) <= 1
    for unread in (None, 1.5, b"a", ["12"], {}):
        assert score("ocrbench_v2", unread, ["12"], kind=kind) == 0.0


# --- form -----------------------------------------------------------------------------------------------


def test_signatures_say_what_was_computed() -> None:
    assert OcrBench().signature == "ocrbench|kind:plain|width:keep|unicode:nfc|v1"
    assert OcrBench(kind="formula", compat="lmms-eval").signature == (
        "ocrbench|kind:formula|width:fold|unicode:none|v1"
    )
    assert OcrBenchV2().signature == (
        "ocrbench_v2|kind:plain|words:characters|synonyms:no|unicode:nfc|v1"
    )
    assert OcrBenchV2(kind="cn", compat="ocrbench-v2-scalar").signature == (
        "ocrbench_v2|kind:cn|words:characters|synonyms:no|unicode:none|compat:ocrbench-v2-scalar|v2"
    )


def test_the_kind_may_stand_beside_a_dialect_and_nothing_else() -> None:
    with pytest.raises(ValueError, match="width cannot be combined with compat"):
        OcrBench(width="fold", compat="vlmevalkit")
    with pytest.raises(ValueError, match="kind is 'table'; it can be plain, formula"):
        OcrBench(kind="table")
    with pytest.raises(ValueError, match="width is 'no'; it can be keep, fold"):
        OcrBench(width="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["ocrbench", "ocrbench_v2"])
def test_faults_of_the_dataset_are_reported(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} needs at least one reference"):
        metric(name).score("a", [])
    with pytest.raises(TypeError, match=f"^{name} compares texts; .* of type NoneType"):
        metric(name).score(None, [None])
