"""All of one run task: figures, shards, what happened when, logs, devices, where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from hpcbench.portal.models.base import Model
from hpcbench.portal.models.experiments import FigureName, RunTaskRow
from hpcbench.status.experiment_status import Failure


class Figure(Model):
    """A figure for Plotly, with its table."""

    name: str
    """Name of the figure."""
    title: str
    """Title of the figure."""
    described: str
    """Description of the content, for screen readers."""
    plotly: Mapping[str, Any]
    """`data` and `layout` of Plotly."""
    columns: tuple[str, ...]
    """Headings of its table."""
    rows: tuple[tuple[Any, ...], ...]
    """Rows of its table."""
    notes: tuple[str, ...] = ()
    """Notes for the reader of the figure."""


class DatasetObject(Model):
    """A shard: a slice of a run task's dataset."""

    index: int
    """Number of the shard, from 0."""
    state: str
    """State of the shard."""
    samples: int
    """Number of its samples."""
    answered: int
    """Number of samples whose request has ended, with any outcome."""
    attempt: int
    """Number of the newest attempt; 0: no worker has claimed the shard."""
    node: str | None = None
    """Node of its worker."""
    cause: str | None = None
    """Reason of the states lost, silent and failed."""
    since: float | None = None
    """Start of the newest attempt, seconds since the epoch."""


class Phase(Model):
    """A phase of a run task's worker or job."""

    what: Literal["queued", "starting", "loading", "inference", "idle", "evaluation", "ended"]
    """Kind of the phase."""
    worker: str
    """Name of the worker, or step of the round."""
    node: str = ""
    """Name of the node."""
    begin: float
    """Start, seconds since the epoch."""
    end: float | None
    """End, seconds since the epoch; None: the phase continues."""


class Advice(Model):
    """Advice on the resources to request next time."""

    level: Literal["note", "warning"]
    """Urgency."""
    text: str
    """The advice, with the figures."""
    change: str = ""
    """The line of a model's definition or of the plan that follows the advice."""


class CommandLine(Model):
    """A command to copy."""

    title: str
    """Purpose of the command."""
    text: str
    """The command."""


class TakenAnswers(Model):
    """Answers that a run task took over from an earlier experiment."""

    experiment: str
    """The experiment that gave them."""
    answers: int
    """Number of its answers."""
    here: bool
    """Whether that experiment is still here."""


class RunTaskDetail(Model):
    """The content of the page of a run task."""

    row: RunTaskRow
    """The row of the list of run tasks."""
    engine: str
    """Engine of the model."""
    definitions: Mapping[str, Any]
    """`model`, `dataset`, `prompt`, `ml_task`, `resources` as resolved; secrets appear as references."""
    timeline: tuple[Phase, ...]
    """Phases, in order of time."""
    metrics: tuple[Mapping[str, Any], ...]
    """Entries of `metrics.json`, each with `metric`."""
    groups: tuple[Mapping[str, Any], ...]
    """Levels of groups, each with its rows, as in `metrics.json`."""
    performance: Mapping[str, Any] | None
    """Entry of the run task in `performance.json`."""
    outcomes: Mapping[str, int]
    """Outcome → number of requests."""
    invalid_reasons: tuple[Mapping[str, Any], ...]
    """Reasons why answers are unreadable."""
    wrong: int | None
    """Samples below the best value of the leading metric, unreadable, or failed; null: not known."""
    mistakes: Mapping[str, int]
    """Kind of mistake → number of wrong samples with it, the most telling first."""
    unnamed: int
    """Wrong samples with an answer to which no rule of a mistake applies."""
    failures: tuple[Failure, ...]
    """Failures of the run task, by cause."""
    taken: tuple[TakenAnswers, ...] = ()
    """Answers of earlier experiments, the most first; the figures of speed leave them out."""
    advice: tuple[Advice, ...]
    """Advice on resources."""
    commands: tuple[CommandLine, ...]
    """Commands to copy: run again, the engine's command line, status, logs, sbatch."""
    figures: tuple[FigureName, ...]
    """Available figures."""


