"""Sharing shards among workers without a server: a claim is a file that is created exclusively.

Attempt A of a shard is the file `NNNNN.A.events.jsonl`; its first line names the owner. Attempts follow
one another: A+1 may be opened only when A has ended (`released`, `drained`, `failed`), or by the same
array task after Slurm requeued it. A worker whose attempt is not the newest is fenced: it stops at its next
answer. If a sample has two answers, every reader counts the answer of the lower attempt, unless a later
`released` has withdrawn it (`hpcbench resume` asks failed samples again): see `withdrawn`. Attempt 0 has no
owner: submission writes it, whole, with answers of earlier experiments.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hpcbench.experiment.event_log import RECORD_VERSION, EventLog, Kind, event, is_event, time_of
from hpcbench.experiment.layout import (
    Experiment,
    attempts_in,
    events_name,
    responses_name,
)
from hpcbench.files.archive import FOLDED, Folder, is_folded
from hpcbench.files.atomic import (
    Appender,
    create_exclusive,
    line_of,
    log_damage,
    parse_line,
    read_lines,
    write_atomic,
)
from hpcbench.schema.work import Shard

if TYPE_CHECKING:
    from hpcbench.schema.records import Response

REUSED = 0
"""Attempt of no worker: answers of earlier experiments, see `experiment/reused.py`."""

MAX_FAILED_ATTEMPTS = 4
"""A shard with so many failed attempts is not claimed again: the shard is at fault, not the workers."""

UNSUCCESSFUL = ("failed", "invalid")
"""Outcomes of requests that `hpcbench resume` repeats."""


Ends = Sequence[Mapping[str, Any] | None]
"""First and last event of an attempt; None for an event that cannot be read."""

_OWNER: Mapping[str, type] = {"job": str, "restart": int, "host": str, "pid": int}
"""Fields of every recorded owner; earlier versions had no others."""

_NO_ENDS: Mapping[str, Ends] = MappingProxyType({})

ENDED = ("released", "drained", "failed")
"""Last events after which another attempt may be opened."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A worker: one run of one array task."""

    job: str
    """Array job id and task id, `4711_3`; for local jobs submitit's id."""
    restart: int
    """Earlier runs of this job: SLURM_RESTART_COUNT, or more where slurmctld lost some, see `runs.py`."""
    host: str
    """Host name of the node."""
    pid: int
    """Process on that node."""
    node: str = ""
    """The node's name in Slurm."""
    round: int = 0
    """The worker's round of jobs: workers of earlier rounds are gone."""
    replica: int = 0
    """Number of the worker in its job, from 0; a job has several where its group has `replicas`."""

    @classmethod
    def here(cls) -> Owner:
        """This process, with the job id of Slurm or submitit."""
        environ = os.environ
        array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
        job = f"{array}_{task}" if array and task else environ.get("SLURM_JOB_ID")
        job = job or environ.get("SUBMITIT_LOCAL_JOB_ID") or f"pid{os.getpid()}"
        restart = int(environ.get("SLURM_RESTART_COUNT", "0"))
        host = socket.gethostname()
        return cls(job, restart, host, os.getpid(), environ.get("SLURMD_NODENAME", host))

    @property
    def id(self) -> str:
        """`JOB-RESTART`, or `JOB.REPLICA-RESTART` of further workers of a job; part of file names."""
        return f"{self.seat}-{self.restart}"

    @property
    def seat(self) -> str:
        """`JOB` or `JOB.REPLICA`: the same in each run of the job."""
        return f"{self.job}.{self.replica}" if self.replica else self.job


def seat_of(owner: Mapping[str, Any] | None) -> str:
    """The seat of a recorded owner; empty: there is none."""
    if not owner:
        return ""
    job, replica = str(owner.get("job", "")), owner.get("replica", 0)
    return f"{job}.{replica}" if replica else job


def id_of_owner(owner: Mapping[str, Any] | None) -> str:
    """The id of a recorded owner, see `Owner.id`; empty: there is none."""
    return f"{seat_of(owner)}-{owner.get('restart', 0)}" if owner else ""


