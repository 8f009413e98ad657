"""What experiments are made of and what evaluation wrote of them, read once and again when it changes.

`metrics.json` of a hundred run tasks has megabytes, and a page asks for it with every figure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.ending import if_whole
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.results import (
    METRICS_VERSION,
    PERFORMANCE_VERSION,
    metrics_of,
    performance_of,
)
from hpcbench.experiment.view.usage import Usage, written_usage
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.lru import Kept, stamp_of
from hpcbench.portal.state import Portal, experiment_of
from hpcbench.schema.plan import ResolvedPlan

KEPT_BYTES = 8 << 20
"""Bytes of files whose contents are kept: as objects they take five times as much."""

PARTS_BYTES = 2 << 20
"""The same of parts."""

_VERSIONS = {"metrics.json": METRICS_VERSION, "performance.json": PERFORMANCE_VERSION}

FILES = 256
"""Files of which it is kept where the parts stand: 15 kB each with a hundred run tasks."""

EXPERIMENTS = 32
"""Experiments whose work is kept: 0.4 MB each with a hundred run tasks."""

PLANS = 4
"""Plans that are kept whole: one of a hundred run tasks takes 2 MB."""

ALONE = 128
"""Plans with one run task alone that are kept."""

_RUN_TASK = re.compile(rb'"task":\s*\{')
"""First in a run task; looked for by its first letters, which is quick."""

_PART = re.compile(rb'\n    ("[^\n]*"): \{')
"""The line with which a run task's part begins: no other one is indented like it."""

Table = Mapping[str, Any]

_Places = dict[str, tuple[int, int]]
"""Run task → first byte of its part of a file, and how many bytes it has."""


@dataclass(frozen=True)
class _Held:
    table: Table
    bytes: int


@dataclass(frozen=True)
class _Plans:
    whole: Kept[ResolvedPlan] = field(default_factory=lambda: Kept(PLANS))
    alone: Kept[ResolvedPlan] = field(default_factory=lambda: Kept(ALONE))


@dataclass(frozen=True)
class Seen(Experiment):
    """An experiment as pages look at it: most want one run task of its plan, and few the whole."""

    _plans: _Plans = field(compare=False, repr=False)

    @property
    def run_tasks(self) -> frozenset[str]:
        """Names of the run tasks.

        Raises:
            PortalFault: the experiment cannot be read.
        """
        with self._readable():
            return frozenset(cut.run_task for cut in self.work.cuts)

    @cached_property
    def manifest(self) -> dict[str, object]:
        """The manifest, as submit wrote it; pydantic reads JSON in half the time."""
        found = from_json(self.manifest_file.read_bytes())
        assert isinstance(found, dict)
        return found

    @property
    def resolved(self) -> ResolvedPlan:
        """The whole plan; ask for `alone` where that will do.

        Raises:
            PortalFault: it cannot be read.
        """
        stamp = stamp_of(self.resolved_file)
        with self._readable():
            return self._plans.whole.of(self.path, stamp, lambda: Experiment(self.path).resolved)

    def alone(self, run_task: str) -> ResolvedPlan:
        """The plan with this run task only.

        Raises:
            PortalFault: it cannot be read.
        """
        key, stamp = (self.path, run_task), stamp_of(self.resolved_file)
        with self._readable():
            return self._plans.alone.of(key, stamp, lambda: self._only(run_task))

    def _only(self, run_task: str) -> ResolvedPlan:
        text = self.resolved_file.read_bytes()
        if (cut := with_only(text, run_task)) is not None:
            with suppress(ValueError):
                found = ResolvedPlan.model_validate_json(cut)
                if [one.name for one in found.run_tasks] == [run_task]:
                    return found
        whole = from_json(text)
        own = [one for one in whole["run_tasks"] if one["task"]["name"] == run_task]
        return ResolvedPlan.model_validate_json(to_json({**whole, "run_tasks": own}))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, LookupError, TypeError):
            what = (
                f"{self.id} cannot be read: another version of hpcbench wrote it, or it is damaged"
            )
            raise PortalFault(409, "unreadable", what) from None


def with_only(resolved: bytes, run_task: str) -> bytes | None:
    """The text of a resolved plan without its other run tasks; to parse it whole takes ten times as long.

    Quotes within a text are escaped, so what looks like the beginning of a run task is one, or an object in
    the user's own metadata; what is cut there is no JSON any more.

    Returns:
        None: this is not how we lay it out, or there is no such run task.
    """
    begins = [resolved.rfind(b"{", 0, one.start()) for one in _RUN_TASK.finditer(resolved)]
    if not begins:
        return None
    name = json.dumps(run_task).encode()
    try:
        _, end = _object(resolved, begins[-1], len(resolved))
        for begin, after in zip(begins, [*begins[1:], end], strict=True):
            if resolved.find(name, begin, after) >= 0:
                found, stop = _object(resolved, begin, after)
                if found["task"]["name"] == run_task:
                    return resolved[: begins[0]] + resolved[begin:stop] + resolved[end:]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return None


