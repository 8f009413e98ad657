"""A dataset through client and wrapper, beside the same requests sent to vLLM itself, and beside `LLM.chat`.

One real vLLM on CPUs serves the tiny model. The very same bodies go five ways: hpcbench's client by the
direct route; through the wrapper (`proxied`); to the engine's own socket as if there were no wrapper
(`engine`); from a bare aiohttp loop to that socket (`bare`); and from that loop through a relay that copies
bytes and does nothing else (`copied`), which says what any hop costs here, since client and hop take
processor time from an engine that would use every core. One request at a time, the ways alternate with every
page, bodies made before as `drive` makes them ahead of their turn; the ratio of pages a second comes
with a bootstrap interval over the pairs, and beside it the median pair, which other work on the machine moves
less. Many at a time, through `drive`, the ways alternate with every round of all
pages, and the CPU time of each process is shown, too. Then vLLM's offline `LLM.chat` reads the same
pages (not with `--no-offline`). Figures depend on the machine and on what else runs there.

On a GPU no core is short, and the ratios many at a time are those of the wrapper: `--model` names one of true
size there (`benchmarks/gpu/random_vlm.py FOLDER` makes one).

For the ratio of two ways alone, `--ways` leaves out the others: each page, or round of few pages,
then has its neighbour of the other way at once. `--pin` gives vLLM all cores but the last one, and client and
wrapper that one, so that no process moves between them. Six minutes on two cores:

    python benchmarks/through_wrapper.py --ways direct engine --pin --no-offline --docs 32 --rounds 20 \\
        --many-rounds 150

    python benchmarks/through_wrapper.py [--vllm PYTHON] [--docs 64] [--rounds 3] [--at-once 32]
    python benchmarks/through_wrapper.py --gpus 1 --model FOLDER --vllm PYTHON --at-once 1 8 64 256
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
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from pairs import bootstrap, median_interval
from wrapped import KEY, ROOT, Wrapper

from hpcbench.inference.client import Client
from hpcbench.inference.direct import IDLE_SECONDS
from hpcbench.inference.load_driver import drive
from hpcbench.inference.request_body import prepare
from hpcbench.schema.records import Message, Request
from hpcbench.wrapper.bodies import same_rules

MODEL, PAGES = ROOT / "examples/demo/model", ROOT / "examples/demo/data/images/easy"
THREADS = 1
"""Threads of PyTorch on CPUs, in the server and in the offline engine: the others are for the clients."""
NAME, PROMPT = "tiny", "Read all text."

OFFLINE = """\
import json, sys, time
from vllm import LLM, SamplingParams
ask = json.load(open(sys.argv[1]))
llm = LLM(ask["model"], dtype=ask["dtype"], mm_processor_cache_gb=0, enable_prefix_caching=False,
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

WAYS = ("direct", "proxied", "engine", "bare", "copied")
COMPARED = (
    ("direct", "engine"),
    ("proxied", "engine"),
    ("proxied", "bare"),
    ("copied", "bare"),
    ("direct", "bare"),
)
"""Each way and the one that it is compared with."""

Way = Callable[[Sequence[Request], int], Awaitable[None]]
"""Asks requests, so many at a time."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", default="/var/lib/hpcbench-lab/vllm/bin/python")
    parser.add_argument("--docs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many-rounds", type=int, help="of all pages at once (--rounds)")
    parser.add_argument("--at-once", type=int, nargs="+", default=[32])
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--no-offline", action="store_true")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument(
        "--pin", action="store_true", help="vLLM and the clients to their own cores"
    )
    args = parser.parse_args()
    pages = sorted(PAGES.glob("*.png"))
    timed, warm = pages[: args.docs], pages[-16:]
    print(
        f"{len(timed)} pages, {args.rounds} rounds, {len(os.sched_getaffinity(0))} cores, "
        f"load before {os.getloadavg()[0]:.1f}"
    )
    with Served(args.vllm, args.model, args.gpus) as served:
        texts = asyncio.run(measure(served, requests(timed), requests(warm), args))
    if not args.no_offline:
        offline(args, timed, warm, texts)


def requests(pages: Iterable[Path]) -> list[Request]:
    """Requests about each page."""
    generation = {"temperature": 0, "max_tokens": 96}
    return [
        Request(page.stem, (Message("user", PROMPT, (page,)),), generation, 120) for page in pages
    ]


class Served(Wrapper):
    """vLLM behind the wrapper, and a relay to vLLM."""

    def __init__(self, python: str, model: Path, gpus: int) -> None:
        super().__init__(python)
        self.model, self.gpus = model, gpus
        self.relay: subprocess.Popen[bytes] | None = None

    def __exit__(self, *error: object) -> None:
        if self.relay is not None:
            self.relay.kill()
            self.relay.wait()
        super().__exit__(*error)

    async def start(self, client: Client) -> None:
        """Have vLLM serve the model."""
        limits = limits_on(self.gpus)
        loaded = await self.load(
            client, 1200, engine="vllm", model_path=str(self.model), model_name=NAME,
            dtype=dtype_on(self.gpus), context_length=limits.pop("max_model_len"), options=limits,
            images=1, gpus=self.gpus, cpus=len(os.sched_getaffinity(0)) if self.gpus else THREADS + 1,
        )  # fmt: skip
        self.engine = int(loaded["pid"])
        version = next((v for k, v in loaded["versions"].items() if k.startswith("vllm")), "?")
        print(f"vLLM {version} ready after {loaded['seconds']:.0f} s")

    def pin(self) -> None:
        """vLLM to all cores but the last one, this process and the wrapper to that one."""
        *others, last = sorted(os.sched_getaffinity(0))
        for pid in family(self.process.pid):
            cores = others if pid in family(self.engine) else [last]
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cores)
        os.sched_setaffinity(0, [last])

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far of this process, the wrapper, and the engine with all it started."""
        return {
            "client": time.process_time(),
            "wrapper": cpu_seconds([self.process.pid]),
            "engine": cpu_seconds(family(self.engine)),
        }


def limits_on(gpus: int) -> dict[str, Any]:
    """Options of the server and of the offline engine alike; so is that neither caches images or prefixes."""
    return {"max_model_len": 4096 if gpus else 1024, "max_num_seqs": 32, "enforce_eager": not gpus}


def dtype_on(gpus: int) -> str:
    """Number format of the weights."""
    return "bfloat16" if gpus else "float32"


async def measure(
    served: Served, timed: list[Request], warm: list[Request], args: argparse.Namespace
) -> dict[str, str]:
    """All ways, one at a time and many at a time; returns the answers."""
    async with Client(str(served.socket), KEY, NAME, rules=same_rules) as proxied:
        await served.start(proxied)
        relay = await relayed(served)
        async with (
            Client(str(served.socket), KEY, NAME, rules=same_rules) as direct,
            Client(str(served.engine_socket), "", NAME) as engine,
            bare(served.engine_socket) as session,
            bare(relay) as copied,
        ):
            assert await direct.take("direct") == "direct"
            engine._connections._idle_seconds = IDLE_SECONDS  # vLLM closes idle ones after 5 s
            bodies = {one.sample_id: prepare(NAME, one)[0] for one in (*timed, *warm)}
            if args.pin:
                served.pin()
            clients = {"direct": direct, "proxied": proxied, "engine": engine}
            loops = {"bare": session, "copied": copied}
            clients = {name: one for name, one in clients.items() if name in args.ways}
            loops = {name: one for name, one in loops.items() if name in args.ways}
            ways = {name: through(client) for name, client in clients.items()}
            if "bare" in loops:
                ways["bare"] = posted(session, bodies)
            for way in ways.values():
                await way(warm, 4)
            texts = await one_at_a_time(clients, loops, timed, args.rounds)
            for at_once in args.at_once:
                await many_at_a_time(served, ways, timed, args.many_rounds or args.rounds, at_once)
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


def posted(session: aiohttp.ClientSession, bodies: dict[str, bytes]) -> Way:
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
    clients: dict[str, Client],
    loops: dict[str, aiohttp.ClientSession],
    timed: list[Request],
    rounds: int,
) -> dict[str, str]:
    """Every page each way, the first way by turns; prints the ratios of pages a second."""
    walls: dict[str, list[float]] = {name: [] for name in (*clients, *loops)}
    texts = {}
    prepared = [await next(iter(clients.values())).prepare(request) for request in timed]
    for number, one in enumerate(prepared * rounds):
        answers = {}
        for name in (list(walls) * 2)[number % len(walls) :][: len(walls)]:
            begin = time.perf_counter()
            if name in clients:
                response = await clients[name].send(one, time.monotonic_ns())
                walls[name].append(time.perf_counter() - begin)
                answers[name] = response.text or ""
            else:
                raw = await post(loops[name], one.body)
                walls[name].append(time.perf_counter() - begin)
                answers[name] = said(raw)
        assert len(set(answers.values())) == 1, answers
        texts[one.request.sample_id] = next(iter(answers.values()))
    count = len(prepared) * rounds
    print(f"\none at a time, {count} pages each way, load {os.getloadavg()[0]:.1f}")
    for name, seconds in walls.items():
        print(
            f"  {name:<8} {count / sum(seconds):7.2f} pages/s   "
            f"median {statistics.median(seconds) * 1000:6.1f} ms a page"
        )
    for one_way, other in pairs_of(walls):
        added = [a - b for a, b in zip(walls[one_way], walls[other], strict=True)]
        print(
            f"{ratio_of(one_way, other, walls)}; "
            f"added to a page: median {statistics.median(added) * 1000:.2f} ms"
        )
    return texts


