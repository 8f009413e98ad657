"""The YAML documents a user writes: one pydantic model a kind, unknown keys refused.

A registry holds one document a file in a folder named after its kind (`KINDS`); the file's name is the
document's name. Paths inside a document are relative to the file it stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from hpcbench.schema.records import FieldMap, PromptEntry, PromptExample

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=120)]
"""A document's name: letters, digits, `._-`, and `/` for folders."""

FlatName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
"""A name that becomes a folder or part of an experiment's id: no `/`."""


def _some_time(text: str) -> str:
    if not any(digit in text for digit in "123456789"):
        raise ValueError("no time at all; say how long a worker may run, such as 02:00:00")
    return text


TimeLimit = Annotated[
    str, Field(pattern=r"^(\d+-)?\d{1,2}:\d{2}:\d{2}$"), AfterValidator(_some_time)
]
"""A time as Slurm writes it, `[DAYS-]HH:MM:SS`, of a second at least."""

_STRICT = ConfigDict(
    extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False, defer_build=True
)
"""Documents are stored as JSON: no infinities, and options are what JSON can hold."""


class Document(BaseModel):
    """What all documents share."""

    model_config = _STRICT

    schema_version: Literal[1] = 1
    """Version of this document's format."""
    name: Name
    """The name other documents use; equal to the file's path below its kind, without `.yaml`."""
    version: str = ""
    """Version of what the document describes, as its publisher or author names it."""
    description: str = ""
    """One sentence for people."""
    notes: str = ""
    """What a reader should know: where the facts come from, what was not tried."""
    metadata: Mapping[str, JsonValue] = Field(default_factory=dict)
    """For people and scripts; hpcbench does not read it."""


class Part(BaseModel):
    """A nested block of a document."""

    model_config = _STRICT


class LocalSource(Part):
    """A package in a folder, with its own `pyproject.toml`; for development."""

    type: Literal["local"]
    """`local`."""
    path: str
    """The package's folder, relative to this file."""
    editable: bool = True
    """Whether changes in the folder count at once; else they count when built again."""


class GitSource(Part):
    """A package in a git repository."""

    type: Literal["git"]
    """`git`."""
    url: str
    """The repository; a password in it is a reference, `https://${env:TOKEN}@host/repo.git`."""
    ref: str | None = None
    """Commit or tag; `prod` refuses a branch, which moves."""
    subdirectory: str | None = None
    """Folder of the package inside the repository."""


class PypiSource(Part):
    """A package of PyPI or of a mirror."""

    type: Literal["pypi"]
    """`pypi`."""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the distribution."""
    version: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.!+_-]+$")
    """Exact version; `prod` refuses none."""
    index: str | None = None
    """Simple index to take it from; none: pip's. A password in it is a reference."""


class InstallArgs(Part):
    """How a package is installed."""

    extras: tuple[str, ...] = ()
    """Extras of the distribution."""


PluginKind = Literal[
    "datasets", "engines", "environments", "metrics", "notifiers", "parsers", "prompts", "reports",
    "storage", "tasks", "trackers",
]  # fmt: skip
"""Kinds of plugins; the entry-point groups are `hpcbench.KIND`."""


class Package(Document):
    """A Python package with plugins that nobody needs to have installed."""

    source: Annotated[LocalSource | GitSource | PypiSource, Discriminator("type")]
    """Where it comes from."""
    install_args: InstallArgs = Field(default_factory=InstallArgs)
    """How it is installed."""
    provides: Mapping[PluginKind, tuple[str, ...]] = Field(default_factory=dict)
    """Plugins it brings: kind → names; who names one of them gets the package."""


PackageEntry = Annotated[
    Annotated[Name, Tag("name")] | Annotated[Package, Tag("package")],
    Discriminator(lambda entry: "name" if isinstance(entry, str) else "package"),
]
"""A package by name, or written out."""


