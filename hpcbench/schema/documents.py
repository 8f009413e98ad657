"""The YAML documents a user writes: one pydantic model a kind, unknown keys refused.

A registry holds one document a file in a folder named after its kind (`KINDS`); the file's name is the
document's name. Paths inside a document are relative to the file it stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

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
    """The name other documents use; equal to the file's name without `.yaml`."""
    description: str = ""
    """One sentence for people."""


class Part(BaseModel):
    """A nested block of a document."""

    model_config = _STRICT


class MLTask(Document):
    """A kind of work: how answers are read and which metrics make sense for them."""

    plugin: str
    """Name in the entry-point group `hpcbench.tasks`."""
    sample_fields: tuple[str, ...] = ()
    """Fields a sample must have for this kind of work, e.g. `question`."""
    metrics: tuple[Name, ...]
    """Metric documents that fit this kind of work."""
    prompt: Name | None = None
    """Prompt document used when a run task names none."""


class Model(Document):
    """A vision-language model, the engine that serves it and the image that holds the engine."""

    family: str = ""
    """Family for people and tables, e.g. `Qwen2-VL`."""
    source: str
    """Folder with weights in Hugging Face layout, relative to this file."""
    revision: str | None = None
    """Revision of the weights as their publisher names it."""
    engine: str
    """Name in the entry-point group `hpcbench.engines`."""
    image: str | None = None
    """`docker://…`, `oci-archive:…`, `docker-archive:…`, `FILE.sif` or `venv:DIR`; none: this Python."""
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """Number format of the weights in memory."""
    context_length: int | None = Field(default=None, gt=0)
    """Most tokens of prompt and answer together."""
    gpus: int = Field(default=1, ge=0)
    """GPUs one engine needs."""
    engine_options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options handed to the engine as they are."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Environment of the engine; no secrets here."""
    load_timeout: float = Field(default=1800, gt=0)
    """Longest wait for the engine to be ready, seconds."""


class Dataset(Document):
    """Document images with questions and references, as they lie on disk."""

    source: str
    """Folder of the dataset, relative to this file."""
    version: str = ""
    """Version as its publisher names it."""
    iterator: str = "jsonl"
    """Name in the entry-point group `hpcbench.datasets`."""
    annotations: str
    """File inside the folder that lists the samples."""
    split: str | None = None
    """Only samples of this split; none: all."""
    fields: tuple[str, ...] = ()
    """Fields every sample has beside its images, for cross-checks."""
    content_hash: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Hash of annotations and images; checked before anything is submitted."""
    licence: str = ""
    """Licence its publisher states."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the iterator."""


class Metric(Document):
    """A metric with its options."""

    plugin: str
    """Name in the entry-point group `hpcbench.metrics`."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the metric; they are part of its signature."""


class Prompt(Document):
    """A prompt: Jinja2 templates over the sample's fields."""

    strategy: str = "template"
    """Name in the entry-point group `hpcbench.prompts`."""
    system: str | None = None
    """System message."""
    user: str
    """User message that follows the image."""


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


class RunTask(Document):
    """One model on one dataset with one prompt."""

    name: FlatName
    """Its name; a folder of the experiment is called so."""
    ml_task: Name
    """Kind of work."""
    model: Name
    """Model document."""
    dataset: Name
    """Dataset document."""
    prompt: Name | None = None
    """Prompt document; none: the ML task's."""
    metrics: tuple[Name, ...] = ()
    """Metric documents; none: all of the ML task."""
    split: str | None = None
    """Only samples of this split; none: the dataset's."""
    limit: int | None = Field(default=None, gt=0)
    """Only the first so many samples, in the dataset's order."""
    generation: Generation = Generation()
    """How answers are sampled."""
    concurrency: int = Field(default=1, gt=0, le=4096)
    """Requests in flight per worker."""
    request_timeout: float = Field(default=600, gt=0)
    """Longest wait for one answer over all tries, seconds."""
    on_failed: Literal["exclude", "zero"] = "zero"
    """What a sample without an answer counts: left out (coverage falls) or zero."""
    resources: Resources = Resources()
    """What one worker needs."""


RunTaskEntry = Annotated[
    Annotated[Name, Tag("name")] | Annotated[RunTask, Tag("run task")],
    Discriminator(lambda entry: "name" if isinstance(entry, str) else "run task"),
]
"""A run task by name, or written out inside a plan."""


class ExperimentPlan(Document):
    """What one `hpcbench submit` runs."""

    name: FlatName
    """Its name; part of the experiment's id."""
    run_tasks: tuple[RunTaskEntry, ...] = Field(min_length=1)
    """Run tasks by name, or written out."""
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


class ContainerSite(Part):
    """How images are built and started here."""

    program: str = "apptainer"
    """`apptainer` or `singularity`, a name on PATH or a path."""
    binds: tuple[str, ...] = ()
    """Folders bound into every container, `SRC[:DST[:ro]]`."""
    insecure_registries: tuple[str, ...] = ()
    """`HOST:PORT` of registries without TLS."""


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


KINDS: Mapping[str, type[Document]] = {
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
