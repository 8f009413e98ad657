"""Files of experiments and results of evaluation, read once and again after a change.

`metrics.json` of a hundred run tasks has megabytes, and a page requests it with every figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from pydantic_core import to_json

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.layout import Experiment, decoding
from hpcbench.experiment.manifest import Manifest
from hpcbench.experiment.view.as_written import manifest_data, manifest_member, plan_of_one
from hpcbench.experiment.view.metrics_json import Metrics, Scores, metrics_of, scores_of
from hpcbench.experiment.view.performance_json import Performance, Speed, performance_of, speed_of
from hpcbench.experiment.view.usage import Usage, written_usage
from hpcbench.files.json_places import Places
from hpcbench.portal.context import Portal, experiment_of, once
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.file_places import FilePlaces
from hpcbench.portal.lru import LruCache, stamp_of
from hpcbench.schema.decoding import decoded
from hpcbench.schema.plan import ResolvedPlan, WorkPlan

KEPT_BYTES = 1 << 20
"""Bytes of files of each kind whose contents are kept: as objects they take ten times the memory."""

PARTS_BYTES = 256 << 10
"""The same for parts of one run task."""

EXPERIMENTS = 32
"""Experiments that are kept: 0.2 MB each with a hundred run tasks."""

PLANS = 4
"""Whole plans that are kept: a plan of a hundred run tasks takes 2 MB."""

ALONE = 48
"""Plans of a single run task that are kept."""

WholeT = TypeVar("WholeT", Metrics, Performance)
PartT = TypeVar("PartT", Scores, Speed)


@dataclass(frozen=True)
class _CachedFile(Generic[WholeT]):
    file: WholeT | None
    bytes: int


def _cached_files() -> LruCache[_CachedFile[WholeT]]:
    return LruCache(KEPT_BYTES, lambda held: held.bytes)


def _parts() -> LruCache[PartT | None]:
    return LruCache(PARTS_BYTES, lambda part: len(to_json(part)))


@dataclass(frozen=True)
class _Plans:
    places: FilePlaces = field(default_factory=FilePlaces)
    whole: LruCache[ResolvedPlan] = field(default_factory=lambda: LruCache(PLANS))
    alone: LruCache[ResolvedPlan] = field(default_factory=lambda: LruCache(ALONE))


@dataclass(frozen=True)
class PageExperiment(Experiment):
    """An experiment for pages: most pages need one run task of its plan, and few the whole plan."""

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
    def manifest(self) -> Manifest:
        """The manifest, as submit wrote it; most pages need only `work`."""
        with decoding(self.manifest_file):
            return Manifest.of(manifest_data(self))

    @cached_property
    def work(self) -> WorkPlan:
        """Groups and shards, read without the rest of the manifest."""
        places = self._plans.places.of(self, self.manifest_file)
        with decoding(self.manifest_file):
            return decoded(WorkPlan, manifest_member(self, "work", places))

    @property
    def resolved(self) -> ResolvedPlan:
        """The whole plan; where one run task suffices, use `alone`.

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
            return self._plans.alone.of(
                key, stamp, lambda: plan_of_one(self, run_task, self.places)
            )

    @property
    def places(self) -> Places | None:
        """Where the run tasks are in the resolved plan; None: it cannot be read."""
        return self._plans.places.of(self, self.resolved_file)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, LookupError, TypeError):
            what = (
                f"{self.id} cannot be read: another version of hpcbench wrote it, or it is damaged"
            )
            raise PortalFault(409, "unreadable", what) from None


def seen(path: Path) -> PageExperiment:
    """The experiment of a folder, for a process without a portal."""
    return PageExperiment(path, _Plans())


@dataclass(frozen=True)
class Results:
    """Reads for all requests of one portal; every method may be called from any thread."""

    _experiments: LruCache[PageExperiment] = field(default_factory=lambda: LruCache(EXPERIMENTS))
    _plans: _Plans = field(default_factory=_Plans)
    _scores: LruCache[Scores | None] = field(default_factory=_parts)
    _speeds: LruCache[Speed | None] = field(default_factory=_parts)
    _usages: LruCache[Usage | None] = field(default_factory=lambda: LruCache(EXPERIMENTS))
    _metrics: LruCache[_CachedFile[Metrics]] = field(default_factory=_cached_files)
    _performances: LruCache[_CachedFile[Performance]] = field(default_factory=_cached_files)

    def experiment(self, portal: Portal, identity: str) -> PageExperiment:
        """The experiment with an id, with its parts that were read before.

        Raises:
            PortalFault: no experiment has this id.
        """
        found = experiment_of(portal, identity)
        stamp = stamp_of(found.resolved_file), stamp_of(found.manifest_file)
        return self._experiments.of(
            found.path, stamp, lambda: PageExperiment(found.path, self._plans)
        )

    def metrics(self, experiment: Experiment) -> Metrics | None:
        """Contents of `metrics.json`; None where it cannot be read."""
        return _whole(self._metrics, experiment, experiment.metrics_file, metrics_of)

    def performance(self, experiment: Experiment) -> Performance | None:
        """Contents of `performance.json`; None where it cannot be read."""
        return _whole(self._performances, experiment, experiment.performance_file, performance_of)

    def usage(self, experiment: Experiment) -> Usage | None:
        """Usage of an experiment, as recorded at its end."""
        path = experiment.usage_file
        return self._usages.of(path, stamp_of(path), lambda: written_usage(experiment))

    def of_run_task(
        self, experiment: Experiment, run_task: str
    ) -> tuple[Scores | None, Speed | None]:
        """Contents of `metrics.json` and `performance.json` about one run task; None where there are none."""
        metrics, performance = experiment.metrics_file, experiment.performance_file
        places = self._plans.places
        return (
            self._scores.of(
                (metrics, run_task),
                stamp_of(metrics),
                lambda: scores_of(experiment, run_task, places.of(experiment, metrics)),
            ),
            self._speeds.of(
                (performance, run_task),
                stamp_of(performance),
                lambda: speed_of(experiment, run_task, places.of(experiment, performance)),
            ),
        )


def _whole(
    kept: LruCache[_CachedFile[WholeT]],
    experiment: Experiment,
    path: Path,
    read: Callable[[Experiment], WholeT],
) -> WholeT | None:
    stamp = stamp_of(path)
    if stamp is None:
        return None
    return kept.of(path, stamp, lambda: _CachedFile(_readable(read, experiment), stamp[1])).file


def _readable(read: Callable[[Experiment], WholeT], experiment: Experiment) -> WholeT | None:
    """The result of a reader; None where its file cannot be read."""
    try:
        return read(experiment)
    except (EnvironmentFault, OSError):
        return None


results_of = once(lambda portal: Results(_plans=_Plans(FilePlaces(portal.index))))
"""The portal's reader."""
