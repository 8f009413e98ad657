"""From a job's first line to its engine's first request, beside a bare job that runs the same engine's
command.

Both are jobs of one CPU on the one-machine cluster, submitted by the same user. The floor is a batch
script that notes the time, starts the engine by itself, in the same image if there is one, and asks
`/health` over its socket until it answers: which every program needs. hpcbench's job is split into
its steps, by what its worker's events, the engine and a trace of the interpreter say:

    python       from the script's first line until Python runs our code (submitit's import with it)
    imports      until the worker's first event: imports, secrets, fingerprint, plan
    board        until it knows what to load: monitor, board, a look at what others have
    container    until the wrapper is up and got the command to load
    engine       until the engine is ready
    first        until the first request is sent: the claim, the dataset, the prompt

The engine is the scripted one of tests/, which loads in no time, so that what is seen is hpcbench's own
part; a real engine's load comes on top for both alike. `--image` runs both in the cluster's test image.
With `--nodes N` the engine has a process on each of N nodes: the bare job starts them by `srun`, as its user
would by hand.

    python benchmarks/worker_start.py [--runs 5] [--image] [--nodes 2]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import yaml

from benchmarks.lab_scene import drill, sbatch, wait_for_job
from hpcbench.experiment.claims import pieces_of
from hpcbench.experiment.layout import Experiment
from tests.slurm.drill import Drill, Run

PHASES = ("python", "imports", "board", "container", "engine", "first")

BARE = """#!/bin/bash
date +%s.%N > first
rank=0
for node in $(scontrol show hostnames); do
  if [ $rank -gt 0 ]; then
    srun --nodes=1 --ntasks=1 --nodelist=$node --overlap {prefix} {python} -m hpcbench_scripted \\
      --uds unused --script "{script}" --name bare --rank $rank {place} &
  fi
  rank=$((rank + 1))
done
{prefix} {python} -m hpcbench_scripted --uds "$PWD/s" --script "{script}" --name bare {place} &
{python} -S -E - <<'PY'
import socket, time
while True:
    try:
        link = socket.socket(socket.AF_UNIX)
        link.connect("s")
        link.sendall(b"GET /health HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n")
        assert link.recv(100)
        break
    except OSError:
        time.sleep(0.005)
open("ready", "w").write(str(time.time()))
PY
kill $(jobs -p)
"""

PORT = 19_733
"""Port of the bare job's first node, below those that hpcbench chooses from."""


