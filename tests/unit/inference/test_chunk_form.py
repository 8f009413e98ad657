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


odd = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.sampled_from(["", "stop", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["0", "a"]), inner, max_size=2)
    ),
    max_leaves=3,
)  # fmt: skip


@given(
    chunks(),
    st.sampled_from(["choices", "usage", "index", "delta", "finish_reason", "tool_calls"]),
    odd,
)
def test_a_chunk_of_any_other_form_is_read_or_refused(
    chunk: dict[str, Any], name: str, value: Any
) -> None:  # fmt: skip
    inner = chunk["choices"][0] if chunk["choices"] else {}
    places = {"choices": chunk, "usage": chunk, "tool_calls": inner.get("delta", {})}
    places.get(name, inner)[name] = value
    try:
        said = read([f"data: {json.dumps(chunk)}\n\n".encode()])
    except ValueError:
        return
    counts: dict[str, int] = said[3] or {}
    assert all(type(count) is int and count >= 0 for count in counts.values())


def test_counts_that_are_no_numbers_of_tokens_are_left_out() -> None:
    def counted(usage: Any) -> Any:
        return read([f'data: {{"choices":[],"usage":{json.dumps(usage)}}}\n\n'.encode()])[3]

    negative = {"prompt_tokens": -100_000, "completion_tokens": True}
    for wrong in (
        "12",
        [1, 2],
        True,
        negative,
        {"prompt_tokens": 10**30, "completion_tokens": 2.5},
    ):
        assert counted(wrong) is None
    assert counted({"prompt_tokens": 10.0, "completion_tokens": 2}) == {
        "prompt_tokens": 10, "completion_tokens": 2,
    }  # fmt: skip
