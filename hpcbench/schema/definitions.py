"""The definitions that a user writes as YAML: one pydantic model per kind; unknown keys are errors.

A registry contains one definition per file, in a folder named after its kind (`KINDS`). Other definitions
refer to it by its name or by the file's path. Paths inside a definition are relative to its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    model_validator,
)

from hpcbench.schema.agent import AgentChoice
from hpcbench.schema.judge import Judge
from hpcbench.schema.names import FLAT_NAME, LONGEST, NAME
from hpcbench.schema.records import FieldMap, PromptEntry, PromptExample
from hpcbench.schema.shared_types import STRICT, TimeLimit, name_or
from hpcbench.schema.shared_types import LastJob as LastJob
from hpcbench.schema.shared_types import Part as Part
from hpcbench.schema.shared_types import Resources as Resources

Name = Annotated[str, Field(pattern=NAME, max_length=LONGEST)]
"""A definition's name: one line of text in any script; `/` for folders."""

FlatName = Annotated[str, Field(pattern=FLAT_NAME, max_length=LONGEST)]
"""A name whose id becomes a folder or part of an experiment's id: no `/`."""


class Definition(BaseModel):
    """The keys that every definition has."""

    model_config = STRICT

    schema_version: Literal[1] = 1
    """Version of this definition's format."""
    name: Name
    """The name by which other definitions refer to it: one line of text in any script. It need not be the
    file's name, by which they can refer to it, too."""
    version: str = ""
    """Version of the model, dataset … that this definition describes, as its publisher or author names it."""
    description: str = ""
    """One sentence for people."""
    notes: str = ""
    """Notes for readers: the source of the facts, and what is not tested."""
    metadata: Mapping[str, JsonValue] = Field(default_factory=dict)
    """For people and scripts; hpcbench does not read it."""


class LocalSource(Part):
    """A package in a folder, with its own `pyproject.toml`; for development."""

    type: Literal["local"]
    """`local`."""
    path: str
    """The package's folder, relative to this file."""
    editable: bool = True
    """`true`: changes in the folder take effect at once. `false`: they take effect after the next build."""


class GitSource(Part):
    """A package in a git repository."""

    type: Literal["git"]
    """`git`."""
    url: str
    """URL of the repository. Write a password in it as a reference, `https://${env:TOKEN}@host/repo.git`."""
    ref: str | None = None
    """Commit or tag. `RUN_MODE=prod` refuses a branch, since a branch moves."""
    subdirectory: str | None = None
    """Folder of the package inside the repository."""


class PypiSource(Part):
    """A package from PyPI or from a mirror."""

    type: Literal["pypi"]
    """`pypi`."""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the distribution."""
    version: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.!+_-]+$")
    """Exact version; `RUN_MODE=prod` requires it."""
    index: str | None = None
    """URL of the simple index to install from. Without it: pip's index. Write a password in it as a
    reference."""


class RequirementSource(Part):
    """A distribution by a requirement: the version is chosen at submission, and the manifest has it."""

    type: Literal["requirement"]
    """`requirement`."""
    line: str
    """The requirement, as pip writes it: `pillow`, `torch>=2.4`."""


LanguageCode = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]
"""A language by ISO 639."""

Language = Literal["en", "ru"]
"""Languages that default prompts exist in."""


class InstallArgs(Part):
    """How a package is installed."""

    extras: tuple[str, ...] = ()
    """Extras of the distribution to install."""


PluginKind = Literal[
    "datasets", "engines", "environments", "metrics", "notifiers", "parsers", "prompts", "reports",
    "storage", "tasks", "tools", "trackers",
]  # fmt: skip
"""Kinds of plugins; the entry-point groups are `hpcbench.KIND`."""


class Package(Definition):
    """A Python package with plugins; it need not be installed."""

    source: Annotated[
        LocalSource | GitSource | PypiSource | RequirementSource, Discriminator("type")
    ]
    """Where the package comes from."""
    install_args: InstallArgs = Field(default_factory=InstallArgs)
    """How to install it."""
    provides: Mapping[PluginKind, tuple[str, ...]] = Field(default_factory=dict)
    """Its plugins: kind → names. A definition that names one of these plugins gets the package."""

    @property
    def on_host(self) -> bool:
        """Whether it has plugins that run outside the image; only engines run inside."""
        return not self.provides or bool(set(self.provides) - {"engines"})


def _no_place(text: str) -> str:
    if text.startswith((".", "/", "~", "-")) or ("://" in text and " @ " not in text):
        raise ValueError(
            "must be a package's name or a requirement such as `torch>=2.4`; write a folder as "
            "{name: NAME, source: {type: local, path: FOLDER}} and an address as NAME @ URL"
        )
    return text


PackageEntry = Annotated[
    Annotated[Name, BeforeValidator(_no_place, json_schema_input_type=Name), Tag("name")]
    | Annotated[Package, Tag("package")],
    name_or("package"),
]
"""A package by name or requirement, or written out."""


class Prompt(Definition):
    """A prompt, or a collection of them: Jinja2 templates over the sample's fields and metadata."""

    strategy: str = "template"
    """Name in the entry-point group `hpcbench.prompts`, or a class by its dotted path."""
    package: Name | None = None
    """Package definition, or requirement, that provides the strategy."""
    system: str | None = None
    """System message."""
    user: str | None = None
    """User message, which follows the image. In a collection: the message for samples that no entry
    matches."""
    prompts: tuple[PromptEntry, ...] = ()
    """Collection of prompts. A sample gets the entry whose `when` matches it with the most conditions; two
    entries with equally many are an error."""
    collection: str | None = None
    """File with further entries, relative to this file. CSV: columns are id, user (or template), system (or
    system_prompt), version, and examples in JSON; a value in any other column is a condition of `when`.
    hpcbench reads a v0.1 prompt collection, and the JSON of v0.2's `prompt_config`, without changes."""
    examples: tuple[PromptExample, ...] = ()
    """Few-shot examples; the template fills each one from the example's own fields only."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the strategy."""


PromptChoice = Annotated[
    Annotated[Name, Tag("name")] | Annotated[Prompt, Tag("prompt")],
    name_or("prompt"),
]
"""A prompt by name, or written out."""


