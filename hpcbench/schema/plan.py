"""A plan with every name resolved, and the work that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from hpcbench.errors import Problem
from hpcbench.schema.agent import Agent
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.experiment_plan import ExperimentPlan
from hpcbench.schema.gate import Gate
from hpcbench.schema.image import Image
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model, has_option
from hpcbench.schema.outputs import Report
from hpcbench.schema.package import Package
from hpcbench.schema.prompt import Language, Prompt
from hpcbench.schema.run_task import OnInvalid, RunTask
from hpcbench.schema.shared_types import MetricFacts, Part
from hpcbench.schema.site import Site
from hpcbench.schema.work import Cut as Cut
from hpcbench.schema.work import Fewer as Fewer
from hpcbench.schema.work import Group as Group
from hpcbench.schema.work import Shard as Shard
from hpcbench.schema.work import WorkPlan as WorkPlan


@dataclass(frozen=True)
class Places:
    """Where a run task says something. All are equal: the same said elsewhere is the same."""

    of: Mapping[str, tuple[str, int, int]] = field(default_factory=dict, compare=False)
    """Key of a value → its file, line and column."""


class ScoringImage(Part):
    """An image in which some metrics of a run task score."""

    image: str
    """Its reference."""
    metrics: tuple[str, ...]
    """The metrics, in the run task's order."""
    packages: tuple[str, ...] = ()
    """Packages that must be importable there."""

    @property
    def environment(self) -> str:
        """Key of the metrics' environment, as `ResolvedRunTask.environment`, but never an engine's key."""
        return " + ".join([f"scoring: {self.image}", *self.packages])


class ResolvedRunTask(Part):
    """A run task with all definitions it names; their paths are absolute."""

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
    """Its metrics; `image` of each is the reference of the image in which it scores."""
    metric_packages: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Metric → packages that must be importable where it scores; metrics without packages are left out."""
    metric_facts: Mapping[str, MetricFacts] = Field(default_factory=dict)
    """Metric that scores in an image → what it says of itself there; preparation asks it."""
    engine_packages: tuple[str, ...] = ()
    """Packages that must be importable beside its engine."""
    sweep: str | None = None
    """The run task whose sweep it is a point of; None: it is no point. A point is one shard: one worker, one
    engine."""
    pair: str | None = None
    """The run task whose arms `a` and `b` are compared, of which this is one; None: it is no arm."""
    arm: Literal["a", "b"] | None = None
    """Which of the two it is."""
    swapped: bool = False
    """Whether a judge of pairs shows the answer of `judge.against` first."""
    places: Places = Field(default=Places(), exclude=True, repr=False)
    """Where what it says is said; not written down."""
    default_prompts: Mapping[Language, Prompt] = Field(default_factory=dict)
    """Language → prompt, while the language of its dataset is unknown and it names no prompt; empty:
    `prompt` is the one."""
    at_once: int | None = None
    """Number that `concurrency: auto` gives; None: the run task says a number, or the plan is of an earlier
    version, in which workers looked for it."""

    @property
    def name(self) -> str:
        """The run task's name, unique in the plan."""
        return self.task.name

    def problem(self, key: str, message: str, remedy: str | None = None) -> Problem:
        """A mistake in one of its values, with the value's place as far as it is known."""
        file, line, column = self.places.of.get(key, (None, None, None))
        return Problem(message, file, line, column, remedy)

    @property
    def agent(self) -> Agent | None:
        """How the model works in turns; None: it answers at once."""
        wanted = self.ml_task.agent if self.task.agent is None else self.task.agent
        return (Agent() if wanted else None) if isinstance(wanted, bool) else wanted

    def most_images(self, of_prompt: int) -> int:
        """Most images of one of its requests: each call of an agent may add one.

        Args:
            of_prompt: most images of its prompts; 0: unknown.
        """
        return of_prompt and of_prompt + (0 if self.agent is None else self.agent.limits.calls)

    @property
    def served(self) -> Model:
        """The model as its engine is started."""
        return self.model if self.agent is None else self.model.for_agents()

    @property
    def calls_as_text(self) -> bool:
        """Whether an agent's calls are text: its engine has no parser for them."""
        options = self.served.engine_options
        return self.model.engine != "remote" and not has_option(options, "tool_call_parser")

    def with_model_of(self, other: ResolvedRunTask) -> ResolvedRunTask:
        """This run task with another one's model, as an agent of several has it."""
        task = self.task.model_copy(update={"generation": other.task.generation})
        own = {"model": other.model, "engine_packages": other.engine_packages, "task": task}
        return self.model_copy(update=own)

    @property
    def in_flight(self) -> int | None:
        """Most requests of a worker at once; None: workers of an earlier version's plan look for it."""
        wanted = self.task.concurrency
        return self.at_once if wanted == "auto" else wanted

    @property
    def scoring_images(self) -> tuple[ScoringImage, ...]:
        """The images in which its metrics score; one container each."""
        found: dict[str, list[str]] = {}
        for metric in self.metrics:
            if metric.image is not None:
                found.setdefault(metric.image, []).append(metric.name)
        return tuple(
            ScoringImage(
                image=image,
                metrics=tuple(names),
                packages=tuple(
                    dict.fromkeys(
                        one for name in names for one in self.metric_packages.get(name, ())
                    )
                ),
            )
            for image, names in found.items()
        )

    @property
    def environment(self) -> str:
        """Key of its engine's environment: the image, and the packages beside it."""
        return " + ".join([self.model.image or "", *self.engine_packages])


