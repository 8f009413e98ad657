"""Provenance of an experiment, its differences from another one, and the files of its report."""

from __future__ import annotations

import mimetypes
import os
from pathlib import Path

from hpcbench import secret
from hpcbench.comparison.differences import ConfigDifference, config_differences
from hpcbench.errors import HpcbenchError, first_line
from hpcbench.experiment.baselines import current
from hpcbench.experiment.layout import Experiment, named_by
from hpcbench.experiment.view.as_written import plan_part
from hpcbench.portal.commands_to_copy import without_secrets
from hpcbench.portal.context import Portal
from hpcbench.portal.faults import PortalFault, missing
from hpcbench.portal.logs import masked
from hpcbench.portal.lru import LruCache, Stamp, stamp_of
from hpcbench.portal.models.run_tasks import (
    ConfigurationDiff,
    ConfigurationPlace,
    Origin,
    WholeConfiguration,
)
from hpcbench.portal.results_cache import PageExperiment, results_of
from hpcbench.portal.safe_open import open_beneath
from hpcbench.reporting.provenance import provenance, reproduce

DIFFERENCES = 2_000
"""Most differences of an answer; a reader cannot use more."""

RUN_TASKS = 10
"""Most run tasks of a whole configuration: each has all its definitions."""

PLAN_BYTES = 256 << 10
"""A longer plan is cut."""

REPORT_ENDINGS = frozenset(
    {".html", ".md", ".tex", ".pdf", ".svg", ".png", ".json", ".csv", ".xml", ".parquet", ".txt"}
)
"""Endings of report files that may be served."""

REPORT_BYTES = 64 << 20
"""A larger file is not served."""


_differences: LruCache[list[ConfigDifference]] = LruCache(64)


def origin(experiment: Experiment) -> Origin:
    """The inputs on which the figures depend, and one command that repeats the experiment."""
    try:
        facts = provenance(experiment)["facts"]
    except (KeyError, TypeError, ValueError, AttributeError):
        facts = []  # an imported experiment, or one of an older version
    return Origin(
        facts=tuple((name, masked(str(value))) for name, value in facts),
        reproduce=masked(reproduce(experiment)),
        plan=_plan(experiment),
    )


def _plan(experiment: Experiment) -> str:
    try:
        descriptor = open_beneath(experiment.path, experiment.plan_file.name)
    except OSError:
        return ""
    try:
        return masked(os.pread(descriptor, PLAN_BYTES, 0).decode(errors="replace"))
    finally:
        os.close(descriptor)


def configuration(portal: Portal, experiment: Experiment, wanted: str | None) -> ConfigurationDiff:
    """Differences between an experiment's configuration and that of another one of the same home.

    Args:
        portal: the portal.
        experiment: the experiment.
        wanted: an experiment's id or a baseline's name; None: the plan's baseline.

    Raises:
        PortalFault: no experiment or baseline has the requested name.
    """
    name = wanted or experiment.manifest.baseline
    if not name:
        return ConfigurationDiff(baseline=None)
    try:
        other = _named(portal, name)
        stamp = _stamp(other), _stamp(experiment)
        found = _differences.of(
            (other.path, experiment.path), stamp, lambda: config_differences(other, experiment)
        )
    except PortalFault as fault:
        if wanted is not None:
            raise
        return ConfigurationDiff(baseline=None, why=fault.error)
    except (HpcbenchError, OSError, ValueError, KeyError, TypeError) as error:
        why = first_line(error)
        return ConfigurationDiff(baseline=name, why=secret.mask(why))
    return ConfigurationDiff(
        baseline=other.id,
        differences=tuple(
            ConfigurationPlace(
                path=one.path,
                baseline=without_secrets(one.one, one.path.rpartition(".")[2]),
                experiment=without_secrets(one.other, one.path.rpartition(".")[2]),
            )
            for one in found[:DIFFERENCES]
        ),
    )


def whole_configuration(experiment: PageExperiment) -> WholeConfiguration:
    """The resolved configuration, with references to secrets instead of secrets.

    Raises:
        PortalFault: the resolved plan cannot be read.
    """
    try:
        places = experiment.places
        if places is None:
            raise ValueError("it cannot be read")
        names = list(places.numbers)
        resolved = plan_part(experiment, names[:RUN_TASKS], places)
        shown = {one["task"]["name"]: without_secrets(one) for one in resolved["run_tasks"]}
        plan, site = (without_secrets(resolved[name]) for name in ("plan", "site"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PortalFault(500, "unreadable", "the resolved plan cannot be read") from error
    return WholeConfiguration(plan=plan, site=site, run_tasks=shown, total=len(names))


def _stamp(experiment: Experiment) -> tuple[Stamp, ...]:
    files = (experiment.resolved_file, experiment.manifest_file, experiment.performance_file)
    return tuple(map(stamp_of, files))


def _named(portal: Portal, name: str) -> Experiment:
    """An experiment by its id, or by a baseline's name."""
    try:
        return results_of(portal).experiment(portal, name)
    except PortalFault:
        try:
            baseline = current(portal.home, name)
        except (HpcbenchError, OSError, ValueError):
            baseline = None
        if baseline is None:
            raise
        return named_by(portal.home, baseline)


# --- report -------------------------------------------------------------------------------------------


def may_be_fetched(name: str) -> bool:
    """Whether a file of a report may be served, by its name."""
    plain = name.isascii() and name.isprintable() and "/" not in name and len(name) <= 200
    return plain and name[:1] not in (".", "") and Path(name).suffix.lower() in REPORT_ENDINGS


def report_file(experiment: Experiment, name: str) -> tuple[int, int, str]:
    """A file of the report: descriptor (the caller closes it), size in bytes, media type.

    Raises:
        PortalFault: no file of this name may be served, or it is too large.
    """
    gone = missing(f"the report has no file '{name[:200]}'")
    if not may_be_fetched(name):
        raise gone
    try:
        descriptor = open_beneath(experiment.path, experiment.report_dir.name, name)
    except OSError:
        raise gone from None
    size = os.fstat(descriptor).st_size
    if size > REPORT_BYTES:
        os.close(descriptor)
        raise PortalFault(
            413,
            "too_large",
            f"'{name}' has {size >> 20} MiB, the limit is {REPORT_BYTES >> 20} MiB",
            "copy it with scp or rsync",
        )
    return descriptor, size, mimetypes.guess_type(name)[0] or "application/octet-stream"
