"""The wrapper's two planes beside each other: the same client, engine and requests over HTTP and over gRPC.

The engine is tests/light_server.py, started by the wrapper; client and wrapper are the product's. Each plane
has a wrapper of its own, as in a run, and they take turns.

- bytes: what leaves the client for each byte of its image, counted by a relay between client and wrapper;
- CPU: of the client's process and the wrapper's for each page of 0.95 MB, one at a time, by the kernel's CPU
  clocks of the two processes, the engine not counted; blocks of ten pages take turns, so that all ways meet
  the same machine;
- added TTFT: the client's stamp of the first text minus the engine's own, both of one clock, with streams of
  25 texts a second; the same for all texts. First each stream begins at another part of the time between two
  texts. Then all begin as they are asked for: texts come in bunches, and the median is that of a queue;
- start: from the fork of a wrapper to its first answer, without gRPC and with it.

The floor beside them is gRPC's library alone: a client that hashes the page and sends it, and a server that
throws it away and answers with messages of the same number and size. It has no engine behind it, so it does a
part of what the wrapper must do. Both use grpc.aio, as the wrapper does for clients other than the worker's,
with the wrapper's options. Its server stamps texts itself.

    python benchmarks/grpc_plane.py [--rounds 5] [--turns 60] [--streams 256] [--only-cpu]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import aiohttp
from pairs import median_interval

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpcbench.inference.client import Client, Protocol  # noqa: E402
from hpcbench.inference.load_driver import drive  # noqa: E402
from hpcbench.open_inference.without_forks import grpc  # noqa: E402
from hpcbench.plugins import API, Command, EngineSpec  # noqa: E402
from hpcbench.schema.records import Message, Request  # noqa: E402
from hpcbench.wrapper.grpc_server import FRAME_BYTES, WINDOW_BYTES  # noqa: E402
from tests.unit.wrapper.running import KEY, Wrapper, install_scripted  # noqa: E402

PAGE = 950_000
"""Bytes of an image."""
BLOCK = 10
"""Pages that one way sends before another one does."""
MESSAGES = 2
"""Messages of an answer to a page: one with the head, one with all texts."""
FIRST, GAP, TOKENS = 0.5, 0.04, 50
PLANES: tuple[Protocol, ...] = ("http", "grpc")


class LightEngine:
    """The engine that answers at once."""

    api: ClassVar[int] = API
    reads_files: ClassVar[bool] = False
    schedule: ClassVar[tuple[str, ...]] = ()

    def launch_command(self, spec: EngineSpec) -> Command:
        argv = [sys.executable, "-m", "tests.light_server", "--uds", spec.socket]
        return Command([*argv, *self.schedule], {"PYTHONPATH": str(ROOT)})


class FileEngine(LightEngine):
    """The same, as an engine that reads images by their path."""

    reads_files = True


class TimedEngine(LightEngine):
    """The engine that answers on a schedule."""

    schedule = ("--first", str(FIRST), "--gap", str(GAP), "--tokens", str(TOKENS))


class SpreadEngine(TimedEngine):
    """The same, with streams that do not go in step."""

    schedule = (*TimedEngine.schedule, "--spread")


def main() -> None:
    """Measure and print, or, as a child, serve the floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=60, help="of blocks of pages (%(default)s)")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--only-cpu", action="store_true", help="of pages")
    parser.add_argument("--serve-floor", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_floor:
        return asyncio.run(serve_floor(args.serve_floor))
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if not args.only_cpu:
        with wrapped("LightEngine") as ways:
            bytes_each(ways)
    for engine, what in (("LightEngine", "data URIs"), ("FileEngine", "files where they can")):
        with wrapped(engine) as ways:
            print(f"an engine that takes {what}:")
            asyncio.run(cpu_each(ways, args.turns))
    if not args.only_cpu:
        for engine, counts in (
            ("SpreadEngine", {1, 64, args.streams}),
            ("TimedEngine", {args.streams}),
        ):
            with wrapped(engine) as ways:
                print("streams that begin", "apart" if engine == "SpreadEngine" else "in bunches")
                for streams in sorted(counts):
                    lateness(ways, args.rounds, streams)
        starts(args.rounds)
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}")
    return None


