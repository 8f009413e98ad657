"""ANLS*: published vectors, the authors' package on generated trees, its surprises and their cures."""

import random
import warnings
from collections.abc import Iterator
from typing import Any

import anls_star as package
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.metrics import AnlsStar, Parts, score
from hpcbench.metrics import anls_star as ours
from tests.campaign import cases, examples

WORDS = [
    "", "a", "ab", "tea", "Tea", "salt", "12.50", "12,5", "Москва", "масква", "  x \t y", "🍵 é",
    "12",
]  # fmt: skip


def tree(rng: random.Random, depth: int, options: bool) -> Any:
    kind = rng.random()
    if depth == 0 or kind < 0.45:
        return rng.choice([None, True, False, 1, 2, 1.0, 12.5, *WORDS, *WORDS])
    if kind < 0.7:
        return {key: tree(rng, depth - 1, options) for key in rng.sample("abcd", rng.randint(0, 4))}
    if kind < 0.93 or not options:
        return [tree(rng, depth - 1, options) for _ in range(rng.randint(0, 5))]
    return tuple(tree(rng, depth - 1, options) for _ in range(rng.randint(1, 3)))


def answer(rng: random.Random, reference: Any) -> Any:
    """Something like the reference: parts missing, added, changed, lists in another order."""
    if rng.random() < 0.08:
        return tree(rng, 2, options=False)
    if isinstance(reference, tuple):
        return answer(rng, rng.choice(reference))
    if isinstance(reference, list):
        kept = [answer(rng, one) for one in reference if rng.random() > 0.1]
        kept += [tree(rng, 1, options=False)] * (rng.random() < 0.3)
        return rng.sample(kept, len(kept))
    if isinstance(reference, dict):
        found = {key: answer(rng, one) for key, one in reference.items() if rng.random() > 0.1}
        return found | ({"d": tree(rng, 1, options=False)} if rng.random() < 0.2 else {})
    return reference


def generated(count: int, seed: int) -> Iterator[tuple[Any, Any]]:
    rng = random.Random(seed)
    while count:
        reference = tree(rng, 3, options=True)
        prediction = answer(rng, reference) if rng.random() < 0.6 else tree(rng, 3, options=False)
        if reference == [] and isinstance(prediction, str):
            continue  # the package raises
        count -= 1
        yield reference, prediction