class MLTask(Document):
    """A kind of work: how answers are read and which metrics make sense for them."""

    plugin: str
    """Name in the entry-point group `hpcbench.tasks`, or a class by its dotted path."""
    parser: str | None = None
    """Name in the group `hpcbench.parsers` of what reads answers instead of the plugin's own way."""
    sample_fields: tuple[str, ...] = ()
    """Fields a sample must have for this kind of work, e.g. `question`."""
    output: Literal["text", "label", "object"] = "text"
    """What an answer is read into: free text, one label, or an object of keys and values."""
    output_schema: Mapping[str, JsonValue] | None = None
    """JSON Schema an object, or a list of objects, must meet; one that does not counts as invalid. Of labels:
    `enum`, the labels there are."""
    output_model: str | None = None
    """The same as a pydantic model, by the dotted path of its class: `my_package.models.Invoice`."""
    label_field: str | None = None
    """Field of a sample that lists the labels there are, where they differ from sample to sample."""
    repair: Literal["mark", "refuse"] = "mark"
    """Whether an object that is not sound JSON (cut off, single quotes, trailing commas, …) is mended and
    marked so, or counts as invalid."""
    reasoning: Literal["strip", "keep"] = "strip"
    """Whether thoughts before the answer, `<think>…</think>` and the like, are taken off first."""
    metrics: tuple[Name, ...] = Field(min_length=1)
    """Metric documents that fit this kind of work."""
    default_metrics: tuple[Name, ...] = ()
    """Those a run task gets that names none; none: all of them."""
    prompt: Name | None = None
    """Prompt document used when a run task names none."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Most tokens of an answer when a run task's `generation` does not say; none: its default."""
    required_packages: tuple[Name, ...] = ()
    """Package documents whose plugins it uses."""


class Larger(Part):
    """A larger shape of a model's job."""

    gpus: int | None = Field(default=None, gt=0)
    """GPUs of the engine; none: as many as before."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Memory of the job, GiB; none: as much as before."""
    gpu_type: str | None = None
    """Type of GPU; none: as before."""


class Model(Document):
    """A vision-language model, the engine that serves it and the image that holds the engine."""

    family: str = ""
    """Family for people and tables, e.g. `Qwen2-VL`."""
    source: str = ""
    """Folder with weights in Hugging Face layout, relative to this file; `hf://ORGANISATION/NAME`, looked for
    in the site's folders of models and the Hugging Face cache, else fetched; or `SCHEME://…` of a storage.
    Empty only for an engine that serves no weights, such as `remote`."""
    storage: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of that storage, over the site's; secrets as references."""
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """Commit of the weights on the hub."""
    content_hash: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Hash of the files of its folder; checked before anything is submitted."""
    licence: str = ""
    """Licence its publisher states."""
    engine: str
    """Name in the entry-point group `hpcbench.engines`."""
    image: str | None = None
    """An `images/` document, `docker://…`, `oras://…`, `oci:FOLDER:TAG`, an archive, `FILE.sif`, Dockerfile,
    `FILE.def` or `venv:DIR`; none: this Python."""
    needs: tuple[str, ...] = ()
    """What the image must hold, as pip writes it, `vllm>=0.12`; looked at before submission."""
    package: Name | None = None
    """Package document that brings the engine."""
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """Number format of the weights in memory."""
    context_length: int | None = Field(default=None, gt=0)
    """Most tokens of prompt and answer together."""
    gpus: int = Field(default=1, ge=0)
    """GPUs one engine needs."""
    gpu_memory_gb: float | None = Field(default=None, gt=0)
    """Least memory of each of these GPUs, GiB."""
    parameters_b: float | None = Field(default=None, gt=0)
    """All its parameters, in billions (10^9); planning goes by them before the weights are here."""
    size_gb: float | None = Field(default=None, gt=0)
    """Size of its files, GB (10^9 bytes); none: two bytes a parameter."""
    nodes: int = Field(default=1, gt=0)
    """Nodes one engine needs; more than one is not supported yet, and said so."""
    larger: tuple[Larger, ...] = ()
    """Shapes to go on with, in this order, when memory ran out; none: it is not tried again."""
    chat_template: str | None = None
    """File with the Jinja2 chat template to use instead of the model's own, relative to this file; a resolved
    plan holds its text."""
    engine_options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options handed to the engine as they are."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Environment of the engine; secrets as references, `${env:NAME}` or `${file:PATH}`."""
    load_timeout: float = Field(default=1800, gt=0)
    """Longest wait for the engine to be ready, seconds."""
    stall_timeout: float = Field(default=300, gt=0)
    """Longest silence of the engine while requests are with it, seconds; then it is given up."""


