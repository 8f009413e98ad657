"""Kinds of work: how answers are read and which metrics make sense for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, JsonValue

from hpcbench.schema.agent import AgentChoice
from hpcbench.schema.definition import Definition, Name
from hpcbench.schema.package import PackageEntry
from hpcbench.schema.prompt import Language, PromptChoice


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
