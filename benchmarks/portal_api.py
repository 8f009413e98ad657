"""The portal's API with eight clients, on 10,000 run tasks with 10,000,000 samples, SQLite and PostgreSQL.

Starts the real portal (`hpcbench portal`) on a home that `portal_home.py` made, and asks every kind of page
with one and with eight clients, each over a connection of its own to the portal's socket. Prints the median
and the slowest of a hundred requests (p99): of pages drawn at random, so nearly each for the first time, and
of the same eight pages again and again. Also how many times the floor the median is (`/healthz` through the
same server and guard, which does nothing), and the portal's own CPU time for a request, which others on the
machine do not change. Then how long a start takes until the first list is there, how many run tasks a second
are read into a new index, how long it then takes until all are read as a whole (the portal does so in
pauses between requests, with a quarter of a core), and the memory of the process (PSS) after a start without
a client, after each room's pages, and a while after the last. An answer that is not 200, or is empty, is
printed; but for whole experiments that are compared, where 202 says how far the comparison is, as the page
asks for it: its time is printed after it.

    python benchmarks/portal_api.py [--home FOLDER] [--index postgresql://…] [--requests 400] [--rooms B]

Without --home a small home is made and thrown away: figures of that say little. With --index everything is
measured twice. Goals, on two cores that do nothing else: p99 below 100 ms with eight clients, below 100 MB
without a client and 300 MB after all pages, a start with an index below 1.5 s. Our byte code is there, as
after an installation.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import aiohttp

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

CLIENTS = 8
GOAL_MS, GOAL_MB, GOAL_ALONE_MB, GOAL_START = 100.0, 300.0, 100.0, 1.5

ALONE_SECONDS, RESTED_SECONDS = 5.0, 10.0
"""When memory is measured: after a start without requests, and after the last request."""

BUILD = """
import json, os, sys, time
from pathlib import Path
from hpcbench.portal.follower import Follower
from hpcbench.portal.broadcast import Hub
from hpcbench.portal.index import RunTaskQuery, open_index
from hpcbench.portal.context import Options, Portal
home = Path(sys.argv[1])
portal = Portal(home, Options(home), open_index(sys.argv[2] or None, home), Hub())
follower = Follower(portal)
started = time.perf_counter()
follower.start()
assert follower._whole.wait(3600)
figures = {"seconds": time.perf_counter() - started, "busy": time.process_time()}
while portal.index.unknown():
    time.sleep(0.2)
