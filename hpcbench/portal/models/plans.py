"""Plans and definitions, their problems, the run tasks of a plan, submissions."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from hpcbench.portal.models.base import Model
from hpcbench.portal.models.run_tasks import CommandLine

DefinitionKind = Literal[
    "plans", "ml_tasks", "run_tasks", "models", "datasets", "metrics", "prompts", "reports", "packages",
    "gates", "images", "sites",
]  # fmt: skip
"""Kinds of files that can be read: plans of a folder of plans, and definitions of its registries."""


class DefinitionRow(Model):
    """A YAML file in the list: a plan or a definition."""

    id: str
    """Id of the file in requests."""
    kind: DefinitionKind
    """Kind of the file."""
    name: str
    """Name of the plan or definition."""
    folder: str
    """Folder of the file, as pages show it."""
    origin: Literal["own", "shipped", "site", "user"]
    """`own`: the folder of plans and its registries; `shipped`: part of hpcbench; `site`: the cluster's
    registry; `user`: the user's registry."""
    writable: bool
    """Whether the portal may write the file."""
    updated: float
    """Time of the last change, seconds since the epoch."""
    counts: bool = True
    """Whether plans use this definition; False: a later registry has one of the same kind and name."""


class Definition(Model):
    """A YAML file: a plan or a definition."""

    row: DefinitionRow
    """The row of the list."""
    text: str
    """Text of the file."""
    etag: str
    """Give it as `If-Match` when writing the file."""


class DefinitionText(Model):
    """The new text of a plan or definition."""

    text: str
    """The whole text."""


class NewDefinition(Model):
    """A new plan or definition."""

    kind: DefinitionKind
    """Kind of the file."""
    name: str
    """Name: letters, digits, `._-`, and `/` for folders."""
    text: str
    """Text of the file."""


class Starter(Model):
    """A text from which the user starts a new plan or definition."""

    kind: DefinitionKind
    """Kind of the file."""
    name: str
    """Name of the starter."""
    title: str
    """Purpose, in a few words."""
    text: str
    """The text."""


ChoiceKind = Literal["ml_tasks", "models", "datasets", "prompts"]
"""Kinds of definitions that a run task names."""

CHOICE_KINDS: tuple[ChoiceKind, ...] = get_args(ChoiceKind)


class Choice(Model):
    """A definition that a plan's form offers."""

    kind: ChoiceKind
    """Kind of the definition."""
    name: str
    """Name of the definition."""
    description: str = ""
    """Its description."""
    fault: str = ""
    """The mistake of the definition; plans cannot use it."""
    engine: str = ""
    """Engine of a model."""
    gpus: int | None = None
    """GPUs that an engine of the model needs."""
    gpu_memory_gb: float | None = None
    """Minimum memory of each of these GPUs, GB (10^9 bytes)."""
    parameters_b: float | None = None
    """Parameters of a model, in billions."""
    size_gb: float | None = None
    """Size of the files of a model or dataset, GB (10^9 bytes)."""
    samples: int | None = None
    """Samples of a dataset."""
    fields: tuple[str, ...] = ()
    """Fields that every sample of a dataset has, or that an ML task needs; empty for a dataset: unknown."""


class CheckAsked(Model):
    """The text in an editor."""

    kind: DefinitionKind
    """Kind of the file."""
    text: str
    """The whole text, saved or not."""
    id: str | None = None
    """Id of the file that the text replaces; None: a new file."""
    name: str | None = None
    """Name of a new file."""
    estimate: bool = False
    """Whether to estimate the resources, too: the estimate reads the datasets and queries Slurm."""


class Note(Model):
    """A problem of a plan or definition, with its place."""

    line: int
    """Line, from 1."""
    column: int
    """Column, from 1."""
    end_line: int | None = None
    """Line of the end, from 1, if known."""
    end_column: int | None = None
    """Column of the end, from 1, if known."""
    severity: Literal["error", "warning"]
    """A plan with an error cannot be submitted."""
    message: str
    """The mistake."""
    remedy: str = ""
    """The remedy."""
    file: str = ""
    """Another file that has the problem: `KIND/NAME`, or a path; empty: this text."""
    definition: str | None = None
    """Id of this other file in requests, if it is a definition."""


class Expanded(Model):
    """A run task of a plan."""

    name: str
    """Name of the run task."""
    ml_task: str
    """Name of its ML task."""
    model: str
    """Name of its model."""
    dataset: str
    """Name of its dataset."""
    prompt: str
    """Name of its prompt."""
    samples: int | None = None
    """Number of samples to send to the model; None: unknown without an estimate."""
    gpus: int = 0
    """GPUs of a worker."""


class Estimate(Model):
    """Estimated resources of a plan."""

    gpu_hours: float | None
    """GPU-hours; None: its jobs use no GPU."""
    hours: float | None
    """Run time with the workers of the plan, hours, without the wait in the queue."""
    bytes: int | None
    """Size of the answers on disk, bytes."""
    samples: int | None = None
    """Number of samples of all run tasks."""
    measured: bool = False
    """Whether all rates come from earlier experiments."""
    lines: tuple[str, ...]
    """Output of `hpcbench submit --estimate`."""


class Checked(Model):
    """Result of a check of a plan's or definition's text."""

    problems: tuple[Note, ...]
    """Problems, in the order of lines."""
    run_tasks: tuple[Expanded, ...]
    """Run tasks of the plan, as far as it can be read; at most 2,000."""
    run_tasks_total: int = 0
    """Number of all run tasks."""
    estimate: Estimate | None = None
    """The estimate; None: not requested, or the text has errors."""
    estimate_fault: str = ""
    """Reason why a requested estimate is missing."""
    commands: tuple[CommandLine, ...] = ()
    """Commands to copy."""


class SubmissionAsked(Model):
    """A plan to submit."""

    definition: str
    """Id of the plan."""
    etag: str
    """`etag` of the text that the user has seen; the portal submits no other text."""


Action = Literal["pause", "resume", "cancel", "score"]
"""A verb of hpcbench that the portal runs for an experiment."""


class ActionAsked(Model):
    """A verb to run for an experiment."""

    experiment: str = Field(max_length=200)
    """Id of the experiment."""
    action: Action
    """The verb."""


class Submitted(Model):
    """A command that the portal runs."""

    submission: str
    """Id of the command in requests."""
    verb: Literal["submit", "serve"] | Action
    """The verb of hpcbench."""
    definition: str | None
    """Id of the plan of `submit`."""
    name: str
    """Name of the plan or of the model, or id of the experiment."""
    started: float
    """Start time, seconds since the epoch."""
    id: str | None
    """Id of the submitted experiment; None: not known yet."""
    log: tuple[str, ...]
    """Output of the command."""
    state: Literal["running", "done", "failed"]
    """State of the command."""
