"""How many pages a second the client can send, and the memory it takes, against a bare loop.

The server answers at once, in a process of its own. The bare loop is the least a client can do: read the
page, encode it, post it, read the answer. Each client runs in a fresh process, in turns.

    python benchmarks/client_ceiling.py [--rounds 3] [--pages 600]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))

from hpcbench.inference import Client, drive  # noqa: E402
from hpcbench.schema.records import Message, Request  # noqa: E402

ROOT = Path(__file__).parents[1]
PAGE_BYTES = 300_000
CONCURRENCY = 32


def main() -> None:
    """Measure and print, or, as a child, run one client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=600)
    parser.add_argument("--client", choices=sorted(CLIENTS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.client:
        run_client(args.client, args.folder, args.pages)
    else:
        compare(args.rounds, args.pages)


def compare(rounds: int, pages: int) -> None:
    """Both clients in turns against one server."""
    with tempfile.TemporaryDirectory(prefix="hb") as name:
        folder = Path(name)
        for number in range(32):
            (folder / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + os.urandom(PAGE_BYTES))
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        argv = ["-m", "tests.mock_openai", "--uds", str(folder / "s"), "--script", '{"fast": true}']
        with subprocess.Popen([sys.executable, *argv], env=environment) as server:
            try:
                while not (folder / "s").exists():
                    time.sleep(0.05)
                results = {client: [] for client in CLIENTS}
                for _ in range(rounds):
                    for client in CLIENTS:
                        results[client].append(child(client, folder, pages))
            finally:
                server.kill()
    floor = statistics.median(rate for rate, _ in results["bare"])
    print(f"{pages} pages of {PAGE_BYTES:,} bytes, {CONCURRENCY} at once, {rounds} rounds")
    print(f"{'client':>10} {'pages/s':>9} {'ratio':>7} {'peak RSS MiB':>13}")
    for client, found in results.items():
        rate = statistics.median(rate for rate, _ in found)
        memory = statistics.median(memory for _, memory in found)
        print(f"{client:>10} {rate:>9.0f} {rate / floor:>7.2f} {memory:>13.0f}")


def child(client: str, folder: Path, pages: int) -> tuple[float, float]:
    """Pages a second and peak memory (MiB) of one client in a process of its own."""
    argv = [sys.executable, __file__, "--client", client, "--folder", str(folder)]
    done = subprocess.run(
        [*argv, "--pages", str(pages)], capture_output=True, text=True, check=True
    )
    rate, memory = json.loads(done.stdout)
    return rate, memory


def run_client(client: str, folder: Path, pages: int) -> None:
    """What happens in the child."""
    files = sorted(folder.glob("*.png"))
    paths = [files[number % len(files)] for number in range(pages)]
    begin = time.perf_counter()
    asyncio.run(CLIENTS[client](str(folder / "s"), paths))
    seconds = time.perf_counter() - begin
    print(json.dumps([pages / seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


async def bare(socket: str, paths: list[Path]) -> None:
    """Read, encode, post."""
    left = iter(paths)
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

        await asyncio.gather(*(one_at_a_time() for _ in range(CONCURRENCY)))


async def hpcbench(socket: str, paths: list[Path]) -> None:
    """The product's client."""

    def requests() -> Iterator[Request]:
        for number, path in enumerate(paths):
            message = Message("user", "Read.", (path,))
            yield Request(str(number), (message,), {"max_tokens": 9}, 60)

    async with Client(socket, "key", "m") as client:
        async for response in drive(client, requests(), CONCURRENCY, asyncio.Event()):
            if response.outcome != "ok":
                raise RuntimeError(response.error)


CLIENTS = {"bare": bare, "hpcbench": hpcbench}


if __name__ == "__main__":
    main()