figures["looked"] = time.perf_counter() - started - figures["seconds"]
print(json.dumps({**figures, "stamps": len(portal.index.stamps())}))
follower.stop()
"""


@dataclass
class Home:
    """A home, and the experiments in it that are asked about."""

    folder: Path
    """Home of the experiments."""
    ended: list[str]
    """Experiments with scores."""
    answered: list[str]
    """Those of them with responses."""
    run_tasks: list[str]
    """Names of run tasks, the same in all."""
    samples: int
    """Samples of each."""
    pairs: list[str] = field(default_factory=list)
    """Pairs of experiments that are compared as a whole."""
    unseen: list[str] = field(default_factory=list)
    """Experiments whose page was not requested."""
    chance: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311 - a sample

    @classmethod
    def of(cls, folder: Path) -> Home:
        """A home that `portal_home.py` made."""
        paths = sorted((folder / "experiments").iterdir())
        ended = [one.name for one in paths if (one / "outcome.json").exists()]
        resolved = json.loads((paths[0] / "resolved.json").read_text())
        names = [one["task"]["name"] for one in resolved["run_tasks"]]
        manifest = json.loads((paths[0] / "manifest.json").read_text())
        with_answers = [
            one
            for one in ended[-20:]
            if (folder / "experiments" / one / "shards" / names[0] / "folded.jsonl").stat().st_size
            > 20_000
        ]
        return cls(folder, ended, with_answers, names, manifest["work"]["cuts"][0]["samples"])

    def some(self, of: Sequence[str]) -> str:
        """One of them."""
        return quote(self.chance.choice(of))

    def place(self) -> int:
        """Place of a sample."""
        return self.chance.randrange(self.samples)


@dataclass(frozen=True)
class Kind:
    """A kind of request."""

    name: str
    """For people."""
    path: Callable[[Home], str]
    """A request of it, below the API."""
    room: str = "B"
    """Whose it is."""


def _task(home: Home, answered: bool = True) -> str:
    some = home.answered if answered and home.answered else home.ended
    return f"experiments/{home.some(some)}/run-tasks/{home.some(home.run_tasks)}"


def _pair(home: Home) -> str:
    if not home.pairs:
        two = [home.chance.sample(home.ended, 2) for _ in range(2)]
        home.pairs = [f"compare?runs={one}&runs={other}&wait=0" for one, other in two]
    return home.chance.choice(home.pairs)


def _flips(home: Home) -> str:
    one, other = home.chance.sample(home.ended, 2)
    return f"baseline={one}&candidate={other}&run_task={home.some(home.run_tasks)}"


def _columns(home: Home) -> str:
    wanted = [f"pages{home.chance.randrange(9):02}:anls" for _ in range(3)]
    columns = "".join(f"&column={one}" for one in dict.fromkeys(wanted))
    return f"experiments?limit=100&sort={wanted[0]}{columns}"


SORTS = ("created", "updated", "score", "gpu_hours", "id", "answered", "failures")
TASK_SORTS = (
    "name",
    "score",
    "latency_p95",
    "coverage",
    "model",
    "tokens_per_second",
    "experiment",
)
WORDS = ("nightly1", "2026 vl", "root")
TASK_WORDS = ("72b", "pages03", "vl 7b")
TYPED = ("vl", "pages03", "night", "2026", "p", "72b")
WRONG = "samples?wrong=true&sort=latency&order=desc"

KINDS: tuple[Kind, ...] = (
    Kind("experiments", lambda home: f"experiments?sort={home.some(SORTS)}"),
    Kind("experiments, columns", _columns),
    Kind("score columns", lambda _: "experiments/score-columns"),
    Kind("experiments, text", lambda home: f"experiments?text={home.some(WORDS)}"),
    Kind("experiment facets", lambda _: "experiments/facets"),
    Kind("experiment, first time", lambda home: f"experiments/{home.unseen.pop()}"),
    Kind("experiment", lambda home: f"experiments/{home.some(home.ended)}"),
    Kind("run tasks of one", lambda home: f"experiments/{home.some(home.ended)}/run-tasks?limit=100"),
    Kind("all run tasks, sorted", lambda home: f"run-tasks?sort={home.some(TASK_SORTS)}&limit=100"),
    Kind("all run tasks, text", lambda home: f"run-tasks?text={home.some(TASK_WORDS)}&limit=100"),
    Kind("run task facets", lambda home: f"run-task-facets?model=vl-0{home.chance.randrange(9)}-3b"),
    Kind("shards of one", lambda home: _task(home).replace("run-tasks", "objects")),
    Kind("palette", lambda home: f"search?text={home.some(TYPED)}"),
    Kind("samples", lambda home: f"{_task(home)}/samples", "C"),
    Kind("samples, wrong, slowest", lambda home: f"{_task(home)}/{WRONG}", "C"),
    Kind("samples, text", lambda home: f"{_task(home)}/samples?text=item7", "C"),
    Kind("sample facets", lambda home: f"{_task(home)}/samples/facets", "C"),
    Kind("sample", lambda home: f"{_task(home)}/samples/{home.place()}", "C"),
    Kind("thumbnail", lambda home: f"{_task(home)}/samples/{home.place()}/images/0", "C"),
    Kind("comparison, being made", _pair, "C"),
    Kind("comparison, made", _pair, "C"),
    Kind("flips", lambda home: f"compare/flips?{_flips(home)}", "C"),
    Kind("run task", lambda home: _task(home), "E"),
    Kind("resources", lambda home: f"experiments/{home.some(home.ended)}/resources", "E"),
    Kind("logs", lambda home: f"experiments/{home.some(home.ended)}/logs", "E"),
    Kind("figures", lambda home: f"experiments/{home.some(home.ended)}/figures", "E"),
    Kind("configuration", lambda home: f"experiments/{home.some(home.ended)}/configuration/whole", "E"),
    Kind("provenance", lambda home: f"experiments/{home.some(home.ended)}/provenance", "E"),
    Kind("regressions", lambda _: "regressions", "E"),
)  # fmt: skip


@dataclass(frozen=True)
class Running:
    """A portal that runs."""

    process: subprocess.Popen[bytes]
    """Its process."""
    socket: Path
    """Where it serves."""
    token: str
    """Token of the portal."""
    started: float
    """When it was started, by the clock of performance."""
    first: float
    """Seconds from its start to the first byte."""

    def busy(self) -> float:
        """Seconds that its threads have worked."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def first_list(self) -> float:
        """Ask for the list of experiments until it is there; seconds since the start."""
        path = "/api/v1/experiments"
        return _until(
            self.process,
            lambda: asyncio.run(_status(self.socket, self.token, path)),
            self.started,
        )

    def memory(self) -> float:
        """Memory that it holds now, with its share of pages that others hold, too (PSS), MB."""
        return self._kilobytes("smaps_rollup", "Pss") * 1.024e-3

    def peak(self) -> float:
        """The most memory that it held, MB."""
        return self._kilobytes("status", "VmHWM") * 1.024e-3

    def _kilobytes(self, file: str, name: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/{file}").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


@contextmanager
def portal(home: Home, folder: Path, index: str | None) -> Iterator[Running]:
    """A real portal as its users start it, with folders of its own."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    environ = {
        **os.environ, "HPCBENCH_HOME": str(home.folder), "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"), "XDG_RUNTIME_DIR": str(runtime),
        "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    argv = [
        sys.executable,
        "-m",
        "hpcbench.cli.main",
        "portal",
        *(["--index", index] if index else []),
    ]
    started = time.perf_counter()
    place = runtime / "hpcbench"
    with subprocess.Popen(argv, env=environ, cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            first = _until(
                process,
                lambda: asyncio.run(_status(place / "portal.sock", "", "/healthz")),
                started,
            )
            token = (place / "portal.token").read_text().strip()
            yield Running(process, place / "portal.sock", token, started, first)
        finally:
            process.terminate()
            process.wait()


def _until(process: subprocess.Popen[bytes], look: Callable[[], int], started: float) -> float:
    while process.poll() is None:
        try:
            if look() == 200:
                return time.perf_counter() - started
        except (OSError, aiohttp.ClientError):
            pass
        time.sleep(0.01)
    raise SystemExit("the portal did not start")


def _client(socket: Path, token: str, clients: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.UnixConnector(str(socket), limit=clients),
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )


async def _status(socket: Path, token: str, path: str) -> int:
    async with _client(socket, token, 1) as client, client.get(f"http://localhost{path}") as answer:
        await answer.read()
        return answer.status


async def timed(running: Running, paths: list[str], clients: int) -> tuple[list[float], str]:
    """Seconds of each request, and what was wrong with one of them."""
    times: list[float] = []
    wrong = ""
    waiting = iter(paths)

    async def work(client: aiohttp.ClientSession) -> None:
        nonlocal wrong
        for path in waiting:
            started = time.perf_counter()
            async with client.get(f"http://localhost{path}") as answer:
                body = await answer.read()
            times.append(time.perf_counter() - started)
            later = answer.status == 202
            if (answer.status != 200 and not later) or not body:
                wrong = f"{answer.status} {path}: {body[:120].decode(errors='replace')}"

    async with _client(running.socket, running.token, clients) as client:
        await asyncio.gather(*(work(client) for _ in range(clients)))
    return times, wrong


def percentile(times: list[float], share: float) -> float:
    """In milliseconds."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))] * 1e3


def table(running: Running, home: Home, requests: int) -> list[str]:
    """Print all kinds; returns those that miss the goal."""
    floor, _ = asyncio.run(timed(running, ["/healthz"] * requests, CLIENTS))
    base = statistics.median(floor) * 1e3
    heads = "1 client", f"{CLIENTS} clients", "× floor", "CPU, ms", "the same pages", "CPU, ms"
    print(f"{'':<28}{{:>18}}{{:>18}}{{:>9}}{{:>8}}{{:>18}}{{:>8}}".format(*heads))
    print(
        f"{'p50 / p99, ms':<28}{'':>18}{base:>9.1f} /{percentile(floor, 0.99):>6.1f}   1.0  /healthz"
    )
    missed, room = [], KINDS[0].room
    home.unseen = list(home.ended)
    for kind in KINDS:
        if kind.room != room:
            print(
                f"memory after {room}: {running.memory():.0f} MB, at most {running.peak():.0f} MB"
            )
            room = kind.room
        if kind.name == "comparison, made":
            started = time.perf_counter()
            for path in home.pairs:
                while asyncio.run(_status(running.socket, running.token, f"/api/v1/{path}")) == 202:
                    time.sleep(0.5)
            print(
                f"C {len(home.pairs)} whole comparisons, made {time.perf_counter() - started:.1f} s later"
            )
        few = min(requests, len(home.ended)) if "first" in kind.name else requests
        paths = [f"/api/v1/{kind.path(home)}" for _ in range(few)]
        if "first" in kind.name:
            alone_paths, paths = paths[: few // 4], paths[few // 4 :]
        else:
            alone_paths = paths[: max(8, requests // 8)]
        alone, wrong = asyncio.run(timed(running, alone_paths, 1))
        if wrong:
            print(f"{kind.room} {kind.name:<26} {wrong}")
            continue
        before = running.busy()
        times, wrong = asyncio.run(timed(running, paths, CLIENTS))
        work = (running.busy() - before) / len(paths) * 1e3
        slow, middle = percentile(times, 0.99), percentile(times, 0.5)
        again, _ = asyncio.run(timed(running, paths[:CLIENTS], CLIENTS))
        before = running.busy()
        again, _ = asyncio.run(timed(running, paths[:CLIENTS] * (requests // 16), CLIENTS))
        same = (running.busy() - before) / len(again) * 1e3
        print(
            f"{kind.room} {kind.name:<26}{percentile(alone, 0.5):>8.1f} /{percentile(alone, 0.99):>7.1f}"
            f"{middle:>9.1f} /{slow:>7.1f}{middle / base:>8.1f}{work:>8.1f}"
            f"{percentile(again, 0.5):>9.1f} /{percentile(again, 0.99):>7.1f}{same:>8.1f} {wrong}",
            flush=True,
        )
        if slow > GOAL_MS:
            missed.append(f"{kind.room} {kind.name} {slow:.0f} ms")
    return missed


def build(home: Home, folder: Path, index: str | None) -> dict[str, Any]:
    """Make the index again; returns how long it took."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(home.folder), index or ""],
        env=environ, stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(home: Home, index: str | None, requests: int) -> list[str]:
    """Everything through one database; returns what misses its goal."""
    with tempfile.TemporaryDirectory(prefix="hpcbench-api-") as name:
        folder = Path(name)
        reported = build(home, folder, index)
        tasks, took = reported["stamps"] * len(home.run_tasks), reported["seconds"]
        print(f"== {'PostgreSQL' if index else 'SQLite'}")
        print(
            f"index of {tasks:,} run tasks made in {took:.1f} s, {tasks / took:,.0f} run tasks/s; "
            f"CPU with imports {reported['busy']:.1f} s; all read after {reported['looked']:.0f} s more"
        )
        with portal(home, folder, index) as running:
            time.sleep(ALONE_SECONDS)
            alone = running.memory()
        print(f"memory without a client, {ALONE_SECONDS:.0f} s after a start: {alone:.0f} MB")
        with portal(home, folder, index) as running:
            started = running.first_list()
            print(
                f"start with the index: first byte after {running.first:.2f} s, first list "
                f"{started:.2f} s, CPU {running.busy():.2f} s"
            )
            missed = table(running, home, requests)
            memory, peak = running.memory(), running.peak()
            time.sleep(RESTED_SECONDS)
            rested = running.memory()
        print(
            f"memory after all pages {memory:.0f} MB, at most {peak:.0f} MB; "
            f"{RESTED_SECONDS:.0f} s later {rested:.0f} MB"
        )
        if started > GOAL_START:
            missed.append(f"start {started:.2f} s")
        if alone > GOAL_ALONE_MB:
            missed.append(f"memory without a client {alone:.0f} MB")
        if memory > GOAL_MB:
            missed.append(f"memory after all pages {memory:.0f} MB")
        return missed


def _without_password(url: str) -> str:
    """The address without its password, which goes to where PostgreSQL's own programs look for it."""
    found = urlsplit(url)
    if found.password:
        os.environ["PGPASSWORD"] = unquote(found.password)
    port = f":{found.port}" if found.port else ""
    return found._replace(netloc=f"{found.username}@{found.hostname}{port}").geturl()


def main() -> None:
    """Measure, and say what misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, help="made by portal_home.py; none: a small one")
    parser.add_argument("--index", help="measure through this PostgreSQL, too")
    parser.add_argument(
        "--requests", type=int, default=400, help="of each kind, with eight clients"
    )
    parser.add_argument("--rooms", default="BCE", help="of which rooms")
    asked = parser.parse_args()
    compileall.compile_dir(ROOT / "hpcbench", quiet=1)
    global KINDS
    KINDS = tuple(kind for kind in KINDS if kind.room in asked.rooms)
    with tempfile.TemporaryDirectory() as name:
        if asked.home is None:
            from portal_home import Size, make

            make(Size(Path(name), 6, 12, 100, 3), tell=lambda _: None)
        home = Home.of((asked.home or Path(name)).resolve())
        print(f"{len(home.ended)} experiments × {len(home.run_tasks)} run tasks × {home.samples:,} samples; "
              f"load of the machine {os.getloadavg()[0]:.1f}")  # fmt: skip
        missed = measure(home, None, asked.requests)
        if asked.index:
            missed += measure(home, _without_password(asked.index), asked.requests)
    print("misses its goal: " + "; ".join(missed) if missed else "all goals are met")


if __name__ == "__main__":
    main()
