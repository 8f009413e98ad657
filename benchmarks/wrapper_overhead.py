"""Time that the wrapper adds to a request: the same engine, asked directly, through it, and through a peer.

The engine is a small server in a process of its own that streams by the clock (`serve_schedule`), so that it
is no bottleneck at 256 streams. Three ways to it are measured in turns within the same run:

- direct: the floor;
- wrapper: `python -m hpcbench.wrapper` on a Unix socket, as the worker starts it;
- peer: the same hop as most people write it: FastAPI with httpx, or with aiohttp where httpx is missing.

TTFT is from sending the request to the first byte of the answer's body, in the client. "added" is the
difference of the quantiles to those of the direct way. CPU is that of the hop's process, from
/proc/PID/stat, divided by the chunks it passed on. Client and engine run on one core, the hop on another.

Then hpcbench's own client asks the engine in three ways, again in turns: on the engine's socket, as if there
were no wrapper; by `route: direct`; by `route: proxied`. A pair is one block of requests each way. The ratio
of rates to that of the first way comes with a bootstrap interval over the pairs; the difference of the median
TTFT of two blocks is that of the median pair, with its interval.

    python benchmarks/wrapper_overhead.py [--rounds 3] [--quick] [--no-peer] [--pairs 24] [--only-routes]
    python benchmarks/wrapper_overhead.py --only-routes --streams 256 --pairs 80       (8 minutes)
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from pairs import bootstrap, median_interval

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpcbench.inference.client import Client  # noqa: E402
from hpcbench.inference.client_health import Health  # noqa: E402
from hpcbench.inference.direct import IDLE_SECONDS  # noqa: E402
from hpcbench.inference.load_driver import drive as drive_client  # noqa: E402
from hpcbench.plugins import API, Command, EngineSpec  # noqa: E402
from hpcbench.schema import records  # noqa: E402
from tests.unit.wrapper.running import KEY, Wrapper, install_scripted  # noqa: E402

GAP = 0.04
"""Seconds between chunks: 25 tokens a second and stream."""
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
LAST = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)


@dataclass(frozen=True)
class Case:
    """One load."""

    name: str
    body: int
    """Bytes of a request."""
    streams: int
    """At a time."""
    each: int
    """Streams one after another, per round."""
    chunks: int
    """Chunks of one stream."""
    gap: float
    """Seconds between them."""
    goal: str = ""


CASES = (
    Case("one stream, 200 B", 200, 1, 200, 20, 0, "TTFT +1 / +2 ms"),
    Case("one stream, 400 KB", 400_000, 1, 100, 20, 0, "TTFT +2 / +4 ms"),
    Case("256 streams, 25 chunks/s each", 200, 256, 2, 75, GAP, "TTFT +2 / +10 ms, 60 us a chunk"),
    Case("512 streams, 12 chunks/s each", 200, 512, 1, 36, 2 * GAP, "no error"),
)


ROUTES = (
    Case("1 at a time, 20 chunks in 40 ms", 200, 1, 24, 20, 0.002, "direct ÷ engine 0.995"),
    Case("32 at a time, 20 chunks in 200 ms", 200, 32, 4, 20, 0.01, "direct ÷ engine 0.995"),
    Case("256 streams, 25 chunks/s each", 200, 256, 1, 25, GAP, "direct adds 0.05 ms to TTFT p50"),
    Case("1,024 streams, 4 chunks/s each", 200, 1024, 1, 12, 0.25, "no error"),
)
"""Loads for the client's routes."""


@dataclass
class Found:
    """Result of one way."""

    ttft: list[float] = field(default_factory=list)
    """Milliseconds."""
    whole: list[float] = field(default_factory=list)
    """Milliseconds from sending to the end."""
    errors: int = 0
    cpu: float = 0.0
    """Seconds of the hop's process."""
    client_cpu: float = 0.0
    """Seconds of the client."""
    chunks: int = 0