class LogSource(Model):
    """A log that can be read."""

    id: str
    """Id of the log in requests."""
    title: str
    """Title of the log."""
    kind: Literal["worker", "job", "engine"]
    """Writer of the log."""
    size: int
    """Size, bytes."""
    updated: float
    """Time of the last growth, seconds since the epoch."""


class LogLine(Model):
    """A line of a log, without control characters."""

    number: int
    """Number of the line in the log, from 1; where `LogChunk.first` is None, the number in this answer."""
    at: int
    """Offset of the line, bytes."""
    text: str
    """Text of the line; a line of more than 4,000 bytes comes in pieces."""
    continued: bool = False
    """Whether this is a further piece of the previous line."""
    level: Literal["error", "warning", ""] = ""
    """Level, guessed from the text."""


class LogChunk(Model):
    """Part of a log."""

    lines: tuple[LogLine, ...]
    """Lines, in order."""
    first: int | None = None
    """Number of the first line in the log; None: the line is too far from the beginning to be counted, or the
    answer has the lines of a search."""
    begin: int
    """Offset of the first line, bytes; give it as `before` to get earlier lines. After a search: the offset
    up to which the portal has searched backwards; 0: the whole log."""
    end: int
    """Offset after the last line, bytes; give it as `after` to get later lines."""
    size: int
    """Size of the log now, bytes."""
    errors: tuple[int, ...] = ()
    """Offsets of the last lines that look like errors, bytes; at most 100."""


class Strip(Model):
    """One figure of one device over time."""

    what: Literal[
        "gpu_use", "gpu_memory", "gpu_power", "gpu_temperature", "host_memory", "cpu", "rate"
    ]
    """The measured figure."""
    worker: str
    """Name of the worker."""
    device: str = ""
    """Number of the GPU; empty: the host."""
    unit: str
    """Unit: %, GiB, W, °C, CPUs, 1/s."""
    limit: float | None = None
    """Capacity of the device, in the same unit."""
    times: tuple[float, ...]
    """Times, seconds since the epoch."""
    values: tuple[float | None, ...]
    """Values; None: no reading."""


class Resources(Model):
    """Strips for GPU, memory and CPU, at most 600 points each."""

    strips: tuple[Strip, ...]
    """One strip for each device and figure."""
    marks: tuple[tuple[float, str], ...] = ()
    """Events to mark: time and text."""
    until: float
    """Time of the newest reading; give it as `since` to get later readings."""
    partial: bool = False
    """Whether the portal has not read all readings yet: repeat the request without `since`."""


class Origin(Model):
    """The inputs that determine an experiment's figures."""

    facts: tuple[tuple[str, str], ...]
    """Name and value of each: versions, commits, digests, hashes, seeds."""
    reproduce: str
    """One command that runs the same plan again."""
    plan: str
    """Text of the plan; empty: it cannot be read."""


class ConfigurationPlace(Model):
    """A setting that differs."""

    path: str
    """Path of the setting, with dots; `*` means each run task that both experiments have."""
    baseline: Any
    """Value in the baseline; None: not set."""
    experiment: Any
    """Value in the experiment; None: not set."""


class WholeConfiguration(Model):
    """The resolved configuration of an experiment: the plan, the site, and definitions by run task."""

    plan: Mapping[str, Any]
    """Settings of the plan."""
    site: Mapping[str, Any]
    """Settings of the site."""
    run_tasks: Mapping[str, Any]
    """Run task → its definitions; of the first 10 run tasks."""
    total: int
    """Number of run tasks."""


class ConfigurationDiff(Model):
    """Differences between an experiment's configuration and the baseline's."""

    baseline: str | None
    """Id of the baseline; None: there is none."""
    why: str = ""
    """Reason why the comparison is not possible; empty: it is possible."""
    differences: tuple[ConfigurationPlace, ...] = ()
    """Settings that differ, at most 2,000."""
