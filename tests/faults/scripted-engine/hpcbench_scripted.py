"""A fake engine: it answers every question with a text that follows from it, and misbehaves as a script says.

The script is a JSON file that is read again for every request, so that a test can change it while the engine
runs. Words it knows:

    load_ms, fail_loads (so many starts fail, -1: all), unloadable (models that never load)
    answer_ms ([from, to], by the question)
    poison (questions that end it), pair (two that end it when both are with it), hang (never answered)
    refuse (part of a question: answered with HTTP 500 … of run tasks that fail; see `broken`)
    says (a list of pattern and text: the answer to a question in which the pattern is found, the first one)
    calls (an agent's turns before the answer: each a list of tool and arguments; QUESTION in a text of an
        argument stands for the question, TURN for the number of the turn)
    late_rank_ms (a further rank comes so late), lost_ranks (so many loads: the last rank ends while loading),
    ports_taken (so many loads find their port taken)
    rank_errors (questions at which the last rank writes an error and lives on: the first one ends by it)
    rank_stays (whether a further rank lives on when the first one is gone)
    shared_memory (a file that a further rank makes and maps)
    die_every, deaths (it ends after so many requests, so many times; -1: always), last_words

What it was asked lies in `asked.log` beside the script, a line a question; how often it was started and died
in `starts` and `deaths`.

On several nodes it has a process each: the first answers with what the last one tells it over TCP.

    python -m hpcbench_scripted --uds SOCKET --script FILE --name MODEL [--rank N --nodes N --at HOST:PORT]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import mmap
import os
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")


class Scripted:
    """The engine for hpcbench; option `script`."""

    api: ClassVar[int] = 1
    generation: ClassVar[frozenset[str]] = frozenset()
    packages: ClassVar[tuple[str, ...]] = ("hpcbench-scripted-engine",)
    several_nodes: ClassVar[bool] = True
    memory_share_option: ClassVar[str] = "memory_share"

    def launch_command(self, spec: Any) -> Any:
        """This very module as a server."""
        from hpcbench.plugins import Command

        argv = [sys.executable, "-m", "hpcbench_scripted", "--uds", spec.socket]
        argv += ["--script", spec.options["script"], "--name", spec.model_name]
        argv += ["--memory-share", str(spec.options.get("memory_share", 1))]
        if (rank := getattr(spec, "rank", None)) is not None:
            argv += ["--rank", str(rank.number), "--nodes", str(rank.nodes)]
            argv += ["--at", f"{rank.address}:{rank.port}"]
        return Command(argv)


class Pay:
    """Pays for something."""

    api: ClassVar[int] = 1
    idempotent: ClassVar[bool] = False
    stateless: ClassVar[bool] = True

    class Arguments(BaseModel):
        """Arguments of a payment."""

        bill: str

    def __init__(self, options: dict[str, Any]) -> None:
        self.ledger = options["ledger"]

    def call(self, arguments: Arguments, context: Any) -> str:
        """Have it written into the ledger, which is another process: a tool can write no file."""
        with socket.socket(socket.AF_UNIX) as ledger:
            ledger.connect(self.ledger)
            ledger.sendall(arguments.bill.encode())
            ledger.shutdown(socket.SHUT_WR)
            return ledger.recv(100).decode()


def right_answer(question: str) -> str:
    """Answer to a question."""
    return hashlib.sha256(question.encode()).hexdigest()[:10]


class Server:
    """One engine."""

    def __init__(self, script: Path, name: str) -> None:
        self.path, self.name = script, name
        self.in_flight: set[str] = set()
        self.asked = 0
        self.last: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        """The last rank, which knows the answers."""
        self.one_at_a_time = asyncio.Lock()

    @property
    def script(self) -> dict[str, Any]:
        """Current orders to the engine."""
        found: dict[str, Any] = json.loads(self.path.read_text())
        return found

    def load(self) -> None:
        """Take the time that a load takes, or fail."""
        script = self.script
        starts = self._count("starts")
        time.sleep(script.get("load_ms", 0) / 1000)
        fails = script.get("fail_loads", 0)
        if fails < 0 or starts <= fails or self.name in script.get("unloadable", ()):
            self._end("RuntimeError: the scripted engine does not load")

    async def gather(self, nodes: int, host: str, port: int) -> None:
        """As the first rank: wait for the others, and end with any of them."""
        if self._count("ports") <= self.script.get("ports_taken", 0):
            self._end("OSError: [Errno 98] Address already in use")
        found: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        all_here = asyncio.Event()

        async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found[int(await reader.readline())] = reader, writer
            if len(found) == nodes - 1:
                all_here.set()

        self.listener = await asyncio.start_server(join, host, port)
        await all_here.wait()
        self.last = found[nodes - 1]

    async def follow(self, rank: int, host: str, port: int) -> None:
        """As a further rank: join the first one, and answer it until it is gone."""
        await asyncio.sleep(self.script.get("late_rank_ms", 0) / 1000)
        if self._count("ranks") <= self.script.get("lost_ranks", 0):
            self._end("ValueError: this rank does not load")
        held = self._mapped() if "shared_memory" in self.script else None
        while True:
            try:
                reader, writer = await asyncio.open_connection(host, port)
                break
            except OSError:
                await asyncio.sleep(0.05)
        writer.write(f"{rank}\n".encode())
        while line := await reader.readline():
            question = json.loads(line)
            if question in self.script.get("rank_errors", ()):  # as vLLM's worker does
                print(f"AssertionError: no place for {question}", file=sys.stderr, flush=True)
                writer.write(b"?\n")
            else:
                writer.write(right_answer(question).encode() + b"\n")
        if self.script.get("rank_stays"):
            await asyncio.Event().wait()
        del held
        self._end("RuntimeError: Connection closed by peer")

    def _mapped(self) -> mmap.mmap:
        with Path(self.script["shared_memory"]).open("x+b") as file:
            file.truncate(mmap.PAGESIZE)
            return mmap.mmap(file.fileno(), mmap.PAGESIZE)

    async def _right_answer(self, question: str) -> str:
        if self.last is None:
            return right_answer(question)
        async with self.one_at_a_time:
            reader, writer = self.last
            writer.write(json.dumps(question).encode() + b"\n")
            said = ""
            with contextlib.suppress(ConnectionError):
                said = (await reader.readline()).decode().strip()
        if said == "?":
            self._end(f"KeyError: {question!r}")
        if not said:
            self._end("RuntimeError: Connection closed by peer")
        return said

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = _LENGTH.search(head)
                body = await reader.readexactly(int(found[1])) if found else b""
                status, answer = 200, b"{}"
                if head.startswith(b"POST"):
                    status, answer = await self._answer(json.loads(body))
                writer.write(
                    b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                    % (status, len(answer))
                    + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, body: dict[str, Any]) -> tuple[int, bytes]:
        question = _text(next(one for one in body["messages"] if one["role"] == "user"))
        turn = sum(one["role"] == "assistant" for one in body["messages"])
        script = self.script
        with (self.path.parent / "asked.log").open("a") as log:
            log.write(f"{self.name} {question}\n")
        self.asked += 1
        self.in_flight.add(question)
        self._misbehave(script, question)
        low, high = script.get("answer_ms", (0, 0))
        share = hashlib.sha256(question.encode()).digest()[0] / 255
        await asyncio.sleep((low + (high - low) * share) / 1000)
        if question in script.get("hang", ()):
            await asyncio.sleep(3600)
        self.in_flight.discard(question)
        if script.get("broken") and re.search(script["broken"], f"{self.name} {question}"):
            return 400, json.dumps({"error": {"message": "scripted to refuse this"}}).encode()
        calls = script.get("calls", ())
        text = await self._right_answer(question)
        if turn < len(calls):
            tool, arguments = calls[turn]
            filled = json.dumps(arguments).replace("QUESTION", question).replace("TURN", str(turn))
            text = _called(tool, json.loads(filled))
        said = (text for pattern, text in script.get("says", ()) if re.search(pattern, question))
        text = next(said, text)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
        usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
        whole = {"id": "1", "object": "chat.completion", "created": 1, "model": self.name}
        return 200, json.dumps({**whole, "choices": [choice], "usage": usage}).encode()

    def _misbehave(self, script: dict[str, Any], question: str) -> None:
        if question in script.get("poison", ()):
            self._end(f"ValueError: poisoned by {question}")
        pair = set(script.get("pair", ()))
        if pair and pair <= self.in_flight:
            self._end("ValueError: those two together")
        every = script.get("die_every", 0)
        if every and self.asked >= every:
            allowed = script.get("deaths", -1)
            if allowed < 0 or self._count("deaths") <= allowed:
                self._end(script.get("last_words", "RuntimeError: scripted to end"))

    def _end(self, words: str) -> None:
        print(words, file=sys.stderr, flush=True)
        os._exit(1)

    def _count(self, what: str) -> int:
        """Count one more; every count is a file of its own, so that no two processes get the same."""
        number = 1
        while True:
            try:
                (self.path.parent / f"{what}.{number}").touch(exist_ok=False)
            except FileExistsError:
                number += 1
            else:
                return number


def _called(tool: str, arguments: dict[str, Any]) -> str:
    """A call as text."""
    call = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)


async def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--uds", required=True)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--memory-share", type=float, help="only for the tests to see")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--at", default=":0")
    given = parser.parse_args()
    server = Server(given.script, given.name)
    host, _, port = given.at.rpartition(":")
    if given.rank:
        return await server.follow(given.rank, host, int(port))
    server.load()
    if given.nodes > 1:
        await server.gather(given.nodes, host, int(port))
    listener = await asyncio.start_unix_server(server.serve, given.uds, limit=2**22)
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
