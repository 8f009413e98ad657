"""How true the client's times are: its stamps against those of the server that wrote the texts.

The server (tests/light_server.py) runs in a process of its own and reads the same clock right before it
writes each text. Two ways for streams to go: each at its own pace, and all in step, as an engine that works
in batches writes them: then the last of 64 texts waits in the socket while 63 others are taken.

Errors are (client's − server's stamp), so the cost of the write itself is in them; that of TPOT is of the
figure that the product would report, of an answer that ends with a token without text. The bare client is the
least one can do with aiohttp: post, and stamp every block where `iter_any` gives it. The floor is the least
that any client on asyncio's event loop can do: it reads the clock and the bytes, and parses none of them, so
its CPU is that of waking up and of one read. At their own pace the server spreads the streams, so that texts
wake a client one by one as long as it is quicker than they come. Clients take turns. The
server's own lateness against its schedule is no error of a client and is printed apart; a round
in which it was late by more than 2 ms (p99) says that others took the machine's cores, and is measured again,
three times at most.

CPU is that of each further text: what the same requests take with one text only is that of a request, and is
printed beside it. A client that gets several texts in one block pays less for each: `block` says how many it
got, and a longer `--gap` brings them one by one.

    python benchmarks/timing_truth.py [--rounds 5] [--texts 75] [--streams 1 64] [--gap 0.02]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpcbench import speed  # noqa: E402
from hpcbench.inference.client import Client  # noqa: E402
from hpcbench.inference.client_health import Health  # noqa: E402
from hpcbench.inference.load_driver import drive  # noqa: E402
from hpcbench.schema.records import Message, Request  # noqa: E402

FIRST = 0.2
QUIET_MS, TRIES = 2.0, 3

Seen = dict[str, tuple[list[int], float | None]]
"""Seed → when each text came, and the answer's TPOT in ms."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=75)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 64])
    parser.add_argument(
        "--gap", type=float, default=0.02, help="seconds between texts (%(default)s)"
    )
    args = parser.parse_args()
    rounds, texts = args.rounds, args.texts
    print(
        f"first text after {FIRST} s, {texts} texts {args.gap * 1e3:g} ms apart, {rounds} rounds, ",
        end="",
    )
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    print(
        "errors in ms (median over rounds); CPU of the client in µs for each text, and each request"
    )
    print(
        f"{'streams':>8} {'pace':>8} {'client':>9} {'TTFT p50':>9} {'TTFT p99':>9} {'text p50':>9} "
        f"{'text p99':>9} {'TPOT p99':>9} {'text':>5} {'block':>5} {'request':>7} {'late p99':>9} "
        f"{'lag p99':>8} {'quiet':>6}"
    )
    for in_step in (False, True):
        with serving(in_step, texts, args.gap) as socket, serving(in_step, 1, args.gap) as short:
            for streams in args.streams:
                compare(socket, short, streams, in_step, rounds, texts)


def compare(socket: str, short: str, streams: int, in_step: bool, rounds: int, texts: int) -> None:
    """All clients in turns; the server on the socket `short` sends one text."""
    found: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS}
    for _ in range(rounds):
        for client in CLIENTS:
            tries = (measure(client, socket, streams) for _ in range(TRIES))
            rows = [next(tries)]
            while rows[-1]["late_p99"] > QUIET_MS and (row := next(tries, None)):
                rows.append(row)
            row = min(rows, key=lambda row: row["late_p99"])
            row["request"] = measure(client, short, streams)["cpu"]
            row["text"] = (row["cpu"] - row["request"]) / (texts - 1)
            found[client].append(row)
    pace = "in step" if in_step else "own"
    quiet = sum(row["late_p99"] <= QUIET_MS for rows in found.values() for row in rows)
    for client, rows in found.items():
        mid = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        print(
            f"{streams:>8} {pace:>8} {client:>9} {mid['ttft_p50']:>9.3f} {mid['ttft_p99']:>9.3f} "
            f"{mid['text_p50']:>9.3f} {mid['text_p99']:>9.3f} {mid['tpot_p99']:>9.4f} "
            f"{mid['text']:>5.1f} {mid['block']:>5.2f} {mid['request']:>7.0f} {mid['late_p99']:>9.3f} "
            f"{mid['lag_p99']:>8.2f} {quiet:>4}/{len(CLIENTS) * rounds}",
            flush=True,
        )


@contextmanager
def serving(in_step: bool, texts: int, gap: float) -> Iterator[str]:
    """The server, while it is needed; gives its socket."""
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        socket = Path(folder) / "s"
        argv = [sys.executable, "-m", "tests.light_server", "--uds", str(socket)]
        argv += ["--first", str(FIRST), "--gap", str(gap), "--tokens", str(texts)]
        argv += ["--in-step" if in_step else "--spread"]
        with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}) as server:
            try:
                while not socket.exists():
                    time.sleep(0.05)
                yield str(socket)
            finally:
                server.kill()


