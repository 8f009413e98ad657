"""How many pages a second the client can send, and the memory it takes, against a bare loop.

The server (tests/light_server.py) answers at once, in a process of its own. The bare loop is the least a
client can do with aiohttp: read the page, encode it, post it, read the answer. It hashes nothing and keeps no
times. Each client runs in a fresh process, in turns. The server hashes each twentieth image that reaches it:
all must be those of the files. RSS is sampled as the answers come in: it must not grow.

    python benchmarks/client_ceiling.py [--rounds 3] [--pages 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpcbench.inference.client import Client  # noqa: E402
from hpcbench.inference.load_driver import drive  # noqa: E402
from hpcbench.schema.records import Message, Request  # noqa: E402

PAGE_BYTES = 950_000
FILES = 32
CONCURRENCY = 64
CHECK = 20
CORES = 2


def main() -> None:
    """Measure and print, or, as a child, run one client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--client", choices=sorted(CLIENTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        asyncio.run(run_client(args.client, args.folder, args.pages))
    else:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
        compare(args.rounds, args.pages)


def compare(rounds: int, pages: int) -> None:
    """Both clients in turns against one server."""
    with tempfile.TemporaryDirectory(prefix="hb") as name:
        folder = Path(name)
        for number in range(FILES):
            (folder / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + os.urandom(PAGE_BYTES))
        argv = [sys.executable, "-m", "tests.light_server", "--uds", str(folder / "s")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen([*argv, "--check", str(CHECK)], env=environment) as server:
            try:
                while not (folder / "s").exists():
                    time.sleep(0.05)
                results: dict[str, list[dict[str, float]]] = {client: [] for client in CLIENTS}
                for _ in range(rounds):
                    for client in CLIENTS:
                        results[client].append(child(client, folder, pages))
                checked = asyncio.run(check(folder))
            finally:
                server.kill()
    print(f"{pages} pages of {PAGE_BYTES:,} bytes, {CONCURRENCY} at once, {CORES} cores, ", end="")
    print(f"{rounds} rounds (medians); {checked} images checked at the server")
    tell(results)


def tell(results: dict[str, list[dict[str, float]]]) -> None:
    """A row for each client."""
    floor = statistics.median(row["rate"] for row in results["bare"])
    print(
        f"{'client':>10} {'pages/s':>9} {'ratio':>7} {'CPU ms':>7} {'RSS MiB at 25 %':>16} {'50 %':>6} "
        f"{'75 %':>6} {'100 %':>6} {'peak':>6}"
    )
    for client, rows in results.items():
        mid = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
        print(
            f"{client:>10} {mid['rate']:>9.0f} {mid['rate'] / floor:>7.2f} {mid['cpu']:>7.2f} "
            f"{mid['25']:>16.0f} {mid['50']:>6.0f} {mid['75']:>6.0f} {mid['100']:>6.0f} {mid['peak']:>6.0f}"
        )


async def check(folder: Path) -> int:
    """Compare the hashes that the server saw with those of the files; how many there were."""
    connector = aiohttp.UnixConnector(str(folder / "s"))
    async with (
        aiohttp.ClientSession("http://w", connector=connector) as session,
        session.get("/images") as answer,
    ):
        seen = await answer.json()
    files = {hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.png")}
    assert seen and set(seen) <= files, "an image reached the server changed"
    return len(seen)


def child(client: str, folder: Path, pages: int) -> dict[str, float]:
    """One client in a process of its own."""
    argv = [sys.executable, __file__, "--client", client, "--folder", str(folder)]
    done = subprocess.run(
        [*argv, "--pages", str(pages)], stdout=subprocess.PIPE, text=True, check=True
    )
    row: dict[str, float] = json.loads(done.stdout)
    return row


async def run_client(client: str, folder: Path, pages: int) -> None:
    """The child's part."""
    files = sorted(folder.glob("*.png"))
    paths = [files[number % len(files)] for number in range(pages)]
    marks = {pages * quarter // 100: str(quarter) for quarter in (25, 50, 75, 100)}
    row: dict[str, float] = {}
    begin, number = time.perf_counter(), 0
    async for _ in CLIENTS[client](str(folder / "s"), paths):
        number += 1
        if number in marks:
            row[marks[number]] = resident() / 2**20
    row["rate"] = pages / (time.perf_counter() - begin)
    row["cpu"] = time.process_time() / pages * 1e3
    row["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(row))


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def bare(socket: str, paths: list[Path]) -> AsyncIterator[None]:
    """Read, encode, post."""
    left = iter(paths)
    done: asyncio.Queue[None] = asyncio.Queue()
    connector = aiohttp.UnixConnector(socket, limit=0)
    async with aiohttp.ClientSession("http://w", connector=connector) as session:

        async def one_at_a_time() -> None:
            for path in left:
                data = base64.b64encode(path.read_bytes()).decode()
                image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
                text = {"type": "text", "text": "Read."}
                messages = [{"role": "user", "content": [image, text]}]
                body = json.dumps({"model": "m", "stream": True, "messages": messages}).encode()
                async with session.post("/v1/chat/completions", data=body) as answer:
                    await answer.read()
                done.put_nowait(None)

        asking = asyncio.gather(*(one_at_a_time() for _ in range(CONCURRENCY)))
        for _ in paths:
            yield await done.get()
        await asking


async def hpcbench(socket: str, paths: list[Path]) -> AsyncIterator[None]:
    """The product's client."""

    def requests() -> Iterator[Request]:
        for number, path in enumerate(paths):
            message = Message("user", "Read.", (path,))
            yield Request(str(number), (message,), {"max_tokens": 9}, 60)

    async with Client(socket, "key", "m") as client:
        async for response in drive(client, requests(), CONCURRENCY, asyncio.Event()):
            assert response.outcome == "ok", response.error
            yield


CLIENTS = {"bare": bare, "hpcbench": hpcbench}


if __name__ == "__main__":
    main()
