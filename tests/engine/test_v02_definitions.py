"""Definitions of VLMHyperBench v0.2 run unchanged, with the real tiny model behind the names of theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.claims import answers_of
from hpcbench.experiment.layout import all_experiments
from tests.engine.test_vllm import lab_vllm
from tests.unit.v02 import QUESTIONS, own_package, v02_registry, write

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

NAME = "Счета «2026»: вопросы"

THIRD: dict[str, Any] = {
    "name": NAME, "ml_task": "vqa", "model": "qwen2-vl", "dataset": "DocVQA_RU", "metrics": ["ANLS"],
    "generation": {"max_tokens": 8}, "resources": {"cpus": 1},
}  # fmt: skip
"""A run task with a name of the users' own."""

OWN: dict[str, Any] = {**THIRD, "name": "own", "ml_task": "Own"}
"""A run task whose ML task has a module of the users' own; it names no prompt."""

WORDS: dict[str, Any] = {**THIRD, "name": "words", "ml_task": "Words"}
"""The same with a module that was written to v0.2's words."""


def hpcbench(folder: Path, *arguments: str) -> str:
    """Output of a command that ends well."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("hpcbench")), *arguments],
        cwd=folder,
        env={
            **os.environ, "HPCBENCH_HOME": str(folder / "home"), "XDG_CONFIG_HOME": str(folder / "config"),
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.campaign  # vLLM starts twice; the test below runs the same definitions with a quicker engine
def test_the_definitions_of_v02_run_with_the_engine_that_they_name(tmp_path: Path) -> None:
    more = (
        f"image: venv:{lab_vllm().parents[1]}\nload_timeout: 600\n"
        "engine_options: {enforce_eager: true, max_num_seqs: 8}\n"
    )
    registry = v02_registry(tmp_path, "vllm", more)
    plan = str(registry / "experiments/benchmark_2025.yaml")
    hpcbench(tmp_path, "submit", plan, "--wait")
    (experiment,) = all_experiments(tmp_path / "home")
    assert {one.model.engine for one in experiment.resolved.run_tasks} == {"vllm"}
    tables = json.loads(experiment.metrics_file.read_text())["run_tasks"]
    assert {name: one["ok"] for name, one in tables.items()} == {
        "qwen_docvqa_ru": len(QUESTIONS), "llava_docvqa_ru": len(QUESTIONS),
    }  # fmt: skip
    again = hpcbench(
        tmp_path, "submit", "Grand VLM Benchmark 2025", "--registry", str(registry), "--dry-run"
    )
    assert "asks 0 of 8 samples" in again


def test_the_definitions_of_v02_run_unchanged(tmp_path: Path) -> None:
    registry = v02_registry(tmp_path, "huggingface")
    source = own_package(tmp_path)
    for name in ("own", "words"):
        write(registry, f"ml_tasks/{name}.yaml",
              f'name: {name.title()}\nentry_point: "my_project.tasks.{name}"\nsupported_metrics: ["anls"]\n'
              f"custom_packages:\n  - {{name: my-project, source: {source}}}\n")  # fmt: skip
    more = json.dumps([THIRD, OWN, WORDS], ensure_ascii=False)
    printed = hpcbench(
        tmp_path, "submit", str(registry / "experiments/benchmark_2025.yaml"),
        # vLLM is not here: the tiny model's own engine takes its place.
        "--set", "run_tasks/qwen_docvqa_ru:model.engine=huggingface",
        "--set", "run_tasks/qwen_docvqa_ru:resources.cpus=1",
        "--set", "run_tasks/llava_docvqa_ru:resources.cpus=1",
        "--set", f"+run_tasks={more}", "--wait",
    )  # fmt: skip
    assert NAME in printed
    (experiment,) = all_experiments(tmp_path / "home")
    assert experiment.id.split("-", 2)[2].startswith("Grand-VLM-Benchmark-2025+")
    tables = json.loads(experiment.metrics_file.read_text())["run_tasks"]
    assert {name: sorted(one["metrics"]) for name, one in tables.items()} == {
        "qwen_docvqa_ru": ["anls"], "llava_docvqa_ru": ["anls", "cer"], NAME: ["anls"], "own": ["anls"],
        "words": ["anls"],
    }  # fmt: skip
    prompts = {**dict.fromkeys(tables, "vqa_short_ru"), "own": "none", "words": "none"}
    assert experiment.manifest.prompts == prompts
    assert "Ответь" in (experiment.resolved.run_tasks[0].prompt.user or "")
    assert NAME in (experiment.report_dir / "report.md").read_text()
    assert NAME in hpcbench(tmp_path, "status")
    assert NAME in hpcbench(tmp_path, "export", "--format", "csv", "--run-task", NAME)
    assert NAME in hpcbench(tmp_path, "report", "--json")
    for name in ("own", "words"):
        assert tables[name]["ok"] == len(QUESTIONS)
        answers = [one for _, shard in answers_of(experiment, name) for one in shard.values()]
        assert any(one.text for one in answers)
    again = hpcbench(tmp_path, "submit", str(registry / "experiments/benchmark_2025.yaml"), "--dry-run",
                     "--registry", str(registry), "--set", f"+run_tasks={json.dumps([OWN])}")  # fmt: skip
    assert "asks all samples of own: module 'my_project.tasks.own' decides what is asked" in again
    for path in experiment.path.rglob("*"):
        assert path.name.isascii()
        assert " " not in path.name
