"""Properties of every metric: best value at equality, bounds, order, refusals, options, no heavy imports."""

import dataclasses
import math
import random
import re
import subprocess
import sys
import typing
import unicodedata
from collections.abc import Iterator
from typing import Any, Literal

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcbench.metrics
from hpcbench.metrics import METRICS, metric, score
from hpcbench.metrics.base import add_up, take_dialect, value_of
from hpcbench.schema.records import Fault, Reading
from tests.campaign import examples

SYMMETRIC = {
    "accuracy", "anls", "exact_match", "kie_f1_macro", "kie_f1_micro", "ned", "ned_micro", "rouge_l",
}  # fmt: skip
PEOPLE = {"vqa_accuracy": 10}
"""Equal references that are needed for the greatest value, if not one."""

NARROW = st.text(alphabet="aBй .\t\n", max_size=8)
WIDE = st.one_of(
    NARROW,
    st.text(st.characters(), max_size=12),  # lone surrogates among them
    st.sampled_from(
        [
            "", " ", "и\u0306", "１２３", "שלום", "مرحبا ١٢", "👩‍👧", "ﬁ", "ß", "İ", "\ud800",
            "<skipped>",
        ]
    ),
)  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from("abc"), NARROW, max_size=3)
READINGS = st.builds(
    Reading,
    value=st.none() | OBJECTS,
    repairs=st.lists(st.just("closed brackets"), max_size=1).map(tuple),
    faults=st.lists(
        st.builds(
            Fault,
            st.sampled_from(["missing", "extra", "mistyped", "value"]),
            st.sampled_from("abc"),
            st.just("a message"),
        ),
        max_size=2,
    ).map(tuple),
    required=st.integers(2, 4),
    found=st.integers(2, 4),
    truncated=st.booleans(),
)


