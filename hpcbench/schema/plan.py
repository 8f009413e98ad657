"""A plan with every name resolved, and the work that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from hpcbench.schema.documents import (
    Dataset,
    ExperimentPlan,
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

    @property
    def name(self) -> str:
        """The run task's name, unique in the plan."""
        return self.task.name

    @property
    def environment(self) -> str:
        """What its engine runs in, a key: the image, and the packages beside it."""
        return " + ".join([self.model.image or "", *self.engine_packages])


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
    packages: Mapping[str, Package] = Field(default_factory=dict)
    """Packages whose plugins it uses, by name."""
    origins: Mapping[str, str] = Field(default_factory=dict)
    """`kind/name` → file the document was read from."""

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
    skipped: Mapping[str, int] = Field(default_factory=dict)
    """Run task → rows and samples left out because nobody can read them, where there are any."""
    images: Mapping[str, int] = Field(default_factory=dict)
    """Run task → most images of one of its requests, where that can be told without reading them."""
    reuse: Mapping[str, bool] = Field(default_factory=dict)
    """Run task → whether images come more than once, as with several questions about a page."""
    chosen: Mapping[str, tuple[tuple[int, int], ...]] = Field(default_factory=dict)
    """Run task → places of its samples in the dataset, from and to (exclusive), in order."""


class Shard(Part):
    """A slice of a run task's samples."""

    run_task: str
    """Run task it belongs to."""
    index: int
    """Number within the run task, from 0."""
    start: int
    """First sample."""
    stop: int
    """One past the last sample."""

    @property
    def id(self) -> str:
        """`RUN_TASK/INDEX`, unique in the experiment."""
        return f"{self.run_task}/{self.index:05d}"


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


class WorkPlan(Part):
    """What is to be done, by whom."""

    groups: tuple[Group, ...]
    """Arrays to submit."""
    shards: tuple[Shard, ...]
    """Every shard of every run task."""

    def shards_of(self, run_tasks: tuple[str, ...]) -> tuple[Shard, ...]:
        """Shards of these run tasks, in the order of `run_tasks`."""
        place = {name: position for position, name in enumerate(run_tasks)}
        wanted = [shard for shard in self.shards if shard.run_task in place]
        return tuple(sorted(wanted, key=lambda shard: (place[shard.run_task], shard.index)))
