"""The loop of an agent: its ways out, its limits, and what a kill at any moment leaves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from hpcbench.agents.loop import ENOUGH, End, ToolTimes
from hpcbench.agents.tools import ToolResult, ToolSpec
from hpcbench.agents.trajectory import Trajectory
from hpcbench.schema.agent import Agent, AgentLimits
from hpcbench.schema.records import ToolCall
from tests.unit.agents.scene import (
    IMAGE,
    QUESTION,
    TOOLS,
    Killed,
    Model,
    Reply,
    Run,
    Tools,
    response,
    with_tools,
)

LOOK, PAY = [("look", '{"at": 1}')], [("pay", "{}")]


def limits(**values: Any) -> Agent:
    return with_tools(limits=values)


def test_an_answer_without_a_call_ends_it_at_once() -> None:
    run = Run(Model(["42"]))
    assert run.go() == End("answered", "42", "", "ok")
    assert [line["turn"] for line in run.lines] == [1]
    assert run.model.asked[0][0] == QUESTION


def test_each_result_is_in_the_next_request_and_images_come_from_the_user() -> None:
    run = Run(Model([LOOK, PAY, "42"]))
    assert run.go() == End("answered", "42")
    messages, tools = run.model.asked[-1]
    assert [one.role for one in messages] == [
        "system", "user", "assistant", "tool", "user", "assistant", "tool",
    ]  # fmt: skip
    assert messages[3].text == "image 2: looked"
    assert [str(image) for image in messages[4].images] == ["made1.png"]
    assert messages[6].text == "payed"
    assert [one["function"]["name"] for one in tools] == ["look", "pay"]
    assert [str(path) for path in run.tools.called[1][2]] == ["page.png", "made1.png"]


def test_calls_as_text_stand_between_marks_and_their_results_too() -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {"at": 1}}\n</tool_call>'
    run = Run(Model([call, "42"]), as_text=True)
    assert run.go() == End("answered", "42")
    (first, no_tools), (messages, _) = run.model.asked
    assert no_tools == ()
    assert first[0].text.startswith("Be short.\n\nYou can call these tools:\n")
    assert messages[2].text == call
    assert messages[3].text == "<tool_response>\nimage 2: looked\n</tool_response>"
    assert len(messages[3].images) == 1


def test_figures_count_turns_calls_tokens_and_times() -> None:
    run = Run(Model([LOOK, LOOK, PAY, "42"]))
    end = run.go()
    assert end is not None
    found = run.trajectory.figures(end.exit, end.why)
    assert (found["exit"], found["turns"]) == ("answered", 4)
    assert found["calls"] == {"look": 2, "pay": 1}
    assert found["wasted"] == 1, "the second look repeats the first"
    assert (found["prompt_tokens"], found["completion_tokens"]) == (40, 8)
    assert (found["think_seconds"], found["tool_seconds"]) == (2.0, 0.75)
    assert found["path"] == ["look", "look", "pay"]
    assert found["ttft_ms"] == [250.0] * 4
    assert found["sync_seconds"] == 0.005, "four turns, and one line before the payment"


@pytest.mark.parametrize(
    ("replies", "agent", "exit_", "calls"),
    [
        ([LOOK], limits(calls=2, same_calls=9), "limit_calls", 2),
        ([[*LOOK, *PAY, *LOOK]], limits(calls=2), "limit_calls", 2),
        ([LOOK], limits(tokens=5, same_calls=9), "limit_tokens", 3),
        ([LOOK], limits(seconds=1.5, same_calls=9), "limit_time", 2),
        ([[*PAY, *LOOK, *PAY]], limits(seconds=0.9), "limit_time", 2),
        ([LOOK], limits(), "loop", 3),
    ],
)
def test_a_limit_ends_it_without_an_answer(
    replies: list[Reply], agent: Agent, exit_: str, calls: int
) -> None:
    run = Run(Model(replies, again=True), agent=agent)
    end = run.go()
    assert end is not None
    assert (end.exit, end.text, end.outcome) == (exit_, "", "truncated")
    assert len(run.tools.called) == calls
    assert Run(run.model, run.tools, agent, run.lines).go() == end, (
        "it ends so again, without a request"
    )


def test_the_context_is_a_limit_that_hpcbench_or_the_engine_finds() -> None:
    run = Run(Model([LOOK], again=True), context=19)
    end = run.go()
    assert end is not None and end.exit == "limit_context"
    assert end.why == "12 tokens, with 8 for an answer, exceed 19"
    refusal = response(None, "invalid", error="This model's maximum context length is 19 tokens")
    end = Run(Model([LOOK, refusal])).go()
    assert end is not None and (end.exit, end.outcome) == ("limit_context", "truncated")


def test_other_calls_or_results_are_no_loop() -> None:
    calls: list[Reply] = [[("look", json.dumps({"at": n}))] for n in range(5)]
    assert Run(Model([*calls, "42"])).go() == End("answered", "42")
    numbers = iter(range(9))
    tools = Tools(gives=lambda _: ToolResult("ok", f"{next(numbers)}"))
    assert Run(Model([LOOK] * 5 + ["42"]), tools).go() == End("answered", "42")


def test_a_tool_that_is_called_too_often_says_so_and_the_model_goes_on() -> None:
    calls: list[Reply] = [[("look", json.dumps({"at": n}))] for n in range(3)]
    run = Run(Model([*calls, "42"]), agent=limits(calls_of={"look": 2}))
    assert run.go() == End("answered", "42")
    assert len(run.tools.called) == 2
    assert run.model.asked[-1][0][-1].text == "error: look may be called 2 times at most"


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (("fly", "{}"), "unknown", "there is no tool 'fly'; there are: look, pay"),
        (("look", "{"), "arguments", "the arguments are not valid JSON: "),
        (("look", "[1]"), "arguments", "the arguments must be a JSON object"),
        (("look", "[" * 100_000), "arguments", "the arguments are not valid JSON: "),
    ],
)
def test_a_wrong_call_is_answered_and_the_model_goes_on(
    call: tuple[str, str], kind: str, text: str
) -> None:
    run = Run(Model([[call], "42"]))
    assert run.go() == End("answered", "42")
    (result,) = run.lines[0]["results"]
    assert result["kind"] == kind
    assert result["text"].startswith(text)
    assert run.tools.called == []
    assert run.trajectory.figures("answered")["failed"] == {kind: 1}


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>not JSON</tool_call>",
        "<tool_call>",
        "<tool_call>[]",
        pytest.param("<tool_call>" + "[" * 100_000, id="deep"),
    ],
)
def test_a_call_in_text_that_cannot_be_read_is_answered(text: str) -> None:
    run = Run(Model([text, "42"]), as_text=True)
    assert run.go() == End("answered", "42")
    (result,) = run.lines[0]["results"]
    assert result["kind"] == "arguments"


def test_a_refusal_and_a_failed_request_have_ends_of_their_own() -> None:
    refused = Run(Model([LOOK, response("I will not.", "refused")])).go()
    assert refused == End("refused", "I will not.", "", "refused")
    failed = Run(Model([LOOK, response(None, "failed", error="HTTP 500: gone")])).go()
    assert failed == End("request_failed", None, "HTTP 500: gone", "failed")
    late = response(None, "failed", error="no answer before the deadline", seconds=300)
    end = Run(Model([late])).go()
    assert end is not None and end.exit == "limit_time"


def test_a_plan_is_part_of_the_state() -> None:
    plan = [("create_plan", '{"steps": ["look", "add"]}')]
    replies: list[Reply] = [
        plan,
        [("update_plan", '{"step": 1, "status": "done"}')],
        [("update_plan", '{"step": 3, "status": "done"}')],
        [("update_plan", '{"step": 0, "status": "done"}')],
        "42",
    ]
    run = Run(Model(replies), agent=with_tools(tools=["create_plan", "update_plan"]))
    assert run.go() == End("answered", "42")
    kinds = [line["results"][0]["kind"] for line in run.lines[:4]]
    assert kinds == ["ok", "ok", "error", "arguments"]
    assert run.trajectory.figures("answered")["plan"] == {"steps": 2, "done": 1}
    assert [step.status for step in Trajectory.of("s1", run.lines).plan] == ["done", "pending"]


def test_agents_hand_over_and_each_has_its_own_prompt_and_tools() -> None:
    agent = with_tools(
        agents={
            "finder": {"prompt": "Find it.", "tools": ["look"]},
            "payer": {"prompt": "Pay it.", "tools": ["pay"], "hand_over": []},
        }
    )
    over = [("hand_over", '{"agent": "payer", "message": "Bill 7."}')]
    run = Run(Model([LOOK, over, PAY, "done"]), agent=agent)
    assert run.go() == End("answered", "done")
    systems = [messages[0].text for messages, _ in run.model.asked]
    assert systems == ["Be short.\n\nFind it."] * 2 + ["Be short.\n\nPay it."] * 2
    tools = [[one["function"]["name"] for one in tools] for _, tools in run.model.asked]
    assert tools == [["hand_over", "look"]] * 2 + [["pay"]] * 2
    assert run.trajectory.figures("answered")["path"] == [
        "agent finder", "look", "agent payer", "pay",
    ]  # fmt: skip


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("kill_at", range(5))
def test_a_kill_at_any_write_loses_no_finished_turn_and_pays_once(
    kill_at: int, before: bool
) -> None:
    """Writes: look, an intent to pay, the payment's turn, look, the answer."""
    run = Run(Model([LOOK, PAY, LOOK, "42"]))
    with pytest.raises(Killed):
        run.go(kill_at=kill_at, before=before)
    finished = [line for line in run.lines if "reply" in line]
    asked = len(run.model.asked)
    end = run.go()
    assert end is not None
    assert run.lines[: len(finished)] == finished or "intent" in run.lines[1]
    paid = sum(name == "pay" for name, *_ in run.tools.called)
    lost = (kill_at, before) in ((1, False), (2, True))
    if lost:
        assert (end.exit, end.outcome) == ("tool_failed", "failed")
        assert end.why == "a call of pay was lost with its worker, and must not be repeated"
        assert paid == kill_at - 1
    else:
        assert end == End("answered", "42")
        assert paid == 1
        assert len(run.model.asked) - asked == 4 - len(finished)