def pairs_of(walls: dict[str, list[float]]) -> list[tuple[str, str]]:
    """The pairs of ways to be compared, of those that were measured."""
    return [pair for pair in COMPARED if set(pair) <= set(walls)]


def ratio_of(one_way: str, other: str, walls: dict[str, list[float]]) -> str:
    """Ratio of two ways' rates: of all pairs together, and of the median pair; both with intervals."""
    ours, theirs = walls[one_way], walls[other]
    low, high = bootstrap(theirs, ours)
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    middle, least, most = median_interval(each)
    return (
        f"  {one_way} ÷ {other} = {sum(theirs) / sum(ours):.3f}  (95 % interval {low:.3f} to {high:.3f}); "
        f"median of {len(each)} pairs {middle:.3f} ({least:.3f} to {most:.3f})"
    )


async def many_at_a_time(
    served: Served, ways: dict[str, Way], timed: list[Request], rounds: int, at_once: int
) -> None:
    """CPU of each process for a request, all ways in turns."""
    spent: dict[str, dict[str, float]] = {name: {} for name in ways}
    walls: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in (list(ways) * 2)[number % len(ways) :][: len(ways)]:
            before, begin = served.cpu(), time.perf_counter()
            await ways[name](timed, at_once)
            walls[name].append(time.perf_counter() - begin)
            for process, seconds in served.cpu().items():
                more = seconds - before[process]
                spent[name][process] = spent[name].get(process, 0.0) + more
    count = rounds * len(timed)
    print(
        f"\n{at_once} at a time, {rounds} rounds, load {os.getloadavg()[0]:.1f}: pages/s, CPU ms a request"
    )
    print(f"  {'':<8} {'pages/s':>7} {'client':>8} {'wrapper':>8} {'engine':>8}")
    for name, processes in spent.items():
        shown = "".join(f" {processes[p] / count * 1000:8.2f}" for p in processes)
        print(f"  {name:<8} {count / sum(walls[name]):7.2f}{shown}")
    for one_way, other in pairs_of(walls):
        print(ratio_of(one_way, other, walls))


