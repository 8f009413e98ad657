"""A scripted server that speaks OpenAI's API on a Unix socket, and misbehaves on demand.

Three uses: in a test's own event loop (`Server`), as an engine the wrapper starts
(`tests.scripted_engine:ScriptedEngine`, options are the fields of `Script`), and as a process for benchmarks
(`python -m tests.mock_openai --uds SOCKET`).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from aiohttp import web


@dataclass
class Script:
    """Behaviour of the server."""

    pieces: tuple[str, ...] = ("The total ", "is ", "12,50 €", ".")
    """Text chunks of each answer."""
    thoughts: tuple[str, ...] = ()
    """Chunks of reasoning before them."""
    plan: list[str] = field(default_factory=list)
    """Fate of the first, second … request; then `ok`. See `Server._chat`."""
    first: float = 0.0
    """Seconds before the first text."""
    gap: float = 0.0
    """Seconds between texts."""
    block: int = 0
    """Send the stream in blocks of so many bytes, wherever they cut; 0: an event a block."""
    newline: str = "\n"
    """Line end of the stream."""
    decorate: bool = False
    """Comments, other fields, and data over several lines."""
    ascii: bool = False
    """Other characters than ASCII's come as escapes, also half of one."""
    fast: bool = False
    """For benchmarks: look at nothing, keep nothing, answer in one piece."""
    start: str = "ok"
    """As an engine: ok, exit, silent (ends without a word) or hang."""
    ignore_term: bool = False
    """As an engine: SIGTERM does nothing."""
    children: bool = False
    """As an engine: start a child, and one in a session of its own."""
    pids: str = ""
    """As an engine: file for the pids of itself and its children."""
    say: str = ""
    """As an engine: print the value of this environment variable."""