class MLTask(Definition):
    """A kind of work: how answers are read and which metrics make sense for them."""

    plugin: str
    """Name in the entry-point group `hpcbench.tasks`, or a class by its dotted path."""
    parser: str | None = None
    """Name in the entry-point group `hpcbench.parsers` of the parser that reads answers. Without it, the
    plugin reads them."""
    module: str | None = Field(default=None, pattern=r"^\w[\w-]*(\.\w[\w-]*)*$")
    """Module that answers samples itself, run as `python -m MODULE` in the environment of the model's engine;
    docs/own-modules.md has its arguments, files and results. Without it, hpcbench asks the model."""
    agent: AgentChoice = False
    """`true`, or settings: the model works in turns and may call tools until it answers; see docs/agents.md.
    A run task's own `agent` precedes it."""
    sample_fields: tuple[str, ...] = ()
    """Fields that every sample must have for this kind of work, e.g. `question`."""
    output: Literal["text", "label", "object"] = "text"
    """The form of a prediction: free text, one label, or an object of keys and values."""
    output_schema: Mapping[str, JsonValue] | None = None
    """JSON Schema that an object, or a list of objects, must meet; an answer that does not meet it counts as
    invalid. For labels: `enum`, the list of labels."""
    output_model: str | None = None
    """The same schema as a pydantic model, by the dotted path of its class: `my_package.models.Invoice`."""
    label_field: str | None = None
    """Field of a sample that lists its labels, where they differ from sample to sample."""
    repair: Literal["mark", "refuse"] = "mark"
    """How to treat an object that is not valid JSON (cut off, single quotes, trailing commas, …): `mark`
    repairs it and marks the answer as repaired; `refuse` counts the answer as invalid."""
    reasoning: Literal["strip", "keep"] = "strip"
    """`strip` removes reasoning before the answer, such as `<think>…</think>`; `keep` leaves it in."""
    metrics: tuple[Name, ...] = ()
    """The only metric definitions that run tasks may name. Without them: every metric that can score the
    form of its predictions."""
    default_metrics: tuple[Name, ...] = ()
    """Metrics of a run task that names none. Without them: `metrics`."""
    prompt: PromptChoice | None = None
    """Prompt definition for run tasks that name no prompt, or a prompt written out; it precedes `prompts`."""
    prompts: Mapping[Language, Name] = Field(default_factory=dict)
    """Language of a dataset → prompt definition for run tasks that name no prompt."""
    engines: tuple[str, ...] = ()
    """The only engines that run tasks may use. Without them: any."""
    reports: tuple[Name, ...] = ()
    """The only report definitions that run tasks may name. Without them: any."""
    iterator: str | None = None
    """The only iterator that its datasets may have. Without it: any."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Maximum tokens of an answer where a run task's `generation` does not set it. Without it: the default of
    `generation`."""
    image: str | None = None
    """Image in which metrics score the answers, unless a metric names its own; as a model's `image`. Without
    it: the plan's `evaluation.image`, else the host."""
    required_packages: tuple[PackageEntry, ...] = ()
    """Packages that this ML task uses: package definitions, packages written out, or requirements as pip
    writes them, `torch>=2.4`. hpcbench installs what is missing where the task's metrics score; for an ML
    task with a `module`, where the module runs."""


class Larger(Part):
    """A larger resource shape for a model's job."""

    gpus: int | None = Field(default=None, gt=0)
    """GPUs of the engine. Without it: as many as in the shape before."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Memory of the job, GiB. Without it: as much as in the shape before."""
    gpu_type: str | None = None
    """Type of GPU. Without it: the type of the shape before."""


class Parallel(Part):
    """How an engine splits one model; the product of the first three is the number of its ranks."""

    tensor: int = Field(default=1, gt=0)
    """Ranks that share each layer."""
    pipeline: int = Field(default=1, gt=0)
    """Parts into which the layers are split."""
    data: int = Field(default=1, gt=0)
    """Copies of the model behind one address."""
    expert: bool = False
    """Whether the ranks of `tensor` and `data` share the experts of a mixture instead of splitting each."""

    @property
    def ranks(self) -> int:
        """Ranks of the engine: one GPU each, or one process on CPUs."""
        return self.tensor * self.pipeline * self.data


class Prices(Part):
    """Prices of a model's provider for requests."""

    input: float = Field(ge=0)
    """Price of a million tokens of prompts, images included; cached ones are counted at the same price."""
    output: float = Field(ge=0)
    """Price of a million tokens of answers, reasoning included."""
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """Currency of the prices, its three letters by ISO 4217."""
    image: float | None = Field(default=None, ge=0)
    """Price of one image of a request, in addition to its tokens. Without it: images cost only their
    tokens."""

    def cost(self, prompt: int, answer: int, images: int = 0) -> float:
        """Cost of a request, in the currency, by tokens of its prompt and its answer, and images."""
        tokens = prompt * self.input + answer * self.output
        return tokens / 1e6 + images * (self.image or 0.0)


class Generation(Part):
    """How the engine samples answers."""

    max_tokens: int = Field(default=1024, gt=0)
    """Maximum tokens of an answer. Without it: the ML task's; else 1024, or half of what the engine takes for
    prompt and answer together, if that is not more than 1024."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; 0 is greedy decoding."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Probability mass of nucleus sampling."""
    seed: int | None = None
    """Seed of the engine's sampler."""
    stop: tuple[str, ...] = ()
    """Texts at which an answer ends."""
    extra: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Settings beyond OpenAI's that the engine accepts, e.g. `repetition_penalty`."""


class ModelTask(Part):
    """How a model's authors ask it for one kind of work, and the form of its answers."""

    prompt: Name | None = None
    """Their prompt. It precedes the ML task's prompt; a run task's own prompt precedes it."""
    generation: Generation = Field(default_factory=Generation)
    """Their settings. Each setting here precedes the ML task's; a run task's own setting precedes it."""
    parser: str | None = None
    """Name in the entry-point group `hpcbench.parsers` of the parser for its answers. An ML task's own parser
    precedes it."""
    output: str = ""
    """The form of its answers, for readers: `Markdown, tables as HTML`."""


class PublishedSpeed(Part):
    """A speed that others published. hpcbench did not measure it."""

    value: float = Field(gt=0)
    """The figure."""
    unit: Literal["pages/s", "requests/s", "tokens/s"]
    """Its unit."""
    conditions: str
    """GPU, engine, requests at once and data, as far as the source says."""
    source: str
    """Where it was read."""


