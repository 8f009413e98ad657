"""Speed of a model in the Hugging Face engine: pages a second, beside a bare transformers loop.

The peer does with transformers' `generate` what the engine does, without server, queue or stream: one page
after another, and static batches of the same size. Both run in a process of their own with the same threads,
tiny model, pages and greedy settings, in turns within each round; each one's best round is printed, and how
many answers are equal to the bare loop's. The engine gets as many streams at once as two batches hold.

The second table tells where the time goes: CPU of the process that holds the model, for each token of the
answers; of the engine with whole answers, and with streams, where each token is an event of its own.

    python benchmarks/hf_batching.py [--documents 96] [--rounds 3] [--threads 1] [--batches 1 2 4 8 16]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "examples/demo/model"
IMAGES = ROOT / "examples/demo/data/images"
PROMPT = "Read all text."
TOKENS = 64

BARE = """
import sys, json, time
import torch, transformers
from pathlib import Path
from hpcbench.engines.hf_inputs import encoder_for, open_image, stack

model_path, threads = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(threads)
model = transformers.AutoModelForImageTextToText.from_pretrained(model_path, dtype=torch.float32).eval()
encoder = encoder_for(model_path, model, {"local_files_only": True})
messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": PROMPT}]}]

@torch.inference_mode()
def answers(paths):
    inputs = [encoder.encode(messages, [open_image(Path(path).read_bytes())]) for path in paths]
    batch = stack(inputs, model.generation_config.pad_token_id)
    ids = model.generate(**batch, max_new_tokens=TOKENS, do_sample=False)
    drawn = ids[:, batch["input_ids"].shape[1]:]
    end = model.generation_config.eos_token_id[0]
    count = sum(row.tolist().index(end) + 1 if end in row else len(row) for row in drawn)
    return encoder.tokenizer.batch_decode(drawn, skip_special_tokens=True), count

print("ready", flush=True)
for line in sys.stdin:
    size, paths = json.loads(line)
    since, cpu, texts, tokens = time.perf_counter(), time.process_time(), [], 0
    for start in range(0, len(paths), size):
        new, count = answers(paths[start : start + size])
        texts += new
        tokens += count
    took = time.perf_counter() - since
    print(json.dumps([texts, took, time.process_time() - cpu, tokens]), flush=True)
"""


@dataclass
class Run:
    """One pass over the documents."""

    texts: list[str]
    seconds: float
    cpu: float
    """Seconds of the process that holds the model."""
    units: int
    """Tokens of the answers; of a streamed run, its chunks."""


class Bare:
    """A process with the peer's loop."""

    def __init__(self, threads: int) -> None:
        code = BARE.replace("PROMPT", repr(PROMPT)).replace("TOKENS", str(TOKENS))
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(MODEL), str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def run(self, pages: Sequence[Path], size: int) -> Run:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([size, list(map(str, pages))]) + "\n")
        self._process.stdin.flush()
        return Run(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Engine:
    """The engine as the wrapper starts it."""

    def __init__(self, folder: Path, threads: int, max_batch: int) -> None:
        self._socket = folder / f"e{max_batch}"
        argv = ["--model", MODEL, "--name", "tiny", "--uds", self._socket, "--dtype", "float32"]
        argv += ["--options", json.dumps({"max_batch": max_batch})]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hpcbench.engines.huggingface", *map(str, argv)],
            stderr=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
        while not self._socket.exists():
            assert self._process.poll() is None, "the engine ended"
            time.sleep(0.05)

    def run(self, pages: Sequence[Path], at_once: int, stream: bool = True) -> Run:
        bodies = [body(page, stream) for page in pages]
        cpu, started = self._cpu(), time.perf_counter()
        found = asyncio.run(self._ask(bodies, at_once, stream))
        seconds = time.perf_counter() - started
        return Run(
            [text for text, _ in found],
            seconds,
            self._cpu() - cpu,
            sum(units for _, units in found),
        )

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def _ask(
        self, bodies: Sequence[bytes], at_once: int, stream: bool
    ) -> list[tuple[str, int]]:
        gate = asyncio.Semaphore(at_once)
        connector = aiohttp.UnixConnector(str(self._socket), limit=0)
        async with aiohttp.ClientSession("http://e", connector=connector) as session:

            async def one(data: bytes) -> tuple[str, int]:
                async with gate, session.post("/v1/chat/completions", data=data) as answer:
                    raw = await answer.read()
                return read(raw, stream)

            return await asyncio.gather(*map(one, bodies))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def body(page: Path, stream: bool) -> bytes:
    url = "data:image/png;base64," + base64.b64encode(page.read_bytes()).decode()
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": PROMPT},
    ]
    messages = [{"role": "user", "content": content}]
    asked = {"model": "tiny", "messages": messages, "max_tokens": TOKENS, "temperature": 0}
    return json.dumps({**asked, "stream": stream}).encode()


