"""Models: their weights, the engine that serves them, and how their authors ask them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue, Tag

from hpcbench.schema.definition import Definition, Name
from hpcbench.schema.shared_types import Part, name_or

MOST_REQUEST_MB = 1000
"""Largest `request_mb`: the Hugging Face engine takes 1 GiB, and a message of gRPC may have 2."""


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
    request_mb: float | None = Field(default=None, ge=1, le=MOST_REQUEST_MB)
    """Maximum size of a request with its images, MB (10^6 bytes); the wrapper refuses a larger one. A page
    has a third more bytes in a request than in its file, over gRPC as many. Without it: 67.1 MB (64 MiB)."""

    @property
    def request_bytes(self) -> int | None:
        """Maximum size of a request, bytes; None: the wrapper's own."""
        return None if self.request_mb is None else round(self.request_mb * 1e6)

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