def main() -> None:
    """Measure and print; as a child process, be the engine or the peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, no 512 streams")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument(
        "--pairs", type=int, default=24, help="of blocks, for the routes (%(default)s)"
    )
    parser.add_argument("--only-routes", action="store_true")
    parser.add_argument(
        "--streams",
        type=int,
        nargs="+",
        default=[case.streams for case in ROUTES],
        help="for the routes",
    )
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine:
        asyncio.run(serve_schedule(args.engine))
    elif args.peer:
        serve_peer(*args.peer)
    else:
        compare(args)


def compare(args: argparse.Namespace) -> None:
    """All cases, all ways."""
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = f"{Path(__file__).parent}:{install_scripted(folder)}"
        wrapper = Wrapper(Path(path))
        stack.callback(wrapper.close)
        engine_pid, engine = asyncio.run(load(wrapper))
        ways = {"direct": (engine, None), "wrapper": (wrapper.socket, wrapper.process.pid)}
        os.sched_setaffinity(0, {cores[0]})
        os.sched_setaffinity(engine_pid, {cores[0]})
        pin(wrapper.process.pid, cores[-1])
        if not args.no_peer and not args.only_routes:
            peer = stack.enter_context(running_peer(folder, engine))
            ways["peer"] = (folder / "peer", peer)
            pin(peer, cores[-1])
        print(f"peer: FastAPI with {'httpx' if has('httpx') else 'aiohttp'}; ", end="")
        print(f"uvloop {'yes' if has('uvloop') else 'no'}, httptools {has('httptools')}")
        for case in () if args.only_routes else CASES[: 3 if args.quick else None]:
            found = asyncio.run(measure(case, ways, 1 if args.quick else args.rounds))
            tell(case, found)
        for case in (case for case in ROUTES if case.streams in args.streams):
            pairs = (
                2 if args.quick else args.pairs if case.streams < 512 else max(2, args.pairs // 4)
            )
            asyncio.run(compare_routes(case, wrapper, engine, pairs))


def tell(case: Case, found: dict[str, Found]) -> None:
    """One table."""
    print(f"\n{case.name}" + (f"   goal: {case.goal}" if case.goal else ""))
    print(
        f"{'way':>8} {'TTFT p50':>9} {'p99':>8} {'added p50':>10} {'p99':>8} {'whole p50':>10}",
        end="",
    )
    print(f" {'us/chunk':>9} {'us/request':>11} {'errors':>7}")
    floor = cuts(found["direct"].ttft)
    for way, one in found.items():
        p50, p99 = cuts(one.ttft)
        cost = one.cpu * 1e6
        print(
            f"{way:>8} {p50:>9.2f} {p99:>8.2f} {p50 - floor[0]:>10.2f} {p99 - floor[1]:>8.2f}",
            end="",
        )
        print(f" {statistics.median(one.whole):>10.1f}", end="")
        print(f" {cost / one.chunks:>9.1f} {cost / len(one.ttft):>11.0f} {one.errors:>7}")
    if "peer" in found and found["peer"].cpu:
        ratio = found["wrapper"].cpu / found["peer"].cpu
        print(f"         CPU of wrapper / peer: {ratio:.2f}")


def cuts(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    found = statistics.quantiles(values, n=100, method="inclusive")
    return found[49], found[98]


async def measure(case: Case, ways: dict[str, Any], rounds: int) -> dict[str, Found]:
    """Some rounds, the ways in turns; the first, shortened, warms up."""
    found = {way: Found() for way in ways}
    for number in range(rounds + 1):
        for way, (path, pid) in ways.items():
            one = Found() if number == 0 else found[way]
            before = cpu_seconds(pid) if pid else 0.0
            await drive(case, path, one, each=1 if number == 0 else case.each)
            one.cpu += (cpu_seconds(pid) - before) if pid else 0.0
    return found


async def drive(case: Case, path: Path, found: Found, each: int) -> None:
    """`case.streams` clients, started over the time of one stream."""
    filler = b"x" * max(0, case.body - 60)
    body = b'{"stream":true,"chunks":%d,"gap":%.4f,"pad":"%s"}' % (case.chunks, case.gap, filler)
    connector = aiohttp.UnixConnector(str(path), limit=0)
    headers = {"X-API-Key": KEY, "Content-Type": "application/json"}
    expected = len(EVENT) * case.chunks + len(LAST)
    async with aiohttp.ClientSession("http://w", connector=connector, headers=headers) as session:

        async def client() -> None:
            await asyncio.sleep(random.uniform(0, case.chunks * case.gap))
            for _ in range(each):
                await one(session, body, expected, found)

        await asyncio.gather(*(client() for _ in range(case.streams)))
    found.chunks += case.streams * each * case.chunks


async def one(session: aiohttp.ClientSession, body: bytes, expected: int, found: Found) -> None:
    """One stream, timed."""
    begin, first, size = time.perf_counter(), 0.0, 0
    try:
        async with session.post("/v1/chat/completions", data=body) as answer:
            async for block in answer.content.iter_any():
                first = first or time.perf_counter()
                size += len(block)
        if answer.status != 200 or size != expected:
            raise aiohttp.ClientError(f"{answer.status}, {size} bytes of {expected}")
    except (aiohttp.ClientError, OSError):
        found.errors += 1
        return
    found.ttft.append((first - begin) * 1e3)
    found.whole.append((time.perf_counter() - begin) * 1e3)


async def load(wrapper: Wrapper) -> tuple[int, Path]:
    """Have the wrapper start the engine; returns its pid and socket."""
    connector = aiohttp.UnixConnector(str(wrapper.socket))
    async with aiohttp.ClientSession(
        "http://w", connector=connector, headers={"X-API-Key": KEY}
    ) as session:
        ask = {**wrapper.body(), "engine": "wrapper_overhead:ScheduledEngine"}
        await session.post("/v1/model/load", json=ask)
        while True:
            status = await (await session.get("/status")).json()
            if status["state"] == "ready":
                [engine] = (wrapper.folder / "e").glob("*/s")
                return status["pid"], engine
            assert status["state"] == "loading", status
            await asyncio.sleep(0.05)


async def compare_routes(case: Case, wrapper: Wrapper, engine: Path, pairs: int) -> None:
    """The product's client, three ways in turns; prints one table."""
    async with (
        Client(str(engine), "", "m") as bare,
        wrapper.client() as direct,
        wrapper.client() as proxied,
    ):
        bare._connections._idle_seconds = IDLE_SECONDS  # as engines close idle connections
        ways = {"engine": bare, "direct": direct, "proxied": proxied}
        assert await direct.take("direct") == "direct"
        found = {way: Found() for way in ways}
        walls: dict[str, list[float]] = {way: [] for way in ways}
        late: dict[str, Health] = {way: Health() for way in ways}
        firsts: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(-1, pairs):
            for way in (list(ways) * 2)[number % 3 :][:3]:
                one, lags = (Found(), Health()) if number < 0 else (found[way], late[way])
                before, begin = cpu_seconds(wrapper.process.pid), time.perf_counter()
                await block(case, ways[way], one, lags)
                if number >= 0:
                    walls[way].append(time.perf_counter() - begin)
                    firsts[way].append(statistics.median(one.ttft[-case.streams * case.each :]))
                    one.cpu += cpu_seconds(wrapper.process.pid) - before
    shown = f"goal: {case.goal}; {pairs} pairs, load {os.getloadavg()[0]:.1f}"
    print(f"\n{case.name}   {shown}")
    print(
        f"{'way':>8} {'rate ÷ engine':>22} {'TTFT p50':>9} {'p99':>8} {'added p50':>10} {'p99':>8} "
        f"{'whole p50':>10} {'p99':>8} {'lag p99':>8} {'us/chunk: client':>17} {'wrapper':>8} {'errors':>7}"
    )
    floor = cuts(found["engine"].ttft)
    for way, one in found.items():
        (p50, p99), (whole, tail) = cuts(one.ttft), cuts(one.whole)
        ratio = sum(walls["engine"]) / sum(walls[way])
        low, high = bootstrap(walls["engine"], walls[way])
        print(
            f"{way:>8} {f'{ratio:.4f} ({low:.4f}-{high:.4f})':>22} {p50:>9.2f} {p99:>8.2f} "
            f"{p50 - floor[0]:>10.3f} {p99 - floor[1]:>8.2f} {whole:>10.1f} {tail:>8.1f} "
            f"{late[way].lag_ms(0.99):>8.2f} {one.client_cpu / one.chunks * 1e6:>17.1f} "
            f"{one.cpu / one.chunks * 1e6:>8.1f} {one.errors:>7}",
            flush=True,
        )
    for way in ("direct", "proxied"):
        added = [a - b for a, b in zip(firsts[way], firsts["engine"], strict=True)]
        middle, least, most = median_interval(added)
        print(
            f"{way:>8}: TTFT p50 of a block is {middle:+.3f} ms ({least:+.3f} to {most:+.3f}) later"
        )


