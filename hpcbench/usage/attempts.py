"""What workers did with the shards of a run task, and when: attempts, read from their event files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpcbench.experiment.claims import ends_of
from hpcbench.experiment.layout import Experiment, attempts_in
from hpcbench.files.archive import Folder


@dataclass(frozen=True, slots=True)
class Attempt:
    """One worker's time with one shard."""

    run_task: str
    """Run task of the shard."""
    shard: int
    """Number of the shard."""
    number: int
    """Number of the attempt."""
    owner: str
    """Id of the worker, see `Owner.id`."""
    begin: float
    """When it was claimed, seconds since the epoch on the worker's clock."""
    end: float | None
    """When the worker let go of it; None: it never said so, or still works on it."""
    ended: str
    """`done`, `drained`, `failed`; empty where it never said."""
    answered: int
    """Answers it got itself, by its last word; 0 where it had none."""

    @property
    def seconds(self) -> float:
        """How long it took; 0 where it never said."""
        return max(0.0, self.end - self.begin) if self.end is not None else 0.0


def attempts_of(
    experiment: Experiment, folder: Folder, run_task: str, most: int | None = None
) -> Iterator[list[Attempt]]:
    """Attempts that workers made, a shard at a time; shards nobody took are left out.

    Args:
        experiment: the experiment.
        folder: the run task's shards, `experiment.shards(run_task)`.
        run_task: a run task.
        most: look at so many shards at most, evenly spread; None: at all.
    """
    known = sorted(attempts_in(folder.names).items())
    if most is not None and len(known) > most:
        known = [known[turn * len(known) // most] for turn in range(most)]
    for index, numbers in known:
        found, before = list[Attempt](), 0
        for number in numbers:
            name = experiment.shard_events(run_task, index, number).name
            first, last = ends_of(folder.read(name))
            one, before = _attempt(run_task, index, number, first, last, before)
            if one is not None:
                found.append(one)
        if found:
            yield found


def _attempt(
    run_task: str,
    index: int,
    number: int,
    first: dict[str, Any] | None,
    last: dict[str, Any] | None,
    before: int,
) -> tuple[Attempt | None, int]:
    """An attempt, and how many samples of its shard were answered after it."""
    if first is None or last is None or first["event"] != "claimed":
        return None, before
    owner = first.get("owner") or {}
    said = last["event"] in ("done", "drained", "failed")
    after = int(last.get("answered", before)) if said else before
    one = Attempt(
        run_task,
        index,
        number,
        f"{owner.get('job', '')}-{owner.get('restart', 0)}",
        float(first["time"]),
        float(last["time"]) if said else None,
        last["event"] if said else "",
        max(0, after - before),
    )
    return one, after
