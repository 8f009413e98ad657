"""Truth under failure: what hpcbench and a bare submitit say of 100 elements after faults, and what is so.

The same faults for both, on the one-machine cluster: the submitting process is killed with -9 half-way and
the command is given again; then, among the elements at work, one in ten is killed with -9, one in ten is
requeued, and a node is set down and back. So many seconds after the last fault (`--patience`) it is counted:

    wrong        elements whose state, as the tool tells it, is not what is so: whether its work is on the
    disk lost         elements whose work is not on the disk, though nothing is at it any more
    twice        elements whose work was done twice: for hpcbench, samples with two answers on the disk
    hung         waiters that have not returned: of hpcbench a `submit --wait`, of submitit a `result()` each

An element of submitit sleeps and writes a line; one of hpcbench is a run task of eight samples that a
scripted engine answers as slowly. submitit has no retry of its own for a killed element: that its work is
lost is what it is made for, that no message reports it is not. Each with sacct, and with a sacct that fails
as where there is no slurmdbd (a shim before it in PATH, for the submitting process and its jobs; slurmctld
goes on as it is).

It sets a node down and ends processes: run it alone. It refuses to begin while there are jobs in the queue.

    python benchmarks/truth.py [--elements 100] [--patience 120] [--peers DIRECTORY]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.lab_scene import drill
from tests.cluster.system import LabError
from tests.slurm.drill import Drill, Run, until

SECONDS = 4.0
"""Time of an element."""

NODE = "n3"

NO_SACCT = 'echo "Slurm accounting storage is disabled" >&2\nexit 1\n'

SUBMITIT = """
import json, pathlib, sys, threading, time
import submitit
folder, count, seconds = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
def element(number):
    time.sleep(seconds)
    with open(folder / f"done.{number}", "a") as file:
        file.write("done\\n")
    return number
executor = submitit.AutoExecutor(folder / "jobs", cluster="slurm")
executor.update_parameters(timeout_min=10, cpus_per_task=1, mem_gb=0.5, slurm_array_parallelism=256)
half = count // 2
jobs = []
for part in (range(half), range(half, count)):
    jobs += executor.map_array(element, part)
    (folder / "submitted").write_text(str(len(jobs)))
    time.sleep(2)  # a user kills it here
returned = set()
def wait(number, job):
    try:
        job.result()
    except Exception:
        pass
    returned.add(number)
for number, job in enumerate(jobs):
    threading.Thread(target=wait, args=(number, job), daemon=True).start()
while True:
    outcome = {"states": [job.state for job in jobs], "returned": sorted(returned)}
    (folder / "outcome.new").write_text(json.dumps(outcome))
    (folder / "outcome.new").rename(folder / "outcome")
    time.sleep(2)
"""


@dataclass(frozen=True)
class Found:
    """Counts of a run."""

    wrong: int
    lost: int
    twice: int
    hung: int


def main() -> None:
    """Run both, with and without accounting, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=100)
    parser.add_argument("--patience", type=float, default=120.0)
    parser.add_argument("--peers", type=Path, default=Path("/tmp/hpcbench-peers"))
    given = parser.parse_args()
    if not (given.peers / "submitit.done").exists():
        sys.exit(
            "no submitit for the cluster's user: run benchmarks/noop_200.py once, it installs it"
        )
    print(
        f"{'of ' + str(given.elements) + ' elements':<36}{'wrong':>7}{'lost':>6}{'twice':>7}{'hung':>6}"
    )
    ways: dict[str, Callable[[Drill, str], Found]] = {
        "hpcbench": lambda user, path: _hpcbench(user, path, given.elements, given.patience),
        "submitit": lambda user, path: _submitit(
            user, path, given.peers, given.elements, given.patience
        ),
    }
    for name, way in ways.items():
        for accounting in (True, False):
            with drill("truth") as user:
                if user.lab.squeue():
                    sys.exit(
                        "there are jobs in the queue: this benchmark sets a node down, run it alone"
                    )
                path = user.environ["PATH"] if accounting else user.shim("sacct", NO_SACCT)
                found = way(user, path)
            what = f"{name}, {'with' if accounting else 'without'} slurmdbd"
            print(
                f"{what:<36}{found.wrong:>7}{found.lost:>6}{found.twice:>7}{found.hung:>6}",
                flush=True,
            )


