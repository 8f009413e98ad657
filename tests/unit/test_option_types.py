"""Values of options are of the types that a plugin's author wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.plugins import Command, EngineSpec, PromptSpec, check_options, with_options
from hpcbench.schema.records import Message, Sample
from tests.unit.registries import Files

if TYPE_CHECKING:
    from decimal import Decimal


class Unit(Enum):
    POINTS = "pt"
    INCHES = "in"


@dataclass(frozen=True)
class Typed:
    """A metric with an option of each type."""

    api: ClassVar[int] = 1
    name: ClassVar[str] = "typed"
    higher_is_better: ClassVar[bool] = True

    case: Literal["keep", "lower"] = "keep"
    tau: float = 0.5
    words: int = 1
    strict: bool = False
    unit: Unit = Unit.POINTS
    most: int | None = None
    names: tuple[str, ...] = ()
    weights: Mapping[str, float] | None = None

    def score(self, prediction: object, references: Sequence[Any]) -> Any:
        return 1.0

    def aggregate(self, parts: Sequence[Any]) -> float:
        return 1.0

    @property
    def signature(self) -> str:
        return f"typed|{self.unit.value}|v1"


GOOD: Mapping[str, Sequence[Any]] = {
    "case": ["keep", "lower"], "tau": [0.5, 1, 0], "words": [0, 7], "strict": [True, False],
    "unit": ["pt", "in"], "most": [3, None], "names": [[], ["a", "b"]], "weights": [None, {"a": 1}],
}  # fmt: skip
VALUES = [
    "keep",
    "5",
    "in",
    "",
    0,
    1,
    -3,
    0.25,
    2.0,
    True,
    False,
    None,
    [],
    ["a"],
    [1],
    {},
    {"a": 1},
]


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in GOOD.items() for v in values])
def test_values_of_the_type_are_accepted(name: str, value: Any) -> None:
    assert check_options(Typed, {name: value}) == []
    with_options(Typed, {name: value})


@given(st.sampled_from([*GOOD]), st.sampled_from(VALUES))
def test_other_values_are_refused_with_what_they_must_be(name: str, value: Any) -> None:
    fits = {
        "case": value in ("keep", "lower"),
        "tau": type(value) in (int, float),
        "words": type(value) is int,
        "strict": type(value) is bool,
        "unit": value in ("pt", "in"),
        "most": value is None or type(value) is int,
        "names": isinstance(value, list) and all(isinstance(one, str) for one in value),
        "weights": value is None or isinstance(value, dict),
    }
    found = check_options(Typed, {name: value})
    assert (found == []) == fits[name]
    for where, message in found:
        assert where == (name,)
        assert message.startswith(f"option '{name}' must be ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"case": "upper"},
            """option 'case' must be 'keep' or 'lower', not "upper"; without it, it is "keep\"""",
        ),
        ({"tau": "0.3"}, """option 'tau' must be a number, not "0.3"; without it, it is 0.5"""),
        ({"words": 2.5}, "option 'words' must be a whole number, not 2.5; without it, it is 1"),
        ({"strict": "yes"}, """option 'strict' must be true or false, not "yes"; without it, it is false"""),
        ({"unit": "cm"}, """option 'unit' must be 'pt' or 'in', not "cm"; without it, it is "pt\""""),
    ],
)  # fmt: skip
def test_the_message_names_type_value_and_default(options: dict[str, Any], said: str) -> None:
    assert [message for _, message in check_options(Typed, options)] == [said]


def test_every_wrong_option_is_found_at_once() -> None:
    found = check_options(Typed, {"case": 1, "tau": True, "words": 1})
    assert [where for where, _ in found] == [("case",), ("tau",)]


def test_a_value_of_an_enumeration_becomes_its_member() -> None:
    assert with_options(Typed, {"unit": "in"}).unit is Unit.INCHES
    assert with_options(Typed, {"unit": "in"}).signature == "typed|in|v1"


def test_hints_that_only_type_checkers_know_allow_any_value() -> None:
    @dataclass(frozen=True)
    class Unknown(Typed):
        exact: Decimal | None = None

    assert check_options(Unknown, {"exact": "1.5"}) == []


class Prompt:
    """A prompt strategy whose options are a dataclass."""

    api: ClassVar[int] = 1

    @dataclass
    class Options:
        shots: int = 0

    def __init__(self, spec: PromptSpec) -> None:
        self.options = self.Options(**spec.options)

    def build(self, sample: Sample) -> tuple[Message, ...]:
        return (Message("user", "What?", sample.images),)


@dataclass
class Iterator:
    """A dataset iterator that is a dataclass: its only field is what every iterator gets."""

    spec: Any


def test_options_of_other_kinds_may_be_a_dataclass() -> None:
    assert check_options(Prompt, {"shots": 3}) == []
    ((where, message),) = check_options(Prompt, {"shots": "three"})
    assert (where, message.partition(",")[0]) == (
        ("shots",),
        "option 'shots' must be a whole number",
    )
    ((where, message),) = check_options(Prompt, {"shot": 3})
    assert (where, "did you mean 'shots'" in message) == (("shot",), True)
    assert check_options(Iterator, {}) == []


class Engine:
    """An engine that declares its options and does not check them."""

    api: ClassVar[int] = 1
    weights: ClassVar[bool] = False

    @dataclass
    class Options:
        batch: int = 1

    def launch_command(self, spec: EngineSpec) -> Command:
        return Command(["serve", spec.socket, str(1 // int(spec.options.get("batch", 1)))])


HERE = "tests.unit.test_option_types"


def test_a_wrong_type_is_one_line_at_its_place(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write(
        "metrics/typed.yaml", f"name: typed\nplugin: {HERE}.Typed\noptions: {{words: many}}\n"
    )
    files.write(
        "prompts/ask.yaml",
        f"name: ask\nstrategy: {HERE}.Prompt\nuser: x\noptions: {{shots: 1.5}}\n",
    )
    files.write(
        "models/org/tiny.yaml",
        f"name: org/tiny\nengine: {HERE}.Engine\nengine_options:\n  batch: many\n",
    )
    files.write("ml_tasks/vqa.yaml", "name: vqa\nplugin: vqa\nmetrics: [typed]\n")
    assert sorted(files.refusal(mode="dev")) == [
        "registry/metrics/typed.yaml:3:11: option 'words' must be a whole number, not \"many\"; "
        "without it, it is 1",
        "registry/models/org/tiny.yaml:4:3: option 'batch' must be a whole number, not \"many\"; "
        "without it, it is 1",
        "registry/prompts/ask.yaml:4:11: option 'shots' must be a whole number, not 1.5; "
        "without it, it is 0",
    ]


@pytest.mark.parametrize("option", ["trust_remote_code: 1", "attn_implementation: [sdpa]"])
def test_options_of_our_own_engine_have_types(tmp_path: Path, option: str) -> None:
    files = Files(tmp_path)
    text = f"name: org/tiny\nsource: ../../weights\nengine: huggingface\nengine_options: {{{option}}}\n"
    files.write("models/org/tiny.yaml", text)
    (said,) = files.refusal(mode="dev")
    assert said.startswith("registry/models/org/tiny.yaml:4:18: engine option")
