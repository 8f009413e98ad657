"""Reports of an experiment, and other places that get its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, JsonValue

from hpcbench.schema.definition import Definition, Name
from hpcbench.schema.shared_types import Part


class Report(Definition):
    """A report with its options."""

    plugin: str
    """Name in the entry-point group `hpcbench.reports`, or a class by its dotted path."""
    package: Name | None = None
    """Package definition, or requirement, that provides the plugin."""
    options: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Options of the report."""


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
