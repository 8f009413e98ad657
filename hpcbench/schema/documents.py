"""The YAML documents a user writes: one pydantic model a kind, unknown keys refused.

A registry holds one document a file in a folder named after its kind (`KINDS`); the file's name is the
document's name. Paths inside a document are relative to the file it stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from hpcbench.schema.records import FieldMap, PromptEntry, PromptExample

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=120)]
"""A document's name: letters, digits, `._-`, and `/` for folders."""

FlatName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
"""A name that becomes a folder or part of an experiment's id: no `/`."""

_STRICT = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)
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
    install_args: InstallArgs = InstallArgs()
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
    """JSON Schema an object must meet; one that does not counts as not read."""
    metrics: tuple[Name, ...] = Field(min_length=1)
    """Metric documents that fit this kind of work."""
    default_metrics: tuple[Name, ...] = ()
    """Those a run task gets that names none; none: all of them."""
    prompt: Name | None = None
    """Prompt document used when a run task names none."""
    required_packages: tuple[Name, ...] = ()
    """Package documents whose plugins it uses."""


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
    fields: tuple[str, ...] = ()
    """Fields every sample has beside its images, for cross-checks."""
    group_by: tuple[str, ...] = ()
    """Metadata every sample has, for prompts and tables, e.g. `doc_type`."""
    mapping: FieldMap = FieldMap()
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
    """CSV file with further entries, relative to this file. Columns are id, user, system, version; any other
    column with a value is a condition of `when`. A v0.1 prompt collection is read as it is."""
    examples: tuple[PromptExample, ...] = ()
    """Few-shot examples."""
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
    time_limit: str = Field(default="02:00:00", pattern=r"^(\d+-)?\d{1,2}:\d{2}:\d{2}$")
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
    slo: Slo = Slo()
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
    generation: Generation = Generation()
    """How answers are sampled."""
    output_schema: Literal["none", "prompt", "response_format"] = "none"
    """Whether the ML task's JSON Schema is told to the model: after the prompt's text, or as OpenAI's
    `response_format`, which holds the engine to it."""
    repeats: int = Field(default=1, gt=0, le=100)
    """How often every sample is asked; repeat n is a run task `NAME-rN` with the seed plus n - 1."""
    concurrency: Concurrency = 1
    """Requests in flight per worker; `auto` finds what the engine takes. 1 unless you say so: only a request
    that is alone has a latency and a peak of memory of its own."""
    rate: Rate | None = None
    """Requests each worker sends a second, whatever the engine does; `concurrency` then is the most in
    flight, and what is due waits in the client. None: as soon as there is room."""
    arrival: Arrival = "poisson"
    """How the requests of a rate come."""
    warm_up: int = Field(default=1, ge=0)
    """Distinct samples asked after each load of the model and not counted: what an engine does but once
    (compiling, filling caches of kernels and grammars) is no sample's fault."""
    slo: Slo = Slo()
    """What makes an answer a good one, for goodput."""
    load: Load | None = None
    """A sweep over loads: one run task a point."""
    images: Literal["data", "file"] = "data"
    """How images go to the engine: their bytes in the request, or as `file://` paths, which is quicker where
    the engine's node sees the dataset's files."""
    request_timeout: float = Field(default=600, gt=0)
    """Longest wait for one answer over all tries, seconds."""
    on_failed: Literal["exclude", "zero"] = "zero"
    """What a sample without an answer counts: left out (coverage falls) or zero."""
    resources: Resources = Resources()
    """What one worker needs."""
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
    """Who is told how an experiment ended."""

    plugin: str
    """Name in the entry-point group `hpcbench.notifiers`, or a class by its dotted path."""
    when: tuple[Literal["done", "incomplete"], ...] = ("done", "incomplete")
    """Ends that are told."""
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
    load: Load | None = None
    """A sweep over loads for every run task, instead of its own."""
    parallelism: int = Field(default=1, gt=0, le=10_000)
    """Most workers of one array at work at once."""
    shard_size: int | None = Field(default=None, gt=0)
    """Samples in a shard; none: chosen so that each worker gets about four."""
    executor: Literal["slurm", "local"] | None = None
    """Where jobs run; none: the site profile's."""
    site: Name | None = None
    """Site profile; none: the user's own, made by `hpcbench init`."""
    seed: int = 0
    """Seed of all that is random on our side (bootstrap intervals)."""
    max_resubmits: int = Field(default=2, ge=0, le=20)
    """How often lost work is submitted again before the experiment ends incomplete."""
    stages: tuple[Stage, ...] = Field(
        default=("inference", "evaluation", "reporting"), min_length=1
    )
    """What is done after preparation, from inference on."""
    reports: tuple[Name, ...] = ("markdown", "html")
    """Report documents to write."""
    baseline: str | None = None
    """Experiment that this one is to be compared with: its id; the report names it."""
    notifications: tuple[Notification, ...] = ()
    """Who is told how it ended; one that fails never fails the experiment."""
    trackers: tuple[Tracker, ...] = ()
    """Where scores are logged; one that fails never fails the experiment."""
    upload: tuple[Upload, ...] = ()
    """Where results go; one that fails never fails the experiment, `hpcbench upload` tries it again."""


class Partition(Part):
    """What a partition gives, as far as it is known; `hpcbench init` asks Slurm."""

    time_limit: str | None = Field(default=None, pattern=r"^(\d+-)?\d{1,2}:\d{2}:\d{2}$")
    """Longest time limit."""
    cpus: int | None = Field(default=None, gt=0)
    """CPUs of its largest node."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Memory of its largest node, GiB."""
    gpus: Mapping[str, int] | None = None
    """Type of GPU → most of them on a node; empty: it has none."""
    gpu_memory_gb: Mapping[str, float] = Field(default_factory=dict)
    """Type of GPU → its memory, GiB; Slurm does not know it."""


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
    gpu_gres: str = "gpu"
    """How GPUs are asked for: `gpu`, or with a type, `gpu:a100`."""
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
    slurm: SlurmSite = SlurmSite()
    """sbatch."""
    container: ContainerSite = ContainerSite()
    """Apptainer."""
    setup: tuple[str, ...] = ()
    """Shell lines at the start of every job: module loads, proxies."""
    models: tuple[str, ...] = ()
    """Folders with models as `ORGANISATION/NAME`, where `hf://` is looked for first."""
    storage: Mapping[str, Mapping[str, JsonValue]] = Field(default_factory=dict)
    """Scheme → options of its storage, e.g. the endpoint of the S3 server here; secrets as references."""
    caches: tuple[str, ...] = ()
    """Caches of others, `HOME/cache`, that are only read: what is there is used in place."""
    cache_gb: float | None = Field(default=None, gt=0)
    """Most GiB of datasets, and of models, that are kept: what was used longest ago goes first."""
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
    "sites": Site,
}
"""Folder of a registry → the kind of document it holds."""


def seconds(time_limit: str) -> int:
    """`[D-]HH:MM:SS` in seconds."""
    days, _, clock = time_limit.rpartition("-")
    hours, minutes, secs = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + secs
