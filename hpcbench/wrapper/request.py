"""A request that came otherwise than over HTTP, as the data plane sees it: gRPC and WebSocket are fronts.

It becomes the ASGI request that it would be over HTTP, and what the data plane sends becomes a head, chunks
of JSON and an end, or an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from hpcbench.event_stream import EventParser, as_object
from hpcbench.wrapper.meter import CLIENT_LEFT
from hpcbench.wrapper.proxy import CHAT, Proxy, error_body

log = logging.getLogger("hpcbench.wrapper")


class Exchange:
    """One request and its answer; a front says by the three methods at the end what it sends."""

    streams = False
    """Whether its answer may come in pieces."""
    as_bytes = False
    """Whether it takes an answer as HTTP's bytes, and not as chunks of JSON."""

    def __init__(self) -> None:
        self.status = 0
        """HTTP's number; 0: there is no answer yet."""
        self.headers: Mapping[str, str] = {}
        """Headers of the answer, without its length, which is HTTP's."""
        self._body: bytes | None = None
        self._ended = False
        self._events: EventParser | None = None
        self._whole: list[bytes] = []

    async def run(self, proxy: Proxy, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Pass the request through the data plane. Cancelled, it ends the engine's work.

        Args:
            proxy: the data plane.
            body: what HTTP would post.
            headers: what HTTP would send.
        """
        self._body = body
        json_type = (b"content-type", b"application/json")
        scope = {"type": "http", "path": CHAT, "method": "POST", "headers": [*headers, json_type]}
        try:
            await proxy(scope, self._receive, self._send)
        except asyncio.CancelledError:
            if not self.status:
                proxy.meter.codes[CLIENT_LEFT] += 1
            raise
        except Exception:
            log.exception("a bug in the wrapper")
        if not self._ended:  # over HTTP the connection would be cut
            await self.refuse(502, "broken_off", "the answer broke off at the engine")

    async def refuse(self, status: int, code: str, text: str) -> None:
        """Answer with an error of the wrapper."""
        self.status, self._ended = status, True
        await self.fail(json.dumps(error_body(status, code, text)).encode())

    async def _receive(self) -> MutableMapping[str, Any]:
        """The body, then nothing: a client that leaves cancels the exchange."""
        body, self._body = self._body, None
        if body is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": body}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], _as_text(message["headers"])
            if self.status < 400:
                kind = self.headers.get("content-type", "")
                self._events = EventParser() if kind.startswith("text/event-stream") else None
                await self.begin()
            return None
        block, last = message["body"], not message.get("more_body", False)
        await self._take(block, last=last)
        self._ended = last  # not before: what a front cannot give on must not pass for an answer
        return None

    async def _take(self, block: bytes, *, last: bool) -> None:
        """Give on what came of the answer's body."""
        if self.as_bytes and self.status < 400:
            return await self.take_bytes(block, last=last)
        if self._events is not None:
            texts = [one for one in self._events.feed(block) if one != "[DONE]"]
            if texts or last:
                await self.take(texts, last=last)
            return None
        self._whole.append(block)
        if last and self.status >= 400:
            await self.fail(b"".join(self._whole))
        elif last:
            whole = b"".join(self._whole).decode(errors="replace")
            await self.take([whole] if whole else [], last=True)
        return None

    async def begin(self) -> None:
        """The head of an answer is there."""

    async def take(self, texts: Sequence[str], *, last: bool) -> None:
        """Chunks of JSON came together; of an answer that is no stream, the whole of it.

        `last`: the answer is complete with them; then there may be none.
        """

    async def take_bytes(self, block: bytes, *, last: bool) -> None:
        """Bytes of an answer came; the last ones may be none."""

    async def fail(self, body: bytes) -> None:
        """The answer is an error in OpenAI's form, or in words of the engine."""


def message_of(body: bytes) -> str:
    """The sentence in an error of OpenAI's form; else the beginning of the text. All of it is characters."""
    error = as_object(body).get("error")
    if not isinstance(error, Mapping) or "message" not in error:
        return body[:200].decode(errors="replace")
    # JSON may escape half of a character, which no other form can carry
    return str(error["message"]).encode(errors="replace").decode()


def _as_text(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in headers
        if name != b"content-length"
    }
