"""A module of the user's own among other run tasks: broken, killed with its worker, corrected, resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.faults.conftest import Bench, kill, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

MODULE = """
import csv, json, os, pathlib, time
here = pathlib.Path(PLACE)
mode = (here / "mode").read_text()
if mode == "broken":
    raise SystemExit("the licence has expired")
if mode == "slow":
    (here / "pid").write_text(str(os.getpid()))
    time.sleep(600)
task = json.load(open("run_task.json", encoding="utf-8"))
with open("answers.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file, lineterminator="\\n").writerows(
        [["id", "prediction"], *([one["id"], one["metadata"]["question"]] for one in task["items"])]
    )
"""


def test_a_module_fails_dies_with_its_worker_and_goes_on_when_it_is_corrected(bench: Bench) -> None:
    own = bench.folder / "own"
    own.mkdir()
    (own / "mode").write_text("broken")
    (own / "own_task.py").write_text(MODULE.replace("PLACE", repr(str(own))))
    (own / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "own-task"\nversion = "1.0"\n'
        '[tool.hatch.build.targets.wheel]\nonly-include = ["own_task.py"]\n'
    )
    package = {"name": "own-task", "source": {"type": "local", "path": str(own)}}
    task = {
        "name": "own", "plugin": "vqa", "module": "own_tusk", "metrics": ["exact_match"],
        "required_packages": [package],
    }  # fmt: skip
    bench.write("registry/ml_tasks/own.yaml", task)
    plan = bench.plan({}, {"name": "mine", "ml_task": "own"}, parallelism=1)
    _, said = bench.run("submit", plan, "--registry", bench.folder / "registry", code=2)
    assert "registry/ml_tasks/own.yaml:3:9: module 'own_tusk' is not in hpcbench's own" in said
    bench.write("registry/ml_tasks/own.yaml", {**task, "module": "own_task"})

    trial = bench.submit(plan)
    status = trial.wait("incomplete")
    by_name = {one["name"]: one for one in status["run_tasks"]}
    assert by_name["numbers"]["answered"] == 40 and by_name["mine"]["answered"] == 0
    why = "module 'own_task' ended with exit code 1: the licence has expired"
    assert why in trial.screen()
    assert [one["cause"] for one in trial.said("shard_failed")] == ["module_failed"]

    (own / "mode").write_text("slow")
    trial.resume()
    process = int(until(lambda: (own / "pid").exists() and (own / "pid").read_text(), "a module"))
    (own / "mode").write_text("good")
    (worker,) = trial.workers()
    kill(worker)
    until(lambda: not _runs(process), "the end of the module")
    trial.wait("done")  # the supervisor submits again what the worker left
    answers = trial.answers("mine")
    assert len(answers) == 40 and answers["mine/s007"] == "ok question 007"
    assert trial.twice() == []
    speed = json.loads((trial.path / "performance.json").read_text())["run_tasks"]["mine"]
    assert speed["ttft_ms"] is None and speed["answers_per_s"] is None


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
