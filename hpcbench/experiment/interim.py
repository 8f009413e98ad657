"""Looks at two running arms: when a look is due, its result, and the consequence.

A look is a file `looks/RUN_TASK.NN.json`, created exclusively: the first of two concurrent looks counts, and
the other look is dropped. Looks are due at fixed numbers of finished pairs of shards, whatever the answers
are. A look that decides ends the run task: the remaining shards of both arms are not needed. The file is
decisive: if a process is killed after the file and before the control request, the next process writes the
request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.experiment.claims import ShardState, shard_states
from hpcbench.experiment.control import control_request, said
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import create_exclusive, read_lines
from hpcbench.schema.names import id_of

LOOKS = 8
"""Most looks at a run task: more looks stop little earlier, and each look scores all answers again."""

FIRST = 0.25
"""Share of the pairs before the first look: an earlier look may spend so little of the risk that it finds
only obvious differences."""

LOOK_VERSION = 1


@dataclass(frozen=True, slots=True)
class Halves:
    """The progress of the arms of a run task."""

    pair: str
    """The run task."""
    both: tuple[int, ...]
    """Numbers of shards that are done in both arms."""
    of: int
    """Shards of an arm."""

    @property
    def fraction(self) -> float:
        """Share of the shards that are done in both arms."""
        return len(self.both) / self.of if self.of else 0.0


def halves(experiment: Experiment, pair: str) -> Halves:
    """The progress of the arms of a run task."""
    return halves_in(pair, *states_in(experiment, pair))


def states_in(
    experiment: Experiment, pair: str
) -> tuple[dict[int, ShardState], dict[int, ShardState]]:
    """The shards of arm a and of arm b, by number."""
    a, b = experiment.resolved.pairs[pair]
    found: dict[str, dict[int, ShardState]] = {a: {}, b: {}}
    for state in shard_states(experiment, (a, b)):
        found[state.shard.run_task][state.shard.index] = state
    return found[a], found[b]


def halves_in(pair: str, a: Mapping[int, ShardState], b: Mapping[int, ShardState]) -> Halves:
    """The progress of the arms, from the states of their shards."""
    done = [{index for index, one in arm.items() if one.state == "done"} for arm in (a, b)]
    return Halves(pair, tuple(sorted(done[0] & done[1])), len(a))


def looks_at(experiment: Experiment, pair: str) -> list[dict[str, Any]]:
    """The results of all looks at a run task's arms, in order."""
    found: list[dict[str, Any]] = []
    while record := next(read_lines(_file(experiment, pair, len(found))), None):
        found.append(record)
    return found


def is_due(known: Sequence[Mapping[str, Any]], done: Halves) -> bool:
    """Whether the next look is due; `finalise` makes the last look, at all shards.

    Looks are due at fixed shares of the pairs, so that their times do not depend on their results.
    """
    if any(one["stop"] for one in known) or done.fraction >= 1:
        return False
    last = max((one["fraction"] for one in known), default=0.0)
    passed = max(int(last * LOOKS + 1e-9) + 1, int(FIRST * LOOKS))
    return done.fraction >= passed / LOOKS


def due(experiment: Experiment, pair: str) -> bool:
    """Whether a look at a run task's arms is due; writes the request that an earlier look left unwritten."""
    arms = experiment.resolved.arms
    if arms is None or not arms.early_stop:
        return False
    if "evaluation" not in experiment.resolved.plan.stages:
        return False
    known = looks_at(experiment, pair)
    if any(one["stop"] for one in known):
        settle(experiment)
        return False
    return is_due(known, halves(experiment, pair))


def keep(experiment: Experiment, pair: str, number: int, found: Mapping[str, Any]) -> bool:
    """Write a look's result; False if another process was quicker: this look is dropped."""
    path = _file(experiment, pair, number)
    path.parent.mkdir(exist_ok=True)
    return create_exclusive(path, {"version": LOOK_VERSION, **found})


def settle(experiment: Experiment) -> None:
    """End run tasks that a look has decided. This is done once: a manual resume overrides it."""
    ended = {
        name for one in said(experiment) if one["event"] == "enough" for name in one["run_tasks"]
    }
    for pair, arms in experiment.resolved.pairs.items():
        if ended.issuperset(arms):
            continue
        for found in looks_at(experiment, pair):
            if found["stop"]:
                control_request(experiment, "enough", arms, found["why"])


def _file(experiment: Experiment, pair: str, number: int) -> Any:
    return experiment.looks_dir / f"{id_of(pair)}.{number:02d}.json"
