"""Two arms in turns: the worker is killed in the middle of a pair, and the whole stops early all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import Bench, Trial, kill, until

pytestmark = [
    pytest.mark.engine, pytest.mark.timeout(600),
]  # fmt: skip


def submitted(
    bench: Bench, *arguments: object, size: int = 2, pilot: int = 20, **script: Any
) -> Trial:
    """Two arms; b's engine may misbehave by a script of its own."""
    other = bench.script_file.with_name("b.json")
    other.write_text(json.dumps(script))
    option = "model.engine_options.script="
    command = (
        "ab", bench.plan({}, shard_size=size, pilot=pilot), "--registry", bench.folder / "registry", "--json",
        "--a", f"{option}{bench.script_file}", "--b", f"{option}{other}", *arguments,
    )  # fmt: skip
    out, _ = bench.run(*command)
    return Trial(bench, Path(json.loads(out)["path"]))


def reported(trial: Trial) -> Any:
    """Output of `hpcbench ab EXPERIMENT --json` about the only run task."""
    (found,) = json.loads(trial.bench.run("ab", trial.id, "--json")[0])["run_tasks"]
    return found


def test_a_worker_killed_in_the_middle_of_a_pair_costs_but_that_pair(bench: Bench) -> None:
    bench.script(answer_ms=[20, 30])
    trial = submitted(bench, "--no-early-stop", size=4, answer_ms=[40, 60])
    until(lambda: trial.answered() > 10, "answers")
    for pid in trial.workers():
        kill(pid)
    trial.wait("done")

    found = reported(trial)
    look = found["look"]
    assert (look["last"], look["done"], found["looks"]) == (True, 10, 1)
    assert look["samples"] == 40
    assert trial.twice() == []
    # The pair that was cut is of two workers, or in several goes; all others were asked in one.
    assert look["blocks"] >= 8
    assert look["blocks"] + look["blocks_apart"] == 10
    slower = next(one for one in look["speed"] if one["figure"] == "e2e_ms")
    assert slower["ratio"] > 1
    (quality, *_) = look["quality"]
    assert quality["baseline"] == quality["candidate"]
    assert "pairs of blocks" in trial.bench.run("ab", trial.id)[0]


def test_arms_that_are_distinguished_stop_early_and_the_experiment_ends(bench: Bench) -> None:
    bench.script(answer_ms=[5, 10])
    trial = submitted(bench, answer_ms=[5, 10], broken="question 0[0-9][1-9]", pilot=0)
    now = trial.wait("incomplete")  # so few answers of arm b are ok

    found = reported(trial)
    look = found["look"]
    assert look["stop"], json.dumps(look, indent=1)
    assert look["verdicts"] == {"anls": "worse"}
    assert look["done"] < look["of"]
    assert now["answered"] == now["samples"] < 80
    assert "stopped early at" in trial.bench.run("ab", trial.id)[0]
    assert "has enough answers" in trial.bench.run("events", trial.id)[0]
    metrics = json.loads(trial.metrics)["run_tasks"]
    assert metrics["numbers.a"]["coverage"] == 1.0
    outcome = json.loads((trial.path / "outcome.json").read_text())
    assert (outcome["state"], outcome["shards_left"]) == ("incomplete", [])


@pytest.mark.campaign  # the arm below ends both by the same way; tests/unit/worker/test_pilot.py has pilots
def test_an_arm_whose_pilot_fails_ends_both(bench: Bench) -> None:
    bench.script(answer_ms=[5, 10])
    trial = submitted(bench, answer_ms=[5, 10], broken=".", pilot=4)
    status = trial.wait("incomplete")
    states = {one["name"]: (one["state"], one["reason"]) for one in status["run_tasks"]}
    assert states["numbers.b"][0] == "failed"
    assert states["numbers.a"][0] in ("failed", "incomplete")  # by how far it had come
    assert all(
        "arm b failed, so both arms end: its pilot failed" in reason
        for _, reason in states.values()
    )
    assert trial.answered() < 40


def test_an_arm_that_cannot_be_loaded_ends_both(bench: Bench) -> None:
    trial = submitted(bench, size=4, fail_loads=-1)
    trial.wait("incomplete", "failed")
    assert trial.answered() <= 4
    assert reported(trial)["look"] is None
    assert "no interim look yet" in trial.bench.run("ab", trial.id)[0]
