"""Attempts at the shards of a run task: which worker had which shard, when, and with how many answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpcbench.experiment.claims import ends_of, id_of_owner
from hpcbench.experiment.event_log import is_event, time_of
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
    """Time of the claim, seconds since the epoch on the worker's clock."""
    end: float | None
    """Time of the last event; None: the worker wrote none, or still works on the shard."""
    ended: str
    """`done`, `drained`, `failed`; empty without a last event."""
    answered: int
    """Answers of this attempt alone, by its last event; 0 without one."""

    @property
    def seconds(self) -> float:
        """Duration; 0 without a last event."""
        return max(0.0, self.end - self.begin) if self.end is not None else 0.0


class Attempts:
    """All attempts at the shards of a run task, from one listing of its folder."""

    def __init__(self, experiment: Experiment, run_task: str) -> None:
        self.run_task = run_task
        self._folder = experiment.shards(run_task)
        self._numbers = attempts_in(self._folder.names)

    def by_shard(self, most: int | None = None) -> Iterator[list[Attempt]]:
        """Attempts of workers, a shard at a time; shards that no worker took are left out.

        Args:
            most: maximum number of shards to read, evenly spread; None: all.
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
        """Time of an attempt's claim, seconds since the epoch on its worker's clock; 0: unknown."""
        first, _ = ends_of(self._folder.read(events_name(index, number)))
        return time_of(first)

    def answers(self, attempt: Attempt) -> Iterator[dict[str, Any]]:
        """The readable answers of an attempt, as recorded."""
        return self._folder.records(responses_name(attempt.shard, attempt.number))

    def answer_bytes(self, attempt: Attempt) -> int | None:
        """Bytes on disk of an attempt's answers; None: it has no answers.

        Raises:
            OSError: the file cannot be inspected.
        """
        name = responses_name(attempt.shard, attempt.number)
        if name not in self._folder.names:
            return None
        entry = self._folder.folded.get(name)
        return entry.bytes if entry is not None else (self._folder.path / name).stat().st_size

    def only(self, index: int) -> Iterator[bytes]:
        """Answers of a shard with answers of exactly one attempt, none of any other shard.

        Yields:
            Whole lines, some MiB at a time.
        """
        names = [
            name
            for number in self._numbers.get(index, ())
            if (name := responses_name(index, number)) in self._folder.names
        ]
        return self._folder.pages(names[0]) if len(names) == 1 else iter(())

    def released(self, index: int, owner: str) -> str:
        """Why a shard was taken from a worker that is gone; empty without a recorded reason."""
        mine = False
        for number in self._numbers.get(index, ()):
            for event in filter(is_event, self._folder.records(events_name(index, number))):
                if event["event"] == "claimed":
                    mine = id_of_owner(event.get("owner")) == owner
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
    """An attempt, and the number of answered samples of its shard after it."""
    if first is None or last is None:
        return None, before
    if first["event"] != "claimed":  # of no worker: answers of earlier experiments, or a release
        return None, int(last.get("answered", before))
    said = last["event"] in ("done", "drained", "failed")
    after = int(last.get("answered", before)) if said else before
    one = Attempt(
        run_task,
        index,
        number,
        id_of_owner(first.get("owner")),
        time_of(first),
        time_of(last) if said else None,
        last["event"] if said else "",
        max(0, after - before),
    )
    return one, after
