"""Names of definitions in the data of a plan, also if other parts of it do not fit the schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpcbench.registry.source import Loc
from hpcbench.schema.dataset import Dataset
from hpcbench.schema.definition import Definition
from hpcbench.schema.gate import Gate
from hpcbench.schema.metric import Metric
from hpcbench.schema.ml_task import MLTask
from hpcbench.schema.model import Model
from hpcbench.schema.outputs import Report
from hpcbench.schema.prompt import Prompt
from hpcbench.schema.run_task import RunTask
from hpcbench.schema.site import Site

Named = tuple[type[Definition], str, Loc]
"""Kind of definition, its name, and its place."""

_OF_PLAN: Mapping[str, type[Definition]] = {"site": Site, "gate": Gate, "reports": Report}
_OF_TASK: Mapping[str, type[Definition]] = {
    "ml_task": MLTask, "model": Model, "dataset": Dataset, "prompt": Prompt, "metrics": Metric,
    "reports": Report,
}  # fmt: skip
_OF_MATRIX: Mapping[str, type[Definition]] = {
    "ml_task": MLTask, "models": Model, "datasets": Dataset, "prompts": Prompt, "metrics": Metric,
    "reports": Report,
}  # fmt: skip


def named(plan: Any) -> Iterator[Named]:
    """Every definition that a plan names.

    Args:
        plan: its data as it was read; values with a wrong form are skipped.
    """
    yield from _fields(plan, _OF_PLAN, ())
    for loc, task in _entries(plan, "run_tasks", ()):
        if isinstance(task, str):
            yield RunTask, task, loc
        yield from _fields(task, _OF_TASK, loc)
    for loc, matrix in _entries(plan, "matrix", ()):
        yield from _fields(matrix, _OF_MATRIX, loc)
        for at, task in _entries(matrix, "include", loc):
            yield from _fields(task, _OF_TASK, at)


def _entries(data: Any, key: str, loc: Loc) -> Iterator[tuple[Loc, Any]]:
    listed = data.get(key) if isinstance(data, Mapping) else None
    for index, one in enumerate(listed if isinstance(listed, list) else ()):
        yield (*loc, key, index), one


def _fields(data: Any, kinds: Mapping[str, type[Definition]], loc: Loc) -> Iterator[Named]:
    if not isinstance(data, Mapping):
        return
    for key, kind in kinds.items():
        yield from _names(data.get(key), kind, (*loc, key))


def _names(value: Any, kind: type[Definition], loc: Loc) -> Iterator[Named]:
    if isinstance(value, str):
        yield kind, value, loc
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _names(one, kind, (*loc, index))
    # A model with an engine needs no definition.
    elif isinstance(value, Mapping) and (
        (kind is Model and not value.get("engine")) or kind is Metric
    ):
        yield from _names(value.get("name"), kind, (*loc, "name"))
