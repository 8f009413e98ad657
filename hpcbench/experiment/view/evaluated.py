"""What evaluation wrote of run tasks, typed, for readers that must live with damage and other versions.

A field that is damaged has its default; a run task whose table is none at all is left out. Readers for whom
that would be wrong take `experiment/results.py`, which refuses the file instead.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import from_json

from hpcbench.experiment.counts import Counts, counts_of
from hpcbench.experiment.ending import if_whole
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.results import METRICS_VERSION, PERFORMANCE_VERSION

LARGEST = 64 << 20
"""Bytes of the largest file that is read: a thousand run tasks with all their groups have fewer."""


def finite(value: object) -> float | None:
    """A number that JSON can say; None for all else."""
    if type(value) is float:  # most are
        return value if math.isfinite(value) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _object(value: object) -> object:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[object]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


Number = Annotated[float | None, BeforeValidator(finite)]
Count = Annotated[int, BeforeValidator(lambda value: int(finite(value) or 0))]
Flag = Annotated[bool, BeforeValidator(lambda value: value is not False)]
Text = Annotated[str, BeforeValidator(str)]
PartT = TypeVar("PartT", bound=BaseModel)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class MetricValue(_Part):
    """A metric over a whole run task."""

    value: Number = None
    """None: no sample is scored."""
    low: Number = None
    """Lower end of its interval."""
    high: Number = None
    """Upper end of its interval."""
    n: Count = 0
    """Samples scored."""
    clusters: Count = 0
    """Documents they belong to."""
    higher_is_better: Flag = True
    """Whether more of it is better."""


class Lost(_Part):
    """Samples without an answer, of one cause."""

    outcome: Text = ""
    """How their requests ended."""
    message: Text = ""
    """Why."""
    count: Count = 1
    """How many."""


class Scores(_Part):
    """What `metrics.json` says of a run task."""

    metrics: Annotated[
        Mapping[str, Annotated[MetricValue, BeforeValidator(_object)]], BeforeValidator(_object)
    ] = {}
    """Metric → its value."""
    errors: Annotated[tuple[Lost, ...], BeforeValidator(_objects)] = ()
    """Samples without an answer, by cause."""
    counts: Counts | None = None
    """Counts of its samples; None where they are damaged."""


class Figure(_Part):
    """A figure of speed."""

    value: Number = None
    """None: too little data."""


class Latency(_Part):
    """A latency's distribution, ms."""

    p50: Annotated[Figure, BeforeValidator(_object)] = Figure()
    p95: Annotated[Figure, BeforeValidator(_object)] = Figure()


class Memory(_Part):
    """Memory, bytes."""

    gpu_peak: Number = None
    """What its GPUs held at most."""
    effective: Number = None
    """What was needed of that, where the engine said it."""


class Client(_Part):
    """How late the client itself was."""

    client_bound: bool = False
    """Whether the client, not the engine, was the bottleneck."""


class Speed(_Part):
    """What `performance.json` says of a run task."""

    requests: Count | None = None
    """Requests that were to be sent."""
    tries: Count | None = None
    """Times they were sent."""
    e2e_ms: Annotated[Latency, BeforeValidator(_object)] = Latency()
    """From sending to the last text."""
    tokens_per_s: Annotated[Figure, BeforeValidator(_object)] = Figure()
    """Output tokens a second."""
    memory: Annotated[Memory, BeforeValidator(_object)] = Memory()
    client: Annotated[Client, BeforeValidator(_object)] = Client()
    valid: Flag = True
    """False: the client was too slow, and the figures are its own as much as the engine's."""


def scores_in(table: object) -> Scores | None:
    """A run task's part of `metrics.json`; None: it is none."""
    found = _part(Scores, if_whole(table))
    if found is None:
        return None
    try:
        return found.model_copy(update={"counts": counts_of(table)})  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError):
        return found


def speed_in(table: object) -> Speed | None:
    """A run task's part of `performance.json`; None: it is none."""
    return _part(Speed, table)


def scores(experiment: Experiment) -> Mapping[str, Scores]:
    """Run task → what evaluation found; nothing where it has not, or where that cannot be read."""
    read = {
        name: scores_in(table)
        for name, table in _tables(experiment.metrics_file, METRICS_VERSION).items()
    }
    return {name: one for name, one in read.items() if one is not None}


def speeds(experiment: Experiment) -> Mapping[str, Speed]:
    """Run task → its speed; nothing where it is not measured, or where that cannot be read."""
    tables = _tables(experiment.performance_file, PERFORMANCE_VERSION)
    read = {name: speed_in(table) for name, table in tables.items()}
    return {name: one for name, one in read.items() if one is not None}


def read_object(path: Path) -> Mapping[str, Any]:
    """The object that a JSON file holds; an empty one where there is none, it is damaged or far too large."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > LARGEST:
                return {}
            found = from_json(file.read())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _part(kind: type[PartT], table: object) -> PartT | None:
    if not isinstance(table, dict):
        return None
    try:
        return kind.model_validate(table)
    except ValidationError:
        return None


def _tables(path: Path, version: int) -> Mapping[str, Any]:
    found = read_object(path)
    tables = found.get("run_tasks") if found.get("version", version) == version else None
    return tables if isinstance(tables, dict) else {}
