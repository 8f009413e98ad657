"""Whether a model leaves anything behind: load, one answer, end, twenty times over.

Starts the Hugging Face engine as the wrapper does, asks once, ends it with SIGTERM, and looks at the machine:
MemAvailable (what a new process could have), shared memory, and processes that the engine left. The floor is
the machine before the first load; other work on the machine shows in the figures, too.

    python benchmarks/load_unload.py [--times 20] [--model examples/demo/model] [--gpus 0]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from hpcbench.engines.huggingface import HuggingFaceEngine
from hpcbench.plugins import EngineSpec

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 600
"""Seconds until the model must be up."""


def memory() -> dict[str, int]:
    """MiB of the machine."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    values = {
        name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)
    }
    return {name: values[name] // 1024 for name in ("MemAvailable", "Shmem")}


def gpu_memory() -> int:
    """MiB in use on all GPUs, as nvidia-smi says."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    return sum(map(int, done.stdout.split()))


def left(session: int) -> int:
    """Processes of the engine's session that are still there."""
    count = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            count += int(stat.read_text().rpartition(")")[2].split()[3]) == session
        except OSError:  # it has just ended
            continue
    return count


async def answer(socket: Path) -> int:
    """Tokens of one answer."""
    connector = aiohttp.UnixConnector(str(socket))
    messages = [{"role": "user", "content": "Read all text."}]
    body = {"model": "m", "messages": messages, "max_tokens": 8, "temperature": 0}
    async with (
        aiohttp.ClientSession("http://e", connector=connector) as session,
        session.post("/v1/chat/completions", json=body) as reply,
    ):
        return int((await reply.json())["usage"]["completion_tokens"])


def cycle(model: Path, gpus: int, socket: Path) -> Mapping[str, float]:
    """One load and unload: seconds of each, and processes left."""
    spec = EngineSpec(model_path=str(model), model_name="m", socket=str(socket), gpus=gpus)
    command = HuggingFaceEngine().launch_command(spec)
    begun = time.perf_counter()
    process = subprocess.Popen(
        list(command.argv), cwd=ROOT, env={**os.environ, **command.env},
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while not socket.exists():
        assert process.poll() is None, "the engine ended"
        assert time.perf_counter() - begun < PATIENCE, "the engine does not come up"
        time.sleep(0.02)
    loaded = time.perf_counter()
    assert asyncio.run(answer(socket)) > 0
    asked = time.perf_counter()
    process.terminate()
    code = process.wait(60)
    ended = time.perf_counter()
    return {
        "load": loaded - begun,
        "end": ended - asked,
        "code": code,
        "left": left(process.pid),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--model", type=Path, default=ROOT / "examples/demo/model")
    parser.add_argument("--gpus", type=int, default=0)
    args = parser.parse_args()
    before = memory()
    gpu = gpu_memory() if args.gpus else 0
    print(
        f"before: {before['MemAvailable']:,} MiB available, {before['Shmem']:,} shared, GPU {gpu:,}"
    )
    print(
        "time | load s  end s | exit code | processes left | MemAvailable  Shmem  GPU in use, MiB"
    )
    available: list[int] = []
    with tempfile.TemporaryDirectory(prefix="hb") as folder:
        for number in range(1, args.times + 1):
            found = cycle(args.model, args.gpus, Path(folder) / f"s{number}")
            now = memory()
            available.append(now["MemAvailable"])
            gpu = gpu_memory() if args.gpus else 0
            print(
                f"{number:4} | {found['load']:6.1f} {found['end']:6.2f} | {found['code']:9.0f} "
                f"| {found['left']:14.0f} | {now['MemAvailable']:12,} {now['Shmem']:6,} {gpu:11,}",
                flush=True,
            )
    print(f"MemAvailable, last / first: {available[-1] / available[0]:.4f}")


if __name__ == "__main__":
    main()