def test_the_turn_of_a_worker_that_lost_its_shard_gives_way_to_the_next_ones() -> None:
    """The first one wrote its third turn late: the second one had read two, and went on from there."""
    first, second = Run(Model([LOOK, PAY, LOOK, "late"])), Run(Model([LOOK, PAY, "42"]))
    first.go()
    second.go()
    both = [*first.lines[:4], *second.lines[3:]]
    assert [line["turn"] for line in both] == [1, 2, 2, 3, 3], "a line before the payment"
    found = Trajectory.of("s1", both)
    assert [turn.text for turn in found.turns] == ["", "", "42"]
    assert (found.answered, found.lost) == (True, None)


def test_images_of_tools_survive_a_restart() -> None:
    run = Run(Model([LOOK, "42"]))
    run.go()
    assert Trajectory.of("s1", json.loads(json.dumps(run.lines))).images == [IMAGE]


def test_a_tool_gets_three_times_its_95th_percentile_and_no_less_than_the_floor() -> None:
    times = ToolTimes(1.0)
    assert times.limit("look") == 1.0
    for n in range(ENOUGH - 1):
        times.add("look", float(n))
    assert times.limit("look") == 1.0
    times.add("look", 19.0)
    assert times.limit("look") == 54.0
    assert times.limit("pay") == 1.0