def offline(
    args: argparse.Namespace, timed: list[Path], warm: list[Path], texts: dict[str, str]
) -> None:
    """The same pages in one call of vLLM's offline engine."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "ask.json"), Path(folder, "answer.json")
        bodies = [json.loads(prepare(NAME, one)[0])["messages"] for one in requests(timed)]
        before = [json.loads(prepare(NAME, one)[0])["messages"] for one in requests(warm)]
        ask: dict[str, Any] = {"model": str(args.model), "limits": limits_on(args.gpus)}
        ask |= {"messages": bodies, "warm_up": before, "rounds": args.rounds}
        ask |= {"dtype": dtype_on(args.gpus), "max_tokens": 96}
        asked.write_text(json.dumps(ask))
        quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        quiet |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        quiet |= {"OMP_NUM_THREADS": str(THREADS), "VLLM_LOGGING_LEVEL": "WARNING"}  # vLLM on CPUs
        log = Path(folder, "log")
        with log.open("wb") as out:
            done = subprocess.run(
                [args.vllm, "-c", OFFLINE, str(asked), str(answered)],
                env={**os.environ, **quiet}, stdout=out, stderr=out, check=False,
            )  # fmt: skip
        if done.returncode:
            sys.exit(log.read_text()[-3000:])
        found = json.loads(answered.read_text())
    same = sum(a == texts[page.stem] for a, page in zip(found["texts"], timed, strict=True))
    rate = len(found["walls"]) * len(timed) / sum(found["walls"])
    print(
        f"\noffline LLM.chat, all at once: {rate:.2f} pages/s; {same} of {len(timed)} answers equal"
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