class Dataset(Document):
    """Document images with questions and references, as they lie on disk."""

    source: str
    """Folder of the dataset, relative to this file, or `SCHEME://…` of a storage plugin of that name: file,
    s3, sftp, http, https, hf, or a package's."""
    storage: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of that storage, over the site's; secrets as references."""
    iterator: str = "table"
    """Name in the entry-point group `hpcbench.datasets`, or a class by its dotted path."""
    package: Name | None = None
    """Package document that brings the iterator or the storage."""
    annotations: str = ""
    """File inside the folder that lists the samples; none where the iterator needs none."""
    split: str | None = None
    """Only samples of this split; none: all."""
    splits: tuple[str, ...] = ()
    """Splits there are, for cross-checks; none: not said."""
    samples: int | None = Field(default=None, gt=0)
    """Samples it has (of its `split`, where it names one); planning goes by it before the files are here."""
    size_gb: float | None = Field(default=None, gt=0)
    """Size of its files, GB (10^9 bytes); for planning."""
    fields: tuple[str, ...] = ()
    """Fields every sample has beside its images, for cross-checks."""
    group_by: tuple[str, ...] = ()
    """Metadata every sample has, for prompts and tables, e.g. `doc_type`."""
    mapping: FieldMap = Field(default_factory=FieldMap)
    """Where a record keeps what a sample needs, where it is not in hpcbench's own form."""
    on_bad: Literal["fail", "skip"] = "fail"
    """What a row is that cannot be a sample (no reference, an image that is missing or no image, wrong
    encoding): an error before anything runs, or left out, told, and counted against coverage."""
    content_hash: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Hash of annotations and images; checked before anything is submitted."""
    licence: str = ""
    """Licence its publisher states."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the iterator."""


class Metric(Document):
    """A metric with its options; a `version` must be the plugin's."""

    plugin: str
    """Name in the entry-point group `hpcbench.metrics`, or a class by its dotted path."""
    package: Name | None = None
    """Package document that brings it."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the metric; they are part of its signature."""


class Prompt(Document):
    """A prompt, or a collection of them: Jinja2 templates over the sample's fields and metadata."""

    strategy: str = "template"
    """Name in the entry-point group `hpcbench.prompts`, or a class by its dotted path."""
    package: Name | None = None
    """Package document that brings the strategy."""
    system: str | None = None
    """System message."""
    user: str | None = None
    """User message that follows the image; of a collection: for samples no entry is for."""
    prompts: tuple[PromptEntry, ...] = ()
    """Collection: a sample gets the entry whose `when` says most of what it is; two that say as much are an
    error."""
    collection: str | None = None
    """CSV file with further entries, relative to this file. Columns are id, user (or template), system (or
    system_prompt), version, and examples in JSON; any other column with a value is a condition of `when`. A
    v0.1 prompt collection is read as it is."""
    examples: tuple[PromptExample, ...] = ()
    """Few-shot examples; each is filled in from its own fields alone."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the strategy."""


class Report(Document):
    """A report with its options."""

    plugin: str
    """Name in the entry-point group `hpcbench.reports`, or a class by its dotted path."""
    package: Name | None = None
    """Package document that brings it."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the report."""


class Image(Document):
    """A container image with an engine."""

    reference: str | None = None
    """`docker://…`, `oci-archive:FILE`, `docker-archive:FILE` or `FILE.sif`, files relative to this one."""
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """What a `docker://` reference meant when it was locked; `prod` needs it."""
    recipe: str | None = None
    """Dockerfile or Apptainer definition it is built from, relative to this file."""
    engines: tuple[str, ...] = ()
    """Engines it holds; none: not said."""
    cuda: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    """CUDA that its programs are built for; compared with the site's before it is fetched."""
    size_gb: float | None = Field(default=None, gt=0)
    """Size of what is fetched, GB (10^9 bytes): its compressed layers, or its file."""


class Generation(Part):
    """How answers are sampled."""

    max_tokens: int = Field(default=1024, gt=0)
    """Most tokens of an answer."""
    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus sampling."""
    seed: int | None = None
    """Seed of the engine's sampler."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer."""
    extra: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Settings beyond OpenAI's that the engine knows, e.g. `repetition_penalty`."""


class Resources(Part):
    """What one worker needs from the cluster, in Slurm's words."""

    cpus: int = Field(default=2, gt=0)
    """CPUs of one worker."""
    memory_gb: float = Field(default=8, gt=0)
    """Memory of one worker, GiB."""
    time_limit: TimeLimit = "02:00:00"
    """Time limit of one worker, `[D-]HH:MM:SS`."""
    partition: str | None = None
    """Partition; none: the site's."""
    gpu_type: str | None = None
    """Type of GPU as Slurm calls it, e.g. `a100`; none: the site's."""


class ModelChoice(Part):
    """A model with what is different for this run task."""

    name: Name
    """Model document; where there is none of that name, `hf://NAME` served by `engine`."""
    engine: str | None = None
    """Engine instead of the document's."""
    image: str | None = None
    """Image instead of the document's."""
    engine_options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Laid over the document's."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Laid over the document's."""


ModelEntry = Annotated[
    Annotated[Name, Tag("name")] | Annotated[ModelChoice, Tag("choice")],
    Discriminator(lambda entry: "name" if isinstance(entry, str) else "choice"),
]
"""A model by name, or with changes."""


class SampleOf(Part):
    """A random sample of a dataset's samples."""

    size: int = Field(gt=0)
    """How many."""
    by: str | None = None
    """Field or metadata whose values get their share of it, e.g. `doc_type`."""
    seed: int | None = None
    """Seed; none: the plan's."""