class ShardState(NamedTuple):
    """The state of a shard. A tuple: there may be 100,000."""

    shard: Shard
    """The shard."""
    attempt: int
    """Newest attempt; 0 if no worker ever claimed the shard."""
    failed_attempts: int
    """Attempts of workers that did not end in order (`done` or `drained`)."""
    state: str
    """`free`, `claimed`, `done`, or how the newest attempt ended: released, drained, failed."""
    owner: Mapping[str, Any] | None
    """Owner of the newest attempt, with fields of `Owner`; None: none is recorded, or only a part of one."""
    began: float = 0.0
    """Start of the newest attempt, seconds since the epoch on its node's clock."""
    last: Mapping[str, Any] = MappingProxyType({})
    """The newest attempt's last event, with all its fields."""
    counted: int = 0
    """Samples with an answer, by the events."""
    uncounted: tuple[str, ...] = ()
    """Files with answers that no event counts."""
    folder: Folder | None = None
    """The folder that the state was read from."""

    @property
    def reason(self) -> str:
        """Why the newest attempt ended; empty where no reason was given."""
        return str(self.last.get("reason", ""))

    @property
    def seconds(self) -> float:
        """Duration of the newest attempt; 0 while it runs."""
        if self.state not in ("done", *ENDED):
            return 0.0
        return max(0.0, time_of(self.last) - self.began)

    @property
    def answered(self) -> int:
        """Samples with an answer. Where no event counts them, the lines of the file are counted: slower."""
        size = self.shard.stop - self.shard.start
        if self.state == "done" or self.folder is None:
            return size if self.state == "done" else min(size, self.counted)
        return min(size, self.counted + sum(map(self.folder.lines_of, self.uncounted)))

    @property
    def claimable(self) -> bool:
        """Whether a worker may claim the shard now."""
        return self.state in ("free", *ENDED) and self.failed_attempts < MAX_FAILED_ATTEMPTS


class Claim:
    """A worker's exclusive right to a shard: its events, its responses, its answered samples."""

    def __init__(
        self, experiment: Experiment, shard: Shard, attempt: int, began: float = 0.0
    ) -> None:
        self.shard, self.attempt, self.began = shard, attempt, began
        self.experiment = experiment
        place = (shard.run_task, shard.index)
        self._events = EventLog(experiment.shard_events(*place, attempt))
        self._next = experiment.shard_events(*place, attempt + 1)
        self._responses = Appender(experiment.shard_responses(*place, attempt))
        self._turns: Appender | None = None
        self.answered = {response.sample_id for response in _before(experiment, shard, attempt)}
        """Samples with an acknowledged answer of this or an earlier attempt."""

    def record(self, response: Response) -> None:
        """Write an answer; readers see it at once, `acknowledge` makes it durable.

        Raises:
            OSError: the disk is full.
        """
        self._responses.write(response.to_json())
        self.answered.add(response.sample_id)

    def acknowledge(self) -> None:
        """Force all recorded answers to the disk: their samples are never asked again.

        Raises:
            Fenced: a later attempt took the shard over.
            OSError: the disk is full.
        """
        self._force(self._responses)

    def write_turn(self, line: Mapping[str, Any]) -> None:
        """Write a line of an agent's turns; `acknowledge_turns` makes it durable.

        Raises:
            OSError: the disk is full.
        """
        if self._turns is None:
            place = self.shard.run_task, self.shard.index, self.attempt
            self._turns = Appender(self.experiment.shard_turns(*place))
        self._turns.write(line)

    def acknowledge_turns(self) -> None:
        """Force all written turns to the disk. Raises as `acknowledge`."""
        if self._turns is not None:
            self._force(self._turns)

    def _force(self, file: Appender) -> None:
        folded = f"shard {self.shard.id}: attempt {self.attempt} was folded"
        try:
            file.sync()
        except OSError as error:
            if error.errno == errno.ESTALE:  # NFS reports a removed file by this error
                raise Fenced(folded) from error
            raise
        if self._next.exists():
            raise Fenced(f"shard {self.shard.id}: attempt {self.attempt + 1} took over")
        # In this order: a fold removes the files of the lower attempt first.
        if not file.linked():
            raise Fenced(folded)

    def end(self, kind: Kind, **details: Any) -> dict[str, Any]:
        """Write how the attempt ended (`done`, `drained`, `failed`), close the files, return the event."""
        if self._turns is not None:
            self._turns.close()
        self._responses.close()
        last = self._events.write(kind, answered=len(self.answered), **details)
        self._events.close()
        return last

    def abandon(self) -> None:
        """Close the files without a last event: nothing can be written any more."""
        for file in (self._events, self._responses, self._turns):
            try:
                if file is not None:
                    file.close()
            except OSError:
                continue


