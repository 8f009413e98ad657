"""Small experiments for trackers: answered, scored, ended, or on their way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcbench.evaluation import stage
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json, write_json
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.outputs import Tracker
from tests.unit.small import experiment, record, response, write_attempt

MANIFEST = {"created": "2026-01-15T10:00:00+0000", "hpcbench": "0.1", "seed": 7, "python": "3.11.7"}


def started(
    root: Path, samples: int, shard_size: int = 4, trackers: Sequence[Tracker] = ()
) -> Experiment:
    """An experiment before any worker: sample `s<n>`, right answer `<n>`."""
    here = experiment(root, [record(number) for number in range(samples)], shard_size)
    write_json(here.manifest_file, {**read_json(here.manifest_file), **MANIFEST})
    plan = here.resolved.plan.model_dump(mode="json")
    plan["trackers"] = [one.model_dump(mode="json") for one in trackers]
    reported = here.resolved.model_copy(update={"plan": ExperimentPlan.model_validate(plan)})
    here.resolved_file.write_text(reported.model_dump_json())
    return Experiment(here.path)


def answer(here: Experiment, *shards: int) -> None:
    """Answer all of these shards: every third answer is wrong, sample 1 failed."""
    for index in shards:
        shard = here.work.shards_of(("rt",))[index]
        numbers = range(shard.start, shard.stop)
        answers = [
            response(f"s{n}", None if n == 1 else str(n) if n % 3 else "no") for n in numbers
        ]
        write_attempt(here, index, 1, answers)


def end(here: Experiment, state: str = "done") -> None:
    """Score it, and say how it ended."""
    stage.evaluate(here)
    write_json(here.outcome_file, {"version": 1, "round": 0, "state": state, "shards_left": []})


def ended(
    root: Path, samples: int, shard_size: int = 4, trackers: Sequence[Tracker] = ()
) -> Experiment:
    """An experiment that is over."""
    here = started(root, samples, shard_size, trackers)
    answer(here, *range(len(here.work.shards_of(("rt",)))))
    end(here)
    return here