InFlight = Annotated[int, Field(gt=0, le=4096)]
"""Requests at once."""

Concurrency = Annotated[
    Annotated[InFlight, Tag("number")] | Annotated[Literal["auto"], Tag("auto")],
    Discriminator(lambda value: "auto" if isinstance(value, str) else "number"),
]
"""Requests at once, or `auto`."""

Measure = Literal["throughput", "latency"]
"""Whether the engine is kept busy, or each request is alone: then its time and peak of memory are its own."""

Rate = Annotated[float, Field(gt=0, le=10_000)]
"""Requests a second."""

Arrival = Literal["poisson", "constant"]
"""Times between requests of a given rate: by chance (exponential), or all alike."""


class Slo(Part):
    """What an answer must keep to be a good one; counted from when it was due, see docs/measuring.md."""

    ttft_ms: float | None = Field(default=None, gt=0)
    """Longest time to first token, milliseconds."""
    tpot_ms: float | None = Field(default=None, gt=0)
    """Longest time per token after the first, milliseconds."""
    e2e_ms: float | None = Field(default=None, gt=0)
    """Longest time to the last token, milliseconds."""


class Load(Part):
    """A sweep: the run task at several loads, each point measured alone by one worker."""

    concurrency: tuple[InFlight, ...] = ()
    """Points with so many requests always in flight (closed loop), run tasks `NAME-c8`."""
    rate: tuple[Rate, ...] = ()
    """Points with so many requests a second whatever the engine does (open loop), run tasks `NAME-r2.5`."""
    arrival: Arrival = "poisson"
    """How the requests of a rate come."""
    requests: int | None = Field(default=None, gt=0)
    """Samples of each point, the first so many; none: all. More than there are is an error."""
    warm_up: int = Field(default=8, ge=0)
    """Distinct samples asked before each point and not counted."""
    slo: Slo = Field(default_factory=Slo)
    """What makes an answer a good one, for goodput."""


class RunTaskSettings(Part):
    """How a model is asked and its answers are counted."""

    ml_task: Name
    """Kind of work."""
    metrics: tuple[Name, ...] = ()
    """Metric documents; none: all of the ML task."""
    split: str | None = None
    """Only samples of this split; none: the dataset's."""
    where: str | None = None
    """Only samples for which this holds, an expression over their fields and metadata: `doc_type ==
    'invoice'`, `language in ['ru', 'en'] and pages < 3`."""
    sample: SampleOf | None = None
    """Only a random sample of those; the same for every model and every repeat of the plan."""
    limit: int | None = Field(default=None, gt=0)
    """Only the first so many of those, in the dataset's order."""
    generation: Generation = Field(default_factory=Generation)
    """How answers are sampled."""
    output_schema: Literal["none", "prompt", "response_format"] = "none"
    """Whether the ML task's JSON Schema is told to the model: after the prompt's text, or as OpenAI's
    `response_format`, which holds the engine to it."""
    repeats: int = Field(default=1, gt=0, le=100)
    """How often every sample is asked; repeat n is a run task `NAME-rN` with the seed plus n - 1."""
    concurrency: Concurrency = "auto"
    """Requests in flight per worker. `auto`: as many as the engine batches well, and 1 where latency or peak
    memory is measured; see docs/what-to-set.md."""
    measure: Measure | None = None
    """What `concurrency: auto` serves. None: `latency` where the run task has an `slo` or the plan's gate is
    decided by a latency or a peak of memory, else `throughput`."""
    rate: Rate | None = None
    """Requests each worker sends a second, whatever the engine does; `concurrency` then is the most in
    flight, and what is due waits in the client. None: as soon as there is room."""
    arrival: Arrival = "poisson"
    """How the requests of a rate come."""
    warm_up: int = Field(default=1, ge=0)
    """Distinct samples asked after each load of the model and not counted: what an engine does but once
    (compiling, filling caches of kernels and grammars) is no sample's fault."""
    slo: Slo = Field(default_factory=Slo)
    """What makes an answer a good one, for goodput."""
    load: Load | None = None
    """A sweep over loads: one run task a point."""
    images: Literal["data", "file"] = "data"
    """How images go to the engine: their bytes in the request, or as `file://` paths, which is quicker where
    the engine's node sees the dataset's files."""
    request_timeout: float = Field(default=600, gt=0)
    """Longest wait for one answer over all tries, seconds."""
    on_failed: Literal["exclude", "zero"] = "zero"
    """What a sample without an answer counts: left out or zero. Neither makes it ok: coverage falls."""
    on_invalid: Literal["exclude", "zero"] = "exclude"
    """What an answer counts that cannot be read, or breaks its schema: left out or zero. Neither makes it ok:
    coverage falls, and tables tell both values."""
    min_coverage: float | None = Field(default=None, ge=0, le=1)
    """As the plan's `min_coverage`, for this run task; none: the plan's."""
    score_timeout: float = Field(default=30, gt=0)
    """Longest that one metric may take for one sample, seconds; what takes longer is a fault, and told."""
    resources: Resources = Field(default_factory=Resources)
    """What one worker needs."""
    priority: int = Field(default=0, ge=-1000, le=1000)
    """Which of several is worked on first: the higher."""
    after: tuple[FlatName, ...] = ()
    """Run tasks of the plan that are to be done first, whether they succeed or not."""
    packages: tuple[PackageEntry, ...] = ()
    """Package documents, or packages written out, beside those whose plugins it names."""
    reports: tuple[Name, ...] = ()
    """Report documents to write beside the plan's."""


