"""CPU and disk of an agent's turn, beside Inspect with the same engine and tool.

The engine is a scripted one that answers at once; the tool is the calculator. `--inspect` names a Python that
has inspect_ai and openai: the same conversations then run there, too.

`--crash` kills each in the middle, lets it go on as its own manual says, and counts the turns that the engine
is asked again: those were lost. The engine then takes 50 ms for a reply.

    python benchmarks/agents.py [--samples 200] [--turns 8] [--runs 5] [--inspect PYTHON] [--crash]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import resource
import signal
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
    parser.add_argument("--runs", type=int, default=1, help="runs of each, in turns")
    parser.add_argument("--inspect", help="a Python that has inspect_ai")
    parser.add_argument("--crash", action="store_true", help="kill each in the middle")
    parser.add_argument("--be", choices=["engine", "hpcbench"], help=argparse.SUPPRESS)
    parser.add_argument("--at", default="", help=argparse.SUPPRESS)
    parser.add_argument("--log", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be == "engine":
        asyncio.run(serve(given.at, given.turns, given.log))
    elif given.be == "hpcbench":
        asyncio.run(run_hpcbench(Path(given.at), given.samples, given.turns))
    elif given.crash:
        crash(given.samples, given.turns, given.inspect)
    else:
        compare(given.samples, given.turns, given.inspect, given.runs)


def compare(samples: int, turns: int, inspect: str | None, runs: int) -> None:
    """Run both in turns, so that other work on the machine meets both, and print."""
    from hpcbench.statistics import mean_interval

    ours, theirs = list[float](), list[float]()
    print(f"{samples} trajectories of {turns} turns, {AT_ONCE} at once")
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            folder = Path(name)
            with engine(str(folder / "engine.sock"), turns):
                found = asyncio.run(run_hpcbench(folder, samples, turns))
            ours.append(samples / found["seconds"])
            whole = samples * turns / 1e3
            print(f"load {os.getloadavg()[0]:.1f}")
            print(
                f"hpcbench  {ours[-1]:7.1f} samples/s  {found['cpu'] / whole:.2f} ms of CPU a turn"
            )
            print(f"          {found['tools'] / whole:.2f} ms of CPU a turn in processes of tools")
            print(f"          {found['syncs'] / whole:.2f} ms a turn of waiting for the disk")
            print(f"          memory grew by {found['grown'] / 1024:.0f} MiB")
            if inspect is None:
                continue
            with engine(str(PORT), turns):
                done = subprocess.run(
                    of_inspect(inspect, name, samples), capture_output=True, text=True, check=False
                )
            if done.returncode:
                sys.exit(done.stderr[-2000:])
            seconds, cpu, seen = map(float, done.stdout.split()[-3:])
            # Inspect's log has the last reply twice; it counts as a turn here, in Inspect's favour.
            theirs.append(seen / turns / seconds)
            print(f"Inspect   {theirs[-1]:7.1f} samples/s  {1e3 * cpu / seen:.2f} ms of CPU a turn")
            print(f"ratio     {ours[-1] / theirs[-1]:.1f} × the samples/s of Inspect", flush=True)
    if runs > 1:
        ratios = [one / other for one, other in zip(ours, theirs, strict=False)]
        for what, values in (("hpcbench", ours), ("Inspect", theirs), ("ratio", ratios)):
            if values:
                middle = mean_interval(
                    [math.log(one) for one in values]
                )  # a ratio is never negative
                ends = (middle.estimate, middle.low, middle.high)
                mean, low, high = (math.nan if one is None else math.exp(one) for one in ends)
                print(f"{what}: {mean:.1f} [{low:.1f}, {high:.1f}], geometric, {len(values)} runs")


def crash(samples: int, turns: int, inspect: str | None) -> None:
    """Kill each in the middle, and count what the engine is asked twice."""
    for kit in ("hpcbench", "Inspect") if inspect is not None else ("hpcbench",):
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            log = Path(name) / "replies"
            at = str(Path(name) / "engine.sock") if kit == "hpcbench" else str(PORT)
            words = ["--samples", str(samples), "--turns", str(turns), "--at", name]
            command = [sys.executable, __file__, "--be", "hpcbench", *words]
            if inspect is not None and kit != "hpcbench":
                command = of_inspect(inspect, name, samples)
            with engine(at, turns, log):
                with subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, start_new_session=True
                ) as first:
                    while log.read_bytes().count(b"\n") < samples * turns / 2:
                        assert first.poll() is None, f"{kit} ended early"
                        time.sleep(0.01)
                    os.killpg(first.pid, signal.SIGKILL)
                before = log.read_bytes().count(b"\n")
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            replies = log.read_text().splitlines()
        again = len(replies) - len({*replies})
        print(f"{kit}: killed after {before} replies; {again} turns were lost and asked again")


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
    from hpcbench.worker.trajectories import Served, Trajectories
    from tests.unit.small import resolved, run_task

    agent = Agent.model_validate({"tools": ["calculator"]})
    plan = resolved(run_task("numbers", model={"engine": "remote"}, agent=agent))
    shard = Shard(run_task="numbers", index=0, start=0, stop=samples)
    experiment = Experiment(folder)
    attempts = len([*folder.glob("shards/numbers/*.events.jsonl")])
    taken = claim(experiment, ShardState(shard, attempts, 0, "free", None), Owner.here())
    assert taken is not None
    asked = (
        (
            Sample(f"s{n}", (), {"question": f"question {n}"}, ("42",), f"d{n}"),
            Request(f"s{n}", (Message("user", f"question {n}"),), {"max_tokens": 9}, 60.0),
        )
        for n in range(samples)
        if f"s{n}" not in taken.answered
    )
    known, before = len(taken.answered), _of_children()
    tools = await toolbox_of(agent)
    begin, cpu = time.monotonic(), time.process_time()
    peak, syncs, answered = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0, 0
    async with Client(str(folder / "engine.sock"), "key", "m") as client:
        served = {"": Served(plan.run_tasks[0], client)}
        work = Trajectories(served, tools, ToolTimes(30), folder)
        async for response in work.answers(asked, taken, AT_ONCE, asyncio.Event()):
            taken.record(response)
            if not answered % AT_ONCE:  # a worker does it four times a second
                taken.acknowledge()
            assert response.trajectory is not None
            assert response.trajectory["turns"] == turns, response
            syncs += response.trajectory["sync_seconds"]
            answered += 1
    taken.acknowledge()
    seconds, used = time.monotonic() - begin, time.process_time() - cpu
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    await tools.close()
    of_tools = _of_children() - before
    assert answered == samples - known
    return {"seconds": seconds, "cpu": used, "tools": of_tools, "syncs": syncs, "grown": grown}


def _of_children() -> float:
    """CPU seconds of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def of_inspect(python: str, folder: str, samples: int) -> list[str]:
    """The command that runs the same in Inspect."""
    script = str(Path(__file__).parent / "kits" / "inspect_agents.py")
    url = f"http://127.0.0.1:{PORT}/v1"
    return [python, script, folder, url, str(samples), str(AT_ONCE)]