class Fenced(Exception):
    """Another attempt took the shard over; this attempt has to stop."""


def claim(experiment: Experiment, state: ShardState, owner: Owner) -> Claim | None:
    """Open the next attempt of a shard; None if another worker was quicker."""
    attempt = state.attempt + 1
    path = experiment.shard_events(state.shard.run_task, state.shard.index, attempt)
    header = event("claimed", version=RECORD_VERSION, owner=asdict(owner))
    # `exists` first: a failed create costs as much as a successful one.
    if path.exists() or not create_exclusive(path, header):
        return None
    # Since our look, another worker may have opened and ended this attempt, and a fold removed its file.
    if is_folded(path):
        path.unlink(missing_ok=True)
        return None
    return Claim(experiment, state.shard, attempt, header["time"])


def take_over(experiment: Experiment, shard: Shard, answers: Sequence[Response]) -> None:
    """Write a shard's answers of earlier experiments as attempt 0, before any worker may claim the shard.

    Whole or not at all: a kill between the two files leaves answers that no reader knows of.

    Raises:
        OSError: the disk is full or gone.
    """
    place = (shard.run_task, shard.index, REUSED)
    write_atomic(
        experiment.shard_responses(*place), b"".join(line_of(one.to_json()) for one in answers)
    )
    whole = len(answers) == shard.stop - shard.start
    last = event(
        "done" if whole else "drained",
        version=RECORD_VERSION,
        answered=len(answers),
        reused=len(answers),
    )
    create_exclusive(experiment.shard_events(*place), last)


def is_reused_whole(folder: Folder, index: int) -> bool:
    """Whether all answers of a shard are of earlier experiments."""
    _, last = _ends(folder, events_name(index, REUSED))
    return last is not None and last["event"] == "done"


def release(
    experiment: Experiment,
    state: ShardState,
    reason: str,
    *,
    reopen: bool = False,
    forgive: bool = False,
    withdrawn: Sequence[str] = (),
    answered: int | None = None,
) -> bool:
    """Take a shard from an owner that is gone: write an attempt without work that ends at once.

    This also fences the old owner, should it still be alive.

    Args:
        experiment: the experiment.
        state: the shard.
        reason: the reason, for people.
        reopen: release the shard even if it is done: its missing samples are asked again.
        forgive: do not count failed attempts any more.
        withdrawn: samples to ask again; their answers of earlier attempts do not count any more.
        answered: number of samples that keep their answer; None: as before.

    Returns:
        Whether this call released the shard.
    """
    path = experiment.shard_events(state.shard.run_task, state.shard.index, state.attempt + 1)
    again: dict[str, Any] = {"reopened": True} if reopen else {}
    again |= {"forgiven": True} if forgive else {}
    again |= {"withdrawn": list(withdrawn)} if withdrawn else {}
    again |= {} if answered is None else {"answered": answered}
    return create_exclusive(path, event("released", version=RECORD_VERSION, reason=reason, **again))


