"""The form of an engine's chunks: all that is the same in them, around their text and their counts.

Chunks of one answer mostly differ in their text and in numbers after it. Once one was parsed as JSON, the
next are compared with it as bytes, which takes a quarter of the time. Nothing is guessed: a chunk of the form
is the same JSON but for the characters of one string and the digits of some numbers. Others are parsed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from hpcbench.event_stream import as_object
from hpcbench.schema.records import USAGE

MOST_TOKENS = 10**15
"""A number of more digits is no count of tokens."""

_TEXTS = ("content", "reasoning", "reasoning_content")
_DATA, _END = b"data: ", b"\n\n"
# What a string of JSON that is not empty has between its quotation marks: RFC 8259, section 7.
_TEXT = rb'(?!")([^"\\\x00-\x1f]*(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*)*)'
_NUMBER = re.compile(rb"([0-9]{1,15})")

Found = tuple[str, dict[str, int] | None, int]
"""A chunk's text, its usage, and where its event ends."""


@dataclass(frozen=True, slots=True)
class ChunkForm:
    """Server-sent events, a chunk each, that differ in one text and in numbers after it only."""

    before: bytes
    """All bytes before the text, with its quotation mark."""
    rest: re.Pattern[bytes]
    """Matches the text (group 1), what is after it, and the end of the event."""
    counts: tuple[int, int] | None
    """Groups of the numbers that are `USAGE`; None: there are none."""
    thought: bool
    """Whether the text is the model's reasoning."""

    def read(self, block: bytes, begin: int) -> Found | None:
        """Read the event that begins there; None: it has another form, or its end is not in the block."""
        if not block.startswith(self.before, begin):
            return None
        found = self.rest.match(block, begin + len(self.before))
        if found is None:
            return None
        usage = None
        if self.counts is not None:
            prompt, answer = found.group(*self.counts)
            usage = {"prompt_tokens": int(prompt), "completion_tokens": int(answer)}
        text = found[1]
        if b"\\" not in text:
            return text.decode(errors="replace"), usage, found.end()
        try:
            return json.loads(b'"%b"' % text), usage, found.end()
        except ValueError:  # no escape of JSON
            return None


def form_of(block: bytes) -> ChunkForm | None:
    """The form of the event that a block begins with; None: it has no text, or not only one."""
    event, end, _ = block.partition(_END)
    chunk = as_object(event[len(_DATA) :].decode(errors="replace"))
    choices = chunk.get("choices") or [{}]
    delta, usage = choices[0].get("delta") or {}, chunk.get("usage") or None
    names = [name for name, value in delta.items() if value and name != "role"]
    if not end or len(choices) > 1 or choices[0].get("finish_reason") or chunk.get("error"):
        return None
    if len(names) != 1 or names[0] not in _TEXTS:
        return None
    before, key, after = event.partition(b'"%b":' % names[0].encode())
    mark, after = after[: after.find(b'"') + 1], after[after.find(b'"') + 1 :]
    text = re.match(_TEXT, after)
    if text is None:
        return None
    same = _NUMBER.sub(b"0", after[text.end() :])
    pattern = re.escape(same).replace(b"0", _NUMBER.pattern)
    counts = _places(after[text.end() :]) if usage else None
    form = ChunkForm(
        before + key + mark, re.compile(_TEXT + pattern + _END), counts, names[0] != "content"
    )
    # It is the form only if both ways to read the chunk say the same.
    known = {name: usage.get(name) for name in USAGE} if usage else None
    return form if form.read(block, 0) == (delta[names[0]], known, len(event) + 2) else None


def _places(rest: bytes) -> tuple[int, int] | None:
    """Groups of the two counts among all numbers of the rest."""
    groups = []
    for name in USAGE:
        before, key, _ = rest.partition(b'"%b":' % name.encode())
        if not key:
            return None
        groups.append(2 + len(_NUMBER.findall(before)))
    return groups[0], groups[1]