class Model(Definition):
    """A vision-language model, the engine that serves it and the image that holds the engine."""

    family: str = ""
    """Model family, shown in tables, e.g. `Qwen2-VL`."""
    source: str = ""
    """Folder with weights in Hugging Face layout, relative to this file; or `hf://ORGANISATION/NAME`, which
    hpcbench looks for in the site's folders of models and in the Hugging Face cache, and downloads if it is
    in neither; or `SCHEME://…` of a storage plugin. Empty only for an engine that reads no weights, such as
    `remote`."""
    storage: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of that storage; they override the site's. Write secrets as references."""
    revision: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}$")
    """Commit of the weights on the Hugging Face Hub."""
    content_hash: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Hash of the files in its folder; hpcbench checks it before it submits a job."""
    licence: str = ""
    """Licence, as its publisher states it."""
    engine: str
    """Name in the entry-point group `hpcbench.engines`."""
    image: str | None = None
    """Name of an `images/` definition, `docker://…`, `oras://…`, `oci:FOLDER:TAG`, an archive, `FILE.sif`, a
    Dockerfile, `FILE.def` or `venv:DIR`. Without it, the engine runs in the Python environment of
    hpcbench."""
    needs: tuple[str, ...] = ()
    """Packages that the image must contain, as pip writes them, e.g. `vllm>=0.12`; hpcbench checks them
    before it submits a job."""
    served_by: Mapping[str, str] = Field(default_factory=dict)
    """Engine → what its image must contain to serve this model, as pip writes it: `{vllm: "vllm>=0.11"}`.
    hpcbench checks it like `needs`, for the engine of the run task."""
    package: Name | None = None
    """Package definition, or requirement, that provides the engine."""
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """Number format of the weights in memory."""
    context_length: int | None = Field(default=None, gt=0)
    """Maximum tokens of prompt and answer together."""
    min_pixels: int | None = Field(default=None, gt=0)
    """Pixels of the smallest image that its processor leaves as it is, for readers. Set the limit itself in
    `engine_options`."""
    max_pixels: int | None = Field(default=None, gt=0)
    """Pixels of the largest image that its processor leaves as it is, for readers. It makes larger images
    smaller, so small print is lost."""
    gpus: int = Field(default=1, ge=0)
    """GPUs that one engine needs on each of its nodes. Without it: those of `parallel`, spread over as few
    nodes as the partition's nodes allow."""
    gpu_memory_gb: float | None = Field(default=None, gt=0)
    """Minimum memory of each of these GPUs, GB as their makers count, 10^9 bytes: 80 for a card sold as
    80 GB, which has 79.6 GiB."""
    parameters_b: float | None = Field(default=None, gt=0)
    """Number of parameters, in billions (10^9); planning uses it before the weights are on this machine."""
    size_gb: float | None = Field(default=None, gt=0)
    """Size of its files, GB (10^9 bytes). Without it: two bytes per parameter."""
    prices: Prices | None = None
    """Prices of its provider, for the cost of answers and for the plan's `max_cost`. Without it: its
    answers have no cost."""
    nodes: int = Field(default=1, gt=0)
    """Nodes that one engine needs. Without it: as `parallel` and `gpus` require; without both: one."""
    replicas_per_node: int | None = Field(default=None, gt=0, le=64)
    """Engines of this model in one job, each with GPUs, CPUs, memory and a worker of its own. Without it:
    one, or those that share a GPU by `gpu_memory_share`; in a partition with `whole_nodes` as many as a node
    has room for."""
    gpu_memory_share: float | None = Field(default=None, gt=0, le=0.5)
    """Share of a GPU's memory that one engine may use: 0.45 puts two engines on each GPU, 0.3 three. Each has
    a worker of its own. Without it: an engine has its GPUs to itself."""
    parallel: Parallel | None = None
    """How the engine splits the model over its GPUs. Without it: `tensor` is the GPUs of a node, `pipeline`
    the nodes."""
    larger: tuple[Larger, ...] = ()
    """Larger resource shapes to try, in this order, when the engine runs out of memory. Without them: no
    further try."""
    chat_template: str | None = None
    """File with the Jinja2 chat template that replaces the model's own, relative to this file; a resolved
    plan contains its text."""
    engine_options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options that hpcbench passes to the engine unchanged."""
    tool_parsers: Mapping[str, str] = Field(default_factory=dict)
    """Engine → its parser of this model's tool calls, for agents: `{vllm: hermes, sglang: qwen}`. hpcbench
    passes it to the engine as `tool_call_parser` where an agent is at work. Without its engine here, an
    agent's calls are text."""
    reasoning_parsers: Mapping[str, str] = Field(default_factory=dict)
    """Engine → its parser of this model's thoughts: `{vllm: qwen3}`. hpcbench passes it to the engine as
    `reasoning_parser`."""
    tasks: Mapping[Name, ModelTask] = Field(default_factory=dict)
    """ML task → how the model's authors ask for that kind of work."""
    published_speed: tuple[PublishedSpeed, ...] = ()
    """Speeds that others published."""
    sources: Mapping[str, str] = Field(default_factory=dict)
    """Key of this definition → where its value was read."""
    unread: tuple[str, ...] = ()
    """Keys of this definition whose values were not read at their source. Check them before you rely on
    them."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Environment variables of the engine. Write secrets as references, `${env:NAME}` or `${file:PATH}`."""
    load_timeout: float = Field(default=1800, gt=0)
    """Maximum time until the engine is ready, seconds."""
    stall_timeout: float = Field(default=300, gt=0)
    """Maximum time without output of an engine that has requests, seconds; then hpcbench stops the engine."""

    @property
    def engines_per_gpu(self) -> int:
        """Engines of this model that share a GPU."""
        return 1 if self.gpu_memory_share is None else int(1 / self.gpu_memory_share + 1e-9)

    @property
    def needed(self) -> Mapping[tuple[str | int, ...], str]:
        """Requirements that its image must meet, each with its place in this definition."""
        found: dict[tuple[str | int, ...], str] = {
            ("needs", place): line for place, line in enumerate(self.needs)
        }
        if self.engine in self.served_by:
            found["served_by", self.engine] = self.served_by[self.engine]
        return found

    def fits_gpu(self, memory_gib: float) -> bool:
        """Whether a GPU with this memory, GiB, is large enough for `gpu_memory_gb`."""
        return self.gpu_memory_gb is None or self.gpu_memory_gb * 1e9 <= memory_gib * 2**30

    def for_agents(self) -> Model:
        """The model as an engine gets it that works for an agent.

        The engine gets the model's parser of tool calls. It does not get the model's own limit of images:
        each call may add one, and hpcbench sets the limit.
        """
        options = {
            name: value
            for name, value in self.engine_options.items()
            if name.replace("-", "_").partition(".")[0] not in _IMAGE_LIMITS
        }
        parser = self.tool_parsers.get(self.engine)
        if parser is not None and not has_option(options, "tool_call_parser"):
            options["tool_call_parser"] = parser
        return self.model_copy(update={"engine_options": options})


