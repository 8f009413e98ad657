"""The resolved plan, the manifest, a gate's verdict and a report's summary as they were written.

For readers that need a part of a plan, change it before they validate it, or must accept other versions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from hpcbench.experiment.layout import Experiment, decoding
from hpcbench.files.atomic import unless_stale
from hpcbench.files.json_places import Changed, Places, locate, read

if TYPE_CHECKING:
    from hpcbench.schema.plan import ResolvedPlan

LARGEST = 64 << 20
"""Bytes of the largest file that is read: a thousand run tasks with all their groups take fewer."""


def plan_data(experiment: Experiment) -> dict[str, Any]:
    """The resolved plan.

    Raises:
        OSError: the file cannot be read.
        DamagedFile: the file is damaged, or far too large.
    """
    with decoding(experiment.resolved_file):
        return json_object(experiment.resolved_file)


def manifest_data(experiment: Experiment) -> dict[str, Any]:
    """The manifest; raises as `plan_data`."""
    with decoding(experiment.manifest_file):
        return json_object(experiment.manifest_file)


def manifest_member(experiment: Experiment, name: str, places: Places | None = None) -> Any:
    """One member of the manifest, which has a hundred kilobytes with a hundred run tasks.

    Args:
        experiment: the experiment.
        name: the member.
        places: `manifest_places`; None: the manifest is parsed whole.

    Raises:
        OSError, DamagedFile: as `plan_data`.
        KeyError: the manifest has no such member.
    """
    if places is not None:
        with suppress(Changed):
            return read(experiment.manifest_file, places, [places.whole[name]])[0]
    return manifest_data(experiment)[name]


def verdict_data(experiment: Experiment) -> dict[str, Any]:
    """The verdict of the last gate; raises as `plan_data`."""
    return json_object(experiment.verdict_file)


def manifest_places(experiment: Experiment) -> Places:
    """Where the members of the manifest are; raises as `plan_data`."""
    return locate(experiment.manifest_file, within="", most=LARGEST)


def plan_places(experiment: Experiment) -> Places:
    """Where the run tasks are in the resolved plan; raises as `plan_data`."""
    return locate(
        experiment.resolved_file, "run_tasks", lambda one: str(one["task"]["name"]), LARGEST
    )


def plan_of_one(
    experiment: Experiment, run_task: str, places: Places | None = None
) -> ResolvedPlan:
    """The plan with one run task only: a whole plan of a hundred takes 2 MB.

    Args:
        experiment: the experiment.
        run_task: name of the run task.
        places: `plan_places`; None: the plan is parsed whole.

    Raises:
        OSError, ValueError: as `plan_data`.
    """
    from hpcbench.schema.plan import ResolvedPlan  # this import takes 0.1 s: status reads no plan

    return ResolvedPlan.model_validate(plan_part(experiment, [run_task], places))


def plan_part(
    experiment: Experiment, run_tasks: Sequence[str], places: Places | None = None
) -> dict[str, Any]:
    """The resolved plan with some run tasks only, in the plan's order; arguments as `plan_of_one`."""
    if places is not None:
        others = {name: place for name, place in places.whole.items() if name != "run_tasks"}
        found = [place for name in run_tasks if (place := places.part(name)) is not None]
        try:
            values = read(experiment.resolved_file, places, [*others.values(), *sorted(found)])
        except Changed:
            return plan_part(experiment, run_tasks)
        head = dict(zip(others, values, strict=False))
        return {**head, "run_tasks": values[len(others) :]}
    whole = plan_data(experiment)
    own = [one for one in whole["run_tasks"] if one["task"]["name"] in run_tasks]
    return {**whole, "run_tasks": own}


def texts(experiment: Experiment) -> Iterator[str]:
    """The resolved plan and the manifest as texts: they contain every path that the experiment needs.

    Raises:
        OSError: a file cannot be read.
    """
    for path in (experiment.resolved_file, experiment.manifest_file):
        yield path.read_text(encoding="utf-8")


def summary_of(experiment: Experiment) -> tuple[str, ...]:
    """The first section of its report, in blocks of Markdown; empty: not written yet, or damaged."""
    try:
        blocks = json_object(experiment.summary_file)["blocks"]
    except (OSError, ValueError, KeyError):
        return ()
    return tuple(one for one in blocks if isinstance(one, str)) if isinstance(blocks, list) else ()


def json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; raises as `plan_data`."""
    found = from_json(unless_stale(lambda: _bytes(path)))
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not a JSON object")
    return found


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > LARGEST:
            raise ValueError(f"{path.name} is larger than {LARGEST} bytes")
        return file.read()
