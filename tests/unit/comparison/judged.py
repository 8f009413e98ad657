"""Experiments of a home that have ended, with scores and speeds as a test wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.event_log import EventLog
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import Appender, create_exclusive, read_json, write_atomic, write_json
from hpcbench.planning import plan_work
from hpcbench.schema.gate import Gate
from hpcbench.schema.plan import ResolvedPlan
from tests.unit.small import measured, record, resolved, response, run_task, write_dataset

DOCUMENTS = 60

Answers = Mapping[int, str | None]
"""Number of a sample → its answer; None: not answered. All others are right."""


def wrong(*numbers: int) -> dict[int, str | None]:
    """Answers that are wrong to these samples."""
    return dict.fromkeys(numbers, "nothing of the kind")


def the_plan(root: Path, *names: str, **task: Any) -> ResolvedPlan:
    """A plan of run tasks on one dataset, `root/data`."""
    data = root / "data"
    if not data.exists():
        write_dataset(data, [record(number) for number in range(DOCUMENTS)])
    tasks = [run_task(name, dataset={"source": str(data)}, **task) for name in names or ("rt",)]
    return resolved(*tasks, shard_size=DOCUMENTS, executor="local")


def started(root: Path, name: str, plan: ResolvedPlan, **hashes: str) -> Experiment:
    """An experiment on disk before any worker; `dataset="other"` is of other files."""
    here = Experiment(root / "experiments" / name)
    found = measured(plan, DOCUMENTS)
    if "dataset" in hashes:
        found = found.model_copy(
            update={"dataset_hashes": dict.fromkeys(found.dataset_hashes, hashes["dataset"])}
        )
    work = plan_work(plan, found)
    write_atomic(here.resolved_file, plan.model_dump_json())
    write_json(here.chosen_file, {one.name: [(0, DOCUMENTS)] for one in plan.run_tasks})
    write_json(
        here.manifest_file,
        {
            "id": name,
            "plan_key": "k",
            "work": asdict(work),
            "measured": found.model_dump(exclude={"chosen"}),
        },
    )
    return here


def answered(
    here: Experiment, answers: Mapping[str, Answers] | Answers | None = None, state: str = "done"
) -> Experiment:
    """It was worked on and has ended; answers of each run task, or of all of them."""
    given: Any = answers or {}
    for one in here.resolved.run_tasks:
        own = given.get(one.name, {}) if any(isinstance(key, str) for key in given) else given
        texts = {number: own.get(number, str(number)) for number in range(DOCUMENTS)}
        create_exclusive(
            here.shard_events(one.name, 0, 1),
            {"event": "claimed", "time": 0, "owner": {"job": "1_0"}},
        )
        with Appender(here.shard_responses(one.name, 0, 1)) as file:
            for number, text in texts.items():
                if text is not None:
                    file.write(response(f"s{number}", text).to_json())
        with Appender(here.shard_events(one.name, 0, 1)) as file:
            file.write({"event": "done" if None not in texts.values() else "drained", "time": 1})
    evaluate(here)
    speeds(here)
    with EventLog(here.submission_file) as log:
        log.write("round", round=0, groups=[], excluded=[], answered=0)
        log.write("handed")
    write_json(here.outcome_file, {"version": 1, "round": 0, "state": state, "shards_left": []})
    return here


def ended(
    root: Path,
    name: str,
    answers: Mapping[str, Answers] | Answers | None = None,
    tasks: Sequence[str] = ("rt",),
    state: str = "done",
    **task: Any,
) -> Experiment:
    """An experiment that has ended."""
    return answered(started(root, name, the_plan(root, *tasks, **task)), answers, state)


def speeds(
    here: Experiment,
    e2e: float = 100.0,
    spread: float = 0.02,
    rate: float = 10.0,
    gpu: str = "NVIDIA H100",
    only: str = "",
    **more: Any,
) -> Experiment:
    """Give its run tasks these figures: p50 and p95 of E2E in ms, answers a second, each ± a share."""

    def entry(value: float) -> dict[str, float]:
        return {"value": value, "low": value * (1 - spread), "high": value * (1 + spread)}

    reported = read_json(here.performance_file)
    for name, table in reported["run_tasks"].items():
        if only in name:
            table["hardware"] = [{"gpus": [gpu], "cpu": "a CPU", "nodes": ["n1"], "workers": 1}]
            table["e2e_ms"] = {"p50": entry(e2e), "p95": entry(2 * e2e), "n": 60}
            table["answers_per_s"] = entry(rate)
            table["memory"] = {"gpus": 1, "gpu_peak": 40 * 2**30, "gpu_peak_source": "processes"}
            table["valid"] = True
            table.update(more)
    write_json(here.performance_file, reported)
    return here


def policy(**parts: Any) -> Gate:
    """A policy: quality alone unless said otherwise."""
    reported: dict[str, Any] = {"name": "test", "metrics": {"*": {"absolute": 0.1}}, **parts}
    return Gate.model_validate(reported)