_IMAGE_LIMITS = frozenset({"limit_mm_per_prompt", "limit_mm_data_per_request"})
"""Options of engines for the number of images in a request."""


def has_option(options: Mapping[str, object], wanted: str) -> bool:
    """Whether options of an engine, spelled with `-` or `_`, have this one."""
    return option_name(options, wanted) is not None


def option_name(options: Mapping[str, object], *wanted: str) -> str | None:
    """The spelling, with `-` or `_`, of the first of these engine options that is set; None: none is."""
    spelled = {name.replace("-", "_"): name for name in options}
    return next((spelled[one] for one in wanted if one in spelled), None)


Condition = Literal[
    "prompt", "generation", "images", "answers", "engine", "precision", "kit", "samples",
]  # fmt: skip
"""A condition of a measurement, in this order in reports."""


class Published(Part):
    """A score that was published for this dataset, with the conditions that its source states."""

    model: str = Field(min_length=1)
    """Model, as its hub names it: `ORGANISATION/NAME`."""
    value: float
    """The score, as it was published."""
    of: float = Field(default=100, gt=0)
    """The best value of the scale of `value`: 100 for per cent, 1 for a share, 1000 for a sum of points."""
    metric: Name | None = None
    """Metric definition that computes this score here. Without it: none does, and `program` is required."""
    program: str = ""
    """Program or judge that made the score, where no metric of hpcbench does; `hpcbench reproduce` refuses
    it."""
    split: str | None = None
    """Split it was measured on. Without it: the dataset's `split`."""
    samples: int | None = Field(default=None, gt=0)
    """Samples it was measured on. Without it: the source does not say it."""
    source: str = Field(min_length=1)
    """Where it was read: address, with revision or date, and place in it."""
    run_task: FlatName | None = None
    """Run task definition with the conditions of this measurement, as far as they were published; `hpcbench
    reproduce` runs it."""
    conditions: Mapping[Condition, str] = Field(default_factory=dict)
    """Condition → its statement in the source. A condition that is missing here was not published."""

    @model_validator(mode="after")
    def _one_way(self) -> Published:
        if (self.metric is None) == (not self.program):
            raise ValueError("name the `metric` that computes it here, or the `program` that does")
        return self


class Dataset(Definition):
    """Page images with questions and references, in the format in which they are stored."""

    source: str
    """Folder of the dataset, relative to this file, or `SCHEME://…`: file, s3, sftp, http, https, hf, or the
    scheme of a package's storage plugin."""
    storage: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of that storage; they override the site's. Write secrets as references."""
    iterator: str = "table"
    """Name in the entry-point group `hpcbench.datasets`, or a class by its dotted path."""
    package: Name | None = None
    """Package definition, or requirement, that provides the iterator or the storage plugin."""
    annotations: str = ""
    """File inside the folder that lists the samples; empty where the iterator needs none."""
    split: str | None = None
    """Only samples of this split. Without it: all samples."""
    splits: tuple[str, ...] = ()
    """All splits of the dataset, for cross-checks. Without them: unknown."""
    samples: int | None = Field(default=None, gt=0)
    """Number of samples (of its `split`, where it names one); planning uses it before the files are on this
    machine."""
    size_gb: float | None = Field(default=None, gt=0)
    """Size of its files, GB (10^9 bytes); for planning."""
    language: Language | None = None
    """Language of its questions and texts, for default prompts. Without it: that of most letters of its first
    samples."""
    fields: tuple[str, ...] = ()
    """Fields that every sample has in addition to its images, for cross-checks."""
    group_by: tuple[str, ...] = ()
    """Metadata that every sample has, for prompts and tables, e.g. `doc_type`."""
    mapping: FieldMap = Field(default_factory=FieldMap)
    """Where a record keeps the parts of a sample, if the record is not in hpcbench's own form."""
    on_bad: Literal["fail", "skip"] = "fail"
    """How to treat a row that cannot be a sample (no reference, an image that is missing or is not an image,
    wrong encoding): `fail` reports an error before anything runs; `skip` leaves the row out, reports it, and
    counts it against coverage."""
    content_hash: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Hash of annotations and images; hpcbench checks it before it submits a job."""
    licence: str = ""
    """Licence, as its publisher states it."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the iterator."""
    ml_task: Name | None = None
    """ML task that its authors made it for; lists filter by it."""
    languages: tuple[LanguageCode, ...] = ()
    """Languages of its texts, by ISO 639: `en`, `zh`; lists filter by them."""
    pages: int | None = Field(default=None, gt=0)
    """Number of its page images. Without it: unknown."""
    scorer: str = ""
    """Program of its publisher that makes the official score, where no metric of hpcbench does."""
    scored_here: Literal["all", "parts", "nothing"] = "parts"
    """How much of the official score metrics give, where there is a `scorer`: `all`, by the program itself in
    an image; `parts` of it; or `nothing`: hpcbench refuses such run tasks, since their numbers would mean
    nothing."""
    read: tuple[str, ...] = ()
    """Sources that this definition was written from, each with its revision."""
    unread: tuple[str, ...] = ()
    """Facts that could not be read at their source, so they may be wrong or are left out."""
    published: tuple[Published, ...] = ()
    """Scores that were published for it; reports show them beside those of the same model."""


class Metric(Definition):
    """A metric with its options; `version` must be the plugin's version."""

    plugin: str
    """Name in the entry-point group `hpcbench.metrics`, or a class by its dotted path."""
    package: Name | None = None
    """Package definition, or requirement, that provides the plugin."""
    image: str | None = None
    """Image in which it scores, as a model's `image`; its package is installed there. Without it: the ML
    task's `image`, else the plan's `evaluation.image`, else the host."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the metric; they are part of its signature."""


class Report(Definition):
    """A report with its options."""

    plugin: str
    """Name in the entry-point group `hpcbench.reports`, or a class by its dotted path."""
    package: Name | None = None
    """Package definition, or requirement, that provides the plugin."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the report."""