def measure(client: str, socket: str, streams: int) -> dict[str, float]:
    """One round of one client."""
    count = max(3, 2 * streams)
    cpu = time.process_time()
    found, health = asyncio.run(CLIENTS[client](socket, streams, count))
    cpu = time.process_time() - cpu
    truth = asyncio.run(true_times(socket))
    assert truth.keys() == found.keys()
    pairs = [(found[seed][0], truth[seed]["written"], truth[seed]["due"]) for seed in truth]
    assert all(len(ours) == len(written) for ours, written, _ in pairs)
    ttft = [(ours[0] - written[0]) / 1e6 for ours, written, _ in pairs]
    text = [(a - b) / 1e6 for ours, written, _ in pairs for a, b in zip(ours, written, strict=True)]
    tpot = [abs((found[seed][1] or 0.0) - between(truth[seed]["written"])) for seed in truth]
    late = [(a - b) / 1e6 for _, written, due in pairs for a, b in zip(written, due, strict=True)]
    return {
        "ttft_p50": share(ttft, 0.5),
        "ttft_p99": share(ttft, 0.99),
        "text_p50": share(text, 0.5),
        "text_p99": share(text, 0.99),
        "tpot_p99": share(tpot, 0.99),
        "late_p99": share(late, 0.99),
        "lag_p99": health.lag_ms(0.99) if health else float("nan"),
        "cpu": cpu / count * 1e6,
        "block": len(text) / sum(len(set(ours)) for ours, _, _ in pairs),
    }


def share(values: list[float], part: float) -> float:
    """The value that this part does not exceed."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def between(texts: list[int]) -> float:
    """Mean time between texts, ms."""
    return (texts[-1] - texts[0]) / 1e6 / max(1, len(texts) - 1)


async def bare(socket: str, streams: int, count: int) -> tuple[Seen, Health | None]:
    """Post, and stamp every block."""
    left = iter(range(count))
    seen: Seen = {}
    connector = aiohttp.UnixConnector(socket, limit=0)
    async with aiohttp.ClientSession("http://w", connector=connector) as session:

        async def one_at_a_time() -> None:
            for number in left:
                times: list[int] = []
                body = json.dumps({"seed": number, "stream": True}).encode()
                async with session.post("/v1/chat/completions", data=body) as answer:
                    async for block in answer.content.iter_any():
                        now = time.monotonic_ns()
                        times += [now] * block.count(b" word")
                seen[str(number)] = times, between(times)

        await asyncio.gather(*(one_at_a_time() for _ in range(streams)))
    return seen, None


class Floor(asyncio.BufferedProtocol):
    """Stamps what it reads, and parses nothing but the end."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.over = asyncio.get_running_loop().create_future()
        self._buffer = bytearray(2**16)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        now = time.monotonic_ns()
        block = self._buffer[:size]
        self.times += [now] * block.count(b" word")
        if block.endswith(b"0\r\n\r\n"):
            self.over.set_result(None)


async def floor(socket: str, streams: int, count: int) -> tuple[Seen, Health | None]:
    """One connection a request, no parsing."""
    left = iter(range(count))
    seen: Seen = {}
    loop = asyncio.get_running_loop()

    async def one_at_a_time() -> None:
        for number in left:
            body = json.dumps({"seed": number, "stream": True}).encode()
            transport, reader = await loop.create_unix_connection(Floor, socket)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: w\r\nContent-Length: {len(body)}\r\n\r\n"
            transport.write(head.encode() + body)
            await reader.over
            transport.close()
            seen[str(number)] = reader.times, between(reader.times)

    await asyncio.gather(*(one_at_a_time() for _ in range(streams)))
    return seen, None


async def hpcbench(socket: str, streams: int, count: int) -> tuple[Seen, Health | None]:
    """The product's client."""
    message = Message("user", "Read.")
    requests = (Request(str(n), (message,), {"seed": n}, 60) for n in range(count))
    health, seen = Health(), {}
    async with Client(socket, "key", "m") as client:
        driving = drive(client, requests, streams, asyncio.Event(), health=health)
        async for response in driving:
            assert response.outcome == "ok", response.error
            seen[response.sample_id] = list(response.times.chunks), speed.tpot(response)
    return seen, health


async def true_times(socket: str) -> dict[str, dict[str, list[int]]]:
    """True times of the server's actions."""
    connector = aiohttp.UnixConnector(socket)
    async with (
        aiohttp.ClientSession("http://w", connector=connector) as session,
        session.get("/truth") as answer,
    ):
        truth: dict[str, dict[str, list[int]]] = await answer.json()
        return truth


CLIENTS = {"floor": floor, "bare": bare, "hpcbench": hpcbench}


if __name__ == "__main__":
    main()
