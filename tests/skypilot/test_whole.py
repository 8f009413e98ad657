"""A whole experiment on machines that are taken away: submit, workers, wrappers, engines, scores."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.pod import ROOT
from tests.skypilot.conftest import IMAGE, Rig
from tests.skypilot.fake_sky import FakeSky

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

PREEMPTED = 3
"""Machines that are taken away: more than the deaths after which a worker gives up a model."""


def test_preemption_costs_no_answer_and_blames_no_model(
    rig: Rig, fake: FakeSky, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rig.folder
    model = yaml.safe_load((ROOT / "registries/models/tiny-vlm.yaml").read_text())
    model |= {"name": "tiny-rented", "image": IMAGE, "source": str(ROOT / "examples/demo/model")}
    site = {
        "schema_version": 1, "name": "default", "executor": "local", "home": str(folder / "hpcbench"),
        "container": rig.site(start_minutes=10).model_dump(include={"manager", "options"}),
    }  # fmt: skip
    plan = {
        "schema_version": 1, "name": "rented",
        "run_tasks": [{
            "name": "vqa", "ml_task": "vqa", "model": "tiny-rented", "dataset": "demo_vqa", "split": "easy",
            "prompt": "demo_vqa", "generation": {"max_tokens": 24}, "concurrency": 1, "sample": {"size": 8},
        }],
    }  # fmt: skip
    for file, definition in (
        (folder / "registry/models/tiny-rented.yaml", model), (folder / "plan.yaml", plan),
        (folder / "config/hpcbench/sites/default.yaml", site),
    ):  # fmt: skip
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(definition))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    program = str(Path(sys.executable).with_name("hpcbench"))
    with (folder / "said").open("wb") as said:
        submit = subprocess.Popen(
            [program, "submit", "plan.yaml", "--registry", str(folder / "registry"), "--wait", "--json"],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
    home = folder / "hpcbench/experiments"
    taken = 0
    while submit.poll() is None:
        # The first while its engine loads, the others once their engine is ready.
        ready, loading = sum(_events(home, "model_ready")), sum(_events(home, "loading"))
        if taken < PREEMPTED and (ready == taken if taken else loading):
            for name in [one for one, cluster in fake.clusters.items() if cluster.state == "UP"]:
                fake.delete(name)
                taken += 1
        time.sleep(0.02)
    (experiment,) = home.iterdir()
    logs = "".join(path.read_text() for path in (experiment / "workers").iterdir())
    assert submit.returncode == 0, (folder / "said").read_text() + logs
    assert taken == PREEMPTED
    assert len(fake.rented()) == PREEMPTED + 1
    assert not fake.clusters
    table = json.loads((experiment / "metrics.json").read_text())["run_tasks"]["vqa"]
    assert table["coverage"] == 1.0
    assert sum(_events(home, "model_failed")) == 0
    assert sum(_events(home, "poisonous")) == 0
    assert logs.count('"cause":"machine_taken"') + logs.count('"cause": "machine_taken"') == taken


def _events(home: Path, kind: str) -> list[int]:
    """Numbers of events of a kind, one for each log of a worker."""
    return [log.read_text().count(f'"{kind}"') for log in home.glob("*/workers/*.events.jsonl")]
