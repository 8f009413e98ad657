"""`hpcbench status --json` of an experiment with 10,000 shards, as a whole process, beside its floor.

The experiment is made up as it is shortly before the end of a round, when there is most to look at:
nothing is folded yet, 200 workers have a shard in hand, with answers that have to be counted, and of the
others nine in ten are done. Beside it, on the very same files: a bare Python that lists the folders
and reads every file of events there is, and no answers (the floor); and the way of peers, a `stat` and a JSON
file for each element. Medians of whole processes, run in turn. The page cache is warm unless `--cold` drops
it before each run, which needs root and slows all users of the machine. Our byte code is there, as after an
installation.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import write_atomic, write_json
from hpcbench.planning import plan_work
from tests.unit import small

TASKS, SHARDS, SAMPLES, WORKERS = 20, 500, 4, 200

FLOOR = """
import os, sys
found = 0
for task in os.scandir(sys.argv[1]):
    for one in os.scandir(task.path):
        if one.name.endswith(".events.jsonl") or one.name == "folded.jsonl":
            with open(one.path, "rb") as file:
                if one.name == "folded.jsonl":
                    file.seek(-80, 2)
                found += len(file.read())
"""

PEERS = """
import json, os, sys
for number in range(int(sys.argv[2])):
    path = f"{sys.argv[1]}/{number}_result.json"
    os.stat(path)
    with open(path) as file:
        json.load(file)
"""


def main() -> None:
    """Make the experiment, time the commands in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="drop the page cache before each run")
    asked = parser.parse_args()
    compileall.compile_dir(Path(__file__).parent.parent / "hpcbench", quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        here = _scene(Path(folder))
        peers = _peers(Path(folder) / "peers", TASKS * SHARDS)
        waiting = [sys.executable, "-c", "import time; time.sleep(3600)", str(here.path)]
        with subprocess.Popen(waiting) as supervisor:
            with EventLog(here.submission_file) as log:
                log.write("round", round=0, groups=[])
                log.write("intent", step="supervise")
                log.write(
                    "submitted", step="supervise", job=f"{os.uname().nodename}:{supervisor.pid}"
                )
                log.write("handed")
            try:
                _table(here, peers, asked.runs, asked.cold)
            finally:
                supervisor.kill()


def _table(here: Experiment, peers: Path, runs: int, cold: bool) -> None:
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "floor: list and read events": [sys.executable, "-c", FLOOR, str(here.path / "shards")],
        "peers: a stat and JSON each": [sys.executable, "-c", PEERS, str(peers), str(TASKS * SHARDS)],
        "hpcbench --help": [sys.executable, "-m", "hpcbench.cli.main", "--help"],
        "hpcbench status --json": [
            sys.executable, "-m", "hpcbench.cli.main", "status", "--json", str(here.path),
        ],
    }  # fmt: skip
    reported = json.loads(
        subprocess.run(commands["hpcbench status --json"], check=True, stdout=-1).stdout
    )
    assert sum(sum(task["shards"].values()) for task in reported["run_tasks"]) == TASKS * SHARDS, (
        reported
    )
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, argv in commands.items():
            if cold:
                os.sync()
                Path("/proc/sys/vm/drop_caches").write_text("3")
            started = time.perf_counter()
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - started)
    files = sum(len(names) for _, _, names in os.walk(here.path / "shards"))
    print(
        f"{TASKS * SHARDS} shards of {TASKS} run tasks in {files} files, {WORKERS} workers; "
        f"page cache {'cold' if cold else 'warm'}"
    )
    for name, values in times.items():
        print(
            f"{name:<30}{statistics.median(values) * 1e3:>8.0f} ms   (to {max(values) * 1e3:.0f})"
        )


def _scene(folder: Path) -> Experiment:
    """An experiment in the middle of its life, and a home that has no other one."""
    os.environ["HPCBENCH_HOME"] = str(folder)
    names = [f"rt{number:02d}" for number in range(TASKS)]
    data = small.write_dataset(folder / "data", [small.record(0)])
    tasks = [small.run_task(name, dataset={"source": str(data)}) for name in names]
    plan = small.resolved(*tasks, shard_size=SAMPLES, executor="local")
    work = plan_work(plan, small.measured(plan, SHARDS * SAMPLES))
    assert len(work.shards) == TASKS * SHARDS, len(work.shards)
    here = Experiment(folder / "experiments" / "20261120-1432-plan-aaaa")
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.manifest_file, {"work": asdict(work), "measured": {}})
    held = WORKERS // TASKS
    for number, name in enumerate(names):
        here.shards_dir(name).mkdir(parents=True)
        for index in range(SHARDS * 9 // 10):
            worker = number * held + index % held
            _shard(here, name, index, worker, done=index >= held)
    for worker in range(WORKERS):
        with EventLog(here.worker_events("g0", f"17_{worker}-0")) as log:
            log.write("started", owner=_owner(worker), hpcbench="0", gpus="0")
            log.write("model_loading", model="m")
            log.write("model_ready", model="m", seconds=30.0, versions={})
            own = range(worker % held, SHARDS * 9 // 10, held)
            for index in (*own[1:], own[0]):  # the first is the one it has in hand
                place = {"shard": f"{names[worker // held]}/{index:05d}", "attempt": 1}
                log.write("shard_claimed", **place)
                for answered in range(SAMPLES):
                    log.write("progress", shard=place["shard"], answered=answered)
                if index >= held:
                    log.write("shard_done", **place, began=1e9, ended=1e9 + 60, answered=SAMPLES)
    return here


def _shard(here: Experiment, name: str, index: int, worker: int, *, done: bool) -> None:
    """One attempt at a shard; not forced to the disk, there are so many."""
    started = {"event": "claimed", "seq": 1, "time": 1e9, "version": 1, "owner": _owner(worker)}
    lines = [started, {"event": "done", "seq": 2, "time": 1e9 + 60, "answered": SAMPLES}]
    _write(here.shard_events(name, index, 1), lines if done else lines[:1])
    answers = [small.response(f"s{index * SAMPLES + n}", "word " * 200) for n in range(SAMPLES)]
    own = answers if done else answers[:2]
    _write(here.shard_responses(name, index, 1), [one.to_json() for one in own])


def _owner(number: int) -> dict[str, object]:
    job = f"17_{number % WORKERS}"
    return {"job": job, "restart": 0, "host": os.uname().nodename, "pid": 1, "node": "n1"}


def _write(path: Path, lines: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def _peers(folder: Path, count: int) -> Path:
    """A folder with a small result for each element."""
    folder.mkdir()
    for number in range(count):
        result = {"state": "COMPLETED", "job": f"17_{number}", "seconds": 60.0, "result": None}
        (folder / f"{number}_result.json").write_text(json.dumps(result))
    return folder


if __name__ == "__main__":
    main()