class RunTask(Document, RunTaskSettings):
    """One model on one dataset with one prompt."""

    name: FlatName
    """Its name; a folder of the experiment is called so."""
    model: ModelEntry
    """Model document, with changes where needed."""
    dataset: Name
    """Dataset document."""
    prompt: Name | None = None
    """Prompt document; none: the ML task's."""


RunTaskEntry = Annotated[
    Annotated[Name, Tag("name")] | Annotated[RunTask, Tag("run task")],
    Discriminator(lambda entry: "name" if isinstance(entry, str) else "run task"),
]
"""A run task by name, or written out inside a plan."""


class Cell(Part):
    """Cells of a matrix: those of all given names."""

    model: Name | None = None
    """Only of this model."""
    dataset: Name | None = None
    """Only of this dataset."""
    prompt: Name | None = None
    """Only of this prompt."""


class Matrix(RunTaskSettings):
    """Run tasks of all models × datasets × prompts, called `MODEL-DATASET[-PROMPT]`."""

    models: tuple[Name, ...] = Field(min_length=1)
    """Model documents."""
    datasets: tuple[Name, ...] = Field(min_length=1)
    """Dataset documents."""
    prompts: tuple[Name, ...] = ()
    """Prompt documents; none: the ML task's."""
    exclude: tuple[Cell, ...] = ()
    """Cells left out."""
    include: tuple[RunTask, ...] = ()
    """Run tasks beside the cells, written out."""


class Notification(Part):
    """Who is told how an experiment ended, and what a gate said of it."""

    plugin: str
    """Name in the entry-point group `hpcbench.notifiers`, or a class by its dotted path."""
    when: tuple[Literal["done", "incomplete", "regression"], ...] = (
        "done",
        "incomplete",
        "regression",
    )
    """What is told: the end `done`, the ends `incomplete` and `failed`, and a gate that did not say GO."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the notifier; secrets as references."""


class Tracker(Part):
    """Where scores are logged beside the report."""

    plugin: str
    """Name in the entry-point group `hpcbench.trackers`, or a class by its dotted path."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the tracker; secrets as references."""


class Upload(Part):
    """A place where results go when the experiment has ended."""

    url: str
    """`s3://…`, `sftp://…`, `file://…`: a folder; the experiment's id is a folder in it."""
    storage: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of that storage, over the site's; secrets as references."""


GateLevel = Literal["critical", "advisory"]
"""Whether a check decides the verdict, or is only told."""


class QualityRule(Part):
    """By how much a metric may be worse than the baseline's. With both margins the wider one counts."""

    absolute: float | None = Field(default=None, gt=0)
    """In the metric's unit."""
    relative: float | None = Field(default=None, gt=0, lt=1)
    """As a share of the baseline's value."""
    level: GateLevel = "critical"
    """`critical` decides the verdict; `advisory` is only told."""


class RatioRule(Part):
    """By how much a figure of speed or memory may be worse than the baseline's."""

    relative: float = Field(gt=0)
    """As a share of the baseline's value: 0.1 allows a latency 10 % longer, a rate 10 % lower."""
    level: GateLevel = "advisory"
    """`critical` decides the verdict; `advisory` is only told."""


class CoverageRule(Part):
    """How many of the samples have to be ok."""

    least: float = Field(default=0.98, ge=0, le=1)
    """ok ÷ (asked + skipped), of each run task."""
    level: GateLevel = "critical"
    """`critical` decides the verdict; `advisory` is only told."""


SameInBoth = Literal["dataset", "ml_task", "model", "prompt", "samples"]
"""What can be asked to be the same in a candidate as in its baseline."""