class Arms(Part):
    """Two arms that are compared while they run: what `hpcbench ab` was given."""

    plans: tuple[str, str] | None = None
    """Files of the arms' plans; None: both arms are of one plan."""
    a: tuple[str, ...] = ()
    """Settings of arm a, as they were written."""
    b: tuple[str, ...] = ()
    """Settings of arm b."""
    metrics: tuple[str, ...] = ()
    """Metrics and figures of speed that decide; none: the first metric of each run task."""
    margins: Mapping[str, float] = Field(default_factory=dict)
    """Metric → difference that does not matter, in its unit; of a figure of speed a share of it. `*` means
    for all others."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Chance of any false alarm, over all that decide and all looks."""
    early_stop: bool = True
    """Whether a run task ends as soon as all that decides is decided."""

    def texts(self, letter: str) -> tuple[str, ...]:
        """Origin of arm `a` or `b`: its plan, if it has its own, and its settings; empty: the plan as it
        is."""
        own = () if self.plans is None else (self.plans[letter == "b"],)
        return (*own, *(self.a if letter == "a" else self.b))


class ResolvedPlan(Part):
    """All that an experiment consists of, from definitions alone."""

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
    """`kind/name` → file that the definition was read from."""
    images: Mapping[str, Image] = Field(default_factory=dict)
    """Image reference → the `images/` definition that it comes from, where there is one."""
    arms: Arms | None = None
    """How two arms of the plan are compared; None: it has no arms."""

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

    def beside(self, run_task: ResolvedRunTask) -> dict[str, ResolvedRunTask]:
        """Run tasks whose models an agent uses beside its own → the agent's run task with that model.

        Raises:
            KeyError: the plan has no such run task.
        """
        names = () if run_task.agent is None else run_task.agent.models_of
        return {name: run_task.with_model_of(self.run_task(name)) for name in names}

    def engines_beside(self, run_task: ResolvedRunTask) -> dict[str, ResolvedRunTask]:
        """Models that need an engine beside the run task's own → the agent's run task with that model."""
        found = {one.model.name: one for one in self.beside(run_task).values()}
        found.pop(run_task.model.name, None)
        return found

    def gpus_beside(self, run_task: ResolvedRunTask) -> int:
        """GPUs of the engines beside a run task's own."""
        return sum(one.model.gpus for one in self.engines_beside(run_task).values())

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
    def copied_packages(self) -> frozenset[str]:
        """Packages of which engines, or metrics in images, have copies."""
        return frozenset(
            package
            for run_task in self.run_tasks
            for packages in (
                run_task.engine_packages,
                *(one.packages for one in run_task.scoring_images),
            )
            for package in packages
        )

    @property
    def host_packages(self) -> tuple[str, ...]:
        """Packages for hpcbench's own Python: all but those that only engines, or metrics in images, use."""
        there = self.copied_packages
        here = {
            package
            for run_task in self.run_tasks
            for metric in run_task.metrics
            for package in run_task.metric_packages.get(metric.name, ())
            if metric.image is None
        }
        here |= {one.package for one in self.reports if one.package is not None}
        modules = {
            package
            for run_task in self.run_tasks
            if run_task.ml_task.module is not None
            for package in run_task.engine_packages
        }
        for one in self.run_tasks:
            reads = one.ml_task.parser or one.ml_task.output_model or "." in one.ml_task.plugin
            own = () if one.ml_task.module is not None else one.task.packages
            entries = [*own, *(one.ml_task.required_packages if reads else ())]
            here |= {entry if isinstance(entry, str) else entry.name for entry in entries}
            here |= {name for name in (one.dataset.package, one.prompt.package) if name is not None}

        def is_here(name: str, package: Package) -> bool:
            away = name in there and name not in here
            if package.source.type == "requirement" or name in modules:
                return not away
            inside = {"engines", *(["metrics"] if away else [])}
            return not package.provides or bool(set(package.provides) - inside)

        return tuple(name for name, package in self.packages.items() if is_here(name, package))