def shard_states(
    experiment: Experiment,
    run_tasks: Sequence[str],
    skip: Collection[str] = (),
    ends: Mapping[str, Ends] = _NO_ENDS,
) -> list[ShardState]:
    """The state of every shard of these run tasks, in planned order.

    Args:
        experiment: the experiment.
        run_tasks: names.
        skip: ids of shards to leave out: done shards stay done, and reading them again costs time.
        ends: `SHARD.ATTEMPT` → workers' events of attempts that have ended: their files are not opened.
    """
    folders = {name: experiment.shards(name) for name in run_tasks}
    attempts = {name: attempts_in(folder.names) for name, folder in folders.items()}
    left_out = frozenset(skip)
    return [
        _state(folders[shard.run_task], shard, attempts[shard.run_task].get(shard.index, ()), ends)
        for shard in experiment.work.shards_of(tuple(run_tasks))
        if shard.id not in left_out
    ]


def states_of(experiment: Experiment, shards: Sequence[Shard]) -> list[ShardState]:
    """The state of these shards of one run task."""
    if not shards:
        return []
    folder = experiment.shards(shards[0].run_task)
    attempts = attempts_in(folder.names)
    return [_state(folder, shard, attempts.get(shard.index, ()), _NO_ENDS) for shard in shards]


def suspects(experiment: Experiment, shard: Shard) -> list[str]:
    """Samples that were in flight when an engine died, in any attempt of the shard."""
    folder = experiment.shards(shard.run_task)
    found: dict[str, None] = {}
    for attempt in attempts_in(folder.names).get(shard.index, ()):
        _, last = _ends(folder, events_name(shard.index, attempt))
        found |= dict.fromkeys((last or {}).get("in_flight", ()))
    return list(found)


def withdrawn(folder: Folder, index: int, attempts: Sequence[int]) -> dict[int, frozenset[str]]:
    """Attempt → samples whose answers in it do not count: a later `release` had them asked again.

    Args:
        folder: files of the run task's shards.
        index: the shard's number.
        attempts: its attempts, in order.
    """
    found: dict[int, frozenset[str]] = {}
    later: frozenset[str] = frozenset()
    for attempt in reversed(attempts if len(attempts) > 1 else ()):
        if later:
            found[attempt] = later
        _, last = _ends(folder, events_name(index, attempt))
        later = later.union((last or {}).get("withdrawn") or ())
    return found


def unsuccessful(
    experiment: Experiment, run_tasks: Sequence[str]
) -> Iterator[tuple[ShardState, list[str], int]]:
    """Shards without a worker that have failed requests: state, failed samples, number of other answers.

    Reads every answer.
    """
    states = {state.shard.id: state for state in shard_states(experiment, run_tasks)}
    for run_task in run_tasks:
        for shard, answers in answers_of(experiment, run_task):
            lost = [name for name, one in answers.items() if one.outcome in UNSUCCESSFUL]
            if lost and states[shard.id].state != "claimed":
                yield states[shard.id], lost, len(answers) - len(lost)


def damaged(experiment: Experiment, run_tasks: Sequence[str]) -> list[ShardState]:
    """Done shards with answers that cannot be read any more. Reads every answer."""
    states = shard_states(experiment, run_tasks)
    done = {state.shard.id: state for state in states if state.state == "done"}
    return [
        done[shard.id]
        for run_task in run_tasks
        for shard, answers in answers_of(experiment, run_task)
        if shard.id in done and len(answers) < shard.stop - shard.start
    ]


def pieces_of(experiment: Experiment, run_task: str) -> Iterator[list[Response]]:
    """Responses of a run task in pieces: one piece for each attempt of a worker.

    The times of one piece are of one clock. A duplicate answer appears twice; answers of earlier experiments
    are left out.
    """
    for folder, name in _pieces(experiment, run_task):
        yield list(readable(folder.records(name), folder.path / name))


def unread_pieces(
    experiment: Experiment, run_task: str, *, reused: bool = False
) -> Iterator[Iterator[bytes]]:
    """As `pieces_of`, for fast decoders: whole lines, some MiB at a time.

    Each iterator reads the file only when it is iterated. `reused`: answers of earlier experiments follow,
    a piece for each clock.
    """
    for folder, name in _pieces(experiment, run_task):
        yield folder.pages(name)
    if not reused:
        return
    by_clock: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for _, attempts in numbered_attempts_of(experiment, run_task):
        for one in (one for number, own in attempts if number == REUSED for one in own):
            source = one.reused_from or {}
            clock = tuple(source.get(key, "") for key in ("experiment", "run_task", "piece"))
            by_clock.setdefault(clock, []).append(one.to_json())
    for records in by_clock.values():
        yield iter([b"".join(map(line_of, records))])


