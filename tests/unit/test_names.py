"""Names in any script, and the one rule that makes ids of them."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from hpcbench.experiment.layout import new_id
from hpcbench.portal.context import is_id
from hpcbench.schema.definition import FlatName, Name
from hpcbench.schema.names import FLAT_NAME, NAME, case_blind, id_of, spelling

FLAT: TypeAdapter[Any] = TypeAdapter(FlatName)
ANY: TypeAdapter[Any] = TypeAdapter(Name)
NAMES = st.text(min_size=1, max_size=120).filter(re.compile(FLAT_NAME).fullmatch)


@given(NAMES)
@example("Grand VLM Benchmark 2025")
@example("«Счета 2026»")
@example("表")
@example("C++")
@example("x" * 120)
def test_an_id_is_short_plain_and_whole(name: str) -> None:
    made = id_of(name)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", made)
    assert len(made) <= 80
    assert made == id_of(unicodedata.normalize("NFD", name)) or name == made
    assert FLAT.validate_python(name) == name


@given(NAMES, NAMES)
@example("Счета 2026", "Scheta 2026")
@example("a b", "a-b")
@example("a b", "A b")
def test_two_names_never_share_an_id(one: str, other: str) -> None:
    assert (id_of(one) == id_of(other)) == (spelling(one) == spelling(other))


@given(NAMES)
def test_an_id_is_no_other_names_id(name: str) -> None:
    made = id_of(name)
    assert made == name or id_of(made) != made


@given(NAMES)
def test_the_portal_takes_the_id_of_any_experiment(name: str) -> None:
    assert is_id(new_id(name))


def test_ids_say_what_they_are_of() -> None:
    assert id_of("first-task_1.0") == "first-task_1.0"
    assert id_of("Grand VLM Benchmark 2025").startswith("Grand-VLM-Benchmark-2025+")
    assert id_of("«Счета 2026»").startswith("Scheta-2026+")
    assert id_of("表").startswith("name+")
    assert id_of("é") == id_of("e\u0301")


@pytest.mark.parametrize(
    "name",
    [
        "",
        " a",
        "a ",
        "a\n",
        "a\nb",
        ".a",
        "-a",
        "~a",
        "@last",
        "../x",
        "a\\b",
        "a\u202eb",
        "a\u200bb",
        "x" * 121,
    ],
)
def test_what_no_name_can_be(name: str) -> None:
    with pytest.raises(ValidationError):
        ANY.validate_python(name)


def test_folders_are_for_definitions_alone() -> None:
    assert ANY.validate_python("my lab/модель 7B") == "my lab/модель 7B"
    with pytest.raises(ValidationError):
        FLAT.validate_python("my lab/модель 7B")


@given(st.text(max_size=40))
def test_python_reads_the_patterns_as_pydantic_does(text: str) -> None:
    for pattern, adapter in ((NAME, ANY), (FLAT_NAME, FLAT)):
        try:
            adapter.validate_python(text)
        except ValidationError:
            assert re.fullmatch(pattern, text) is None
        else:
            assert re.fullmatch(pattern, text) is not None


@given(st.text(max_size=20))
def test_case_blind_is_stable(text: str) -> None:
    assert case_blind(case_blind(text)) == case_blind(text)
    assert case_blind(unicodedata.normalize("NFD", text)) == case_blind(text)
