"""Answers a second of two engines in one job of this machine beside one engine, in pairs that take turns.

The demo's model in the Hugging Face engine, one thread an engine; from the first ready engine to the end of
the last shard. The figure is the ratio of a pair; the machine must have as many idle processors as engines.

    python benchmarks/replicas.py [--pairs 4] [--samples 350]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import yaml

from hpcbench.experiment.layout import Experiment

ROOT = Path(__file__).parent.parent
ENGINES = (1, 2)


def main() -> None:
    """Run the pairs and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=350)
    given = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(given.pairs):
            turn = ENGINES if pair % 2 else ENGINES[::-1]
            rate = {engines: _rate(Path(folder), engines, given.samples) for engines in turn}
            ratios.append(rate[2] / rate[1])
            print(f"one {rate[1]:.2f}/s, two {rate[2]:.2f}/s: {ratios[-1]:.2f} times", flush=True)
    low, high = min(ratios), max(ratios)
    print(f"load {os.getloadavg()[0]:.1f}; {len(os.sched_getaffinity(0))} processors", end="; ")
    print(
        f"median of {given.pairs} pairs {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"
    )


def _rate(folder: Path, engines: int, samples: int) -> float:
    """Answers a second of one job with so many engines."""
    model = yaml.safe_load((ROOT / "registries/models/tiny-vlm.yaml").read_text())
    model |= {"name": "replicated", "replicas_per_node": engines, "env": {"OMP_NUM_THREADS": "1"}}
    model["source"] = str(ROOT / "examples/demo/model")
    (folder / "registry/models").mkdir(parents=True, exist_ok=True)
    (folder / "registry/models/replicated.yaml").write_text(yaml.safe_dump(model))
    run_task = {
        "name": "vqa", "ml_task": "vqa", "model": "replicated", "dataset": "demo_vqa",
        "prompt": "demo_vqa", "limit": samples, "concurrency": 8, "warm_up": 0,
        "resources": {"cpus": 1, "memory_gb": 3, "time_limit": "00:30:00"},
    }  # fmt: skip
    plan = {
        "name": "replicas", "executor": "local", "parallelism": 1, "workers": "all", "shard_size": 25,
        "stages": ["inference"], "run_tasks": [run_task],
    }  # fmt: skip
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    words = ["submit", "plan.yaml", "--registry", "registry", "--json", "--fresh", "--wait"]
    done = subprocess.run(
        [sys.executable, "-m", "hpcbench.cli.main", *words],
        cwd=folder, env={**os.environ, "HPCBENCH_HOME": str(folder / "home"), "RUN_MODE": "dev"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    return _of(Experiment(Path(json.loads(done.stdout)["path"])), engines, samples)


def _of(experiment: Experiment, engines: int, samples: int) -> float:
    shards = experiment.shards("vqa")
    ends = [
        one["time"]
        for name in shards.names
        if name.endswith(".events.jsonl")
        for one in shards.records(name)
        if one["event"] == "done"
    ]
    ready = [
        one["time"]
        for _, events in experiment.worker_records()
        for one in events
        if one["event"] == "model_ready"
    ]
    assert len(ready) == engines, f"{len(ready)} engines became ready"
    return samples / (max(ends) - min(ready))


if __name__ == "__main__":
    main()