class Image(Definition):
    """A container image with an engine."""

    reference: str | None = None
    """`docker://…`, `oci-archive:FILE`, `docker-archive:FILE` or `FILE.sif`; a file is relative to this
    one."""
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Digest of a `docker://` reference when it was locked; `RUN_MODE=prod` requires it."""
    recipe: str | None = None
    """Dockerfile or Apptainer definition file to build it from, relative to this file."""
    engines: tuple[str, ...] = ()
    """Engines that it contains. Without them: unknown."""
    cuda: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    """CUDA version that its programs are built for; hpcbench compares it with the site's before it downloads
    the image."""
    for_older_drivers: Name | None = None
    """Image definition to use instead where `container.cuda` of the site says that its drivers are too old
    for this one."""
    size_gb: float | None = Field(default=None, gt=0)
    """Size of the download, GB (10^9 bytes): the compressed layers, or the file."""


class ModelChoice(Part):
    """A model with changes for this run task; its name shows them: `tiny-vlm (dtype=float16)`."""

    name: Name
    """Model definition. If no definition has this name: the model `hf://NAME`, served by `engine`."""
    engine: str | None = None
    """Engine that replaces the definition's."""
    image: str | None = None
    """Image that replaces the definition's."""
    dtype: Literal["auto", "float32", "float16", "bfloat16"] | None = None
    """Number format that replaces the definition's."""
    context_length: int | None = Field(default=None, gt=0)
    """Maximum tokens of prompt and answer together; replaces the definition's."""
    gpus: int | None = Field(default=None, ge=0)
    """GPUs of one engine; replaces the definition's."""
    engine_options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options that override the definition's `engine_options`."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Variables that override the definition's `env`."""


ModelEntry = Annotated[
    Annotated[Name, Tag("name")] | Annotated[ModelChoice, Tag("choice")],
    name_or("choice"),
]
"""A model by name, or with changes."""


class SampleOf(Part):
    """A random sample of a dataset's samples."""

    size: int = Field(gt=0)
    """Number of samples."""
    by: str | None = None
    """Field or metadata for stratification, e.g. `doc_type`: each value gets its proportional share of the
    sample."""
    seed: int | None = None
    """Seed. Without it: the plan's."""


InFlight = Annotated[int, Field(gt=0, le=4096)]
"""Requests in flight."""

Concurrency = Annotated[
    Annotated[InFlight, Tag("number")] | Annotated[Literal["auto"], Tag("auto")],
    Discriminator(lambda value: "auto" if isinstance(value, str) else "number"),
]
"""Requests in flight, or `auto`."""

Measure = Literal["throughput", "latency"]
"""Keep the engine busy, or send each request alone, so that its time and its peak of memory are its own."""

Rate = Annotated[float, Field(gt=0, le=10_000)]
"""Requests per second."""

Arrival = Literal["poisson", "constant"]
"""Times between requests of a given rate: exponentially distributed (`poisson`), or constant."""


Route = Literal["direct", "proxied"]
"""From the worker's client to the engine itself, or through the wrapper."""


class Slo(Part):
    """Latency limits of a good answer, counted from when its request was due; see docs/measuring.md."""

    ttft_ms: float | None = Field(default=None, gt=0)
    """Maximum time to first token, milliseconds."""
    tpot_ms: float | None = Field(default=None, gt=0)
    """Maximum time per output token after the first, milliseconds."""
    e2e_ms: float | None = Field(default=None, gt=0)
    """Maximum time to the last token, milliseconds."""


class Load(Part):
    """A sweep: the run task at several loads; one worker measures each point alone."""

    concurrency: tuple[InFlight, ...] = ()
    """Points with a constant number of requests in flight (closed loop); run tasks `NAME-c8`."""
    rate: tuple[Rate, ...] = ()
    """Points with a constant rate, requests per second, whatever the engine does (open loop); run tasks
    `NAME-r2.5`."""
    arrival: Arrival = "poisson"
    """Times between the requests of a rate: `poisson` (exponentially distributed) or `constant`."""
    requests: int | None = Field(default=None, gt=0)
    """Number of samples of each point, the first ones. Without it: all. More than the run task has is an
    error."""
    warm_up: int = Field(default=8, ge=0)
    """Number of distinct samples that each point asks first and does not count."""
    slo: Slo = Field(default_factory=Slo)
    """Latency limits of a good answer, for goodput."""


class MetricVersion(Part):
    """A metric by one version of its code; its scores are the column `NAME_vVERSION`."""

    name: Name
    """Metric definition."""
    version: int = Field(ge=1)
    """Version, the end of the metric's signature. The plugin `PLUGIN_vVERSION` keeps an older one."""

    @property
    def column(self) -> str:
        """Name of its scores."""
        return f"{self.name}_v{self.version}"


MetricEntry = Annotated[
    Annotated[Name, Tag("name")] | Annotated[MetricVersion, Tag("version")],
    name_or("version"),
]
"""A metric by name, or one version of it."""


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
    or `grpc`, with images byte for byte, which needs the extra `grpc`. Speed is comparable within one
    protocol only."""
    route: Route = "direct"
    """How requests reach the engine: `direct` from the worker to the engine's own socket, where both are on
    one node, else `proxied`; `proxied` through the wrapper, which takes processor time for each chunk."""
    request_timeout: float = Field(default=600, gt=0)
    """Maximum time for one answer, all tries included, seconds."""
    on_failed: Literal["exclude", "zero"] = "zero"
    """How to count a sample without an answer: `exclude` leaves it out, `zero` gives it the metric's worst
    value. In both cases coverage falls."""
    on_invalid: Literal["exclude", "zero"] = "exclude"
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


class Notification(Part):
    """A notification of how an experiment ended, and of its gate's verdict."""

    plugin: str
    """Name in the entry-point group `hpcbench.notifiers`, or a class by its dotted path."""
    when: tuple[Literal["done", "incomplete", "regression"], ...] = (
        "done",
        "incomplete",
        "regression",
    )
    """Events to report: `done`; `incomplete`, which includes `failed`; `regression`, a gate whose verdict is
    not GO."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the notifier. Write secrets as references."""


class Tracker(Part):
    """An experiment tracker that gets the scores in addition to the report."""

    plugin: str
    """Name in the entry-point group `hpcbench.trackers`, or a class by its dotted path."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the tracker. Write secrets as references."""


class Upload(Part):
    """A destination for the results of an experiment that has ended."""

    url: str
    """Folder to upload to, `s3://…`, `sftp://…` or `file://…`; hpcbench puts a folder with the experiment's
    id into it."""
    storage: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of that storage; they override the site's. Write secrets as references."""


