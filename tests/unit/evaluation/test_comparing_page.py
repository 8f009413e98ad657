"""docs/comparing.md shows what the command prints, word by word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.records import Times
from tests.conftest import ROOT
from tests.unit.command import Cli
from tests.unit.small import experiment, record, response, write_attempt

PAGE = ROOT / "docs" / "comparing.md"
QUESTIONS = 120
"""Two about each of 60 documents."""


def run(folder: Path, wrong: set[int], gpu: str, **model: Any) -> Experiment:
    """The page's experiments: right but for some, asked on this GPU."""
    records = [
        record(n, document=f"invoice-{n // 2:02d}", references=[f"{n + 100}.00 EUR"])
        for n in range(QUESTIONS)
    ]
    metrics = ("anls", "exact_match")
    here = experiment(folder, records, shard_size=QUESTIONS, metrics=metrics)
    resolved = json.loads(here.resolved_file.read_text())
    resolved["run_tasks"][0]["model"].update(model)
    here.resolved_file.write_text(json.dumps(resolved))
    here = Experiment(here.path)
    text = {n: f"{n + 100}.00" if n in wrong else f"{n + 100}.00 EUR" for n in range(QUESTIONS)}
    text |= {n: "no total on this page" for n in wrong if n % 5 == 0}
    pace = 1.0 if "A100" in gpu else 0.6
    given = [response(f"s{n}", text[n], times=times(n, pace)) for n in range(QUESTIONS)]
    write_attempt(here, 0, 1, given)
    hardware = {"gpus": [gpu], "driver": "550.90.07", "cuda": "12.4", "cpu": "AMD EPYC 9654"}
    events = [
        {"event": "started", "owner": {"job": "1_0", "node": "gpu7"}},
        {"event": "shard_claimed", "shard": "rt/00000", "attempt": 1},
        {"event": "model_ready", "model": "m", "hardware": hardware},
        {"event": "monitor", "run_task": "rt", "memory": {"gpu_peak": 12 << 30}},
    ]
    file = here.worker_events("g0", "1_0-0")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    evaluate(here)
    return here


def times(number: int, pace: float) -> Times:
    """One request after the other, 0.18 to 0.25 s to the first token."""
    begin = number * int(500 * pace) * 1_000_000
    first = begin + int((180 + 7 * (number * 5 % 11)) * pace) * 1_000_000
    last = first + int(150 * pace) * 1_000_000
    return Times(begin, begin, first - 1_000_000, (first, last), last + 1_000_000)


def test_the_page_shows_what_the_command_prints(tmp_path: Path, cli: Cli) -> None:
    base = run(tmp_path / "a", set(range(0, 120, 9)), "NVIDIA A100-SXM4-80GB")
    other = run(tmp_path / "b", set(range(0, 120, 4)), "NVIDIA H100 80GB HBM3", dtype="bfloat16")
    printed = cli("compare", base.path, other.path, "--flips", "2")
    for path, name in ((base.path, "main"), (other.path, "@last")):
        printed = printed.replace(str(path), name)
    lines = [line.rstrip() for line in printed.splitlines()]
    (shown,) = re.findall(
        r"```text\n\$ hpcbench compare main.*?\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    assert shown.splitlines() == lines, "\n".join(lines)
