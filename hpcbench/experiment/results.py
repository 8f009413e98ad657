"""Reading what evaluation wrote. It can be made again at any time, so what cannot be read says how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hpcbench.errors import EnvironmentFault
from hpcbench.experiment.ending import as_one_rule
from hpcbench.experiment.layout import Experiment
from hpcbench.files.atomic import read_json

METRICS_VERSION = 2
"""Of `metrics.json`: 2 since it tells invalid answers, faults and groups."""

PERFORMANCE_VERSION = 3
"""Of `performance.json`: 3 since TPOT has the token that ends an answer in time and count, or in neither."""


def metrics_of(experiment: Experiment) -> dict[str, Any]:
    """What `metrics.json` holds; coverage and values by this version's rule, whichever version wrote it.

    Raises:
        EnvironmentFault: it is not there, is damaged, or is of another version of hpcbench.
    """
    found = _read(experiment, experiment.metrics_file, METRICS_VERSION)
    try:
        tables = {name: as_one_rule(table) for name, table in found["run_tasks"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"is damaged: {error!r}"
        raise _unreadable(experiment, experiment.metrics_file, what) from None
    return {**found, "run_tasks": tables}


def summary_of(experiment: Experiment) -> tuple[str, ...]:
    """What its report says first, in blocks of Markdown; nothing where none is written, or it is damaged."""
    try:
        blocks = read_json(experiment.summary_file)["blocks"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()
    return tuple(one for one in blocks if isinstance(one, str)) if isinstance(blocks, list) else ()


def performance_of(experiment: Experiment) -> dict[str, Any]:
    """What `performance.json` holds.

    Raises:
        EnvironmentFault: as `metrics_of`.
    """
    found = _read(experiment, experiment.performance_file, PERFORMANCE_VERSION)
    if not isinstance(found.get("sweeps"), dict):
        raise _unreadable(experiment, experiment.performance_file, "is damaged: it has no sweeps")
    return found


def tables_if_any(
    read: Callable[[Experiment], dict[str, Any]], experiment: Experiment
) -> Mapping[str, Any]:
    """Tables by run task, read by `metrics_of` or `performance_of`; none where they cannot be read."""
    try:
        tables: Mapping[str, Any] = read(experiment)["run_tasks"]
    except EnvironmentFault:
        return {}
    return tables


def at_once(load: Mapping[str, Any]) -> int | str | None:
    """Requests in flight of a load in `performance.json`: a number, or `4 to 8` where they differ."""
    chosen = sorted({*(load.get("chosen") or {}).values()})
    if len(chosen) > 1:
        return f"{chosen[0]} to {chosen[-1]}"
    found: int | str | None = chosen[0] if chosen else load.get("concurrency")
    return found


def _read(experiment: Experiment, path: Path, version: int) -> dict[str, Any]:
    try:
        found: Any = read_json(path)
    except FileNotFoundError:
        raise _unreadable(experiment, path, "is not there") from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(experiment, path, f"is damaged: {error}") from None
    if isinstance(found, dict) and found.get("version", version) != version:
        what = f"is of version {found['version']}, and this hpcbench reads version {version}"
        raise _unreadable(experiment, path, what)
    tables = found.get("run_tasks") if isinstance(found, dict) else None
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        raise _unreadable(experiment, path, "is damaged: it has no tables of run tasks")
    whole: dict[str, Any] = found
    return whole


def _unreadable(experiment: Experiment, path: Path, what: str) -> EnvironmentFault:
    remedy = f"`hpcbench score {experiment.id}` writes it again, from the answers"
    return EnvironmentFault(f"{path} {what}", remedy=remedy)
