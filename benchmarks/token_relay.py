"""Cost of a token of OAuth2 beside a fixed key: the same requests through two relays, in turns.

Three processes beside this one: an endpoint that is its own token server and counts what it gets, a relay
with a fixed key, and a relay with `auth`. Blocks of requests alternate between the relays, so both meet the
same machine; the relay with the key gets a block for `--key-every` blocks of the other one. The CPU time of
a relay is that of its process (`/proc/PID/stat`), per request. Tokens live `--lifetime` seconds, so the run
passes many lifetimes.

    python benchmarks/token_relay.py [--requests 1000000] [--lifetime 20] [--at-once 32] [--block 500]
                                     [--key-every 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from pairs import median_interval

from hpcbench.unix_http import UnixConnection

ROOT = Path(__file__).parent.parent
ANSWER = json.dumps(
    {"id": "x", "choices": [{"message": {"role": "assistant", "content": "42"}}]}
).encode()
ASK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Total?"}]}).encode()
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(ASK), ASK)
)


class Endpoint(asyncio.Protocol):
    """HTTP/1.1, as little as does: models, chat completions, tokens, and counts of them."""

    lifetime = 6.0
    counts = {"good": 0, "expired": 0, "unknown": 0, "tokens": 0, "used": 0}
    """Requests by their token, tokens given, and different tokens that requests had."""
    used: set[str] = set()
    ends: dict[str, float] = {"fixed-key": float("inf")}

    def connection_made(self, transport: Any) -> None:
        self.transport, self.data = transport, b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while b"\r\n\r\n" in self.data:
            head, _, rest = self.data.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:])
            length = int(fields.get("content-length", 0))
            if len(rest) < length:
                return
            self.data = rest[length:]
            access = next((one for one in lines if one.lower().startswith("authorization")), "")
            status, body = self.answer(lines[0].split()[1], access.rpartition(" ")[2])
            self.transport.write(
                b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                % (status, len(body), body)
            )

    def answer(self, path: str, access: str) -> tuple[int, bytes]:
        counts, now = self.counts, time.monotonic()
        if path == "/counts":
            return 200, json.dumps(counts).encode()
        if path == "/token":
            counts["tokens"] += 1
            given = f"token-{counts['tokens']}"
            self.ends[given] = now + self.lifetime
            return 200, json.dumps(
                {"access_token": given, "token_type": "Bearer", "expires_in": self.lifetime}
            ).encode()
        end = self.ends.get(access)
        what = "unknown" if end is None else "good" if now < end else "expired"
        if path.endswith("completions"):
            counts[what] += 1
            if access not in self.used and access != "fixed-key":
                self.used.add(access)
                counts["used"] += 1
        return (200, ANSWER) if what == "good" else (401, b"{}")


def serve(lifetime: float, port: Any) -> None:
    """Run the endpoint."""

    async def run() -> None:
        Endpoint.lifetime = lifetime
        server = await asyncio.get_running_loop().create_server(Endpoint, "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def cpu_seconds(pid: int) -> float:
    """CPU time of a process's threads so far: clock_getcpuclockid's clock."""
    return time.clock_gettime(~pid << 3 | 2)


def healthy(socket: Path) -> bool:
    """Whether a relay takes requests."""
    try:
        with UnixConnection(socket, 5) as connection:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
    except OSError:
        return False


class Relay:
    """A relay's process, and what its requests took."""

    def __init__(self, folder: Path, name: str, options: dict[str, Any]) -> None:
        self.name, self.socket = name, str(folder / name)
        self.cpu, self.requests, self.failed = 0.0, 0, 0
        self.left = self.open = 0
        """Requests that are still to be sent, and open connections."""
        self.done: asyncio.Future[None]
        self.each: list[float] = []
        """CPU microseconds a request, block by block."""
        self.seconds: list[float] = []
        env = {"API_KEY": "fixed-key", "SECRET": "s", "XDG_STATE_HOME": str(folder)}
        argv = [sys.executable, "-m", "hpcbench.engines.relay", "--uds", self.socket, "--name", "m"]
        self.process = subprocess.Popen(
            [*argv, "--options", json.dumps(options)], env={**os.environ, **env}, cwd=ROOT
        )
        while not healthy(Path(self.socket)):
            assert self.process.poll() is None
            time.sleep(0.05)

    async def block(self, count: int, at_once: int) -> None:
        """Send so many requests, each connection one after the other."""
        loop = asyncio.get_running_loop()
        before, self.left = cpu_seconds(self.process.pid), count
        self.done = loop.create_future()
        self.open = at_once
        for _ in range(at_once):
            await loop.create_unix_connection(lambda: Connection(self), self.socket)
        await self.done
        used = cpu_seconds(self.process.pid) - before
        self.cpu, self.requests = self.cpu + used, self.requests + count
        self.each.append(used / count * 1e6)

    def line(self) -> str:
        """Its figures."""
        cuts = statistics.quantiles(self.seconds, n=1000)
        tails = ", ".join(
            f"p{name} {cuts[at] * 1e3:.2f}"
            for name, at in (("50", 499), ("99", 989), ("99.9", 998))
        )
        each, longest = self.cpu / self.requests * 1e6, max(self.seconds) * 1e3
        return (
            f"{self.name}: {self.requests} requests, {self.failed} failed, {each:.1f} µs of CPU each; "
            f"ms: {tails}, max {longest:.1f}"
        )