def test_a_call_gets_no_more_time_than_is_left() -> None:
    run = Run(Model([LOOK, "42"]), agent=limits(seconds=2, tool_seconds=30))
    run.go()
    assert run.tools.called[0][3] == 1.5


def test_samples_of_another_kind_have_another_time() -> None:
    said = limits(seconds=300, seconds_by="work", seconds_of={"simple": 60, "3": 600}).limits
    kinds = [{"work": "simple"}, {"work": 3}, {"work": "mixed"}, {}, {"work": None}]
    assert [said.seconds_for(one) for one in kinds] == [60, 600, 300, 300, 300]
    assert AgentLimits().seconds_for({"work": "complex"}) == 300, "as in v0.2"
    run = Run(Model([LOOK], again=True), agent=limits(seconds=300, same_calls=9), most_seconds=2.0)
    end = run.go()
    assert end is not None
    assert (end.exit, end.why) == ("limit_time", "2 s")
    assert [seconds for *_, seconds in run.tools.called] == [1.5, 0.75]
    for lacking in ({"seconds_by": "work"}, {"seconds_of": {"simple": 60}}):
        with pytest.raises(ValueError, match="which needs"):
            limits(**lacking)


def test_the_text_of_a_region_is_asked_of_the_model_and_its_tokens_count() -> None:
    run = Run(
        Model([[("ocr_region", '{"box": [0, 0, 500, 500]}')], "42"]),
        Tools(gives=lambda name: ToolResult("ok", name, (IMAGE,), 0.25)),
        with_tools(tools=["ocr_region"]),
    )
    run.model.replies = [response("", calls=[("ocr_region", '{"box": [0, 0, 500, 500]}')]), "42"]
    end = run.go()
    assert end == End("answered", "42")
    assert [name for name, *_ in run.tools.called] == ["crop"]
    region = run.model.asked[1][0]
    assert (len(region), region[0].images) == (1, (IMAGE,))
    (result,) = run.lines[0]["results"]
    assert result["kind"] == "ok"
    assert run.trajectory.tokens("prompt_tokens") == 30


