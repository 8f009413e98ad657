"""A million short answers evaluated: read, parsed, scored by ANLS and exact match, written, with intervals.

Builds an experiment on disk as workers leave it (a Parquet dataset, a hundred shards of responses, five
questions a document), then evaluates it in a process of its own on one core. Prints seconds and the most
memory (VmHWM) of each stage, beside two floors measured on the same files: decoding the lines of responses
with `json`, and doing that while the samples are read, too. `performance.json` is timed apart and with it.
The scores are checked first against the share of right answers that was built in.

    python benchmarks/evaluate_million.py [--samples 1000000] [--keep DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from hpcbench.experiment.layout import Experiment  # noqa: E402
from hpcbench.files.atomic import create_exclusive, write_atomic, write_json  # noqa: E402
from hpcbench.planning import plan_work  # noqa: E402
from tests.unit.small import measured, resolved, run_task  # noqa: E402

SHARDS = 100
METRICS = ("anls", "exact_match")
GOAL_SECONDS, GOAL_GB = 60, 2.0

CHILD = r"""
import json, re, sys, time
from pathlib import Path
from hpcbench.experiment.layout import Experiment
from hpcbench.evaluation import performance, stage

here, what = Experiment(Path(sys.argv[1])), sys.argv[2]
started = time.perf_counter(), time.process_time()
figures = {}

def done(name):
    global started
    now = time.perf_counter(), time.process_time()
    figures[name] = [after - before for after, before in zip(now, started)]
    started = now

if what == "floor":
    folder = here.shards("rt")
    count = 0
    for name in sorted(folder.names):
        if name.endswith(".responses.jsonl"):
            with (folder.path / name).open("rb") as file:
                for line in file:
                    json.loads(line)
                    count += 1
    done("json.loads of every line")
elif what == "pairs":
    import polars
    done("import of polars")
    (one,) = here.resolved.run_tasks
    count = sum(1 for _ in stage.subject_of(here, one).answered)
    done("samples with their answers")
else:
    import polars, numpy, scipy.special, rapidfuzz
    done("imports")
    (one,) = here.resolved.run_tasks
    subject = stage.subject_of(here, one)
    done("hash of the answers")
    scored, _ = stage.score(here, subject, again=True)
    done("read, parse, score, write")
    table = stage.write_metrics(here, [scored], here.metrics_file)
    done("intervals, groups, metrics.json")
    figures["evaluation"] = [sum(one) for one in zip(*figures.values())]
    figures["memory"] = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 2**20
    started = time.perf_counter(), time.process_time()
    performance.write_performance(here)
    done("performance.json")
    subject = stage.subject_of(here, one)
    stage.write_metrics(here, [stage.score(here, subject)[0]], here.metrics_file)
    done("again, nothing changed")
    count = table["run_tasks"]["rt"]["asked"]
figures["count"] = count
figures["most"] = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 2**20
print(json.dumps(figures))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="build it here, or take what is here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.keep or Path(name)
        here = Experiment(folder / "experiments" / "20261120-1432-million-aaaa")
        if not here.manifest_file.exists():
            started = time.perf_counter()
            build(folder, here, arguments.samples)
            print(f"built in {time.perf_counter() - started:.0f} s")
        floor = child(here, "floor")
        pairs = child(here, "pairs")
        whole = child(here, "all")
    print(f"{whole['count']:,} samples in {SHARDS} shards, one core")
    lines = [
        ("floor: json.loads of every line", floor["json.loads of every line"], floor["most"]),
        ("floor: samples with their answers", pairs["samples with their answers"], pairs["most"]),
    ]
    both = [sum(one) for one in zip(whole["evaluation"], whole["performance.json"], strict=True)]
    names = (
        "imports", "hash of the answers", "read, parse, score, write",
        "intervals, groups, metrics.json",
    )  # fmt: skip
    lines += [(name, whole[name], None) for name in names]
    lines += [
        ("evaluation, all of these", whole["evaluation"], whole["memory"]),
        ("performance.json", whole["performance.json"], whole["most"]),
        ("both", both, whole["most"]),
        ("evaluation again, nothing changed", whole["again, nothing changed"], None),
    ]
    print(f"{'':<36} {'wall, s':>8} {'CPU, s':>8} {'GB':>6}")
    for text, (wall, busy), memory in lines:
        print(f"{text:<36} {wall:8.1f} {busy:8.1f} {f'{memory:6.2f}' if memory else ''}")
    ratio = whole["evaluation"][1] / floor["json.loads of every line"][1]
    print(
        f"evaluation takes {ratio:.1f} times the CPU of reading the lines\n"
        f"goals for a million, of both: below {GOAL_SECONDS} s, of which the CPU took "
        f"{both[1] / GOAL_SECONDS:.2f}, and {GOAL_GB:g} GB"
    )


