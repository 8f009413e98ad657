"""Server-sent events, the form of a streamed answer over HTTP, and the JSON objects in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_decode = json.JSONDecoder().raw_decode


class EventParser:
    """Parses server-sent events from blocks of bytes with any boundaries.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """

    _LINE_END = re.compile(rb"\r\n|\n|\r")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, block: bytes) -> Iterator[str]:
        """The data of each event that this block completes."""
        if self.expects_plain(block):
            yield plain(block)
            return
        text = self._rest + block
        held = b""
        if text.endswith(b"\r"):  # possibly half of a \r\n
            text, held = text[:-1], b"\r"
        *lines, rest = self._LINE_END.split(text)
        self._rest = rest + held
        for line in lines:
            if line.startswith(b"data:"):
                value = line[5:]
                self._data.append(value[1:] if value.startswith(b" ") else value)
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                yield data.decode(errors="replace")

    def expects_plain(self, block: bytes) -> bool:
        """Whether it is one event of one line: the usual block of an engine, which needs no splitting."""
        return (
            block.find(b"\n") == len(block) - 2
            and block[:6] == b"data: "
            and block[-1:] == b"\n"
            and b"\r" not in block
            and self.between
        )

    @property
    def between(self) -> bool:
        """Whether the next block begins an event."""
        return not self._rest and not self._data


def plain(block: bytes) -> str:
    """The data of a block that is one event of one line."""
    return block[6:-2].decode(errors="replace")


def as_object(body: bytes | str) -> dict[str, Any]:
    """A JSON object, or an empty one for any other text."""
    try:
        if isinstance(body, str) and body.startswith("{"):  # the usual chunk: no space around it
            found: tuple[dict[str, Any], int] = _decode(body)
            if found[1] == len(body):
                return found[0]
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