@pytest.fixture(params=sorted(METRICS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def kinds(name: str) -> tuple[str, ...]:
    return typing.cast(Any, metric(name)).accepts


def inputs(name: str) -> st.SearchStrategy:
    """Values that a metric compares."""
    if "reading" in kinds(name):
        return READINGS
    return OBJECTS if "object" in kinds(name) else NARROW


def top(name: str) -> float:
    made = metric(name)
    if not made.higher_is_better:
        return made.bounds[0]
    assert made.bounds[1] is not None
    return made.bounds[1]


def of(name: str, prediction: object, references: list[Any], **options: Any) -> float:
    made = metric(name, **options)
    return value_of(made, made.score(prediction, references))


EVERY = pytest.mark.parametrize("name", sorted(METRICS))
COMPARING = pytest.mark.parametrize(
    "name", [name for name in sorted(METRICS) if "reading" not in kinds(name)]
)
OF_TEXTS = pytest.mark.parametrize(
    "name", [name for name in sorted(METRICS) if {"text", "label"} & set(kinds(name))]
)
FEW = settings(deadline=None, max_examples=examples(25))


# --- shape ----------------------------------------------------------------------------------------------


def test_shape(name: str) -> None:
    made = metric(name)
    assert made.api == 1
    assert made.name == name
    assert made.aggregation in ("mean", "ratio", "corpus")
    assert hasattr(made, "combine") == (made.aggregation == "corpus")
    assert set(kinds(name)) <= {"text", "label", "object", "reading"}
    assert made.signature.startswith(f"{name}|")
    assert made.signature.rpartition("|v")[2].isdigit()
    assert callable(getattr(hpcbench.metrics, name))
    for option in dataclasses.fields(typing.cast(Any, made)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, option.name, option.default)
    assert not hasattr(made, "__dict__")


# --- options --------------------------------------------------------------------------------------------


NONE_SUCH = "no such value"


def known(name: str, option: str, value: Any) -> list[str]:
    """The values that a refusal names; the value itself, if it is not refused."""
    try:
        metric(name, **{option: value})
    except ValueError as refusal:
        return str(refusal).partition("it can be ")[2].split(", ")
    return [value]


def others(name: str, option: dataclasses.Field) -> Iterator[Any]:
    """Values of an option besides its default, as far as its type, its default or a refusal tell."""
    made = type(metric(name))
    hint = typing.get_type_hints(made)[option.name]
    default = option.default
    if option.name == "compat":
        yield from made.dialects
    elif typing.get_origin(hint) is Literal:
        yield from (value for value in typing.get_args(hint) if value != default)
    elif isinstance(default, bool):
        yield not default
    elif isinstance(default, str):
        yield from (value for value in known(name, option.name, NONE_SUCH) if value != default)
    elif "Mapping" in str(hint):
        yield from ({"a": value} for value in known(name, option.name, {"a": NONE_SUCH}))
    else:
        number = 1.0 if default is None else default
        values = {type(number)(value) for value in (number * 2, number / 2, number + 1, 0.25)}
        yield from values - {default}


def signatures(name: str, option: str, values: Iterator[Any]) -> list[str]:
    """With each value that is not refused."""
    found = []
    for value in values:
        try:
            found.append(metric(name, **{option: value}).signature)
        except ValueError:
            continue
    return found


def test_every_option_is_in_the_signature(name: str) -> None:
    plain = metric(name).signature
    for option in dataclasses.fields(typing.cast(Any, metric(name))):
        found = signatures(name, option.name, others(name, option))
        # A metric may hold a word that it shares with others to one value; a number it would not have.
        assert found or isinstance(option.default, str), option.name
        assert plain not in found, option.name
        if option.name != "compat":  # two kits may compute the same
            assert len(set(found)) == len(found), option.name


def test_an_unknown_value_of_an_option_is_refused_by_name(name: str) -> None:
    hints = typing.get_type_hints(type(metric(name)))
    for option in dataclasses.fields(typing.cast(Any, metric(name))):
        if option.name == "compat" or typing.get_origin(hints[option.name]) is Literal:
            with pytest.raises(ValueError, match=f"{option.name} is '{NONE_SUCH}'; it can be "):
                metric(name, **{option.name: NONE_SUCH})


@dataclasses.dataclass(frozen=True)
class FromOutside:
    """A metric's options as another package may write them."""

    dialects: typing.ClassVar[typing.Any] = {"other-kit": {"fold": True}}

    fold: bool = False
    compat: str = ""

    def __post_init__(self) -> None:
        take_dialect(self)


def test_a_dialect_of_another_package_may_be_options_alone() -> None:
    assert FromOutside(compat="other-kit").fold
    assert not FromOutside().fold
    with pytest.raises(ValueError, match="fold cannot be combined with compat"):
        FromOutside(compat="other-kit", fold=True)


# --- values ---------------------------------------------------------------------------------------------


@COMPARING
@FEW
@given(data=st.data())
def test_equality_is_best_and_values_stay_in_bounds(name: str, data: st.DataObject) -> None:
    made = metric(name)
    prediction, *references = data.draw(st.lists(inputs(name), min_size=2, max_size=4))
    least, greatest = made.bounds
    assert of(name, prediction, [prediction] * PEOPLE.get(name, 1)) == pytest.approx(top(name))
    value = of(name, prediction, references)
    assert least <= value
    assert greatest is None or value <= greatest
    shuffled = data.draw(st.permutations(references))
    assert of(name, prediction, shuffled) == pytest.approx(value)
    if made.aggregation == "mean":
        assert made.score(prediction, references).denominator == 1


@pytest.mark.parametrize("name", sorted(SYMMETRIC & set(METRICS)))
@FEW
@given(data=st.data())
def test_either_side_can_be_the_reference(name: str, data: st.DataObject) -> None:
    first, second = data.draw(inputs(name)), data.draw(inputs(name))
    assert of(name, first, [second]) == pytest.approx(of(name, second, [first]))


@EVERY
@FEW
@given(data=st.data())
def test_aggregates_depend_on_sums_alone_and_not_on_order(name: str, data: st.DataObject) -> None:
    made = typing.cast(Any, metric(name))
    pairs = data.draw(st.lists(st.tuples(inputs(name), inputs(name)), min_size=1, max_size=8))
    parts = [made.score(prediction, [reference]) for prediction, reference in pairs]
    shuffled = random.Random(len(pairs)).sample(parts, len(parts))
    value = made.aggregate(parts)
    assert made.aggregate(shuffled) == value
    least, greatest = made.bounds
    assert least <= value
    assert greatest is None or value <= greatest
    if made.aggregation == "corpus":
        sums = add_up(parts)
        assert made.combine(sums) == pytest.approx(value, abs=1e-9)
        twice = made.combine({one: numpy.array([number, number]) for one, number in sums.items()})
        assert numpy.broadcast_to(twice, 2).tolist() == pytest.approx([value, value], abs=1e-9)
    else:
        total = math.fsum(part.numerator for part in parts)
        size = math.fsum(part.denominator for part in parts)
        if size:
            assert value == pytest.approx(total / size)


# --- any string -----------------------------------------------------------------------------------------

NOT_FINITE = re.compile(r"[+-]?(inf|infinity|nan|\d[\d_]*e\+?[\d_]{3,})%*", re.IGNORECASE)


@OF_TEXTS
@FEW
@given(prediction=WIDE, reference=WIDE)
def test_any_string_is_scored(name: str, prediction: str, reference: str) -> None:
    value = of(name, prediction, [reference])
    assert math.isfinite(value)
    if name == "relaxed_accuracy" and NOT_FINITE.fullmatch(reference.strip()):
        return  # the published rule reads it as a number, which is not near itself
    assert of(name, reference, [reference] * PEOPLE.get(name, 1)) == pytest.approx(top(name))


@OF_TEXTS
def test_empty_against_empty_is_right(name: str) -> None:
    assert of(name, "", [""] * PEOPLE.get(name, 1)) == top(name)


@OF_TEXTS
@FEW
@given(prediction=st.text(alphabet="иёÅе\u0306\u0301 1", max_size=6), reference=NARROW)
def test_composed_and_decomposed_texts_are_the_same(
    name: str, prediction: str, reference: str
) -> None:
    if "unicode" not in (
        option.name for option in dataclasses.fields(typing.cast(Any, metric(name)))
    ):
        return
    forms = [unicodedata.normalize(form, prediction) for form in ("NFC", "NFD")]
    assert of(name, forms[0], [reference]) == of(name, forms[1], [reference])
    assert of(name, reference, [forms[0]]) == of(name, reference, [forms[1]])


@OF_TEXTS
def test_full_width_letters_are_their_own_unless_asked(name: str) -> None:
    if "unicode" not in (
        option.name for option in dataclasses.fields(typing.cast(Any, metric(name)))
    ):
        return
    references = ["AB 12"] * PEOPLE.get(name, 1)
    assert of(name, "ＡＢ １２", references, unicode="nfkc") == pytest.approx(top(name))


# --- refusals -------------------------------------------------------------------------------------------


def test_no_samples(name: str) -> None:
    with pytest.raises(ValueError, match="no samples"):
        metric(name).aggregate([])


@COMPARING
def test_no_references(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} needs at least one reference"):
        metric(name).score("a", [])


@COMPARING
def test_a_bad_reference_is_the_datasets_fault(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} compares .* of type object"):
        metric(name).score("a", [object()])


@COMPARING
def test_an_unread_answer_is_wrong_and_never_raises(name: str) -> None:
    reference: object = {"a": "1"} if "object" in kinds(name) else "abc"
    worst = 0.0 if metric(name).higher_is_better else 1.0
    for prediction in (None, 1.5, b"a", [], object(), 10**5000):
        assert of(name, prediction, [reference]) == worst, type(prediction)


# --- the public functions -------------------------------------------------------------------------------


def test_there_is_no_such_metric_or_option() -> None:
    with pytest.raises(ValueError, match="there is no metric 'anal'; there are accuracy, anls"):
        score("anal", "a", "a")
    with pytest.raises(TypeError, match="tou"):
        score("anls", "a", "a", tou=0.5)


HEAVY = {
    "apted", "jiwer", "lxml", "numpy", "polars", "pydantic", "rapidfuzz", "sacrebleu", "scipy",
    "sklearn",
}  # fmt: skip


def loaded(code: str) -> set[str]:
    """Modules there are after some code ran in a fresh interpreter."""
    print_them = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", print_them], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_importing_loads_nothing_heavy_and_nothing_else_of_hpcbench() -> None:
    modules = loaded("import hpcbench.metrics, hpcbench.statistics")
    assert not HEAVY & modules
    rooms = {one.split(".")[1] for one in modules if one.startswith("hpcbench.")}
    assert rooms == {"metrics", "statistics"}


def test_naming_every_metric_and_its_signature_loads_nothing_heavy() -> None:
    modules = loaded(
        "from hpcbench.metrics import METRICS, metric;"
        "assert all([metric(name).signature for name in METRICS])"
    )
    assert not HEAVY & modules
