"""Other kits' own programs open the logs that we write for them, in an environment of their own from PyPI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import ValidationError

from hpcbench.evaluation import stage
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from hpcbench.interchange.kit_logs import write_logs
from tests.unit.interchange.atif_schema import check
from tests.unit.interchange.test_trajectories import agents
from tests.unit.small import experiment, record, response, write_attempt

PACKAGES = ("inspect-ai==0.3.285", "fastapi", "httpx", "pyyaml")
"""Pinned: what is tested here is our log, not their next release."""

ALONE = ("lmms-eval==0.7.3", "harbor==0.26.0")
"""Without what they need to run models and agents: showing logs takes none of that."""

READ = r"""
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries
found = []
for info in list_eval_logs(sys.argv[1]):
    log, header = read_eval_log(info), read_eval_log(info, header_only=True)
    found.append({
        "format": info.name.rpartition(".")[2],
        "task": info.task, "version": log.version, "status": header.status,
        "samples": [
            [one.id, one.output.completion, one.target, one.error and one.error.message,
             {name: score.as_float() for name, score in one.scores.items()}]
            for one in log.samples
        ],
        "summaries": len(read_eval_log_sample_summaries(info)),
        "metrics": sorted(header.results.scores[0].metrics),
    })
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with Inspect."""
    folder = tmp_path_factory.mktemp("inspect") / "venv"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
    made = folder / "bin" / "python"
    install = [*uv, "pip", "install", "-q", "--python", str(made)]
    subprocess.run([*install, *PACKAGES], check=True, timeout=900)
    # Harbor itself wants Python 3.12; its models of trajectories are pydantic's alone.
    newer = [
        "--no-deps",
        "--python-version",
        "3.12",
        "--target",
        next(folder.glob("lib/*/site-packages")),
    ]
    subprocess.run([*install, *newer, *ALONE], check=True, timeout=600)
    return made


@pytest.fixture
def here(tmp_path: Path) -> Experiment:
    """Three samples: right, wrong, failed."""
    here = experiment(tmp_path, [record(n, id=f"page/{n}") for n in range(3)])
    write_json(
        here.manifest_file, {**read_json(here.manifest_file), "created": "2026-11-20T14:32:00+0300"}
    )
    vars(here).pop("manifest", None)
    texts = ["0", "не то", None]
    write_attempt(here, 0, 1, [response(f"page/{n}", text) for n, text in enumerate(texts)])
    stage.evaluate(here)
    return here


def run(python: Path, code: str, folder: Path) -> Any:
    """Output of a program about a folder, as JSON."""
    done = subprocess.run(
        [str(python), "-c", code, str(folder)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_inspect_reads_every_sample_of_both_forms(
    python: Path, here: Experiment, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    assert len([*write_logs(here, "inspect", logs, (), pytest.fail)]) == 1
    assert len([*write_logs(here, "inspect-json", logs, (), pytest.fail)]) == 1
    found = run(python, READ, logs)
    assert sorted(one["format"] for one in found) == ["eval", "json"]
    for one in found:
        assert (one["task"], one["version"], one["status"]) == ("rt", 2, "success")
        assert one["samples"] == [
            ["page/0", "0", "0", None, {"exact_match": 1}],
            ["page/1", "не то", "1", None, {"exact_match": 0}],
            ["page/2", "", "2", "the engine hung up", {"exact_match": 0}],
        ]
        assert one["summaries"] == 3
        assert one["metrics"] == ["high", "low", "value"]


TURNS = r"""
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log
found = []
for info in list_eval_logs(sys.argv[1]):
    first = read_eval_log(info, resolve_attachments=True).samples[0]
    tools = [one for one in first.messages if one.role == "tool"]
    found.append({
        "roles": [one.role for one in first.messages],
        "events": [one.event for one in first.events],
        "errors": [one.error and one.error.type for one in tools],
        "image": tools[1].content[1].image[:22],
    })
