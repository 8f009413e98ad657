"""Experiments of several run tasks, evaluated, for reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcbench.evaluation.stage import evaluate
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import Appender, create_exclusive, write_atomic, write_json
from hpcbench.planning import plan_work
from hpcbench.schema.plan import ResolvedRunTask
from tests.unit.small import measured, record, resolved, response, run_task, write_dataset

MANIFEST: Mapping[str, Any] = {
    "version": 1, "hpcbench": "0.1.0", "python": "3.11.2", "created": "2026-11-20T14:32:00+0000",
    "host": "login1", "plan_key": "f" * 64, "seed": 0, "git": {"plan": None, "hpcbench": None},
    "packages": {}, "environments": {},
}  # fmt: skip


def answered(
    folder: Path,
    answers: Mapping[str, Sequence[str | None]],
    records: Sequence[Mapping[str, Any]] | None = None,
    name: str = "20261120-1432-plan-aaaa",
    tasks: Mapping[str, Mapping[str, Any]] | None = None,
    **plan: Any,
) -> Experiment:
    """Run tasks of a model each over one dataset, evaluated; the right answer to sample n is n.

    Args:
        folder: an empty one.
        answers: run task → its answers; its model is called `org/NAME`.
        records: of the dataset.
        name: the experiment's id.
        tasks: run task → more about it.
        plan: more of the plan.
    """
    count = len(next(iter(answers.values())))
    data = write_dataset(folder / "data", records or [record(number) for number in range(count)])
    some: list[ResolvedRunTask] = [
        run_task(
            one,
            **{
                "model": {"name": f"org/{one}"},
                "dataset": {"source": str(data)},
                **(tasks or {}).get(one, {}),
            },
        )
        for one in answers
    ]
    whole = resolved(*some, **{"shard_size": count, **plan})
    work = plan_work(whole, measured(whole, count))
    here = Experiment(folder / "experiments" / name)
    write_atomic(here.resolved_file, whole.model_dump_json())
    write_json(here.chosen_file, {one: [(0, count)] for one in answers})
    hashes = {
        "dataset_hashes": dict.fromkeys(answers, "sha256:d"),
        "model_hashes": {one.model.name: "sha256:m" for one in some},
    }
    write_json(here.manifest_file, {**MANIFEST, "work": asdict(work), "measured": hashes})
    for one, texts in answers.items():
        events = here.shard_events(one, 0, 1)
        create_exclusive(events, {"event": "claimed", "time": 0, "owner": {"job": "1_0"}})
        with Appender(here.shard_responses(one, 0, 1)) as file:
            for number, text in enumerate(texts):
                file.write(response(f"s{number}", text).to_json())
        with Appender(events) as file:
            file.write({"event": "done", "time": 1})
    evaluate(here)
    return Experiment(here.path)


def right(count: int, share: float, *, shift: int = 0) -> list[str]:
    """So many answers, of which a share is right, spread evenly."""
    step = max(1, round(1 / share)) if share < 1 else 1
    return [str(n) if share >= 1 or (n + shift) % step == 0 else "wrong" for n in range(count)]