class Connection(asyncio.Protocol):
    """A client that takes little: it sends one request after the other, as long as there are any."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        """Send a request; close if there is none."""
        relay = self.relay
        if not relay.left:
            self.transport.close()
            return
        relay.left -= 1
        self.data, self.begin = b"", time.perf_counter()
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, end, body = self.data.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return
        self.relay.seconds.append(time.perf_counter() - self.begin)
        self.relay.failed += not head.startswith(b"HTTP/1.1 200") or body != ANSWER
        self.ask()

    def connection_lost(self, error: Exception | None) -> None:
        self.relay.open -= 1
        if not self.relay.open:
            self.relay.done.set_result(None)


def _length(head: bytes) -> int:
    """Bytes of a body."""
    return int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])


async def measure(relays: list[Relay], args: argparse.Namespace) -> None:
    """Alternate blocks; the order turns each time."""
    key, token = relays
    for number in range(max(1, args.requests // args.block)):
        pair = (key, token) if number % (2 * args.key_every) else (token, key)
        for relay in pair if number % args.key_every == 0 else (token,):
            await relay.block(args.block, args.at_once)
        if number % 50 == 49:
            print(f"{token.requests} requests", file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000, help="with tokens")
    parser.add_argument("--lifetime", type=float, default=20.0)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--block", type=int, default=500)
    parser.add_argument("--key-every", type=int, default=5)
    args = parser.parse_args()
    port: Any = multiprocessing.Queue()
    endpoint = multiprocessing.Process(target=serve, args=(args.lifetime, port), daemon=True)
    endpoint.start()
    address = f"http://127.0.0.1:{port.get()}"
    options = {"base_url": f"{address}/v1", "model": "m"}
    auth = {"token_url": f"{address}/token", "client_id": "c", "client_secret": "${env:SECRET}"}
    print(f"{len(os.sched_getaffinity(0))} cores, load before {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="hr") as folder:
        relays = [
            Relay(Path(folder), "key", options),
            Relay(Path(folder), "token", {**options, "auth": auth}),
        ]
        begin = time.monotonic()
        try:
            asyncio.run(measure(relays, args))
        finally:
            for relay in relays:
                relay.process.terminate()
                relay.process.wait(10)
        took = time.monotonic() - begin

    async def counts() -> dict[str, int]:
        async with aiohttp.ClientSession() as session, session.get(f"{address}/counts") as answer:
            return json.loads(await answer.read())  # type: ignore[no-any-return]

    found = asyncio.run(counts())
    endpoint.terminate()
    for relay in relays:
        print(relay.line())
    beside = relays[1].each[:: args.key_every]
    more = [two - one for one, two in zip(relays[0].each, beside, strict=True)]
    spread = statistics.stdev(more) / len(more) ** 0.5 if len(more) > 1 else float("nan")
    middle, least, most = median_interval(more)
    print(
        f"a token costs {statistics.fmean(more):+.1f} ± {1.96 * spread:.1f} µs of CPU a request over "
        f"{len(more)} pairs; median {middle:+.1f} ({least:+.1f} to {most:+.1f})"
    )
    print(
        f"{took:.0f} s, {took / args.lifetime:.1f} lifetimes, {found['tokens']} requests for a token, "
        f"{found['used']} tokens used"
    )
    print(f"the endpoint got {found['expired']} expired and {found['unknown']} unknown tokens")


if __name__ == "__main__":
    main()
