"""Experiments that have run, as their workers leave them: events with chosen times, no answers of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import Appender, write_atomic, write_json
from hpcbench.planning import plan_work
from hpcbench.schema.plan import ResolvedPlan, ResolvedRunTask
from tests.unit.small import measured, resolved, response, run_task


def hashed(*run_tasks: ResolvedRunTask, samples: int = 40, **hashes: str) -> Any:
    """Hashes that preparation would have found; `model=` and `dataset=` choose others."""
    plan = resolved(*run_tasks)
    found = measured(plan, samples)
    return found.model_copy(
        update={
            "model_hashes": {
                one.model.name: f"sha256:{hashes.get('model', one.model.name)}" for one in run_tasks
            },
            "dataset_hashes": {
                one.name: f"sha256:{hashes.get('dataset', one.dataset.name)}" for one in run_tasks
            },
        }
    )


def past(
    root: Path,
    name: str,
    *run_tasks: ResolvedRunTask,
    samples: int = 40,
    ended: bool = True,
    plan: Mapping[str, Any] | None = None,
    **hashes: str,
) -> Experiment:
    """An experiment on disk of these run tasks, before any worker."""
    tasks = run_tasks or (run_task(),)
    whole: ResolvedPlan = resolved(*tasks, **{"shard_size": 10, **(plan or {})})
    found = hashed(*tasks, samples=samples, **hashes)
    here = Experiment(root / "experiments" / name)
    write_atomic(here.resolved_file, whole.model_dump_json())
    write_json(
        here.manifest_file,
        {
            "work": asdict(plan_work(whole, found)),
            "measured": found.model_dump(exclude={"chosen"}),
        },
    )
    if ended:
        write_json(here.path / "outcome.json", {"version": 1, "round": 0, "state": "done"})
    return here


def works(
    here: Experiment,
    owner: tuple[str, int],
    events: Sequence[tuple[float, str] | tuple[float, str, Mapping[str, Any]]],
    group: str = "g0",
) -> None:
    """A worker's own news: time, event, details; `owner`: its seat, `JOB` or `JOB.REPLICA`, and its run."""
    job, restart = owner
    with Appender(here.worker_events(group, f"{job}-{restart}")) as file:
        for time, event, *more in events:
            details = dict(more[0]) if more else {}
            if event == "started":
                details = {"owner": _owner(job, restart), **details}
            file.write({"event": event, "time": time, **details})


def _owner(seat: str, restart: int) -> dict[str, Any]:
    job, _, replica = seat.partition(".")
    return {"job": job, "restart": restart, **({"replica": int(replica)} if replica else {})}


def takes(
    here: Experiment,
    owner: tuple[str, int],
    shard: int,
    begin: float,
    end: float | None,
    answered: Sequence[int],
    *,
    attempt: int = 1,
    ended: str = "done",
    before: int = 0,
    name: str = "rt",
) -> None:
    """A worker's attempt at a shard: when, and which samples it answered."""
    job, restart = owner
    with Appender(here.shard_events(name, shard, attempt)) as file:
        claimed = {"owner": _owner(job, restart)}
        file.write({"event": "claimed", "time": begin, **claimed})
        if end is not None:
            file.write({"event": ended, "time": end, "answered": before + len(answered)})
    with Appender(here.shard_responses(name, shard, attempt)) as file:
        for sample in answered:
            file.write(response(f"s{sample}").to_json())
