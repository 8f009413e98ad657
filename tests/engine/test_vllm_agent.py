"""An agent whose calls a real vLLM finds: the tiny model that must look again, and vLLM's parser `hermes`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from hpcbench.experiment.layout import Experiment
from tests.conftest import ROOT
from tests.demo.test_demo import hpcbench
from tests.engine.test_vllm import lab_vllm

# Two minutes; tests/demo has the same agent with calls as text, tests/unit/agents both forms.
pytestmark = [pytest.mark.engine, pytest.mark.campaign, pytest.mark.timeout(900)]


def test_the_model_looks_again_by_calls_that_vllm_parses(tmp_path: Path) -> None:
    plan = yaml.safe_load((ROOT / "examples/agent/plan.yaml").read_text())
    looks = plan["run_tasks"][0]
    options = {"enforce_eager": True, "max_num_seqs": 8}
    image = f"venv:{lab_vllm().parents[1]}"
    model = {"name": "tiny-agent", "engine": "vllm", "image": image, "engine_options": options}
    plan["run_tasks"] = [{**looks, "model": model, "limit": 20}]
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(plan))

    hpcbench(tmp_path, "submit", str(path), "--registry", "examples/agent/registries", "--wait")

    (table,) = json.loads(hpcbench(tmp_path, "report", "--json"))["run_tasks"].values()
    assert table["metrics"]["exact_match"]["value"] >= 0.8
    (found,) = (tmp_path / "experiments").glob("*-*")
    folder = Experiment(found).shards("with-crop")
    turns = [line for name in folder.names if "turns" in name for line in folder.records(name)]
    called = [line["reply"] for line in turns if line["reply"]["calls"]]
    assert len(called) >= 20
    for reply in called:
        assert [one["tool"] for one in reply["calls"]] == ["crop"]
        assert "<tool_call>" not in reply["text"], "vLLM took the call out of the text"