class Floor:
    """gRPC alone: a server in a process of its own, and its client in this one."""

    OPTIONS: ClassVar[list[tuple[str, int]]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.http2.max_frame_size", FRAME_BYTES),
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        ("grpc.use_local_subchannel_pool", 1),
    ]

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "f"
        argv = [sys.executable, __file__, "--serve-floor", str(self.socket)]
        self.process = subprocess.Popen(argv)
        while not self.socket.exists():
            assert self.process.poll() is None
            time.sleep(0.05)

    def channel(self) -> grpc.aio.Channel:
        """A channel to the server; the caller closes it."""
        return grpc.aio.insecure_channel(f"unix:{self.socket}", self.OPTIONS)

    async def pages(self, channel: grpc.aio.Channel, count: int) -> None:
        """Hash and send pages, one at a time."""
        page = os.urandom(PAGE)
        ask = channel.unary_stream("/floor/Pages")
        for _ in range(count):
            hashlib.sha256(page).hexdigest()
            assert len([one async for one in ask(page)]) == MESSAGES

    async def texts(self, streams: int) -> list[list[int]]:
        """How much later than the server each text came, nanoseconds, by stream."""
        async with self.channel() as channel:
            ask = channel.unary_stream("/floor/Texts")

            async def one() -> list[int]:
                late = []
                async for message in ask(b"Read."):
                    late.append(time.monotonic_ns() - int(message[:20]))
                return late

            return await asyncio.gather(*(one() for _ in range(streams)))