print(json.dumps(found))
"""


def test_inspect_reads_the_turns_of_agents(python: Path, tmp_path: Path) -> None:
    here, logs = agents(tmp_path), tmp_path / "logs"
    assert len([*write_logs(here, "inspect", logs, (), pytest.fail)]) == 1
    (found,) = run(python, TURNS, logs)
    assert found["roles"] == [
        "user", "assistant", "tool", "assistant", "tool", "tool", "tool", "assistant",
    ]  # fmt: skip
    assert found["events"] == ["model", "tool", "model", "tool", "tool", "tool", "model"]
    assert found["errors"] == [None, None, "parsing", "timeout"]
    assert found["image"] == "data:image/png;base64,"


ATIF = r"""
import copy, json, sys
from pathlib import Path
from typing import get_args
from pydantic import ValidationError
from harbor.models.trajectories import Trajectory
def reason(document):
    try:
        Trajectory.model_validate(document)
    except ValidationError as error:
        return str(error)
    return ""
(path,) = Path(sys.argv[1]).glob("*.jsonl")
documents = [json.loads(line) for line in path.read_text().splitlines()]
print(json.dumps({
    "versions": get_args(Trajectory.model_fields["schema_version"].annotation),
    "wrong": [one for one in map(reason, documents) if one],
    "spoiled": [bool(reason(one)) for one in json.loads(Path(sys.argv[1], "spoiled.json").read_text())],
}))
"""


def spoiled(document: dict[str, Any]) -> list[dict[str, Any]]:
    """A trajectory with one mistake each, in every part of it."""

    def change(path: tuple[str | int, ...], **fields: object) -> dict[str, Any]:
        copied = json.loads(json.dumps(document))
        at = copied
        for key in path:
            at = at[key]
        at |= fields
        return copied

    call, result = ("steps", 2, "tool_calls", 0), ("steps", 2, "observation", "results", 0)
    return [
        change((), schema_version="ATIF-v9"),
        change((), steps=[]),
        *(change(path, unknown=1) for path in ((), ("agent",), ("steps", 1), call, result)),
        change(("agent",), version=3),
        change(("steps", 1), step_id=7),
        change(("steps", 0), source="tool"),
        change(("steps", 0), model_name="m"),
        change(call, arguments="{}"),
        change(result, source_call_id="of nobody"),
    ]


def test_harbor_s_own_models_take_trajectories_and_refuse_what_our_rules_refuse(
    python: Path, tmp_path: Path
) -> None:
    here, logs = agents(tmp_path), tmp_path / "logs"
    ((path, _),) = write_logs(here, "atif", logs, (), pytest.fail)
    first = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    wrong = spoiled(first)
    for one in wrong:
        with pytest.raises((AssertionError, ValidationError)):
            check(one)
    (logs / "spoiled.json").write_text(json.dumps(wrong))
    found = run(python, ATIF, logs)
    assert found["versions"][-1] == first["schema_version"], "the newest version of the format"
    assert found["wrong"] == []
    assert found["spoiled"] == [True] * len(wrong)


VIEW = r"""
import json, sys
from unittest.mock import MagicMock
# What imports torch, and has no part in showing logs.
for name in ("utils", "tasks", "tasks._task_utils", "tasks._task_utils.media_resolver", "tui.discovery"):
    sys.modules[f"lmms_eval.{name}"] = MagicMock()
from fastapi.testclient import TestClient
from lmms_eval.tui.server import app
client, where = TestClient(app), {"logs_path": sys.argv[1]}
(run,) = client.get("/logs/runs", params=where).json()
path = f"/logs/runs/{run['run_id']}"
print(json.dumps({
    "run": run,
    "results": client.get(f"{path}/results", params=where).json(),
    "samples": client.get(f"{path}/samples/rt", params=where).json(),
}))
"""


def test_lmms_evals_viewer_lists_the_run_and_its_samples(
    python: Path, here: Experiment, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    assert len([*write_logs(here, "lmms-eval", logs, (), pytest.fail)]) == 2
    found = run(python, VIEW, logs)
    assert found["run"]["model_name"] == "m"
    assert found["run"]["tasks"] == ["rt"]
    assert found["run"]["metrics"]["rt"]["exact_match,none"] == pytest.approx(1 / 3)
    assert found["results"]["n-samples"]["rt"]["effective"] == 3
    assert found["samples"]["total"] == 3
    assert [one["filtered_resps"] for one in found["samples"]["samples"]] == [
        ["0"],
        ["не то"],
        [""],
    ]
    assert [one["exact_match"] for one in found["samples"]["samples"]] == [1, 0, 0]
