"""The contents of `performance.json`: speed's figures under the load of a run task's requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpcbench import speed
from hpcbench.experiment.claims import attempts_of, unread_pieces
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.performance_json import PERFORMANCE_VERSION, Performance
from hpcbench.experiment.view.workers import run_task_of, worker_runs
from hpcbench.files.atomic import write_json
from hpcbench.oauth.token_metrics import added
from hpcbench.schema.plan import ResolvedRunTask
from hpcbench.speed.agents import trajectories

_READ = (
    *speed.EVENTS,
    "started",
    "model_ready",
    "shard_claimed",
    "shard_done",
    "concurrency",
    "route",
    "token",
    "limited",
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
    workers = {
        run.stem: [event for event in run.events if event["event"] in _READ]
        for run in worker_runs(experiment)
    }
    events = [
        event
        for worker in workers.values()
        for event in worker
        if event["event"] in speed.EVENTS and "run_task" in event
    ]
    found_speeds: dict[str, Any] = {}
    for run_task in experiment.resolved.run_tasks:
        task_events = [event for event in events if event["run_task"] == run_task.name]
        found = measure_performance(experiment, run_task, task_events, reused=reused)
        found["load"]["chosen"] = _chosen(run_task, workers)
        found["load"]["route"] = _route(run_task, workers)
        found["hardware"] = _hardware(run_task, workers.values())
        if (tokens := _tokens(run_task, workers.values())) is not None:
            found["tokens"] = tokens
        if run_task.agent is not None and (agents := _agents(experiment, run_task)) is not None:
            found["trajectories"] = agents
        if (limits := _limits(run_task, workers.values())) is not None:
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


def _chosen(
    run_task: ResolvedRunTask, workers: Mapping[str, Iterable[Mapping[str, Any]]]
) -> dict[str, int] | None:
    """Worker → the last number of parallel requests that `concurrency: auto` chose; None: none was chosen."""
    found = {
        worker: int(event["at_once"])
        for worker, events in workers.items()
        for event in events
        if event["event"] == "concurrency" and event["run_task"] == run_task.name
    }
    return found or None


def _route(run_task: ResolvedRunTask, workers: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """The route of a run task's requests; both, if workers differ.

    Workers of earlier versions had only one and do not name it; nor do those of a task with its own module.
    """
    found = set[str]()
    for events in workers.values():
        own = [event for event in events if run_task_of(event) == run_task.name]
        routes = {str(event["route"]) for event in own if event["event"] == "route"}
        answered = any(event["event"] == "shard_done" for event in own)
        found |= routes or ({"proxied"} if answered else set())
    return " and ".join(sorted(found)) or "proxied"


def _tokens(
    run_task: ResolvedRunTask, workers: Iterable[Sequence[Mapping[str, Any]]]
) -> dict[str, Any] | None:
    """How the workers' relays got tokens for a run task's model; None: it needs none.

    Run tasks that share a model in a worker share its tokens: each shows all of them. Workers count, too,
    whose model did not load: they may have waited for a token in vain.
    """
    whole: dict[str, Any] | None = None
    for events in workers:
        own = [one for one in events if one["event"] == "token"]
        own = [one for one in own if one.get("model") == run_task.model.name]
        loaded = any(_loaded(event, run_task.model.name) for event in events)
        if own and (not loaded or any(_is_of(event, run_task.name) for event in events)):
            whole = added(whole or {}, own[-1])
    if whole is None:
        return None
    known = (
        "granted",
        "failed",
        "seconds",
        "longest",
        "fallbacks",
        "rejected",
        "waits",
        "wait_seconds",
        "oldest",
    )
    return {name: whole[name] for name in known}


def _limits(
    run_task: ResolvedRunTask, workers: Iterable[Sequence[Mapping[str, Any]]]
) -> dict[str, Any] | None:
    """Effects of the rate limits of a run task's gateway, summed over the workers; None: no effect.

    Run tasks that share a model in a worker share its limits: each shows all of them.
    """
    found: list[Mapping[str, Any]] = []
    for events in workers:
        own = [one for one in events if one["event"] == "limited"]
        own = [one for one in own if one.get("model") == run_task.model.name]
        if own and any(_is_of(event, run_task.name) for event in events):
            found.append(own[-1])
    if not found:
        return None
    names = ("refused", "waits", "wait_seconds")
    return {name: round(sum(one.get(name, 0) for one in found), 3) for name in names}


def _hardware(
    run_task: ResolvedRunTask, workers: Iterable[Sequence[Mapping[str, Any]]]
) -> list[dict[str, Any]] | None:
    """The kinds of machine that processed a run task's samples, with their nodes.

    Returns:
        One entry per kind: its description in `model_ready`, `nodes` and `workers`. None where a worker
        reports no machine: its engine ran elsewhere, or the worker is of an older version.
    """
    kinds: dict[str, dict[str, Any]] = {}
    for events in workers:
        if not any(_is_of(event, run_task.name) for event in events):
            continue
        machines = [
            event.get("hardware") for event in events if _loaded(event, run_task.model.name)
        ]
        if not machines:  # it never sent a request
            continue
        if not all(isinstance(one, Mapping) for one in machines):
            return None
        owner: Any = next((one["owner"] for one in events if one["event"] == "started"), {})
        kind = json.dumps(machines[-1], sort_keys=True)
        entry = kinds.setdefault(kind, {**json.loads(kind), "nodes": [], "workers": 0})
        nodes = [str(owner.get("node") or owner.get("host") or "")]
        for event in events:
            if _loaded(event, run_task.model.name):
                nodes += event.get("nodes", ())
        entry["nodes"] = sorted({*entry["nodes"], *nodes} - {""})
        entry["workers"] += 1
    return [kinds[kind] for kind in sorted(kinds)] or None


def _is_of(event: Mapping[str, Any], run_task: str) -> bool:
    """Whether a worker started a shard of this run task."""
    return event["event"] == "shard_claimed" and run_task_of(event) == run_task


def _loaded(event: Mapping[str, Any], model: str) -> bool:
    return event["event"] == "model_ready" and event.get("model") == model
