"""An engine without a model that speaks OpenAI's API on a Unix socket and answers with the question.

python -m hpcbench_example_echo --uds /tmp/echo.sock --name echo
"""

from __future__ import annotations

import argparse
import json
import socketserver
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

OPTIONS = ("answer", "delay_ms")


class Echo:
    """The engine for hpcbench; options `answer` (text instead of the question) and `delay_ms`."""

    api: ClassVar[int] = 1
    generation: ClassVar[frozenset[str]] = frozenset()

    def launch_command(self, spec: Any) -> Any:
        from hpcbench.errors import Problem, UserError
        from hpcbench.plugins import Command, unknown

        wrong = [name for name in spec.options if name not in OPTIONS]
        if wrong:
            raise UserError(*(Problem(unknown("engine option", name, OPTIONS)) for name in wrong))
        argv = [
            sys.executable,
            "-m",
            "hpcbench_example_echo",
            "--uds",
            spec.socket,
            "--name",
            spec.model_name,
        ]
        for name, value in spec.options.items():
            argv += [f"--{name.replace('_', '-')}", str(value)]
        return Command(argv)


def answer_to(body: Mapping[str, Any], fixed: str | None) -> str:
    """The fixed answer, or the text of the last user message."""
    if fixed is not None:
        return fixed
    content = [one["content"] for one in body["messages"] if one["role"] == "user"][-1]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def completion(body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The answer as OpenAI's object; a word is a token."""
    tokens = len(text.split())
    return {
        "id": "echo", "object": "chat.completion", "created": int(time.time()), "model": body.get("model"),
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1},
    }  # fmt: skip


def chunks(body: Mapping[str, Any], text: str) -> Iterator[bytes]:
    """The answer as server-sent events, word by word."""
    whole = completion(body, text)
    head = {**whole, "object": "chat.completion.chunk"}
    usage = head.pop("usage")
    for piece in [f"{word} " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]:
        choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
        yield _event({**head, "choices": [choice]})
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: ClassVar[str | None] = None
    delay: ClassVar[float] = 0.0
    name: ClassVar[str] = "echo"

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": self.name, "object": "model"}]}
        known = {"/health": {}, "/v1/models": models}
        self._whole(known.get(self.path), 200 if self.path in known else 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            self._whole(None, 404)
            return
        time.sleep(self.delay)
        text = answer_to(body, self.answer)
        if not body.get("stream"):
            self._whole(completion(body, text), 200)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks(body, text):
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _whole(self, data: Any, status: int) -> None:
        text = json.dumps(
            data if data is not None else {"error": {"message": "not found"}}
        ).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        return


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 256


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m hpcbench_example_echo")
    parser.add_argument("--uds", required=True)
    parser.add_argument("--name", default="echo")
    parser.add_argument("--answer")
    parser.add_argument("--delay-ms", type=float, default=0.0)
    given = parser.parse_args(argv)
    _Handler.answer, _Handler.delay, _Handler.name = given.answer, given.delay_ms / 1000, given.name
    Path(given.uds).unlink(missing_ok=True)
    with _Server(given.uds, _Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
