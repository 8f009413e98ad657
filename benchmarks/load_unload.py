"""Whether a model leaves anything behind: load, one answer, unload, twenty times over, through one wrapper.

After each time it looks at the machine: MemAvailable (what a new process could have), shared memory, files
in /tmp and /dev/shm, processes that the engine left, memory in use on GPUs; and at the wrapper: its memory
and open files. The floor is the machine after the first time, when caches are warm. Other work on the machine
shows in the figures, too.

    python benchmarks/load_unload.py [--engine huggingface] [--python PYTHON] [--times 20] [--gpus 0]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wrapped import KEY, ROOT, Wrapper

from hpcbench.inference.client import Client
from hpcbench.schema.records import Message, Request

NAME, TIMEOUT = "m", 600
DRIFT = {"available": 256, "shared": 16, "gpu": 64, "wrapper": 8, "files": 0, "left": 0, "open": 2}
"""How far the last may be from the first, each to its worse side: MiB, or a number of them."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--model", type=Path, default=ROOT / "examples/demo/model")
    parser.add_argument("--engine", default="huggingface", choices=["huggingface", "vllm"])
    parser.add_argument("--python", default=sys.executable, help="the one that has the engine")
    parser.add_argument("--gpus", type=int, default=0)
    args = parser.parse_args()
    with Wrapper(args.python) as wrapper:
        rows = asyncio.run(cycles(wrapper, args))
    drifts = {name: rows[-1][name] - rows[0][name] for name in DRIFT}
    drifts["available"] = -drifts["available"]
    kept = all(drift <= DRIFT[name] for name, drift in drifts.items())
    reported = ", ".join(f"{name} {drift:+.0f} of {DRIFT[name]}" for name, drift in drifts.items())
    print(f"{'kept' if kept else 'MISSED'}: worse by {reported}")


async def cycles(wrapper: Wrapper, args: argparse.Namespace) -> list[Mapping[str, float]]:
    """Memory and processes after each time."""
    body: dict[str, Any] = {
        "engine": args.engine, "model_path": str(args.model), "model_name": NAME, "gpus": args.gpus,
        "dtype": "bfloat16" if args.gpus else "float32", "cpus": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    if args.engine == "vllm":
        body |= {"context_length": 1024, "options": {"enforce_eager": True, "max_num_seqs": 4}}
    ask = Request("s", (Message("user", "Read all text."),), {"max_tokens": 8}, 120)
    rows: list[Mapping[str, float]] = []
    print("time | load s  unload s | " + "  ".join(f"{name:>9}" for name in DRIFT))
    async with Client(str(wrapper.socket), KEY, NAME) as client:
        for number in range(1, args.times + 1):
            loaded = await wrapper.load(client, TIMEOUT, **body)
            answer = await client.ask(ask)
            assert answer.text is not None, answer.error
            started = time.perf_counter()
            await client.unload()
            took = time.perf_counter() - started
            rows.append(seen(wrapper.process.pid, args.gpus))
            print(
                f"{number:4} | {loaded['seconds']:6.1f} {took:9.2f} | "
                + "  ".join(f"{rows[-1][name]:9,.0f}" for name in DRIFT),
                flush=True,
            )
    return rows


def seen(wrapper: int, gpus: int) -> dict[str, float]:
    """Memory and processes now: MiB, or numbers."""
    machine = _kib(Path("/proc/meminfo"))
    return {
        "available": machine["MemAvailable"] / 1024,
        "shared": machine["Shmem"] / 1024,
        "gpu": gpu_memory() if gpus else 0,
        "wrapper": _kib(Path(f"/proc/{wrapper}/status"))["VmRSS"] / 1024,
        "files": entries(Path("/tmp")) + entries(Path("/dev/shm")),
        "left": len(children(wrapper)),
        "open": entries(Path(f"/proc/{wrapper}/fd")),
    }


def children(wrapper: int) -> list[int]:
    """Children of the wrapper; one is its guard, which ends engines should it be killed."""
    found = Path(f"/proc/{wrapper}/task/{wrapper}/children").read_text().split()
    return [int(pid) for pid in found]


def entries(folder: Path) -> int:
    """How many there are in a folder."""
    return sum(1 for _ in folder.iterdir())


def gpu_memory() -> int:
    """MiB in use on all GPUs, as nvidia-smi says."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    return sum(map(int, done.stdout.split()))


def _kib(table: Path) -> dict[str, int]:
    lines = (line.partition(":") for line in table.read_text().splitlines())
    return {
        name: int(words[0]) for name, _, rest in lines if (words := rest.split())[-1:] == ["kB"]
    }


if __name__ == "__main__":
    main()
