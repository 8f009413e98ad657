"""The name of a model with changes says what differs, and no two different models share one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.registry.model_choice import chosen
from hpcbench.schema.model import Model, ModelChoice
from hpcbench.schema.names import LONGEST, is_name

MODEL = Model(
    name="tiny-vlm",
    engine="vllm",
    dtype="bfloat16",
    engine_options={"max_num_seqs": 4},
    env={"A": "1"},
)


def name_with(model: Model = MODEL, **changes: Any) -> str:
    return chosen(model, ModelChoice(name=model.name, **changes)).name


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "tiny-vlm"),
        ({"dtype": "bfloat16", "engine_options": {"max_num_seqs": 4}}, "tiny-vlm"),
        ({"dtype": "float16"}, "tiny-vlm (dtype=float16)"),
        (
            {"gpus": 2, "engine_options": {"max_num_seqs": 8, "quantization": "fp8"}},
            "tiny-vlm (gpus=2, max_num_seqs=8, quantization=fp8)",
        ),
        ({"engine_options": {"dtype": "half"}}, "tiny-vlm (engine_options.dtype=half)"),
    ],
)
def test_the_name_shows_the_changes(changes: dict[str, Any], name: str) -> None:
    assert name_with(**changes) == name


def test_private_long_and_ambiguous_values_are_digits() -> None:
    assert "secret" not in name_with(env={"TOKEN": "secret"})
    assert name_with(env={"TOKEN": "secret"}).startswith("tiny-vlm (env.TOKEN=")
    assert "/" not in name_with(image="docker://vllm/vllm-openai:v0.12")
    assert name_with(engine_options={"x": "1"}) != name_with(engine_options={"x": 1})
    assert name_with(engine_options={"x": "true"}) != name_with(engine_options={"x": True})


def test_a_long_name_ends_in_digits_of_all_changes() -> None:
    model = MODEL.model_copy(update={"name": "m" * LONGEST})
    names = {name_with(model, gpus=gpus) for gpus in (2, 3)}
    assert len(names) == 2
    assert all(len(name) == LONGEST for name in names)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["auto", "float16"]),
        "gpus": st.integers(0, 3),
        "engine_options": st.dictionaries(
            st.sampled_from(["dtype", "a b", "x", "", "gpus"]), VALUES
        ),
        "env": st.dictionaries(st.sampled_from(["A", "B"]), st.text(max_size=3)),
    },
)


@given(CHOICES, CHOICES)
def test_different_models_have_different_names(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = (chosen(MODEL, ModelChoice(name="tiny-vlm", **each)) for each in (one, other))
    assert is_name(first.name)
    same = first.model_dump_json(exclude={"name"}) == second.model_dump_json(exclude={"name"})
    assert (first.name == second.name) == same
