"""`hpcbench tune` with the scripted engine, whose speed follows the requests in flight."""

from __future__ import annotations

import json
import signal

import pytest
import yaml

from tests.faults.conftest import Bench, Trial, until


def test_settings_that_are_faster_are_found_and_written_with_their_evidence(bench: Bench) -> None:
    bench.script(answer_ms=[60, 60])
    plan = bench.plan({"concurrency": 1}, shard_size=None)
    tune = ("tune", plan, "--registry", bench.folder / "registry")
    _, refused = bench.run(*tune, "--try", "concurrency", code=2)
    assert "PATH=VALUE,VALUE is expected" in refused

    tuned = bench.start(*tune, "--try", "concurrency=4", "--json")
    out, err = tuned.communicate(timeout=400)
    assert tuned.returncode == 0, err
    found = json.loads(out)

    assert found["ended"] and found["best"] == {"concurrency": 4}
    (first,) = found["duels"]
    assert (first["verdict"], first["won"]) == ("better", True) and first["low"] > 1
    assert found["overlay"] is None, "the model's settings did not change"
    assert yaml.safe_load(plan.read_text())["run_tasks"][0]["concurrency"] == 1


@pytest.mark.campaign
def test_numbers_of_engines_meet_in_whole_jobs_and_the_overlay_has_the_faster(bench: Bench) -> None:
    bench.script(answer_ms=[100, 100])
    plan = bench.plan({"concurrency": 1}, shard_size=4)
    tune = ("tune", plan, "--registry", bench.folder / "registry", "--out", bench.folder / "tuned")

    tuned = bench.start(*tune, "--try", "model.replicas_per_node=2", "--limit", 20, "--json")
    out, err = tuned.communicate(timeout=600)
    assert tuned.returncode == 0, err
    found = json.loads(out)

    (duel,) = found["duels"]
    assert found["ended"] and duel["pairs"] == 4, err
    assert duel["low"] < duel["ratio"] < duel["high"]
    runs = [Trial(bench, path) for path in bench.home.glob("experiments/*-*")]
    assert sorted(len(run.said("model_ready")) for run in runs) == [1] * 4 + [2] * 4
    assert (found["overlay"] is not None) == duel["won"]
    if duel["won"]:
        text = (bench.folder / "tuned/models/scripted.dev.yaml").read_text()
        assert yaml.safe_load(text) == {"replicas_per_node": 2}
        assert f"# model.replicas_per_node=2 against as it was: × {duel['ratio']:.3f}" in text


@pytest.mark.parametrize("budget", [0.1, 60])
def test_a_search_that_is_ended_leaves_nothing_running(bench: Bench, budget: float) -> None:
    bench.script(answer_ms=[3000, 3000])
    plan = bench.plan({"concurrency": 1}, shard_size=None)

    tuned = bench.start(
        "tune", plan, "--registry", bench.folder / "registry", "--try", "concurrency=2",
        "--budget", budget, "--json",
    )  # fmt: skip
    if budget > 1:
        until(lambda: [*bench.home.glob("experiments/*/workers/g*.events.jsonl")], "a worker")
        tuned.send_signal(signal.SIGINT)
    out, err = tuned.communicate(timeout=300)

    assert tuned.returncode == 0, err
    found = json.loads(out)
    assert (found["ended"], found["best"], found["duels"]) == (False, {}, [])
    (path,) = bench.home.glob("experiments/*-*")
    run = Trial(bench, path)
    run.wait("cancelled")
    until(lambda: not run.engines() and not run.workers(), "the last process to end")