class Database(Part):
    """A database that gets the results of experiments when they end, see docs/database.md."""

    type: Literal["postgresql", "sqlite"]
    """`postgresql`; or `sqlite`, a file that one machine uses."""
    url: str
    """`postgresql://USER:${env:NAME}@HOST/DATABASE`, with the password as a reference. For SQLite: the
    absolute path of a file on a local disk."""


GateLevel = Literal["critical", "advisory"]
"""A critical check decides the verdict; the report only lists an advisory one."""


class QualityRule(Part):
    """Margin by which a metric may be worse than the baseline's; of both kinds, the wider one counts."""

    absolute: float | None = Field(default=None, gt=0)
    """Margin in the metric's unit."""
    relative: float | None = Field(default=None, gt=0, lt=1)
    """Margin as a share of the baseline's value."""
    level: GateLevel = "critical"
    """A `critical` check decides the verdict; the report only lists an `advisory` one."""


class RatioRule(Part):
    """Margin by which a figure of speed or memory may be worse than the baseline's."""

    relative: float = Field(gt=0)
    """Margin as a share of the baseline's value: 0.1 allows a latency 10 % longer, a rate 10 % lower."""
    level: GateLevel = "advisory"
    """A `critical` check decides the verdict; the report only lists an `advisory` one."""


class CoverageRule(Part):
    """The share of samples that must be ok."""

    least: float = Field(default=0.98, ge=0, le=1)
    """Minimum of ok ÷ (asked + skipped), for each run task."""
    level: GateLevel = "critical"
    """A `critical` check decides the verdict; the report only lists an `advisory` one."""


SameInBoth = Literal["dataset", "ml_task", "model", "prompt", "samples"]
"""Settings that a gate can require to be the same in candidate and baseline."""


SPEED_FIGURES = (
    *(f"{latency}_{at}" for latency in ("ttft", "tpot", "e2e", "ttft_due", "e2e_due", "itl")
      for at in ("mean", "p50", "p90", "p95", "p99")),
    "answers_per_s", "documents_per_s", "good_per_s", "tokens_per_s",
)  # fmt: skip
"""Figures of speed that a gate can judge, see docs/measuring.md; latencies in milliseconds."""

MEMORY_FIGURES = (
    "gpu_peak", "torch_allocated", "kv_peak", "effective", "host_peak", "host_held_peak",
)  # fmt: skip
"""Figures of memory that a gate can judge, in bytes, see docs/measuring.md."""


class Gate(Definition):
    """How much worse than its baseline a candidate may be: the policy of `hpcbench gate` and `regress`.

    Keys of `metrics`, `speed` and `memory` are `[RUN_TASK:]NAME`; both parts may contain `*` and `?`. A key
    with a run task has priority over one without, then a name over a pattern, then the first key. The gate
    does not judge a metric or figure that matches no key.
    """

    metrics: Mapping[str, QualityRule] = Field(default_factory=dict)
    """Metric → its margin. For a resource metric only a key with its own name counts."""
    speed: Mapping[str, RatioRule] = Field(default_factory=dict)
    """Figure of speed → its margin: `ttft_p95`, `e2e_*`, `answers_per_s`, see docs/gate.md."""
    memory: Mapping[str, RatioRule] = Field(default_factory=dict)
    """Figure of memory → its margin: `gpu_peak`, `host_*`."""
    coverage: CoverageRule = Field(default_factory=CoverageRule)
    """The share of the candidate's samples that must be ok."""
    same: tuple[SameInBoth, ...] = ("dataset", "ml_task", "samples")
    """Settings that must be the same in candidate and baseline for a comparison of scores; a difference makes
    these checks inconclusive. Without `samples`, the gate judges the samples that both have asked, e.g. after
    `--set run_tasks.X.limit=200`."""
    confidence: float = Field(default=0.95, ge=0.5, lt=1)
    """Confidence level of the two-sided intervals that the gate compares with the margins."""
    identical: Literal["pass", "judge"] = "judge"
    """How to judge a metric if no sample's score differs: `judge` looks at the number of documents, as in any
    other check; `pass` passes it. With `pass` the error limit of 2.5 % does not hold, and the verdict says
    so; see docs/gate.md."""
    on_inconclusive: Literal["inconclusive", "no-go"] = "inconclusive"
    """Verdict if a critical check is inconclusive and no other critical check fails."""
    on_advisory: Literal["go", "inconclusive"] = "go"
    """Verdict if all critical checks pass and an advisory check does not."""
    confirm: int = Field(default=0, ge=0, le=10)
    """How many times `hpcbench regress` repeats run tasks that fail before it says NO-GO; it judges all
    answers together."""


Stage = Literal["inference", "evaluation", "reporting"]
"""A stage after preparation."""


class Evaluation(Part):
    """How the evaluation stage runs."""

    image: str | None = None
    """Image in which metrics score the answers: the name of an `images/` definition, or a reference as a
    model's `image`. An ML task's or a metric's own `image` replaces it. Without it: the host."""


class BudgetCaps(Part):
    """The budget of an experiment as a plan or a user states it."""

    max_requests: int | None = Field(default=None, gt=0)
    """Requests. Without it: no limit."""
    max_tokens: int | None = Field(default=None, gt=0)
    """Tokens of prompts and answers. Without it: no limit."""
    max_cost: float | None = Field(default=None, gt=0)
    """Money, in the currency of the prices. Without it: no limit."""


