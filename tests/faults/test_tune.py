"""`hpcbench tune` with the scripted engine, whose speed follows the requests in flight."""

from __future__ import annotations

import json

import yaml

from tests.faults.conftest import Bench


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
