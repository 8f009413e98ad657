"""Success by another metric's value, and the metrics of an agent's work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hpcbench.experiment.view.answer import Answer
from hpcbench.metrics.base import Parts
from hpcbench.metrics.resources import (
    NotMeasuredError,
    PlanAdherence,
    ToolCalls,
    TurnsOfAgents,
    WastedCalls,
)
from hpcbench.metrics.success import Success
from tests.unit.agents.trajectories import Story
from tests.unit.small import response


@pytest.mark.parametrize(
    ("options", "answer", "value"),
    [
        ({}, "42", 1),
        ({}, "43", 0),
        ({}, None, 0),
        ({}, {"total": 1}, 0),
        ({"of": "anls", "threshold": 0.75}, "abcd", 1),
        ({"of": "anls", "threshold": 0.75}, "abxx", 0),
        ({"of": "cer", "threshold": 0.25}, "abcx", 1),
        ({"of": "cer", "threshold": 0.25}, "abxx", 0),
        ({"of": "cer"}, "abcd", 1),
        ({"of": "exact_match", "options": {"case": "lower"}}, "ABCD", 1),
        ({"of": "exact_match"}, "ABCD", 0),
    ],
)
def test_a_sample_is_a_success_from_the_threshold_on(
    options: dict[str, Any], answer: object, value: float
) -> None:
    references = ["abcd"] if options else ["42"]
    assert Success(**options).score(answer, references) == Parts(value, 1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"of": "anls_"}, "there is no metric 'anls_'"),
        ({"of": "tpot"}, "reads no answers"),
        ({"of": "valid_json"}, "reads no answers"),
        ({"of": "success"}, "another metric"),
        ({"of": "anls", "options": {"x": 1}}, "options of metric 'anls'"),
        ({"of": "anls", "threshold": 2}, "outside the bounds"),
    ],
)
def test_a_success_of_nothing_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Success(**options)


def test_the_signature_has_the_other_metric_s_own() -> None:
    assert Success(of="cer", threshold=0.1).signature == (
        "success|of:(cer|case:keep|ws:strip|unicode:nfc|v1)|at:0.1|v1"
    )


def test_an_agent_s_work_is_measured_by_its_figures() -> None:
    story = (
        Story("s1")
        .does(("create_plan", {"steps": ["a", "b", "c"]}, "ok", 0))
        .does(("crop", {"left": 1}, "ok", 1), ("crop", {"left": 1}, "ok", 1))
        .does(
            ("zoom", "{", "arguments", 0), ("update_plan", {"step": 1, "status": "done"}, "ok", 0)
        )
        .says("42")
    )
    answer = Answer.of(story.response(), measured=True)
    assert (answer.exit, answer.turns, answer.tool_calls) == ("answered", 4, 5)
    found = {one.name: one.score(answer.measured, ()).numerator for one in (
        TurnsOfAgents(), ToolCalls(), WastedCalls(), PlanAdherence()
    )}  # fmt: skip
    assert found == {"turns": 4, "tool_calls": 5, "wasted_calls": 2, "plan_adherence": 1 / 3}
    assert answer.measured.completion_tokens == 40, "of all turns"
    assert answer.e2e_ms is None and answer.measured.ttft_ms is None, "it is no request"


def test_what_an_answer_lacks_has_no_value() -> None:
    story = Story("s1").says("42")
    measured = Answer.of(story.response(), measured=True).measured
    with pytest.raises(NotMeasuredError, match="no plan"):
        PlanAdherence().score(measured, ())
    one = Answer.of(response("s1"), measured=True)
    assert (one.exit, one.turns, one.tool_calls) == (None, None, None)
    with pytest.raises(NotMeasuredError, match="one request"):
        ToolCalls().score(one.measured, ())


@pytest.mark.parametrize(
    "damage", [{}, {"exit": 3, "turns": "x", "calls": {"a": "b"}}, {"calls": [1], "plan": 3},
               {"plan": {"steps": 0, "done": 1}}],
)  # fmt: skip
def test_damaged_figures_have_no_value(damage: dict[str, Any]) -> None:
    answer = Answer.of(replace(response("s1"), trajectory=damage), measured=True)
    assert (answer.exit, answer.turns, answer.tool_calls) == (None, None, None)
    assert answer.measured.plan_adherence is None
