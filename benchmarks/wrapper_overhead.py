"""What the wrapper adds to a request: the same engine, asked directly and through the wrapper.

The engine is the scripted server, which answers at once, in a process of its own; so is the wrapper. Both
ways are measured in turns within each round. Figures depend on the machine; the direct way is the floor.

    python benchmarks/wrapper_overhead.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.unit.wrapper.running import KEY, Wrapper, install_scripted  # noqa: E402

CASES = ((200, 1, 200), (200, 32, 1000), (400_000, 1, 100), (400_000, 32, 300))
"""Bytes of the body, requests at a time, requests a round."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        wrapper = Wrapper(install_scripted(Path(folder)))
        try:
            wrapper.pids_of(fast=True)
            asyncio.run(measure(wrapper, rounds))
        finally:
            wrapper.close()


async def measure(wrapper: Wrapper, rounds: int) -> None:
    """All cases, both ways."""
    [engine] = (wrapper.folder / "e").glob("*/s")
    print(
        f"{'body':>9} {'at once':>8} {'way':>8} {'p50 ms':>8} {'p99 ms':>8} {'req/s':>8} {'ratio':>7}"
    )
    for size, concurrency, count in CASES:
        times: dict[str, list[float]] = {"direct": [], "wrapped": []}
        walls = dict.fromkeys(times, 0.0)
        for number in range(rounds + 1):
            for way, path in (("direct", engine), ("wrapped", wrapper.socket)):
                found, wall = await ask(path, size, concurrency, count)
                if number:  # the first round warms up
                    times[way] += found
                    walls[way] += wall
        rates = {way: len(times[way]) / walls[way] for way in times}
        for way, found in times.items():
            cuts = statistics.quantiles(found, n=100, method="inclusive")
            print(
                f"{size:>9,} {concurrency:>8} {way:>8} {cuts[49]:>8.2f} {cuts[98]:>8.2f} "
                f"{rates[way]:>8.0f} {rates[way] / rates['direct']:>7.2f}"
            )
        added = statistics.median(times["wrapped"]) - statistics.median(times["direct"])
        print(f"{'':>18} {'added':>8} {added:>8.2f}")


async def ask(path: Path, size: int, concurrency: int, count: int) -> tuple[list[float], float]:
    """Milliseconds of each of `count` requests, and seconds for all."""
    body = b'{"stream":true,"pad":"' + b"x" * (size - 24) + b'"}'
    left = iter(range(count))
    times: list[float] = []
    connector = aiohttp.UnixConnector(str(path), limit=0)
    headers = {"X-API-Key": KEY, "Content-Type": "application/json"}
    async with aiohttp.ClientSession("http://w", connector=connector, headers=headers) as session:

        async def one_at_a_time() -> None:
            for _ in left:
                begin = time.perf_counter()
                async with session.post("/v1/chat/completions", data=body) as answer:
                    await answer.read()
                times.append((time.perf_counter() - begin) * 1e3)

        begin = time.perf_counter()
        await asyncio.gather(*(one_at_a_time() for _ in range(concurrency)))
        return times, time.perf_counter() - begin


if __name__ == "__main__":
    main()
