"""A plan with every name resolved, and the work that follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from pydantic import Field

from hpcbench.errors import Problem
from hpcbench.schema.documents import (
    Dataset,
    ExperimentPlan,
    Gate,
    Image,
    Metric,
    MLTask,
    Model,
    Package,
    Part,
    Prompt,
    Report,
    Resources,
    RunTask,
    Site,
)


@dataclass(frozen=True)
class Places:
    """Where a run task says something. All are equal: the same said elsewhere is the same."""

    of: Mapping[str, tuple[str, int, int]] = field(default_factory=dict, compare=False)
    """What is said → file, line and column."""


class ResolvedRunTask(Part):
    """A run task with all documents it names; their paths are absolute."""

    task: RunTask
    """The run task as written; defaults filled in."""
    ml_task: MLTask
    """Its kind of work."""
    model: Model
    """Its model."""
    dataset: Dataset
    """Its dataset, with the run task's split."""
    prompt: Prompt
    """Its prompt."""
    metrics: tuple[Metric, ...]
    """Its metrics."""
    engine_packages: tuple[str, ...] = ()
    """Packages that must be importable beside its engine."""
    sweep: str | None = None
    """The run task whose sweep it is a point of; None: it is no point. A point is one shard: one worker, one
    engine."""
    pair: str | None = None
    """The run task whose arms `a` and `b` are compared, of which this is one; None: it is no arm."""
    arm: Literal["a", "b"] | None = None
    """Which of the two it is."""
    places: Places = Field(default=Places(), exclude=True, repr=False)
    """Where what it says is said; not written down."""
    at_once: int | None = None
    """What `concurrency: auto` comes to; None: the run task says a number, or the plan is of an earlier
    version, in which workers looked for it."""

    @property
    def name(self) -> str:
        """The run task's name, unique in the plan."""
        return self.task.name

    def problem(self, key: str, message: str, remedy: str | None = None) -> Problem:
        """What is wrong with something that it says, and where that is said, as far as it is known."""
        file, line, column = self.places.of.get(key, (None, None, None))
        return Problem(message, file, line, column, remedy)

    @property
    def in_flight(self) -> int | None:
        """Most requests of a worker at once; None: workers of an earlier version's plan look for it."""
        wanted = self.task.concurrency
        return self.at_once if wanted == "auto" else wanted

    @property
    def environment(self) -> str:
        """What its engine runs in, a key: the image, and the packages beside it."""
        return " + ".join([self.model.image or "", *self.engine_packages])


class Arms(Part):
    """Two arms of one plan that are held against each other while they run: what `hpcbench ab` was told."""

    a: tuple[str, ...] = ()
    """Settings of arm a, as they were written."""
    b: tuple[str, ...] = ()
    """Settings of arm b."""
    metrics: tuple[str, ...] = ()
    """Metrics and figures of speed that decide; none: the first metric of each run task."""
    margins: Mapping[str, float] = Field(default_factory=dict)
    """Metric → difference that does not matter, in its unit; of a figure of speed a share of it. `*` stands
    for all others."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Chance of any false alarm, over all that decide and all looks."""
    early_stop: bool = True
    """Whether a run task ends as soon as all that decides is decided."""


