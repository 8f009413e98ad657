"""Settings of agents in definitions: which tools a model may call, within which limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Discriminator, Field, JsonValue, Tag, model_validator

from hpcbench.schema.shared_types import Part, name_or

ToolName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
"""Name of a tool in a model's calls."""

DEFAULT_TOOLS = ("crop", "zoom", "rotate", "calculator")
"""Tools of an agent that names none."""


READER = "ocr_region"
"""The tool by which a model reads a region of an image alone."""

OF_THE_LOOP = frozenset({"create_plan", "update_plan", READER, "hand_over"})
"""Tools that the loop runs itself."""


class McpServer(Part):
    """A server of the Model Context Protocol, started on the node; it speaks over its standard streams."""

    command: tuple[str, ...] = Field(min_length=1)
    """Program and arguments, without a shell."""
    image: str | None = None
    """Image in which it runs; as a model's `image`. Without it: the environment of hpcbench."""
    packages: tuple[str, ...] = ()
    """Python packages that it needs, as pip writes them: `mcp-server-time==2026.10.19`. Its command then is
    `[python, -m, mcp_server_time]`. They are installed when the plan is submitted."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Its environment variables. Write secrets as references, `${env:NAME}` or `${file:PATH}`."""
    network: bool = False
    """Whether it may use the network."""


class ToolEntry(Part):
    """A tool, or the tools of a server."""

    name: ToolName
    """Name in the model's calls; of a server: of all its tools together, for messages."""
    plugin: str | None = None
    """Name in the entry-point group `hpcbench.tools`, or a class by its dotted path. Without it: `name`."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the plugin."""
    image: str | None = None
    """Image in which the tool runs; as a model's `image`. Without it: the environment of hpcbench."""
    network: bool = False
    """Whether the tool may use the network."""
    mcp: McpServer | None = None
    """The server whose tools these are."""
    only: tuple[str, ...] = ()
    """The only tools of the server that the model sees. Without them: all."""
    idempotent: bool | None = None
    """Whether a call whose result was lost may be repeated. Without it: as the plugin says; no for a server's
    tool, unless the server says that it only reads or that it is idempotent."""
    model_of: str | None = None
    """Run task of this plan whose model reads the region, with its `generation`; for `ocr_region` alone.
    Without it: the model that calls."""

    @model_validator(mode="after")
    def _one_source(self) -> ToolEntry:
        if self.model_of is not None and self.name != READER:
            raise ValueError(f"has `model_of`, which only '{READER}' can have")
        if self.mcp is not None:
            for key in ("plugin", "options", "image", "network"):
                if getattr(self, key):
                    inside = "; write it below `mcp`" if key in ("image", "network") else ""
                    raise ValueError(f"has `mcp`, so it cannot have `{key}`{inside}")
        if self.mcp is None and self.only:
            raise ValueError("has `only`, which needs `mcp`")
        return self


ToolChoice = Annotated[
    Annotated[ToolName, Tag("name")] | Annotated[ToolEntry, Tag("tool")],
    name_or("tool"),
]
"""A tool by name, or written out."""


