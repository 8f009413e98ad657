"""Attempts at the shards of a run task: which worker had which shard, when, and what it brought."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpcbench.experiment.claims import ends_of
from hpcbench.experiment.layout import Experiment, attempts_in, events_name, responses_name


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


class Attempts:
    """All attempts at the shards of a run task, from one look at its folder."""

    def __init__(self, experiment: Experiment, run_task: str) -> None:
        self.run_task = run_task
        self._folder = experiment.shards(run_task)
        self._numbers = attempts_in(self._folder.names)

    def by_shard(self, most: int | None = None) -> Iterator[list[Attempt]]:
        """Attempts that workers made, a shard at a time; shards that no worker took are left out.

        Args:
            most: look at so many shards at most, evenly spread; None: at all.
        """
        known = sorted(self._numbers)
        if most is not None and len(known) > most:
            known = [known[turn * len(known) // most] for turn in range(most)]
        for index in known:
            found, before = list[Attempt](), 0
            for number in self._numbers[index]:
                first, last = ends_of(self._folder.read(events_name(index, number)))
                one, before = _attempt(self.run_task, index, number, first, last, before)
                if one is not None:
                    found.append(one)
            if found:
                yield found

    def began(self, index: int, number: int) -> float:
        """When an attempt was claimed, seconds since the epoch on its worker's clock; 0: nobody can say."""
        first, _ = ends_of(self._folder.read(events_name(index, number)))
        return float((first or {}).get("time", 0.0))

    def answers(self, attempt: Attempt) -> Iterator[dict[str, Any]]:
        """Answers of an attempt as they were recorded, those that can be read."""
        return self._folder.records(responses_name(attempt.shard, attempt.number))

    def answer_bytes(self, attempt: Attempt) -> int | None:
        """What the answers of an attempt take on disk; None where it has none.

        Raises:
            OSError: its file cannot be looked at.
        """
        name = responses_name(attempt.shard, attempt.number)
        if name not in self._folder.names:
            return None
        entry = self._folder.folded.get(name)
        return entry.bytes if entry is not None else (self._folder.path / name).stat().st_size

    def only(self, index: int) -> tuple[Iterator[bytes], Iterator[dict[str, Any]]] | None:
        """Answers of a shard that was asked in one go; None if it took several.

        Returns:
            Whole lines, some MiB at a time, and the records in them; either is read as it is iterated over.
        """
        names = [
            name
            for number in self._numbers.get(index, ())
            if (name := responses_name(index, number)) in self._folder.names
        ]
        if len(names) != 1:
            return None
        return self._folder.pages(names[0]), self._folder.records(names[0])

    def released(self, index: int, owner: str) -> str:
        """Why a shard was taken from a worker that is gone; empty where nobody said."""
        mine = False
        for number in self._numbers.get(index, ()):
            for event in self._folder.records(events_name(index, number)):
                if event["event"] == "claimed":
                    mine = _id(event.get("owner") or {}) == owner
                elif event["event"] == "released" and mine:
                    return str(event.get("reason", ""))
        return ""


def _attempt(
    run_task: str,
    index: int,
    number: int,
    first: Mapping[str, Any] | None,
    last: Mapping[str, Any] | None,
    before: int,
) -> tuple[Attempt | None, int]:
    """An attempt, and how many samples of its shard were answered after it."""
    if first is None or last is None or first["event"] != "claimed":
        return None, before
    said = last["event"] in ("done", "drained", "failed")
    after = int(last.get("answered", before)) if said else before
    one = Attempt(
        run_task,
        index,
        number,
        _id(first.get("owner") or {}),
        float(first["time"]),
        float(last["time"]) if said else None,
        last["event"] if said else "",
        max(0, after - before),
    )
    return one, after


def _id(owner: Mapping[str, Any]) -> str:
    return f"{owner.get('job', '')}-{owner.get('restart', 0)}"
