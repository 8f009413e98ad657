"""The work that follows from a plan: shards of run tasks, and the groups of workers that take them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hpcbench.schema.spending import BudgetCaps

if TYPE_CHECKING:
    from hpcbench.schema.shared_types import Resources


class PlannedTask(NamedTuple):
    """A run task, in short."""

    name: str
    """Its name."""
    model: str
    """Name of its model."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The part of a `ResolvedPlan` that a status needs; reading it needs no schema of definitions."""

    executor: Literal["slurm", "local"]
    """See `ResolvedPlan.executor`."""
    submit_from_jobs: bool
    """Whether jobs of this site may submit others."""
    max_resubmits: int
    """After so many rounds in a row that bring no answer the experiment ends."""
    run_tasks: tuple[PlannedTask, ...]
    """In the plan's order."""
    budget: BudgetCaps = BudgetCaps()
    """See `ExperimentPlan.budget`."""
    currency: str = ""
    """Currency of its models' prices; empty: none has prices, or they have several currencies."""

    @classmethod
    def of(cls, resolved: Any) -> Planned:
        """The stored form of a resolved plan.

        Raises:
            ValueError: something is missing.
        """
        try:
            plan, site = resolved["plan"], resolved["site"]
            prices = (one["model"].get("prices") for one in resolved["run_tasks"])
            currencies = {str(one["currency"]) for one in prices if one is not None}
            executor = plan.get("executor") or site.get("executor")
            return cls(
                "local" if executor == "local" else "slurm",
                bool(site.get("slurm", {}).get("submit_from_jobs", True)),
                int(plan.get("max_resubmits", 2)),
                tuple(
                    PlannedTask(str(one["task"]["name"]), str(one["model"]["name"]))
                    for one in resolved["run_tasks"]
                ),
                BudgetCaps(*(plan.get(name) for name in BudgetCaps._fields)),
                *(currencies if len(currencies) == 1 else ()),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a resolved plan: {error!r}") from error


class Shard(NamedTuple):
    """A slice of a run task's samples: what a worker takes at a time. A tuple: there may be 100,000."""

    run_task: str
    """Run task it belongs to."""
    index: int  # type: ignore[assignment]  # a tuple's `index` is not missed
    """Number within the run task, from 0."""
    start: int
    """First sample."""
    stop: int
    """One past the last sample."""
    seconds: float = 0.0
    """How long one worker is thought to take for it."""

    @property
    def id(self) -> str:
        """`RUN_TASK/INDEX`, unique in the experiment."""
        return f"{self.run_task}/{self.index:05d}"


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How a run task is cut into shards: slices of one size."""

    run_task: str
    """The run task."""
    samples: int
    """Its samples."""
    size: int
    """Samples in a shard; in the last one what is left."""
    pilot: int = 0
    """Samples of the first shard, where it has another size: so an early hpcbench cut its pilots."""
    seconds_per_sample: float = 0.0
    """How long one worker is thought to take for a sample."""

    @property
    def count(self) -> int:
        """Shards."""
        rest = self.samples - min(self.pilot, self.samples)
        return bool(self.pilot) + -(-rest // self.size)

    def shard(self, index: int) -> Shard:
        """The shard of that number."""
        pilot = bool(self.pilot) and index == 0
        first = 0 if pilot else self.pilot + (index - bool(self.pilot)) * self.size
        stop = min(self.samples, self.pilot if pilot else first + self.size)
        seconds = (stop - first) * self.seconds_per_sample
        return Shard(self.run_task, index, first, stop, seconds)

    def shard_at(self, place: int) -> int:
        """Number of the shard that contains a place."""
        first = min(self.pilot, self.samples)
        return 0 if place < first else bool(self.pilot) + (place - first) // self.size

    def shards(self) -> Iterator[Shard]:
        """Its shards, in order."""
        return map(self.shard, range(self.count))


@dataclass(frozen=True, kw_only=True)
class JobResources:
    """Resources that a job requests, in Slurm's terms."""

    cpus: int
    """CPUs on each node."""
    memory_gb: float
    """Memory on each node, GiB."""
    time_limit: str
    """`[D-]HH:MM:SS`."""
    partition: str | None = None
    """Partition. Without it: the site's."""
    gpu_type: str | None = None
    """Type of GPU in Slurm's notation. Without it: the site's."""

    @classmethod
    def of(cls, need: Resources) -> JobResources:
        """The resources that a definition requests."""
        return cls(**need.model_dump(mode="json"))

    def stated(self) -> dict[str, Any]:
        """As plain data, without what is left to the site."""
        return {name: one for name, one in asdict(self).items() if one is not None}


@dataclass(frozen=True, kw_only=True)
class Group:
    """One resource shape, one Slurm array of equal workers."""

    id: str
    """`g0`, `g1`, …"""
    image: str | None
    """Image of all its models."""
    environment: str = ""
    """Key of what its engines run in, see `ResolvedRunTask.environment`."""
    gpus: int
    """GPUs of a worker on each of its nodes."""
    nodes: int = 1
    """Nodes of a worker."""
    replicas: int = 1
    """Workers of an array task, each with an engine of its own."""
    sharing: int = 1
    """Workers that share a GPU; more than one: each has one GPU."""
    resources: JobResources
    """CPUs and memory of a worker, time limit of its job."""
    run_tasks: tuple[str, ...]
    """Run tasks its workers take shards of; tasks of one model are next to each other."""
    workers: int
    """Array tasks."""
    throttle: int
    """Most of them at once."""
    after: tuple[str, ...] = ()
    """Groups whose jobs must have ended before its own start."""
    level: int = 0
    """Which of its model's larger shapes it has, from 1; 0: as planned."""

    @property
    def worker_gpus(self) -> float:
        """GPUs of a worker on all its nodes; of one that shares its GPU, its part of the job's."""
        return self.gpus * self.nodes if self.sharing == 1 else self.job_gpus / self.replicas

    @property
    def node_gpus(self) -> int:
        """GPUs of an array task on each of its nodes: those of all its workers there."""
        return math.ceil(self.gpus * self.replicas / self.sharing)

    @property
    def job_gpus(self) -> int:
        """GPUs of an array task on all its nodes."""
        return self.node_gpus * self.nodes

    @property
    def job_resources(self) -> JobResources:
        """CPUs and memory of all workers of an array task, on each of its nodes."""
        need, times = self.resources, self.replicas
        return replace(need, cpus=need.cpus * times, memory_gb=need.memory_gb * times)

    def jobs_for(self, workers: int) -> int:
        """Array tasks that have so many workers together."""
        return math.ceil(workers / self.replicas)


@dataclass(frozen=True, slots=True)
class Fewer:
    """A model with fewer workers than the plan allows, since loading it would take most of their time."""

    model: str
    """The model."""
    workers: int
    """Workers it gets at most."""
    instead_of: int
    """Workers it would have had."""
    samples: int
    """Samples they are to ask."""
    at_once: int
    """Requests that each has in flight."""
    work_seconds: float
    """Time of all answers with one worker."""
    load_seconds: float
    """Time of one load."""
    known: bool
    """Whether these times were seen in earlier experiments."""


@dataclass(frozen=True, kw_only=True)
class WorkPlan:
    """The work, and the groups that do it. Shards are not stored: they follow from a few cuts."""

    groups: tuple[Group, ...]
    """Arrays to submit."""
    cuts: tuple[Cut, ...]
    """Each run task, and how it is cut."""
    load_seconds: Mapping[str, float] = field(default_factory=dict)
    """Model → how long it is thought to take until it is ready."""
    fewer: tuple[Fewer, ...] = ()
    """Models with fewer workers than the plan allows."""

    def cut(self, run_task: str) -> Cut | None:
        """How a run task is cut into shards; None: there is no such run task."""
        return next((cut for cut in self.cuts if cut.run_task == run_task), None)

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """Every shard of every run task."""
        return tuple(shard for cut in self.cuts for shard in cut.shards())

    def shards_of(self, run_tasks: Sequence[str]) -> tuple[Shard, ...]:
        """Shards of these run tasks, in the order of `run_tasks`."""
        own = {cut.run_task: cut for cut in self.cuts}
        return tuple(shard for name in run_tasks for shard in own[name].shards())
