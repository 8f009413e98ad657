"""Configuration differences of two experiments: resolved definitions, images, packages, hashes, machines.

A path names the place: `run_tasks.invoices.model.engine_options.max_model_len`. A difference that all shared
run tasks have appears once, as `run_tasks.*.model.…`. Values that no result depends on are left out, and so
are values that always differ: times, ids, folders, names of nodes, descriptions, recipients of notices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from hpcbench.experiment.layout import Experiment
from hpcbench.experiment.manifest import Commit
from hpcbench.experiment.view.performance_json import Load, Speed, speeds
from hpcbench.schema.definition import Definition
from hpcbench.schema.plan import ResolvedRunTask

ANY = "*"
"""Means every run task that the two experiments share."""

_PROSE = {
    "description", "notes", "metadata", "reports", "schema_version", "published", "read", "unread",
}  # fmt: skip
"""Fields of definitions that nothing depends on."""

_OF_PLAN = ("seed", "shard_size", "parallelism", "executor")
"""Fields of the plan itself; its other fields are in its run tasks, or only inform people."""

_OF_TASK = {"name", "model", "dataset", "prompt", "metrics", "ml_task"}
"""Names, in a run task, of definitions that are themselves compared."""

_OF_MACHINES = ("gpus", "driver", "cuda", "cpu")


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """One place that differs."""

    path: str
    """Where, with dots."""
    one: JsonValue
    """The first experiment's value; None: nothing."""
    other: JsonValue
    """The second experiment's value."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"path": self.path, "one": self.one, "other": self.other}


def config_differences(
    one: Experiment, other: Experiment, pairs: Sequence[tuple[str, str]] = ()
) -> list[ConfigDifference]:
    """Configuration differences, in an order that is always the same.

    Args:
        one: an experiment, the baseline.
        other: another.
        pairs: run tasks of either that belong together; none: run tasks with the same name.
    """
    theirs = {task.name for task in other.resolved.run_tasks}
    both = list(pairs) or [
        (task.name, task.name) for task in one.resolved.run_tasks if task.name in theirs
    ]
    tables = [speeds(here) for here in (one, other)]
    machines = [_machines(table) for table in tables]
    loads = [{name: speed.load for name, speed in table.items()} for table in tables]
    found: dict[str, list[ConfigDifference]] = {}
    for first, second in both:
        sides = (
            _of_run_task(one, one.resolved.run_task(first), machines[0], loads[0]),
            _of_run_task(other, other.resolved.run_task(second), machines[1], loads[1]),
        )
        if one.measured.prompt_formula != other.measured.prompt_formula:
            for side in sides:
                side.pop("prompt.hash", None)
        name = first if first == second else f"{first}={second}"
        found[name] = list(_differing(*sides))
    whole = [_of_experiment(here) for here in (one, other)]
    return [*_by_run_task(found), *_differing(whole[0], whole[1])]


def same_prompt(
    one: Experiment, first: ResolvedRunTask, other: Experiment, second: ResolvedRunTask
) -> bool:
    """Whether two run tasks have one prompt, by hash or, without comparable hashes, by the definition."""
    hashes = [
        here.measured.prompt_hashes.get(task.name) for here, task in ((one, first), (other, second))
    ]
    if all(hashes) and hashes[0] == hashes[1]:
        return True
    if all(hashes) and one.measured.prompt_formula == other.measured.prompt_formula:
        return False
    return meant(first.prompt) == meant(second.prompt)


def meant(definition: Definition) -> dict[str, Any]:
    """A definition without the fields that only inform people."""
    return definition.model_dump(exclude={"version", *_PROSE})


def _by_run_task(found: Mapping[str, Sequence[ConfigDifference]]) -> Iterator[ConfigDifference]:
    """Differences of run tasks; differences that all run tasks have come first, and once."""
    several = len(found) > 1
    common = [
        one
        for one in next(iter(found.values()), ())
        if several and all(one in others for others in found.values())
    ]
    for one in common:
        yield ConfigDifference(f"run_tasks.{ANY}.{one.path}", one.one, one.other)
    for name, some in found.items():
        for one in some:
            if one not in common:
                yield ConfigDifference(f"run_tasks.{name}.{one.path}", one.one, one.other)


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[ConfigDifference]:
    for path in sorted({*one, *other}, key=lambda path: (".versions." in path, path)):
        first, second = one.get(path), other.get(path)
        if first != second and not (_is_folder(first) and _is_folder(second)):
            yield ConfigDifference(path, first, second)


def _is_folder(value: Any) -> bool:
    """Whether a value is a path on this machine; the hash of the path's files says more."""
    return isinstance(value, str) and value.startswith(("/", "~", "."))


