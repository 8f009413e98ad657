"""Chunks read by their form are what they are as JSON, and all others are left to JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.inference.chunk_form import form_of
from hpcbench.inference.stream import Stream

HEAD = {"id": "c-7", "object": "chat.completion.chunk", "created": 17, "model": "m"}

texts = st.text(st.characters(exclude_categories=()) | st.sampled_from('0 \\"\n\r{}'), max_size=6)
counts = st.integers(0, 10**6)
deltas = st.one_of(
    *(st.builds(lambda text, name=name: {name: text}, texts) for name in ("content", "reasoning")),
    st.builds(
        lambda text: {"role": "assistant", "content": text, "reasoning_content": None}, texts
    ),
    st.builds(lambda text: {"content": text, "reasoning_content": text}, texts),
    st.builds(lambda text: {"refusal": text, "content": text}, texts),
    st.just({}),
)


@st.composite
def chunks(draw: st.DrawFn) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "delta": draw(deltas), "logprobs": None}
    choice["finish_reason"] = draw(st.sampled_from([None, None, None, "stop"]))
    choice["token_ids"] = draw(st.sampled_from([None, [1, 23], [12, 3], [4]]))
    chunk = {**HEAD, "choices": draw(st.sampled_from([[choice]] * 5 + [[], [choice, choice]]))}
    prompt, answer = draw(st.sampled_from([7, 70])), draw(counts)
    usage = {"prompt_tokens": prompt, "total_tokens": prompt + answer, "completion_tokens": answer}
    chunk["usage"] = draw(st.sampled_from([usage, usage, usage, None, {"completion_tokens": 3}]))
    return chunk


@given(
    st.lists(chunks(), max_size=12),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.integers(1, 400),
    st.sampled_from(["\n\n", "\n\n", "\r\n\r\n"]),
)
def test_an_answer_is_the_same_by_form_and_as_json(
    several: list[dict[str, Any]],
    ascii_only: bool,
    separators: tuple[str, str],
    size: int,
    end: str,
) -> None:
    events = [json.dumps(one, ensure_ascii=ascii_only, separators=separators) for one in several]
    sent = [f"data: {one}{end}".encode(errors="replace") for one in [*events, "[DONE]"]]
    whole = b"".join(sent)
    cut = [whole[begin : begin + size] for begin in range(0, len(whole), size)]
    assert read(sent) == read(sent, by_form=False)
    assert read([whole]) == read([whole], by_form=False)
    assert read(cut) == read(cut, by_form=False)


def read(blocks: list[bytes], *, by_form: bool = True) -> tuple[Any, ...]:
    """All that an answer of these blocks says."""
    stream = Stream()
    if not by_form:
        stream._tries = 0
    for now, block in enumerate(blocks):
        stream.take(now, block)
    said = (stream.text, stream.reasoning, stream.finish_reason, stream.usage, stream.outcome)
    return *said, stream.chunks, stream.empty, stream.tokens


def event(text: str = '"a"', rest: str = "null", usage: int = 3) -> bytes:
    delta = f'"delta":{{"content":{text}}},"finish_reason":{rest}'
    counted = f'"usage":{{"prompt_tokens":9,"completion_tokens":{usage}}}'
    return f'data: {{"id":"c","choices":[{{{delta}}}],{counted}}}\n\n'.encode()


def test_a_chunk_of_the_form_is_read_without_json() -> None:
    form = form_of(event())
    assert form is not None
    block = event('"zwölf\\n\\u20ac\\ud83d\\ude00"', usage=123) + event()
    text, usage, end = form.read(block, 0) or ("", None, 0)
    assert (text, usage) == ("zwölf\n€😀", {"prompt_tokens": 9, "completion_tokens": 123})
    assert form.read(block, end) == ("a", {"prompt_tokens": 9, "completion_tokens": 3}, len(block))


@pytest.mark.parametrize(
    "other",
    [
        event('""'),  # a chunk without text counts apart
        event('"a","refusal":"no"'),
        event(rest='"stop"'),
        event('"\\x"'),  # no JSON
        event('"a\tb"'),
        event().replace(b'"c"', b'"d"'),
        event().replace(b"\n\n", b"\r\n\r\n"),
        event()[:-1],
        event(usage=-3),
        b'{"error": {"message": "out of memory"}}\n\n',
    ],
)
def test_a_chunk_of_another_form_is_left_to_json(other: bytes) -> None:
    form = form_of(event())
    assert form is not None
    assert form.read(other, 0) is None


def test_nothing_is_read_after_an_error() -> None:
    error = b'data: {"error": {"message": "out of memory"}}\n\n'
    stream = Stream()
    for block in (event(), event(), error, event()):
        stream.take(1, block)
    assert (stream.text, stream.error) == ("aa", {"message": "out of memory"})
