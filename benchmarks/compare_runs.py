"""Two runs of 100,000 samples compared: the whole command's work, in a process of its own, imports included.

Builds two experiments on disk (five questions a document, answers that agree in most samples), evaluates
them by five metrics, and compares them by one metric and by all five: pairing, intervals clustered by
document, Holm, speed, flips, configuration. Beside it the floor, also a process of its own: both columns of
one metric read by polars, joined by sample, and numpy's mean of the difference with its standard error over
samples, which is what a notebook would do and which is wrong for documents. The result is checked against
the difference that was built in. CPU time is printed beside wall time: a machine with other work to do shows
in the latter.

    python benchmarks/compare_runs.py [--samples 100000] [--keep DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from hpcbench.evaluation.stage import evaluate  # noqa: E402
from hpcbench.experiment.layout import Experiment  # noqa: E402
from hpcbench.files.atomic import create_exclusive, write_atomic, write_json  # noqa: E402
from hpcbench.planning import plan_work  # noqa: E402
from tests.unit.small import measured, resolved, run_task  # noqa: E402

METRICS = ("exact_match", "anls", "cer", "wer", "contains")
GOAL_SECONDS = 2.0
ROUNDS = 3

FLOOR = """
import sys, polars, numpy
one, other = (polars.read_parquet(path, columns=["sample", "exact_match"]) for path in sys.argv[1:])
both = one.join(other, on="sample")
difference = (both["exact_match_right"] - both["exact_match"]).to_numpy()
print(difference.mean(), difference.std(ddof=1) / numpy.sqrt(len(difference)))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="build them here, or take what is here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.keep or Path(name)
        runs = [Experiment(folder / "experiments" / f"20261120-1432-{one}-aaaa") for one in "ab"]
        if not runs[1].metrics_file.exists():
            started = time.perf_counter()
            build(folder, runs, arguments.samples)
            print(f"built and evaluated in {time.perf_counter() - started:.0f} s")
        check(runs)
        floor = median([sys.executable, "-c", FLOOR, *(str(one.scores_file("rt")) for one in runs)])
        command = [
            sys.executable,
            "-m",
            "hpcbench.cli.main",
            "compare",
            *(str(one.path) for one in runs),
        ]
        rows = [
            ("floor: join and mean in polars, one metric", floor),
            ("hpcbench compare, one metric", median([*command, "--metric", "exact_match"])),
            ("hpcbench compare, five metrics", median(command)),
            ("the same, --json with every flip of five", median([*command, "--json"])),
        ]
    print(f"two runs of {arguments.samples:,} samples, process start and imports included")
    print(f"{'':<46} {'wall, s':>8} {'CPU, s':>8} {'× floor':>8}")
    for text, (wall, cpu) in rows:
        print(f"{text:<46} {wall:8.2f} {cpu:8.2f} {wall / floor[0]:8.1f}")
    print(f"goal: below {GOAL_SECONDS:g} s")


def median(command: list[str]) -> tuple[float, float]:
    """Seconds of a process, wall and CPU, the medians of some."""
    walls, cpus = [], []
    for _ in range(ROUNDS):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=os.environ)
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(walls), statistics.median(cpus)


def check(runs: list[Experiment]) -> None:
    """The difference is the one that was built in."""
    command = [
        sys.executable,
        "-m",
        "hpcbench.cli.main",
        "compare",
        *(str(one.path) for one in runs),
    ]
    done = subprocess.run(
        [*command, "--metric", "exact_match", "--json"],
        check=True, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    built = json.loads((runs[0].path.parent.parent / "right.json").read_text())
    (candidate,) = json.loads(done.stdout)["candidates"]
    (found,) = candidate["compared"]
    what = found["comparison"]
    assert [what["wins"], what["losses"]] == [built["won"], built["lost"]]
    assert len(candidate["flips"]) == built["won"] + built["lost"]
    assert (
        abs(what["interval"]["estimate"] - (built["won"] - built["lost"]) / built["samples"])
        < 1e-12
    )


def build(folder: Path, runs: list[Experiment], count: int) -> None:
    """Both experiments, evaluated: 70 % right in both, 7 % in the candidate alone, 5 % in the baseline."""
    import polars

    chance = random.Random(1)  # noqa: S311 - a sample, no secret
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    truth = [f"total {chance.randrange(10**4, 10**5)} EUR" for _ in range(count)]
    polars.DataFrame(
        {
            "id": [f"s{number}" for number in range(count)],
            "images": [["p.png"]] * count,
            "document": [f"d{number // 5}" for number in range(count)],
            "question": [f"What is the total of {number}?" for number in range(count)],
            "references": truth,
        }
    ).write_parquet(data / "a.parquet", row_group_size=10_000)
    luck = [chance.random() for _ in range(count)]
    ends = [(one < 0.75, one < 0.70 or 0.75 <= one < 0.82) for one in luck]
    for place, here in enumerate(runs):
        answers = [
            text if end[place] else f"about {text[6:-5]}x EUR"
            for text, end in zip(truth, ends, strict=True)
        ]
        write(here, data, answers)
        evaluate(here)
    reported = {
        "samples": count,
        "won": sum(not one and other for one, other in ends),
        "lost": sum(one and not other for one, other in ends),
    }
    write_json(folder / "right.json", reported)


def write(here: Experiment, data: Path, answers: list[str]) -> None:
    """One experiment, not evaluated yet."""
    task = run_task(
        dataset={
            "source": str(data), "annotations": "a.parquet",
            "mapping": {"fields": {"question": "question"}},
        },
        metrics=METRICS,
    )  # fmt: skip
    count = len(answers)
    plan = resolved(task, shard_size=-(-count // 100))
    work = plan_work(plan, measured(plan, count))
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.chosen_file, {"rt": [(0, count)]})
    for shard in work.shards:
        create_exclusive(
            here.shard_events("rt", shard.index, 1),
            {"event": "claimed", "time": 0, "owner": {"job": "1_0"}},
        )
        lines = [line(number, answers[number]) for number in range(shard.start, shard.stop)]
        here.shard_responses("rt", shard.index, 1).write_bytes(b"".join(lines))
    known: dict[str, Any] = {"dataset_hashes": {"rt": "sha256:d"}}
    write_json(here.manifest_file, {"work": asdict(work), "measured": known})


def line(number: int, answer: str) -> bytes:
    """A response as the worker writes it."""
    started = number * 50_000_000
    record = {
        "sample_id": f"s{number}", "outcome": "ok", "text": answer, "finish_reason": "stop",
        "usage": {"prompt_tokens": 812, "completion_tokens": 4},
        "times": {
            "start": started, "send": started + 1_000_000, "headers": started + 9_000_000,
            "chunks": [started + 20_000_000, started + 30_000_000], "done": started + 31_000_000,
            "scheduled": None, "empty": [started + 10_000_000], "tokens": [1, 4],
        },
        "tries": 1, "image_sha256": ["0" * 64], "error": None, "prompt": "p", "recount": None,
    }  # fmt: skip
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


if __name__ == "__main__":
    main()
