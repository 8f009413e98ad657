"""From submit to done of 200 elements that do nothing, beside raw sbatch and three peers on the same cluster.

Every way runs on the one-machine cluster, one after the other, started by the same user; time is from the
start of the submitting process to the moment when nothing is left to wait for, asked at the way's own
pace. An element does nothing: `python -S -E -c pass` in the raw array (the floor), an empty
function in submitit and executorlib, `true` in ReFrame. An element of hpcbench is a run task of one
sample: its workers claim, ask a scripted engine that answers at once, and fsync. So elements are not the
same amount of work; what is compared is what a user waits for beside the work itself. hpcbench's time
until the last answer is on the disk (inference) is printed apart from the whole, which has scores, a report
and a folded experiment besides.

Files are counted below the folder of each way when all is done: for hpcbench those of run tasks (shards,
scores), and apart those that submitit leaves for an array element (jobs) and what there is once.

Peers are installed into a folder of their own (`--peers`), as the user of the cluster can read it.

    python benchmarks/noop_200.py [--elements 200] [--workers 4] [--only NAME …]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.lab_scene import drill, sbatch, wait_for_job
from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.layout import Experiment
from tests.slurm.drill import Drill, until

PEERS = ("submitit==1.5.4", "executorlib[cluster]==1.11.0", "reframe-hpc==4.10.4")

SUBMITIT = """
import sys, submitit
def nothing(number):
    return number
executor = submitit.AutoExecutor(sys.argv[1], cluster="slurm")
executor.update_parameters(timeout_min=5, cpus_per_task=1, mem_gb=0.5, slurm_array_parallelism=256)
jobs = executor.map_array(nothing, range(int(sys.argv[2])))
assert [job.result() for job in jobs] == list(range(int(sys.argv[2])))
"""

# Its own template asks for --get-user-env, which sbatch refuses an ordinary user without a password here.
EXECUTORLIB = """
import sys
from executorlib import SlurmClusterExecutor
TEMPLATE = '''#!/bin/bash
#SBATCH --output=time.out
#SBATCH --job-name={{job_name}}
#SBATCH --chdir={{working_directory}}
#SBATCH --cpus-per-task={{cores}}
#SBATCH --mem=500M

{{command}}
'''
def nothing(number):
    return number
if __name__ == "__main__":
    resources = {"cores": 1, "submission_template": TEMPLATE}
    with SlurmClusterExecutor(cache_directory=sys.argv[1], resource_dict=resources) as executor:
        futures = [executor.submit(nothing, number) for number in range(int(sys.argv[2]))]
        assert [future.result() for future in futures] == list(range(int(sys.argv[2])))
"""

REFRAME = """
import reframe as rfm
@rfm.simple_test
class Nothing(rfm.RunOnlyRegressionTest):
    number = parameter(range(ELEMENTS))
    executable = "true"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    @sanity_function
    def fine(self):
        return True
"""

REFRAME_SITE = """
site_configuration = {
    "systems": [{"name": "lab", "hostnames": [".*"], "partitions": [{
        "name": "main", "scheduler": "squeue", "launcher": "local", "environs": ["builtin"],
        "access": ["--mem=500M"], "max_jobs": 256}]}],
    "environments": [{"name": "builtin"}],
}
"""


@dataclass(frozen=True)
class Took:
    """A line of the table."""

    seconds: float
    files: float
    """An element."""
    note: str = ""


def main() -> None:
    """Run every way and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--peers", type=Path, default=Path("/tmp/hpcbench-peers"))
    parser.add_argument("--only", nargs="*")
    given = parser.parse_args()
    with drill("noop") as user:
        lines: dict[str, Callable[[], Iterator[tuple[str, Took]]]] = {
            "raw": lambda: _raw(user, given.elements),
            "hpcbench": lambda: _hpcbench(user, given.elements, given.workers),
            "submitit": lambda: _peer(user, given.peers, "submitit", given.elements),
            "executorlib": lambda: _peer(user, given.peers, "executorlib", given.elements),
            "reframe": lambda: _peer(user, given.peers, "reframe", given.elements),
        }
        wanted = [name for name in lines if not given.only or name in given.only]
        if {"submitit", "executorlib", "reframe"}.intersection(wanted):
            _install(given.peers)
        print(f"{given.elements} elements, load {os.getloadavg()[0]:.1f}")
        print(f"{'':<44}{'seconds':>9}{'ms each':>9}{'÷ raw':>7}{'files each':>12}")
        floor = 0.0
        for name in wanted:
            for what, took in lines[name]():
                floor = floor or took.seconds
                print(
                    f"{what:<44}{took.seconds:>9.1f}{1e3 * took.seconds / given.elements:>9.0f}"
                    f"{took.seconds / floor:>7.2f}{took.files:>12.2f}  {took.note}",
                    flush=True,
                )