SPEED_FIGURES = (
    *(f"{latency}_{at}" for latency in ("ttft", "tpot", "e2e", "ttft_due", "e2e_due", "itl")
      for at in ("mean", "p50", "p90", "p95", "p99")),
    "answers_per_s", "documents_per_s", "good_per_s", "tokens_per_s",
)  # fmt: skip
"""What a gate knows of speed, see docs/measuring.md; latencies in milliseconds."""

MEMORY_FIGURES = (
    "gpu_peak", "torch_allocated", "kv_peak", "effective", "host_peak", "host_held_peak",
)  # fmt: skip
"""What a gate knows of memory, in bytes, see docs/measuring.md."""


class Gate(Document):
    """How much worse than its baseline a candidate may be: the policy of `hpcbench gate` and `regress`.

    Keys of `metrics`, `speed` and `memory` are `[RUN_TASK:]NAME`, both with `*` and `?`. A key with a
    run task comes before one without, then a name before a pattern, then the first; what no key fits is not
    judged.
    """

    metrics: Mapping[str, QualityRule] = Field(default_factory=dict)
    """Metric → its margin."""
    speed: Mapping[str, RatioRule] = Field(default_factory=dict)
    """Figure of speed → its margin: `ttft_p95`, `e2e_*`, `answers_per_s`, see docs/gate.md."""
    memory: Mapping[str, RatioRule] = Field(default_factory=dict)
    """Figure of memory → its margin: `gpu_peak`, `host_*`."""
    coverage: CoverageRule = Field(default_factory=CoverageRule)
    """How many samples of the candidate have to be ok."""
    same: tuple[SameInBoth, ...] = ("dataset", "ml_task", "samples")
    """What must be the same in both for scores to be compared; what is not makes them inconclusive. Without
    `samples` those that both have asked are judged, as after `--set run_tasks.X.limit=200`."""
    confidence: float = Field(default=0.95, ge=0.5, lt=1)
    """Of the two-sided intervals that margins are held against."""
    identical: Literal["pass", "judge"] = "judge"
    """Where no sample's score differs: judged by the number of documents as any other check, or passed. With
    `pass` the promise of 2.5 % does not hold, and the verdict says so."""
    on_inconclusive: Literal["inconclusive", "no-go"] = "inconclusive"
    """What a critical check that cannot be decided makes of the verdict, where no other one fails."""
    on_advisory: Literal["go", "inconclusive"] = "go"
    """What an advisory check that does not pass makes of the verdict, where all critical ones pass."""
    confirm: int = Field(default=0, ge=0, le=10)
    """How often `hpcbench regress` asks run tasks again that fail, and judges all answers together, before it
    says NO-GO."""


Stage = Literal["inference", "evaluation", "reporting"]
"""What follows on preparation."""


class ExperimentPlan(Document):
    """What one `hpcbench submit` runs."""

    name: FlatName
    """Its name; part of the experiment's id."""
    run_tasks: tuple[RunTaskEntry, ...] = ()
    """Run tasks by name, or written out."""
    matrix: tuple[Matrix, ...] = ()
    """Run tasks by models × datasets × prompts."""
    only: tuple[FlatName, ...] = ()
    """Only these of all those run tasks; none: all."""
    limit: int | None = Field(default=None, gt=0)
    """Most samples of every run task: of this and its own `limit` the smaller one."""
    load: Load | None = None
    """A sweep over loads for every run task, instead of its own."""
    parallelism: int = Field(default=1, gt=0, le=10_000)
    """Most workers at work at once. Not said, a plan with `executor: local` has one for each share of this
    machine's GPUs that its models need."""
    workers: Literal["enough", "all"] = "enough"
    """`enough`: fewer than `parallelism` where loading would take more than half of each worker's time; see
    docs/what-to-set.md. `all`: as many as `parallelism` says."""
    shard_size: int | None = Field(default=None, gt=0)
    """Samples in a shard; none: as many as take `shard_minutes`, judged by earlier experiments."""
    shard_minutes: float = Field(default=5, gt=0, le=1440)
    """How long a shard should take: what a worker takes at a time."""
    max_job_minutes: int | None = Field(default=None, ge=5)
    """Longest time limit of a job, whatever run tasks ask for: many short jobs fit into holes of the queue
    that a long one waits for. None: as run tasks say."""
    pilot: int = Field(default=20, ge=0)
    """So many samples that a worker asks first of a run task are its pilot, and their answers count: where no
    answer to them can be read, the run task fails there. 0: no pilot."""
    max_gpu_hours: float | None = Field(default=None, gt=0)
    """Most GPU-hours that its jobs may take in all; no job is submitted that could exceed it."""
    executor: Literal["slurm", "local"] | None = None
    """Where jobs run; none: the site profile's."""
    site: Name | None = None
    """Site profile; none: the user's own, made by `hpcbench init`."""
    seed: int = 0
    """Seed of all that is random on our side (swaps of compared runs, orders of samples)."""
    max_resubmits: int = Field(default=2, ge=0, le=20)
    """How often lost work is submitted again before the experiment ends incomplete."""
    min_coverage: float = Field(default=0.9, ge=0, le=1)
    """Smallest share of samples that must be ok, of each run task: ok ÷ (asked + skipped). Below it the run
    task and the experiment end `incomplete`, with exit code 1, and are no baseline and part of no trend."""
    stages: tuple[Stage, ...] = Field(
        default=("inference", "evaluation", "reporting"), min_length=1
    )
    """What is done after preparation, from inference on."""
    reports: tuple[Name, ...] = ("markdown", "html")
    """Report documents to write."""
    baseline: str | None = None
    """Experiment that this one is to be compared with: its id, or the name of a baseline; the report names
    it."""
    gate: Name | None = None
    """Gates document by which it is judged against `baseline` when it ends; none: only when asked."""
    notifications: tuple[Notification, ...] = ()
    """Who is told how it ended; one that fails never fails the experiment."""
    trackers: tuple[Tracker, ...] = ()
    """Where scores are logged; one that fails never fails the experiment."""
    upload: tuple[Upload, ...] = ()
    """Where results go; one that fails never fails the experiment, `hpcbench upload` tries it again."""