class ExperimentPlan(Definition):
    """The plan of one experiment, for `hpcbench submit`."""

    name: FlatName
    """Its name; part of the experiment's id."""
    run_tasks: tuple[RunTaskEntry, ...] = ()
    """Run tasks by name, or written out."""
    matrix: tuple[Matrix, ...] = ()
    """Run tasks as models × datasets × prompts."""
    only: tuple[FlatName, ...] = ()
    """Only these run tasks. Without it: all run tasks above."""
    limit: int | None = Field(default=None, gt=0)
    """Maximum samples of every run task; if a run task has its own `limit`, the smaller one counts."""
    load: Load | None = None
    """A sweep over loads for every run task; it replaces their own."""
    parallelism: int = Field(default=1, gt=0, le=10_000)
    """Maximum jobs at the same time. Each has one worker, or as many as `replicas_per_node` of its model.
    Without it: 1, or under `executor: local` as many as this machine's GPUs allow."""
    workers: Literal["enough", "all"] = "enough"
    """`enough`: fewer workers than `parallelism` where loading the model would take more than half of each
    worker's time, see docs/what-to-set.md. `all`: as many workers as `parallelism` says."""
    shard_size: int | None = Field(default=None, gt=0)
    """Samples in a shard. Without it: the number that takes `shard_minutes`, estimated from earlier
    experiments."""
    shard_minutes: float = Field(default=5, gt=0, le=1440)
    """Target duration of a shard, the unit of work that a worker takes, minutes."""
    max_job_minutes: int | None = Field(default=None, ge=5)
    """Maximum time limit of a job, minutes, whatever the run tasks say: Slurm can fit many short jobs into
    gaps of the queue where a long job would wait. Without it: the run tasks' time limits."""
    pilot: int = Field(default=20, ge=0)
    """Number of samples that a worker asks first in each run task; their answers count. If none of these
    answers is readable, the run task fails at once. 0: no pilot."""
    last_job: LastJob = Field(default_factory=LastJob)
    """Resources of the job that evaluates and reports, for plans with very many or long answers."""
    max_gpu_hours: float | None = Field(default=None, gt=0)
    """Maximum GPU-hours of all its jobs together; hpcbench submits no job that could exceed it."""
    max_requests: int | None = Field(default=None, gt=0)
    """Maximum number of requests of all its workers together, warm-up and retries included; then the run ends
    in order, see docs/what-to-set.md."""
    max_tokens: int | None = Field(default=None, gt=0)
    """The same for tokens of prompts and answers, as the engine counts them."""
    max_cost: float | None = Field(default=None, gt=0)
    """The same for money, by the `prices` of its models and in their currency."""
    executor: Literal["slurm", "local"] | None = None
    """Where jobs run. Without it: the site profile's."""
    site: Name | None = None
    """Site profile. Without it: the user's own, which `hpcbench init` writes."""
    seed: int = 0
    """Seed of all random choices of hpcbench (samples, swaps of compared runs, orders of samples)."""
    max_resubmits: int = Field(default=2, ge=0, le=20)
    """How many times hpcbench submits lost work again before the experiment ends as incomplete."""
    min_coverage: float = Field(default=0.9, ge=0, le=1)
    """Minimum share of ok samples for each run task: ok ÷ (asked + skipped). Below it the run task and the
    experiment end as `incomplete`, with exit code 1; the experiment cannot be a baseline, and trends leave it
    out."""
    stages: tuple[Stage, ...] = Field(
        default=("inference", "evaluation", "reporting"), min_length=1
    )
    """Stages after preparation, from inference on."""
    evaluation: Evaluation = Field(default_factory=Evaluation)
    """How the evaluation stage runs."""
    reports: tuple[Name, ...] = ("markdown", "html")
    """Report definitions to write."""
    baseline: str | None = None
    """Experiment to compare this one with: its id, or the name of a baseline; the report names it."""
    gate: Name | None = None
    """Gate definition that judges the experiment against `baseline` when it ends. Without it: only `hpcbench
    gate` does."""
    notifications: tuple[Notification, ...] = ()
    """Notifications of how the experiment ended. A notification that fails does not fail the experiment."""
    trackers: tuple[Tracker, ...] = ()
    """Trackers that get the scores. A tracker that fails does not fail the experiment."""
    upload: tuple[Upload, ...] = ()
    """Destinations of the results. An upload that fails does not fail the experiment; `hpcbench upload` tries
    it again."""
    database: Database | None = None
    """Database that gets the results. Without it: the site profile's. A database that fails does not fail the
    experiment; a later command sends the rest."""


class Partition(Part):
    """The limits of a partition, as far as they are known; `hpcbench init` asks Slurm for them."""

    time_limit: TimeLimit | None = None
    """Maximum time limit."""
    nodes: int | None = Field(default=None, gt=0)
    """Number of its nodes."""
    cpus: int | None = Field(default=None, gt=0)
    """CPUs of its largest node."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Memory of its largest node, GiB."""
    gpus: Mapping[str, int] | None = None
    """Type of GPU → maximum number of them on one node; empty: the partition has no GPU."""
    gpu_memory_gb: Mapping[str, float] = Field(default_factory=dict)
    """Type of GPU (`gpu` for those without a type) → memory of one GPU, GiB; Slurm does not report it."""
    whole_nodes: bool = False
    """Whether a job always gets whole nodes: then it runs as many engines of a model as a node has room for,
    unless the model says `replicas_per_node`."""

    def most_gpus(self, kind: str | None) -> int | None:
        """GPUs of this type, or of any, on the node that has most; None: not known, or no such type."""
        if not self.gpus:
            return None
        return self.gpus.get(kind) if kind else max(self.gpus.values())


class SshSite(Part):
    """How to reach this cluster from another machine; keys come from the agent or ~/.ssh."""

    host: str
    """Login node: a host of ~/.ssh/config, or a host name."""
    user: str | None = None
    """User name on the cluster. Without it: that of ~/.ssh/config, else the local one."""
    port: int | None = Field(default=None, gt=0, lt=65536)
    """Port. Without it: that of ~/.ssh/config, else 22."""
    jump: str | None = None
    """Jump host, `[USER@]HOST[:PORT]`. Without it: the ProxyJump of ~/.ssh/config."""
    identity: str | None = None
    """File with the private key. Without it: the agent's keys and ssh's default files."""
    known_hosts: str | None = None
    """File of host keys in addition to ~/.ssh/known_hosts; hpcbench refuses a host that is in neither."""
    hpcbench: str = "hpcbench"
    """The hpcbench command on the cluster: a path, unless a login shell has it on PATH."""


