"""The echo server as a client meets it: over a Unix socket."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hpcbench_example_echo import Server, answer_to, chunks, completion, wrong_value

CONTENT = [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "text", "text": "a  b"}]
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": CONTENT}],
}
STREAM = {**BODY, "stream": True, "stream_options": {"include_usage": True}}


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(self.path))

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body)
        self.request(method, path, data)
        answer = self.getresponse()
        return answer.status, answer.read()


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's path has at most 107 bytes
        yield Path(folder) / "s"


@contextmanager
def serving(place: Path, **settings: Any) -> Iterator[Connection]:
    with Server(place, **settings) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        client = Connection(place)
        yield client
        client.close()
        server.shutdown()


def events(raw: bytes) -> list[Any]:
    lines = [one.removeprefix(b"data: ") for one in raw.split(b"\n\n") if one]
    assert lines[-1] == b"[DONE]"
    return [json.loads(one) for one in lines[:-1]]


def reported(parts: list[Any]) -> str:
    return "".join(one["choices"][0]["delta"].get("content", "") for one in parts if one["choices"])


def test_the_question_is_the_answer_unless_one_is_fixed() -> None:
    assert answer_to(BODY) == "a  b"
    assert answer_to(BODY, "yes") == "yes"
    assert answer_to({"messages": [{"role": "user", "content": "x"}]}) == "x"
    with pytest.raises(ValueError, match="no user message"):
        answer_to({"messages": [{"role": "system", "content": "x"}]})


@pytest.mark.parametrize("text", ["a  b", "", " ", "one\ntwo three ", "12,50 €", "\ud83d alone"])
def test_the_stream_says_what_the_whole_says(text: str) -> None:
    parts = events(b"".join(chunks(STREAM, text)))
    whole = completion(STREAM, text)
    assert reported(parts) == whole["choices"][0]["message"]["content"]
    assert parts[-1]["usage"] == whole["usage"]
    assert parts[-2]["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in events(b"".join(chunks(BODY, text)))[-1]


def test_requests_follow_each_other_on_one_connection(place: Path) -> None:
    with serving(place, name="mine") as client:
        assert client.ask("GET", "/health")[0] == 200
        held = client.sock
        assert json.loads(client.ask("GET", "/v1/models")[1])["data"][0]["id"] == "mine"
        answer = json.loads(client.ask("POST", "/v1/chat/completions", BODY)[1])
        assert answer["choices"][0]["message"]["content"] == "a  b"
        assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
        assert reported(events(client.ask("POST", "/v1/chat/completions", STREAM)[1])) == "a  b"
        chunked = iter([json.dumps(BODY).encode()[:20], json.dumps(BODY).encode()[20:]])
        client.request("POST", "/v1/chat/completions", chunked, encode_chunked=True)
        assert client.getresponse().read().count(b"a  b") == 1
        assert client.sock is held


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b"{", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/chat/completions", b"\xff", 400),
        ("/v1/chat/completions", b"", 400),
        ("/v1/chat/completions", b"[" * 100_000, 400),
        ("/v1/chat/completions", {"messages": "none"}, 400),
        ("/v1/completions", BODY, 404),
    ],
)
def test_a_request_of_no_use_is_refused_in_words(
    place: Path, path: str, body: Any, status: int
) -> None:
    with serving(place) as client:
        code, answer = client.ask("POST", path, body)
        assert code == status
        assert json.loads(answer)["error"]["message"]
        assert client.ask("GET", "/health")[0] == 200


def test_an_old_client_reads_until_the_connection_ends(place: Path) -> None:
    data = json.dumps(STREAM).encode()
    with serving(place, answer="42"), socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(20)
        raw.connect(str(place))
        raw.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(data))
        raw.sendall(data)
        with raw.makefile("rb") as file:
            head, _, rest = file.read().partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert reported(events(rest)) == "42"


def test_many_ask_at_once_and_none_waits_for_another(place: Path) -> None:
    with serving(place, delay_ms=200):
        begin = time.monotonic()
        with ThreadPoolExecutor(64) as pool:
            ask = ("POST", "/v1/chat/completions", STREAM)
            answers = [pool.submit(Connection(place).ask, *ask) for _ in range(64)]
        assert {reported(events(one.result()[1])) for one in answers} == {"a  b"}
        assert 0.2 <= time.monotonic() - begin < 0.2 * 32


def test_values_of_no_use_are_reported() -> None:
    assert wrong_value({}) is wrong_value({"answer": "-x", "delay_ms": 1.5}) is None
    assert wrong_value({"answer": ["a"]}) == "engine option 'answer' is a text"
    for delay in (-1, float("nan"), "5", True):
        assert "delay_ms" in str(wrong_value({"delay_ms": delay}))


def test_the_process_serves_and_takes_its_socket_away(place: Path) -> None:
    argv = [sys.executable, "-m", "hpcbench_example_echo", "--uds", str(place), "--answer=-x y"]
    for _ in range(2):
        with subprocess.Popen(argv) as process:
            deadline = time.monotonic() + 20
            while not place.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.05)
            client = Connection(place)
            answer = client.ask("POST", "/v1/chat/completions", BODY)[1]
            assert json.loads(answer)["choices"][0]["message"]["content"] == "-x y"
            client.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        assert not place.exists()


def test_a_socket_left_behind_is_replaced_and_a_file_is_not(place: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(place))
    left.close()
    with serving(place) as client:
        assert client.ask("GET", "/health")[0] == 200
    place.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        Server(place)
    assert place.read_text() == "mine"