class Partition(Part):
    """What a partition gives, as far as it is known; `hpcbench init` asks Slurm."""

    time_limit: TimeLimit | None = None
    """Longest time limit."""
    cpus: int | None = Field(default=None, gt=0)
    """CPUs of its largest node."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Memory of its largest node, GiB."""
    gpus: Mapping[str, int] | None = None
    """Type of GPU → most of them on a node; empty: it has none."""
    gpu_memory_gb: Mapping[str, float] = Field(default_factory=dict)
    """Type of GPU (`gpu` for those without a type) → its memory, GiB; Slurm does not know it."""


class SshSite(Part):
    """How a cluster is reached from elsewhere; keys come from the agent or ~/.ssh, never from here."""

    host: str
    """Login node: a name of ~/.ssh/config or of the network."""
    user: str | None = None
    """User there; none: ~/.ssh/config's, else the own name."""
    port: int | None = Field(default=None, gt=0, lt=65536)
    """Port; none: ~/.ssh/config's, else 22."""
    jump: str | None = None
    """Host to go through, `[USER@]HOST[:PORT]`; none: ~/.ssh/config's ProxyJump."""
    identity: str | None = None
    """File with the private key; none: the agent's and the usual ones."""
    known_hosts: str | None = None
    """File of host keys beside ~/.ssh/known_hosts; a host that is in none is refused."""
    hpcbench: str = "hpcbench"
    """The command there, a path unless it is on the PATH of a login shell."""


class SlurmSite(Part):
    """What sbatch needs to know about this cluster."""

    partition: str | None = None
    """Default partition of workers."""
    cpu_partition: str | None = None
    """Partition of evaluation and finalise jobs; none: the workers'."""
    account: str | None = None
    """Account to charge."""
    qos: str | None = None
    """Quality of service."""
    reservation: str | None = None
    """Reservation to run in."""
    constraint: str | None = None
    """Features that nodes must have, as sbatch writes them."""
    gpu_gres: str = "gpu"
    """How GPUs are asked for: `gpu`, or with a type, `gpu:a100`."""
    gpu_option: Literal["gres", "gpus", "gpus-per-node"] = "gres"
    """sbatch's option for GPUs: `--gres=gpu:a100:2`, `--gpus=a100:2` or `--gpus-per-node=a100:2`."""
    template: str | None = None
    """Jinja2 template of shell lines at the start of every job, after `setup`: a file, or a name in
    `slurm_templates/`; it sees `site`, `group` and `plan`."""
    submit_from_jobs: bool = True
    """Whether compute nodes may call sbatch, scontrol and scancel; where not, the next `status`, `watch` or
    cron call on the login node does what is due."""
    drain_seconds: int = Field(default=90, ge=10, le=3600)
    """How long before the time limit a worker is told to drain."""
    options: Mapping[str, bool | int | str] = Field(default_factory=dict)
    """Further sbatch options, long names without dashes; `true` for those without a value."""
    max_array_size: int | None = Field(default=None, gt=0)
    """Slurm's MaxArraySize."""
    partitions: Mapping[str, Partition] = Field(default_factory=dict)
    """What the partitions give, for cross-checks; one not named here is not checked."""


