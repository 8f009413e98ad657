"""The messages of a trajectory: the prompt, and each turn as the model sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.agents import text_calls
from hpcbench.agents.tools import ToolSpec, arguments_of, callable_name, writable
from hpcbench.agents.trajectory import Called, Trajectory
from hpcbench.schema.records import Message, ToolCall


def as_functions(specs: Sequence[ToolSpec]) -> tuple[Mapping[str, Any], ...]:
    """Tools in OpenAI's form."""
    return tuple(
        {
            "type": "function",
            "function": {
                "name": one.name,
                "description": one.description,
                "parameters": one.schema,
            },
        }
        for one in specs
    )


def with_system(messages: Sequence[Message], *texts: str) -> tuple[Message, ...]:
    """Messages whose system prompt ends with these texts; empty ones are left out."""
    wanted = [text for text in texts if text]
    if not wanted:
        return tuple(messages)
    first, *others = messages
    if first.role != "system":
        return (Message("system", "\n\n".join(wanted)), *messages)
    return (Message("system", "\n\n".join([first.text, *wanted]), first.images), *others)


def conversation(
    prompt: Sequence[Message],
    trajectory: Trajectory,
    image_of: Callable[[int], Path],
    shown: int,
    *,
    as_text: bool,
) -> tuple[Message, ...]:
    """The messages of the next request.

    Args:
        prompt: the first messages.
        trajectory: the turns so far.
        image_of: gives the file of an image that a tool made, by its place in `trajectory.images`.
        shown: images of the sample; those of tools are counted after them.
        as_text: whether calls and results are written as text; else in OpenAI's form.
    """
    found = list(prompt)
    made, ids = 0, set[str]()
    for number, turn in enumerate(trajectory.turns, 1):
        said = writable(turn.text)
        if not turn.calls:
            found.append(Message("assistant", said))
            continue
        images = [image_of(made + place) for place in range(_count(turn.called))]
        texts = _texts(turn.called, shown + made)
        if as_text:
            found += _as_text(said, turn.calls, texts, images)
        else:
            calls = _taken(turn.calls[: len(texts)], number, ids)
            found += _as_calls(said, calls, texts, images, shown + made)
        made += len(images)
    return tuple(found)


def _count(called: Sequence[Called]) -> int:
    return sum(len(one.result.images) for one in called)


def _as_text(
    said: str, calls: Sequence[ToolCall], texts: Sequence[str], images: Sequence[Path]
) -> list[Message]:
    """A turn whose results are one message of the user."""
    results = [text_calls.RESPONSE.format(text=text) for text in texts]
    return [
        Message("assistant", writable(text_calls.with_calls(said, calls))),
        Message("user", "\n".join(results), tuple(images)),
    ]


def _taken(calls: Sequence[ToolCall], number: int, ids: set[str]) -> tuple[ToolCall, ...]:
    """Calls of a turn as engines take them back: each with an id of its own, a name of allowed letters, and
    arguments that are an object. A model's own may be none of that, and then engines refuse the conversation.
    """
    found = []
    for place, call in enumerate(calls):
        # Nine letters and digits: Mistral's tokenizers take no others.
        name = call.id if call.id and call.id not in ids else f"t{number:04}c{place:03}"
        ids.add(name)
        try:
            arguments_of(call.arguments)
        except ValueError:
            arguments = "{}"
        else:
            arguments = writable(call.arguments)
        found.append(ToolCall(writable(name), callable_name(call.tool), arguments))
    return tuple(found)


def _as_calls(
    said: str,
    calls: tuple[ToolCall, ...],
    texts: Sequence[str],
    images: Sequence[Path],
    before: int,
) -> list[Message]:
    """A turn in OpenAI's form. Tools' messages have no images, so the user shows them."""
    found = [Message("assistant", text_calls.without_calls(said), calls=calls)]
    found += [
        Message("tool", text, call_id=call.id) for call, text in zip(calls, texts, strict=True)
    ]
    if images:
        numbers = [str(before + place + 1) for place in range(len(images))]
        what = f"image {numbers[0]}" if len(numbers) == 1 else f"images {', '.join(numbers)}"
        found.append(Message("user", f"The tools gave {what}.", tuple(images)))
    return found


def _texts(called: Sequence[Called], before: int) -> list[str]:
    """The texts of results; the images that a call gave are named by their numbers."""
    found, number = [], before
    for one in called:
        names = []
        for _ in one.result.images:
            number += 1
            names.append(f"image {number}")
        text = one.result.text if one.result.kind == "ok" else f"error: {one.result.text}"
        found.append(": ".join(part for part in (", ".join(names), text) if part))
    return found
