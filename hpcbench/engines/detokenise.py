"""Tokens to text, one at a time: only whole characters, never a part of a stop text.

A token may end within a character, and the text of a token may depend on its predecessor (a leading space).
So each new token is decoded together with the tokens of the last returned piece, and the text is held back
while it ends in U+FFFD. vLLM and Text Generation Inference do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Detokeniser:
    """Turns the tokens of one answer into pieces of text."""

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stops: Sequence[str] = (),
        min_tokens: int = 0,
    ) -> None:
        """`stops` are searched in the text after the first `min_tokens` tokens."""
        self._decode, self._stops, self._min_tokens = decode, tuple(stops), min_tokens
        self.ids: list[int] = []
        """All tokens so far."""
        self.stopped = False
        """A stop text came."""
        self._from = self._read = 0
        self._held = ""  # may be the beginning of a stop text

    def push(self, token: int) -> str:
        """The text that this token completes; often, not always, the token's own."""
        self.ids.append(token)
        before = self._decode(self.ids[self._from : self._read])
        text = self._decode(self.ids[self._from :])
        if len(text) <= len(before) or text.endswith("\ufffd"):
            return ""
        self._from, self._read = self._read, len(self.ids)
        return self._release(text[len(before) :])

    def end(self) -> str:
        """The text that was held back as a possible start of a stop text, but is none.

        Bytes of an incomplete character are dropped, as in vLLM.
        """
        held, self._held = self._held, ""
        return held

    def _release(self, new: str) -> str:
        if self.stopped:
            return ""
        if len(self.ids) <= self._min_tokens:
            return new
        text = self._held + new
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that is a prefix of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
