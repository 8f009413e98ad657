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
from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.view.as_written import manifest_data, plan_of_one, plan_places
from hpcbench.experiment.view.evaluated import (
    Metrics,
    Performance,
    Scores,
    Speed,
    metrics_of,
    performance_of,
    scores_of,
    speed_of,
    table_places,
)
from hpcbench.experiment.view.usage import Usage, written_usage
from hpcbench.files.json_places import Places
from hpcbench.portal.context import Portal, experiment_of
from hpcbench.portal.faults import PortalFault
from hpcbench.portal.lru import Kept, stamp_of
from hpcbench.schema.plan import ResolvedPlan

KEPT_BYTES = 1 << 20
"""Bytes of files of each kind whose contents are kept: as objects they take ten times the memory."""

PARTS_BYTES = 256 << 10
"""The same for parts of one run task."""

EXPERIMENTS = 32
"""Experiments that are kept: 0.4 MB each with a hundred run tasks."""

PLANS = 4
"""Whole plans that are kept: a plan of a hundred run tasks takes 2 MB."""

ALONE = 48
"""Plans of a single run task that are kept."""

PLACES = 50_000
"""Parts of files whose places are kept, 16 bytes each: with them, reading one run task parses no other."""

WholeT = TypeVar("WholeT", Metrics, Performance)
PartT = TypeVar("PartT", Scores, Speed)


@dataclass(frozen=True)
class _Held(Generic[WholeT]):
    file: WholeT | None
    bytes: int


def _held() -> Kept[_Held[WholeT]]:
    return Kept(KEPT_BYTES, lambda held: held.bytes)


def _parts() -> Kept[PartT | None]:
    return Kept(PARTS_BYTES, lambda part: len(to_json(part)))


def _places() -> Kept[Places | None]:
    return Kept(PLACES, lambda places: len(places) + 10 if places is not None else 1)


@dataclass(frozen=True)
class _Plans:
    places: Kept[Places] = field(default_factory=lambda: Kept(PLACES, len))
    whole: Kept[ResolvedPlan] = field(default_factory=lambda: Kept(PLANS))
    alone: Kept[ResolvedPlan] = field(default_factory=lambda: Kept(ALONE))


@dataclass(frozen=True)
class Seen(Experiment):
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
    def manifest(self) -> dict[str, object]:
        """The manifest, as submit wrote it; pydantic parses JSON in half the time."""
        return manifest_data(self)

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
    def places(self) -> Places:
        """Where the run tasks are in the resolved plan.

        Raises:
            OSError, ValueError: it cannot be read.
        """
        path = self.resolved_file
        return self._plans.places.of(path, stamp_of(path), lambda: plan_places(self))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, LookupError, TypeError):
            what = (
                f"{self.id} cannot be read: another version of hpcbench wrote it, or it is damaged"
            )
            raise PortalFault(409, "unreadable", what) from None


def seen(path: Path) -> Seen:
    """The experiment of a folder, for a process without a portal."""
    return Seen(path, _Plans())


@dataclass(frozen=True)
class Results:
    """Reads for all requests of one portal; every method may be called from any thread."""

    _experiments: Kept[Seen] = field(default_factory=lambda: Kept(EXPERIMENTS))
    _plans: _Plans = field(default_factory=_Plans)
    _places: Kept[Places | None] = field(default_factory=_places)
    _scores: Kept[Scores | None] = field(default_factory=_parts)
    _speeds: Kept[Speed | None] = field(default_factory=_parts)
    _usages: Kept[Usage | None] = field(default_factory=lambda: Kept(EXPERIMENTS))
    _metrics: Kept[_Held[Metrics]] = field(default_factory=_held)
    _performances: Kept[_Held[Performance]] = field(default_factory=_held)

    def experiment(self, portal: Portal, identity: str) -> Seen:
        """The experiment with an id, with its parts that were read before.

        Raises:
            PortalFault: no experiment has this id.
        """
        found = experiment_of(portal, identity)
        stamp = stamp_of(found.resolved_file), stamp_of(found.manifest_file)
        return self._experiments.of(found.path, stamp, lambda: Seen(found.path, self._plans))

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
        return (
            self._scores.of(
                (metrics, run_task),
                stamp_of(metrics),
                lambda: scores_of(experiment, run_task, self._tables(metrics)),
            ),
            self._speeds.of(
                (performance, run_task),
                stamp_of(performance),
                lambda: speed_of(experiment, run_task, self._tables(performance)),
            ),
        )

    def _tables(self, path: Path) -> Places | None:
        return self._places.of(path, stamp_of(path), lambda: table_places(path))


def _whole(
    kept: Kept[_Held[WholeT]],
    experiment: Experiment,
    path: Path,
    read: Callable[[Experiment], WholeT],
) -> WholeT | None:
    stamp = stamp_of(path)
    if stamp is None:
        return None
    return kept.of(path, stamp, lambda: _Held(_readable(read, experiment), stamp[1])).file


def _readable(read: Callable[[Experiment], WholeT], experiment: Experiment) -> WholeT | None:
    """The result of a reader; None where its file cannot be read."""
    try:
        return read(experiment)
    except (EnvironmentFault, OSError):
        return None


def results_of(portal: Portal) -> Results:
    """The portal's reader."""
    found = portal.extra.setdefault("results", Results())
    assert isinstance(found, Results)
    return found
