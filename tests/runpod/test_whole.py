"""A whole experiment whose engine runs in a pod: submit, worker, wrapper, engine, scores."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.runpod.conftest import Rig
from tests.runpod.fake_api import KEY, FakeRunPod

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def test_an_experiment_in_a_pod(
    rig: Rig, fake: FakeRunPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = rig.site().model_dump(include={"manager", "options"})
    command = rig.write_plan(
        "tiny-pod", {"home": str(rig.folder / "home"), "container": container}, concurrency=4
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(rig.folder / "config"))
    done = subprocess.run(command, cwd=rig.folder, capture_output=True, text=True, check=False)
    (experiment,) = (rig.folder / "home/experiments").iterdir()
    logs = "".join(path.read_text() for path in (experiment / "workers").iterdir())
    assert done.returncode == 0, done.stdout + done.stderr + logs
    table = json.loads((experiment / "metrics.json").read_text())["run_tasks"]["vqa"]
    assert table["coverage"] == 1.0
    assert table["metrics"]["anls"]["value"] > 0.5
    assert len(fake.asked("POST")) == 1
    assert not fake.pods
    assert "hpcbench.engines.huggingface" in logs, "the engine's log came here"
    assert "FATAL" not in logs
    everything = b"".join(path.read_bytes() for path in experiment.rglob("*") if path.is_file())
    assert KEY.encode() not in everything
    manifest = json.loads((experiment / "manifest.json").read_text())
    (environment,) = manifest["environments"].values()
    assert environment["kind"] == "runpod"
