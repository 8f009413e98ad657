"""The contents of `performance.json`: speed's figures under the load of a run task's requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpcbench import speed
from hpcbench.experiment.claims import attempts_of, unread_pieces
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.performance_json import PERFORMANCE_VERSION, Performance, Tokens
from hpcbench.experiment.view.workers import LimitedWork, WorkerRun, run_task_of, worker_runs
from hpcbench.files.atomic import write_json
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.speed.agents import trajectories

_READ = (
    *speed.EVENTS,
    "model_ready",
    "shard_claimed",
    "shard_done",
    "concurrency",
    "route",
)
"""Events of workers that `performance.json` is computed from."""


def write_performance(experiment: Experiment) -> Performance:
    """Measure every run task, and write `performance.json`; returns its contents."""
    found = performance(experiment)
    write_json(experiment.performance_file, found.to_json())
    return found


def performance(experiment: Experiment, *, reused: bool = False) -> Performance:
    """The speed of every run task.

    Args:
        experiment: the experiment.
        reused: whether requests of earlier experiments count whose answers were taken over.
    """
    runs = []
    for run in worker_runs(experiment):
        run.events = [event for event in run.events if event["event"] in _READ]
        runs.append(run)
    events = [
        event
        for run in runs
        for event in run.events
        if event["event"] in speed.EVENTS and "run_task" in event
    ]
    found_speeds: dict[str, Any] = {}
    for run_task in experiment.resolved.run_tasks:
        task_events = [event for event in events if event["run_task"] == run_task.name]
        found = measure_performance(experiment, run_task, task_events, reused=reused)
        found["load"]["chosen"] = _chosen(run_task, runs)
        found["load"]["route"] = _route(run_task, runs)
        found["hardware"] = _hardware(run_task, runs)
        if (tokens := _tokens(run_task, runs)) is not None:
            found["tokens"] = tokens
        if run_task.agent is not None and (agents := _agents(experiment, run_task)) is not None:
            found["trajectories"] = agents
        if (limits := _limits(run_task, runs)) is not None:
            found["limits"] = limits
        found_speeds[run_task.name] = found
    whole = {
        "version": PERFORMANCE_VERSION,
        "run_tasks": found_speeds,
        "sweeps": speed.sweeps(found_speeds),
    }
    return Performance.model_validate(whole)


def measure_performance(
    experiment: Experiment,
    run_task: ResolvedRunTask,
    events: Sequence[Mapping[str, Any]] = (),
    *,
    reused: bool = False,
) -> dict[str, Any]:
    """The entry of a run task in `performance.json`: its load, and `speed`'s figures.

    Every request counts. Scores take one answer per sample; speed also takes the answers of an attempt that
    another worker took over: the engine had to answer them. Answers of earlier experiments are left out,
    unless `reused` is set.
    """
    task = run_task.task
    load = {
        "concurrency": run_task.in_flight or task.concurrency,
        "rate": task.rate,
        "arrival": task.arrival if task.rate is not None else None,
        "warm_up": task.warm_up,
        "protocol": task.protocol,
        "sweep": run_task.sweep,
    }
    pieces = map(speed.read, unread_pieces(experiment, run_task.name, reused=reused))
    return {"load": load, **speed.measure(pieces, task.slo, events)}


def _agents(experiment: Experiment, run_task: ResolvedRunTask) -> dict[str, Any] | None:
    """Figures of agents' work, one a sample; None: none has ended."""
    return trajectories(
        own for _, attempts in attempts_of(experiment, run_task.name) for own in attempts
    )


def _chosen(run_task: ResolvedRunTask, runs: Iterable[WorkerRun]) -> dict[str, int] | None:
    """Worker → the last number of parallel requests that `concurrency: auto` chose; None: none was chosen."""
    found = {
        run.stem: int(event["at_once"])
        for run in runs
        for event in run.events
        if event["event"] == "concurrency" and event["run_task"] == run_task.name
    }
    return found or None


def _route(run_task: ResolvedRunTask, runs: Iterable[WorkerRun]) -> str:
    """The route of a run task's requests; both, if workers differ.

    Workers of earlier versions had only one and do not name it; nor do those of a task with its own module.
    """
    found = set[str]()
    for run in runs:
        own = [event for event in run.events if run_task_of(event) == run_task.name]
        routes = {str(event["route"]) for event in own if event["event"] == "route"}
        answered = any(event["event"] == "shard_done" for event in own)
        found |= routes or ({"proxied"} if answered else set())
    return " and ".join(sorted(found)) or "proxied"


def _tokens(run_task: ResolvedRunTask, runs: Iterable[WorkerRun]) -> dict[str, Any] | None:
    """How the workers' relays got tokens for a run task's model; None: it needs none.

    Run tasks that share a model in a worker share its tokens: each shows all of them. Workers count, too,
    whose model did not load: they may have waited for a token in vain.
    """
    model, whole = run_task.model.name, None
    for run in runs:
        loaded = any(_loaded(event, model) for event in run.events)
        if (own := run.tokens.get(model)) is not None and (not loaded or _began(run, run_task)):
            whole = own if whole is None else whole.then(own)
    if whole is None:
        return None
    return {name: one for name, one in whole.to_json().items() if name in Tokens.model_fields}


def _limits(run_task: ResolvedRunTask, runs: Iterable[WorkerRun]) -> dict[str, Any] | None:
    """Effects of the rate limits of a run task's gateway, summed over the workers; None: no effect.

    Run tasks that share a model in a worker share its limits: each shows all of them.
    """
    found = [
        run.limits[run_task.model.name]
        for run in runs
        if run_task.model.name in run.limits and _began(run, run_task)
    ]
    if not found:
        return None
    return {
        name: round(sum(values), 3)
        for name, values in zip(LimitedWork._fields, zip(*found, strict=True), strict=True)
    }


def _hardware(run_task: ResolvedRunTask, runs: Iterable[WorkerRun]) -> list[dict[str, Any]] | None:
    """The kinds of machine that processed a run task's samples, with their nodes.

    Returns:
        One entry per kind: its description in `model_ready`, `nodes` and `workers`. None where a worker
        reports no machine: its engine ran elsewhere, or the worker is of an older version.
    """
    kinds: dict[str, dict[str, Any]] = {}
    for run in runs:
        if not _began(run, run_task):
            continue
        machines = [
            event.get("hardware") for event in run.events if _loaded(event, run_task.model.name)
        ]
        if not machines:  # it never sent a request
            continue
        if not all(isinstance(one, Mapping) for one in machines):
            return None
        kind = json.dumps(machines[-1], sort_keys=True)
        entry = kinds.setdefault(kind, {**json.loads(kind), "nodes": [], "workers": 0})
        nodes = [run.node]
        for event in run.events:
            if _loaded(event, run_task.model.name):
                nodes += event.get("nodes", ())
        entry["nodes"] = sorted({*entry["nodes"], *nodes} - {""})
        entry["workers"] += 1
    return [kinds[kind] for kind in sorted(kinds)] or None


def _began(run: WorkerRun, run_task: ResolvedRunTask) -> bool:
    """Whether a worker started a shard of this run task."""
    return any(
        event["event"] == "shard_claimed" and run_task_of(event) == run_task.name
        for event in run.events
    )


def _loaded(event: Mapping[str, Any], model: str) -> bool:
    return event["event"] == "model_ready" and event.get("model") == model
