"""Output of `hpcbench status --json`, field by field; docs/status.md describes it for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, NamedTuple

State = Literal[
    "submitting", "interrupted", "pending", "running", "paused", "evaluating", "stalled", "done",
    "incomplete", "failed", "cancelled", "lost",
]  # fmt: skip
"""State of an experiment.

`submitting` jobs are being handed over · `interrupted` this was cut off, `hpcbench resume` continues ·
`pending` all jobs wait · `running` · `paused` until `hpcbench resume` · `evaluating` answers are in ·
`stalled` what is due waits for the login node · `done` · `incomplete` ended with work left that trying
again did not cure, or with too few samples that are ok · `failed` ended and no sample was scored ·
`cancelled` · `lost` no job is left and none reported its end.
"""

ENDED: tuple[State, ...] = ("done", "incomplete", "failed", "cancelled", "lost", "interrupted")
"""States that no job will change."""

ShardWord = Literal[
    "pending", "claimed", "running", "silent", "acknowledged", "done", "failed", "lost"
]
"""State of a shard.

`pending` no worker holds it, and it has no answer · `acknowledged` no worker holds it, part of it is
answered and will not be asked again · `claimed` a worker holds it and has no answer yet · `running` answers
come in · `silent` its job runs, but its worker sent no message for minutes · `done` · `failed` it ended so
many workers that it is left alone, or the experiment ended without it and no user cancelled it · `lost` its
worker ended without a message; it will be taken over.
"""

RunTaskState = Literal[
    "pending", "running", "paused", "stopped", "cancelled", "done", "incomplete", "failed"
]
"""State of a run task: `stopped` by hpcbench, with a reason · `incomplete` ended with work left, or with too
few samples that are ok · `failed` ended and no sample was scored."""


@dataclass(frozen=True, kw_only=True)
class ShardCounts:
    """How many shards are in each state."""

    pending: int = 0
    """No worker holds it, nothing answered."""
    acknowledged: int = 0
    """No worker holds it, part of it answered for good."""
    claimed: int = 0
    """Held, no answer yet."""
    running: int = 0
    """Held, answers come in."""
    silent: int = 0
    """Held by a worker that sent no message for minutes."""
    done: int = 0
    """Done."""
    failed: int = 0
    """Left undone for good."""
    lost: int = 0
    """Its worker ended without a message."""

    def total(self) -> int:
        """Shards in all."""
        return sum(asdict(self).values())


class ShardStatus(NamedTuple):
    """How far one shard is. A tuple, not a dataclass: there may be 100,000."""

    id: str
    """`RUN_TASK/INDEX`."""
    state: ShardWord
    """Its state."""
    samples: int
    """Samples in it."""
    answered: int
    """Samples with an acknowledged answer."""
    attempt: int
    """Newest attempt; 0: no worker ever claimed it."""
    cause: str | None = None
    """Why it is `lost`, `silent` or `failed`, or why no worker holds it any more."""
    job: str | None = None
    """Job or array task of its worker."""
    node: str | None = None
    """Node of its worker."""
    since: float | None = None
    """When the newest attempt began, seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class Eta:
    """When the last answer will be there, for the workers now at work. Times are seconds since the epoch."""

    low: float
    """Not before, with half of what is left to `confidence`."""
    likely: float
    """Half of all courses end earlier."""
    high: float
    """Not after, likewise."""
    confidence: float
    """Share of such intervals that hold the truth."""
    waits: bool = False
    """Whether part of the work waits for Slurm; that wait is not in the interval."""
    text: str
    """The interval for people."""


@dataclass(frozen=True, kw_only=True)
class RunTaskStatus:
    """How far one run task is."""

    name: str
    """The run task."""
    model: str
    """Its model."""
    state: RunTaskState
    """Its state."""
    reason: str | None = None
    """Why it is stopped, paused, cancelled, incomplete or failed."""
    coverage: float | None = None
    """ok ÷ (asked + skipped), once the experiment has ended; null: not known."""
    samples: int
    """Samples to ask about."""
    answered: int
    """Samples with an acknowledged answer, whatever its outcome."""
    shards: ShardCounts
    """Its shards by state."""
    rate: float | None = None
    """Answers a second over the last minutes; None: none came."""
    turns: int | None = None
    """Turns of agents; None: no agent works on its samples."""
    tool_calls: int | None = None
    """Their tool calls."""
    working: int | None = None
    """Samples that agents work on now."""


