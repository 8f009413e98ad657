"""Rows of an experiment exported, in constant memory: responses and scores to Parquet, CSV and JSONL.

Builds an experiment on disk as its workers and evaluation leave it (shards of 100,000 responses of three
chunks, scores with two metrics), then exports it through `hpcbench.interchange`, each table in a process of
its own. Prints rows a second and the most memory (VmHWM), beside two floors of the same run on the same
files: reading their bytes, and polars' own `scan_ndjson` → `sink_parquet`, which drops no answer that came
twice and computes no time. The rows written are counted.

    python benchmarks/export_rows.py [--rows 300000]        the goal is of 10,000,000: below 500 MB
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.evaluate_million import line  # noqa: E402
from hpcbench.experiment.layout import Experiment  # noqa: E402
from hpcbench.files.atomic import create_exclusive, write_atomic, write_json  # noqa: E402
from hpcbench.planning import plan_work  # noqa: E402
from tests.unit.small import measured, resolved, run_task  # noqa: E402

SHARD = 100_000
GOAL_MB = 500

CHILD = r"""
import json, re, sys, time
from pathlib import Path
from hpcbench.experiment.layout import Experiment

here, what, form, out = Experiment(Path(sys.argv[1])), sys.argv[2], sys.argv[3], Path(sys.argv[4])
files = sorted((here.path / "shards" / "rt").glob("*.responses.jsonl"))
started, busy = time.perf_counter(), time.process_time()
if form == "bytes":
    rows = 0
    for path in files:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                rows += block.count(b"\n")
elif form == "polars":
    import polars
    from hpcbench.experiment.view.answers import _schema
    polars.scan_ndjson(files, schema=_schema()).sink_parquet(out, row_group_size=50_000)
    rows = polars.scan_parquet(out).select(polars.len()).collect().item()
else:
    from hpcbench.interchange.result_tables import Wanted, open_table
    from hpcbench.interchange.table_files import write
    rows = write(open_table([here], Wanted(what), print), form, out)
figures = {"rows": rows, "wall": time.perf_counter() - started, "cpu": time.process_time() - busy}
figures["most"] = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps(figures))
"""

EXPORTS = (
    ("responses", "parquet"), ("responses", "csv"), ("scores", "parquet"), ("scores", "jsonl"),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300_000)
    arguments = parser.parse_args()
    rows = arguments.rows // SHARD * SHARD
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        here = Experiment(folder / "experiments" / "20261120-1432-rows-aaaa")
        started = time.perf_counter()
        build(folder, here, rows)
        print(f"{rows:,} rows, built in {time.perf_counter() - started:.0f} s")
        out = folder / "out"
        floors = {form: child(here, "responses", form, out, rows) for form in ("bytes", "polars")}
        found = {}
        for what, form in EXPORTS:
            found[what, form] = child(here, what, form, out, rows)
            out.unlink()
    print(f"{'':<44} {'wall, s':>8} {'CPU, s':>8} {'rows/s':>11} {'MB':>6}")
    named = {
        "bytes": "floor: bytes of responses read",
        "polars": "floor: scan_ndjson → sink_parquet",
    }
    for form, one in floors.items():
        tell(named[form], one)
    for (what, form), one in found.items():
        tell(f"{what} to {form}", one)
    ours, floor = found["responses", "parquet"], floors["polars"]
    most = max(one["most"] for one in found.values())
    print(
        f"responses to Parquet take {ours['cpu'] / floor['cpu']:.1f} times the CPU of polars' own way and "
        f"{ours['most'] / floor['most']:.2f} times its memory; most memory of all: {most:.0f} MB, "
        f"goal: below {GOAL_MB} MB at 10,000,000 rows"
    )


def tell(text: str, one: dict[str, Any]) -> None:
    rate = one["rows"] / one["wall"]
    print(f"{text:<44} {one['wall']:8.1f} {one['cpu']:8.1f} {rate:11,.0f} {one['most']:6.0f}")


def child(here: Experiment, what: str, form: str, out: Path, rows: int) -> dict[str, Any]:
    """One export in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(here.path), what, form, str(out)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    reported: dict[str, Any] = json.loads(done.stdout)
    assert reported["rows"] == rows, reported
    return reported


def build(folder: Path, here: Experiment, rows: int) -> None:
    """An experiment whose shards all hold the same bytes: one file with many names."""
    import polars

    task = run_task(metrics=("anls", "exact_match"))
    plan = resolved(task, shard_size=SHARD)
    work = plan_work(plan, measured(plan, rows))
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.chosen_file, {"rt": [(0, rows)]})
    first = here.shard_responses("rt", 0, 1)
    for shard in work.shards:
        owner = {"event": "claimed", "time": 0, "owner": {"job": "1_0"}}
        create_exclusive(here.shard_events("rt", shard.index, 1), owner)
        path = here.shard_responses("rt", shard.index, 1)
        if shard.index == 0:
            path.write_bytes(b"".join(line(n, f"{n * 7919 % 100_000:05d}") for n in range(SHARD)))
        else:
            os.link(first, path)
    write_json(here.manifest_file, {"work": asdict(work), "measured": {}})
    col = polars.col("n")
    text = polars.String
    here.scores_dir.mkdir()
    polars.LazyFrame({"n": range(SHARD)}).select(
        polars.format("s{}", col).alias("sample"), polars.format("d{}", col // 5).alias("document"),
        polars.lit("ok").alias("outcome"), polars.lit("p").alias("prompt"),
        polars.lit(None, text).alias("error"), (col * 7919 % 100_000).cast(text).alias("answer"),
        (col * 7919 % 100_000).cast(text).alias("prediction"),
        *(polars.lit(None, text).alias(name) for name in ("reason", "form", "repairs", "faults")),
        polars.lit(1, polars.Int32).alias("images"), polars.lit(value=False).alias("truncated"),
        polars.lit(value=False).alias("invalid"),
        polars.concat_list((col * 31 % 100_000).cast(text)).alias("references"),
        polars.lit("invoice").alias("meta.doc_type"),
        *(
            polars.lit(value).alias(name)
            for metric in ("anls", "exact_match")
            for name, value in ((metric, 1.0), (f"{metric}.numerator", 1.0), (f"{metric}.denominator", 1.0))
        ),
        polars.lit(None, text).alias("anls.fault"), polars.lit(None, text).alias("exact_match.fault"),
    ).sink_parquet(folder / "part.parquet")  # fmt: skip
    parts = [folder / "part.parquet"] * (rows // SHARD)
    polars.scan_parquet(parts, glob=False).sink_parquet(here.scores_file("rt"))


if __name__ == "__main__":
    main()