def _of_experiment(here: Experiment) -> dict[str, Any]:
    """Values that belong to no run task."""
    manifest = here.manifest
    plan = here.resolved.plan.model_dump(mode="json")
    return _flat(
        {
            "plan": {name: plan.get(name) for name in _OF_PLAN},
            "mode": here.resolved.mode,
            "site": {"name": here.resolved.site.name, "slurm": _where(here)},
            "hpcbench": manifest.hpcbench or None,
            "hpcbench commit": _commit(manifest.git["hpcbench"]),
            "python": manifest.python or None,
            "packages": manifest.packages,
            "plugin_packages": manifest.plugin_packages,
        }
    )


def _where(here: Experiment) -> dict[str, Any]:
    """Settings of the site's Slurm that choose its nodes."""
    slurm = here.resolved.site.slurm
    return {"partition": slurm.partition, "constraint": slurm.constraint}


def _commit(git: Commit | None) -> str | None:
    if git is None:
        return None
    return git["commit"][:12] + (" with changes" if git["dirty"] else "")


def _of_run_task(
    here: Experiment,
    run_task: ResolvedRunTask,
    machines: Mapping[str, Any],
    loads: Mapping[str, Load],
) -> dict[str, Any]:
    """Values that a run task's results depend on, path → value."""
    data = run_task.model_dump(mode="json", exclude={"sweep"})
    task = {name: value for name, value in data["task"].items() if name not in _OF_TASK}
    for part in (data["prompt"], *data["prompt"]["prompts"]):
        for example in part["examples"]:  # the prompt's hash covers their bytes
            example["images"] = len(example["images"])
    environment, measured = here.environment_of(run_task), here.measured
    name = run_task.name
    load = loads.get(name, Load())
    return _flat(
        {
            **task,
            "measure": None,  # it only chooses the concurrency
            "concurrency": load.at_once or run_task.in_flight or task["concurrency"],
            "route": load.route if name in loads else task["route"],  # not every wish is possible
            "model": {**data["model"], "hash": measured.model_hashes.get(run_task.model.name)},
            "dataset": {**data["dataset"], "hash": measured.dataset_hashes.get(name)},
            "prompt": {**data["prompt"], "hash": measured.prompt_hashes.get(name)},
            "ml_task": data["ml_task"],
            "metrics": data["metrics"],
            "engine_packages": data["engine_packages"],
            "samples": measured.samples.get(name),
            "image": {
                **{part: environment.get(part) for part in ("kind", "digest")},
                "versions": environment.get("versions"),
            },
            "hardware": machines.get(name),
        }
    )  # fmt: skip


def _machines(tables: Mapping[str, Speed]) -> dict[str, Any]:
    """Run task → kinds of machines that asked it, without machine names."""
    found = {}
    for name, table in tables.items():
        kinds = [one.to_json() for one in table.hardware or ()]
        found[name] = {
            part: [kind.get(part) for kind in kinds] if len(kinds) > 1 else kinds[0].get(part)
            for part in _OF_MACHINES
            if kinds
        }
    return found


def _flat(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested objects as paths; lists of named things by their names, other lists unchanged."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if name in _PROSE:
            continue
        path = f"{before}{name}"
        if isinstance(value, list) and value and all(_is_named(one) for one in value):
            value = {one["name"]: one for one in value}
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{path}.")
        elif value not in (None, {}, []):
            found[path] = value
    return found


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("name"), str)