class Server:
    """The server as an async context manager; `seen` is what reached it."""

    def __init__(self, socket: str | Path, script: Script | None = None) -> None:
        self.script = script or Script()
        self.seen: list[dict[str, Any]] = []
        self.metrics = "scripted_requests_total 1\n"
        self.active = self.most_active = 0
        self.left = 0  # clients that went before their answer was complete
        self.events: list[tuple[str, int]] = []
        self._socket = str(socket)
        self._instant = b"".join(self._events({"stream_options": {"include_usage": True}}, "ok"))
        app = web.Application(client_max_size=2**28)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/chat/completions", self._count)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )

    async def __aenter__(self) -> Server:
        await self._runner.setup()
        await web.UnixSite(self._runner, self._socket, backlog=2048).start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()
        Path(self._socket).unlink(missing_ok=True)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "scripted"}]})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=self.metrics)

    async def _count(self, request: web.Request) -> web.StreamResponse:
        self.active += 1
        self.most_active = max(self.active, self.most_active)
        try:
            return await self._chat(request)
        except (asyncio.CancelledError, ConnectionError):
            self.left += 1
            raise
        finally:
            self.active -= 1

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        if self.script.fast:
            return web.Response(body=self._instant, content_type="text/event-stream")
        self.seen.append({"headers": dict(request.headers), "raw": raw})
        act = self.script.plan.pop(0) if self.script.plan else "ok"
        if act.startswith("status:"):
            status, _, later = act[7:].partition(" after ")
            status, _, code = status.partition(":")
            code = code or status
            error = {"message": f"scripted {code}", "type": "x", "code": code}
            headers = {"Retry-After": later} if later else {}
            return web.json_response({"error": error}, status=int(status), headers=headers)
        if act.startswith("words:"):
            return web.Response(status=400, text=act[6:])
        if act == "no_model":
            error = {"message": "no model is ready (failed): it died", "code": "no_model"}
            return web.json_response({"error": error}, status=503)
        if act == "wrong_key":
            error = {"message": "X-API-Key is missing or wrong", "code": "wrong_key"}
            return web.json_response({"error": error}, status=401)
        if act == "hang":
            await asyncio.sleep(3600)
        if act == "drop":
            assert request.transport is not None
            request.transport.abort()
        if act == "die_early":
            os._exit(3)
        body = json.loads(raw)
        if act == "packed":  # by gzip, if the caller accepts that
            answer = web.json_response(whole(body, "".join(self.script.pieces)))
            answer.enable_compression()
            return answer
        if not body.get("stream") or act == "whole":
            return web.json_response(whole(body, "".join(self.script.pieces)))
        return await self._stream(request, body, act)

    async def _stream(
        self, request: web.Request, body: Mapping[str, Any], act: str
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        events = self._events(body, act)
        if act in ("cut", "die"):
            events = events[: len(events) // 2]
        for number, event in enumerate(events):
            await asyncio.sleep(self.script.first if number == 1 else self.script.gap)
            self.events.append((str(body.get("model")), time.monotonic_ns()))
            size = self.script.block or len(event)
            for begin in range(0, len(event), size):
                await answer.write(event[begin : begin + size])
                await asyncio.sleep(0)
        if act == "die":
            await asyncio.sleep(0.05)
            os._exit(3)
        if act == "cut":
            assert request.transport is not None
            request.transport.close()
            return answer
        await answer.write_eof()
        return answer

    def _events(self, body: Mapping[str, Any], act: str) -> list[bytes]:
        pieces = self.script.pieces
        chunks = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
        deltas = [{"reasoning": thought} for thought in self.script.thoughts]
        deltas += [{"content": piece} for piece in pieces]
        chunks += [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        if act == "error_event":
            chunks = [*chunks[:2], {"error": {"message": "scripted error", "code": 500}}]
        elif act != "unfinished":
            known = ("length", "content_filter", "repetition", "abort")
            reason = act[7:] if act.startswith("reason:") else act if act in known else "stop"
            chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}]
            if act == "refusal":
                chunks[1:-1] = [{"choices": [{"index": 0, "delta": {"refusal": "I will not."}}]}]
            chunks = self._counted(chunks, body.get("stream_options") or {}, act)
        texts = [json.dumps(chunk, ensure_ascii=self.script.ascii) for chunk in chunks]
        return [self._event(text) for text in [*texts, "[DONE]"]]

    def _counted(
        self, chunks: list[dict[str, Any]], options: Mapping[str, Any], act: str
    ) -> list[dict[str, Any]]:
        """With the engine's counts: in each chunk, in the last with choices, in one of its own, or none."""
        total = len(self.script.thoughts) + len(self.script.pieces)
        once = act in ("no_usage", "usage_once", "last_usage")
        if options.get("continuous_usage_stats") and not once:
            chunks = [
                {**chunk, "usage": usage(min(number, total))} for number, chunk in enumerate(chunks)
            ]
        if options.get("include_usage") and act == "last_usage":
            chunks[-1] = {**chunks[-1], "usage": usage(total)}
        elif options.get("include_usage") and act != "no_usage":
            chunks = [*chunks, {"choices": [], "usage": usage(total)}]
        return chunks

    def _event(self, text: str) -> bytes:
        end = self.script.newline
        if self.script.decorate and text != "[DONE]":
            lines = json.dumps(json.loads(text), indent=1, ensure_ascii=False).split("\n")
            text = f": a comment{end}event: message{end}id: 1{end}" + "".join(
                f"data: {line}{end}" for line in lines
            )
            return f"{text}{end}".encode()
        return f"data: {text}{end}{end}".encode()


def whole(body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """An answer that is not streamed."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"model": body.get("model"), "choices": [choice], "usage": usage(4)}


def usage(tokens: int) -> dict[str, int]:
    """The engine's count."""
    return {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}


def image_hashes(raw: bytes) -> list[str]:
    """SHA-256 of each image in a request as it reached the server."""
    found = []
    for message in json.loads(raw)["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url":
                data = base64.b64decode(part["image_url"]["url"].partition(",")[2])
                found.append(hashlib.sha256(data).hexdigest())
    return found


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uds", required=True)
    parser.add_argument("--script", type=json.loads, default={})
    args = parser.parse_args()
    known = {f.name for f in fields(Script)}
    script = Script(**{name: value for name, value in args.script.items() if name in known})
    _prepare(script)
    asyncio.run(_serve(args.uds, script))


def _prepare(script: Script) -> None:
    pids = [os.getpid()]
    if script.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if script.children:
        for alone in (False, True):
            child = subprocess.Popen(["sleep", "600"], start_new_session=alone)
            pids.append(child.pid)
    if script.pids:
        Path(script.pids).write_text(" ".join(map(str, pids)))
    if script.say:
        print(f"{script.say} is {os.environ.get(script.say)}", flush=True)
    if script.start == "silent":
        sys.exit(4)
    if script.start == "exit":
        raise OSError("Error no file named model.safetensors found in directory /weights")
    if script.start == "hang":
        time.sleep(600)


async def _serve(socket: str, script: Script) -> None:
    async with Server(socket, script):
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
