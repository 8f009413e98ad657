"""Run tasks: one model on one dataset with one prompt; and matrices of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from hpcbench.schema.agent import AgentChoice
from hpcbench.schema.definition import Definition, FlatName, Name
from hpcbench.schema.judge import Judge
from hpcbench.schema.load import Arrival, Concurrency, Load, Measure, Rate, Route, Slo
from hpcbench.schema.metric import MetricEntry
from hpcbench.schema.model import Generation, ModelEntry
from hpcbench.schema.package import PackageEntry
from hpcbench.schema.prompt import PromptChoice
from hpcbench.schema.shared_types import Part, Resources, name_or

OnInvalid = Literal["exclude", "zero"]


class SampleOf(Part):
    """A random sample of a dataset's samples."""

    size: int = Field(gt=0)
    """Number of samples."""
    by: str | None = None
    """Field or metadata for stratification, e.g. `doc_type`: each value gets its proportional share of the
    sample."""
    seed: int | None = None
    """Seed. Without it: the plan's."""


class RunTaskSettings(Part):
    """How to ask a model and how to count its answers."""

    ml_task: Name
    """ML task: the kind of work."""
    metrics: tuple[MetricEntry, ...] = ()
    """Metric definitions, or versions of metrics. Without them: the ML task's default metrics."""
    split: str | None = None
    """Only samples of this split. Without it: the dataset's."""
    where: str | None = None
    """Only samples that meet this condition, an expression over their fields and metadata: `doc_type ==
    'invoice'`, `language in ['ru', 'en'] and pages < 3`."""
    sample: SampleOf | None = None
    """A random sample of these samples; the same one for every model and every repeat of the plan."""
    limit: int | None = Field(default=None, gt=0)
    """Only this number of these samples, the first ones in the dataset's order."""
    generation: Generation = Field(default_factory=Generation)
    """How the engine samples answers."""
    agent: AgentChoice | None = None
    """`true`, or settings: the model works in turns and may call tools until it answers; see docs/agents.md.
    Without it: as the ML task says."""
    output_schema: Literal["none", "prompt", "response_format"] = "none"
    """How the model gets the ML task's JSON Schema: not at all, after the prompt's text, or as OpenAI's
    `response_format`, which the engine enforces."""
    repeats: int = Field(default=1, gt=0, le=100)
    """How many times to ask every sample; repeat n is a run task `NAME-rN` with the seed plus n - 1."""
    concurrency: Concurrency = "auto"
    """Requests in flight per worker. `auto`: the number that the engine batches well, or 1 where latency or
    peak memory is measured; see docs/what-to-set.md."""
    measure: Measure | None = None
    """The goal of `concurrency: auto`. Without it: `latency` if the run task has an `slo` or the plan's gate
    has a critical check of latency or of peak memory, else `throughput`."""
    rate: Rate | None = None
    """Requests per second that each worker sends, whatever the engine does. `concurrency` then limits the
    requests in flight; further requests that are due wait in the client. Without it: each request starts as
    soon as a slot is free."""
    arrival: Arrival = "poisson"
    """Times between the requests of a rate: `poisson` (exponentially distributed) or `constant`."""
    warm_up: int = Field(default=1, ge=0)
    """Number of distinct samples that a worker asks after each load of the model and does not count. They
    absorb the one-time costs of an engine (compiling, filling caches of kernels and grammars)."""
    slo: Slo = Field(default_factory=Slo)
    """Latency limits of a good answer, for goodput."""
    load: Load | None = None
    """A sweep over loads: one run task per point."""
    images: Literal["data", "file"] = "data"
    """How images go to the engine: `data` puts their bytes into the request; `file` sends `file://` paths,
    which is faster where the engine's node can read the dataset's files."""
    protocol: Literal["http", "grpc"] = "http"
    """How requests go from the worker to the wrapper beside the engine: `http`, with images as base64 text;
    or `grpc`, with images byte for byte, which needs the extra `grpc` and takes the route `proxied`. Speed is
    comparable within one protocol only."""
    route: Route = "direct"
    """How requests reach the engine: `direct` from the worker to the engine's own socket, where both are on
    one node, else `proxied`; `proxied` through the wrapper, which takes processor time for each chunk."""
    request_timeout: float = Field(default=600, gt=0)
    """Maximum time for one answer, all tries included, seconds."""
    on_failed: Literal["exclude", "zero"] = "zero"
    """How to count a sample without an answer: `exclude` leaves it out, `zero` gives it the metric's worst
    value. In both cases coverage falls."""
    on_invalid: OnInvalid = "exclude"
    """How to count an answer that is unreadable or breaks its schema: `exclude` leaves it out, `zero` gives
    it the metric's worst value. In both cases coverage falls, and tables show both values."""
    min_coverage: float | None = Field(default=None, ge=0, le=1)
    """The plan's `min_coverage` for this run task only. Without it: the plan's."""
    score_timeout: float = Field(default=30, gt=0)
    """Maximum time of one metric for one sample, seconds; a metric that takes longer is a fault, which the
    report lists."""
    resources: Resources = Field(default_factory=Resources)
    """Resources of one worker."""
    priority: int = Field(default=0, ge=-1000, le=1000)
    """Order of work: workers take the run task with the higher number first."""
    after: tuple[FlatName, ...] = ()
    """Run tasks of the plan that must end before this one starts, whether they succeed or not."""
    packages: tuple[PackageEntry, ...] = ()
    """Package definitions, requirements as pip writes them, or packages written out, in addition to those of
    the plugins that the run task names."""
    reports: tuple[Name, ...] = ()
    """Report definitions to write in addition to the plan's."""


class RunTask(Definition, RunTaskSettings):
    """One model on one dataset with one prompt."""

    name: FlatName
    """Its name; also the name of its folder in the experiment."""
    model: ModelEntry
    """Model definition, with changes where needed."""
    dataset: Name
    """Dataset definition."""
    prompt: PromptChoice | None = None
    """Prompt definition, or a prompt written out. Without it: the ML task's."""
    judge: Judge | None = None
    """The run task whose answers this one rates. Without it: it asks about the dataset's samples alone."""


RunTaskEntry = Annotated[
    Annotated[Name, Tag("name")] | Annotated[RunTask, Tag("run task")],
    name_or("run task"),
]
"""A run task by name, or written out inside a plan."""


class Cell(Part):
    """Cells of a matrix that match all given names."""

    model: Name | None = None
    """Only cells of this model."""
    dataset: Name | None = None
    """Only cells of this dataset."""
    prompt: Name | None = None
    """Only cells of this prompt."""


class Matrix(RunTaskSettings):
    """Run tasks of all models × datasets × prompts, called `MODEL-DATASET[-PROMPT]`."""

    models: tuple[Name, ...] = Field(min_length=1)
    """Model definitions."""
    datasets: tuple[Name, ...] = Field(min_length=1)
    """Dataset definitions."""
    prompts: tuple[Name, ...] = ()
    """Prompt definitions. Without them: the ML task's."""
    exclude: tuple[Cell, ...] = ()
    """Cells to leave out."""
    include: tuple[RunTask, ...] = ()
    """Run tasks in addition to the cells, written out."""
