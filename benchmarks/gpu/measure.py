"""Speed and memory of the Hugging Face engine on a GPU, beside what `nvidia-smi` says.

Makes a model of true size with random weights (`random_vlm.py`), has the wrapper serve it, asks it about
pages of true size at several concurrencies, then loads and ends it again and again. Prints Markdown for
docs/gpu.md. Peers of the same run: the same requests sent to the engine's own socket, and `nvidia-smi`.

    python benchmarks/gpu/measure.py [--layers 30] [--pages 64] [--cycles 20]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from wrapped import KEY, Wrapper  # noqa: E402

from hpcbench.inference.client import Client  # noqa: E402
from hpcbench.inference.client_health import Health  # noqa: E402
from hpcbench.inference.load_driver import drive, warm_up  # noqa: E402
from hpcbench.monitor.devices import gpus  # noqa: E402
from hpcbench.monitor.engine_metrics import over_socket  # noqa: E402
from hpcbench.monitor.memory_figures import memory_figures  # noqa: E402
from hpcbench.monitor.sampler import Monitor  # noqa: E402
from hpcbench.schema.records import Message, Request, Response  # noqa: E402
from hpcbench.speed import tpot  # noqa: E402

NAME, TOKENS = "random-vlm", 64
SIZE = (1275, 1650)
"""A letter page at 150 dpi."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--pages", type=int, default=64)
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 4, 8])
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hb"))
    try:
        # In a process of its own: what this one held on the card would be in every figure.
        make = [
            sys.executable,
            str(Path(__file__).with_name("random_vlm.py")),
            str(folder / "model"),
        ]
        made = subprocess.run(
            [*make, "--layers", str(args.layers)], capture_output=True, text=True, check=True
        )
        heading(made.stdout.rpartition(": ")[2].strip())
        asyncio.run(measure(folder, args))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def heading(parameters: str) -> None:
    """Machine, software and date of a measurement."""
    import transformers

    cards = ", ".join(f"{card.name} ({card.memory_bytes / 2**30:.0f} GiB)" for card in gpus())
    print(f"Date: {time.strftime('%Y-%m-%d')}. GPU: {cards or 'none: on the CPU'}.")
    print(f"Model: {parameters}, random, bfloat16. Pages of {SIZE} pixels,")
    print(
        f"{TOKENS} tokens an answer. Python {platform.python_version()}, torch {torch.__version__},"
    )
    print(f"transformers {transformers.__version__}.\n")


def page(number: int, folder: Path) -> Path:
    """A page with text of its own."""
    image = Image.new("RGB", SIZE, "white")
    draw = ImageDraw.Draw(image)
    for line in range(60):
        draw.text(
            (80, 60 + 26 * line),
            f"Page {number}, line {line}: {number * line:08d} " * 4,
            fill="black",
        )
    path = folder / f"{number}.png"
    image.save(path)
    return path


def request(path: Path) -> Request:
    """Request to the engine."""
    generation = {"temperature": 0, "max_tokens": TOKENS}
    return Request(path.stem, (Message("user", "Read all text.", (path,)),), generation, 600)


async def measure(folder: Path, args: argparse.Namespace) -> None:
    """All of it."""
    pages = [request(page(number, folder)) for number in range(args.pages)]
    others = [request(page(10_000 + number, folder)) for number in range(8)]
    gpu = 1 if gpus() else 0
    load = {
        "engine": "huggingface",
        "model_path": str(folder / "model"),
        "model_name": NAME,
        "dtype": "bfloat16",
        "gpus": gpu,
        "options": {"max_batch": max(args.at_once)},
    }
    monitor = Monitor(os.getpid())
    monitor.start()
    smi = Smi()
    with Wrapper() as wrapper:
        async with Client(str(wrapper.socket), KEY, NAME) as client:
            ready = await wrapper.load(client, 1200, **load)
            monitor.ask_engine(over_socket(wrapper.socket, KEY))
            await warm_up(client, others, 8)
            engine = Client(str(wrapper.engine_socket), KEY, NAME)
            await speed(client, engine, pages, args.at_once, monitor)
            memory(monitor, smi, args.at_once)
            monitor.ask_engine(None)
            await client.unload()
            print(f"\nFirst load {ready['seconds']:.1f} s.")
            await cycles(client, load, others[0], args.cycles, smi)
    smi.stop()
    summary = monitor.stop()
    print(f"Monitor: {100 * summary.cpu_seconds / summary.whole.seconds:.2f} % of a core.")
    for note in summary.notes:
        print(f"Note of the monitor: {note}.")