@dataclass(frozen=True, kw_only=True)
class GpuUse:
    """One GPU as its worker last saw it."""

    gpu: int
    """Number on the node."""
    utilisation: float | None = None
    """Percent of the time that something ran on it."""
    used_gb: float | None = None
    """Memory in use, GiB."""


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """One worker that lives."""

    id: str
    """`JOB-RESTART`."""
    group: str
    """Its group."""
    job: str
    """Job or array task."""
    node: str
    """Where it runs."""
    state: Literal["starting", "loading", "working", "idle", "silent"]
    """`silent`: its job runs, but its worker sent no message for minutes."""
    since: float
    """When it started, seconds since the epoch."""
    heard: float
    """Time of its last message, seconds since the epoch."""
    model: str | None = None
    """Model it holds or loads."""
    shard: str | None = None
    """Shard it works on."""
    answered: int | None = None
    """Samples of that shard with an answer."""
    samples: int | None = None
    """Samples of that shard."""
    gpus: tuple[GpuUse, ...] = ()
    """Its GPUs."""
    token: str | None = None
    """The token of a model elsewhere, and what was done for it so far; None: it needs none."""


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Amount that its workers spent so far, requests in flight included, and its limits."""

    requests: int
    """Requests that were sent."""
    tokens: int
    """Tokens of prompts and answers."""
    cost: float | None = None
    """Money; None: no model has prices, or they are in several currencies."""
    currency: str | None = None
    """Currency of the money."""
    max_requests: int | None = None
    """Budget of requests; None: no limit."""
    max_tokens: int | None = None
    """Budget of tokens."""
    max_cost: float | None = None
    """Budget of money."""
    text: str
    """All of it for people."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Failures with one cause."""

    cause: str
    """The cause in one line, as it was last reported."""
    kind: str
    """Kind of event, e.g. `model_failed`, `engine_died`; `lost` of workers; of samples `answers` (without an
    answer) and `metric` (a metric failed, or its value is outside its bounds)."""
    count: int = 1
    """How often."""
    run_tasks: tuple[str, ...] = ()
    """Run tasks it hit."""
    models: tuple[str, ...] = ()
    """Models it hit."""
    nodes: tuple[str, ...] = ()
    """Nodes it was seen on."""
    first: float | None = None
    """When it was first seen, seconds since the epoch."""
    last: float | None = None
    """When it was last seen."""
    log: str | None = None
    """A file with more."""

    @property
    def worker_lost(self) -> bool:
        """Whether workers ended without a message; other workers take their shards over."""
        return self.kind == "lost" and bool(self.nodes)

    @property
    def line(self) -> str:
        """The cause in one line; lost workers are called so."""
        cause = self.cause.partition("\n")[0] or self.kind
        return f"worker lost: {cause}" if self.worker_lost else cause


def counted(failures: Sequence[Failure]) -> str:
    """How much went wrong, by what it is: `2 workers lost, 1 sample without an answer, 3 failures`."""
    counts = Counter[tuple[str, str]]()
    for one in failures:
        if one.worker_lost:
            counts["worker lost", "workers lost"] += one.count
        elif one.kind == "answers" and one.run_tasks:
            counts["sample without an answer", "samples without an answer"] += one.count
        elif one.kind == "metric":
            counts["score missing", "scores missing"] += one.count
        else:
            counts["failure", "failures"] += one.count
    return ", ".join(f"{count:,} {words[count != 1]}" for words, count in counts.items())


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Jobs that wait for Slurm."""

    job: str
    """Job id; of an array, that of the array."""
    step: str
    """Step of the round: `g0`, `finalise` …"""
    count: int = 1
    """Array tasks that wait."""
    why: str
    """In plain words."""
    reason: str = ""
    """Slurm's own word for it."""


@dataclass(frozen=True, kw_only=True)
class SlurmWord:
    """Slurm's last answer, and its time."""

    time: float | None = None
    """When it was asked, seconds since the epoch; None: it has not answered yet."""
    fault: str | None = None
    """Why it did not answer last time; what is shown is then from files and its older word."""


@dataclass(frozen=True, kw_only=True)
class ExperimentStatus:
    """Output of `hpcbench status --json`; `version` changes when a field changes its meaning."""

    version: int = 2
    """Version of this format."""
    time: float
    """When the status was read, seconds since the epoch."""
    id: str
    """The experiment."""
    state: State
    """State of the whole."""
    reason: str | None = None
    """Why it is `incomplete` or `failed`; None: it is neither, or it is unknown."""
    needs: str | None = None
    """The user's next step before it continues; None: none."""
    path: str
    """Its directory."""
    executor: str
    """slurm or local."""
    round: int
    """Passes of jobs so far, from 1."""
    max_resubmits: int
    """After so many rounds in a row that bring no answer the experiment ends."""
    samples: int
    """Samples to ask about."""
    answered: int
    """Samples with an acknowledged answer."""
    shards: ShardCounts
    """All shards by state."""
    rate: float | None = None
    """Answers a second over the last minutes."""
    eta: Eta | None = None
    """When the last answer will be there; None: no worker runs, or nothing is known yet."""
    spending: Spending | None = None
    """Spent part of its budget; None: it has no budget, and no model has prices."""
    jobs: Mapping[str, int] = field(default_factory=dict)
    """State in Slurm's words → jobs or array tasks alive."""
    waits: tuple[Wait, ...] = ()
    """Jobs that wait, and for what."""
    deferred: int = 0
    """Workers that are not submitted yet because of a limit of Slurm's."""
    slurm: SlurmWord | None = None
    """Slurm's last answer; None: it was not asked."""
    run_tasks: tuple[RunTaskStatus, ...]
    """Each run task."""
    workers: tuple[WorkerStatus, ...] = ()
    """Workers that live."""
    failures: tuple[Failure, ...] = ()
    """Failures by cause, the most frequent first."""
    alarms: tuple[Failure, ...] = ()
    """Warnings of monitors: memory, disks, GPUs."""
    report: str | None = None
    """The report, once written."""


@dataclass(frozen=True, kw_only=True)
class Brief:
    """An experiment in a list."""

    version: int = 2
    """Version of this format."""
    id: str
    """The experiment."""
    state: State | Literal["unreadable"]
    """State of the whole; `unreadable`: another version of hpcbench wrote it, or it is damaged."""
    path: str
    """Its directory."""
    run_tasks: int
    """How many run tasks it has."""
    samples: int
    """Samples to ask about."""
    answered: int
    """Samples with an acknowledged answer."""
