"""Agents whose worker, wrapper or engine is killed: no finished turn is lost, no payment made twice."""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcbench.agents.own_tools import READ_REGION
from tests.campaign import first
from tests.faults.conftest import SAMPLES, Bench, Trial, kill, question, until
from tests.faults.payments import CALLS, Ledger, exits, intents, lines, turns, valid_trajectories

pytestmark = [
    pytest.mark.engine, pytest.mark.timeout(600),
]  # fmt: skip

TURNS = len(CALLS) + 1

FEW = 12
"""Samples of an agent with two models."""


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, Ledger(Path(folder)).open() as opened:
        yield opened


def agents(
    bench: Bench, ledger: Ledger, *, answer_ms: tuple[int, int] = (1, 3), **fields: Any
) -> Trial:
    bench.script(answer_ms=answer_ms, calls=CALLS)
    tools = ["calculator", ledger.tool]
    return bench.submit(bench.plan({"agent": {"tools": tools}, "concurrency": 4}, **fields))


def two_models(bench: Bench, *, answer_ms: tuple[int, int]) -> list[dict[str, Any]]:
    """A run task whose second agent and reader of regions have the model of another run task."""
    reader = {"name": "ocr_region", "model_of": "reads"}
    roles = {
        "thinker": {"prompt": "Think."},
        "writer": {"prompt": "Write.", "model_of": "reads", "tools": ["calculator", reader]},
    }
    calls = [
        ["hand_over", {"agent": "writer"}],
        ["ocr_region", {"box": [0, 0, 900, 900]}],
        ["calculator", {"expression": "1 + TURN"}],
    ]
    bench.model("writes")
    bench.script(answer_ms=answer_ms, calls=calls)
    agent = {"tools": ["calculator"], "agents": roles}
    thinks = {"agent": agent, "concurrency": 4, "limit": FEW}
    return [thinks, {"name": "reads", "model": "writes", "limit": 1}]


def engines_of(trial: Trial, model: str) -> list[int]:
    """Processes of living engines of a model."""
    found = []
    for pid in trial.engines():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            named = b"--name" in arguments and arguments[arguments.index(b"--name") + 1]
            found += [pid] if named == model.encode() else []
    return found


@pytest.mark.parametrize("victim", first(1, ["worker", "engine", "wrapper"]))
def test_kills_lose_no_turn_and_repeat_no_payment(
    bench: Bench, ledger: Ledger, calm: Trial, victim: str, tmp_path: Path
) -> None:
    trial = agents(bench, ledger, answer_ms=(50, 150), parallelism=2, min_coverage=1.0)
    chance, seen = random.Random(victim), set[tuple[str, int]]()
    find = {"worker": trial.workers, "wrapper": trial.wrappers, "engine": trial.engines}[victim]
    for _ in range(3):
        before = len(turns(trial))
        until(
            lambda before=before: (
                (len(turns(trial)) > before + 8 and find())
                or not trial.pids("hpcbench.submit.local")
            ),
            "turns",
        )
        time.sleep(chance.uniform(0, 0.2))
        seen |= turns(trial)
        if pids := find():
            kill(chance.choice(pids))
    bench.script(answer_ms=(1, 3), calls=CALLS)

    trial.wait("done", "incomplete", "failed")

    assert set(ledger.paid.values()) == {1}, "a payment was made twice"
    assert set(intents(trial).values()) == {1}
    assert seen <= turns(trial), "a finished turn was lost"
    ends = exits(trial)
    if victim != "worker":
        assert not ends["tool_failed"], "only a worker's end loses a payment"
    if ends["answered"] < SAMPLES:  # payments were lost, or the engine died too often
        trial.resume()
        trial.wait("done")
    assert trial.answers() == calm.answers()
    assert valid_trajectories(trial, tmp_path / "atif") == SAMPLES


def test_every_turn_is_recorded_once_though_a_pause_ends_at_one_and_another_worker_goes_on_there(
    bench: Bench, ledger: Ledger, calm: Trial
) -> None:
    trial = agents(bench, ledger, answer_ms=(200, 300))
    until(lambda: len(turns(trial)) > 6, "turns")
    bench.run("pause", trial.id)
    trial.wait("paused")
    before, resting = turns(trial), trial.answers()
    assert len(before) < SAMPLES * TURNS
    time.sleep(1)
    assert (turns(trial), trial.answers()) == (before, resting)
    bench.script(answer_ms=(1, 3), calls=CALLS)

    bench.run("resume", trial.id)

    trial.wait("done")
    assert trial.answers() == calm.answers()
    assert trial.twice() == []
    written = [(line["sample"], line["turn"]) for line in lines(trial) if "reply" in line]
    assert before <= set(written)
    assert len(written) == SAMPLES * TURNS, "no turn was asked twice"
    manifest = json.loads((trial.path / "manifest.json").read_text())
    seen = manifest["tools"]["numbers"]["functions"][""]
    assert [one["function"]["name"] for one in seen] == ["calculator", "pay"]
    assert seen[1]["function"]["description"] == "Pays for something."
    table = json.loads(trial.metrics)["run_tasks"]["numbers"]
    assert table["metrics"] == json.loads(calm.metrics)["run_tasks"]["numbers"]["metrics"]
    last = trial.said("progress")[-1:]
    assert all(one["calls"] <= one["turns"] for one in last)
    (note,) = {one["message"] for one in trial.said("tool_note")} or {""}
    assert "network" in note or not note


def test_a_sample_that_ends_the_engine_has_an_exit_of_its_own(
    bench: Bench, ledger: Ledger, calm: Trial
) -> None:
    trial = agents(bench, ledger)  # the script is changed before the worker reads it
    bench.script(answer_ms=(1, 3), calls=CALLS, poison=[question(5)])

    trial.wait("done")  # one sample of forty may be missing

    from hpcbench.experiment.claims import answers_of
    from hpcbench.experiment.layout import Experiment

    answers = {
        name: one for _, found in answers_of(Experiment(trial.path), "numbers") for name, one in found.items()
    }  # fmt: skip
    poisonous = answers.pop("s005")
    assert poisonous.outcome == "failed"
    assert poisonous.trajectory is not None
    assert poisonous.trajectory["exit"] == "engine_gone"
    exits = {one.trajectory["exit"] for one in answers.values() if one.trajectory is not None}
    assert exits == {"answered"}


def test_an_agent_of_two_models_loses_no_turn_when_either_engine_is_killed(
    bench: Bench, calm: Trial
) -> None:
    trial = bench.submit(bench.plan(*two_models(bench, answer_ms=(30, 60))))
    seen = set[tuple[str, int]]()
    for name in ("writes", "scripted"):
        before = len(turns(trial))
        until(lambda before=before: len(turns(trial)) > before + 6, "turns")
        seen |= turns(trial)
        kill(until(lambda name=name: engines_of(trial, name), f"an engine of {name}")[0])
    two_models(bench, answer_ms=(1, 3))

    trial.wait("done")

    assert trial.answers("numbers").items() <= calm.answers("numbers").items()
    assert exits(trial) == {"answered": FEW}
    assert seen <= turns(trial), "a finished turn was lost"
    assert {one["model"] for one in trial.said("engine_died")} == {"writes", "scripted"}
    asked = (bench.script_file.parent / "asked.log").read_text().splitlines()
    regions = [line for line in asked if READ_REGION in line]
    assert len(regions) >= FEW
    assert all(line.startswith("writes ") for line in regions)
