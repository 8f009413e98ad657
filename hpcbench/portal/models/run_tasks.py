"""All of one run task: figures, shards, what happened when, logs, devices, where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hpcbench.portal.models.base import Model
from hpcbench.portal.models.experiments import FigureName, RunTaskRow
from hpcbench.status.models import Failure


class Figure(Model):
    """A figure as Plotly draws it, and as a table."""

    name: str
    """Its name."""
    title: str
    """For people."""
    described: str
    """What it shows, in words: for those who do not see it."""
    plotly: Mapping[str, Any]
    """`data` and `layout` of Plotly."""
    columns: tuple[str, ...]
    """Heads of its table."""
    rows: tuple[tuple[Any, ...], ...]
    """Rows of its table."""
    notes: tuple[str, ...] = ()
    """What to know when reading it."""
    data_hash: str
    """Changes when what it shows changes."""


class DatasetObject(Model):
    """A stretch of a run task's dataset: a shard."""

    index: int
    """Its number."""
    state: str
    """State of the shard."""
    samples: int
    """Samples in it."""
    answered: int
    """Samples that are done, however their requests ended."""
    attempt: int
    """Newest attempt; 0: nobody ever claimed it."""
    node: str | None = None
    """Node of its worker."""
    cause: str | None = None
    """Why it is lost, silent or failed."""
    since: float | None = None
    """When the newest attempt began."""


class Phase(Model):
    """A stretch of time of a run task's worker or job."""

    what: Literal["queued", "starting", "loading", "inference", "idle", "evaluation", "ended"]
    """What was going on."""
    worker: str
    """Worker, or step of the round."""
    node: str = ""
    """Where."""
    begin: float
    """From."""
    end: float | None
    """To; None: it goes on."""


class Advice(Model):
    """What to ask for next time."""

    level: Literal["note", "warning"]
    """How urgent."""
    text: str
    """In plain words, with the figures."""
    change: str = ""
    """The line of a model's document or plan that would do it."""


class CommandLine(Model):
    """Something to copy."""

    title: str
    """What it does."""
    text: str
    """The command."""


class RunTaskDetail(Model):
    """All that the page of a run task shows at once."""

    row: RunTaskRow
    """As in the list."""
    engine: str
    """Engine of its model."""
    documents: Mapping[str, Any]
    """`model`, `dataset`, `prompt`, `ml_task`, `resources` as resolved, secrets as references."""
    timeline: tuple[Phase, ...]
    """What happened when."""
    metrics: tuple[Mapping[str, Any], ...]
    """Entries of `metrics.json`, each with `metric`."""
    groups: tuple[Mapping[str, Any], ...]
    """Levels of groups, each with its rows, as in `metrics.json`."""
    performance: Mapping[str, Any] | None
    """Its part of `performance.json`."""
    outcomes: Mapping[str, int]
    """Outcome of requests → how many."""
    invalid_reasons: tuple[Mapping[str, Any], ...]
    """Why answers cannot be read."""
    failures: tuple[Failure, ...]
    """What went wrong with it, by cause."""
    advice: tuple[Advice, ...]
    """On over- and under-asked resources."""
    commands: tuple[CommandLine, ...]
    """To copy: run again, engine's line, status, logs, sbatch."""
    figures: tuple[FigureName, ...]
    """Figures there are of it."""


class LogSource(Model):
    """A log that can be read."""

    id: str
    """Its id in requests."""
    title: str
    """For people."""
    kind: Literal["worker", "job", "engine"]
    """Who wrote it."""
    size: int
    """Bytes."""
    updated: float
    """When it last grew."""


class LogLine(Model):
    """A line; control characters are gone."""

    number: int
    """From 1; counted from the first line of this answer where `LogChunk.first` is None."""
    at: int
    """Its offset, bytes."""
    text: str
    """The line; of one that is longer than 4,000 bytes a piece."""
    continued: bool = False
    """Whether it goes on where the one before it ended: a piece of the same line."""
    level: Literal["error", "warning", ""] = ""
    """What it looks like."""


class LogChunk(Model):
    """Part of a log."""

    lines: tuple[LogLine, ...]
    """In order."""
    first: int | None = None
    """Number of the first line in the log, or of the line that the first piece is of; None: too far in to be
    counted, or these are lines of a search."""
    begin: int
    """Offset of the first line, bytes; give it as `before` for earlier lines. Of a search: so far back was
    searched, 0 when all was."""
    end: int
    """Offset behind the last line; give it as `after` for what came since."""
    size: int
    """Size of the log now."""
    errors: tuple[int, ...] = ()
    """Offsets of the last lines that look like errors, at most 100."""


class Strip(Model):
    """One figure of one device over time."""

    what: Literal[
        "gpu_use", "gpu_memory", "gpu_power", "gpu_temperature", "host_memory", "cpu", "rate"
    ]
    """What is measured."""
    worker: str
    """The worker that measured it."""
    device: str = ""
    """Number of the GPU."""
    unit: str
    """%, GiB, W, °C, CPUs, 1/s."""
    limit: float | None = None
    """What there is of it."""
    times: tuple[float, ...]
    """When."""
    values: tuple[float | None, ...]
    """How much."""


class Resources(Model):
    """Strips for GPU, memory and CPU, at most 600 points each."""

    strips: tuple[Strip, ...]
    """Each device and figure."""
    marks: tuple[tuple[float, str], ...] = ()
    """Events to mark: when, and what."""
    until: float
    """Newest reading; give it as `since` for what came after."""
    partial: bool = False
    """Whether more is there than could be read at once: ask again, without `since`."""


class Origin(Model):
    """What an experiment's figures depend on."""

    facts: tuple[tuple[str, str], ...]
    """What, and its value: versions, commits, digests, hashes, seeds."""
    reproduce: str
    """One command that runs the same again."""
    plan: str
    """The plan as it was written; empty where it cannot be read."""


class ConfigurationPlace(Model):
    """One place of the configuration that is not the same."""

    path: str
    """Where, with dots; `*` stands for every run task that both have."""
    baseline: Any
    """What the baseline has there; None: nothing."""
    experiment: Any
    """What the experiment has there; None: nothing."""


class ConfigurationDiff(Model):
    """How an experiment's configuration differs from a baseline's."""

    baseline: str | None
    """Id of the baseline; None: there is none."""
    why: str = ""
    """Why it cannot be compared; empty: it can."""
    differences: tuple[ConfigurationPlace, ...] = ()
    """Places that are not the same, at most 2,000."""