class ResolvedPlan(Part):
    """All that an experiment is made of, from documents alone."""

    plan: ExperimentPlan
    """The plan."""
    site: Site
    """The site profile."""
    run_tasks: tuple[ResolvedRunTask, ...]
    """The plan's run tasks, in its order; matrices, repeats and sweeps written out."""
    mode: Literal["prod", "dev"] = "prod"
    """RUN_MODE it was resolved in."""
    settings: tuple[str, ...] = ()
    """`--set` of the command line, as they were written."""
    reports: tuple[Report, ...] = ()
    """Reports to write."""
    gate: Gate | None = None
    """By which it is judged against the plan's baseline when it ends."""
    packages: Mapping[str, Package] = Field(default_factory=dict)
    """Packages whose plugins it uses, by name."""
    origins: Mapping[str, str] = Field(default_factory=dict)
    """`kind/name` → file the document was read from."""
    images: Mapping[str, Image] = Field(default_factory=dict)
    """Image reference → the `images/` document that it comes from, where there is one."""
    arms: Arms | None = None
    """What two arms of the plan are to be compared by; None: it has no arms."""

    @property
    def executor(self) -> str:
        """`slurm` or `local`."""
        return self.plan.executor or self.site.executor

    def run_task(self, name: str) -> ResolvedRunTask:
        """The run task of that name.

        Raises:
            KeyError: the plan has none.
        """
        for run_task in self.run_tasks:
            if run_task.name == name:
                return run_task
        raise KeyError(name)

    def min_coverage(self, name: str) -> float:
        """Smallest share of a run task's samples that has to be ok: its own, else the plan's."""
        own = self.run_task(name).task.min_coverage
        return self.plan.min_coverage if own is None else own

    @property
    def pairs(self) -> dict[str, tuple[str, str]]:
        """Run task → its arms, `a` first; empty unless there are arms."""
        own = {(one.pair, one.arm): one.name for one in self.run_tasks if one.pair is not None}
        return {pair: (own[pair, "a"], own[pair, "b"]) for pair, arm in own if arm == "a" and pair}

    @property
    def host_packages(self) -> tuple[str, ...]:
        """Packages with plugins that run outside the image: all but those of engines alone."""
        inside = {"engines"}
        return tuple(
            name
            for name, package in self.packages.items()
            if not package.provides or set(package.provides) - inside
        )


class Measured(Part):
    """What only a look at the files can tell, taken once at preparation."""

    samples: Mapping[str, int]
    """Run task → samples it asks about."""
    dataset_hashes: Mapping[str, str]
    """Run task → `sha256:…` over annotations and images."""
    model_hashes: Mapping[str, str]
    """Model → `sha256:…` over the files of its folder; `none` for one without weights."""
    prompt_hashes: Mapping[str, str] = Field(default_factory=dict)
    """Run task → `sha256:…` over its prompt's texts, examples and the schema that is told with it."""
    prompt_formula: int = 1
    """How these were made: hashes made in two ways say nothing by being different."""
    skipped: Mapping[str, int] = Field(default_factory=dict)
    """Run task → rows and samples among those it asks about that nobody can use, where there are any: they
    count against coverage."""
    unusable: Mapping[str, int] = Field(default_factory=dict)
    """Run task → all such rows and samples of its dataset, whether it would have asked about them or not."""
    images: Mapping[str, int] = Field(default_factory=dict)
    """Run task → most images of one of its requests, where that can be told without reading them."""
    reuse: Mapping[str, bool] = Field(default_factory=dict)
    """Run task → whether images come more than once, as with several questions about a page."""
    dataset_samples: Mapping[str, int] = Field(default_factory=dict)
    """Run task → samples there were in its dataset: places are no places of another number of them."""
    chosen: Mapping[str, tuple[tuple[int, int], ...]] = Field(default_factory=dict)
    """Run task → places of its samples in the dataset, from and to (exclusive), in order."""


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


class Cut(Part):
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
        """Number of the shard that a place lies in."""
        first = min(self.pilot, self.samples)
        return 0 if place < first else bool(self.pilot) + (place - first) // self.size

    def shards(self) -> Iterator[Shard]:
        """Its shards, in order."""
        return map(self.shard, range(self.count))


class Group(Part):
    """One resource shape, one Slurm array of equal workers."""

    id: str
    """`g0`, `g1`, …"""
    image: str | None
    """Image of all its models."""
    environment: str = ""
    """Key of what its engines run in, see `ResolvedRunTask.environment`."""
    gpus: int
    """GPUs of a worker."""
    resources: Resources
    """CPUs, memory, time limit of a worker."""
    run_tasks: tuple[str, ...]
    """Run tasks its workers take shards of; tasks of one model stand together."""
    workers: int
    """Array tasks."""
    throttle: int
    """Most of them at once."""
    after: tuple[str, ...] = ()
    """Groups whose jobs must have ended before its own start."""
    level: int = 0
    """Which of its model's larger shapes it has, from 1; 0: as planned."""


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
    """What the answers of one worker alone would take."""
    load_seconds: float
    """What one load takes."""
    known: bool
    """Whether these times were seen in earlier experiments."""


class WorkPlan(Part):
    """What is to be done, by whom. A shard is not written down: a hundred thousand follow from a few cuts."""

    groups: tuple[Group, ...]
    """Arrays to submit."""
    cuts: tuple[Cut, ...]
    """Each run task, and how it is cut."""
    load_seconds: Mapping[str, float] = Field(default_factory=dict)
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
