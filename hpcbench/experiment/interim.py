"""Looks at two arms while they run: when one is due, what was found, and what follows from it.

A look is a file `looks/RUN_TASK.NN.json`, created exclusively by whoever made it: of two at once the first
counts, and the other one's is as if nobody had looked. Looks are due when so many pairs of shards are done,
whatever their answers say. A look that decides ends the run task: what is left of both arms is not needed. It
is the file that decides; who is killed between the file and the wish leaves the wish to the next who comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.experiment.claims import ShardState, shard_states
from hpcbench.experiment.control import control_request, said
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import create_exclusive, read_lines

LOOKS = 8
"""Most looks at a run task: more of them stop little earlier, and each scores all answers again."""

FIRST = 0.25
"""Share of the pairs before which nobody looks: so little of the risk is spent there that nothing is found
but what shows anyway."""

LOOK_VERSION = 1


@dataclass(frozen=True, slots=True)
class Halves:
    """How far the arms of a run task are."""

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
    """How far the arms of a run task are."""
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
    """The same from the shards' states."""
    done = [{index for index, one in arm.items() if one.state == "done"} for arm in (a, b)]
    return Halves(pair, tuple(sorted(done[0] & done[1])), len(a))


def looks_at(experiment: Experiment, pair: str) -> list[dict[str, Any]]:
    """What was found at each look at a run task's arms, in order."""
    found: list[dict[str, Any]] = []
    while record := next(read_lines(_file(experiment, pair, len(found))), None):
        found.append(record)
    return found


def is_due(known: Sequence[Mapping[str, Any]], done: Halves) -> bool:
    """Whether it is time for the next look; the last one, at all there is, is `finalise`'s.

    Looks stand at fixed shares of the pairs, so that their times do not follow from what they find.
    """
    if any(one["stop"] for one in known) or done.fraction >= 1:
        return False
    last = max((one["fraction"] for one in known), default=0.0)
    passed = max(int(last * LOOKS + 1e-9) + 1, int(FIRST * LOOKS))
    return done.fraction >= passed / LOOKS


def due(experiment: Experiment, pair: str) -> bool:
    """Whether it is time to look at a run task's arms; does what an earlier look left undone."""
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
    """Write down what a look found; False if another one was quicker, and this one never was."""
    path = _file(experiment, pair, number)
    path.parent.mkdir(exist_ok=True)
    return create_exclusive(path, {"version": LOOK_VERSION, **found})


def settle(experiment: Experiment) -> None:
    """End run tasks whose arms a look has told apart, once: who resumes them afterwards has her way."""
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
    return experiment.looks_dir / f"{pair}.{number:02d}.json"