@contextmanager
def engine(at: str, turns: int, log: Path | None = None) -> Iterator[None]:
    """The scripted engine on a socket or a port, as a process of its own."""
    command = [sys.executable, __file__, "--be", "engine", "--at", at, "--turns", str(turns)]
    if log is not None:
        log.touch()
        command += ["--log", str(log)]
    with subprocess.Popen(command) as process:
        time.sleep(2)
        try:
            yield
        finally:
            process.kill()


async def serve(at: str, turns: int, log: str | None) -> None:
    """Answer chats: a call in each turn but the last one. With a log, slowly, and a line for each reply."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                found = _LENGTH.search(head)
                body = json.loads(await reader.readexactly(int(found[1]))) if found else {}
                messages = body.get("messages", ())
                data = json.dumps(answer(messages, turns)).encode()
                if log:
                    await asyncio.sleep(0.05)
                    note(log, messages)
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


def note(log: str, messages: list[dict[str, Any]]) -> None:
    """Write down which turn of which sample is answered."""
    asked = next(one["content"] for one in messages if one["role"] == "user")
    turn = sum(one["role"] == "assistant" for one in messages)
    with Path(log).open("a") as file:
        file.write(f"{asked if isinstance(asked, str) else asked[0]['text']} {turn}\n")


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