def main() -> None:
    """Run both in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--image", action="store_true", help="run the engine in the test image")
    parser.add_argument("--nodes", type=int, default=1, help="nodes of the engine")
    given = parser.parse_args()
    with drill("worker-start") as user:
        image = _use_image(user) if given.image else None
        if given.nodes > 1:
            more = {"image": image} if image else {}
            user.model("scripted", nodes=given.nodes, parallel={"pipeline": given.nodes}, **more)
        stamp = user.folder / "first-line"
        _note_first_line(user, stamp)
        user.script(answer_ms=[0, 0])
        plan = user.plan({"limit": 1}, name="start", parallelism=1)
        sif = None
        bare: list[float] = []
        ours: list[dict[str, float]] = []
        for turn in range(given.runs + 1):
            run = user.submit(plan)
            run.wait_alone()
            if turn:
                ours.append(_phases(run, stamp))
            sif = _sif(run) if image else None
            took = _bare(user, turn, sif, given.nodes)
            if turn:
                bare.append(took)
    floor = statistics.median(bare)
    shown = f"medians of {given.runs}; nodes {given.nodes}; image {image or 'none'}"
    print(f"load {os.getloadavg()[0]:.1f}; {shown}")
    print(f"{'bare job: the engine answers':<40}{floor:>7.2f} s{1:>7.2f}")
    ready = statistics.median(sum(one.values()) - one["first"] for one in ours)
    print(f"{'hpcbench: the engine is ready':<40}{ready:>7.2f} s{ready / floor:>7.2f}")
    whole = statistics.median(sum(one.values()) for one in ours)
    print(f"{'hpcbench: the engine is asked':<40}{whole:>7.2f} s{whole / floor:>7.2f}")
    for phase in PHASES:
        print(f"  {phase:<38}{statistics.median(one[phase] for one in ours):>7.2f} s")


def _note_first_line(user: Drill, stamp: Path) -> None:
    """Have a job's first line write the time, as the bare job's does."""
    profile = user.folder / "config" / "hpcbench" / "sites" / "default.yaml"
    data = yaml.safe_load(profile.read_text())
    # Once more is the job that finalises: workers begin first, so the first that is written counts.
    data["setup"] = [f"[ -e {stamp} ] || date +%s.%N > {stamp}"]
    profile.write_text(yaml.safe_dump(data))
    shutil.chown(profile, "hpcuser", "hpcuser")


def _phases(run: Run, stamp: Path) -> dict[str, float]:
    started = float(stamp.read_text())
    stamp.unlink()
    reported: dict[str, float] = {}
    for event in run.events():
        reported.setdefault(event["event"], event["time"])
    python = min(_python_began(log.read_text()) for log in run.path.glob("jobs/*_log.out"))
    wrong = [event for event in run.events() if event["event"] in ("model_failed", "failed")]
    if wrong:
        sys.exit(f"the engine was never asked: {wrong[0]['message']}")
    ((first,),) = pieces_of(Experiment(run.path), "numbers")
    sent = time.time() - time.monotonic() + first.times.send / 1e9  # one machine, one clock
    up = reported.get("loading", reported["model_loading"])
    at = (
        started,
        python,
        reported["started"],
        reported["model_loading"],
        up,
        reported["model_ready"],
        sent,
    )
    return {
        phase: after - before for phase, before, after in zip(PHASES, at[:-1], at[1:], strict=True)
    }


def _python_began(log: str) -> float:
    """When submitit first wrote to a job's log."""
    said = re.search(r"\((\d{4}-\d\d-\d\d [\d:]+,\d+)\)", log)
    assert said is not None, log
    return datetime.strptime(said[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()  # noqa: DTZ007 - local, as the log


def _bare(user: Drill, turn: int, sif: Path | None, nodes: int) -> float:
    folder = user.folder / f"bare-{turn}"
    folder.mkdir()
    shutil.chown(folder, "hpcuser", "hpcuser")
    engine = user.lab.user_home / "scripted-engine"
    prefix, python = f"env PYTHONPATH={engine}", str(user.python)
    if sif is not None:
        prefix = f"apptainer exec --bind {user.lab.user_home} --env PYTHONPATH={engine} {sif}"
        python = "python3"
    script = folder / "job.sh"
    place = f"--nodes {nodes} --at 127.0.0.1:{PORT}" if nodes > 1 else ""
    script.write_text(
        BARE.format(prefix=prefix, python=python, script=user.script_file, place=place)
    )
    job = sbatch(
        user.lab, "--mem=1G", f"--nodes={nodes}", "--ntasks-per-node=1", "-o", folder / "log", script,
        cwd=folder,
    )  # fmt: skip
    wait_for_job(user.lab, job)
    return float((folder / "ready").read_text()) - float((folder / "first").read_text())


def _use_image(user: Drill) -> str:
    reference = "@".join(user.lab.image())
    profile = user.folder / "config" / "hpcbench" / "sites" / "default.yaml"
    data = yaml.safe_load(profile.read_text())
    registry = reference.removeprefix("docker://").partition("/")[0]
    data.setdefault("container", {})["insecure_registries"] = [registry]
    data["container"]["binds"] = [str(user.folder)]
    profile.write_text(yaml.safe_dump(data))
    user.model("scripted", image=reference)
    return reference


def _sif(run: Run) -> Path:
    """The image file that the experiment used."""
    (environment,) = json.loads((run.path / "manifest.json").read_text())["environments"].values()
    return Path(environment["path"])


if __name__ == "__main__":
    main()