class AgentLimits(Part):
    """Limits of one trajectory: the work on one sample."""

    calls: int = Field(default=100, gt=0)
    """Maximum number of tool calls."""
    calls_of: Mapping[ToolName, int] = Field(default_factory=dict)
    """Tool → maximum number of its calls."""
    tokens: int | None = Field(default=None, gt=0)
    """Maximum number of tokens of all answers, reasoning included. Without it: no limit."""
    seconds: float = Field(default=300, gt=0)
    """Maximum time, seconds; waiting for a free place is not counted."""
    seconds_by: str | None = None
    """Metadata field that says how much work a sample is: its value chooses a time of `seconds_of`."""
    seconds_of: Mapping[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Value of `seconds_by` → maximum time of such samples, seconds: `{simple: 60, complex: 600}`. All others
    have `seconds`."""
    tool_seconds: float = Field(default=30, gt=0)
    """Shortest time that a tool gets for a call, seconds. A tool that often takes longer gets three times the
    95th percentile of its calls; never more than is left of `seconds`."""
    tool_memory_gb: float = Field(default=2, gt=0)
    """Maximum memory of a call, GiB."""
    same_calls: int = Field(default=3, gt=1)
    """A call that gives the same result so often in a row ends the trajectory as a loop."""

    def seconds_for(self, metadata: Mapping[str, object]) -> float:
        """Maximum time of a sample with this metadata."""
        kind = None if self.seconds_by is None else metadata.get(self.seconds_by)
        return self.seconds if kind is None else self.seconds_of.get(str(kind), self.seconds)

    @model_validator(mode="after")
    def _whole_times(self) -> AgentLimits:
        if (self.seconds_by is None) != (not self.seconds_of):
            given, lacking = (
                ("seconds_of", "seconds_by") if self.seconds_of else ("seconds_by", "seconds_of")
            )
            raise ValueError(f"has `{given}`, which needs `{lacking}`")
        return self


class Role(Part):
    """An agent among several."""

    prompt: str
    """Its system prompt."""
    model_of: str | None = None
    """Run task of this plan whose model replies, with its `generation`. Without it: the agent's own model."""
    tools: tuple[ToolChoice, ...] = ()
    """Its tools. Without them: those of the whole."""
    hand_over: tuple[str, ...] | None = None
    """Agents that it may hand over to. Without it: all others."""


class Agent(Part):
    """How a model works on a sample in turns: it calls tools until it answers."""

    tools: tuple[ToolChoice, ...] = DEFAULT_TOOLS
    """Tools by name, or written out. `create_plan` and `update_plan` keep a plan, `ocr_region` asks the model
    for the text of a region alone."""
    # Checked, it would build a validator in every process.
    limits: AgentLimits = AgentLimits.model_construct()
    """Limits of one trajectory."""
    show: int | None = Field(default=None, ge=0)
    """Number of a sample's images that the first message shows; the tool `page` gives the others. Without it:
    all."""
    agents: Mapping[ToolName, Role] = Field(default_factory=dict)
    """Several agents by name; the first one begins. Without them: one agent, with the run task's prompt."""

    @property
    def listed(self) -> tuple[str | ToolEntry, ...]:
        """The tools of the whole and of all its agents, as they are written."""
        return (*self.tools, *(one for role in self.agents.values() for one in role.tools))

    @property
    def reader(self) -> str | None:
        """Run task whose model `ocr_region` asks; None: the model that calls."""
        entries = (one for one in self.listed if isinstance(one, ToolEntry))
        return next((one.model_of for one in entries if one.name == READER), None)

    @property
    def models_of(self) -> tuple[str, ...]:
        """Run tasks whose models it uses beside its own, each once."""
        wanted = (*(role.model_of for role in self.agents.values()), self.reader)
        return tuple(dict.fromkeys(name for name in wanted if name is not None))

    @property
    def has_images(self) -> bool:
        """Whether a tool or a server runs in an image."""
        entries = (one for one in self.listed if isinstance(one, ToolEntry))
        return any(one.image or (one.mcp is not None and one.mcp.image) for one in entries)

    @model_validator(mode="after")
    def _known_agents(self) -> Agent:
        for name, role in self.agents.items():
            for other in role.hand_over or ():
                if other not in self.agents or other == name:
                    known = ", ".join(one for one in self.agents if one != name) or "none"
                    raise ValueError(
                        f"agent '{name}' hands over to '{other}'; the others are: {known}"
                    )
        return self


AgentChoice = Annotated[
    Annotated[bool, Tag("switch")] | Annotated[Agent, Tag("agent")],
    Discriminator(lambda entry: "switch" if isinstance(entry, bool) else "agent"),
]
"""Whether a model works as an agent with the usual settings, or with which settings."""
