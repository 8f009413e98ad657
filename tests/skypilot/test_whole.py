"""A whole experiment on machines that are taken away: submit, workers, wrappers, engines, scores."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.skypilot.conftest import Rig
from tests.skypilot.fake_sky import FakeSky

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

PREEMPTED = 3
"""Machines that are taken away: more than the deaths after which a worker gives up a model."""


def test_preemption_costs_no_answer_and_blames_no_model(
    rig: Rig, fake: FakeSky, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rig.folder
    container = rig.site(start_minutes=10).model_dump(include={"manager", "options"})
    command = rig.write_plan(
        "tiny-rented",
        {"home": str(folder / "hpcbench"), "container": container},
        concurrency=1,
        sample={"size": 40},
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    with (folder / "said").open("wb") as said:
        submit = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    home = folder / "hpcbench/experiments"
    taken = 0
    while submit.poll() is None:
        # The first while its engine loads, if it says so before it is ready; the others once they are ready.
        ready, loading = sum(_events(home, "model_ready")), sum(_events(home, "loading"))
        if taken < PREEMPTED and (ready == taken if taken else loading or ready):
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