async def serve_floor(socket: Path) -> None:
    """Serve until killed."""

    async def take_page(page: bytes, context: grpc.aio.ServicerContext) -> None:
        for _ in range(MESSAGES):
            await context.write(bytes(300))

    async def give_texts(ask: bytes, context: grpc.aio.ServicerContext) -> None:
        due = time.monotonic() + FIRST
        for _ in range(TOKENS):
            await asyncio.sleep(due - time.monotonic())
            due += GAP
            await context.write(b"%020d" % time.monotonic_ns() + bytes(300))

    server = grpc.aio.server(options=Floor.OPTIONS)
    handlers = {
        "Pages": grpc.unary_stream_rpc_method_handler(take_page),
        "Texts": grpc.unary_stream_rpc_method_handler(give_texts),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("floor", handlers),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


@contextlib.contextmanager
def floor() -> Iterator[Floor]:
    """The floor, while it is needed."""
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        found = Floor(Path(folder))
        try:
            yield found
        finally:
            found.process.kill()
            found.process.wait()


@dataclass(frozen=True)
class Way:
    """One plane: its wrapper, and the sockets."""

    plane: Protocol
    wrapper: Wrapper
    engine: Path
    socket: str
    """Where requests go."""


@contextlib.contextmanager
def wrapped(engine: str) -> Iterator[list[Way]]:
    """A wrapper with an engine for each plane; the one for HTTP has no gRPC."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hb")))
        paths = Path(f"{Path(__file__).parent}:{install_scripted(folder)}")
        ways = []
        for plane in PLANES:
            grpc_socket = str(folder / "g")
            wrapper = Wrapper(paths, *(["--worker-socket", grpc_socket] if plane == "grpc" else []))
            stack.callback(wrapper.close)

            async def load(wrapper: Wrapper = wrapper) -> None:
                async with wrapper.control() as control:
                    await control.loaded({**wrapper.body(), "engine": f"grpc_plane:{engine}"})

            asyncio.run(load())
            [socket] = (wrapper.folder / "e").glob("*/s")
            where = grpc_socket if plane == "grpc" else str(wrapper.socket)
            ways.append(Way(plane, wrapper, socket, where))
        yield ways


@contextlib.asynccontextmanager
async def client_of(way: Way, socket: str = "") -> AsyncIterator[Client]:
    """A client by one plane; `socket`: another way in."""
    where = socket or way.socket
    async with Client(where, KEY, "scripted", grpc_socket=where) as client:
        client.protocol = way.plane
        yield client


async def ask(
    client: Client, requests: Iterable[Request], streams: int = 1
) -> dict[str, list[int]]:
    """Seed → arrival of each text."""
    seen = {}
    async for response in drive(client, iter(requests), streams, asyncio.Event()):
        assert response.outcome == "ok", response.error
        seen[response.sample_id] = list(response.times.chunks)
    return seen


def pages(count: int) -> list[Request]:
    """Questions about a page."""
    page = b"\xff\xd8\xff" + os.urandom(PAGE - 3)
    message = Message("user", "Read.", (page,))
    return [Request(str(number), (message,), {"seed": number}, 60) for number in range(count)]


def bytes_each(ways: list[Way]) -> None:
    """Bytes that leave the client for each byte of the image."""
    for way in ways:
        sent = asyncio.run(through_relay(way, 10))
        print(f"{way.plane}: {sent / 10 / PAGE:.4f} bytes sent for each byte of the image")


async def through_relay(way: Way, count: int) -> int:
    """Bytes of `count` pages on their way to the wrapper."""
    sent = 0

    async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_unix_connection(way.socket)

        async def copy(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> int:
            size = 0
            while data := await one.read(2**18):
                size += len(data)
                other.write(data)
                await other.drain()
            other.close()
            return size

        nonlocal sent
        sizes = await asyncio.gather(copy(reader, forth), copy(back, writer))
        sent += sizes[0]

    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        path = f"{folder}/r"
        server = await asyncio.start_unix_server(passing, path)
        async with client_of(way, path) as client:
            await ask(client, pages(count))
        await asyncio.sleep(0.2)
        server.close()
    return sent


async def cpu_each(ways: list[Way], turns: int) -> None:
    """CPU of client and wrapper for a page."""
    requests = pages(BLOCK)
    async with contextlib.AsyncExitStack() as stack:
        alone = stack.enter_context(floor())
        channel = await stack.enter_async_context(alone.channel())
        hops = {way.plane: way.wrapper.process.pid for way in ways} | {"floor": alone.process.pid}
        asking: dict[str, Callable[[], Awaitable[object]]] = {
            way.plane: partial(ask, await stack.enter_async_context(client_of(way)), requests)
            for way in ways
        }
        asking["floor"] = partial(alone.pages, channel, BLOCK)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in hops}
        for number in range(-3, turns):  # the first ones warm up
            for name in (list(hops) * 2)[number % 3 :][:3]:
                before = [cpu(os.getpid()), cpu(hops[name])]
                await asking[name]()
                client, hop = cpu(os.getpid()) - before[0], cpu(hops[name]) - before[1]
                if number >= 0:
                    found[name].append((client / BLOCK * 1e3, hop / BLOCK * 1e3))
    for name, rows in found.items():
        client, hop = (statistics.median(one) for one in zip(*rows, strict=True))
        hopped = "the wrapper" if name != "floor" else "the server"
        print(f"{name}: a page costs {client:.2f} ms of the client, {hop:.2f} ms of {hopped}")
    for name in ("grpc", "floor"):
        ratios = [
            sum(ours) / sum(theirs) for ours, theirs in zip(found[name], found["http"], strict=True)
        ]
        middle, least, most = median_interval(ratios)
        print(f"CPU of {name} / http: {middle:.2f} ({least:.2f} to {most:.2f} over {turns} turns)")


def cpu(pid: int) -> float:
    """Seconds that a process's threads ran so far, those that ended too: clock_getcpuclockid's clock."""
    return time.clock_gettime(~pid << 3 | 2)


def lateness(ways: list[Way], rounds: int, streams: int) -> None:
    """The client's stamps minus the engine's."""
    first: dict[str, list[float]] = {plane: [] for plane in PLANES}
    every: dict[str, list[float]] = {plane: [] for plane in PLANES}
    costs: dict[str, list[float]] = {plane: [] for plane in PLANES}
    differences = []
    alone: list[list[int]] = []
    floor_costs: list[float] = []
    message = Message("user", "Read.")
    for number in range(rounds):
        with floor() as server:
            before = cpu(os.getpid()), cpu(server.process.pid)
            alone += asyncio.run(server.texts(streams))
            floor_costs.append(sum(each_text(before, server.process.pid, streams)))
        medians = {}
        for way in ways[:: -1 if number % 2 else 1]:
            requests = [Request(str(n), (message,), {"seed": n}, 60) for n in range(streams)]
            before = cpu(os.getpid()), cpu(way.wrapper.process.pid)
            seen = asyncio.run(asked(way, requests, streams))
            costs[way.plane] += each_text(before, way.wrapper.process.pid, streams)
            truth = asyncio.run(true_times(way.engine))
            late = []
            for seed, times in seen.items():
                pairs = zip(times, truth[seed]["written"], strict=True)
                late.append([(ours - theirs) / 1e6 for ours, theirs in pairs])
            first[way.plane] += [one[0] for one in late]
            every[way.plane] += [each for one in late for each in one]
            medians[way.plane] = statistics.median(one[0] for one in late)
        differences.append(medians["grpc"] - medians["http"])
    for plane in PLANES:
        client, hop = costs[plane][::2], costs[plane][1::2]
        print(
            f"{streams} streams, {plane}: TTFT later than the engine's by {quantiles(first[plane])} ms, "
            f"all texts by {quantiles(every[plane])} ms (p50/p99); CPU a text "
            f"{statistics.median(client):.0f} us client, {statistics.median(hop):.0f} us wrapper"
        )
    late = [[each / 1e6 for each in one] for one in alone]
    print(
        f"{streams} streams, floor: first text later than the server's by "
        f"{quantiles([one[0] for one in late])} ms, all by {quantiles(sum(late, []))} ms; "
        f"CPU a text {statistics.median(floor_costs):.0f} us client and server"
    )
    middle, least, most = median_interval(differences)
    print(
        f"   TTFT p50, gRPC - HTTP: {middle:+.3f} ms "
        f"(95 % interval {least:+.3f} to {most:+.3f}, {rounds} rounds)"
    )


async def asked(way: Way, requests: list[Request], streams: int) -> dict[str, list[int]]:
    """Ask by a client of its own."""
    async with client_of(way) as client:
        return await ask(client, requests, streams)


def each_text(before: tuple[float, float], pid: int, streams: int) -> list[float]:
    """CPU a text of this process and of that one since `before`, microseconds."""
    now = cpu(os.getpid()), cpu(pid)
    return [(a - b) / streams / TOKENS * 1e6 for a, b in zip(now, before, strict=True)]


def quantiles(values: list[float]) -> str:
    """Median and 99th percentile."""
    cut = statistics.quantiles(values, n=100, method="inclusive")
    return f"{cut[49]:.2f}/{cut[98]:.2f}"


async def true_times(engine: Path) -> dict[str, dict[str, list[int]]]:
    """True times of the engine's actions."""
    connector = aiohttp.UnixConnector(str(engine))
    async with (
        aiohttp.ClientSession("http://e", connector=connector) as session,
        session.get("/truth") as answer,
    ):
        truth: dict[str, dict[str, list[int]]] = await answer.json()
        return truth


def starts(rounds: int) -> None:
    """From the fork to the first answer."""
    found: dict[str, list[float]] = {"without gRPC": [], "with gRPC": []}
    for _ in range(rounds):
        for name, times in found.items():
            with tempfile.TemporaryDirectory(prefix="hb") as folder:
                extra = ["--worker-socket", f"{folder}/g"] if name == "with gRPC" else []
                begin = time.perf_counter()
                wrapper = Wrapper(Path(folder), *extra)
                times.append(time.perf_counter() - begin)
                wrapper.close()
    for name, times in found.items():
        print(
            f"start {name}: {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})"
        )


if __name__ == "__main__":
    main()