def _raw(user: Drill, elements: int) -> Iterator[tuple[str, Took]]:
    folder = _folder(user, "raw")
    started = time.perf_counter()
    words = [f"--array=0-{elements - 1}", "--mem=500M", "-o", f"{folder}/%a.out"]
    job = sbatch(user.lab, *words, "--wrap", "exec /usr/bin/python3 -S -E -c pass")
    wait_for_job(user.lab, job)
    took = time.perf_counter() - started
    yield "raw sbatch --array, python -S -E", Took(took, _files(folder) / elements)


def _hpcbench(user: Drill, elements: int, workers: int) -> Iterator[tuple[str, Took]]:
    user.script(answer_ms=[0, 0])
    plan = user.plan(
        *({"name": f"numbers-{number}", "limit": 1} for number in range(elements)),
        name="noop",
        parallelism=workers,
        workers="all",
    )
    first = user.submit(user.plan({"limit": 1}, name="first", parallelism=1))  # fills the caches
    first.wait_alone()
    until(lambda: not first.jobs(), "the first run to end", 60)
    started, clock = time.perf_counter(), time.time()
    run = user.submit(plan)
    submitted = time.perf_counter() - started
    run.wait_alone(timeout=300)
    whole = time.perf_counter() - started
    until(lambda: not run.jobs(), "the job that finalises to fold and end", 60)
    here = Experiment(run.path)
    states = shard_states(here, [task.name for task in here.resolved.run_tasks])
    assert all(state.state == "done" for state in states), "something was left undone"
    asked = max(state.last["time"] for state in states) - clock
    jobs = _files(run.path / "jobs")
    of_tasks = _files(run.path / "shards") + _files(run.path / "scores")
    rest = _files(run.path) - jobs - of_tasks
    yield "hpcbench, submit alone", Took(submitted, 0)
    note = f"{workers} workers, to the last answer"
    yield "hpcbench, inference", Took(asked, of_tasks / elements, note)
    note = f"scores and report too; {jobs / (workers + 1):.1f} files a job, {rest} once"
    yield "hpcbench, all of it", Took(whole, (of_tasks + jobs + rest) / elements, note)


def _peer(user: Drill, peers: Path, name: str, elements: int) -> Iterator[tuple[str, Took]]:
    folder = _folder(user, name)
    if not (peers / f"{name}.done").exists():
        yield f"{name}: could not be installed", Took(float("nan"), float("nan"))
        return
    python = peers / "bin" / "python"
    command: list[str | Path]
    if name == "reframe":
        (folder / "site.py").write_text(REFRAME_SITE)
        (folder / "test.py").write_text(REFRAME.replace("ELEMENTS", str(elements)))
        command = [python.with_name("reframe"), "-C", folder / "site.py", "-c", folder / "test.py"]
        command += ["-r", "--prefix", folder / "left", "--system", "lab:main"]
    else:
        script = folder / "run.py"
        script.write_text(SUBMITIT if name == "submitit" else EXECUTORLIB)
        command = [python, script, folder / "left", str(elements)]
    env = {"PATH": f"{peers / 'bin'}:{user.lab.env()['PATH']}"}
    started = time.perf_counter()
    try:
        done = user.lab.run_as_user(command, cwd=folder, env=env, timeout=400)
    except subprocess.TimeoutExpired:
        yield f"{name}: not done after 400 s", Took(400.0, float("nan"))
        return
    took = time.perf_counter() - started
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        last = [line for line in said if "sbatch: error" in line][:1] or said[-1:]
        yield f"{name}: failed", Took(float("nan"), float("nan"), " ".join(last))
        return
    yield name, Took(took, _files(folder / "left") / elements)


def _install(peers: Path) -> None:
    """Peers in an environment that the cluster's user can read; which came is marked by a file."""
    python = peers / "bin" / "python"
    if not python.exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", str(peers)], check=True)
    for peer in PEERS:
        mark = peers / f"{peer.partition('=')[0].partition('[')[0].removesuffix('-hpc')}.done"
        if mark.exists():
            continue
        done = subprocess.run(
            [str(python), "-m", "pip", "install", "-q", peer],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            mark.touch()
        else:
            print(f"{peer}: {done.stderr.strip().splitlines()[-1]}")


def _folder(user: Drill, name: str) -> Path:
    path = user.folder / name
    path.mkdir()
    shutil.chown(path, "hpcuser", "hpcuser")
    return path


def _files(folder: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return sum(path.is_file() for path in folder.rglob("*"))
    return 0


if __name__ == "__main__":
    main()
