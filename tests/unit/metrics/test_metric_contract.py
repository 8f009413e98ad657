"""What holds for every metric: best value at equality, bounds, order, refusals, no heavy imports."""

import dataclasses
import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcbench.metrics
from hpcbench.metrics import METRICS, KvF1, Metric

TEXT = st.text(alphabet="aБй .\t\n", max_size=8)


def values(metric: type[Metric]) -> st.SearchStrategy:
    if issubclass(metric, KvF1):
        return st.dictionaries(st.sampled_from("abc"), TEXT, max_size=3)
    return TEXT


@pytest.fixture(params=METRICS, ids=lambda metric: metric.name)
def metric(request: pytest.FixtureRequest) -> type[Metric]:
    return request.param


def test_shape(metric: type[Metric]) -> None:
    assert metric.api == 1
    assert getattr(hpcbench.metrics, metric.name)  # also there as a function
    assert metric().signature.startswith(f"{metric.name}|")
    assert metric().signature.endswith("|v1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        metric().case = "keep"
    assert not hasattr(metric(), "__dict__")


def test_every_option_is_in_the_signature(metric: type[Metric]) -> None:
    others = {"case": ("keep", "lower"), "whitespace": ("strip", "keep"), "tau": (0.5, 0.6)}
    others["unicode"] = ("nfc", "nfkc")
    for field in dataclasses.fields(metric):
        signatures = {
            metric(**{field.name: value}).signature
            for value in others.get(field.name, (True, False))
        }
        assert len(signatures) == 2, field.name


@pytest.mark.parametrize("one", METRICS, ids=lambda metric: metric.name)
@settings(deadline=None)
@given(data=st.data())
def test_equality_is_best_and_values_stay_in_bounds(one: type[Metric], data: st.DataObject) -> None:
    metric = one()
    prediction, *references = data.draw(st.lists(values(one), min_size=2, max_size=4))
    least, greatest = metric.bounds
    top = 1.0 if metric.higher_is_better else 0.0
    assert metric.aggregate([metric.score(prediction, [prediction])]) == top
    value = metric.aggregate([metric.score(prediction, references)])
    assert least <= value
    assert greatest is None or value <= greatest
    if metric.aggregation == "mean":
        assert metric.score(prediction, references).denominator == 1
    shuffled = data.draw(st.permutations(references))
    assert metric.score(prediction, shuffled) == metric.score(prediction, references)


@pytest.mark.parametrize("one", METRICS, ids=lambda metric: metric.name)
@settings(deadline=None)
@given(data=st.data())
def test_aggregates_do_not_depend_on_order(one: type[Metric], data: st.DataObject) -> None:
    metric = one()
    pairs = data.draw(st.lists(st.tuples(values(one), values(one)), min_size=1, max_size=8))
    parts = [metric.score(p, [r]) for p, r in pairs]
    shuffled = random.Random(len(pairs)).sample(parts, len(parts))
    assert metric.aggregate(shuffled) == metric.aggregate(parts)


def test_no_samples(metric: type[Metric]) -> None:
    with pytest.raises(ValueError, match="no samples"):
        metric().aggregate([])


def test_no_references(metric: type[Metric]) -> None:
    with pytest.raises(ValueError, match=f"^{metric.name} needs at least one reference"):
        metric().score("a", [])


def test_a_bad_reference_is_the_datasets_fault(metric: type[Metric]) -> None:
    with pytest.raises(TypeError, match=f"^{metric.name} compares .* of type NoneType"):
        metric().score("a", [None])


@pytest.mark.parametrize("prediction", [None, 1.5, b"a", [], object()])
def test_an_unread_answer_never_raises(metric: type[Metric], prediction: object) -> None:
    reference: object = {"a": "1"} if issubclass(metric, KvF1) else "abc"
    parts = metric().score(prediction, [reference])
    assert metric().aggregate([parts]) == (0.0 if metric.higher_is_better else 1.0)


def test_importing_loads_nothing_heavy() -> None:
    code = (
        "import sys, hpcbench.metrics, hpcbench.statistics;"
        "heavy = {'numpy', 'scipy', 'rapidfuzz', 'jiwer', 'pydantic'} & set(sys.modules);"
        "own = [m for m in sys.modules if m.startswith('hpcbench.')"
        " and not m.startswith(('hpcbench.metrics', 'hpcbench.statistics'))];"
        "sys.exit(str([heavy, own]) if heavy or own else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