def _hpcbench(user: Drill, path: str, elements: int, patience: float) -> Found:
    user.script(answer_ms=[1000 * SECONDS / 8] * 2)
    plan = user.plan(
        *({"name": f"numbers-{number}", "limit": 8} for number in range(elements)),
        name="truth",
        parallelism=elements,
        workers="all",
        shard_size=8,
    )
    words = ("submit", plan, "--registry", user.folder / "registry", "--json")
    first = user.start(*words, PATH=path)
    until(lambda: any(_has_started(run) for run in user.known()), "the first sbatch", 120)
    first.kill()
    first.communicate()
    waiter = user.start(*words, "--wait", PATH=path)
    until(lambda: any(len(run.workers_at()) >= 8 for run in user.known()), "workers", 120)
    (run,) = user.known()
    _disturb(user, elements, lambda: [job.id for job in run.workers_at()])
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline and not (run.path / "outcome.json").exists():
        run.release()
        time.sleep(1)
    time.sleep(5)
    reported = {one["name"]: one for one in run.status()["run_tasks"]}
    done = {name: 0 for name in reported}
    for answer in run.answers():
        done[answer.rpartition("/")[0]] += 1
    at_work = bool(run.jobs())
    wrong = sum(
        reported[name].get("answered", reported[name].get("done")) != count
        for name, count in done.items()
    )
    lost = sum(count < 8 for count in done.values()) if not at_work else 0
    if lost or wrong:
        print(f"  {run.status()['state']}: {run.status()['failures']}", file=sys.stderr)
    hung = int(waiter.poll() is None)
    waiter.kill()
    waiter.communicate()
    return Found(wrong, lost, len({one.rpartition("/")[0] for one in run.twice()}), hung)


def _has_started(run: Run) -> bool:
    with contextlib.suppress(OSError):
        return any(line["event"] == "intent" for line in run.story_of_submission())
    return False


def _submitit(user: Drill, path: str, peers: Path, elements: int, patience: float) -> Found:
    folder = user.folder / "submitit"
    folder.mkdir()
    shutil.chown(folder, "hpcuser", "hpcuser")
    (folder / "run.py").write_text(SUBMITIT)
    words = [peers / "bin" / "python", folder / "run.py", folder, str(elements), str(SECONDS)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            user.lab.user_argv(words),
            cwd=folder,
            env={**user.environ, "PATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def mine() -> list[str]:
        return [job.id for job in user.lab.squeue() if job.state == "R"]

    first = start()
    until(lambda: (folder / "submitted").exists(), "the first array", 60)
    first.kill()
    first.wait()
    (folder / "submitted").unlink()
    second = start()
    try:
        until(lambda: len(mine()) >= 8, "elements at work", 60)
        _disturb(user, elements, mine)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            for job in user.lab.squeue():
                if job.reason == "BeginTime":
                    user.lab.release_requeued(job.id)
            time.sleep(1)
        reported = json.loads((folder / "outcome").read_text())
        times = [_lines(folder / f"done.{number}") for number in range(elements)]
        queued = bool(user.lab.squeue())
        wrong = sum(
            (state == "COMPLETED") != bool(count) or state in ("UNKNOWN", "PENDING", "RUNNING")
            for state, count in zip(reported["states"], times, strict=True)
        )
        return Found(
            wrong,
            0 if queued else sum(not count for count in times),
            sum(count > 1 for count in times),
            elements - len(reported["returned"]),
        )
    finally:
        os.killpg(second.pid, signal.SIGKILL)
        second.wait()
        for job in {job.id.partition("_")[0] for job in user.lab.squeue()}:
            user.lab.run_as_user(["scancel", job])


def _disturb(user: Drill, elements: int, at_work: Callable[[], list[str]]) -> None:
    """Kill a tenth, requeue a tenth, set a node down and back."""
    chance, tenth = random.Random(7), max(1, elements // 10)
    hit: set[str] = set()
    for turn in range(2 * tenth):
        job = chance.choice(until(lambda: sorted(set(at_work()) - hit), "an element at work", 90))
        hit.add(job)
        if turn % 2:
            user.lab.run_as_user(["scontrol", "requeue", job])
        else:
            for pid in _processes(job):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.3)
    user.lab._slurm("scontrol", "update", f"NodeName={NODE}", "State=DOWN", "Reason=truth")
    try:
        time.sleep(5)
    finally:
        with contextlib.suppress(LabError):  # its slurmd has reported: it is up again by itself
            user.lab._slurm("scontrol", "update", f"NodeName={NODE}", "State=RESUME")


def _processes(job: str) -> Iterator[int]:
    """Processes of an array task, but for Slurm's own."""
    array, _, task = job.partition("_")
    wanted = {f"SLURM_ARRAY_JOB_ID={array}".encode(), f"SLURM_ARRAY_TASK_ID={task}".encode()}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = set((entry / "environ").read_bytes().split(b"\0"))
                name = (entry / "comm").read_text().strip()
                if wanted <= words and name != "slurmstepd":
                    yield int(entry.name)


def _lines(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return len(path.read_text().splitlines())
    return 0


if __name__ == "__main__":
    main()
