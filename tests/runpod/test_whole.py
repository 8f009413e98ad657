"""A whole experiment whose engine runs in a pod: submit, worker, wrapper, engine, scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.runpod.conftest import IMAGE, Rig
from tests.runpod.fake_api import KEY, FakeRunPod

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def test_an_experiment_in_a_pod(
    rig: Rig, fake: FakeRunPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake's image has the Python of the tests, and so the Hugging Face engine."""
    folder = rig.folder
    model = yaml.safe_load((ROOT / "registries/models/tiny-vlm.yaml").read_text())
    model |= {"name": "tiny-pod", "image": IMAGE, "source": str(ROOT / "examples/demo/model")}
    site = {
        "schema_version": 1, "name": "default", "executor": "local", "home": str(folder / "home"),
        "container": rig.site().model_dump(include={"manager", "options"}),
    }  # fmt: skip
    plan = {
        "schema_version": 1, "name": "pod",
        "run_tasks": [{
            "name": "vqa", "ml_task": "vqa", "model": "tiny-pod", "dataset": "demo_vqa", "split": "easy",
            "prompt": "demo_vqa", "generation": {"max_tokens": 24}, "concurrency": 4, "sample": {"size": 8},
        }],
    }  # fmt: skip
    for file, definition in (
        (folder / "registry/models/tiny-pod.yaml", model), (folder / "plan.yaml", plan),
        (folder / "config/hpcbench/sites/default.yaml", site),
    ):  # fmt: skip
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(definition))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    program = str(Path(sys.executable).with_name("hpcbench"))
    done = subprocess.run(
        [program, "submit", "plan.yaml", "--registry", str(folder / "registry"), "--wait", "--json"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (experiment,) = (folder / "home/experiments").iterdir()
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
