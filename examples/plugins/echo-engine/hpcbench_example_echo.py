"""An engine without a model that speaks OpenAI's API on a Unix socket and answers with the question.

python -m hpcbench_example_echo --uds /tmp/echo.sock --name echo
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import socketserver
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

OPTIONS = ("answer", "delay_ms")
"""Keys of `engine_options`: the text to answer, and milliseconds to wait before it."""


class Echo:
    """The engine for hpcbench; options `answer` (text instead of the question) and `delay_ms`."""

    api: ClassVar[int] = 1
    generation: ClassVar[frozenset[str]] = frozenset()
    packages: ClassVar[tuple[str, ...]] = ("hpcbench-example-echo-engine",)

    def launch_command(self, spec: Any) -> Any:
        """This very module as a server.

        Raises:
            UserError: an option is not known, or its value is of no use.
        """
        from hpcbench.errors import Problem, UserError, unknown
        from hpcbench.plugins import Command

        wrong = [
            unknown("engine option", name, OPTIONS) for name in spec.options if name not in OPTIONS
        ]
        if problem := wrong_value(spec.options):
            wrong.append(problem)
        if wrong:
            raise UserError(*map(Problem, wrong))
        argv = [sys.executable, "-m", "hpcbench_example_echo"]
        argv += ["--uds", spec.socket, "--name", spec.model_name]
        for name, value in spec.options.items():
            # In one word, so that an answer which begins with a dash is not read as an option.
            argv.append(f"--{name.replace('_', '-')}={value}")
        return Command(argv)


def wrong_value(options: Mapping[str, Any]) -> str | None:
    """Reason why the values of the options are wrong; None if they are right."""
    answer, delay = options.get("answer", ""), options.get("delay_ms", 0)
    if isinstance(answer, bool) or not isinstance(answer, (str, int, float)):
        return "engine option 'answer' is a text"
    if "\0" in str(answer):
        return "engine option 'answer' holds a NUL, which no argument can"
    if isinstance(delay, bool) or not isinstance(delay, (int, float)):
        return "engine option 'delay_ms' is a number"
    if not (math.isfinite(delay) and delay >= 0):
        return "engine option 'delay_ms' is 0 or more"
    return None


def answer_to(body: Mapping[str, Any], fixed: str | None = None) -> str:
    """The fixed answer, or the text of the last user message; its images are passed over.

    Raises:
        ValueError: there is no user message.
    """
    messages = body.get("messages")
    asked = [one for one in _objects(messages) if one.get("role") == "user"]
    if not asked:
        raise ValueError("there is no user message")
    return _text(asked[-1]) if fixed is None else fixed


def completion(body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The answer as OpenAI's object; a word is a token, an image is none."""
    asked = sum(len(_text(one).split()) for one in _objects(body.get("messages")))
    reported = len(text.split())
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    return {
        "id": "echo",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model"),
        "choices": [choice],
        "usage": {
            "prompt_tokens": asked,
            "completion_tokens": reported,
            "total_tokens": asked + reported,
        },
    }


def chunks(body: Mapping[str, Any], text: str) -> Iterator[bytes]:
    """The answer as server-sent events: the role, each word, the end, and the usage if it is asked for."""
    head = {**completion(body, text), "object": "chat.completion.chunk"}
    usage = head.pop("usage")
    *words, last = text.split(" ")
    deltas = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in (*(f"{word} " for word in words), last) if piece]
    for delta in deltas:
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    options = body.get("stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        yield _event({**head, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


class Server(socketserver.ThreadingUnixStreamServer):
    """Serves on a Unix socket, a thread per connection; `serve_forever()` inside a `with`.

    A socket that an ended server left behind is replaced; any other file is not.

    Raises:
        OSError: the socket cannot be made.
    """

    daemon_threads = True
    # A full queue refuses a client at once on a Unix socket: room for all that a worker opens together.
    request_queue_size = 4096

    def __init__(
        self, uds: str | Path, name: str = "echo", answer: str | None = None, delay_ms: float = 0.0
    ) -> None:
        self.path, self.name, self.answer, self.delay = Path(uds), name, answer, delay_ms / 1000
        if self.path.is_socket():
            self.path.unlink()
        super().__init__(str(uds), _Handler)

    def server_close(self) -> None:
        """Stop listening and take the socket away."""
        super().server_close()
        if self.path.is_socket():
            self.path.unlink(missing_ok=True)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is no error; all other faults go to standard error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/health":
            self._whole({})
        elif path == "/v1/models":
            model = {"id": self.server.name, "object": "model", "owned_by": "echo"}
            self._whole({"object": "list", "data": [model]})
        else:
            self._refuse(404, f"there is no {path}")

    def do_POST(self) -> None:
        raw = self._body()  # also of a request that is refused: the next one follows it
        path = self.path.partition("?")[0]
        if path != "/v1/chat/completions":
            self._refuse(404, f"there is no {path}")
            return
        try:
            body = json.loads(raw)
            if not isinstance(body, dict):
                raise ValueError("the body is no JSON object")
            text = answer_to(body, self.server.answer)
        except (ValueError, RecursionError) as error:
            self._refuse(400, str(error))
            return
        time.sleep(self.server.delay)
        if body.get("stream"):
            self._stream(chunks(body, text))
        else:
            self._whole(completion(body, text))

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            length = self.headers.get("Content-Length", "0")
            return self.rfile.read(int(length)) if length.isdecimal() else b""
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            pass
        return b"".join(parts)

    def _stream(self, events: Iterator[bytes]) -> None:
        chunked = self.request_version != "HTTP/1.0"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header(
            *(("Transfer-Encoding", "chunked") if chunked else ("Connection", "close"))
        )
        self.end_headers()
        for event in events:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event) if chunked else event)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _refuse(self, status: int, message: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "code": status}
        self._whole({"error": error}, status)

    def _whole(self, data: Mapping[str, Any], status: int = 200) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self) -> str:
        """There is no address on a Unix socket."""
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """Log no single request: there may be millions."""


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in _objects(content))


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"  # ASCII: a lone surrogate has no bytes


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m hpcbench_example_echo")
    parser.add_argument("--uds", required=True, help="Unix socket to serve on")
    parser.add_argument("--name", default="echo", help="name of the model in /v1/models")
    parser.add_argument("--answer", help="answer this instead of the question")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="wait so long before an answer")
    given = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Server(given.uds, given.name, given.answer, given.delay_ms) as server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.exit(130)


if __name__ == "__main__":
    main()
