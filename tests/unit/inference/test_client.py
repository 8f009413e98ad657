"""The client against a scripted server: what it makes of answers, failures and time."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from hpcbench.errors import RunFailed
from hpcbench.inference.client import Client, EngineGone, Limited
from hpcbench.inference.stream import EventParser, Stream
from hpcbench.schema.records import Response, ToolCall
from tests.mock_openai import Script
from tests.unit.inference.talking import TEXT, answer, request, run, talking


def test_an_answer_comes_with_text_usage_and_times() -> None:
    response, server = answer(Script())
    assert (response.outcome, response.text, response.tries) == ("ok", TEXT, 1)
    assert response.usage == {"prompt_tokens": 7, "completion_tokens": 4}
    assert (response.finish_reason, response.error) == ("stop", None)
    times = response.times
    assert len(times.chunks) == len(Script().pieces)
    assert times.headers is not None
    ordered = [times.start, times.send, times.headers, *times.chunks, times.done]
    assert ordered == sorted(ordered)
    body = json.loads(server.seen[0]["raw"])
    assert body["messages"][0] == {"role": "system", "content": "Be short."}
    assert body["messages"][1] == {"role": "user", "content": "What is ünder?"}
    assert (body["model"], body["max_tokens"]) == ("tiny", 9)
    assert "seed" not in body
    assert server.seen[0]["headers"]["X-API-Key"] == "key"
    assert Response.from_json(json.loads(json.dumps(response.to_json()))) == response


def test_the_tokens_are_counted_with_each_chunk_where_the_engine_does() -> None:
    response, server = answer(Script())
    assert response.times.tokens == (1, 2, 3, 4)
    options = json.loads(server.seen[0]["raw"])["stream_options"]
    assert options == {"include_usage": True, "continuous_usage_stats": True}
    without, _ = answer(Script(plan=["usage_once"]))
    assert (without.times.tokens, without.usage) == ((), response.usage)


def test_chunks_without_text_are_kept_apart() -> None:
    times = answer(Script(gap=0.01))[0].times
    assert len(times.empty) == 2  # the role and the reason
    assert times.empty[0] < times.chunks[0] <= times.chunks[-1] < times.empty[1] <= times.done
    assert times.scheduled is None


@pytest.mark.parametrize("act", ["last_usage", "usage_once", "whole"])
def test_usage_counts_wherever_it_is(act: str) -> None:
    response, _ = answer(Script(plan=[act]))
    assert (response.outcome, response.text) == ("ok", TEXT)
    assert response.usage == {"prompt_tokens": 7, "completion_tokens": 4}


def test_an_answer_that_is_not_streamed_has_one_chunk() -> None:
    times = answer(Script(plan=["whole"]))[0].times
    assert times.chunks == (times.done,)


def test_a_refusal_is_distinguished_from_an_answer() -> None:
    response, _ = answer(Script(plan=["refusal"]))
    assert (response.outcome, response.text) == ("refused", "I will not.")
    assert response.finish_reason == "stop"


def test_reasoning_counts_as_the_first_text() -> None:
    stream = Stream()
    for now, delta in enumerate(
        [{"role": "assistant"}, {"reasoning_content": "so"}, {"reasoning": "so"}, {"content": "4"}]
    ):
        stream.take_chunk(now, json.dumps({"choices": [{"delta": delta}]}))
    assert (stream.chunks, stream.empty, stream.text) == ([1, 2, 3], [0], "4")
    assert stream.reasoning == "soso"


def test_reasoning_is_kept_beside_the_answer_and_spoils_no_recount() -> None:
    response, _ = answer(Script(thoughts=("Let me ", "see.")), recount=len)
    assert (response.text, response.reasoning) == (TEXT, "Let me see.")
    assert len(response.times.chunks) == 2 + len(Script().pieces)
    assert response.recount is None  # the engine counts thoughts and the marks around them, too
    assert answer(Script())[0].reasoning is None


def test_events_of_one_block_share_its_time() -> None:
    stream = Stream()
    event = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    stream.take(5, event + event + event[:9])
    stream.take(8, event[9:])
    assert (stream.chunks, stream.text) == ([5, 5, 8], "aaa")


def test_the_text_is_counted_again_by_the_models_tokenizer() -> None:
    assert answer(Script(), recount=len)[0].recount == len(TEXT)
    assert answer(Script(plan=["status:400"]), recount=len)[0].recount is None


def test_each_text_is_stamped_after_the_server_sent_it() -> None:
    response, server = answer(Script(first=0.05, gap=0.02))
    sent = [moment for _, moment in server.events][1 : 1 + len(Script().pieces)]
    chunks = response.times.chunks
    assert all(left <= came for left, came in zip(sent, chunks, strict=True))
    # each arrived before the next was sent: times are not those of a whole buffer
    assert all(came < after for came, after in zip(chunks, sent[1:], strict=False))


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("block", "decorate"), [(1, True), (3, False), (7, True), (0, True)])
def test_a_stream_may_be_cut_anywhere(newline: str, block: int, decorate: bool) -> None:
    response, _ = answer(Script(newline=newline, block=block, decorate=decorate))
    assert (response.outcome, response.text) == ("ok", TEXT)
    assert len(response.times.chunks) == len(Script().pieces)


@pytest.mark.parametrize(
    ("act", "outcome", "text", "reason"),
    [
        ("length", "truncated", TEXT, "length"),
        ("content_filter", "refused", TEXT, "content_filter"),
        ("repetition", "truncated", TEXT, "repetition"),
        ("no_usage", "ok", TEXT, "stop"),
    ],
)
def test_the_finish_reason_decides(act: str, outcome: str, text: str, reason: str) -> None:
    response, server = answer(Script(plan=[act]))
    assert (response.outcome, response.text, response.finish_reason) == (outcome, text, reason)
    assert (response.usage is None) == (act == "no_usage")
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "act",
    ["status:500", "status:502", "status:503", "status:429", "status:408"]
    + ["cut", "unfinished", "error_event", "drop", "abort"],
)
def test_what_may_pass_is_tried_again_three_times_in_all(act: str) -> None:
    twice, server = answer(Script(plan=[act, act]))
    assert (twice.outcome, twice.text, twice.tries, twice.error) == ("ok", TEXT, 3, None)
    assert len(server.seen) == 3
    always, server = answer(Script(plan=[act] * 9))
    assert (always.outcome, always.text, always.usage, always.tries) == ("failed", None, None, 3)
    assert always.error
    assert "\n" not in always.error
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    "act",
    [
        "status:504",
        "status:502:endpoint_broke_off",
        "cut",
        "unfinished",
        "error_event",
        "drop",
        "abort",
    ],
)
def test_tries_that_a_model_may_have_worked_on_are_counted(act: str) -> None:
    twice, _ = answer(Script(plan=[act, "status:500", act]))
    assert (twice.outcome, twice.tries, twice.lost) == ("failed", 3, 2)
    once, _ = answer(Script(plan=[act, "status:503"]))
    assert (once.outcome, once.tries, once.lost) == ("ok", 3, 1)
    assert "lost" not in once.to_json()


def test_requests_that_were_refused_or_never_sent_are_not_lost() -> None:
    for act in (
        "status:500",
        "status:502:endpoint_unreachable",
        "status:429",
        "status:404",
        "status:400",
    ):
        refused, _ = answer(Script(plan=[act] * 3))
        assert (refused.text, refused.lost) == (None, 0)
    late, _ = answer(Script(), timeout=-1)
    assert (late.outcome, late.tries, late.lost) == ("failed", 0, 0)
    hung, _ = answer(Script(plan=["hang"]), timeout=0.2)
    assert (hung.outcome, hung.tries, hung.lost) == ("failed", 1, 1)


def test_tries_before_a_refusal_by_rate_limits_count_when_it_is_sent_again() -> None:
    async def journey() -> Response:
        async with talking(Script(plan=["drop", "status:429"])) as (client, _):
            prepared = await client.prepare(request())
            with pytest.raises(Limited) as limited:
                await client.send(prepared, time.monotonic_ns(), heeds_limits=True)
            return await client.send(prepared, time.monotonic_ns(), tries=limited.value.tries)

    again = run(journey())
    assert (again.outcome, again.tries, again.lost) == ("ok", 2, 1)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(400, "invalid"), (413, "invalid"), (422, "invalid"), (404, "failed"), (405, "failed")],
)
def test_what_will_not_pass_is_not_tried_again(status: int, outcome: str) -> None:
    response, server = answer(Script(plan=[f"status:{status}"]))
    assert (response.outcome, response.tries, len(server.seen)) == (outcome, 1, 1)
    assert response.error is not None
    assert f"scripted {status}" in response.error


@pytest.mark.parametrize("act", ["status:501", "status:503:out_of_memory", "reason:tool_calls"])
def test_what_would_end_the_same_again_is_not_tried_again(act: str) -> None:
    response, server = answer(Script(plan=[act]))
    assert (response.outcome, response.tries, len(server.seen)) == ("failed", 1, 1)
    assert response.error is not None
    assert act.rpartition(":")[2] in response.error


def test_a_server_that_says_when_to_come_again_is_heard() -> None:
    async def later(status: int) -> Response:
        async with talking(Script(plan=[f"status:{status} after 1"])) as (client, _):
            return await client.ask(request())

    async def both() -> list[Response]:
        return await asyncio.gather(later(429), later(503))

    for response in run(both()):
        assert (response.outcome, response.tries) == ("ok", 2)
        assert response.times.send - response.times.start > 0.9e9
    late, server = answer(Script(plan=["status:429 after 60"]), timeout=5)
    assert (late.outcome, late.tries, len(server.seen)) == ("failed", 1, 1)  # beyond the deadline
    assert late.error == "HTTP 429: scripted 429"


@pytest.mark.parametrize("script", [Script(plan=["hang"]), Script(first=5)])
async def test_who_gives_up_is_seen_to_leave(script: Script) -> None:
    """Before the answer began, and in its middle: so an engine stops working for a client that left."""
    async with talking(script) as (client, server):
        asking = asyncio.ensure_future(client.ask(request()))
        while not server.active:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        asking.cancel()
        while server.active:
            await asyncio.sleep(0.005)
        assert (server.left, asking.cancelled()) == (1, True)


async def test_a_missed_deadline_is_seen_by_the_server_too() -> None:
    async with talking(Script(plan=["hang"])) as (client, server):
        assert (await client.ask(request(timeout=0.1))).outcome == "failed"
        while server.active:
            await asyncio.sleep(0.005)
        assert server.left == 1


def test_the_deadline_counts_over_all_tries() -> None:
    hung, server = answer(Script(plan=["hang"]), timeout=0.2)
    assert (hung.outcome, hung.tries) == ("failed", 1)
    assert hung.error == "no answer before the deadline"
    slow, _ = answer(Script(gap=5), timeout=0.3)
    assert (slow.outcome, slow.text) == ("failed", None)
    late, server = answer(Script(), timeout=-1)
    assert (late.outcome, late.tries, len(server.seen)) == ("failed", 0, 0)
    assert late.error == "the deadline passed before the request was sent"
    tried, server = answer(Script(plan=["status:500", "hang"]), timeout=0.4)
    assert (tried.outcome, tried.tries, len(server.seen)) == ("failed", 2, 2)


def test_a_missing_engine_is_nobodys_answer() -> None:
    with pytest.raises(EngineGone, match="no model is ready"):
        answer(Script(plan=["no_model"]))
    with pytest.raises(EngineGone, match="does not answer on /nowhere"):
        run(ask_at("/nowhere"))
    with pytest.raises(RunFailed, match="refused the key"):
        answer(Script(plan=["wrong_key"]))


def test_an_endpoint_behind_the_engine_that_refuses_its_key_is_a_failed_answer() -> None:
    refused, server = answer(Script(plan=["status:401"]))
    assert (refused.outcome, refused.tries, len(server.seen)) == ("failed", 1, 1)
    assert refused.error == "HTTP 401: scripted 401"


async def ask_at(path: str) -> None:
    async with Client(path, "key", "tiny") as client:
        await client.ask(request())


def test_events_follow_the_standard() -> None:
    stream = (
        b": hi\ndata: a\ndata:b\n\ndata\n\nevent: x\ndata:  c\r\n\r\ndata: \xc3\xa9\r\rdata: lost"
    )
    whole = list(EventParser().feed(stream + b"\n"))
    assert whole == ["a\nb", " c", "é"]
    for size in range(1, 9):
        parser = EventParser()
        blocks = (stream[begin : begin + size] for begin in range(0, len(stream), size))
        assert [event for block in blocks for event in parser.feed(block)] == whole


ODD: list[Any] = [
    "text", 7, [["content"]], {"delta": "text"}, {"delta": {"content": ["a"]}}, {"delta": {"content": 7}},
    {"delta": {"reasoning": [1]}}, {"delta": {"refusal": True}},
    {"delta": {"tool_calls": 7}}, {"delta": {"tool_calls": ["crop"]}}, {"delta": {"tool_calls": {"a": 1}}},
    {"delta": {"tool_calls": [{"index": "first"}]}}, {"delta": {"tool_calls": [{"function": "crop"}]}},
]  # fmt: skip
"""Choices that are none of OpenAI's."""


@pytest.mark.parametrize("choice", ODD, ids=repr)
def test_a_choice_of_another_form_makes_the_answer_invalid(choice: Any) -> None:
    with pytest.raises(ValueError, match="a part of the answer|invalid literal"):
        Stream().take_chunk(0, json.dumps({"choices": [choice]}))


def test_calls_of_other_servers_are_read() -> None:
    """Without places, and with arguments that are an object already."""
    stream = Stream()
    parts = [
        {"index": None, "id": 7, "function": {"name": "crop", "arguments": {"box": [1]}}},
        {"function": {}},
    ]
    end = {"delta": {"tool_calls": parts}, "finish_reason": "tool_calls"}
    stream.take_chunk(0, json.dumps({"choices": [end]}))
    assert stream.calls == (ToolCall("7", "crop", '{"box": [1]}'), ToolCall("call1", "", ""))
    assert stream.outcome == "ok"
