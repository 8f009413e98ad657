"""Parser of a streamed answer: the text, counts and times in its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpcbench.event_stream import EventParser, as_object, plain
from hpcbench.schema.records import Outcome

_OUTCOMES: Mapping[str | None, Outcome] = {
    "stop": "ok",
    "length": "truncated",
    "repetition": "truncated",  # vLLM's: its rule against loops
    "content_filter": "refused",
}
_USAGE = ("prompt_tokens", "completion_tokens")


class Stream:
    """One answer, parsed block by block."""

    def __init__(self) -> None:
        self.chunks: list[int] = []
        """Arrival of each chunk with text, reasoning or a refusal. Chunks in one block share a time: more
        about them is unknown."""
        self.empty: list[int] = []
        """Arrival of each other chunk with choices."""
        self.finish_reason: str | None = None
        self.error: Mapping[str, Any] | None = None
        """An error that the server reported inside the stream; the rest of the stream is ignored."""
        self._usage: Mapping[str, Any] = {}
        self._tokens: list[Any] = []
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._thoughts: list[str] = []
        self._events = EventParser()

    def take(self, now: int, block: bytes) -> None:
        """Parse data that arrived at `now`; raises ValueError if an event is no JSON object."""
        events = self._events
        for event in (plain(block),) if events.expects_plain(block) else events.feed(block):
            if event != "[DONE]":
                self.take_chunk(now, event)

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
            return
        usage = chunk.get("usage")
        if usage:
            self._usage = usage
        for choice in chunk.get("choices") or ():
            self._take_choice(now, choice, usage)

    def _take_choice(
        self, now: int, choice: Mapping[str, Any], usage: Mapping[str, Any] | None
    ) -> None:
        delta = choice.get("delta") or choice.get("message") or {}
        text, refusal = delta.get("content"), delta.get("refusal")
        if text:
            self._texts.append(text)
        if refusal:
            self._refusals.append(refusal)
        thought = delta.get("reasoning") or delta.get("reasoning_content")
        if thought:
            self._thoughts.append(thought)
        if text or refusal or thought:
            self.chunks.append(now)
            self._tokens.append(usage.get("completion_tokens") if usage else None)
        else:
            self.empty.append(now)
        self.finish_reason = choice.get("finish_reason") or self.finish_reason

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
        known = [count for count in self._tokens if isinstance(count, int)]
        return tuple(known) if len(known) == len(self._tokens) else ()

    @property
    def usage(self) -> dict[str, int] | None:
        """The server's last count of tokens."""
        if not self._usage:
            return None
        return {name: n for name in _USAGE if isinstance(n := self._usage.get(name), int)}

    @property
    def outcome(self) -> Outcome | None:
        """The outcome; None if the answer broke off."""
        ended = _OUTCOMES.get(self.finish_reason)
        return "refused" if ended and self._refusals else ended