def of_package(reference: Any, prediction: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of the mode for question answering
        return float(package.anls_score(reference, prediction))


@pytest.mark.parametrize(
    ("reference", "prediction", "value"),
    [
        (("Hello World", "Hi"), "Hi", 1.0),
        ("a", "", 0.0),
        (None, None, 1.0),
        (None, "", 1.0),
        (None, "x", 0.0),
        ("", None, 0.0),
        (["a", "b"], ["a"], 0.5),
        (["a", "b"], ["b", "a"], 1.0),
        (["a", "b"], ["a", "b", "c"], 0.6667),
        ({"a": "x", "b": "y"}, {"a": "x"}, 0.5),
        ({"a": "x"}, {"a": "x", "b": "y"}, 0.5),
        ({"a": "x"}, {"a": "x", "b": None}, 0.5),
        ({"a": "x", "b": None}, {"a": "x"}, 1.0),
        ({"a": "x", "b": "y"}, "x", 0.0),
        (1, "1", 1.0),
        (1.0, "1", 0.0),
        (True, "true", 1.0),
        ({"q": ("yes", "y")}, {"q": "Y"}, 1.0),
        (["a"], "a", 1.0),
        ({"a": ("hello", "world"), "b": ["this", "is", "a", "test"]},
         {"a": "hello!", "b": ["a", "test", "this", "be"]}, 0.7667),
        # Equal values are paired before others that are as good.
        ([{}, None], [[]], 1), ([None, {}], [[], ["a"]], 1 / 2),
    ],
)  # fmt: skip
def test_vectors(reference: object, prediction: object, value: float) -> None:
    assert ours(prediction, reference) == pytest.approx(value, abs=5e-5)
    assert ours(prediction, reference, compat="anls_star-1.0.1") == pytest.approx(value, abs=5e-5)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_the_packages_numbers_on_ten_thousand_trees(seed: int) -> None:
    alike, usual = AnlsStar(compat="anls_star-1.0.1"), AnlsStar()
    for reference, prediction in generated(cases(5_000), seed):
        expected = of_package(reference, prediction)
        found = alike.score(prediction, [reference])
        assert found.numerator == pytest.approx(expected, abs=1e-9), (reference, prediction)
        assert usual.score(prediction, [reference]) == found  # nothing here is decomposed


def test_the_packages_numbers_on_lists_with_ties() -> None:
    """Its solver takes another path from 16 cells on; in these lists many matchings are as good."""
    rng = random.Random(3)
    parts: list[Any] = [
        "a",
        "b",
        {"a": "x"},
        {"a": "x", "b": "y"},
        {"a": "x", "b": "z", "c": ""},
        None,
    ]
    for _ in range(cases(1_000)):
        reference, prediction = (rng.choices(parts, k=rng.randint(1, 7)) for _ in "12")
        expected = of_package(reference, prediction)
        assert ours(prediction, reference) == pytest.approx(expected, abs=1e-9)


def test_what_says_nothing_can_be_the_same_on_both_sides() -> None:
    cases: list[tuple[object, object, float]] = [
        ("", None, 1.0),
        ({"a": "x"}, {"a": "x", "b": None}, 1.0),
        ({"a": "x"}, {"a": "z", "b": None}, 0.0),
        ({"a": "x", "b": ""}, {"a": "x"}, 1.0),
        ({"a": []}, {"a": None}, 1.0),
        ({"a": None}, {"a": "x"}, 0.0),
    ]
    for reference, prediction, value in cases:
        assert ours(prediction, reference, nothing="same") == value


def test_the_best_of_ties_does_not_depend_on_the_order() -> None:
    reference = [{"a": "1"}]
    prediction = [{"b": "1", "c": "1"}, {"a": "2", "b": "2"}]  # no similarity either way
    assert ours(prediction, reference, ties="best") == 0.0
    rng = random.Random(5)

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shuffled(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return rng.sample([shuffled(inner) for inner in value], len(value))
        return tuple(map(shuffled, value[::-1])) if isinstance(value, tuple) else value

    metric = AnlsStar(ties="best")
    differ = 0
    for reference, prediction in generated(cases(2_000), 4):
        if isinstance(reference, list) and isinstance(prediction, str):
            continue
        value = metric.score(prediction, [reference]).numerator
        again = metric.score(shuffled(prediction), [shuffled(reference)]).numerator
        assert again == pytest.approx(value, abs=1e-9), (reference, prediction)
        first = AnlsStar().score(prediction, [reference]).numerator
        differ += abs(first - value) > 1e-9
    assert differ < 40  # ties matter in few trees


def test_several_references_are_one_of_n() -> None:
    references = [{"total": "12.50"}, {"total": "12,50"}]
    assert AnlsStar().score({"total": "12,50"}, references) == Parts(1, 1)
    assert score("anls_star", {"total": "12,50"}, {"total": ("12.50", "12,50")}) == 1.0
    from_json = {"total": {"$one_of": ["12.50", "12,50"]}}
    assert score("anls_star", {"total": "12,50"}, from_json) == 1.0
    assert score("anls_star", {"total": "12,50"}, from_json, one_of="") == 0.0
    assert (
        score("anls_star", {"total": "12,50"}, {"total": {"any": ["12,50"]}}, one_of="any") == 1.0
    )
    with pytest.raises(ValueError, match="a reference has no options to choose from"):
        ours("a", ())


def test_a_reference_is_a_tree_of_plain_values() -> None:
    with pytest.raises(TypeError, match="anls_star compares trees; a reference is of type object"):
        ours("a", {"a": object()})
    with pytest.raises(ValueError, match="anls_star needs at least one reference"):
        AnlsStar().score("a", [])


@pytest.mark.parametrize("prediction", [object(), b"a", ("a",), {1, 2}, {"a": object()}])
def test_any_answer_is_scored(prediction: object) -> None:
    assert ours(prediction, {"a": "x"}) == 0.0
    assert ours([], "x") == ours("x", []) == 0.0


def test_depth_and_length_do_not_matter() -> None:
    deep: Any = "x"
    for _ in range(cases(5000)):
        deep = [deep]
    assert ours(deep, [["x"]]) == ours({"a": deep}, {"a": "x"}) == 0.0
    options: Any = "x"
    for _ in range(101):
        options = (options,)
    for reference in (deep, options):
        with pytest.raises(ValueError, match="a reference is nested more than 100 levels deep"):
            ours("x", reference)
    level: Any = "x"
    for number in range(99):
        level = [level] if number % 2 else {"a": level}
    assert ours(level, level) == 1.0
    assert ours(10**5000, 10**5000) == 1.0


def test_signatures_name_every_option() -> None:
    shared = "case:lower|ws:collapse|unicode:nfc|v1"
    assert AnlsStar().signature == (
        f"anls_star|tau:0.5|nothing:package|ties:first|one_of:$one_of|{shared}"
    )
    assert AnlsStar(tau=0.4, nothing="same", ties="best", one_of="any").signature == (
        f"anls_star|tau:0.4|nothing:same|ties:best|one_of:any|{shared}"
    )
    reported = AnlsStar(compat="anls_star-1.0.1").signature
    assert reported.startswith("anls_star|tau:0.5|nothing:package|ties:first|one_of:-|case:lower")
    assert "unicode:none" in reported
    with pytest.raises(ValueError, match="ties is 'all'; it can be first, best"):
        AnlsStar(ties="all")  # type: ignore[arg-type]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abй"), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=examples(150))
@given(JSON, JSON)
def test_equality_is_best_and_values_stay_in_bounds(prediction: object, reference: object) -> None:
    for options in ({}, {"nothing": "same"}, {"ties": "best"}, {"compat": "anls_star-1.0.1"}):
        metric = AnlsStar(**options)  # type: ignore[arg-type]
        assert 0.0 <= metric.score(prediction, [reference]).numerator <= 1.0
        assert metric.score(reference, [reference]).numerator == pytest.approx(1.0)