class ContainerSite(Part):
    """How images are built and started here."""

    manager: str = "apptainer"
    """What images run in: `apptainer`, `docker`, `runpod` or another plugin."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Of a manager other than Apptainer; secrets as references."""
    program: str = "apptainer"
    """`apptainer` or `singularity`, a name on PATH or a path."""
    binds: tuple[str, ...] = ()
    """Folders bound into every container, `SRC[:DST[:ro]]`."""
    insecure_registries: tuple[str, ...] = ()
    """`HOST:PORT` of registries without TLS."""
    network: Literal["host", "none"] = "host"
    """`none`: engines reach nothing but themselves, where Apptainer is allowed to cut them off."""
    gpu_maker: Literal["nvidia", "amd"] = "nvidia"
    """Whose GPUs the nodes have."""
    cuda: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    """Newest CUDA that the driver of the nodes takes, as `nvidia-smi` shows it there."""
    driver: str | None = Field(default=None, pattern=r"^\d+(\.\d+)*$")
    """Version of that driver, for people; `cuda` is what is compared."""
    build_with: tuple[str, ...] = ()
    """Words before the command that builds an image, where a login node is not for heavy work:
    `[srun, --partition=cpu, --cpus-per-task=8, --mem=16G]`."""
    build_tmp: str | None = None
    """Folder in which images are unpacked while they are built; `$TMPDIR` is that of where it is built."""
    build_args: Mapping[str, str] = Field(default_factory=dict)
    """Values for the ARGs of recipes, such as a mirror of the base image."""
    build_env: Mapping[str, str] = Field(default_factory=dict)
    """Environment of what recipes run, such as PIP_INDEX_URL of a mirror; it stays out of the image."""
    build_binds: tuple[str, ...] = ()
    """Folders that what recipes run may see, `SRC:DST[:ro]`; DST must be in the base image."""
    signed: bool = False
    """Whether `.sif` and `oras://` images must be signed by a key in the user's keyring."""
    squash_packages: bool = False
    """Whether what is mounted beside an image is one file instead of thousands."""


class Site(Document):
    """What is peculiar to a cluster; written by `hpcbench init`."""

    executor: Literal["slurm", "local"] = "local"
    """Where jobs run unless the plan says otherwise."""
    home: str | None = None
    """Folder of experiments and caches, on the shared file system."""
    scratch: str | None = None
    """Node-local folder for sockets and temporary files; variables such as `$TMPDIR` are expanded."""
    slurm: SlurmSite = Field(default_factory=SlurmSite)
    """sbatch."""
    container: ContainerSite = Field(default_factory=ContainerSite)
    """Apptainer."""
    setup: tuple[str, ...] = ()
    """Shell lines at the start of every job."""
    modules: tuple[str, ...] = ()
    """Environment modules that every job loads."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Environment of every job, such as https_proxy; secrets as references."""
    group: str | None = None
    """Unix group that experiments belong to; none: the user's."""
    umask: str | None = Field(default=None, pattern=r"^0?[0-7]{3}$")
    """umask of submit and of every job, octal; none: as it is."""
    ssh: SshSite | None = None
    """How `hpcbench --site NAME` reaches this cluster from elsewhere; none: this is it."""
    models: tuple[str, ...] = ()
    """Folders with models as `ORGANISATION/NAME`, where `hf://` is looked for first."""
    storage: Mapping[str, Mapping[str, JsonValue]] = Field(default_factory=dict)
    """Scheme → options of its storage, e.g. the endpoint of the S3 server here; secrets as references."""
    caches: tuple[str, ...] = ()
    """Caches of others, `HOME/cache`, that are only read: what is there is used in place."""
    cache_gb: float | None = Field(default=None, gt=0)
    """Most GiB of datasets, and of models, that are kept: what was used longest ago goes first."""
    gpu_hour_price: float | None = Field(default=None, gt=0)
    """What a GPU costs for an hour; then reports tell what 1,000 documents cost."""
    currency: str = ""
    """Currency of the price, for people: EUR, RUB."""
    staging: str | None = None
    """Node-local folder to which a job copies its datasets and models before it starts; variables such as
    `$TMPDIR` are expanded."""


KINDS: Mapping[str, type[Document]] = {
    "packages": Package,
    "images": Image,
    "reports": Report,
    "ml_tasks": MLTask,
    "models": Model,
    "datasets": Dataset,
    "metrics": Metric,
    "prompts": Prompt,
    "run_tasks": RunTask,
    "experiments": ExperimentPlan,
    "gates": Gate,
    "sites": Site,
}
"""Folder of a registry → the kind of document it holds."""


def seconds(time_limit: str) -> int:
    """`[D-]HH:MM:SS` in seconds."""
    days, _, clock = time_limit.rpartition("-")
    hours, minutes, secs = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + secs