class Measured(Part):
    """Facts that only the files show, read once at preparation."""

    model_config = ConfigDict(extra="ignore")  # a later version may know more of them

    samples: Mapping[str, int] = Field(default_factory=dict)
    """Run task → samples it asks about."""
    dataset_hashes: Mapping[str, str] = Field(default_factory=dict)
    """Run task → `sha256:…` over annotations and images."""
    model_hashes: Mapping[str, str] = Field(default_factory=dict)
    """Model → `sha256:…` over the files of its folder; `none` for one without weights."""
    image_processing: Mapping[str, Mapping[str, JsonValue]] = Field(default_factory=dict)
    """Model → settings by which the processor beside its weights scales images, as its configuration has
    them: `max_pixels`, `size` …; without those of models that have none there."""
    prompt_hashes: Mapping[str, str] = Field(default_factory=dict)
    """Run task → `sha256:…` over its prompt's texts, examples and the schema that is sent with it."""
    prompt_formula: int = 1
    """How these were made: hashes made in two ways say nothing by being different."""
    skipped: Mapping[str, int] = Field(default_factory=dict)
    """Run task → rows and samples among those it asks about that cannot be used, where there are any: they
    count against coverage."""
    unusable: Mapping[str, int] = Field(default_factory=dict)
    """Run task → all such rows and samples of its dataset, whether it would have asked about them or not."""
    images: Mapping[str, int] = Field(default_factory=dict)
    """Run task → most images of one of its requests, where that is known without reading them."""
    reuse: Mapping[str, bool] = Field(default_factory=dict)
    """Run task → whether images come more than once, as with several questions about a page."""
    dataset_samples: Mapping[str, int] = Field(default_factory=dict)
    """Run task → samples there were in its dataset: places are no places of another number of them."""
    chosen: Mapping[str, tuple[tuple[int, int], ...]] = Field(default_factory=dict)
    """Run task → places of its samples in the dataset, from and to (exclusive), in order."""


class RescoredTask(Part):
    """How `hpcbench score --save` scored a run task."""

    metrics: tuple[Metric, ...]
    """Its metrics, instead of the plan's."""
    facts: Mapping[str, MetricFacts] = Field(default_factory=dict)
    """As `metric_facts` of a resolved run task."""
    on_invalid: OnInvalid
    """Instead of the plan's."""


class Rescoring(Part):
    """How `hpcbench score --save` scored an experiment."""

    version: Literal[1] = 1
    packages: tuple[str, ...]
    """Folders with the packages of its metrics."""
    run_tasks: Mapping[str, RescoredTask]
    """Run tasks that it scored."""