def _object(data: bytes, begin: int, end: int) -> tuple[Any, int]:
    """The JSON object that begins at a byte and ends before another, and where it ends.

    Raises:
        ValueError: there is none.
    """
    text = data[begin:end].decode()
    found, length = json.JSONDecoder().raw_decode(text)
    return found, begin + (length if text.isascii() else len(text[:length].encode()))


@dataclass(frozen=True)
class Results:
    """Reads for all requests of one portal; every method may be called from any thread."""

    _experiments: Kept[Seen] = field(default_factory=lambda: Kept(EXPERIMENTS))
    _plans: _Plans = field(default_factory=_Plans)
    _parts: Kept[_Held | None] = field(
        default_factory=lambda: Kept(PARTS_BYTES, lambda held: held.bytes if held else 1)
    )
    _places: Kept[_Places | None] = field(default_factory=lambda: Kept(FILES))
    _usages: Kept[Usage | None] = field(default_factory=lambda: Kept(EXPERIMENTS))
    _tables: Kept[_Held] = field(default_factory=lambda: Kept(KEPT_BYTES, lambda held: held.bytes))

    def experiment(self, portal: Portal, identity: str) -> Seen:
        """The experiment of an id, with what was read of it before.

        Raises:
            PortalFault: there is none.
        """
        found = experiment_of(portal, identity)
        stamp = stamp_of(found.resolved_file), stamp_of(found.manifest_file)
        return self._experiments.of(found.path, stamp, lambda: Seen(found.path, self._plans))

    def metrics(self, experiment: Experiment) -> Table | None:
        """What `metrics.json` holds; None where it cannot be read."""
        return self._read(experiment, "metrics.json", lambda: metrics_of(experiment))

    def performance(self, experiment: Experiment) -> Table | None:
        """What `performance.json` holds; None where it cannot be read."""
        return self._read(experiment, "performance.json", lambda: performance_of(experiment))

    def usage(self, experiment: Experiment) -> Usage | None:
        """What it took, as it was written down at its end."""
        path = experiment.usage_file
        return self._usages.of(path, stamp_of(path), lambda: written_usage(experiment))

    def of_run_task(self, experiment: Experiment, run_task: str) -> tuple[Table, Table]:
        """What `metrics.json` and `performance.json` say of one run task; empty where they say nothing.

        Of a file that nobody asked for whole only the run task's part is parsed: a hundredth of the work.
        """
        metrics = self._part(experiment.metrics_file, run_task)
        performance = self._part(experiment.performance_file, run_task)
        if metrics is None:
            metrics = _entry(self.metrics(experiment), run_task)
        if performance is None:
            performance = _entry(self.performance(experiment), run_task)
        return metrics, performance

    def _part(self, path: Path, run_task: str) -> Table | None:
        stamp = stamp_of(path)
        if stamp is None:
            return {}
        places = self._places.of(path, stamp, lambda: _places_in(path))
        if places is None:
            return None
        if run_task not in places:
            return {}
        at, size = places[run_task]
        held = self._parts.of((path, run_task), stamp, lambda: _part_of(path, at, size))
        return held.table if held is not None else None

    def _read(self, experiment: Experiment, name: str, read: Callable[[], Table]) -> Table | None:
        path = experiment.path / name
        stamp = stamp_of(path)
        if stamp is None:
            return None

        def make() -> _Held:
            return _Held(read(), stamp[1])

        try:
            held = self._tables.of(path, stamp, make)
        except (EnvironmentFault, OSError, ValueError, RecursionError):
            return None
        return held.table if isinstance(held.table, dict) else None


def _places_in(path: Path) -> _Places | None:
    """Where each run task's part stands in a file as `write_json` lays it out; None: another layout."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    begin = data.find(b'\n  "run_tasks": {\n')
    end = data.find(b"\n  }", begin)
    if begin < 0 or end < 0 or f'\n  "version": {_VERSIONS[path.name]}'.encode() not in data:
        return None
    heads = list(_PART.finditer(data, begin, end))
    ends = [one.start() for one in heads[1:]] + [end]
    try:
        names = [json.loads(one[1]) for one in heads]
    except ValueError:
        return None
    return {
        name: (one.end() - 1, stop - one.end() + 1)
        for name, one, stop in zip(names, heads, ends, strict=True)
    }


def _part_of(path: Path, at: int, size: int) -> _Held | None:
    """A run task's part of a file; None: it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(at)
            part = file.read(size).rstrip(b",")
        found = from_json(part)
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    return _Held(if_whole(found) if path.name == "metrics.json" else found, len(part))


def _entry(tables: Table | None, run_task: str) -> Table:
    found = (tables or {}).get("run_tasks", {}).get(run_task)
    return found if isinstance(found, dict) else {}


def results_of(portal: Portal) -> Results:
    """The portal's reader."""
    found = portal.extra.setdefault("results", Results())
    assert isinstance(found, Results)
    return found
