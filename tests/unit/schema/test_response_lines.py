"""Lines of responses: readers of many and readers of one agree on what is an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpcbench.files.atomic import parse_line
from hpcbench.schema.records import Response
from hpcbench.schema.response_lines import decoded
from tests.campaign import examples
from tests.unit.timing import answered

ALL = (
    "sample_id", "text", "reasoning", "finish_reason", "error", "prompt", "image_sha256", "recount",
    "usage", "trajectory", "headers", "scheduled", "chunks", "empty", "tokens",
)  # fmt: skip

TEXTS = ("sample_id", "text", "reasoning", "finish_reason", "error", "prompt", "image_sha256")

WHOLE: dict[str, Any] = {
    **answered(1, 2, 5, 9, counted=True, tokens=4, scheduled=0).to_json(),
    "trajectory": {"exit": "ok", "turns": 2, "images": 1, "think_seconds": 0.5, "tool_seconds": 1},
    "reused_from": {"experiment": "e", "run_task": "r", "sample": "s", "piece": "00000.1"},
}


def line_of(record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


def is_answer(line: bytes) -> bool:
    try:
        Response.from_json(parse_line(line) or {})
    except (KeyError, TypeError, ValueError):
        return False
    return True


JUNK = st.sampled_from(
    [None, True, 1.5, 2**70, -(2**70), [], [None], [True], ["x"], [2**70], {}, {"x": []}]
)


@settings(max_examples=examples(300))
@given(st.sampled_from([*WHOLE, *WHOLE["times"]]), JUNK, st.booleans())
@example("start", True, False)
@example("chunks", [True], False)
def test_a_damaged_value_is_an_answer_for_all_readers_or_for_none(
    name: str, value: object, gone: bool
) -> None:
    damaged = {**WHOLE, "times": dict(WHOLE["times"])}
    part = damaged if name in damaged else damaged["times"]
    part[name] = value
    if gone:
        del part[name]
    lines = [line_of(WHOLE), line_of(damaged), line_of(WHOLE)]
    frame, counts = decoded([lines[0], lines[1] + lines[2]], ALL)
    if name in ("answer_key", "reused_from"):  # no frame has them
        return
    if name in TEXTS and value is not None and not gone:  # polars takes every value for a text
        return
    assert counts == [1, 1 + is_answer(lines[1])]
    assert frame.height == sum(counts)


@pytest.mark.parametrize(
    "damage", [{"turns": 2**70}, {"turns": float("inf")}, {"think_seconds": float("nan")}]
)
def test_figures_of_an_agent_that_are_none_lose_themselves_and_not_the_answer(
    damage: dict[str, float],
) -> None:
    page = line_of({**WHOLE, "trajectory": {**WHOLE["trajectory"], **damage}})
    frame, counts = decoded([page], ALL)
    assert (counts, frame["trajectory"].struct.field("exit").to_list()) == ([1], [None])


@pytest.mark.parametrize("name", ["from_a_later_version", "answer_key"])
def test_unknown_fields_are_left_out_and_optional_fields_may_be_missing(name: str) -> None:
    record = {**WHOLE, "times": {**WHOLE["times"], "later": 7}, "from_a_later_version": {"a": 1}}
    del record[name]
    assert Response.from_json(record).text == WHOLE["text"]
    assert decoded([line_of(record)], ALL)[1] == [1]


@pytest.mark.parametrize("more", [{"x": []}, {"x": 0.5}, {"prompt_tokens": None}])
def test_of_counts_of_tokens_those_that_are_known_are_read(more: dict[str, Any]) -> None:
    record = {**WHOLE, "usage": {"completion_tokens": 7, **more}}
    assert Response.from_json(record).usage == {"completion_tokens": 7}
    frame, counts = decoded([line_of(record)], ALL)
    assert counts == [1]
    assert frame["usage"].to_list() == [{"prompt_tokens": None, "completion_tokens": 7}]


def test_half_a_surrogate_pair_becomes_its_escape_and_a_whole_pair_stays() -> None:
    source = {**WHOLE["reused_from"], "sample": "\ud83d"}
    half = {"text": "\ud83d", "reused_from": source, "image_sha256": ["\ud83d"]}
    pages = [line_of({**WHOLE, **half}), line_of({**WHOLE, "text": "\U0001f600"})]
    frame, _ = decoded(pages, ALL)
    assert frame["text"].to_list() == ["\\ud83d", "\U0001f600"]