def _pieces(experiment: Experiment, run_task: str) -> Iterator[tuple[Folder, str]]:
    """Files with responses, in planned order."""
    folder = experiment.shards(run_task)
    names = folder.names
    attempts = attempts_in(names)
    for shard in experiment.work.shards_of((run_task,)):
        for attempt in attempts.get(shard.index, ()):
            name = experiment.shard_responses(run_task, shard.index, attempt).name
            if attempt != REUSED and name in names:
                yield folder, name


def answers_of(
    experiment: Experiment, run_task: str
) -> Iterator[tuple[Shard, dict[str, Response]]]:
    """Each shard of a run task with its answers by sample, one a sample, from one listing of the folder."""
    for shard, attempts in attempts_of(experiment, run_task):
        yield shard, {one.sample_id: one for own in attempts for one in own}


def attempts_of(
    experiment: Experiment, run_task: str, skip: Collection[str] = ()
) -> Iterator[tuple[Shard, list[list[Response]]]]:
    """As `answers_of`, with a separate list for each attempt: its times are of one clock.

    Args:
        experiment, run_task: as there.
        skip: ids of shards to leave out, whose files are not read.
    """
    for shard, attempts in numbered_attempts_of(experiment, run_task, skip):
        yield shard, [own for _, own in attempts]


def numbered_attempts_of(
    experiment: Experiment, run_task: str, skip: Collection[str] = ()
) -> Iterator[tuple[Shard, list[tuple[int, list[Response]]]]]:
    """As `attempts_of`, with the number of each attempt."""
    folder = experiment.shards(run_task)
    numbers = attempts_in(folder.names)
    left_out = frozenset(skip)
    for shard in experiment.work.shards_of((run_task,)):
        if shard.id not in left_out:
            own = numbers.get(shard.index, ())
            yield shard, [*zip(own, _attempts(folder, shard, own), strict=True)]


def digest_of(experiment: Experiment, run_task: str) -> str:
    """Hash of all answer files: equal hashes mean equal answers, folded or not."""
    folder = experiment.shards(run_task)
    attempts = attempts_in(folder.names)
    found = hashlib.sha256()
    for shard in experiment.work.shards_of((run_task,)):
        for attempt in attempts.get(shard.index, ()):
            name = experiment.shard_responses(run_task, shard.index, attempt).name
            size = 0
            for block in folder.blocks(name):
                found.update(block)
                size += len(block)
            found.update(f"\n{name} {size}\n".encode())
        if gone := withdrawn(folder, shard.index, attempts.get(shard.index, ())):
            by_attempt = {attempt: sorted(samples) for attempt, samples in gone.items()}
            found.update(repr(sorted(by_attempt.items())).encode())
    return found.hexdigest()


def responses_of(experiment: Experiment, shard: Shard) -> Iterator[Response]:
    """The answers of a shard, one a sample: the lowest attempt whose answer was not withdrawn counts.

    Lists the whole folder; use `answers_of` for all shards of a run task.
    """
    folder = experiment.shards(shard.run_task)
    for own in _attempts(folder, shard, attempts_in(folder.names).get(shard.index, ())):
        yield from own


def ends_of(data: bytes) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """First and last event of an attempt; None for an event that cannot be read."""
    *lines, _torn = data.split(b"\n")
    if not lines:
        return None, None
    first = last = _event(lines[0])
    for line in reversed(lines[1:]):
        if (found := _event(line)) is not None:
            last = found
            break
    return first, last


def _event(line: bytes) -> dict[str, Any] | None:
    record = parse_line(line)
    return record if record is not None and is_event(record) else None


