"""An experiment whose data come from S3 and whose results go there, with copies on the node's own disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from hpcbench.experiment.claims import pieces_of
from hpcbench.experiment.layout import Experiment
from tests.help_examples import example
from tests.remote.conftest import Server, settle

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def test_from_s3_over_the_nodes_disk_to_s3(s3: Server, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples/demo/data", s3.folder / "demo", dirs_exist_ok=True)
    settle()
    registry = tmp_path / "registry"
    dataset = {
        "schema_version": 1, "name": "in_s3", "source": "s3://bucket/demo", "annotations": "vqa.jsonl",
        "fields": ["question"], "group_by": ["doc_type", "language"], "split": "easy",
    }  # fmt: skip
    prompt = {
        "schema_version": 1, "name": "by_type", "user": "{{ question }}",
        "prompts": [{"id": "receipts", "user": "{{ question }}", "when": {"doc_type": "receipt"}}],
    }  # fmt: skip
    site = {
        "schema_version": 1, "name": "default", "executor": "local", "home": str(tmp_path / "home"),
        "storage": {"s3": s3.options}, "staging": str(tmp_path / "node"),
    }  # fmt: skip
    plan = {
        "schema_version": 1, "name": "whole", "upload": [{"url": "s3://bucket/results"}],
        "run_tasks": [{
            "name": "vqa", "ml_task": "vqa", "model": "tiny-vlm", "dataset": "in_s3", "prompt": "by_type",
            "where": "language == 'en'", "sample": {"size": 30, "by": "doc_type"},
            "generation": {"max_tokens": 24}, "concurrency": 4,
        }],
    }  # fmt: skip
    for folder, definition in (
        (registry / "datasets/in_s3.yaml", dataset), (registry / "prompts/by_type.yaml", prompt),
        (tmp_path / "config/hpcbench/sites/default.yaml", site), (tmp_path / "plan.yaml", plan),
    ):  # fmt: skip
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_text(yaml.safe_dump(definition))
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    program = Path(sys.executable).with_name("hpcbench")
    done = subprocess.run(
        [program, "submit", "plan.yaml", "--registry", str(registry), "--wait", "--json"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    sent = example(
        "upload @last --to s3://BUCKET/results", {"s3://BUCKET/results": "s3://bucket/results"}
    )
    done = subprocess.run(
        [program, *sent], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (experiment,) = (tmp_path / "home/experiments").iterdir()
    table = json.loads((experiment / "metrics.json").read_text())["run_tasks"]["vqa"]
    assert (table["asked"], table["coverage"]) == (30, 1.0)
    assert table["metrics"]["anls"]["value"] > 0.5
    here = Experiment(experiment)
    events = [event for _, own in here.worker_records() for event in own]
    staged = [Path(event["source"]).name for event in events if event["event"] == "staged"]
    assert sorted(staged) == ["files", "model"], "dataset and model came from the node's own disk"
    (ready,) = [event for event in events if event["event"] == "model_ready"]
    assert ready["source"].startswith(str(tmp_path / "node")), (
        "with the seconds, where it was loaded from"
    )
    prompts = {one.prompt for piece in pieces_of(here, "vqa") for one in piece}
    assert prompts - {""} == {"by_type", "by_type/receipts"}
    manifest = json.loads((experiment / "manifest.json").read_text())
    assert manifest["sources"] == {"datasets/in_s3": "s3://bucket/demo"}
    assert manifest["measured"]["prompt_hashes"]["vqa"].startswith("sha256:")
    sent = s3.folder / "results" / experiment.name
    deadline = time.monotonic() + 30  # it goes out after the experiment has ended
    while not (sent / "hpcbench-upload.json").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert (sent / "report/report.md").read_bytes() == (
        experiment / "report/report.md"
    ).read_bytes()
    listed = json.loads((sent / "hpcbench-upload.json").read_text())["files"]
    assert {"metrics.json", "manifest.json"} <= {one["path"] for one in listed}
    everything = b"".join(path.read_bytes() for path in experiment.rglob("*") if path.is_file())
    assert env["AWS_SECRET_ACCESS_KEY"].encode() not in everything