class SlurmSite(Part):
    """Settings for sbatch on this cluster."""

    partition: str | None = None
    """Default partition of workers."""
    cpu_partition: str | None = None
    """Partition of the last job, which evaluates and reports, and of entries in Slurm's crontab. Without it:
    the workers' partition; if they have GPUs, the last worker does that work and holds its GPU meanwhile."""
    account: str | None = None
    """Account to charge."""
    qos: str | None = None
    """Quality of service (QOS) of the jobs."""
    reservation: str | None = None
    """Reservation to run jobs in."""
    constraint: str | None = None
    """Features that nodes must have, in sbatch's syntax."""
    gpu_gres: str = "gpu"
    """GRES name of GPUs: `gpu`, or with a type, `gpu:a100`."""
    interface: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.:-]{1,64}$")
    """Network interface, e.g. `ib0`, over which the nodes of one engine talk. Without it: the one that the
    node's name leads to."""
    gpu_option: Literal["gres", "gpus", "gpus-per-node"] = "gres"
    """sbatch's option for GPUs: `--gres=gpu:a100:2`, `--gpus=a100:2` or `--gpus-per-node=a100:2`."""
    template: str | None = None
    """Jinja2 template of shell lines at the start of every job, after `setup`: a file, or a name in
    `slurm_templates/`; it can use `site`, `group` and `plan`."""
    submit_from_jobs: bool = True
    """Whether compute nodes may call sbatch, scontrol and scancel. If not, the next `status`, `watch` or cron
    call on the login node submits the jobs that are due."""
    drain_seconds: int = Field(default=90, ge=10, le=3600)
    """How long before its time limit a worker starts to drain, seconds: it sends no new request and waits for
    those in flight."""
    options: Mapping[str, bool | int | str] = Field(default_factory=dict)
    """Further sbatch options, long names without dashes; `true` for an option without a value."""
    last_job: LastJob = Field(default_factory=LastJob)
    """Resources of the job that evaluates and reports."""
    max_array_size: int | None = Field(default=None, gt=0)
    """Slurm's MaxArraySize."""
    partitions: Mapping[str, Partition] = Field(default_factory=dict)
    """Limits of the partitions, for cross-checks; hpcbench does not check a partition that is missing
    here."""

    def gpu_type(self, need: Resources) -> str | None:
        """Type of GPU that a job requests; None: any."""
        return need.gpu_type or self.gpu_gres.partition(":")[2] or None

    def partition_of(self, need: Resources | None = None) -> Partition | None:
        """Limits of a job's partition; None: they are not known.

        Args:
            need: what the job requests; None: a job without requests of its own.
        """
        return self.partitions.get((need and need.partition) or self.partition or "")


class ContainerSite(Part):
    """How to build and start images on this cluster."""

    manager: str = "apptainer"
    """Container manager: `apptainer`, `docker`, `runpod`, `skypilot` or another plugin."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of a manager other than Apptainer. Write secrets as references."""
    program: str = "apptainer"
    """`apptainer` or `singularity`, a name on PATH or a path."""
    binds: tuple[str, ...] = ()
    """Folders to bind into every container, `SRC[:DST[:ro]]`."""
    insecure_registries: tuple[str, ...] = ()
    """`HOST:PORT` of registries without TLS."""
    network: Literal["host", "none"] = "host"
    """`host`: engines use the node's network. `none`: engines have no network, where Apptainer is allowed to
    cut it off."""
    gpu_maker: Literal["nvidia", "amd"] = "nvidia"
    """Vendor of the nodes' GPUs."""
    cuda: str | None = Field(default=None, pattern=r"^\d+\.\d+$")
    """Newest CUDA version that the driver of the nodes supports, as `nvidia-smi` shows it there."""
    driver: str | None = Field(default=None, pattern=r"^\d+(\.\d+)*$")
    """Version of that driver, for people; hpcbench compares only `cuda`."""
    build_with: tuple[str, ...] = ()
    """Command prefix for building an image, where a login node is not for heavy work: `[srun,
    --partition=cpu, --cpus-per-task=8, --mem=16G]`."""
    build_tmp: str | None = None
    """Folder in which a build unpacks images; `$TMPDIR` is that of the machine that builds."""
    build_args: Mapping[str, str] = Field(default_factory=dict)
    """Values for the ARGs of recipes, e.g. a mirror of the base image."""
    build_env: Mapping[str, str] = Field(default_factory=dict)
    """Environment variables for the commands of recipes, e.g. PIP_INDEX_URL of a mirror; they are not stored
    in the image."""
    build_binds: tuple[str, ...] = ()
    """Folders that the commands of recipes can access, `SRC:DST[:ro]`; DST must exist in the base image."""
    signed: bool = False
    """Whether `.sif` and `oras://` images must have a signature by a key in the user's keyring."""
    squash_packages: bool = False
    """Whether to pack the packages that are mounted beside an image into one file, instead of thousands of
    files."""


class Site(Definition):
    """A site profile: the settings of one cluster; `hpcbench init` writes it."""

    executor: Literal["slurm", "local"] = "local"
    """Where jobs run if the plan does not say it. If the profile does not say it either, `submit` refuses on
    a machine that submits to a Slurm cluster."""
    home: str | None = None
    """Folder of experiments and caches, on the shared file system."""
    scratch: str | None = None
    """Node-local folder for sockets and temporary files; hpcbench expands variables such as `$TMPDIR`."""
    slurm: SlurmSite = Field(default_factory=SlurmSite)
    """Settings for sbatch."""
    container: ContainerSite = Field(default_factory=ContainerSite)
    """Settings for containers."""
    setup: tuple[str, ...] = ()
    """Shell lines at the start of every job."""
    modules: tuple[str, ...] = ()
    """Environment modules that every job loads."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Environment variables of every job, e.g. https_proxy. Write secrets as references."""
    group: str | None = None
    """Unix group of the experiments' files. Without it: the user's group."""
    umask: str | None = Field(default=None, pattern=r"^0?[0-7]{3}$")
    """umask of submit and of every job, octal. Without it: unchanged."""
    ssh: SshSite | None = None
    """How `hpcbench --site NAME` reaches this cluster from another machine. Without it: the profile describes
    the local cluster."""
    models: tuple[str, ...] = ()
    """Folders with models as `ORGANISATION/NAME`; hpcbench looks for `hf://` models in them first."""
    storage: Mapping[str, Mapping[str, JsonValue]] = Field(default_factory=dict)
    """Scheme → options of its storage, e.g. the endpoint of the local S3 server. Write secrets as
    references."""
    caches: tuple[str, ...] = ()
    """Caches of other users, `HOME/cache`, which hpcbench only reads: it uses their files in place."""
    cache_gb: float | None = Field(default=None, gt=0)
    """Maximum size of the cache of datasets, and of the cache of models, GiB each; the entry with the oldest
    use is deleted first."""
    gpu_hour_price: float | None = Field(default=None, gt=0)
    """Price of one GPU-hour; with it, reports show the cost of 1,000 documents."""
    currency: str = ""
    """Currency of the price, as reports show it: EUR, RUB."""
    staging: str | None = None
    """Node-local folder to which a job copies its datasets and models before it starts; hpcbench expands
    variables such as `$TMPDIR`."""
    database: Database | None = None
    """Database that gets the results of all experiments of this cluster."""


KINDS: Mapping[str, type[Definition]] = {
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
"""Folder of a registry → the kind of definition in it."""


def seconds(time_limit: str) -> int:
    """`[D-]HH:MM:SS` in seconds."""
    days, _, clock = time_limit.rpartition("-")
    hours, minutes, secs = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + secs
