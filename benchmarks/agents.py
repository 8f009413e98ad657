"""CPU and disk of an agent's turn, beside Inspect with the same engine and tool.

The engine is a scripted one that answers at once; the tool is the calculator. `--inspect` names a Python that
has inspect_ai and openai: the same conversations then run there, too.

    python benchmarks/agents.py [--samples 200] [--turns 8] [--inspect PYTHON]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

AT_ONCE = 32
"""Trajectories at once."""

PORT = 18765
"""Port of the engine for Inspect, which speaks no Unix sockets."""

_LENGTH = re.compile(rb"(?i)content-length: *(\d+)")


def main() -> None:
    """Measure and print; or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--inspect", help="a Python that has inspect_ai")
    parser.add_argument("--be", choices=["engine", "inspect"], help=argparse.SUPPRESS)
    parser.add_argument("--at", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be == "engine":
        asyncio.run(serve(given.at, given.turns))
    elif given.be == "inspect":
        run_inspect(given.at, given.samples)
    else:
        compare(given.samples, given.turns, given.inspect)


def compare(samples: int, turns: int, inspect: str | None) -> None:
    """Run both, and print."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        socket = str(folder / "engine.sock")
        with engine(socket, turns):
            found = asyncio.run(run_hpcbench(folder, samples, turns))
        rate, whole = samples / found["seconds"], samples * turns / 1e3
        print(
            f"{samples} trajectories of {turns} turns, {AT_ONCE} at once; load {os.getloadavg()[0]:.1f}"
        )
        print(f"hpcbench  {rate:7.1f} samples/s  {found['cpu'] / whole:.2f} ms of CPU a turn")
        print(f"          {found['tools'] / whole:.2f} ms of CPU a turn in processes of tools")
        print(f"          {found['syncs'] / whole:.2f} ms a turn of waiting for the disk")
        print(f"          memory grew by {found['grown'] / 1024:.0f} MiB")
        if inspect is None:
            return
        with engine(str(PORT), turns):
            command = [
                inspect,
                __file__,
                "--be",
                "inspect",
                "--samples",
                str(samples),
                "--at",
                name,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        seconds, cpu, seen = map(float, done.stdout.split()[-3:])
        # Inspect's log has the last reply twice; it counts as a turn here, in Inspect's favour.
        theirs = seen / turns / seconds
        print(f"Inspect   {theirs:7.1f} samples/s  {1e3 * cpu / seen:.2f} ms of CPU a turn")
        print(f"ratio     {rate / theirs:.1f} × the samples/s of Inspect")


async def run_hpcbench(folder: Path, samples: int, turns: int) -> dict[str, float]:
    """The trajectories of a shard, as a worker runs them."""
    from hpcbench.agents.loop import ToolTimes
    from hpcbench.agents.toolboxes import toolbox_of
    from hpcbench.experiment.claims import Owner, ShardState, claim
    from hpcbench.experiment.layout import Experiment
    from hpcbench.inference.client import Client
    from hpcbench.schema.agent import Agent
    from hpcbench.schema.records import Message, Request, Sample
    from hpcbench.schema.work import Shard
    from hpcbench.worker.trajectories import Trajectories
    from tests.unit.small import resolved, run_task

    agent = Agent.model_validate({"tools": ["calculator"]})
    plan = resolved(run_task("numbers", model={"engine": "remote"}, agent=agent))
    shard = Shard(run_task="numbers", index=0, start=0, stop=samples)
    taken = claim(Experiment(folder), ShardState(shard, 0, 0, "free", None), Owner.here())
    assert taken is not None
    asked = (
        (
            Sample(f"s{n}", (), {"question": f"question {n}"}, ("42",), f"d{n}"),
            Request(f"s{n}", (Message("user", f"question {n}"),), {"max_tokens": 9}, 60.0),
        )
        for n in range(samples)
    )
    tools = await toolbox_of(agent)
    begin, cpu = time.monotonic(), time.process_time()
    peak, syncs, answered = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0, 0
    async with Client(str(folder / "engine.sock"), "key", "m") as client:
        work = Trajectories(plan.run_tasks[0], client, tools, ToolTimes(30), folder)
        async for response in work.answers(asked, taken, AT_ONCE, asyncio.Event()):
            taken.record(response)
            assert response.trajectory is not None
            assert response.trajectory["turns"] == turns, response
            syncs += response.trajectory["sync_seconds"]
            answered += 1
    taken.acknowledge()
    seconds, used = time.monotonic() - begin, time.process_time() - cpu
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    await tools.close()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    of_tools = children.ru_utime + children.ru_stime
    assert answered == samples
    return {"seconds": seconds, "cpu": used, "tools": of_tools, "syncs": syncs, "grown": grown}


def run_inspect(folder: str, samples: int) -> None:
    """The same in Inspect: prints seconds, CPU seconds, replies."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import tool

    @tool
    def calculator() -> Any:
        async def execute(expression: str) -> str:
            """Evaluate an expression.

            Args:
                expression: The expression.
            """
            left, _, right = expression.partition("+")
            return str(int(left) + int(right))

        return execute

    url = f"http://127.0.0.1:{PORT}/v1"
    model = get_model("openai-api/scripted/m", base_url=url, api_key="key")
    data = [Sample(f"question {n}", target="42") for n in range(samples)]
    task = Task(data, [use_tools(calculator()), generate()])
    begin = time.monotonic()
    (log,) = eval(
        task, model, display="none", log_dir=folder, max_connections=AT_ONCE, max_samples=AT_ONCE
    )
    seconds, used = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    assert log.status == "success", log.error
    replies = sum(one.role == "assistant" for sample in log.samples for one in sample.messages)
    print(seconds, used.ru_utime + used.ru_stime, replies)


@contextmanager
def engine(at: str, turns: int) -> Iterator[None]:
    """The scripted engine on a socket or a port, as a process of its own."""
    command = [sys.executable, __file__, "--be", "engine", "--at", at, "--turns", str(turns)]
    with subprocess.Popen(command) as process:
        time.sleep(2)
        try:
            yield
        finally:
            process.kill()


async def serve(at: str, turns: int) -> None:
    """Answer chats: a call in each turn but the last one."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = _LENGTH.search(head)
                body = json.loads(await reader.readexactly(int(found[1]))) if found else {}
                data = json.dumps(answer(body.get("messages", ()), turns)).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    b"content-length: %d\r\n\r\n" % len(data) + data
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    if at.isdigit():
        server = await asyncio.start_server(talk, "127.0.0.1", int(at))
    else:
        server = await asyncio.start_unix_server(talk, at)
    await server.serve_forever()


def answer(messages: list[dict[str, Any]], turns: int) -> dict[str, Any]:
    """The engine's reply to a conversation."""
    turn = sum(one["role"] == "assistant" for one in messages)
    message: dict[str, Any] = {"role": "assistant", "content": "42"}
    if turn < turns - 1:
        call = {"name": "calculator", "arguments": json.dumps({"expression": f"{turn} + 1"})}
        one = {"id": f"c{turn}", "type": "function", "index": 0, "function": call}
        message = {"role": "assistant", "content": "", "tool_calls": [one]}
    reason = "stop" if turn == turns - 1 else "tool_calls"
    return {
        "id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    }  # fmt: skip


if __name__ == "__main__":
    main()
