"""Sharing shards among workers without a server: the claim is a file created exclusively.

Attempt A of a shard is the file `NNNNN.A.events.jsonl`; its first line names the owner. Attempts follow
one another: A+1 may be opened only when A has ended (`released`, `drained`, `failed`), or by the same
array task after Slurm requeued it. Who holds a lower attempt than the newest is fenced: it stops at its
next answer. Of two answers to one sample that of the lower attempt counts, in every reader.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpcbench.experiment.files import Appender, create_exclusive, read_lines
from hpcbench.experiment.layout import Experiment
from hpcbench.schema.plan import Shard
from hpcbench.schema.records import RECORD_VERSION, Response

MAX_WORKING_ATTEMPTS = 4
"""A shard that ended so many workers is left alone: it, not they, is at fault."""

ENDED = ("released", "drained", "failed")
"""Last events after which another attempt may be opened."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A worker: one run of one array task."""

    job: str
    """Array job id and task id, `4711_3`; for local jobs submitit's id."""
    restart: int
    """SLURM_RESTART_COUNT."""
    host: str
    """Node."""
    pid: int
    """Process on that node."""

    @classmethod
    def here(cls) -> Owner:
        """The process this runs in, as Slurm or submitit named it."""
        environ = os.environ
        array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
        job = f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID")
        job = job or environ.get("SUBMITIT_LOCAL_JOB_ID") or f"pid{os.getpid()}"
        restart = int(environ.get("SLURM_RESTART_COUNT", "0"))
        return cls(job, restart, socket.gethostname(), os.getpid())

    @property
    def id(self) -> str:
        """`JOB-RESTART`, part of file names."""
        return f"{self.job}-{self.restart}"


@dataclass(frozen=True, slots=True)
class ShardState:
    """How far a shard is."""

    shard: Shard
    """The shard."""
    attempt: int
    """Newest attempt; 0 if nobody ever claimed it."""
    working_attempts: int
    """Attempts that a worker made."""
    state: str
    """`free`, `claimed`, `done`, or how the newest attempt ended: released, drained, failed."""
    owner: Mapping[str, Any] | None
    """Owner of the newest attempt."""

    @property
    def claimable(self) -> bool:
        """Whether a worker may take it now."""
        return self.state in ("free", *ENDED) and self.working_attempts < MAX_WORKING_ATTEMPTS


class Claim:
    """A worker's exclusive right to a shard: its events, its responses, what is answered already."""

    def __init__(self, experiment: Experiment, shard: Shard, attempt: int) -> None:
        self.shard, self.attempt = shard, attempt
        self._experiment = experiment
        place = (shard.run_task, shard.index)
        self._events = Appender(experiment.shard_events(*place, attempt))
        self._next = experiment.shard_events(*place, attempt + 1)
        self._responses = Appender(experiment.shard_responses(*place, attempt))
        self.answered = {response.sample_id for response in responses_of(experiment, shard)}
        """Samples with an acknowledged answer of this or an earlier attempt."""

    def record(self, response: Response) -> None:
        """Write an answer; readers see it at once, `acknowledge` makes it last.

        Raises:
            OSError: the disk is full.
        """
        self._responses.write(response.to_json())
        self.answered.add(response.sample_id)

    def acknowledge(self) -> None:
        """Force all recorded answers to the disk: none of them is ever asked again.

        Raises:
            Fenced: a later attempt took the shard over.
            OSError: the disk is full.
        """
        self._responses.sync()
        if self._next.exists():
            raise Fenced(f"shard {self.shard.id}: attempt {self.attempt + 1} took over")

    def end(self, event: str, **details: Any) -> None:
        """Say how it ended: `done`, `drained`, `failed`; closes the files."""
        self._responses.close()
        self._events.write(_event(event, answered=len(self.answered), **details))
        self._events.close()

    def abandon(self) -> None:
        """Close the files and say nothing: nothing can be written any more."""
        for appender in (self._events, self._responses):
            try:
                appender.close()
            except OSError:
                continue


class Fenced(Exception):
    """Another attempt took the shard over; this one has to let go."""


def claim(experiment: Experiment, state: ShardState, owner: Owner) -> Claim | None:
    """Open the next attempt of a shard; None if somebody else was quicker."""
    attempt = state.attempt + 1
    path = experiment.shard_events(state.shard.run_task, state.shard.index, attempt)
    header = _event("claimed", version=RECORD_VERSION, owner=asdict(owner))
    if not create_exclusive(path, header):
        return None
    return Claim(experiment, state.shard, attempt)


def release(experiment: Experiment, state: ShardState, reason: str) -> bool:
    """Take a shard from an owner that is gone: an attempt without work that ends at once.

    It also fences the old owner, should it be alive after all. Returns whether this call did it.
    """
    path = experiment.shard_events(state.shard.run_task, state.shard.index, state.attempt + 1)
    return create_exclusive(path, _event("released", version=RECORD_VERSION, reason=reason))


def shard_states(
    experiment: Experiment, run_tasks: Sequence[str], skip: Collection[str] = ()
) -> list[ShardState]:
    """The state of every shard of these run tasks, in planned order.

    Args:
        experiment: the experiment.
        run_tasks: names.
        skip: ids of shards to leave out: what is done stays done, and reading it again costs.
    """
    attempts = {name: experiment.attempts(name) for name in run_tasks}
    return [
        _state(experiment, shard, attempts[shard.run_task].get(shard.index, []))
        for shard in experiment.work.shards_of(tuple(run_tasks))
        if shard.id not in skip
    ]


def pieces_of(experiment: Experiment, run_task: str) -> Iterator[list[Response]]:
    """Responses of a run task, those that one worker asked for in one go together.

    The times of one piece are of one clock. Answers that came twice are there twice.
    """
    attempts = experiment.attempts(run_task)
    for shard in experiment.work.shards_of((run_task,)):
        for attempt in attempts.get(shard.index, ()):
            path = experiment.shard_responses(run_task, shard.index, attempt)
            if path.exists():
                yield [Response.from_json(line) for line in read_lines(path)]


def responses_of(experiment: Experiment, shard: Shard) -> Iterator[Response]:
    """The answers of a shard, one a sample: that of the lowest attempt counts."""
    seen: set[str] = set()
    for attempt in experiment.attempts(shard.run_task).get(shard.index, []):
        path = experiment.shard_responses(shard.run_task, shard.index, attempt)
        for record in read_lines(path):
            response = Response.from_json(record)
            if response.sample_id not in seen:
                seen.add(response.sample_id)
                yield response


def _state(experiment: Experiment, shard: Shard, attempts: Sequence[int]) -> ShardState:
    state, owner, working = "free", None, 0
    for attempt in attempts:
        events = list(read_lines(experiment.shard_events(shard.run_task, shard.index, attempt)))
        kinds = [event["event"] for event in events]
        working += "claimed" in kinds
        if "done" in kinds:
            return ShardState(shard, attempt, working, "done", events[0].get("owner"))
        last = kinds[-1] if kinds else "claimed"
        state = last if last in ENDED else "claimed"
        owner = events[0].get("owner") if events else None
    return ShardState(shard, attempts[-1] if attempts else 0, working, state, owner)


def _event(kind: str, **details: Any) -> dict[str, Any]:
    return {"event": kind, "time": round(time.time(), 3), **details}
