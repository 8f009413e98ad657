"""The demo as a newcomer sees it: on this machine, without Slurm, root or a container."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.event_log import reported_ends
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.workers import worker_runs
from tests.campaign import first
from tests.demo.reader import hpcbench
from tests.help_examples import example
from tests.pages import blocks, missing, shown

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def metrics(demo: tuple[Path, str]) -> dict[str, Any]:
    """Run task → metric → value."""
    tables = json.loads(hpcbench(demo[0], "report", "--json"))["run_tasks"]
    return {
        name: {metric: entry["value"] for metric, entry in table["metrics"].items()}
        for name, table in tables.items()
    }


def test_the_demo_prints_the_scores_and_where_the_report_lies(demo: tuple[Path, str]) -> None:
    _, printed = demo
    assert re.search(r"vqa-easy +anls ↑ +[01]\.\d{3}", printed)
    (report,) = re.findall(r"report: (\S+)", printed)
    text = Path(report).read_text()
    assert "vqa-easy" in text
    assert Path(report).with_suffix(".html").stat().st_size > 10_000


def test_the_readme_shows_what_the_demo_prints(demo: tuple[Path, str]) -> None:
    (block,) = (one for one in blocks(ROOT / "README.md") if one.text.startswith("$ make demo"))
    ((_, lines),) = shown(block)
    assert lines[0] == ".venv/bin/hpcbench submit examples/demo/plan.yaml --wait"
    assert missing(lines[1:], demo[1]) is None


def test_the_tiny_model_reads_the_easy_pages(metrics: dict[str, Any]) -> None:
    assert metrics["vqa-easy"]["exact_match"] >= 0.9
    assert metrics["ocr-easy"]["cer"] <= 0.2
    assert metrics["kie-easy"]["kie_f1_micro"] >= 0.6
    assert metrics["classification-easy"]["accuracy"] >= 0.9


def test_the_hard_pages_are_visibly_harder(metrics: dict[str, Any]) -> None:
    assert metrics["vqa-hard"]["exact_match"] < metrics["vqa-easy"]["exact_match"] - 0.1
    assert metrics["ocr-hard"]["cer"] > metrics["ocr-easy"]["cer"] + 0.05
    assert metrics["kie-hard"]["kie_f1_micro"] < metrics["kie-easy"]["kie_f1_micro"] - 0.1


def test_reading_commands_agree(demo: tuple[Path, str]) -> None:
    home, _ = demo
    (row,) = json.loads(hpcbench(home, "list", "--json"))
    status = json.loads(hpcbench(home, "status", row["id"], "--json"))
    assert {key: status[key] for key in ("id", "state", "answered", "samples")} == {
        key: row[key] for key in ("id", "state", "answered", "samples")
    }
    assert status["state"] == "done"
    assert all(task["answered"] == task["samples"] for task in status["run_tasks"])
    assert row["id"] in hpcbench(home, "list")
    assert "workers/" in hpcbench(home, "logs", row["id"])


def test_workers_tell_of_their_shards_what_the_shards_own_files_tell(
    demo: tuple[Path, str],
) -> None:
    (folder,) = (demo[0] / "experiments").iterdir()
    here = Experiment(folder)
    reported = {
        f"{event['shard']}.{event['attempt']}": reported_ends(event, run.owner)
        for run in worker_runs(here)
        for event in run.events
        if event["event"] == "shard_done"
    }
    names = [run_task.name for run_task in here.resolved.run_tasks]
    read = shard_states(here, names)
    assert len(reported) == len(read) > 0
    for one, other in zip(read, shard_states(here, names, ends=reported), strict=True):
        last = {key: other.last[key] for key in ("event", "time", "answered")}
        assert {**one.last, **last} == one.last
        assert other._replace(last=one.last, folder=one.folder) == one


def test_login_node_commands_import_nothing_heavy(demo: tuple[Path, str]) -> None:
    home, _ = demo
    heavy = ("torch", "transformers", "vllm", "polars", "matplotlib")
    for arguments in (
        ["--help"],
        ["submit", "--help"],
        ["list"],
        ["status"],
        example("init --dry-run"),
    ):
        code = (
            "import sys; from hpcbench.cli.main import main\n"
            "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
            f"print('HEAVY', [name for name in {heavy!r} if name in sys.modules])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "HPCBENCH_HOME": str(home)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "HEAVY []" in done.stdout, (arguments, done.stdout[-200:])


@pytest.mark.parametrize("ml_task", first(1, ["vqa", "classification"]))
def test_a_plan_by_new_runs_as_it_was_written(tmp_path: Path, ml_task: str) -> None:
    plan = tmp_path / "first.yaml"
    data = f"demo_{ml_task}"
    words = ["--task", ml_task, "--dataset", data, "--model", "tiny-vlm", "--limit", "5"]
    written = hpcbench(tmp_path, "new", str(plan), *words)
    assert f"hpcbench submit {plan} --wait" in written

    assert "report: " in hpcbench(tmp_path, "submit", str(plan), "--wait")

    table = json.loads(hpcbench(tmp_path, "report", "--json"))["run_tasks"]["first"]
    assert (table["answered"], table["coverage"]) == (5, 1.0)
    metric = "exact_match" if ml_task == "vqa" else "accuracy"
    assert table["metrics"][metric]["value"] >= 0.6


@pytest.mark.campaign  # tests/faults kills a scripted engine's worker
def test_a_worker_killed_on_this_machine_is_replaced_without_being_asked(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        """\
schema_version: 1
name: killed
executor: local
run_tasks:
  - {name: vqa, ml_task: vqa, model: tiny-vlm, dataset: demo_vqa, prompt: demo_vqa,
     generation: {max_tokens: 96}, resources: {cpus: 1}}
