"""The two shapes of a message's text in OpenAI's API: as it is, and as one of several parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any


def keeping_texts(
    messages: Sequence[Mapping[str, Any]], written: Callable[[Sequence[Mapping[str, Any]]], str]
) -> list[dict[str, Any]]:
    """Messages with those texts as parts that a chat template would lose otherwise.

    LLaVA-OneVision's template prints parts alone, and ignores content that is a plain text.

    Args:
        messages: each with `role` and `content`, a text or a list of parts.
        written: what the template makes of messages.
    """
    # The template may contain the texts themselves, or change them.
    words = [f"q{place}x7z" for place in range(len(messages))]

    def printed(parts: Set[int]) -> Set[int]:
        """Places of the messages whose texts come out if these are parts."""
        pairs = enumerate(zip(messages, words, strict=True))
        text = written(
            [{**one, "content": _part(word) if at in parts else word} for at, (one, word) in pairs]
        )
        return {at for at, word in enumerate(words) if word in text}

    texts = {at for at, one in enumerate(messages) if isinstance(one["content"], str)}
    others = {*range(len(messages))} - texts
    try:
        lost = texts - printed(others)
        lost &= printed(others | lost) if lost else lost
    except Exception:  # noqa: BLE001 - a template of others: it may raise anything, and will again
        lost = set()
    return [
        {**one, "content": _part(one["content"])} if at in lost else dict(one)
        for at, one in enumerate(messages)
    ]


def _part(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]
