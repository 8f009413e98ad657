"""A server for measuring clients: as light as Python allows, and it knows to the nanosecond what it did when.

No HTTP library and no parsing: a request is known by its length, answers are encoded before. It answers each
`POST` at once, or on a schedule: the first text after FIRST seconds, then one every GAP seconds. In step, all
streams are written in one round every GAP seconds, as an engine that works in batches does. Spread, each
stream begins at another part of GAP, so that streams asked for together do not go in step.

    python -m tests.light_server --uds SOCKET [--first 0.2 --gap 0.02 --tokens 75 [--in-step | --spread]]
        [--check 20]

`GET /truth` gives, for each `seed` asked with, when each text was due and when it was written
(`time.monotonic_ns()`, the same clock in all processes of a machine), and forgets them. `GET /images` gives
the SHA-256 of the image in each CHECKth request.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import re
import time
from typing import Any, cast

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")
_SEED = re.compile(rb'"seed": ?(\d+)')
_IMAGE = re.compile(rb';base64,([^"]*)"')
_GOLDEN = 0.618034  # its multiples divide a length evenly, however many there are
_KEPT = 4096  # bytes of a request that are read, unless it is checked


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uds", required=True)
    parser.add_argument("--first", type=float)
    parser.add_argument("--gap", type=float, default=0.02)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--in-step", action="store_true")
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--check", type=int, default=0)
    asyncio.run(serve(parser.parse_args()))


async def serve(args: argparse.Namespace) -> None:
    """Listen, and beat time for streams that go in step."""
    loop = asyncio.get_running_loop()
    server = Server(args)
    await loop.create_unix_server(lambda: Stream(server), args.uds, backlog=2048)
    due = loop.time()
    while True:
        due += args.gap
        await asyncio.sleep(due - loop.time())
        for stream in [stream for stream in server.in_step if stream.ready <= due]:
            stream.write_next(due)


class Server:
    """State that all streams share."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.asked = 0
        self.truth: dict[str, dict[str, list[int]]] = {}
        self.images: list[str] = []
        self.in_step: set[Stream] = set()
        texts = [_chunk({"content": " word"}, number + 1) for number in range(args.tokens)]
        self.first = _HEAD + _chunk({"role": "assistant", "content": ""}, 0)
        # The token that ends an answer takes its time and is counted, and has no text.
        end = _chunk({}, args.tokens + 1, "stop") + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
        self.steps = [*texts, end]
        self.all = self.first + b"".join(self.steps)


class Stream(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.ready = 0.0
        self._buffer = bytearray()
        self._left = 0  # bytes of the body still to come
        self._checked = False
        self._number = 0
        self._truth: dict[str, list[int]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.server.in_step.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._left == 0:
            self._buffer += data
            head, found, body = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if head.startswith(b"GET"):
                self._buffer.clear()
                return self._tell(b"/truth" in head[:20])
            length = _LENGTH.search(head)
            self._left = (int(length[1]) if length else 0) - len(body)
            self.server.asked += 1
            check = self.server.args.check
            self._checked = bool(check) and self.server.asked % check == 0
            self._buffer = body
        else:
            self._left -= len(data)
            if self._checked or len(self._buffer) < _KEPT:
                self._buffer += data
        if self._left == 0:
            self._answer()
        return None

    def _answer(self) -> None:
        server, args = self.server, self.server.args
        if self._checked and (image := _IMAGE.search(self._buffer)):
            server.images.append(hashlib.sha256(base64.b64decode(image[1])).hexdigest())
        if args.first is None:
            self._transport.write(server.all)
        else:
            seed = _SEED.search(self._buffer)
            self._truth = server.truth[seed[1].decode() if seed else ""] = {
                "due": [],
                "written": [],
            }
            self._number = 0
            self._transport.write(server.first)
            loop = asyncio.get_running_loop()
            self.ready = loop.time() + args.first
            if args.spread:
                self.ready += args.gap * (server.asked * _GOLDEN % 1)
            if args.in_step:
                server.in_step.add(self)
            else:
                loop.call_at(self.ready, self.write_next, self.ready)
        self._buffer = bytearray()

    def write_next(self, due: float) -> None:
        """Write the next text, or the end; of a text the clock is read right before."""
        server = self.server
        step = server.steps[self._number]
        self._number += 1
        if self._number == len(server.steps):
            self._transport.write(step)
            server.in_step.discard(self)
            return
        self._truth["due"].append(int(due * 1e9))
        self._truth["written"].append(time.monotonic_ns())
        self._transport.write(step)
        if not server.args.in_step:
            due += server.args.gap
            asyncio.get_running_loop().call_at(due, self.write_next, due)

    def _tell(self, truth: bool) -> None:
        reported = json.dumps(self.server.truth if truth else self.server.images).encode()
        if truth:
            self.server.truth = {}
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(reported) + reported)


def _chunk(delta: dict[str, Any], tokens: int, reason: str | None = None) -> bytes:
    """One event as vLLM writes it, in a chunk of its own."""
    chunk = {
        "id": "chatcmpl-0123456789abcdef0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1732233600,
        "model": "m",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
        "usage": {"prompt_tokens": 300, "total_tokens": 300 + tokens, "completion_tokens": tokens},
    }
    return _framed(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def _framed(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n"


if __name__ == "__main__":
    main()