"""
    )
    experiment = Path(json.loads(hpcbench(tmp_path, "submit", str(plan), "--json"))["path"])
    deadline = time.monotonic() + 120
    while not list(experiment.glob("shards/vqa/*.responses.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    claim = next(experiment.glob("shards/vqa/*.1.events.jsonl"))
    os.kill(json.loads(claim.read_text().splitlines()[0])["owner"]["pid"], signal.SIGKILL)

    printed = hpcbench(tmp_path, "watch", experiment.name)

    assert "report: " in printed
    status = json.loads(hpcbench(tmp_path, "status", "--json"))
    assert (status["state"], status["round"]) == ("done", 2)
    assert ended(experiment), "wrapper, engine or supervisor outlived the experiment"


def ended(experiment: Path) -> bool:
    """Whether no process of an experiment is left within half a minute of its report.

    The report appears before the job that wrote it, and the supervisor that waits for that job, are gone.
    """
    for _ in range(300):
        if not subprocess.run(["pgrep", "-f", str(experiment)], capture_output=True).stdout:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.campaign  # tests/engine/test_vllm.py starts the same vLLM and holds it to its contract
def test_the_same_plan_runs_through_real_vllm_on_cpu(tmp_path: Path, vllm_python: Path) -> None:
    registry = tmp_path / "registry" / "models"
    registry.mkdir(parents=True)
    options = "{enforce_eager: true, max_num_seqs: 8, limit_mm_per_prompt: {image: 1, video: 0}}"
    (registry / "tiny-vlm.yaml").write_text(
        f"""\
schema_version: 1
name: tiny-vlm
source: {ROOT}/examples/demo/model
engine: vllm
image: venv:{vllm_python.parent.parent}
dtype: float32
context_length: 1024
gpus: 0
engine_options: {options}
load_timeout: 300
"""
    )

    printed = hpcbench(
        tmp_path,
        "submit",
        "examples/demo/doctor.yaml",
        "--registry",
        str(registry.parent),
        "--wait",
    )

    assert "report: " in printed
    table = json.loads(hpcbench(tmp_path, "report", "--json"))["run_tasks"]["vqa"]
    assert table["coverage"] == 1.0
    assert table["metrics"]["exact_match"]["value"] >= 0.75
    manifest = next(tmp_path.glob("experiments/*/manifest.json")).read_text()
    assert "vllm" in manifest
