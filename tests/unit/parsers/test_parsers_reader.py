"""`reader(ml_task)`: plugin or parser, schema and policies become one function that never raises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from hpcbench import plugins
from hpcbench.errors import EnvironmentFault, UserError
from hpcbench.parsers import reader
from hpcbench.planning import stage_key
from hpcbench.prompts import TaskPrompt
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.records import Reading
from tests.unit.small import measured, resolved, run_task, sample

SCHEMA = {"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}}
HERE = "tests.unit.parsers.test_parsers_reader"


class Form(BaseModel):
    total: float


class Last:
    """Reads the last word; three answers of its own."""

    api: ClassVar[int] = 1

    def parse(self, text: str) -> object | None:
        if text == "nothing":
            return None
        if text == "total":
            return Reading({"total": "x"}, form="mine", repairs=("guess",))
        return {"total": float(text.split()[-1])}


class Asked:
    api: ClassVar[int] = 1

    def parse(self, text: str, sample: Any) -> str:
        return f"{sample.fields['question']} {text}"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    plugins.forget()
    yield
    plugins.forget()


def task(**more: Any) -> MLTask:
    return MLTask.model_validate({"name": "t", "plugin": "kie", "metrics": ["m"], **more})


def read(text: str, truncated: bool = False, of: Any = None, **more: Any) -> Reading:
    return reader(task(**more))(text, of or sample(), truncated)


def test_our_own_tasks_read_as_they_want_whatever_the_answer_is_wrapped_in() -> None:
    assert read("<think>x</think>So {'total': 1}").value == {"total": 1}
    assert read(" 12,50 ", plugin="vqa").value == "12,50"
    assert read('"Receipt".', plugin="classification").value == "receipt"
    assert read('```{"total": 1}```', plugin="vqa", parser="json_object").value == {"total": 1}


def test_the_definitions_schema_and_policies_count() -> None:
    reported = {"output": "object", "output_schema": SCHEMA}
    assert read('{"total": "1"}', **reported).reason == "schema: field total is string, not number"
    assert (
        read("{'total': 1}", **reported, repair="refuse").reason == "JSON not sound: single quotes"
    )
    assert read('{"total": 1', **reported, repair="refuse").reason == "JSON broken off"
    assert read("<think>", plugin="vqa", reasoning="keep").value == "<think>"
    assert read("{'total': 1}", True, **reported).truncated


def test_a_pydantic_model_is_a_schema() -> None:
    reported = {"output": "object", "output_model": f"{HERE}.Form"}
    assert read('{"total": 1}', **reported).value == {"total": 1}
    assert read("{}", **reported).reason == "schema: missing field total"
    assert plugins.answer_schema(task(**reported)) == Form.model_json_schema()
    with pytest.raises(UserError, match="is not a pydantic model"):
        reader(task(output="object", output_model=f"{HERE}.Last"))
    with pytest.raises(EnvironmentFault, match="cannot be imported"):
        reader(task(output="object", output_model="no_such_module.Form"))


def test_labels_may_differ_from_sample_to_sample() -> None:
    reported = {"plugin": "classification", "output": "label", "label_field": "classes"}
    for classes in (["form", "bill"], "form, bill", "form\nbill"):
        assert read("B", of=sample(fields={"classes": classes}), **reported).value == "bill"
    assert read("B", of=sample(fields={}), **reported).value == "b"


def test_a_foreign_parsers_value_is_held_to_the_schema() -> None:
    reported = {"parser": f"{HERE}.Last", "output": "object", "output_schema": SCHEMA}
    assert read("it is 5", **reported) == Reading(
        {"total": 5.0}, form="parser", required=1, found=1
    )
    assert read("nothing", **reported) == Reading(None, "not read")
    own = read("total", True, **reported)
    assert (own.reason, own.form, own.repairs, own.truncated) == (
        "schema: field total is string, not number", "mine", ("guess",), True,
    )  # fmt: skip


def test_a_foreign_parser_that_raises_loses_that_answer_with_the_reason() -> None:
    reading = read("it is five", True, parser=f"{HERE}.Last")
    assert reading == Reading(
        None, "parser ValueError: could not convert string to float: 'five'", truncated=True
    )


def test_a_foreign_task_sees_the_sample_and_no_thoughts() -> None:
    assert read("<think>hm</think>42", plugin=f"{HERE}.Asked").value == "Total? 42"
    assert read("<think>hm", plugin=f"{HERE}.Asked").reason == "reasoning not finished"
    assert (
        read("x", of=sample(fields={}), plugin=f"{HERE}.Asked").reason
        == "task KeyError: 'question'"
    )


@pytest.mark.parametrize("wanted", ["prompt", "response_format"])
def test_prompts_tell_the_schema_of_a_model(wanted: str) -> None:
    one = run_task(output_schema=wanted)
    ml_task = one.ml_task.model_copy(update={"output_model": f"{HERE}.Form"})
    prompt = TaskPrompt(one.model_copy(update={"ml_task": ml_task}))
    reported = prompt.build(sample())[-1].text + json.dumps(prompt.generation)
    assert '"required": ["total"]' in reported


@pytest.mark.parametrize(
    "change",
    [{"repair": "refuse"}, {"reasoning": "keep"}, {"label_field": "x"}, {"output_model": "a.B"}],
)
def test_what_decides_how_answers_are_read_is_in_the_key_of_evaluation(
    change: dict[str, Any],
) -> None:
    one = run_task()
    other = one.model_copy(update={"ml_task": one.ml_task.model_copy(update=change)})
    facts = measured(resolved(one))
    keys = [
        [stage_key(each, facts, None, stage) for each in (one, other)]
        for stage in ("inference", "evaluation")
    ]
    assert keys[0][0] == keys[0][1]
    assert keys[1][0] != keys[1][1]
