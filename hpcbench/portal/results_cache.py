"""What experiments are made of and what evaluation wrote of them, read once and again when it changes.

`metrics.json` of a hundred run tasks has megabytes, and a page asks for it with every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.results import (
    metrics_of,
    performance_of,
)
from hpcbench.experiment.view.usage import Usage, written_usage
from hpcbench.portal.context import Portal, experiment_of
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.lru import Kept, stamp_of
from hpcbench.schema.plan import ResolvedPlan

KEPT_BYTES = 8 << 20
"""Bytes of files whose contents are kept: as objects they take five times as much."""

PARTS_BYTES = 2 << 20
"""The same of parts."""

EXPERIMENTS = 32
"""Experiments whose work is kept: 0.4 MB each with a hundred run tasks."""

PLANS = 4
"""Plans that are kept whole: one of a hundred run tasks takes 2 MB."""

ALONE = 128
"""Plans with one run task alone that are kept."""

Table = Mapping[str, Any]


@dataclass(frozen=True)
class _Held:
    table: Table | None
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
        whole = from_json(self.resolved_file.read_bytes())
        own = [one for one in whole["run_tasks"] if one["task"]["name"] == run_task]
        return ResolvedPlan.model_validate({**whole, "run_tasks": own})

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, LookupError, TypeError):
            what = (
                f"{self.id} cannot be read: another version of hpcbench wrote it, or it is damaged"
            )
            raise PortalFault(409, "unreadable", what) from None


@dataclass(frozen=True)
class Results:
    """Reads for all requests of one portal; every method may be called from any thread."""

    _experiments: Kept[Seen] = field(default_factory=lambda: Kept(EXPERIMENTS))
    _plans: _Plans = field(default_factory=_Plans)
    _parts: Kept[Table] = field(
        default_factory=lambda: Kept(PARTS_BYTES, lambda part: len(to_json(part)))
    )
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
        """What `metrics.json` and `performance.json` say of one run task; empty where they say nothing."""
        return (
            self._part(experiment.metrics_file, run_task, lambda: metrics_of(experiment)),
            self._part(experiment.performance_file, run_task, lambda: performance_of(experiment)),
        )

    def _part(self, path: Path, run_task: str, read: Callable[[], Table]) -> Table:
        """A run task's part of a file; the whole, ten times as large in memory, is not kept for it."""
        stamp = stamp_of(path)

        def take() -> Table:
            held = self._tables.held(path, stamp)
            whole = held[0].table if held else _readable(read)
            found = (whole or {}).get("run_tasks", {}).get(run_task)
            return found if isinstance(found, dict) else {}

        return self._parts.of((path, run_task), stamp, take) if stamp is not None else {}

    def _read(self, experiment: Experiment, name: str, read: Callable[[], Table]) -> Table | None:
        path = experiment.path / name
        stamp = stamp_of(path)
        if stamp is None:
            return None

        def make() -> _Held:
            return _Held(_readable(read), stamp[1])

        return self._tables.of(path, stamp, make).table


def _readable(read: Callable[[], Table]) -> Table | None:
    """What a reader gives; None where its file cannot be read."""
    try:
        found = read()
    except (EnvironmentFault, OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def results_of(portal: Portal) -> Results:
    """The portal's reader."""
    found = portal.extra.setdefault("results", Results())
    assert isinstance(found, Results)
    return found
