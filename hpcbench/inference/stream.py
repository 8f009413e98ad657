"""Parser of a streamed answer: the text, counts and times in its events."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from hpcbench.event_stream import EventParser, as_object
from hpcbench.inference.chunk_form import MOST_TOKENS, ChunkForm, form_of
from hpcbench.schema.records import USAGE, Outcome, ToolCall

_OUTCOMES: Mapping[str | None, Outcome] = {
    "stop": "ok",
    "length": "truncated",
    "repetition": "truncated",  # vLLM's: its rule against loops
    "content_filter": "refused",
}
_TRIES = 8
"""So often the form of an answer's chunks is looked for: a server whose chunks all differ has none."""


class Stream:
    """One answer, parsed block by block."""

    def __init__(self) -> None:
        self.chunks: list[int] = []
        """Arrival of each chunk with text, reasoning, a refusal or a tool call. Chunks in one block share a
        time: more about them is unknown."""
        self.empty: list[int] = []
        """Arrival of each other chunk with choices."""
        self.finish_reason: str | None = None
        self.error: Mapping[str, Any] | None = None
        """An error that the server reported inside the stream; the rest of the stream is ignored."""
        self._usage: dict[str, int] = {}
        self._tokens: list[int | None] = []
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        """Tool calls by their place: id, name and arguments so far."""
        self._events = EventParser()
        self._form: ChunkForm | None = None
        self._tries = _TRIES

    def take(self, now: int, block: bytes) -> None:
        """Parse data that arrived at `now`; raises ValueError if an event is no JSON object."""
        form, begin = self._form, 0
        if form is not None and self._events.between:
            texts = self._thoughts if form.thought else self._texts
            while (found := form.read(block, begin)) is not None:
                text, usage, begin = found
                texts.append(text)
                self.chunks.append(now)
                self._tokens.append(usage["completion_tokens"] if usage else None)
                self._usage = usage or self._usage
                if begin == len(block):
                    return
            block = block[begin:]
        if self._tries and self._events.between and self.error is None:
            self._learn(block)
        for event in self._events.feed(block):
            if event != "[DONE]":
                self.take_chunk(now, event)

    def _learn(self, block: bytes) -> None:
        """Look for the form of the event that a block begins with, unless it is the known one."""
        if self._form is None or not block.startswith(self._form.before):
            self._tries -= 1
            # What is not of OpenAI's form is left to JSON, which says so.
            with contextlib.suppress(AttributeError, LookupError, TypeError):
                self._form = form_of(block) or self._form

    def take_chunk(self, now: int, text: str | bytes) -> None:
        """Parse one chunk, or a whole answer of a server that does not stream."""
        if self.error is not None:
            return
        chunk = as_object(text)
        if not chunk:
            raise ValueError(f"a part of the answer is not a JSON object: {text[:100]!r}")
        if chunk.get("error"):
            error = chunk["error"]
            self.error = error if isinstance(error, Mapping) else {"message": str(error)}
            self._form = None
            return
        counts = _counts(chunk.get("usage"))
        self._usage = counts or self._usage
        try:
            for choice in chunk.get("choices") or ():
                self._take_choice(now, choice, counts)
        except (TypeError, AttributeError, OverflowError) as error:
            raise ValueError(
                f"a part of the answer is not of OpenAI's form: {text[:100]!r}"
            ) from error

    def _take_choice(self, now: int, choice: Mapping[str, Any], counts: Mapping[str, int]) -> None:
        delta = choice.get("delta") or choice.get("message") or {}
        text, refusal = delta.get("content"), delta.get("refusal")
        # What is added to "" is a text, or a TypeError here and not where all are joined.
        if text:
            self._texts.append("" + text)
        if refusal:
            self._refusals.append("" + refusal)
        thought = delta.get("reasoning") or delta.get("reasoning_content")
        if thought:
            self._thoughts.append("" + thought)
        calls = delta.get("tool_calls")
        if calls:
            self._take_calls(calls)
        if text or refusal or thought or calls:
            self.chunks.append(now)
            self._tokens.append(counts.get("completion_tokens"))
        else:
            self.empty.append(now)
        if reason := choice.get("finish_reason"):
            self.finish_reason = "" + reason

    def _take_calls(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Add parts of tool calls: a name comes whole, arguments come in pieces."""
        for place, part in enumerate(parts):
            index = part.get("index")
            known = self._calls.setdefault(
                place if index is None else int(index), {"id": "", "name": "", "arguments": ""}
            )
            function = part.get("function") or {}
            known["id"] = str(part.get("id") or known["id"])
            known["name"] = str(function.get("name") or known["name"])
            given = function.get("arguments") or ""
            known["arguments"] += given if isinstance(given, str) else json.dumps(given)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Tools that the model calls; a call without an id gets its place as its id."""
        return tuple(
            ToolCall(one["id"] or f"call{place}", one["name"], one["arguments"])
            for place, one in sorted(self._calls.items())
        )

    @property
    def text(self) -> str:
        """The answer; if the model only refused, the text of the refusal."""
        return "".join(self._texts or self._refusals)

    @property
    def reasoning(self) -> str | None:
        """The model's reasoning, if the engine separates it."""
        return "".join(self._thoughts) or None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token count at each of `chunks`; empty unless the server counted with every chunk."""
        known = [count for count in self._tokens if count is not None]
        return tuple(known) if len(known) == len(self._tokens) else ()

    @property
    def usage(self) -> dict[str, int] | None:
        """The server's last count of tokens."""
        return self._usage or None

    @property
    def outcome(self) -> Outcome | None:
        """The outcome; None if the answer broke off."""
        if self.finish_reason == "tool_calls" and self._calls:
            return "ok"
        ended = _OUTCOMES.get(self.finish_reason)
        return "refused" if ended and self._refusals else ended


def _counts(usage: Any) -> dict[str, int]:
    """The counts of tokens in a `usage`; what can be none, as a negative number, is left out."""
    if not isinstance(usage, Mapping):
        return {}
    counts: dict[str, int] = {}
    for name in USAGE:
        said: Any = usage.get(name)
        if type(said) in (int, float) and 0 <= said < MOST_TOKENS and said == int(said):
            counts[name] = int(said)
    return counts
