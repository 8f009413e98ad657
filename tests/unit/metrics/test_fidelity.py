"""Structural fidelity: rates over how answers were read, from JSON at all to single fields."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hpcbench.metrics import corpus_score, metric
from hpcbench.parsers import DataParser

SCHEMA = {
    "type": "object",
    "properties": {
        "total": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "seller": {"type": "object", "properties": {"inn": {"type": "string"}}, "required": ["inn"]},
    },
    "required": ["total", "seller"],
}  # fmt: skip
SOUND = '{"total": 1, "seller": {"inn": "7"}}'
NAMES = ["valid_json", "schema_valid", "repaired", "truncated", "missing_fields", "extra_fields",
         "mistyped_fields"]  # fmt: skip
BEST_IS_ONE = ("valid_json", "schema_valid")


def rate(name: str, answers: Sequence[str], **options: bool) -> float:
    parser = DataParser("object", SCHEMA)
    readings = [parser.read(one) for one in answers]
    return corpus_score(name, readings, [()] * len(readings), **options)


@pytest.mark.parametrize(
    ("answer", "values"),
    [  #                                                 valid schema repaired missing extra mistyped
        (SOUND, (1, 1, 0, 0, 0, 0)),
        (f"```json\n{SOUND}\n```", (1, 1, 0, 0, 0, 0)),
        (f"The fields: {SOUND}", (1, 1, 0, 0, 0, 0)),
        (SOUND.replace('"', "'"), (0, 0, 1, 0, 0, 0)),
        (SOUND[:-2], (0, 0, 1, 0, 0, 0)),
        ('{"total": 1}', (1, 0, 0, 2 / 3, 0, 0)),
        ("{}", (1, 0, 0, 1, 0, 0)),
        ('{"total": "1", "seller": {"inn": "7"}}', (1, 0, 0, 0, 0, 1 / 3)),
        ('{"total": 1, "seller": {"inn": "7", "kpp": "1"}}', (1, 1, 0, 0, 1 / 4, 0)),
        ('{"total": 1, "seller": {"inn": "7"}, "tags": [1, 2]}', (1, 0, 0, 0, 0, 1 / 4)),
        ("Total: 1\nSeller:\n  inn: 7", (0, 0, 0, 0, 0, 0)),
        ("I cannot read it.", (0, 0, 0, 1, 0, 0)),
    ],
)
def test_an_answer_has_these_rates(answer: str, values: tuple[float, ...]) -> None:
    names = [name for name in NAMES if name != "truncated"]
    assert [rate(name, [answer]) for name in names] == pytest.approx(values)


def test_field_rates_are_of_all_fields_not_means_of_answers() -> None:
    assert rate("missing_fields", [SOUND, '{"total": 1}']) == pytest.approx(2 / 6)
    assert rate("extra_fields", [SOUND, "no", '{"a": 1}']) == pytest.approx(1 / 4)
    assert rate("valid_json", [SOUND, "no", SOUND, "{'a': 1}"]) == 0.5


def test_json_may_have_to_stand_alone() -> None:
    assert rate(
        "valid_json", [SOUND, f"```\n{SOUND}\n```", f"So: {SOUND}"], alone=True
    ) == pytest.approx(1 / 3)
    assert metric("valid_json", alone=True).signature == "valid_json|around:nothing|v1"
    assert metric("valid_json").signature == "valid_json|around:any|v1"


def test_answers_cut_at_max_tokens_are_counted_whatever_was_read() -> None:
    parser = DataParser("text")
    readings = [parser.read("a", truncated=True), parser.read("b")]
    assert corpus_score("truncated", readings, [(), ()]) == 0.5


def test_without_a_schema_any_object_is_valid_and_nothing_is_missing() -> None:
    reading = DataParser("object").read('{"a": 1}')
    scores = {name: corpus_score(name, [reading], [()]) for name in NAMES}
    assert scores == {name: float(name in BEST_IS_ONE) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prediction", [None, "text", {"form": "json"}, 7, []])
def test_what_is_no_reading_is_the_worst(name: str, prediction: object) -> None:
    one = metric(name)
    assert one.aggregate([one.score(prediction, ["x"])]) == float(name not in BEST_IS_ONE)
    assert one.higher_is_better == (name in BEST_IS_ONE)