async def speed(
    client: Client,
    direct: Client,
    pages: Sequence[Request],
    counts: Sequence[int],
    monitor: Monitor,
) -> None:
    """Pages a second through the wrapper and directly, in turns."""
    print("| at once | pages/s | ÷ direct | TTFT p50, ms | TPOT p50, ms | lag p99, ms |")
    print("|--:|--:|--:|--:|--:|--:|")
    async with direct:
        for count in counts:
            rates: dict[str, list[float]] = {"through": [], "direct": []}
            kept: list[Response] = []
            health = Health()
            for number in range(4):
                ways = (("direct", direct), ("through", client))
                for way, asked in ways[:: 1 if number % 2 else -1]:
                    monitor.mark(f"{count} at once")
                    begin = time.perf_counter()
                    watching = health if way == "through" else Health()
                    answers = [
                        one
                        async for one in drive(
                            asked, pages, count, asyncio.Event(), health=watching
                        )
                    ]
                    rates[way].append(len(pages) / (time.perf_counter() - begin))
                    assert all(one.text is not None for one in answers), answers[0].error
                    kept += answers if way == "through" else []
            through, floor = (statistics.median(rates[way]) for way in ("through", "direct"))
            first = statistics.median((one.times.chunks[0] - one.times.send) / 1e6 for one in kept)
            each = statistics.median(found for one in kept if (found := tpot(one)) is not None)
            print(
                f"| {count} | {through:.2f} | {through / floor:.3f} | {first:.0f} | {each:.1f} "
                f"| {health.lag_ms(0.99):.2f} |"
            )


def memory(monitor: Monitor, smi: Smi, counts: Sequence[int]) -> None:
    """The monitor's figures beside `nvidia-smi`'s."""
    print("\n| at once | figure | GiB |\n|--:|---|--:|")
    for count in counts:
        phase = monitor.phase(f"{count} at once")
        figures: dict[str, Any] = asdict(memory_figures(phase)) if phase else {}
        for name, value in figures.items():
            if isinstance(value, int) and name != "gpus":
                print(f"| {count} | {name} | {value / 2**30:.2f} |")
    print(f"| all | nvidia-smi, processes | {smi.processes / 1024:.2f} |")
    print(f"| all | nvidia-smi, card | {smi.card / 1024:.2f} |")


async def cycles(client: Client, load: dict[str, Any], ask: Request, count: int, smi: Smi) -> None:
    """Load, one answer, end; is the memory back?"""
    after, ends = [smi.now()], []
    for _ in range(count):
        await client.load(load, 1200)
        assert (await client.ask(ask)).text is not None
        begin = time.perf_counter()
        await client.unload()
        ends.append(time.perf_counter() - begin)
        after.append(smi.now())
    print(
        f"{count} loads: the card holds {after[0]} MiB before, {after[-1]} MiB after, "
        f"at most {max(after)} MiB between; an end takes {statistics.median(ends):.1f} s."
    )


class Smi:
    """`nvidia-smi`, asked twice a second from a thread; zeros without it."""

    def __init__(self) -> None:
        self.card = self.processes = 0
        """Most MiB seen."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def now(self) -> int:
        """MiB of the first card in use."""
        return _asked("--query-gpu=memory.used")[0]

    def stop(self) -> None:
        """Ask no more."""
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopping.wait(0.5):
            self.card = max(self.card, self.now())
            self.processes = max(self.processes, sum(_asked("--query-compute-apps=used_memory")))


def _asked(what: str) -> list[int]:
    if shutil.which("nvidia-smi") is None:
        return [0]
    argv = ["nvidia-smi", what, "--format=csv,noheader,nounits"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split("\n")
    return [int(line) for line in lines if line.strip().isdigit()] or [0]


if __name__ == "__main__":
    main()