HALF = "half \ud83d"
OWN = with_tools(
    tools=["look", "create_plan", "update_plan"],
    agents={"one": {"prompt": "Be one."}, "two": {"prompt": "Be two."}},
)
PLANNED = [("create_plan", '{"steps": ["look"]}')]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ((HALF, "{}"), "unknown"),
        (("x" * 10**6, "{}"), "unknown"),
        (("a|b\n<script>\x1b[2J", "{}"), "unknown"),
        (("look", f'{{"at": "{HALF}"}}'), "ok"),
        (("look", '{"at": "\\ud83d"}'), "arguments"),
        (("look", '{"at": NaN}'), "arguments"),
        (("look", f'{{"at": "{"x" * 2**20}"}}'), "arguments"),
        (("create_plan", '{"steps": ["\\ud83d"]}'), "arguments"),
        (("hand_over", '{"agent": "two", "message": "\\ud83d"}'), "arguments"),
        (("update_plan", '{"step": 1.0, "status": "done"}'), "ok"),
        (("update_plan", '{"step": 1e300, "status": "done"}'), "error"),
        (("update_plan", '{"step": true, "status": "done"}'), "arguments"),
        *((("look", '{"at": %s}' % ("[" * deep + "]" * deep)), "arguments") for deep in (201, 330, 500, 999)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_text", [False, True])
def test_no_call_of_a_model_ends_more_than_itself(
    call: tuple[str, str], kind: str, as_text: bool
) -> None:
    """The record can be read again, and engines take the next request."""
    tool, said = call
    text = f'<tool_call>{{"name": {json.dumps(tool)}, "arguments": {said}}}</tool_call>'
    run = Run(Model([PLANNED, text if as_text else [call], "42"]), agent=OWN, as_text=as_text)
    if as_text:
        plan = '<tool_call>{"name": "create_plan", "arguments": {"steps": ["look"]}}</tool_call>'
        run.model.replies = [plan, text, "42"]
    assert run.go() == End("answered", "42")
    (result,) = run.lines[1]["results"]
    assert result["kind"] == kind or (as_text and kind == "unknown" and HALF in tool)
    read = Trajectory.of("s1", json.loads(json.dumps(run.lines)))
    assert len(read.turns) == 3
    messages, _ = run.model.asked[-1]
    for one in (read.figures("answered"), [one.text for one in messages]):
        json.dumps(one, ensure_ascii=False).encode()
    for one in (one for message in messages for one in message.calls):
        assert isinstance(json.loads(one.arguments), dict)
        assert re.fullmatch("[A-Za-z0-9_-]{1,64}", one.tool)


def test_the_text_of_a_region_may_hold_anything() -> None:
    run = Run(
        Model([[("ocr_region", '{"box": [0, 0, 9, 9]}')], "42"]),
        agent=with_tools(tools=["ocr_region"]),
    )
    run.tools = Tools(gives=lambda name: ToolResult("ok", name, (IMAGE,), 0.25))
    run.model.replies = [response(HALF, calls=[("ocr_region", '{"box": [0, 0, 9, 9]}')]), "42"]
    end = run.go()
    assert end is not None and end.exit == "answered"
    assert run.lines[0]["results"][0]["text"] == "half ?"


def test_ids_that_an_engine_repeats_or_leaves_out_become_unique() -> None:
    turns = [("a", ""), ("a",)]
    replies: list[Reply] = [
        replace(response(""), calls=tuple(ToolCall(one, *LOOK[0]) for one in ids)) for ids in turns
    ]
    run = Run(Model([*replies, "42"]), agent=limits(same_calls=9))
    assert run.go() == End("answered", "42")
    messages, _ = run.model.asked[-1]
    ids = [one.id for message in messages for one in message.calls]
    assert ids == ["a", "t0001c001", "t0002c000"]
    assert ids == [one.call_id for one in messages if one.role == "tool"]


def test_a_page_is_one_of_the_sample_and_no_image_that_a_tool_made() -> None:
    page = ToolSpec("page", "Shows a page.", {"type": "object"}, of_pages=True)
    tools = Tools(specs=(*TOOLS, page))
    run = Run(Model([LOOK, [("page", "{}")], "42"]), tools, with_tools(tools=["look", "page"]))
    assert run.go() == End("answered", "42")
    seen = {name: [str(one) for one in images] for name, _, images, _ in tools.called}
    assert seen["page"] == ["page.png"]


def test_images_of_tools_are_kept_in_files_alone() -> None:
    run = Run(Model([LOOK, LOOK, "42"]))
    run.go()
    assert run.trajectory.images == [b"", b""]
    assert {
        image for turn in run.trajectory.turns for one in turn.called for image in one.result.images
    } == {b""}
    assert [str(one) for one in run.model.asked[-1][0][-1].images] == ["made2.png"]
    assert all(one["images"] for line in run.lines for one in line["results"]), (
        "they are on the disk"
    )