def child(here: Experiment, what: str) -> dict[str, Any]:
    """Run one part in a process of its own, on one core."""
    environ = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(here.path), what],
        capture_output=True, text=True, check=False, env=environ,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    if what == "all":
        check(here)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(here: Experiment) -> None:
    """The scores are those that were built in."""
    metrics = json.loads(here.metrics_file.read_text())["run_tasks"]["rt"]["metrics"]
    built = json.loads((here.path.parent.parent / "right.json").read_text())
    assert metrics["exact_match"]["value"] == built["right"] / built["samples"]
    expected = (built["right"] + 0.8 * built["near"]) / built["samples"]
    assert abs(metrics["anls"]["value"] - expected) < 1e-12


def build(folder: Path, here: Experiment, count: int) -> None:
    """The experiment as its workers leave it: 60 % right, 20 % near (ANLS 0.8), else wrong."""
    import polars

    chance = random.Random(1)  # noqa: S311 - a sample, no secret
    data = folder / "data"
    data.mkdir(parents=True)
    truth = [f"{chance.randrange(10**4, 10**5)}" for _ in range(count)]
    polars.DataFrame(
        {
            "id": [f"s{number}" for number in range(count)],
            "images": [["p.png"]] * count,
            "document": [f"d{number // 5}" for number in range(count)],
            "question": [f"What is the total of {number}?" for number in range(count)],
            "references": truth,
            "doc_type": [
                ("invoice", "receipt", "contract")[number // 5 % 3] for number in range(count)
            ],
        }
    ).write_parquet(data / "a.parquet", row_group_size=10_000)
    task = run_task(
        dataset={
            "source": str(data), "annotations": "a.parquet", "group_by": ["doc_type"],
            "mapping": {"metadata": {"doc_type": "doc_type"}, "fields": {"question": "question"}},
        },
        metrics=METRICS,
    )  # fmt: skip
    plan = resolved(task, shard_size=-(-count // SHARDS))
    work = plan_work(plan, measured(plan, count))
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.chosen_file, {"rt": [(0, count)]})
    right = near = 0
    for shard in work.shards:
        lines = []
        for number in range(shard.start, shard.stop):
            text, luck = truth[number], chance.random()
            right, near = right + (luck < 0.6), near + (0.6 <= luck < 0.8)
            answer = text if luck < 0.6 else f"{text[:-1]}x" if luck < 0.8 else "none"
            lines.append(line(number, answer))
        create_exclusive(
            here.shard_events("rt", shard.index, 1),
            {"event": "claimed", "time": 0, "owner": {"job": "1_0"}},
        )
        here.shard_responses("rt", shard.index, 1).write_bytes(b"".join(lines))
    write_json(folder / "right.json", {"samples": count, "right": right, "near": near})
    write_json(here.manifest_file, {"work": asdict(work), "measured": {}})


def line(number: int, answer: str) -> bytes:
    """A response as the worker writes it: three chunks."""
    started = number * 50_000_000
    record = {
        "sample_id": f"s{number}", "outcome": "ok", "text": answer, "finish_reason": "stop",
        "usage": {"prompt_tokens": 812, "completion_tokens": 4},
        "times": {
            "start": started, "send": started + 1_000_000, "headers": started + 9_000_000,
            "chunks": [started + 20_000_000, started + 25_000_000, started + 30_000_000],
            "done": started + 31_000_000, "scheduled": None, "empty": [started + 10_000_000],
            "tokens": [1, 2, 4],
        },
        "tries": 1, "image_sha256": ["0" * 64], "error": None, "prompt": "p", "recount": None,
    }  # fmt: skip
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


if __name__ == "__main__":
    main()