def read(raw: bytes, stream: bool) -> tuple[str, int]:
    """Text of an answer, and its tokens or chunks."""
    if not stream:
        whole = json.loads(raw)
        return whole["choices"][0]["message"]["content"], whole["usage"]["completion_tokens"]
    events = [json.loads(line[6:]) for line in raw.split(b"\n\n") if line.startswith(b"data: {")]
    return "".join(one["choices"][0]["delta"].get("content", "") for one in events), len(events)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    args = parser.parse_args()
    pages = sorted(IMAGES.rglob("*.png"))[: args.documents]
    bare = Bare(args.threads)
    try:
        bare.run(pages[:8], 1)
        print(f"{len(pages)} pages, {args.rounds} rounds, {args.threads} thread(s)\n")
        with tempfile.TemporaryDirectory(prefix="hb") as folder:
            measured = {
                size: measure(bare, pages, size, args, Path(folder)) for size in args.batches
            }
    finally:
        bare.close()
    first = measured[args.batches[0]]["bare"]
    print("batch | docs/s: bare loop    engine | engine / bare at 1 | at the same batch |   equal")
    for size, of in measured.items():
        bare_rate, rate = (len(pages) / of[way].seconds for way in ("bare", "streams"))
        equal = sum(a == b for a, b in zip(of["streams"].texts, first.texts, strict=True))
        print(
            f"{size:5} | {bare_rate:17.1f} {rate:9.1f} | {rate * first.seconds / len(pages):19.2f} "
            f"| {rate / bare_rate:17.2f} | {equal:3}/{len(pages):3}"
        )
    print("\nbatch | CPU µs a token: bare loop    whole  streams | chunks a token")
    for size, of in measured.items():
        tokens = of["whole"].units
        costs = [of[way].cpu / tokens * 1e6 for way in ("bare", "whole", "streams")]
        chunks = of["streams"].units / tokens
        print(f"{size:5} | {costs[0]:25,.0f} {costs[1]:8,.0f} {costs[2]:8,.0f} | {chunks:14.2f}")


def measure(
    bare: Bare, pages: Sequence[Path], size: int, args: Any, folder: Path
) -> dict[str, Run]:
    """The best of each way's rounds."""
    engine = Engine(folder, args.threads, size)
    runs: dict[str, list[Run]] = {"bare": [], "whole": [], "streams": []}
    try:
        engine.run(pages[: 2 * size], 2 * size)
        for _ in range(args.rounds):
            runs["bare"].append(bare.run(pages, size))
            runs["streams"].append(engine.run(pages, 2 * size))
            runs["whole"].append(engine.run(pages, 2 * size, stream=False))
    finally:
        engine.close()
    best = {way: min(found, key=lambda run: run.seconds) for way, found in runs.items()}
    for way, found in runs.items():
        best[way].cpu = min(run.cpu for run in found)
    return best


if __name__ == "__main__":
    main()
