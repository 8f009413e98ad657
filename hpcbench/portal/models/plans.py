"""Documents, what is wrong with them, what a plan comes to, submissions."""

from __future__ import annotations

from typing import Literal

from hpcbench.portal.models.base import Model
from hpcbench.portal.models.run_tasks import CommandLine

DocumentKind = Literal[
    "plans", "ml_tasks", "run_tasks", "models", "datasets", "metrics", "prompts", "reports", "packages",
    "gates", "images", "sites",
]  # fmt: skip
"""Kinds of documents that can be read; those of a folder of plans, and those of its registries."""


class DocumentRow(Model):
    """A YAML document that can be looked at."""

    id: str
    """Its id in requests."""
    kind: DocumentKind
    """What it is."""
    name: str
    """Its name."""
    folder: str
    """Where it lies, for people."""
    origin: Literal["own", "shipped", "site", "user"]
    """The folder of plans and its registries; what hpcbench ships; the cluster's registry; the user's."""
    writable: bool
    """Whether the portal may write it."""
    updated: float
    """When it last changed."""
    counts: bool = True
    """Whether it is the one of its kind and name that plans get; else one of a later registry hides it."""


class Document(Model):
    """A YAML document."""

    row: DocumentRow
    """As in the list."""
    text: str
    """As it is written."""
    etag: str
    """Give it as `If-Match` when writing."""


class DocumentText(Model):
    """What to write into a document."""

    text: str
    """All of it."""


class NewDocument(Model):
    """A document to make."""

    kind: DocumentKind
    """What it is."""
    name: str
    """Its name: letters, digits, `._-`, and `/` for folders."""
    text: str
    """What it says."""


class Starter(Model):
    """A text to begin a new document with."""

    kind: DocumentKind
    """What it is."""
    name: str
    """Of the starter."""
    title: str
    """What it is for."""
    text: str
    """The text."""


class CheckAsked(Model):
    """A text that an editor holds."""

    kind: DocumentKind
    """What it is."""
    text: str
    """All of it, saved or not."""
    id: str | None = None
    """The document whose text it is to be; None: a new one."""
    name: str | None = None
    """Name of a new one."""
    estimate: bool = False
    """Whether to say what the plan would take, too: that reads its datasets, and asks Slurm."""


class Note(Model):
    """A problem of a document, at its place."""

    line: int
    """From 1."""
    column: int
    """From 1."""
    end_line: int | None = None
    """Where the place ends, if known."""
    end_column: int | None = None
    """Where the place ends, if known."""
    severity: Literal["error", "warning"]
    """An error keeps it from being submitted."""
    message: str
    """What is wrong."""
    remedy: str = ""
    """What to do about it."""
    file: str = ""
    """Where it is, if not in this document: another document as `KIND/NAME`, or a file."""
    document: str | None = None
    """Id of that other document, if it is one."""


class Expanded(Model):
    """A run task that a plan comes to."""

    name: str
    """Its name."""
    ml_task: str
    """Kind of work."""
    model: str
    """Its model."""
    dataset: str
    """Its dataset."""
    prompt: str
    """Its prompt."""
    samples: int | None = None
    """Samples to ask about; None: not measured."""
    gpus: int = 0
    """GPUs of a worker."""


class Estimate(Model):
    """What a plan would take."""

    gpu_hours: float | None
    """GPU-hours; None: its jobs hold no GPU."""
    hours: float | None
    """Wall time at its parallelism, hours, without waiting in a queue."""
    bytes: int | None
    """Answers on disk."""
    samples: int | None = None
    """Samples of all its run tasks."""
    measured: bool = False
    """Whether all of it rests on earlier experiments."""
    lines: tuple[str, ...]
    """As `submit --estimate` prints it."""


class Checked(Model):
    """What the registry says of a plan's text."""

    problems: tuple[Note, ...]
    """In order of lines."""
    run_tasks: tuple[Expanded, ...]
    """What it comes to, as far as it can be read; at most 2,000."""
    run_tasks_total: int = 0
    """How many there are in all."""
    estimate: Estimate | None = None
    """None: not asked, or there are errors."""
    estimate_fault: str = ""
    """Why there is no estimate, though one was asked for."""
    commands: tuple[CommandLine, ...] = ()
    """To copy."""


class SubmissionAsked(Model):
    """A plan to submit."""

    document: str
    """Id of the plan."""
    etag: str
    """Of the text that was looked at: another one is not submitted."""


class Submitted(Model):
    """A submission that was begun."""

    submission: str
    """Its id in requests."""
    document: str
    """Id of the plan."""
    name: str
    """Name of the plan."""
    started: float
    """When."""
    id: str | None
    """The experiment; None: not yet known."""
    log: tuple[str, ...]
    """What `hpcbench submit` said."""
    state: Literal["running", "done", "failed"]
    """Of the command."""
