"""Two arms in turns on several nodes, and a nightly gate, on the real cluster; the engine is a fake one."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from hpcbench.experiment.claims import shard_states
from hpcbench.experiment.layout import Experiment
from tests.help_examples import example
from tests.slurm.drill import Drill, Run

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1200)]


def test_arms_take_turns_on_each_node_and_every_pair_is_of_one_worker(drill: Drill) -> None:
    drill.script(answer_ms=[20, 30])
    slower = drill.script_file.with_name("b.json")
    slower.write_text(json.dumps({"answer_ms": [40, 60]}))
    option = "model.engine_options.script="
    out, _ = drill.run(
        "ab", drill.plan(), "--registry", drill.folder / "registry", "--json", "--no-early-stop",
        "--a", f"{option}{drill.script_file}", "--b", f"{option}{slower}",
    )  # fmt: skip
    run = Run(drill, Path(json.loads(out)["path"]))
    run.wait_alone()
    assert run.wait()["state"] == "done"
    assert run.twice() == []

    workers: dict[int, set[str]] = defaultdict(set)
    for state in shard_states(Experiment(run.path), ("numbers.a", "numbers.b")):
        assert state.owner is not None
        workers[state.shard.index].add(state.owner["job"])
    assert len(workers) == 10
    assert all(len(jobs) == 1 for jobs in workers.values()), workers
    assert len(set.union(*workers.values())) == 2, "both workers had pairs"

    (reported,) = json.loads(drill.run("ab", run.id, "--json")[0])["run_tasks"]
    look = reported["look"]
    assert (look["last"], look["samples"]) == (True, 40)
    slow = next(one for one in look["speed"] if one["figure"] == "e2e_ms")
    assert slow["ratio"] > 1
    (quality, *_) = look["quality"]
    assert quality["baseline"] == quality["candidate"]


def test_a_nightly_gate_says_go_and_then_no_go(drill: Drill) -> None:
    plan = drill.plan(stages=["inference", "evaluation", "reporting"], pilot=0)
    policy = plan.with_name("policy.yaml")  # a margin that ten documents can show
    policy.write_text("schema_version: 1\nname: wide\nmetrics: {'*': {absolute: 0.4}}\n")
    more = ("--registry", drill.folder / "registry", "--policy", policy)
    command = ("regress", plan, "--baseline", "main", *more)

    words = example("regress PLAN --baseline main --set-baseline-if-none", {"PLAN": plan})
    first = json.loads(drill.run(*words, *more, "--wait", "--json")[0])
    assert first["state"] == "baseline", first
    (baseline,) = first["experiments"]
    assert baseline in drill.run("baseline", "list")[0]

    def night(code: int) -> Any:
        out, _ = drill.run(*command, "--next", "--json")  # submits; cron would come back later
        (candidate,) = json.loads(out)["experiments"]
        run = Run(drill, drill.home / "experiments" / candidate)
        run.wait_alone()
        return json.loads(drill.run(*command, "--json", code=code)[0])["verdict"]

    good = night(code=0)
    assert (good["verdict"], good["baseline"]) == ("GO", baseline)
    # All but one: a run of which nothing is scored has no verdict.
    drill.script(answer_ms=[1, 3], broken="question 0(0[1-9]|[1-3])")
    bad = night(code=4)
    assert bad["verdict"] == "NO-GO"
    failed = {(one["run_task"], one["kind"]) for one in bad["checks"] if one["verdict"] == "fail"}
    assert failed <= {("numbers", "quality"), ("numbers", "coverage")}
    assert failed
    trend = json.loads(drill.run("history", "anls", "--json")[0])
    assert len(json.dumps(trend)) > 2