def _before(experiment: Experiment, shard: Shard, attempt: int) -> list[Response]:
    """Answers of earlier attempts, read by file name: listing thousands of files at each claim is slow."""
    first = REUSED if experiment.may_have_taken_over(shard.run_task) else REUSED + 1
    if attempt == first:
        return []
    folded = experiment.shards_dir(shard.run_task) / FOLDED
    found: list[Response] = []
    if not folded.exists():
        gone: frozenset[str] = frozenset()
        for number in range(attempt - 1, first - 1, -1):
            path = experiment.shard_responses(shard.run_task, shard.index, number)
            found += [one for one in readable(read_lines(path), path) if one.sample_id not in gone]
            if number == REUSED:
                break  # its events withdraw nothing
            last = deque(
                read_lines(experiment.shard_events(shard.run_task, shard.index, number)), 1
            )
            gone = gone.union(*(one.get("withdrawn") or () for one in last))
    # Checked again here: files that were folded during the read may be missing from `found`.
    return list(responses_of(experiment, shard)) if folded.exists() else found


def _attempts(folder: Folder, shard: Shard, attempts: Sequence[int]) -> Iterator[list[Response]]:
    """The answers that count, of each attempt."""
    seen: set[str] = set()
    gone = withdrawn(folder, shard.index, attempts)
    for attempt in attempts:
        name = responses_name(shard.index, attempt)
        own, skip = [], gone.get(attempt, frozenset[str]())
        for response in readable(folder.records(name), folder.path / name):
            if response.sample_id not in seen and response.sample_id not in skip:
                seen.add(response.sample_id)
                own.append(response)
        yield own


def readable(records: Iterable[Mapping[str, Any]], path: Path) -> Iterator[Response]:
    """The answers among the records of a file; others are left out, and logged once."""
    from hpcbench.schema.records import Response  # late: a status reads no answers

    for record in records:
        if (answer := Response.or_none(record)) is not None:
            yield answer
        else:
            log_damage(path, f"{path}: an answer is damaged and left out; there may be more")


def _state(
    folder: Folder, shard: Shard, attempts: Sequence[int], said: Mapping[str, Ends]
) -> ShardState:
    """The state of a shard: only the first and the last event of each attempt are read."""
    state, failed, counted = "free", 0, 0
    uncounted: list[str] = []
    owner: Mapping[str, Any] | None = None
    began = 0.0
    newest: Mapping[str, Any] = {}
    for attempt in attempts:
        name = f"{shard.index:05d}.{attempt}"
        first, last = said.get(f"{shard.run_task}/{name}") or _ends(folder, f"{name}.events.jsonl")
        kind = last["event"] if last else "claimed"
        at_work = kind == "claimed" and attempt == attempts[-1]
        failed = 0 if last and last.get("forgiven") else failed
        failed += kind not in ("done", "drained", "released") and not at_work
        if last and isinstance(last.get("answered"), int):
            counted, uncounted = last["answered"], []
        else:
            uncounted.append(f"{name}.responses.jsonl")
        if state == "done" and not (last and last.get("reopened")):
            continue  # done wins over a later release
        state = kind if kind in ("done", *ENDED) else "claimed"
        owner = _whole(first.get("owner")) if first else None
        began = time_of(first)
        newest = last or {}
    number = attempts[-1] if attempts else 0
    return ShardState(
        shard, number, failed, state, owner, began, newest, counted, tuple(uncounted), folder
    )


def _whole(owner: object) -> Mapping[str, Any] | None:
    """A recorded owner with the fields that `Owner` has; None: it lacks one that every owner has."""
    if not isinstance(owner, Mapping):
        return None
    if not all(isinstance(owner.get(name), kind) for name, kind in _OWNER.items()):
        return None
    return {name: value for name, value in owner.items() if name in Owner.__slots__}


def _ends(folder: Folder, name: str) -> Ends:
    entry = folder.folded.get(name)
    if entry is not None and entry.note is not None:
        found: Ends = entry.note
        return found
    return ends_of(folder.read(name))
