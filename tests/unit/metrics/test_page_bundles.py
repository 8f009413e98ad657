"""Order of pages and their classes: cases by hand, scipy on generated orders."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.metrics import Parts, corpus_score, metric, score
from hpcbench.metrics.multipage import PageAccuracy, read_pages

ORDERS = ["kendall_tau", "spearman", "position_accuracy"]


@pytest.mark.parametrize(
    "text",
    [
        "3 1 2", "3, 1, 2", "[3, 1, 2]", '["3", "1", "2"]', "3 → 1 → 2", "3 -> 1 -> 2", "312", "3\n1\n2\n",
        " (3;1;2). ",
    ],
)  # fmt: skip
def test_an_order_is_written_in_many_ways(text: str) -> None:
    assert read_pages(text) == ["3", "1", "2"]


def test_digits_are_pages_unless_one_page_is_expected() -> None:
    assert read_pages("12") == ["1", "2"]
    assert read_pages("12", 1) == ["12"]
    assert read_pages("10 11 12", 3) == ["10", "11", "12"]
    assert read_pages([3, "1"]) == ["3", "1"]
    assert read_pages("invoice, tin new") == ["invoice", "tin new"]
    assert read_pages("") == []


@pytest.mark.parametrize("value", [None, 1.5, {}, [None], [["1"]], [True], b"1"])
def test_what_is_no_list_of_pages(value: object) -> None:
    assert read_pages(value) is None
    for name in ORDERS:
        assert score(name, value, "1 2 3") == 0.0


@pytest.mark.parametrize(
    ("name", "reverse", "swapped"),
    [
        ("kendall_tau", -1.0, 1 / 3),
        ("spearman", -1.0, 0.5),
        ("position_accuracy", 1 / 3, 1 / 3),
    ],
)
def test_orders_by_hand(name: str, reverse: float, swapped: float) -> None:
    assert score(name, "1 2 3", "1 2 3") == 1.0
    assert score(name, "3 2 1", "1 2 3") == pytest.approx(reverse)
    assert score(name, "1 3 2", "1 2 3") == pytest.approx(swapped)
    assert score(name, [2, 1, 3], [2, 3, 1]) == pytest.approx(swapped)
    assert corpus_score(name, ["1 2 3", "3 2 1"], ["1 2 3"] * 2) == pytest.approx((1 + reverse) / 2)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("other", ["1 2", "1 2 3 4", "1 2 2", "1 2 4", "", "The order is 1 2 3"])
def test_other_pages_have_no_order(name: str, other: str) -> None:
    assert score(name, other, "1 2 3") == 0.0


@pytest.mark.parametrize("name", ORDERS)
def test_one_page_or_none_is_in_order(name: str) -> None:
    assert score(name, "1", "1") == 1.0
    assert score(name, "12", [12]) == 1.0
    assert score(name, "", "") == 1.0
    assert score(name, None, "") == 0.0


@pytest.mark.parametrize("name", ORDERS)
def test_of_a_page_named_twice_the_first_is_the_first(name: str) -> None:
    assert score(name, "a b a", "a b a") == 1.0
    assert score(name, "a a b", "a b a") == score(name, "1 3 2", "1 2 3")


@pytest.mark.parametrize("name", ORDERS)
def test_the_closest_of_several_right_orders_counts(name: str) -> None:
    assert metric(name).score("2 1", ["1 2", "2 1"]) == Parts(1.0, 1)


@pytest.mark.long
def test_orders_are_those_of_scipy() -> None:
    from scipy.stats import kendalltau, spearmanr

    rng = random.Random(8)
    pages = 0
    while pages < 10_000:
        right = rng.sample(range(1000), rng.randint(2, 30))
        said = rng.sample(right, len(right))
        for _ in range(rng.choice([0, 0, 5, 50])):  # some almost in order
            said = sorted(said, key=lambda page: right.index(page) + rng.random() * 3)
        pages += len(right)
        places = [said.index(page) for page in right]
        truth = range(len(right))
        text = ", ".join(map(str, said))
        assert score("kendall_tau", text, right) == pytest.approx(
            kendalltau(truth, places).statistic, abs=1e-9
        )
        assert score("spearman", said, right) == pytest.approx(
            spearmanr(truth, places).statistic, abs=1e-9
        )
        hits = sum(one == other for one, other in zip(said, right, strict=True))
        assert score("position_accuracy", text, right) == pytest.approx(hits / len(right))


@given(st.permutations(range(8)), st.permutations(range(8)))
def test_orders_are_symmetric_and_in_range(one: list[int], other: list[int]) -> None:
    for name in ORDERS:
        value = score(name, one, other)
        low, high = metric(name).bounds
        assert low <= value <= high
        assert score(name, other, one) == pytest.approx(value)
        assert score(name, one, one) == 1.0
    for name in ("kendall_tau", "spearman"):
        assert score(name, one[::-1], other) == pytest.approx(-score(name, one, other))


@given(st.text(), st.text())
def test_any_text_is_scored(one: str, other: str) -> None:
    for name in (*ORDERS, "page_accuracy"):
        assert -1 <= score(name, one, other) <= 1
        assert score(name, one, one) == 1.0


# --- classes of pages -----------------------------------------------------------------------------------


def test_page_accuracy_is_right_pages_over_pages() -> None:
    assert score("page_accuracy", "1 1 2", "1 1 3") == pytest.approx(2 / 3)
    assert score("page_accuracy", "Invoice, TIN  new", ["invoice", "tin new"]) == 1.0
    assert corpus_score("page_accuracy", ["1", "1 1 2"], ["2", "112"]) == 0.75


def test_missing_pages_are_wrong_and_those_too_many_ignored() -> None:
    assert score("page_accuracy", "11", "1122") == 0.5
    assert score("page_accuracy", "11229999", "1122") == 1.0
    assert PageAccuracy().score(None, ["1122"]) == Parts(0, 4)
    assert PageAccuracy().score("", [""]) == Parts(0, 0)
    assert PageAccuracy().score(None, [""]) == Parts(0, 1)
    assert PageAccuracy().aggregate([Parts(0, 0)]) == 1.0


# --- all ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ORDERS, "page_accuracy"])
def test_faults_of_the_dataset_are_reported(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} needs at least one reference"):
        metric(name).score("1", [])
    with pytest.raises(TypeError, match=f"^{name} compares lists of pages; .* of type NoneType"):
        metric(name).score("1", [None])
    with pytest.raises(ValueError, match="no samples"):
        metric(name).aggregate([])


def test_signatures() -> None:
    assert [metric(name).signature for name in ORDERS] == [f"{name}|v1" for name in ORDERS]
    assert PageAccuracy().signature == "page_accuracy|case:lower|ws:collapse|unicode:nfc|v1"
