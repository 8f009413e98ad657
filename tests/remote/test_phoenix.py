"""Traces in a real Phoenix, installed from PyPI into an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.experiment.claims import Owner, claim, shard_states
from hpcbench.experiment.files import write_json
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.records import Response, Times
from tests.conftest import unavailable
from tests.remote.conftest import free_port, running
from tests.unit.small import experiment, record

PLACE = Path("/var/tmp/hpcbench-phoenix")


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    program = PLACE / "bin" / "phoenix"
    if not program.exists():
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(PLACE)], check=False)
        pip = [str(PLACE / "bin" / "pip"), "install", "-q", "arize-phoenix>=12"]
        if made.returncode or subprocess.run(pip, check=False).returncode:
            unavailable("Phoenix cannot be installed")
    folder, port = tmp_path_factory.mktemp("phoenix"), free_port()
    settings = {
        "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()), "PHOENIX_TELEMETRY_ENABLED": "false",
    }  # fmt: skip
    os.environ |= settings
    try:
        for _ in running([str(program), "serve"], port, folder / "log", seconds=90):
            yield f"http://127.0.0.1:{port}"
    finally:
        for name in settings:
            del os.environ[name]


def answered(folder: Path) -> Experiment:
    """An experiment with one good answer, one that failed, and one sample nobody asked."""
    here = experiment(folder, [record(1), record(2), record(3)])
    write_json(here.manifest_file, {**here.manifest, "created": "2026-01-15T10:00:00+0000"})
    here = Experiment(here.path)
    (state,) = shard_states(here, ["rt"])
    taken = claim(here, state, Owner("1", 0, "n", 1))
    assert taken is not None
    times = Times(10**9, 10**9, 10**9, (2 * 10**9,), 3 * 10**9)
    usage = {"prompt_tokens": 11, "completion_tokens": 2}
    taken.record(
        Response("s1", "ok", "Семь", "stop", usage, times, 1, ("a" * 64,), prompt="p/total")
    )
    taken.record(Response("s2", "failed", None, None, None, times, 3, (), "the engine is gone"))
    taken.end("done")
    return here


def asked(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{url}/v1/projects/traced/spans?limit=50") as reply:
        found: list[dict[str, Any]] = json.loads(reply.read())["data"]
    return found


@pytest.mark.timeout(600)
def test_traces_say_what_was_asked_and_what_came_back(
    phoenix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = answered(tmp_path / "home")
    monkeypatch.setenv("HPCBENCH_HOME", str(tmp_path / "home"))
    command = ["export", str(here.path), "--to", "phoenix", "--url", phoenix, "--project", "traced"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 2
    deadline = 50
    while len(asked(phoenix)) < 2 and (deadline := deadline - 1):
        time.sleep(0.2)
    good, bad = sorted(asked(phoenix), key=lambda one: str(one["status_code"]), reverse=True)
    attributes = good["attributes"]
    assert attributes["llm.input_messages.0.message.content"] == "number 1?"
    assert attributes["output.value"] == "Семь"
    assert (attributes["llm.token_count.prompt"], attributes["llm.token_count.completion"]) == (
        11,
        2,
    )
    assert json.loads(attributes["metadata"])["prompt"] == "p/total"
    assert (good["start_time"][:19], good["end_time"][:19]) == (
        "2026-01-15T10:00:00",
        "2026-01-15T10:00:02",
    )
    assert (bad["status_code"], bad["status_message"]) == ("ERROR", "the engine is gone")
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 0, "what is there is not sent again"
    command[command.index(phoenix)] = "http://127.0.0.1:9"
    assert main(command) == 3
    assert "cannot be reached" in capsys.readouterr().err