async def block(case: Case, client: Client, found: Found, health: Health) -> None:
    """`case.streams` at a time, `case.each` one after another, as a worker asks."""
    fields = {"chunks": case.chunks, "gap": case.gap}
    count = case.streams * case.each
    messages = (records.Message("user", "Read."),)
    asked = (records.Request(str(n), messages, fields, 120) for n in range(count))
    spread = case.chunks * case.gap / count  # many streams begin over the time of one
    due = None if case.streams < 256 else (n * spread for n in range(count))
    cpu = time.process_time()
    driving = drive_client(
        client, asked, case.streams, asyncio.Event(), arrivals=due, health=health
    )
    async for one in driving:
        times = one.times
        if one.outcome != "ok" or one.tries != 1 or len(times.chunks) != case.chunks:
            found.errors += 1
            continue
        found.ttft.append((times.chunks[0] - times.send) / 1e6)
        found.whole.append((times.done - times.send) / 1e6)
    found.client_cpu += time.process_time() - cpu
    found.chunks += count * case.chunks


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pin(pid: int, core: int) -> None:
    """All threads of a process to one core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def has(package: str) -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec(package) is not None


# --- the engine ------------------------------------------------------------------------------------


class ScheduledEngine:
    """The plugin by which the wrapper starts it."""

    api: ClassVar[int] = API

    def launch_command(self, spec: EngineSpec) -> Command:
        return Command([sys.executable, __file__, "--engine", spec.socket])


class Schedule(asyncio.Protocol):
    """HTTP enough for a benchmark: a stream of `chunks` chunks, `gap` seconds apart."""

    HEAD = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    DONE = b"%x\r\n%s\r\n0\r\n\r\n" % (len(LAST), LAST)
    HEALTH = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    def connection_made(self, transport: Any) -> None:
        self.transport, self.seen, self.loop = transport, bytearray(), asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.seen += data
        end = self.seen.find(b"\r\n\r\n")
        if end < 0:
            return
        if self.seen.startswith(b"GET"):
            self.transport.write(self.HEALTH)
            self.seen.clear()
            return
        head = bytes(self.seen[:end]).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        if len(self.seen) < end + 4 + length:
            return
        body = bytes(self.seen[end + 4 : end + 100])
        self.seen.clear()
        chunks = int(body.split(b'"chunks":')[1].split(b",")[0])
        gap = float(body.split(b'"gap":')[1].split(b",")[0])
        self.transport.write(self.HEAD)
        if gap:
            self.next(chunks, gap, self.loop.time())
        else:
            self.transport.write(CHUNK * chunks + self.DONE)

    def next(self, left: int, gap: float, due: float) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(CHUNK if left > 1 else CHUNK + self.DONE)
        if left > 1:
            self.loop.call_at(due + gap, self.next, left - 1, gap, due + gap)


async def serve_schedule(path: str) -> None:
    """Until killed."""
    server = await asyncio.get_running_loop().create_unix_server(Schedule, path, backlog=2048)
    await server.serve_forever()


# --- the peer --------------------------------------------------------------------------------------


@contextlib.contextmanager
def running_peer(folder: Path, engine: Path) -> Iterator[int]:
    """The peer as a process; gives its pid."""
    argv = [sys.executable, __file__, "--peer", str(folder / "peer"), str(engine)]
    process = subprocess.Popen(argv)
    try:
        while not (folder / "peer").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def serve_peer(path: str, engine: str) -> None:
    """A key, a stream passed on: FastAPI's usual way."""
    import uvicorn

    app = FastAPI()
    passing = passing_httpx(engine) if has("httpx") else passing_aiohttp(engine)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> StreamingResponse:
        if request.headers.get("x-api-key") != KEY:
            raise HTTPException(401)
        return StreamingResponse(passing(await request.body()), media_type="text/event-stream")

    uvicorn.run(app, uds=path, log_level="warning", access_log=False, backlog=2048)


def passing_httpx(engine: str) -> Any:
    """Gives a function that asks the engine and yields its answer."""
    import httpx

    transport = httpx.AsyncHTTPTransport(uds=engine, limits=httpx.Limits(max_connections=None))
    client = httpx.AsyncClient(transport=transport, timeout=None)

    async def passed(body: bytes) -> Any:
        async with client.stream("POST", "http://e/v1/chat/completions", content=body) as answer:
            async for block in answer.aiter_raw():
                yield block

    return passed


def passing_aiohttp(engine: str) -> Any:
    """The same with aiohttp."""
    sessions: list[aiohttp.ClientSession] = []

    async def passed(body: bytes) -> Any:
        if not sessions:
            connector = aiohttp.UnixConnector(engine, limit=0)
            sessions.append(aiohttp.ClientSession(connector=connector))
        async with sessions[0].post("http://e/v1/chat/completions", data=body) as answer:
            async for block in answer.content.iter_any():
                yield block

    return passed


if __name__ == "__main__":
    main()
